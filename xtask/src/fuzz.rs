//! `cargo xtask fuzz`: runs the cargo-fuzz targets of `fuzz/`, each for a while. Seeds are cut out of the packed sample
//! when they are needed; nothing that a run makes is committed.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use pteron_format::payload::Payload;
use pteron_format::{Limits, lift};
use pteron_gguf::{TensorType, Value, ValueType, Writer};

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::{case, mlx_setup, workspace};

/// Run the fuzz targets, each for some seconds, and stop at nothing: all of them are run, then it says which found what.
///
/// Needs a nightly toolchain; installs cargo-fuzz if it is missing. Seeds come from conformance/sample.zip, those of `pt2`
/// from the sets of `cargo xtask cases` where they are. `mlx` runs only when it is asked for, and installs MLX as
/// `cargo xtask mlx-setup` does. The last line is `N targets, N findings`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for each target.
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// Only this target.
    #[arg(long, value_name = "T")]
    target: Option<Target>,
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
}

/// One run of one target may hold this many MiB.
const MEMORY_MIB: u64 = 6144;
/// One input may take this many seconds.
const TIMEOUT: u64 = 25;
/// Longer inputs are mostly weights.
const LONGEST: usize = 64 << 10;

impl Target {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    require_tools()?;
    let targets = match arguments.target {
        Some(target) => vec![target],
        None => Target::value_variants().iter().copied().filter(|&target| target != Target::Mlx).collect(),
    };
    let mut findings = vec![];
    for &target in &targets {
        let name = target.name();
        let (corpus, seeds) = (folder("corpus", &name)?, folder("seeds", &name)?);
        let count = write_seeds(target, &seeds)?;
        eprintln!("{name}: {} s from {count} seeds", arguments.seconds);
        let mut command = workspace::nightly();
        command.args(["fuzz", "run"]);
        if target == Target::Mlx {
            command.args(["--features", "mlx"]).env("MLX_PREFIX", mlx_setup::default_prefix()?);
        }
        let status = command
            .args(["--fuzz-dir", "fuzz", "--target-dir"])
            .arg(workspace::scratch().join("fuzz").join("target"))
            .arg(&name)
            .args([&corpus, &seeds])
            .arg("--")
            .arg(format!("-max_total_time={}", arguments.seconds))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-timeout={TIMEOUT}"))
            .arg(format!("-max_len={LONGEST}"))
            .arg("-print_final_stats=1")
            .status()
            .doing("start", "cargo fuzz")?;
        if !status.success() {
            println!("{name}: {status}; what it found is in fuzz/artifacts/{name}");
            findings.push(name);
        }
    }
    println!("{} targets, {} findings", targets.len(), findings.len());
    Ok(if findings.is_empty() { Outcome::Good } else { Outcome::Bad })
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

/// Fills a folder with what there is for a target to begin with; says how many there are.
fn write_seeds(target: Target, folder: &Path) -> Result<usize> {
    match target {
        Target::Gguf => {
            let path = folder.join("all-types.gguf");
            fs::write(&path, gguf_seed()?).doing("write", &path)?;
            Ok(1)
        }
        Target::Pt2 => write_exports(folder),
        _ => write_sample(target, folder),
    }
}

/// The graphs of the exports among the cases of ops, where those have been made: the sample has no exports.
fn write_exports(folder: &Path) -> Result<usize> {
    let cases = Cache::locate()?.set("ops");
    let found = if cases.is_dir() { case::find(&cases)? } else { vec![] };
    let mut count = 0;
    for case in found {
        let path = case.folder.join("model.pt2");
        let Ok(file) = File::open(&path) else { continue };
        let mut archive = zip::ZipArchive::new(file).map_err(|error| Error::content(&path, error))?;
        let graph = (0..archive.len()).find(|&index| {
            let name = archive
                .by_index(index)
                .ok()
                .and_then(|member| member.name().ok().map(|name| name.to_string()));
            name.is_some_and(|name| name.ends_with("models/model.json"))
        });
        let Some(index) = graph else { continue };
        let mut bytes = vec![];
        let member = archive.by_index(index).map_err(|error| Error::content(&path, error))?;
        member.take(LONGEST as u64 + 1).read_to_end(&mut bytes).doing("read", &path)?;
        if bytes.len() <= LONGEST {
            let seed = folder.join(format!("{}.json", case.name()));
            fs::write(&seed, bytes).doing("write", &seed)?;
            count += 1;
        }
    }
    Ok(count)
}

/// What the packed sample offers.
fn write_sample(target: Target, folder: &Path) -> Result<usize> {
    let path = workspace::sample();
    let file = File::open(&path).doing("open", &path)?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| Error::content(&path, error))?;
    let mut count = 0;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| Error::content(&path, error))?;
        let name = member.name().map_err(|error| Error::content(&path, error))?.replace('/', "-");
        let mut bytes = vec![];
        member.read_to_end(&mut bytes).doing("read", &path)?;
        for (part, seed) in seeds(target, &name, &bytes).iter().enumerate() {
            if seed.len() <= LONGEST {
                let seed_path = folder.join(format!("{name}.{part}"));
                fs::write(&seed_path, seed).doing("write", &seed_path)?;
                count += 1;
            }
        }
    }
    Ok(count)
}

fn seeds(target: Target, name: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let (program, data) = (name.ends_with(".pte"), name.ends_with(".ptd"));
    match target {
        Target::Container if program || data => vec![bytes.to_vec()],
        Target::Execute if program => vec![bytes.to_vec()],
        Target::Payload | Target::Lift if program => payloads(bytes),
        Target::Text if program => payloads(bytes).iter().filter_map(|payload| text(payload)).collect(),
        _ => vec![],
    }
}

/// A file with a tensor of every type that there is, and metadata of several.
fn gguf_seed() -> Result<Vec<u8>> {
    let mut file = Writer::new();
    let failed = |error: pteron_gguf::GgufError| Error::message(error.to_string());
    file.put("general.architecture", Value::String(b"llama")).map_err(failed)?;
    file.put("llama.block_count", Value::U32(1)).map_err(failed)?;
    file.put_array("tokenizer.ggml.tokens", ValueType::String, &[Value::String(b"a"), Value::String(b"b")])
        .map_err(failed)?;
    for ty in (0..64).filter_map(TensorType::from_number) {
        let row = ty.block_len() * 2;
        let Some(bytes) = ty.row_bytes(row) else { continue };
        let data = (0..2 * bytes).map(|at| (at * 37) as u8).collect();
        file.tensor(ty.name(), &[2, row], ty, data).map_err(failed)?;
    }
    Ok(file.finish())
}

/// The text form of what a payload holds.
fn text(payload: &[u8]) -> Option<Vec<u8>> {
    let limits = Limits::default();
    let payload = Payload::decode(payload, &limits).ok()?;
    Some(lift(&payload, "seed", &limits).ok()?.to_string().into_bytes())
}

/// The MLX payloads in a program, found by their magic: four bytes, "MLX0", then where data begin and their size.
fn payloads(bytes: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| -> Option<usize> {
        let field: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(field)).ok()
    };
    let starts = (0..bytes.len().saturating_sub(24)).filter(|&at| &bytes[at + 4..at + 8] == b"MLX0");
    starts
        .filter_map(|at| {
            let end = at.checked_add(number(at + 8)?)?.checked_add(number(at + 16)?)?;
            bytes.get(at..end).map(<[u8]>::to_vec)
        })
        .collect()
}
