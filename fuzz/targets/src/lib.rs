//! What fuzzing finds out about everything that reads files, prompts and requests of strangers: for any bytes there is an
//! error or a sound outcome, and some property of it holds. A module each; `cargo xtask fuzz` runs them under libFuzzer, and
//! `--quick` under this crate's own program, which needs no more than the tests do.
//!
//! What they share: choices made out of bytes, a count of memory that properties can speak of, templates made of the
//! language's own parts, and the vocabularies that the tests have.

pub mod changes;
pub mod container;
pub mod conversation;
pub mod cpu;
pub mod execute;
pub mod gguf;
pub mod jinja;
mod language;
pub mod lift;
pub mod memory;
pub mod npy;
pub mod payload;
pub mod pt2;
pub mod schema;
pub mod sound;
pub mod template;
mod templates;
pub mod text;
pub mod tokenizer;
mod vocabularies;
pub mod vulkan_payload;
mod words;
pub mod xnnpack;

use std::sync::Once;

/// What does something with an input, and panics where a property does not hold.
pub type Target = fn(&[u8]);

/// All targets by their names.
pub const TARGETS: [(&str, Target); 17] = [
    ("container", container::run),
    ("conversation", conversation::run),
    ("cpu", cpu::run),
    ("execute", execute::run),
    ("gguf", gguf::run),
    ("jinja", jinja::run),
    ("lift", lift::run),
    ("npy", npy::run),
    ("payload", payload::run),
    ("pt2", pt2::run),
    ("schema", schema::run),
    ("sound", sound::run),
    ("template", template::run),
    ("text", text::run),
    ("tokenizer", tokenizer::run),
    ("vulkan_payload", vulkan_payload::run),
    ("xnnpack", xnnpack::run),
];

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
#[allow(clippy::print_stderr)] // what a developer looks for
pub fn let_guards_catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))));
}
