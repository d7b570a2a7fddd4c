//! One file a command: its arguments with their help, and what it does with the rooms around it.

pub(crate) mod conformance;
pub(crate) mod diff;
pub(crate) mod exec;
pub(crate) mod inspect;
pub(crate) mod rewrite;
pub(crate) mod verify;

use pteron_runtime::Options;

/// How a program is loaded for a backend that the user may have named.
fn options(backend: Option<&str>) -> Options {
    Options { backend: backend.map(str::to_owned), ..Options::default() }
}
