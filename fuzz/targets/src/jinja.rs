//! Templates made of the language's own parts, so that the interpreter, its filters, tests and methods are reached at every
//! step and not only the lexer: a text or an error, within the budgets.

use crate::{Source, language, templates};

/// One input.
pub fn run(data: &[u8]) {
    templates::check(&language::template(&mut Source::new(data)), &templates::input(b""))
}
