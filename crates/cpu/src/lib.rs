//! The fast CPU backend. A graph is planned once per input signature (types, views, one region of memory, steps) and
//! replayed: no graph walk and no search on the way. What has no kernel here is computed by the reference
//! backend, and the program's report says which ops those are.

// The memory of runs is addressed directly; every block says why it holds.
#![allow(unsafe_code)]

mod batch;
mod cache;
mod constants;
mod contract;
mod copy;
mod fault;
mod finish;
mod frame;
mod joint;
mod lanes;
mod loaded;
mod memory;
mod ops;
mod pages;
mod recent;
mod residence;
mod run;
mod scratch;
mod state;
mod step;
mod undo;
mod workspace;

pub use pteron_kernels::path::{Path, PathError};
pub use pteron_plan::RunMemory;
pub use residence::map_large_blocks;

use loaded::LoadedCpu;
use pteron_ir::{Op, Ssa, TypeSource};
use pteron_kernels::pool::Pool;
use pteron_runtime::VerifiedProgram;
use pteron_runtime::backend::{Backend, DeviceId, DeviceInfo, Lack, LoadOptions, Loaded, Support};
use pteron_runtime::reference::Reference;
use std::sync::Arc;

/// The CPU backend: a pool of threads and the vector path that kernels take.
pub struct Cpu {
    pool: Arc<Pool>,
    path: Path,
    memory: RunMemory,
}

impl Cpu {
    /// A backend with so many threads, on the best path of this machine or on a given one, which it must have.
    pub fn new(threads: usize, path: Option<Path>) -> Result<Cpu, PathError> {
        let path = match path {
            Some(path) => path.check()?,
            None => Path::best(),
        };
        Ok(Cpu { pool: Arc::new(Pool::new(threads.max(1))), path, memory: RunMemory::default() })
    }

    /// As many threads as the process may run at once, on the best path.
    pub fn best() -> Cpu {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Cpu { pool: Arc::new(Pool::new(threads)), path: Path::best(), memory: RunMemory::default() }
    }

    /// The same with another kind of memory for runs.
    pub fn with_memory(self, memory: RunMemory) -> Cpu {
        Cpu { memory, ..self }
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![DeviceInfo {
            name: format!("host, {} with {} threads", self.path, self.pool.threads()),
            features: Path::available().iter().map(ToString::to_string).collect(),
            ..DeviceInfo::default()
        }]
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        if ops::has_kernel(op) {
            return Support::Native;
        }
        match Reference::default().supports(op, types) {
            Support::Native => Support::Fallback(Lack::VectorKernel),
            other => other,
        }
    }

    fn reads_in_place(&self) -> bool {
        true
    }

    fn arranges(&self) -> bool {
        true
    }

    fn load(
        &self,
        _: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> pteron_runtime::Result<Arc<dyn Loaded>> {
        Ok(Arc::new(LoadedCpu::new(program, (self.pool.clone(), self.path, self.memory), options)?))
    }
}
