//! `cargo xtask release`: what people install, by one command. For every target an archive with the binary, its manual pages,
//! completions and licences; for all of them a bill of materials and a list of sums.

mod materials;
mod needs;
mod notices;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;

use crate::Outcome;
use crate::error::{Doing, Error, Result};
use crate::workspace;
use materials::Materials;

/// Build what people install: archives by target, a bill of materials, the licences of dependencies, sums.
///
/// The target of this machine is built by cargo; others by `cargo zigbuild`, which carries a linker for all of them (PyPI:
/// cargo-zigbuild, ziglang), after `rustup target add`. A target that cannot be built here is named with the reason, and counts as
/// left out. The last line sums up; the status is good where every target that could be built is whole.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The targets, as rustc names them; a glibc may follow after a point, such as x86_64-unknown-linux-gnu.2.28 [default: this
    /// machine's].
    #[arg(long = "target", value_name = "TRIPLE")]
    targets: Vec<String>,
    /// The folder for what is made.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// What lies in every archive beside the binary.
const BESIDE: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// The shells that completions are made for.
const SHELLS: [(&str, &str); 5] = [
    ("bash", "pteron.bash"),
    ("zsh", "_pteron"),
    ("fish", "pteron.fish"),
    ("powershell", "pteron.ps1"),
    ("elvish", "pteron.elv"),
];

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let version = env!("CARGO_PKG_VERSION");
    let out = arguments.out.clone().unwrap_or_else(|| workspace::scratch().join("release"));
    fs::create_dir_all(&out).doing("make", &out)?;
    let host = host()?;
    let targets = if arguments.targets.is_empty() { vec![host.clone()] } else { arguments.targets.clone() };
    // Pages and completions are the same on every target, and made by the binary that runs here.
    let own = workspace::build_pteron()?;
    let shown = Shown::by(&own)?;
    let (mut made, mut left_out, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for target in &targets {
        match archive(&out, version, target, &host, &own, &shown) {
            Ok(file) => {
                made.push(target.clone());
                files.push(file);
            }
            Err(error) => left_out.push(format!("{target}: {error}")),
        }
    }
    let materials = Materials::of_pteron()?;
    let bill = out.join(format!("pteron-{version}.cdx.json"));
    fs::write(&bill, materials.cyclonedx(version)).doing("write", &bill)?;
    files.push(bill);
    let sums = out.join("SHA256SUMS");
    fs::write(&sums, list_of_sums(&files)?).doing("write", &sums)?;
    for reason in &left_out {
        println!("left out: {reason}");
    }
    println!(
        "{} of {} targets, {} dependencies, in {}",
        made.len(),
        targets.len(),
        materials.packages().len(),
        out.display()
    );
    Ok(if left_out.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// The target that rustc builds for by itself.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().doing("start", "rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::message("rustc does not say its target"))
}

/// What the binary says of itself.
struct Shown {
    pages: Vec<(String, Vec<u8>)>,
    completions: Vec<(String, Vec<u8>)>,
}

impl Shown {
    fn by(pteron: &Path) -> Result<Shown> {
        let folder = tempfile::tempdir().doing("make", "a folder for manual pages")?;
        output(Command::new(pteron).arg("man").arg(folder.path()))?;
        let mut pages = Vec::new();
        for entry in fs::read_dir(folder.path()).doing("list", folder.path())? {
            let path = entry.doing("list", folder.path())?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            pages.push((format!("man/{name}"), fs::read(&path).doing("read", &path)?));
        }
        pages.sort();
        let completions = SHELLS
            .iter()
            .map(|(shell, name)| {
                Ok((
                    format!("completions/{name}"),
                    output(Command::new(pteron).args(["completions", shell]))?,
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Shown { pages, completions })
    }
}

/// What a command prints; an error where it fails.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stderr(Stdio::inherit()).output().doing("start", command.get_program())?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Error::message(format!("{command:?} ended with {}", output.status))),
    }
}

/// Builds a target and packs it; says what the binary needs.
fn archive(
    out: &Path,
    version: &str,
    target: &str,
    host: &str,
    own: &Path,
    shown: &Shown,
) -> Result<PathBuf> {
    let triple = triple(target);
    let binary = if target == host { own.to_owned() } else { build(target)? };
    let bytes = stripped(&binary)?;
    let is_windows = triple.contains("-windows-");
    let name = format!("pteron-{version}-{triple}");
    let mut files: Vec<(String, Vec<u8>)> =
        vec![(if is_windows { "pteron.exe" } else { "pteron" }.to_owned(), bytes)];
    for file in BESIDE {
        let path = workspace::root().join(file);
        files.push((file.to_owned(), fs::read(&path).doing("read", &path)?));
    }
    files.push(("THIRD-PARTY.txt".to_owned(), notices::text(&Materials::of_pteron()?)?.into_bytes()));
    files.extend(shown.pages.iter().chain(&shown.completions).cloned());
    let path = out.join(format!("{name}.{}", if is_windows { "zip" } else { "tar.gz" }));
    let file = File::create(&path).doing("make", &path)?;
    match is_windows {
        true => zipped(file, &name, &files),
        false => tarred(file, &name, &files),
    }
    .doing("write", &path)?;
    let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let packed = fs::metadata(&path).doing("look at", &path)?.len();
    println!("{}: {}, binary {}", path.display(), size(packed), size(files[0].1.len() as u64));
    println!("  needs {}", needs::of(&files[0].1));
    Ok(path)
}

/// The target without the glibc that `cargo zigbuild` takes behind it.
fn triple(target: &str) -> &str {
    target.split('.').next().unwrap_or(target)
}

/// The binary for another target.
fn build(target: &str) -> Result<PathBuf> {
    let with_zig = workspace::cargo().args(["zigbuild", "--version"]).output();
    if !with_zig.is_ok_and(|output| output.status.success()) {
        return Err(Error::message(
            "no linker for it is here; `pip install cargo-zigbuild ziglang` brings one (and `rustup target add` its library)",
        ));
    }
    let mut command = workspace::cargo();
    command.args(["zigbuild", "--release", "--package", "pteron-cli", "--target", target]);
    workspace::executable(command)
}

/// A binary without its symbols, by whichever tool is here; as it is where none is.
fn stripped(binary: &Path) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().doing("make", "a folder for a binary")?;
    let copy = folder.path().join("pteron");
    fs::copy(binary, &copy).doing("copy", binary)?;
    for tool in ["strip", "llvm-strip"] {
        let ran = Command::new(tool).arg(&copy).stderr(Stdio::null()).status();
        if ran.is_ok_and(|status| status.success()) {
            break;
        }
    }
    fs::read(&copy).doing("read", &copy)
}

/// Whether a file of an archive is run.
fn is_program(name: &str) -> bool {
    name == "pteron" || name == "pteron.exe"
}

/// The same bytes for the same files: no times, no owners.
fn tarred(file: impl Write, folder: &str, files: &[(String, Vec<u8>)]) -> io::Result<()> {
    let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::best()));
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if is_program(name) { 0o755 } else { 0o644 });
        tar.append_data(&mut header, format!("{folder}/{name}"), bytes.as_slice())?;
    }
    tar.into_inner()?.finish()?.flush()
}

