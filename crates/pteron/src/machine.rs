//! How much memory this machine has, and how many cores.

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

/// Cores that this process may use. Threads that share a core's arithmetic (hyper-threads) count once: kernels keep it busy
/// alone, and two of them would wait for each other at every step of a token.
pub fn cores() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    physical_cores().map_or(threads, |cores| cores.clamp(1, threads))
}

/// Those that the scheduler may put this process on, as Linux shows them; `None` where it does not.
#[cfg(target_os = "linux")]
fn physical_cores() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let place = |processor: usize| {
        let fact = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/{name}");
            Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
        };
        Some((fact("physical_package_id")?, fact("die_id").unwrap_or_default(), fact("core_id")?))
    };
    let places: Option<std::collections::BTreeSet<_>> = listed(allowed)?.into_iter().map(place).collect();
    Some(places?.len())
}

/// Elsewhere the whole machine's are known.
#[cfg(all(not(target_os = "linux"), not(target_family = "wasm")))]
fn physical_cores() -> Option<usize> {
    sysinfo::System::physical_core_count().ok()
}

/// A browser does not say.
#[cfg(target_family = "wasm")]
fn physical_cores() -> Option<usize> {
    None
}

/// The numbers of a list such as `0-3,8,10-11`; `None` where it is none.
#[cfg(target_os = "linux")]
fn listed(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(listed("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(listed("\t5"), Some(vec![5]));
        for broken in ["", "a", "1-", "-2", "1,,2"] {
            assert_eq!(listed(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn there_are_no_more_cores_than_threads() {
        let threads = std::thread::available_parallelism().unwrap().get();
        assert!((1..=threads).contains(&cores()));
    }
}
