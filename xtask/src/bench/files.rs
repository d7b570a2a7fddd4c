//! What is measured: the peer in an environment of its own, and a pair of files for every model, made once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Error, Result};
use crate::workspace;

/// A model that both sides run.
pub(crate) struct Model {
    /// As `pteron bench --shape` and `make_gguf.py` know it.
    pub(crate) name: &'static str,
    /// The peer's block format.
    gguf: &'static str,
    /// The same for Pteron: groups of 32 with a scale, and a bias each where the blocks have a minimum.
    zero_points: bool,
}

pub(crate) const MODELS: [Model; 3] = [
    Model { name: "smollm2-135m", gguf: "q4_1", zero_points: true },
    Model { name: "llama-3.2-1b", gguf: "q4_0", zero_points: false },
    Model { name: "gemma-4-e2b", gguf: "q4_0", zero_points: false },
];

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

    /// Installs the peer where it is not there yet; the script itself knows.
    pub(crate) fn make_peer(&self) -> Result<()> {
        let mut command = Command::new("sh");
        command.arg(scripts().join("peer.sh")).arg(self.root.join("venv"));
        succeed(command, "peer.sh")
    }

    /// The pair of files of a model with room for what is measured.
    pub(crate) fn make(
        &self,
        model: &Model,
        pteron: &Path,
        prompt: usize,
        context: &[usize],
        new: usize,
    ) -> Result<Pair> {
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
        let positions = prompt.max(context.iter().max().copied().unwrap_or(0) + new).next_multiple_of(256);
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
            command.stdout(std::process::Stdio::null());
            succeed(command, "pteron bench --save")?;
        }
        Ok(Pair { pte, gguf })
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
