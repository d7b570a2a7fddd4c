//! The machine that figures are of, in words, and whether it is quiet enough to measure on.

use std::fs;
use std::process::Command;
use std::thread;

use crate::workspace;

/// Load above which others take so much of the machine that figures say more of them.
const QUIET: f64 = 0.5;

/// Processor, cores and memory, as far as the system tells.
pub(super) fn about() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let kilobytes = field("/proc/meminfo", "MemTotal");
    let memory = kilobytes.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let memory =
        memory.map_or_else(String::new, |kilobytes| format!(", {} GB", (kilobytes + 500_000) / 1_000_000));
    format!("{processor}, {cores} cores{memory}, {}", std::env::consts::OS)
}

/// The first value of a field of a file of lines `name : value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// How many processes wanted to run in the last minute, where the system counts them.
pub(super) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Says which machine this is, and when others use it.
pub(super) fn introduce() {
    eprintln!("{}", about());
    if let Some(load) = load().filter(|&load| load > QUIET) {
        eprintln!(
            "the machine is busy: {load:.1} processes ran in the last minute. Figures mean little until that falls below {QUIET}"
        );
    }
}

/// The commit that is measured; one with changes on top of it is marked.
pub(super) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(workspace::root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    git(&["describe", "--always", "--dirty", "--exclude", "*"]).unwrap_or_else(|| "unknown".to_owned())
}
