//! The checkout that these commands work on: where its parts are, and how cargo builds the binary under test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Doing, Error, Result};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    // xtask lies directly below the root; it is run by cargo from the checkout it was built in.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The generators, the tools and the sample.
pub(crate) fn conformance() -> PathBuf {
    root().join("conformance")
}

/// The packed sample of the full case sets.
pub(crate) fn sample() -> PathBuf {
    conformance().join("sample.zip")
}

/// The packed cases for XNNPACK.
pub(crate) fn xnnpack_cases() -> PathBuf {
    conformance().join("xnnpack.zip")
}

/// The packed cases for Vulkan.
pub(crate) fn vulkan_cases() -> PathBuf {
    conformance().join("vulkan.zip")
}

/// The packed sample of the set of checkpoints.
pub(crate) fn checkpoints() -> PathBuf {
    conformance().join("checkpoints.zip")
}

/// Where commands leave what they found: inside cargo's own folder, which git ignores.
pub(crate) fn scratch() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("xtask")
}

/// The cargo that runs this command.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Cargo of the nightly toolchain; the variable that names the running cargo would lead past rustup.
pub(crate) fn nightly() -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").current_dir(root());
    command
}

/// Builds the binary `pteron` as users get it and says where it is.
pub(crate) fn build_pteron() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "pteron-cli"]);
    executable(command)
}

/// Runs a `cargo build` and says where the binary is that it made.
pub(crate) fn executable(mut command: Command) -> Result<PathBuf> {
    command.args(["--message-format", "json-render-diagnostics"]);
    let mut child = command.stdout(Stdio::piped()).spawn().doing("start", "cargo build")?;
    let mut executable = None;
    if let Some(messages) = child.stdout.take() {
        for line in BufReader::new(messages).lines() {
            let line = line.doing("read the messages of", "cargo build")?;
            executable = executable_of(&line).or(executable);
        }
    }
    let status = child.wait().doing("wait for", "cargo build")?;
    if !status.success() {
        return Err(Error::message("cargo build failed"));
    }
    executable.ok_or_else(|| Error::message("cargo build made no executable"))
}

/// The program that a message of cargo says it has made.
pub(crate) fn executable_of(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}
