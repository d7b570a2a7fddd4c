//! What is measured: the peer in an environment of its own, and a pair of files for every model, made once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Doing, Error, Result};
use crate::language::pull;
use crate::workspace;

/// A shape that both sides run with random weights.
pub(crate) struct Model {
    /// As `pteron bench --shape` and `make_gguf.py` know it.
    pub(crate) name: &'static str,
    /// The peer's block format.
    gguf: &'static str,
    /// The same for Pteron: groups of 32 with a scale, and a bias each where the blocks have a minimum.
    zero_points: bool,
}

pub(crate) const MODELS: [Model; 4] = [
    Model { name: "smollm2-135m", gguf: "q4_1", zero_points: true },
    Model { name: "llama-3.2-1b", gguf: "q4_0", zero_points: false },
    Model { name: "gemma-4-e2b", gguf: "q4_0", zero_points: false },
    Model { name: "qwen3-moe-3b", gguf: "q4_0", zero_points: false },
];

/// Published models, as the registry calls them.
pub(crate) const REAL: [&str; 2] = ["smollm2-135m", "gemma3-270m"];

/// What is measured: a shape of ours, a published model, or a GGUF file that somebody made of one.
pub(crate) enum Subject {
    Shape(&'static Model),
    Real(&'static str),
    Gguf(PathBuf),
}

impl Subject {
    /// A shape by its name, or a file by its path.
    pub(crate) fn find(name: &str) -> Result<Subject> {
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "gguf") {
            return Ok(Subject::Gguf(path.to_owned()));
        }
        let all = MODELS.iter().map(Subject::Shape).chain(REAL.map(Subject::Real));
        let mut known = Vec::new();
        for subject in all {
            if subject.name() == name {
                return Ok(subject);
            }
            known.push(subject.name());
        }
        let known = known.join(", ");
        Err(Error::message(format!(
            "no model is called {name}; there are {known}, and the paths of GGUF files"
        )))
    }

    /// How rows name it.
    pub(crate) fn name(&self) -> String {
        match self {
            Subject::Shape(model) => model.name.to_owned(),
            Subject::Real(name) => format!("real/{name}"),
            Subject::Gguf(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

/// The files of one model.
pub(crate) struct Pair {
    pub(crate) pte: PathBuf,
    pub(crate) gguf: PathBuf,
}

/// The folder that everything is in.
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    pub(crate) fn at(root: PathBuf) -> Result<Files> {
        fs::create_dir_all(&root).doing("make", &root)?;
        Ok(Files { root })
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.root.join("venv").join("bin").join("python")
    }

    /// The peer's Python, where it has the compiled package too (`peer.sh FOLDER lookup`).
    pub(crate) fn lookup_python(&self) -> Option<PathBuf> {
        let python = self.python();
        let asked = Command::new(&python).args(["-c", "import llama_cpp"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success()).then_some(python)
    }

    /// Installs the peer where it is not there yet; the script itself knows.
    pub(crate) fn make_peer(&self) -> Result<()> {
        let mut command = Command::new("sh");
        command.arg(scripts().join("peer.sh")).arg(self.root.join("venv"));
        succeed(command, "peer.sh")
    }

    /// The pair of files of a model with room for what is measured.
    pub(crate) fn make(&self, subject: &Subject, pteron: &Path, positions: usize) -> Result<Pair> {
        let gguf = match subject {
            Subject::Shape(model) => self.make_gguf(model)?,
            Subject::Real(name) => pull(pteron, name)?,
            Subject::Gguf(path) => path.clone(),
        };
        Ok(Pair { pte: self.make_program(subject, pteron, positions)?, gguf })
    }

    /// The program alone.
    pub(crate) fn make_program(&self, subject: &Subject, pteron: &Path, positions: usize) -> Result<PathBuf> {
        let positions = positions.next_multiple_of(256);
        match subject {
            Subject::Shape(model) => self.make_shape(model, pteron, positions),
            Subject::Real(name) => self.convert(&pull(pteron, name)?, pteron, positions),
            Subject::Gguf(path) => self.convert(path, pteron, positions),
        }
    }

    /// A GGUF file as a program, made anew each time: nothing tells an old one from one that is still right.
    fn convert(&self, gguf: &Path, pteron: &Path, positions: usize) -> Result<PathBuf> {
        let stem = gguf.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let pte = self.root.join(format!("{stem}-{positions}.pte"));
        let mut command = Command::new(pteron);
        command.arg("export").arg(gguf).arg("-o").arg(&pte).args(["--context", &positions.to_string()]);
        command.stdout(Stdio::null());
        succeed(command, "pteron export")?;
        Ok(pte)
    }

    /// The peer's file of a shape.
    fn make_gguf(&self, model: &Model) -> Result<PathBuf> {
        let gguf = self.root.join(format!("{}-{}.gguf", model.name, model.gguf));
        if !gguf.exists() {
            eprintln!("{}: writing {}", model.name, gguf.display());
            let mut command = Command::new(self.python());
            command
                .arg(scripts().join("make_gguf.py"))
                .arg(model.name)
                .arg(&gguf)
                .args(["--type", model.gguf]);
            succeed(command, "make_gguf.py")?;
        }
        Ok(gguf)
    }

    /// Pteron's own.
    fn make_shape(&self, model: &Model, pteron: &Path, positions: usize) -> Result<PathBuf> {
        let pte = self.root.join(format!("{}-{}-{positions}.pte", model.name, model.gguf));
        if !pte.exists() {
            eprintln!("{}: writing {}", model.name, pte.display());
            let mut command = Command::new(pteron);
            command.args(["bench", "--shape", model.name, "--quantize", "4w", "--backend", "reference"]);
            // Measures nothing, at the depth that asks for so many positions.
            command.args(["--prompt", "0", "--new", "0", "--context", &(positions - 1).to_string()]);
            command.arg("--save").arg(&pte).arg("--json");
            if model.zero_points {
                command.arg("--zero-points");
            }
            command.stdout(Stdio::null());
            succeed(command, "pteron bench --save")?;
        }
        Ok(pte)
    }
}

fn scripts() -> PathBuf {
    workspace::root().join("bench")
}

fn succeed(mut command: Command, what: &str) -> Result<()> {
    let status = command.status().doing("start", what)?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::message(format!("{what} ended with {status}"))),
    }
}
