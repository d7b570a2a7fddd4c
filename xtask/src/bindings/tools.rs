//! Programs that runners need: started, and named where they are missing.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Doing, Error, Result};

/// Runs a command; an error where it cannot be started or fails.
pub(super) fn succeed(command: &mut Command, what: &str) -> Result<()> {
    let status = command.stdout(Stdio::null()).status().doing("start", what)?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::message(format!("{what} ended with {status}"))),
    }
}

/// What a command prints. Where it fails, what it printed until then says how far it came.
pub(super) fn output(command: &mut Command, what: &str) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().doing("start", what)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        eprintln!("{what} ended with {}", output.status);
    }
    Ok(text)
}

/// An error that names the program and what would bring it, where it is not on this machine.
pub(super) fn need(program: &str, package: &str) -> Result<()> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    match found {
        true => Ok(()),
        false => Err(Error::message(format!("`{program}` is not on this machine; {package} brings it"))),
    }
}

/// Makes something once: `made` says that it is there.
pub(super) fn once(made: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
    if made.exists() {
        return Ok(());
    }
    eprintln!("  making {}", made.display());
    make()?;
    match made.exists() {
        true => Ok(()),
        false => Err(Error::message(format!("{} was not made", made.display()))),
    }
}
