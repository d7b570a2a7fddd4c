//! What the targets share: choices made out of bytes, a count of memory that properties can speak of, templates made of
//! the language's own parts, and the vocabularies that the tests have.

pub mod jinja;
pub mod memory;
pub mod templates;
pub mod vocabularies;
mod words;

use std::sync::Once;

/// Choices made out of bytes; zeros when they are spent, so that the first of any list should be the simplest.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// Choices out of these bytes.
    pub fn new(bytes: &'a [u8]) -> Source<'a> {
        Source(bytes)
    }

    /// Whether all bytes are spent.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A number of two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A number below `count`, which is at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// One of a list.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Yes or no; no when all bytes are spent.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Up to so many bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Up to so many bytes as text; what is not UTF-8 is replaced.
    pub fn text(&mut self, count: usize) -> String {
        String::from_utf8_lossy(self.take(count)).into_owned()
    }
}

/// Lets panics unwind. The fuzzer's own hook ends the process at the first, even where a guard would turn it into an error;
/// what nobody catches ends the process all the same, since the fuzzer looks at how the target returns.
pub fn let_guards_catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))));
}
