//! `cargo xtask miri`: the unit tests of everything that reads untrusted bytes, run by Miri. Too slow for every change;
//! no crate among them has `unsafe` but for the mapping of files, whose tests Miri cannot run.

use crate::Outcome;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Run the unit tests of the parsers and of lift under Miri.
///
/// Needs a nightly toolchain; adds its Miri component if it is missing. About ten minutes on two quiet cores. The last
/// line is `N crates, N findings`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this crate.
    #[arg(long, value_name = "CRATE")]
    package: Option<String>,
}

const CRATES: [&str; 3] = ["pteron-tensor", "pteron-ir", "pteron-format"];

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let installed = workspace::nightly().args(["miri", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        let status = std::process::Command::new("rustup")
            .args(["component", "add", "--toolchain", "nightly", "miri", "rust-src"])
            .status()
            .doing("start", "rustup")?;
        if !status.success() {
            return Err(Error::message("Miri could not be added to the nightly toolchain"));
        }
    }
    let crates: Vec<&str> =
        arguments.package.as_deref().map_or_else(|| CRATES.to_vec(), |package| vec![package]);
    let mut findings = 0;
    for package in &crates {
        // Temporary folders are made outside the isolation that Miri keeps otherwise; powers of two in tests are exact.
        let status = workspace::nightly()
            .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-deterministic-floats")
            .env("PROPTEST_CASES", "4")
            .args(["miri", "test", "--lib", "--package", package])
            .status()
            .doing("start", "cargo miri")?;
        if !status.success() {
            println!("{package}: {status}");
            findings += 1;
        }
    }
    println!("{} crates, {findings} findings", crates.len());
    Ok(if findings == 0 { Outcome::Good } else { Outcome::Bad })
}
