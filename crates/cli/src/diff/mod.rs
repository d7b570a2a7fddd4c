//! What two files say differently: tables by tables, nodes by nodes, data by content.
//!
//! Two checked files flow in, a [`Differences`] of readable lines flows out. Where things lie in a file
//! (offsets, segment numbers, padding) is no difference; what a table says and what bytes mean is.

mod data;
mod graph;
mod program;

use crate::failure::Failure;
use crate::file::{Content, File};
use std::fmt::{Debug, Display};

/// Everything that differs, in the order in which it was found.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    lines: Vec<String>,
    count: usize,
}

impl Differences {
    /// The difference as lines of text.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// One difference with what each side has: `-` the first, `+` the second.
    fn add(&mut self, place: impl Display, first: &[String], second: &[String]) {
        self.count += 1;
        self.lines.push(place.to_string());
        self.lines.extend(first.iter().map(|line| format!("  - {line}")));
        self.lines.extend(second.iter().map(|line| format!("  + {line}")));
    }

    /// One difference in words.
    fn note(&mut self, text: impl Display) {
        self.add(text, &[], &[]);
    }

    /// Compares two values and shows both if they differ.
    fn compare<T: PartialEq + Debug>(
        &mut self,
        place: impl Display,
        first: &T,
        second: &T,
        show: impl Fn(&T) -> String,
    ) {
        if first == second {
            return;
        }
        let (mut one, mut other) = (show(first), show(second));
        if one == other {
            // What people read leaves out what differs: show everything.
            (one, other) = (format!("{first:?}"), format!("{second:?}"));
        }
        self.add(place, &[one], &[other]);
    }

    /// Compares two lists item by item.
    fn compare_lists<T: PartialEq + Debug>(
        &mut self,
        place: &str,
        first: &[T],
        second: &[T],
        show: impl Fn(&T) -> String,
    ) {
        for index in 0..first.len().max(second.len()) {
            let place = format!("{place}[{index}]");
            match (first.get(index), second.get(index)) {
                (Some(one), Some(other)) => self.compare(place, one, other, &show),
                (one, other) => {
                    let side = |item: Option<&T>| item.map(&show).into_iter().collect::<Vec<_>>();
                    self.add(place, &side(one), &side(other));
                }
            }
        }
    }
}

/// Compares two files of the same kind.
pub(crate) fn compare(first: &File, second: &File) -> Result<Differences, Failure> {
    let mut found = Differences::default();
    match (&first.content, &second.content) {
        (Content::Pte(one), Content::Pte(other)) => program::compare(one, other, &mut found),
        (Content::Ptd(one), Content::Ptd(other)) => data::compare_external(one, other, &mut found),
        (Content::Bpte(one), Content::Bpte(other)) => {
            program::compare(&one.pte, &other.pte, &mut found);
            let suites = (&one.tables.method_test_suites, &other.tables.method_test_suites);
            found.compare_lists("method_test_suites", suites.0, suites.1, |suite| {
                format!("{} tests of `{}`", suite.test_cases.len(), &*suite.method_name)
            });
        }
        (one, other) => {
            let (first, second) = (first.path.display(), second.path.display());
            let kinds = format!("{first} is {}, {second} is {}", one.kind(), other.kind());
            return Err(Failure::new(kinds).hint("compare two files of the same kind"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_does_not_show_is_shown_in_full() {
        let mut found = Differences::default();
        found.compare("same", &1, &1, |_| "x".into());
        assert_eq!(found.count(), 0);
        found.compare("place", &Some(1), &None, |_| "x".into());
        found.compare_lists("list", &[1, 2], &[1], ToString::to_string);
        assert_eq!(found.count(), 2);
        assert_eq!(found.lines(), ["place", "  - Some(1)", "  + None", "list[1]", "  - 2"]);
    }
}
