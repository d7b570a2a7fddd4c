//! `cargo xtask fuzz`: builds the cargo-fuzz targets of `fuzz/` and runs them, each for a while, one after the other or side by
//! side, here or packed for a machine without Rust. Seeds are made when they are needed; nothing that a run makes is
//! committed.

mod pack;
mod seeds;
mod text_seeds;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use clap::ValueEnum;

use crate::Outcome;
use crate::error::{Doing, Error, Result};
use crate::{mlx_setup, workspace};

/// Run the fuzz targets, each for some seconds, and stop at nothing: all of them are run, then it says which found what.
///
/// Needs a nightly toolchain, unless it is quick; installs cargo-fuzz if it is missing. Seeds come from conformance/sample.zip, xnnpack.zip and
/// vulkan.zip, from crates/llm/tests/vectors.zip and from real/schemas.json, those of `pt2` from the sets of `cargo xtask cases` where they are.
/// `mlx` runs only when it is asked for, and installs MLX as `cargo xtask mlx-setup` does. The last line is
/// `N targets, N findings`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for each target.
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// Only this target; may be given several times.
    #[arg(long, value_name = "T")]
    target: Vec<Target>,
    /// How many targets run at a time, each in one process; what they print then goes to one file each.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Without libFuzzer, a nightly toolchain and AddressSanitizer: what the targets do with their seeds, and with what a fixed
    /// chance makes of them.
    #[arg(long, conflicts_with = "build_only")]
    quick: bool,
    /// With --quick, use this program, in place of building it.
    #[arg(long, value_name = "FILE", requires = "quick")]
    program: Option<PathBuf>,
    /// Run nothing: put binaries, seeds and a `run.sh SECONDS` into this folder, for a machine of this kind without Rust.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["seconds", "jobs"])]
    build_only: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Target {
    /// `.pte`, `.ptd` and `.bpte` files.
    Container,
    /// GGUF files, walked and decoded.
    Gguf,
    /// MLX payloads, decoded and encoded again.
    Payload,
    /// Payloads into graphs and back.
    Lift,
    /// XNNPACK payloads, decoded and encoded again, into graphs and on to MLX bytecode.
    Xnnpack,
    /// Vulkan payloads, decoded and encoded again, into graphs and on to MLX bytecode.
    #[value(name = "vulkan_payload")]
    VulkanPayload,
    /// The text form.
    Text,
    /// Whole programs, loaded and run on zeros.
    Execute,
    /// `.pt2` files, compiled.
    Pt2,
    /// Random typed ops: reference = cpu.
    Cpu,
    /// Random typed ops: reference = the real MLX.
    Mlx,
    /// `.npy` files, read and written again.
    Npy,
    /// Chat templates of any text, rendered within their budgets.
    Template,
    /// Chat templates made of the language's own parts, rendered within their budgets.
    Jinja,
    /// Tokenizer files of every format, texts through them and back.
    Tokenizer,
    /// Saved conversations, and any order of commands.
    Conversation,
    /// JSON schemas and grammars, with tokens taken under them.
    Schema,
    /// Sound files of every kind, and samples without a header.
    Sound,
}

/// One run of one target may hold this many MiB.
const MEMORY_MIB: u64 = 6144;
/// One input may take this many seconds.
const TIMEOUT: u64 = 25;

impl Target {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
    }

    /// The longest input in bytes.
    fn longest(self) -> usize {
        match self {
            // Choices, of which a few hundred fill a template.
            Target::Jinja => 2 << 10,
            Target::Npy | Target::Conversation | Target::Schema => 4 << 10,
            Target::Template => 16 << 10,
            // Longer inputs are mostly weights.
            _ => 64 << 10,
        }
    }

    /// What the binary is told beside its folders and its time.
    fn bounds(self) -> [String; 4] {
        [
            format!("-rss_limit_mb={MEMORY_MIB}"),
            format!("-timeout={TIMEOUT}"),
            format!("-max_len={}", self.longest()),
            "-print_final_stats=1".to_owned(),
        ]
    }
}

