//! The backend itself: MLX found, opened and checked.

use crate::calls::Mlx;
use crate::compiled::Compile;
use crate::error::MlxError;
use crate::ffi::DeviceKind;
use crate::loaded::LoadedMlx;
use pteron_ir::{Op, Ssa, TypeSource};
use pteron_runtime::backend::{Backend, DeviceId, DeviceInfo, LoadOptions, Loaded, Support};
use pteron_runtime::reference::known_kernel;
use pteron_runtime::{Result, VerifiedProgram};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// The one version of MLX that the shim is written for.
pub const MLX_VERSION: &str = include_str!("../shim/MLX_VERSION").trim_ascii();

/// The shim's file name.
const SHIM: &str = if cfg!(target_vendor = "apple") { "libpteron_mlx.dylib" } else { "libpteron_mlx.so" };

/// How the backend is opened.
#[derive(Clone, Debug, Default)]
pub struct MlxOptions {
    /// The shim; `None` looks beside the executable, in `../lib`, and where the build put it.
    pub shim: Option<PathBuf>,
    /// When graphs are compiled.
    pub compile: Compile,
}

/// The real MLX.
pub struct MlxBackend {
    mlx: Mlx,
    compile: Compile,
}

impl MlxBackend {
    /// Opens MLX; an error says what is missing.
    pub fn open(options: &MlxOptions) -> Result<MlxBackend, MlxError> {
        let path = options.shim.clone().map(OsString::from).or_else(find).ok_or(MlxError::NoShim)?;
        let mlx = Mlx::open(&path, MLX_VERSION)?;
        Ok(MlxBackend { mlx, compile: options.compile })
    }

    /// Whether it computes on a GPU: without one, MLX is the second opinion and not the first choice.
    pub fn has_gpu(&self) -> bool {
        self.mlx.device.kind != DeviceKind::Cpu
    }
}

/// Where the shim is.
fn find() -> Option<OsString> {
    let executable = std::env::current_exe().ok();
    let folder = executable.as_ref().and_then(|path| path.parent());
    let beside = folder.into_iter().flat_map(|folder| [folder.join(SHIM), folder.join("../lib").join(SHIM)]);
    let built = option_env!("PTERON_MLX_SHIM").map(PathBuf::from);
    beside.chain(built).find(|path| path.exists()).map(OsString::from)
}

impl Backend for MlxBackend {
    fn name(&self) -> &'static str {
        "mlx"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        let (name, useful) = match self.mlx.device.kind {
            // The CPU build holds the scores of all queries at once.
            DeviceKind::Cpu => ("MLX on the CPU", 256),
            DeviceKind::Metal => ("MLX on Metal", 2048),
            DeviceKind::Cuda => ("MLX on CUDA", 2048),
        };
        let mut features = vec![format!("MLX {MLX_VERSION}")];
        if self.mlx.device.can_compile && self.compile != Compile::Never {
            features.push("compiled execution".into());
        }
        vec![DeviceInfo {
            id: DeviceId(0),
            name: name.into(),
            memory_bytes: self.mlx.device.memory_bytes,
            features,
            useful_input_length: Some(useful),
        }]
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        match op {
            Op::MetalKernel { .. } => Support::of_source(known_kernel(op, types)),
            _ => Support::Native,
        }
    }

    fn load(&self, _: DeviceId, program: &VerifiedProgram, options: &LoadOptions) -> Result<Arc<dyn Loaded>> {
        Ok(Arc::new(LoadedMlx::new(self.mlx, self.compile, program, options)?))
    }
}

impl std::fmt::Debug for MlxBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MlxBackend")
            .field("device", &self.mlx.device)
            .field("compile", &self.compile)
            .finish()
    }
}
