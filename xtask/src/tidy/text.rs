//! Rust source as lines of code and lines of comment, so that a rule about one is not misled by the other, nor by what
//! strings hold. Knows just enough of the language for that: comments, strings, characters.

/// A source file, line by line.
pub(super) struct Source {
    /// Without comments and without what is between quotes.
    pub(super) code: Vec<String>,
    /// What comments say.
    pub(super) comments: Vec<String>,
}

/// Where the reader is.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Code,
    LineComment,
    /// So many deep.
    BlockComment(usize),
    Text,
    /// Ends at a quote with so many `#`.
    RawText(usize),
}

impl Source {
    pub(super) fn of(text: &str) -> Source {
        let mut source = Source { code: vec![String::new()], comments: vec![String::new()] };
        let characters: Vec<char> = text.chars().collect();
        let mut within = Within::Code;
        let mut at = 0;
        while let Some(&here) = characters.get(at) {
            if here == '\n' {
                source.code.push(String::new());
                source.comments.push(String::new());
                if within == Within::LineComment {
                    within = Within::Code;
                }
                at += 1;
                continue;
            }
            let rest = &characters[at..];
            let (after, taken) = match within {
                Within::Code => code(rest, at.checked_sub(1).map(|at| characters[at])),
                Within::LineComment => (within, 1),
                Within::BlockComment(depth) if rest.starts_with(&['*', '/']) => {
                    (if depth == 1 { Within::Code } else { Within::BlockComment(depth - 1) }, 2)
                }
                Within::BlockComment(depth) if rest.starts_with(&['/', '*']) => {
                    (Within::BlockComment(depth + 1), 2)
                }
                Within::Text if here == '\\' && rest.get(1) != Some(&'\n') => (within, 2),
                Within::Text if here == '"' => (Within::Code, 1),
                Within::RawText(hashes) if here == '"' && is_run(&rest[1..], hashes) => {
                    (Within::Code, 1 + hashes)
                }
                Within::BlockComment(_) | Within::Text | Within::RawText(_) => (within, 1),
            };
            match (within, after) {
                // Of a character in quotes the first quote is enough: what it holds is no code.
                (Within::Code, Within::Code | Within::Text | Within::RawText(_)) => {
                    source.code.last_mut().map(|line| line.push(here))
                }
                (Within::LineComment | Within::BlockComment(_), _) => {
                    source.comments.last_mut().map(|line| line.extend(&rest[..taken]))
                }
                _ => None,
            };
            within = after;
            at += taken;
        }
        source
    }
}

fn is_run(rest: &[char], hashes: usize) -> bool {
    rest.len() >= hashes && rest[..hashes].iter().all(|&c| c == '#')
}

/// What begins here, and how many characters its beginning has.
fn code(rest: &[char], before: Option<char>) -> (Within, usize) {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    match rest {
        ['/', '/', ..] => (Within::LineComment, 2),
        ['/', '*', ..] => (Within::BlockComment(1), 2),
        ['"', ..] => (Within::Text, 1),
        ['r', '"' | '#', ..] if !in_word || before == Some('b') => {
            let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
            if rest.get(1 + hashes) == Some(&'"') {
                (Within::RawText(hashes), 2 + hashes)
            } else {
                (Within::Code, 1)
            }
        }
        ['\'', '\\', ..] => {
            let end = rest[2..].iter().skip(1).position(|&c| c == '\'').map_or(2, |end| end + 4);
            (Within::Code, end)
        }
        ['\'', _, '\'', ..] => (Within::Code, 3),
        _ => (Within::Code, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_comments_are_told_apart() {
        let cases = [
            ("let a = 1; // unsafe", "let a = 1; ", " unsafe"),
            ("a /* one /* two */ three */ b", "a  b", " one /* two */ three */"),
            (r#"f("unsafe \" // no", b)"#, r#"f(", b)"#, ""),
            (r##"f(r#"a " unsafe"#, 'x')"##, "f(r, ')", ""),
            (r"c == '\'' || c == '\u{41}' || '\\'", "c == ' || c == ' || '", ""),
            ("fn a<'r>(x: &'r str) {}", "fn a<'r>(x: &'r str) {}", ""),
            ("'\"' // it's", "' ", " it's"),
        ];
        for (text, code, comment) in cases {
            let source = Source::of(text);
            assert_eq!((source.code[0].as_str(), source.comments[0].as_str()), (code, comment), "{text}");
        }
    }

    #[test]
    fn lines_keep_their_numbers() {
        let source = Source::of("a\n\"x\ny\" b\n/* c\nd */ e\n");
        assert_eq!(source.code, ["a", "\"", " b", "", " e", ""]);
        assert_eq!(source.comments[3], " c");
    }
}
