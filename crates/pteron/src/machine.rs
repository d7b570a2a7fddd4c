//! How much memory this machine has.

/// Memory in all, and what could be had without swapping; `None` where the system does not say.
#[cfg(not(target_family = "wasm"))]
pub fn memory() -> Option<(u64, u64)> {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};
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

/// A browser does not say.
#[cfg(target_family = "wasm")]
pub fn memory() -> Option<(u64, u64)> {
    None
}

/// A number of bytes as people say it: `512 B`, `1.5 KiB`, `18.0 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would show as 1024.0.
    while amount >= 1023.95 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}
