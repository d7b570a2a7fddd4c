//! Differences between two graphs, line by line of their text form.
//!
//! The text is complete, so that equal text is an equal graph. One node more renumbers every value after it;
//! lines are therefore matched with numbers masked, and matched lines are equal if one renaming of values and
//! symbols explains them all.

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Two graphs of many thousand nodes that have nothing in common would keep an exact diff busy for hours; after
/// this it settles for a coarser one.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stretch of lines that differs.
#[derive(Debug, PartialEq)]
pub(super) struct Hunk {
    pub(super) first: Vec<String>,
    pub(super) second: Vec<String>,
}

/// The stretches in which two texts differ, up to renaming.
pub(super) fn compare(first: &str, second: &str) -> Vec<Hunk> {
    let (first, second) = (lines(first), lines(second));
    let keys = |lines: &[Line]| lines.iter().map(|line| line.key.clone()).collect::<Vec<_>>();
    let deadline = Some(Instant::now() + PATIENCE);
    let matched = capture_diff_slices_deadline(Algorithm::Myers, &keys(&first), &keys(&second), deadline);
    let mut renaming = Renaming::default();
    let mut hunks: Vec<Hunk> = Vec::new();
    for part in matched {
        let (tag, one, other) = part.as_tag_tuple();
        let texts = |lines: &[Line]| lines.iter().map(|line| line.text.trim().to_owned()).collect();
        if tag != DiffTag::Equal {
            hunks.push(Hunk { first: texts(&first[one]), second: texts(&second[other]) });
            continue;
        }
        for (one, other) in first[one].iter().zip(&second[other]) {
            if !renaming.explains(&one.names, &other.names) {
                hunks.push(Hunk {
                    first: vec![one.text.trim().into()],
                    second: vec![other.text.trim().into()],
                });
            }
        }
    }
    hunks
}

/// A line with the numbers of values and made-up symbols taken out.
struct Line {
    text: String,
    key: String,
    names: Vec<String>,
}

fn lines(text: &str) -> Vec<Line> {
    text.lines().map(Line::new).collect()
}

impl Line {
    fn new(text: &str) -> Line {
        let code = code(text);
        let (mut key, mut names) = (String::new(), Vec::new());
        let mut rest = code;
        while let Some(c) = rest.chars().next() {
            let length = token(rest, c);
            let (word, after) = rest.split_at(length);
            if is_number(word) {
                key.push_str(&word[..1]);
                names.push(word.to_owned());
            } else {
                key.push_str(word);
            }
            rest = after;
        }
        Line { text: text.to_owned(), key, names }
    }
}

/// The line without its comment, which says where a node stood and not what it is.
fn code(line: &str) -> &str {
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if c == ';' {
            return line[..line.len() - rest.len()].trim_end();
        }
        rest = &rest[token(rest, c)..];
    }
    line
}

/// Bytes of the token that `text` starts with: a quoted text, a word with its sigil, or one character.
fn token(text: &str, first: char) -> usize {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match first {
        '"' => {
            let mut escaped = false;
            let end = text.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map_or(text.len(), |(at, _)| at + 1)
        }
        '%' | '#' => 1 + text[1..].find(|c| !word(c)).unwrap_or(text.len() - 1),
        c if word(c) => text.find(|c| !word(c)).unwrap_or(text.len()),
        c => c.len_utf8(),
    }
}

/// `%12`, `#3` and `s7`, which lifting numbers as they come.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix(['%', '#', 's']);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Which names of the first graph stand for which of the second.
#[derive(Default)]
struct Renaming {
    forward: HashMap<String, String>,
    back: HashMap<String, String>,
}

impl Renaming {
    fn explains(&mut self, first: &[String], second: &[String]) -> bool {
        first.len() == second.len() && first.iter().zip(second).all(|(one, other)| self.pair(one, other))
    }

    fn pair(&mut self, one: &str, other: &str) -> bool {
        match (self.forward.get(one), self.back.get(other)) {
            (None, None) => {
                self.forward.insert(one.to_owned(), other.to_owned());
                self.back.insert(other.to_owned(), one.to_owned());
                true
            }
            (Some(known), Some(back)) => known == other && back == one,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAPH: &str = r#"graph "f"
  input %0 "x; y": f32[2, s0]
{
  %1: f32[2, s0] = exp(x=%0)  ; chain 0 #0
  %2: f32[2, s0] = add(a=%1, b=%0)
}
output %2 "": f32[2, s0]"#;

    fn hunk(first: &[&str], second: &[&str]) -> Hunk {
        let texts = |lines: &[&str]| lines.iter().map(ToString::to_string).collect();
        Hunk { first: texts(first), second: texts(second) }
    }

    #[test]
    fn numbers_and_places_alone_are_no_difference() {
        let renamed = GRAPH.replace("%2", "%7").replace("s0", "s3").replace("#0", "#12");
        assert_eq!(compare(GRAPH, &renamed), []);
    }

    #[test]
    fn one_node_more_is_one_difference() {
        let more = GRAPH
            .replace("%2", "%3")
            .replace("a=%1", "a=%2")
            .replace("  %3: f32", "  %2: f32[2, s0] = neg(x=%1)\n  %3: f32");
        assert_eq!(compare(GRAPH, &more)[0], hunk(&[], &["%2: f32[2, s0] = neg(x=%1)"]));
        // And the sum now takes what the new node gives.
        assert_eq!(compare(GRAPH, &more).len(), 2);
    }

    #[test]
    fn swapped_operands_and_changed_names_are_differences() {
        let swapped = GRAPH.replace("a=%1, b=%0", "a=%0, b=%1");
        let expected = hunk(&["%2: f32[2, s0] = add(a=%1, b=%0)"], &["%2: f32[2, s0] = add(a=%0, b=%1)"]);
        assert_eq!(compare(GRAPH, &swapped), [expected]);
        assert_eq!(compare(GRAPH, &GRAPH.replace("x; y", "x; z")).len(), 1);
    }
}