/// What runs a target.
enum Means {
    /// A binary each, in this folder.
    Fuzzer(PathBuf),
    /// One program for all of them.
    Chance(PathBuf),
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let all = || Target::value_variants().iter().copied().filter(|&target| target != Target::Mlx).collect();
    let targets = if arguments.target.is_empty() { all() } else { arguments.target.clone() };
    let means = match (arguments.quick, &arguments.program) {
        (true, _) if targets.contains(&Target::Mlx) => {
            return Err(Error::message("`mlx` has no quick run: its program is not built beside the others"));
        }
        (true, Some(program)) => Means::Chance(program.clone()),
        (true, None) => Means::Chance(build_quick()?),
        (false, _) => {
            require_tools()?;
            Means::Fuzzer(build(&targets)?)
        }
    };
    if let (Some(destination), Means::Fuzzer(binaries)) = (&arguments.build_only, &means) {
        pack::pack(&targets, binaries, destination)?;
        return Ok(Outcome::Good);
    }
    // What libFuzzer says of each new input is worth a look while one target is worked on, and drowns all else in a short run.
    let to_file = arguments.quick || arguments.jobs > 1;
    let waiting = Mutex::new(targets.iter());
    let work = || -> Result<Vec<String>> {
        let mut findings = vec![];
        loop {
            let next = waiting.lock().ok().and_then(|mut waiting| waiting.next());
            let Some(&target) = next else { return Ok(findings) };
            let found = run_one(target, &means, arguments.seconds, to_file)?;
            findings.extend(found.then(|| target.name()));
        }
    };
    let findings = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..arguments.jobs.min(targets.len() as u64)).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| {
            worker.join().unwrap_or_else(|_| Err(Error::message("a thread that runs targets panicked")))
        });
        joined.collect::<Result<Vec<Vec<String>>>>()
    })?;
    let findings = findings.concat();
    if !findings.is_empty() {
        println!("findings of: {}; the inputs are in fuzz/artifacts", findings.join(", "));
    }
    println!("{} targets, {} findings", targets.len(), findings.len());
    Ok(if findings.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Runs one target to its end; whether it found something.
fn run_one(target: Target, means: &Means, seconds: u64, to_file: bool) -> Result<bool> {
    let name = target.name();
    let (corpus, seeds) = (folder("corpus", &name)?, folder("seeds", &name)?);
    let count = seeds::write(target, &seeds)?;
    let artifacts = workspace::root().join("fuzz").join("artifacts").join(&name);
    fs::create_dir_all(&artifacts).doing("make", &artifacts)?;
    eprintln!("{name}: {seconds} s from {count} seeds");
    let (mut command, program) = match means {
        Means::Fuzzer(binaries) => {
            let program = binaries.join(&name);
            let mut command = Command::new(&program);
            command
                .args([&corpus, &seeds])
                .arg(format!("-max_total_time={seconds}"))
                .arg(format!("-artifact_prefix={}/", artifacts.display()))
                .args(target.bounds())
                .env("ASAN_OPTIONS", "detect_odr_violation=0");
            (command, program)
        }
        Means::Chance(program) => {
            let mut command = Command::new(program);
            command
                .arg(&name)
                .args([seconds, target.longest() as u64, MEMORY_MIB, TIMEOUT].map(|n| n.to_string()));
            command.args([&artifacts, &seeds]);
            (command, program.clone())
        }
    };
    let log = folder("logs", "")?.join(format!("{name}.log"));
    if to_file {
        let file = File::create(&log).doing("make", &log)?;
        command.stdout(Stdio::null()).stderr(file);
    }
    let status = command.status().doing("start", &program)?;
    if !status.success() {
        println!("{name}: {status}; what it found is in fuzz/artifacts/{name}");
        if to_file {
            print!("{}", end_of(&log)?);
            println!("{name}: all that it said is in {}", log.display());
        }
    }
    Ok(!status.success())
}

/// The last lines of a log: what a target stopped at, with the input.
fn end_of(log: &Path) -> Result<String> {
    const LINES: usize = 60;
    let said = fs::read(log).doing("read", log)?;
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    Ok(lines[lines.len().saturating_sub(LINES)..].iter().map(|line| format!("    {line}\n")).collect())
}

/// Builds what runs targets without a fuzzer.
fn build_quick() -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command.args(["build", "--release", "--package", "pteron-fuzz-targets"]);
    workspace::executable(command)
}

/// Builds targets; the folder of their binaries.
fn build(targets: &[Target]) -> Result<PathBuf> {
    let host = host()?;
    let folder = workspace::scratch().join("fuzz").join("target");
    for &target in targets {
        let mut command = workspace::nightly();
        command.args(["fuzz", "build", "--fuzz-dir", "fuzz", "--target", &host, "--target-dir"]).arg(&folder);
        if target == Target::Mlx {
            command.args(["--features", "mlx"]).env("MLX_PREFIX", mlx_setup::default_prefix()?);
        }
        let status = command.arg(target.name()).status().doing("start", "cargo fuzz")?;
        if !status.success() {
            return Err(Error::message(format!("the target `{}` cannot be built", target.name())));
        }
    }
    Ok(folder.join(host).join("release"))
}

/// What the nightly compiler calls this machine.
fn host() -> Result<String> {
    let output = Command::new("rustc")
        .args(["+nightly", "--verbose", "--version"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .output()
        .doing("start", "rustc")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::message("rustc does not say which machine it builds for"))
}

fn require_tools() -> Result<()> {
    let silent = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !silent(workspace::nightly().arg("--version")) {
        return Err(Error::message("no nightly toolchain; `rustup toolchain install nightly` gets one"));
    }
    if silent(workspace::nightly().args(["fuzz", "--version"])) {
        return Ok(());
    }
    let status = workspace::cargo()
        .args(["install", "--locked", "cargo-fuzz"])
        .status()
        .doing("start", "cargo install")?;
    if status.success() { Ok(()) } else { Err(Error::message("cargo-fuzz could not be installed")) }
}

fn folder(kind: &str, target: &str) -> Result<PathBuf> {
    let path = workspace::scratch().join("fuzz").join(kind).join(target);
    fs::create_dir_all(&path).doing("make", &path)?;
    Ok(path)
}
