//! The tools of `sanitize`: what each sees, what it needs, and how cargo runs tests under it. Every tool builds into a
//! folder of its own, because each wants all code compiled its way.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::workspace;

/// What watches the tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Tool {
    /// Every schedule of the thread pool's protocol.
    Loom,
    /// An interpreter that knows what a pointer may be used for; vector kernels take their scalar path.
    Miri,
    /// AddressSanitizer: reads and writes outside of what was allocated, or after it was freed.
    Asan,
    /// ThreadSanitizer: data races.
    Tsan,
}

/// Which tests of a crate.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Whole,
    /// A tool's own short form.
    Short,
    /// Those whose names have one of these in them.
    Named(&'static [&'static str]),
}

impl Tool {
    pub(super) const ALL: [Tool; 4] = [Tool::Loom, Tool::Miri, Tool::Asan, Tool::Tsan];

    fn name(self) -> &'static str {
        match self {
            Tool::Loom => "loom",
            Tool::Miri => "miri",
            Tool::Asan => "asan",
            Tool::Tsan => "tsan",
        }
    }

    /// What it looks for, for people.
    pub(super) fn says(self) -> &'static str {
        match self {
            Tool::Loom => "every schedule of the pool's protocol",
            Tool::Miri => "undefined behaviour of any kind, on the scalar path",
            Tool::Asan => "memory that is not there or no longer; assembly is not watched",
            Tool::Tsan => "data races; assembly is not watched",
        }
    }

    /// Whether its tests are programs that run without cargo.
    pub(super) fn makes_programs(self) -> bool {
        self.sanitizer().is_some()
    }

    fn sanitizer(self) -> Option<&'static str> {
        match self {
            Tool::Asan => Some("address"),
            Tool::Tsan => Some("thread"),
            Tool::Loom | Tool::Miri => None,
        }
    }

    /// What it needs is here, or was added; otherwise why it cannot run.
    pub(super) fn require(self) -> std::result::Result<(), &'static str> {
        let silent = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        if self == Tool::Loom {
            return Ok(());
        }
        if !silent(workspace::nightly().arg("--version")) {
            return Err("no nightly toolchain");
        }
        let has = || match self {
            Tool::Miri => silent(workspace::nightly().args(["miri", "--version"])),
            Tool::Tsan => has_source_of_std(),
            Tool::Loom | Tool::Asan => true,
        };
        let mut rustup = Command::new("rustup");
        let add = rustup.args(["component", "add", "--toolchain", "nightly", "miri", "rust-src"]);
        if has() || silent(add) && has() {
            return Ok(());
        }
        Err(if self == Tool::Miri { "Miri cannot be added" } else { "rust-src cannot be added" })
    }

    /// Cargo that runs such tests of a crate.
    pub(super) fn tests(self, package: &str, scope: Scope) -> Result<Command> {
        let programs = if self.tests_whole_programs(package) { "--tests" } else { "--lib" };
        let mut command = self.harness(package, &[programs])?;
        match (self, scope) {
            (Tool::Loom, Scope::Short) => command.arg("protocol::short"),
            (Tool::Loom, _) => command.arg("protocol"),
            (_, Scope::Named(names)) => command.args(names),
            (_, Scope::Whole | Scope::Short) => &mut command,
        };
        Ok(command)
    }

    /// Cargo that builds test programs of a crate, which it is told by its own flags, and runs them; what is added are
    /// arguments of the test harness.
    pub(super) fn harness(self, package: &str, programs: &[&str]) -> Result<Command> {
        let mut command = match self {
            Tool::Loom => {
                let mut command = workspace::cargo();
                command.env("RUSTFLAGS", "--cfg loom").args(["test", "--profile", "sanitize"]);
                command
            }
            Tool::Miri => {
                let mut command = workspace::nightly();
                // Temporary folders are made outside the isolation that Miri keeps otherwise; powers of two in tests
                // are exact.
                command
                    .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-deterministic-floats")
                    .env("PROPTEST_CASES", "4")
                    .args(["miri", "test"]);
                command
            }
            Tool::Asan | Tool::Tsan => self.programs()?,
        };
        command.args(programs).args(["--no-fail-fast", "--package", package]);
        command.arg("--target-dir").arg(self.folder()).arg("--");
        Ok(command)
    }

    /// Whether files of tests run beside unit tests: parsers are in reach of theirs; the CPU backend is what its programs do.
    pub(super) fn tests_whole_programs(self, package: &str) -> bool {
        self != Tool::Loom && (self != Tool::Miri || package == "pteron-cpu")
    }

    /// Whether it runs the threads of a program on one core, so that several cores want several programs.
    pub(super) fn keeps_to_one_core(self) -> bool {
        self == Tool::Miri
    }

    /// Cargo that makes the test programs of a crate and runs none; their paths are in its messages.
    pub(super) fn build(self, package: &str) -> Result<Command> {
        let mut command = self.programs()?;
        command.args([
            "--tests",
            "--no-run",
            "--message-format",
            "json-render-diagnostics",
            "--package",
            package,
        ]);
        command.arg("--target-dir").arg(self.folder());
        Ok(command)
    }

    /// Tests compiled for a sanitizer, with the checks of debug builds.
    fn programs(self) -> Result<Command> {
        let sanitizer = self.sanitizer().unwrap_or_default();
        let mut command = workspace::nightly();
        command.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}")).args(["test", "--profile", "sanitize"]);
        for (name, value) in self.settings() {
            command.env(name, value);
        }
        // With a target, build scripts and macros are compiled without the sanitizer.
        command.args(["--target", &host()?]);
        if self == Tool::Tsan {
            // An `Arc` orders what it does by a fence, which this tool does not see; a library that is compiled for it
            // does without.
            command.arg("-Zbuild-std");
        }
        Ok(command)
    }

    /// Variables that such programs read when they run.
    pub(super) fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Tool::Asan => &[("ASAN_OPTIONS", "detect_stack_use_after_return=1:allocator_may_return_null=1")],
            Tool::Tsan => &[("TSAN_OPTIONS", "halt_on_error=0:history_size=4")],
            Tool::Loom | Tool::Miri => &[],
        }
    }

    fn folder(self) -> PathBuf {
        scratch().join(self.name())
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where all of them build.
pub(super) fn scratch() -> PathBuf {
    workspace::scratch().join("sanitize")
}

/// The answer of the nightly compiler to a question.
fn rustc(question: &[&str]) -> Option<String> {
    let output =
        Command::new("rustc").arg("+nightly").args(question).env_remove("RUSTUP_TOOLCHAIN").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn host() -> Result<String> {
    let version = rustc(&["-vV"]).unwrap_or_default();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(String::from).ok_or_else(|| Error::message("rustc does not say which machine it is for"))
}

fn has_source_of_std() -> bool {
    let sysroot = rustc(&["--print", "sysroot"]).unwrap_or_default();
    PathBuf::from(sysroot).join("lib/rustlib/src/rust/library/Cargo.lock").is_file()
}
