//! Transcripts in the forms that people want them in.

pub(crate) mod transcript;