fn zipped(file: impl Write + io::Seek, folder: &str, files: &[(String, Vec<u8>)]) -> io::Result<()> {
    let mut zip = zip::ZipWriter::new(file);
    for (name, bytes) in files {
        let mode = if is_program(name) { 0o755 } else { 0o644 };
        zip.start_file(format!("{folder}/{name}"), SimpleFileOptions::default().unix_permissions(mode))?;
        zip.write_all(bytes)?;
    }
    zip.finish()?.flush()
}

/// As `sha256sum --check` reads it.
fn list_of_sums(files: &[PathBuf]) -> Result<String> {
    let line = |path: &PathBuf| {
        let bytes = fs::read(path).doing("read", path)?;
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{sum}  {}\n", path.file_name().unwrap_or_default().to_string_lossy()))
    };
    files.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_the_same_for_the_same_files() {
        let files = [("pteron".to_owned(), vec![1; 5000]), ("README.md".to_owned(), b"read me".to_vec())];
        let packed = || {
            let mut bytes = Vec::new();
            tarred(&mut bytes, "pteron-1", &files).unwrap();
            bytes
        };
        assert_eq!(packed(), packed());
        let bytes = packed();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let seen: Vec<(String, u32, u64)> = tar
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let path = entry.path().unwrap().to_string_lossy().into_owned();
                (path, entry.header().mode().unwrap(), entry.size())
            })
            .collect();
        let wanted =
            [("pteron-1/pteron".to_owned(), 0o755, 5000), ("pteron-1/README.md".to_owned(), 0o644, 7)];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn sums_are_read_by_their_tool() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        fs::write(&path, b"").unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n";
        assert_eq!(list_of_sums(&[path]).unwrap(), empty);
        assert_eq!(triple("x86_64-unknown-linux-gnu.2.28"), "x86_64-unknown-linux-gnu");
    }
}
