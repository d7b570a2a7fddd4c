//! The parser's hand on the tokens: one token of sight, and the small shapes (numbers, words, lists) that every
//! part of the grammar is made of.

use super::error::{ParseError, Problem, shorten};
use super::lexer::{Lexer, Spot, Token};
use crate::graph::ValueId;

/// A result of parsing.
pub(super) type Parsed<T> = Result<T, ParseError>;

/// Reads tokens, knowing the next one.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    spot: Spot,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Parsed<Cursor<'a>> {
        let mut lexer = Lexer::new(text);
        let (token, spot) = lexer.next()?;
        Ok(Cursor { lexer, token, spot })
    }

    /// The next token, which stays.
    pub(super) fn peek(&self) -> &Token<'a> {
        &self.token
    }

    /// Where the next token begins.
    pub(super) fn spot(&self) -> Spot {
        self.spot
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Parsed<Token<'a>> {
        let (token, spot) = self.lexer.next()?;
        self.spot = spot;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// The error that something else was expected than what is next.
    pub(super) fn unexpected<T>(&self, expected: &'static str) -> Parsed<T> {
        let found = match &self.token {
            Token::Word(word) => format!("`{}`", shorten(word)),
            Token::Value(number) => format!("`%{number}`"),
            Token::Number(text) => format!("`{}`", shorten(text)),
            Token::Str(_) => "a string".to_owned(),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end of the text".to_owned(),
        };
        Err(self.spot.error(Problem::Expected { expected, found }))
    }

    /// Takes that mark, if it is next.
    pub(super) fn eat(&mut self, mark: &'static str) -> Parsed<bool> {
        let is_next = self.token == Token::Mark(mark);
        if is_next {
            self.take()?;
        }
        Ok(is_next)
    }

    /// Takes that word, if it is next.
    pub(super) fn eat_word(&mut self, word: &str) -> Parsed<bool> {
        let is_next = self.token == Token::Word(word);
        if is_next {
            self.take()?;
        }
        Ok(is_next)
    }

    /// Takes that mark.
    pub(super) fn expect(&mut self, mark: &'static str) -> Parsed<()> {
        if self.eat(mark)? { Ok(()) } else { self.unexpected(quoted(mark)) }
    }

    /// Takes a word.
    pub(super) fn word(&mut self, expected: &'static str) -> Parsed<&'a str> {
        let Token::Word(word) = self.token else { return self.unexpected(expected) };
        self.take()?;
        Ok(word)
    }

    /// Takes a value such as `%12`.
    pub(super) fn value(&mut self) -> Parsed<ValueId> {
        let Token::Value(number) = self.token else { return self.unexpected("a value such as %12") };
        self.take()?;
        Ok(ValueId(number))
    }

    /// Takes a quoted string.
    pub(super) fn string(&mut self) -> Parsed<String> {
        match &mut self.token {
            Token::Str(text) => {
                let text = std::mem::take(text);
                self.take()?;
                Ok(text)
            }
            _ => self.unexpected("a quoted string"),
        }
    }

    /// Takes an integer with an optional sign, in the range of `T`.
    pub(super) fn integer<T: TryFrom<i128>>(&mut self, expected: &'static str) -> Parsed<T> {
        let spot = self.spot;
        let negative = self.eat("-")?;
        let Token::Number(digits) = self.token else { return self.unexpected(expected) };
        self.take()?;
        let number = digits.parse::<i128>().ok().map(|size| if negative { -size } else { size });
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            let text = format!("{}{}", if negative { "-" } else { "" }, shorten(digits));
            spot.error(Problem::OutOfRange { text, expected })
        })
    }

    /// Takes items between two marks, with commas between them; one after the last is allowed.
    pub(super) fn list<T>(
        &mut self,
        open: &'static str,
        close: &'static str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.eat(close)? {
            items.push(item(self)?);
            if !self.eat(",")? {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }
}

/// The mark as an error shows it.
fn quoted(mark: &'static str) -> &'static str {
    match mark {
        "(" => "`(`",
        ")" => "`,` or `)`",
        "[" => "`[`",
        "]" => "`,` or `]`",
        "{" => "`{`",
        "}" => "`}`",
        ":" => "`:`",
        "=" => "`=`",
        ".." => "`..`",
        other => other,
    }
}
