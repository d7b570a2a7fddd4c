//! One file a command: its arguments with their help, and what it does with the rooms around it.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod conformance;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod exec;
pub(crate) mod export;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod perplexity;
pub(crate) mod pull;
pub(crate) mod rewrite;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod template;
pub(crate) mod tokenize;
pub(crate) mod transcribe;
pub(crate) mod verify;
pub(crate) mod version;
