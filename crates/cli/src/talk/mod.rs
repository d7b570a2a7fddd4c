//! What commands that talk to language models share: finding and loading a model, how answers are chosen, the interrupt
//! key. The talking itself is in `pteron_llm`.

pub(crate) mod choosing;
pub(crate) mod convert;
pub(crate) mod editor;
pub(crate) mod find;
pub(crate) mod interrupt;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod orders;
