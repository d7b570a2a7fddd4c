//! Measuring language models: a program or a random one of a published shape, its prefill and decode, what the machine
//! could do at best, and where the time goes.

pub(crate) mod about;
pub(crate) mod decoder;
pub(crate) mod figures;
pub(crate) mod lanes;
pub(crate) mod machine;
pub(crate) mod matrix;
pub(crate) mod measure;
pub(crate) mod profile;
pub(crate) mod program;
pub(crate) mod synthetic;
pub(crate) mod timeline;
pub(crate) mod traffic;
