//! What commands that talk to language models share: loading a model as the command line asks for it, how answers are chosen,
//! the interrupt key. The talking itself is in `pteron`.

pub(crate) mod choosing;
pub(crate) mod editor;
pub(crate) mod images;
pub(crate) mod interrupt;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod orders;
pub(crate) mod speculating;
