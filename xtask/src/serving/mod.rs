//! A `pteron serve` of this checkout that the commands about serving ask: where it comes from, the packages that ask it, and
//! a small client for what is measured here itself.

mod environment;
mod http;
mod server;

pub(crate) use environment::Environment;
pub(crate) use http::{Client, Reply};
pub(crate) use server::{Resident, Server, Start};

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::workspace;

/// The binary under test: the one that was named, or the release binary of this checkout.
pub(crate) fn binary(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        None => workspace::build_pteron(),
        Some(path) if path.is_file() => {
            std::path::absolute(path).map_err(|error| Error::content(path, error))
        }
        Some(path) => Err(Error::content(path, "there is no such binary")),
    }
}

/// The scripts that ask the server.
pub(crate) fn scripts() -> PathBuf {
    workspace::root().join("xtask").join("serve")
}
