//! The machine itself: processor, vector paths, memory.

use pteron::parts::machine::{cores, memory};
use pteron_cpu::Path;
use pteron_runtime::{LoadMode, Placement};
use serde::Serialize;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// What a machine has.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(super) os: &'static str,
    pub(super) architecture: &'static str,
    /// As the processor names itself; empty if nobody says.
    pub(super) cpu: String,
    /// Cores that this process may use; threads that share one count once.
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
        cores: cores(),
        threads,
        paths: Path::available().iter().map(ToString::to_string).collect(),
        memory_bytes: memory.map(|(all, _)| all),
        free_memory_bytes: memory.map(|(_, free)| free),
        copied_up_to_bytes: match placement {
            Placement::CopyUpTo(most) | Placement::ArrangeUpTo(most) => most,
            Placement::Fixed(LoadMode::Copy | LoadMode::Arrange) => u64::MAX,
            Placement::Fixed(LoadMode::Map | LoadMode::Lock) => 0,
        },
    }
}
