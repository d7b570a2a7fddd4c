//! Cuts a text into tokens, one at a time, each with the place where it begins. Numbers stay text, because only
//! the parser knows whether an integer, an f32 or an f64 is due and each rounds in its own way.

use super::error::{ParseError, Problem, shorten};

/// One piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name or keyword.
    Word(&'a str),
    /// `%12`
    Value(u32),
    /// Digits, with a fraction or exponent perhaps; signs are tokens of their own.
    Number(&'a str),
    /// A quoted string with its escapes resolved.
    Str(String),
    /// `(`, `->`, `..=` and the like.
    Mark(&'static str),
    /// The text is over.
    End,
}

/// Where a token begins: both from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spot {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Spot {
    pub(super) fn error(self, problem: Problem) -> ParseError {
        ParseError { line: self.line, column: self.column, problem }
    }
}

/// Longer marks before those that they begin with.
const MARKS: &[&str] = &["..=", "..", "->", "(", ")", "[", "]", "{", "}", ",", ":", "=", "+", "-", "*", "#"];

/// The text that is not yet cut, and where it begins.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
    spot: Spot,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { rest: text, spot: Spot { line: 1, column: 1 } }
    }

    /// The next token and its place; `End` for ever once the text is over.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, Spot), ParseError> {
        self.skip_blank();
        let spot = self.spot;
        let Some(first) = self.rest.chars().next() else { return Ok((Token::End, spot)) };
        let token = if is_word_start(first) {
            Token::Word(self.take_while(is_word))
        } else if first.is_ascii_digit() {
            Token::Number(self.number())
        } else if first == '%' {
            self.advance(1);
            let digits = self.take_while(|c| c.is_ascii_digit());
            let number = digits.parse().map_err(|_| {
                spot.error(Problem::OutOfRange {
                    text: format!("%{}", shorten(digits)),
                    expected: "a value such as %12",
                })
            })?;
            Token::Value(number)
        } else if first == '"' {
            Token::Str(self.string(spot)?)
        } else if let Some(mark) = MARKS.iter().find(|mark| self.rest.starts_with(**mark)) {
            self.advance(mark.len());
            Token::Mark(mark)
        } else {
            return Err(spot.error(Problem::StrayCharacter(first)));
        };
        Ok((token, spot))
    }

    fn skip_blank(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest.starts_with(';') {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    /// `12`, `1.5`, `2e-7`: a point counts only before a digit, so that `0..=4` is a range.
    fn number(&mut self) -> &'a str {
        let bytes = self.rest.as_bytes();
        let digits_from = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut len = digits_from(0);
        if bytes.get(len) == Some(&b'.') && bytes.get(len + 1).is_some_and(u8::is_ascii_digit) {
            len += 1 + digits_from(len + 1);
        }
        if matches!(bytes.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
            let exponent = digits_from((len + 1 + sign).min(bytes.len()));
            if exponent > 0 {
                len += 1 + sign + exponent;
            }
        }
        self.advance(len)
    }

    fn string(&mut self, spot: Spot) -> Result<String, ParseError> {
        let mut text = String::new();
        self.advance(1);
        loop {
            text.push_str(self.take_while(|c| !matches!(c, '"' | '\\' | '\n')));
            let escape = self.spot;
            match self.rest.as_bytes() {
                [b'"', ..] => {
                    self.advance(1);
                    return Ok(text);
                }
                [b'\\', ..] => {
                    self.advance(1);
                    text.push(self.escape().ok_or_else(|| escape.error(Problem::BadEscape))?);
                }
                _ => return Err(spot.error(Problem::OpenString)),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let plain = match self.rest.as_bytes().first()? {
            b'"' => '"',
            b'\\' => '\\',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (code, _) = self.rest.strip_prefix("u{")?.split_once('}')?;
                self.advance(code.len() + 3);
                return char::from_u32(u32::from_str_radix(code, 16).ok()?);
            }
            _ => return None,
        };
        self.advance(1);
        Some(plain)
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let len = self.rest.find(|c| !accept(c)).unwrap_or(self.rest.len());
        self.advance(len)
    }

    /// Takes bytes up to a character's boundary.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        for c in taken.chars() {
            if c == '\n' {
                self.spot.line += 1;
                self.spot.column = 1;
            } else {
                self.spot.column += 1;
            }
        }
        self.rest = rest;
        taken
    }
}

fn is_word_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a text is one word, and so may stand without quotes.
pub(super) fn is_one_word(text: &str) -> bool {
    text.starts_with(is_word_start) && text.chars().all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
        let mut lexer = Lexer::new(text);
        let mut all = Vec::new();
        loop {
            match lexer.next()?.0 {
                Token::End => return Ok(all),
                token => all.push(token),
            }
        }
    }

    #[test]
    fn ranges_are_not_fractions() {
        let expected = [Token::Number("0"), Token::Mark("..="), Token::Number("6.5e-7"), Token::Mark("..")];
        assert_eq!(tokens("0..=6.5e-7..").unwrap(), expected);
        assert_eq!(tokens("2e").unwrap(), [Token::Number("2"), Token::Word("e")]);
    }

    #[test]
    fn strings_resolve_escapes() {
        assert_eq!(tokens(r#""a\"\\\n\u{1F600}""#).unwrap(), [Token::Str("a\"\\\n\u{1F600}".into())]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let place =
            |text: &str| tokens(text).err().map(|error| (error.line, error.column, error.problem)).unwrap();
        assert_eq!(place("a ; é\n é"), (2, 2, Problem::StrayCharacter('é')));
        assert_eq!(place("é"), (1, 1, Problem::StrayCharacter('é')));
        assert_eq!(place("  \"abc\n\""), (1, 3, Problem::OpenString));
        assert_eq!(place(r#""é\q""#), (1, 3, Problem::BadEscape));
        assert_eq!(place(r#""\u{d800}""#), (1, 2, Problem::BadEscape));
        assert!(matches!(place("%99999999999"), (1, 1, Problem::OutOfRange { .. })));
    }
}
