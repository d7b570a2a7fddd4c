//! Which backend runs a program, and how: choices flow in, the runtime's options flow out.

use crate::error::{Error, Lack, Reason, Result};
use crate::machine;
use crate::mlx::{self, MlxSettings};
use crate::vulkan;
use pteron_cpu::{Cpu, Path, RunMemory};
use pteron_format::Limits;
use pteron_runtime::registry::backend_name;
use pteron_runtime::{Options, Placement, Precision};
use std::path::PathBuf;
use std::sync::Arc;

/// Files beyond this stay mapped unless somebody says otherwise: the copy of larger ones keeps people waiting for the
/// first token, which a few per cent at the tokens behind it do not make up for.
const COPIED_UP_TO: u64 = 4 << 30;

/// What is chosen; `None` leaves a choice to the machine.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    /// The backend, with the number of a device where it has several.
    pub backend: Option<String>,
    /// The vector path of the cpu backend.
    pub cpu: Option<String>,
    /// Threads of the cpu backend.
    pub threads: Option<usize>,
    /// Whether each value of a run has memory of its own, to look for faults in plans.
    pub separate_memory: bool,
    /// How closely results follow the program's own types.
    pub precision: Option<Precision>,
    /// Whether a session's numbers may not depend on those that run together with it.
    pub batch_invariant: bool,
    /// Where weights live.
    pub placement: Option<Placement>,
    /// Whether many sessions will run at once: weights are then brought into the order of the kernels, unless `placement` says
    /// otherwise.
    pub many_sessions: bool,
    /// Whether a file may take little, as one of unknown origin.
    pub untrusted: bool,
    /// Where MLX is found, and how it is used.
    pub mlx: MlxSettings,
    /// Folder in which kernels that a GPU's driver has compiled stay from one process to the next.
    pub kept_kernels: Option<PathBuf>,
}

impl Engine {
    /// What files and runs are held to.
    pub fn limits(&self) -> Limits {
        if self.untrusted {
            return Limits::untrusted();
        }
        let own = Limits::own();
        // Beyond the memory there is, the system would end the process without a word.
        let all = machine::memory().map_or(own.live_bytes, |(all, _)| all);
        Limits { live_bytes: own.live_bytes.min(all).max(Limits::untrusted().live_bytes), ..own }
    }

    /// How a program is loaded; `precision` is taken where none is chosen. Who starts from [`Precision::Fast`] wants answers, and
    /// gets a GPU where one is known to give them sooner; who starts from [`Precision::Exact`] wants numbers, and gets the CPU's.
    pub fn options(&self, precision: Precision) -> Result<Options> {
        let mut options =
            Options { backend: self.backend.clone(), limits: self.limits(), ..Options::default() };
        options.registry.add(Arc::new(self.cpu()?));
        let named = self.backend.as_deref().map(backend_name);
        let wanted = match named {
            Some(name) => vulkan::Wanted::Named(name),
            // A vector path, and memory to look for faults in, are the CPU's.
            None if precision == Precision::Fast && self.cpu.is_none() && !self.separate_memory => {
                vulkan::Wanted::Fastest
            }
            None => vulkan::Wanted::Processor,
        };
        mlx::add(&mut options.registry, named, &self.mlx)
            .and_then(|()| vulkan::add(&mut options.registry, wanted, self.kept_kernels.as_deref()))
            .map_err(|problem| Error::Unsupported(Reason::new(problem).by(Lack::Backend)))?;
        options.precision = self.precision.unwrap_or(precision);
        options.batch_invariant = self.batch_invariant;
        let free = || machine::memory().map_or(0, |(_, free)| free);
        options.placement = self.placement.unwrap_or_else(|| {
            let most = COPIED_UP_TO.min(free() / 2);
            if self.many_sessions { Placement::ArrangeUpTo(most) } else { Placement::CopyUpTo(most) }
        });
        let target = options.registry.resolve(options.backend.as_deref())?;
        tracing::info!(backend = target.name(), device = target.device.name, precision = ?options.precision, placement = ?options.placement);
        Ok(options)
    }

    /// Threads that the cpu backend has.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(machine::cores)
    }

    fn cpu(&self) -> Result<Cpu> {
        let (threads, cores) = (self.threads(), machine::cores());
        if threads > cores {
            tracing::warn!(threads, cores, "more threads than cores: they will wait for each other");
        }
        let unknown = |error: pteron_cpu::PathError| Error::Unsupported(Reason::new(error).by(Lack::Backend));
        let path = self.cpu.as_deref().map(Path::parse).transpose().map_err(unknown)?;
        let memory = if self.separate_memory { RunMemory::Separate } else { RunMemory::Planned };
        Ok(Cpu::new(threads, path).map_err(unknown)?.with_memory(memory))
    }
}
