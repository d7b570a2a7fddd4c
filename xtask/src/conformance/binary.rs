//! The binary under test, built with MLX where that can be had, in a target folder of its own: with another set of
//! features in the usual one, the next `cargo build` would compile half of it again.

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use super::Backend;
use super::plan::Engine;
use crate::error::{Error, Result};
use crate::language::output;
use crate::{mlx_setup, workspace};

/// The binary, and why it has no MLX where it has none.
pub(super) struct Binary {
    pub(super) path: PathBuf,
    without_mlx: Option<String>,
}

impl Binary {
    /// Builds it; with MLX only if somebody wants that.
    pub(super) fn build(with_mlx: bool) -> Result<Binary> {
        let mut command = workspace::cargo();
        command.args(["build", "--release", "--package", "pteron-cli"]);
        command.arg("--target-dir").arg(workspace::scratch().join("conformance"));
        let mut without_mlx = None;
        if with_mlx {
            match mlx_setup::default_prefix() {
                Ok(prefix) => drop(command.args(["--features", "mlx"]).env("MLX_PREFIX", prefix)),
                Err(error) => without_mlx = Some(error.to_string()),
            }
        }
        Ok(Binary { path: workspace::executable(command)?, without_mlx })
    }

    /// Every way to run a program here, of the backends that are wanted.
    pub(super) fn engines(&self, wanted: impl Fn(Backend) -> bool) -> Result<Vec<Engine>> {
        let mut engines = Vec::new();
        if wanted(Backend::Cpu) {
            let help = output(Command::new(&self.path).args(["conformance", "--help"]))?;
            engines.extend(Engine::of_cpu(&self.paths()?, help.contains("--memory")));
        }
        engines.extend(wanted(Backend::Reference).then(|| Engine::plain(Backend::Reference)));
        if wanted(Backend::Mlx) {
            let mut mlx = Engine::plain(Backend::Mlx);
            mlx.missing = self.without_mlx.clone();
            engines.push(mlx);
        }
        Ok(engines)
    }

    /// The vector paths that run here, plainest first.
    fn paths(&self) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Doctor {
            machine: Machine,
        }
        #[derive(Deserialize)]
        struct Machine {
            paths: Vec<String>,
        }
        let said = output(Command::new(&self.path).args(["doctor", "--json"]))?;
        let doctor: Doctor =
            serde_json::from_str(&said).map_err(|error| Error::content(&self.path, error))?;
        Ok(doctor.machine.paths)
    }
}
