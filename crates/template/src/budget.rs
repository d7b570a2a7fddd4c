//! What a template may spend: steps and bytes, both counted and never given back.
//!
//! Memory is counted when it is asked for, not when it is held. That is coarse, but it cannot be outwitted, and the
//! bounds grow with the conversation, so that no honest template meets them.

use super::error::TemplateError;

/// Steps that any template may take; a tree walk does some ten million of them a second.
const BASE_STEPS: u64 = 1_500_000;
/// Further steps for each byte of the conversation.
const STEPS_A_BYTE: u64 = 400;
/// Bytes that any template may ask for.
const BASE_BYTES: u64 = 10 << 20;
/// Further bytes for each byte of the conversation.
const BYTES_A_BYTE: u64 = 64;
/// How many bytes of text are looked through in the time of one step.
const SCAN: usize = 64;
/// How much longer a byte of what is looked for takes than one of where it is looked for.
const PREPARE: usize = 8;

/// Why evaluation stopped; the interpreter adds the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Raised(String),
    Evaluation(String),
    Limit { what: &'static str, limit: u64 },
}

impl Fault {
    pub(super) fn evaluation<T>(message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::Evaluation(message.into()))
    }

    pub(super) fn at(self, line: usize) -> TemplateError {
        match self {
            Fault::Raised(message) => TemplateError::Raised { message },
            Fault::Evaluation(message) => TemplateError::Evaluation { line, message },
            Fault::Limit { what, limit } => TemplateError::Limit { what, limit },
        }
    }
}

/// What is left to spend.
#[derive(Debug)]
pub(super) struct Budget {
    steps: u64,
    bytes: u64,
    step_limit: u64,
    byte_limit: u64,
}

impl Budget {
    /// The budget for a conversation of so many bytes.
    pub(super) fn new(input_bytes: usize) -> Budget {
        let input = input_bytes as u64;
        let steps = BASE_STEPS.saturating_add(input.saturating_mul(STEPS_A_BYTE));
        let bytes = BASE_BYTES.saturating_add(input.saturating_mul(BYTES_A_BYTE));
        Budget { steps, bytes, step_limit: steps, byte_limit: bytes }
    }

    /// Pays for so many steps.
    pub(super) fn steps(&mut self, count: usize) -> Result<(), Fault> {
        match self.steps.checked_sub(count as u64) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err(Fault::Limit { what: "steps", limit: self.step_limit }),
        }
    }

    /// Pays for looking through so many bytes.
    pub(super) fn scan(&mut self, bytes: usize) -> Result<(), Fault> {
        self.steps(1 + bytes / SCAN)
    }

    /// Pays for looking for one text in another: what is looked for is looked through several times first.
    pub(super) fn search(&mut self, within: usize, wanted: usize) -> Result<(), Fault> {
        self.scan(within.saturating_add(wanted.saturating_mul(PREPARE)))
    }

    /// Pays for memory, before it is taken.
    pub(super) fn bytes(&mut self, count: usize) -> Result<(), Fault> {
        self.scan(count)?;
        match self.bytes.checked_sub(count as u64) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => Err(Fault::Limit { what: "bytes of memory", limit: self.byte_limit }),
        }
    }

    /// Pays for `count` pieces of `size` bytes.
    pub(super) fn repeat(&mut self, size: usize, count: usize) -> Result<(), Fault> {
        self.bytes(size.saturating_mul(count))
    }
}
