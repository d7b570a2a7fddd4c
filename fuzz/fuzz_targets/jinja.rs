//! Templates made of the language's own parts, so that the interpreter, its filters, tests and methods are reached at every
//! step and not only the lexer: a text or an error, within the budgets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pteron_fuzz::{Source, jinja, templates};

fuzz_target!(|data: &[u8]| templates::check(
    &jinja::template(&mut Source::new(data)),
    &templates::input(b"")
));
