//! The MLX backend: there with the feature `mlx`, and then only if MLX can be opened.

use pteron_runtime::registry::Registry;
use std::path::PathBuf;

/// The backend's name.
const NAME: &str = "mlx";

/// Where MLX is found, and how it is used.
#[derive(Clone, Debug, Default)]
pub struct MlxSettings {
    /// The shim; `None` looks for it where it was built.
    pub shim: Option<PathBuf>,
    /// When graphs are compiled.
    pub compile: MlxCompile,
}

/// When MLX compiles graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MlxCompile {
    /// Those that run again.
    #[default]
    Repeated,
    /// None.
    Never,
    /// All.
    Always,
}

/// Adds MLX to the backends where it is named, or where it has a GPU; an error says why what was asked for is not there.
#[cfg(not(feature = "mlx"))]
pub fn add(_registry: &mut Registry, named: Option<&str>, _settings: &MlxSettings) -> Result<(), String> {
    match named {
        Some(NAME) => {
            Err("this binary was built without MLX; the README says how to build it with".to_owned())
        }
        _ => Ok(()),
    }
}

/// Adds MLX to the backends where it is named, or where it has a GPU; an error says why what was asked for is not there.
#[cfg(feature = "mlx")]
pub fn add(registry: &mut Registry, named: Option<&str>, settings: &MlxSettings) -> Result<(), String> {
    use pteron_mlx::{Compile, MlxBackend, MlxOptions};
    if named.is_some_and(|named| named != NAME) {
        return Ok(());
    }
    let compile = match settings.compile {
        MlxCompile::Repeated => Compile::Repeated,
        MlxCompile::Never => Compile::Never,
        MlxCompile::Always => Compile::Always,
    };
    match MlxBackend::open(&MlxOptions { shim: settings.shim.clone(), compile }) {
        Ok(backend) => {
            if named.is_some() || backend.has_gpu() {
                registry.add(std::sync::Arc::new(backend));
            }
            Ok(())
        }
        Err(error) if named.is_some() => Err(error.to_string()),
        Err(error) => {
            tracing::info!(%error, "MLX is not used");
            Ok(())
        }
    }
}
