//! Speech models by path or name, and transcripts in the forms that people want them in.

pub(crate) mod load;
pub(crate) mod transcript;
