//! Strings that end an answer. What could be the beginning of one is held back until more text has come, so that no
//! part of it is ever shown.

/// Watches a text for the first of several strings.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    strings: Vec<String>,
    held: String,
    /// The one that has come.
    found: Option<usize>,
}

impl StopStrings {
    /// Empty strings, which would end every answer before it begins, are left out.
    pub fn new(strings: &[String]) -> StopStrings {
        let strings = strings.iter().filter(|string| !string.is_empty()).cloned().collect();
        StopStrings { strings, held: String::new(), found: None }
    }

    /// Takes more text; what may be shown of it, and whether one of the strings has come.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held += text;
        let places = self.strings.iter().map(|string| self.held.find(string.as_str()));
        let first = places.enumerate().filter_map(|(number, at)| Some((at?, number))).min();
        if let Some((at, number)) = first {
            self.found = Some(number);
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest);
        let starts = self.held.char_indices().map(|(at, _)| at).filter(|&at| at >= from);
        let hold = starts.into_iter().find(|&at| {
            let tail = &self.held[at..];
            self.strings.iter().any(|string| string.starts_with(tail))
        });
        let rest = self.held.split_off(hold.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The string that has come.
    pub fn found(&self) -> Option<&str> {
        self.found.and_then(|number| self.strings.get(number)).map(String::as_str)
    }

    /// What was held back, when nothing more comes.
    pub fn finish(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::StopStrings;

    #[test]
    fn the_string_that_came_first_is_named() {
        let stops = ["".to_owned(), "cd".to_owned(), "bc".to_owned()];
        let mut watch = StopStrings::new(&stops);
        assert_eq!((watch.push("a"), watch.found()), (("a".to_owned(), false), None));
        assert_eq!(watch.push("bcd"), (String::new(), true));
        assert_eq!(watch.found(), Some("bc"));
    }

    #[test]
    fn no_part_of_a_stop_string_is_shown_and_nothing_else_is_lost() {
        let cases: [(&[&str], &[&str], &str, bool); 7] = [
            (&["END"], &["abc", "E", "N", "D", "x"], "abc", true),
            (&["END"], &["abE", "Nd", "E"], "abENdE", false),
            (&["aab"], &["aa", "ab", "c"], "a", true),
            (&["</s>", "\n\n"], &["one\n", "two\n", "\nthree"], "one\ntwo", true),
            (&["\u{e9}\u{e9}"], &["\u{e9}", "a\u{e9}", "\u{e9}"], "\u{e9}a", true),
            (&[""], &["a", "b"], "ab", false),
            (&["bc", "abcd"], &["xab", "c"], "xa", true),
        ];
        for (stops, parts, shown, stopped) in cases {
            let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
            let (mut watch, mut text, mut ended) = (StopStrings::new(&stops), String::new(), false);
            for part in parts {
                let (more, stop) = watch.push(part);
                text += &more;
                if stop {
                    ended = true;
                    break;
                }
            }
            if !ended {
                text += &watch.finish();
            }
            assert_eq!((text.as_str(), ended), (shown, stopped), "{stops:?} in {parts:?}");
        }
    }
}
