//! The machine itself: processor, vector paths, memory.

use pteron_cpu::Path;
use pteron_runtime::{LoadMode, Placement};
use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// What a machine has.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(super) os: &'static str,
    pub(super) architecture: &'static str,
    /// As the processor names itself; empty if nobody says.
    pub(super) cpu: String,
    /// Cores that this process may use.
    pub(super) cores: usize,
    pub(super) threads: usize,
    /// Vector paths of the cpu backend that run here, plainest first.
    pub(super) paths: Vec<String>,
    /// `null` where the system does not say.
    pub(super) memory_bytes: Option<u64>,
    /// What could be had without swapping.
    pub(super) free_memory_bytes: Option<u64>,
    /// The largest program whose weights would be copied into memory; larger ones are mapped.
    pub(super) copied_up_to_bytes: u64,
}

/// Looks at the machine that this runs on.
pub(super) fn look(threads: usize, placement: Placement) -> Machine {
    let system = System::new_with_specifics(RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing())).ok();
    let cpu =
        system.as_ref().and_then(|system| system.cpus().first()).map(|cpu| cpu.brand().trim().to_owned());
    let memory = memory();
    Machine {
        os: std::env::consts::OS,
        architecture: std::env::consts::ARCH,
        cpu: cpu.unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        threads,
        paths: Path::available().iter().map(ToString::to_string).collect(),
        memory_bytes: memory.map(|(all, _)| all),
        free_memory_bytes: memory.map(|(_, free)| free),
        copied_up_to_bytes: match placement {
            Placement::CopyUpTo(most) => most,
            Placement::Fixed(LoadMode::Copy) => u64::MAX,
            Placement::Fixed(LoadMode::Map | LoadMode::Lock) => 0,
        },
    }
}

/// Memory in all, and what could be had without swapping; `None` where the system does not say.
fn memory() -> Option<(u64, u64)> {
    let wanted = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(wanted).ok()?;
    let (all, free) = (system.total_memory(), system.available_memory());
    // A container may have less than the machine.
    Some(match system.cgroup_limits() {
        Some(limits) if limits.total_memory > 0 => {
            (all.min(limits.total_memory), free.min(limits.free_memory))
        }
        _ => (all, free),
    })
}

/// Memory in all.
pub(crate) fn all_memory() -> Option<u64> {
    memory().map(|(all, _)| all)
}

/// Memory that could be had without swapping.
pub(crate) fn free_memory() -> Option<u64> {
    memory().map(|(_, free)| free)
}
