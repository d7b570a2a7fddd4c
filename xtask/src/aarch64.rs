//! `cargo xtask aarch64`: the NEON paths, compiled for 64-bit Arm Linux and run under QEMU's user emulation, so that a
//! machine of another kind shows whether they are right. How fast they are it cannot show.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Run the kernel tests and the op cases on NEON under emulation.
///
/// Needs rustup, and Debian's cross compiler and qemu-user, which are installed where that is allowed. The op cases are
/// those that `cargo xtask cases` made, or else the packed sample; each vector path runs them once, exact, and once fast.
/// The last line is `N runs, N failed`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the packed sample, also where the full set is there.
    #[arg(long)]
    sample: bool,
}

const TARGET: &str = "aarch64-unknown-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Debian's packages of those, with the C library that binaries are linked with.
const PACKAGES: [&str; 3] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];
/// All that QEMU can emulate, the int8 and bf16 extensions among it; the C library of the cross compiler.
const RUNNER: &str = "qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu";
const PATHS: [&str; 3] = ["neon", "neon-dotprod", "neon-i8mm"];

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    require_tools()?;
    let mut runs: Vec<(String, Command)> = vec![];
    let mut tests = cargo();
    tests.args(["test", "--release", "--target", TARGET, "--package", "pteron-kernels"]);
    runs.push(("kernel tests".to_string(), tests));
    let cases = cases(arguments.sample)?;
    for path in PATHS {
        for precision in ["exact", "fast"] {
            let mut conformance = cargo();
            conformance.args([
                "run",
                "--release",
                "--target",
                TARGET,
                "--package",
                "pteron-cli",
                "--",
                "conformance",
            ]);
            conformance.arg(&cases).args(["--backend", "cpu", "--cpu", path, "--precision", precision]);
            runs.push((format!("{path} {precision}"), conformance));
        }
    }
    let mut failed = vec![];
    let count = runs.len();
    for (name, mut command) in runs {
        eprintln!("== {name}");
        if !command.status().doing("start", "cargo")?.success() {
            failed.push(name);
        }
    }
    for name in &failed {
        println!("failed: {name}");
    }
    println!("{count} runs, {} failed", failed.len());
    Ok(if failed.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Cargo that links and runs for the emulated machine.
fn cargo() -> Command {
    let mut command = workspace::cargo();
    command
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", RUNNER)
        .env("CC_aarch64_unknown_linux_gnu", COMPILER);
    command
}

fn cases(sample: bool) -> Result<PathBuf> {
    let full = Cache::locate()?.set("ops");
    Ok(if full.is_dir() && !sample { full } else { workspace::sample() })
}

fn require_tools() -> Result<()> {
    let has = |tool: &str| {
        let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    let added = Command::new("rustup").args(["target", "add", TARGET]).status().doing("start", "rustup")?;
    if !added.success() {
        return Err(Error::message(format!("rustup could not add {TARGET}")));
    }
    if has(COMPILER) && has(EMULATOR) {
        return Ok(());
    }
    let install = Command::new("apt-get").args(["install", "--yes"]).args(PACKAGES).status();
    if install.is_ok_and(|status| status.success()) && has(COMPILER) && has(EMULATOR) {
        return Ok(());
    }
    let packages = PACKAGES.join(" ");
    let advice =
        format!("{COMPILER} and {EMULATOR} are needed: `apt-get install {packages}` as root gets them");
    Err(Error::message(advice))
}
