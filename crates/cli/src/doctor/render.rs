//! The report as text.

use super::need::{ModelReport, Need};
use super::{Client, Report};
use crate::failure::Failure;
use crate::output::{Align, Output, Table, count, size};

/// Prints a report.
pub(crate) fn render(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let machine = &report.machine;
    out.line(format!("pteron {} on {} {}", report.version, machine.os, machine.architecture))?;
    let mut table = Table::new(&[Align::Left, Align::Left]);
    let cores = count(machine.cores, "core");
    let cpu = if machine.cpu.is_empty() { cores } else { format!("{}, {cores}", machine.cpu) };
    table.row(["processor", &cpu]);
    table.row(["vector paths", &machine.paths.join(", ")]);
    table.row(["threads", &machine.threads.to_string()]);
    if let Some(memory) = machine.memory_bytes {
        let free = machine.free_memory_bytes.map(|free| format!(", {} free", size(free)));
        table.row(["memory", &format!("{}{}", size(memory), free.unwrap_or_default())]);
    }
    let weights = match machine.copied_up_to_bytes {
        0 => "mapped".to_owned(),
        u64::MAX => "in memory of their own".to_owned(),
        most => format!("in memory of their own for programs of up to {}, else mapped", size(most)),
    };
    table.row(["weights", &weights]);
    out.section("machine", &table)?;

    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left, Align::Left]);
    for row in &report.backends {
        let state = match (row.present, row.taken) {
            (_, true) => "taken",
            (true, false) => "here",
            (false, false) => "absent",
        };
        let memory = row.memory_bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
        let device = row.device.as_ref().map(|device| format!("{device}{memory}"));
        table.row([row.name.as_str(), state, &row.why, &device.unwrap_or_default()]);
    }
    out.section("backends, in the order in which they are tried", &table)?;
    let mut table = Table::new(&[Align::Left, Align::Left]);
    for device in report.backends.iter().flat_map(|row| &row.devices) {
        table.row([device.id.as_str(), &device.name]);
        for feature in &device.features {
            table.row(["", feature.as_str()]);
        }
    }
    if report.backends.iter().any(|row| !row.devices.is_empty()) {
        out.section("devices that --backend may name", &table)?;
    }

    let models = &report.models;
    let mut table = Table::new(&[Align::Left, Align::Left]);
    let free = models.free_bytes.map(|free| format!(", {} free", size(free))).unwrap_or_default();
    table.row(["folder", &format!("{} ({}{free})", models.folder, size(models.bytes))]);
    let found = if models.settings_found { "" } else { " (not there; it may add models)" };
    table.row(["settings", &format!("{}{found}", models.settings)]);
    for Client { name, command } in &models.clients {
        let command = command.as_deref().unwrap_or("not found; sources that need it are skipped");
        table.row([*name, command]);
    }
    out.section("models", &table)?;
    match &report.model {
        Some(model) => render_model(model, out),
        None => Ok(()),
    }
}

fn render_model(model: &ModelReport, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[Align::Left, Align::Left]);
    if let Some(variant) = &model.variant {
        table.row(["variant", variant]);
    }
    if let Some(licence) = &model.licence {
        table.row(["licence", licence]);
    }
    let place = match &model.path {
        Some(path) => path.clone(),
        None => format!("not here; `pteron pull {}` fetches it", model.name),
    };
    table.row(["place", &place]);
    if let Some(bytes) = model.bytes {
        table.row(["size", &size(bytes)]);
    }
    match &model.program {
        Some(program) if Some(program) != model.path.as_ref() => {
            table.row(["converted", program]);
        }
        Some(_) => {}
        None if model.problem.is_some() => {
            table.row(["converted", "no; it cannot be"]);
        }
        None => {
            table.row(["converted", "not yet; the first run does it"]);
        }
    }
    table.row(["backend", &model.backend]);
    if let Some(problem) = &model.problem {
        table.row(["problem", problem]);
    }
    if let Some(need) = &model.need {
        render_need(need, &mut table);
    }
    if let (Some(_), None) = (&model.problem, &model.program) {
        return out.section(&model.name, &table);
    }
    let verdict = match (model.fits, &model.need, model.available_bytes) {
        (Some(true), Some(need), Some(free)) if need.is_estimate => {
            format!("probably: {} of weights alone, {} free", size(need.total_bytes), size(free))
        }
        (Some(true), Some(need), Some(free)) => {
            format!("yes: {} of {}", size(need.total_bytes), size(free))
        }
        (Some(false), Some(need), Some(free)) => {
            format!("no: it takes {}, {} are free", size(need.total_bytes), size(free))
        }
        _ => "nobody can tell yet".to_owned(),
    };
    table.row(["fits", &verdict]);
    out.section(&model.name, &table)
}

fn render_need(need: &Need, table: &mut Table) {
    if need.is_estimate {
        return;
    }
    table.row(["weights, mapped", &size(need.mapped_bytes)]);
    table.row(["weights, packed", &size(need.packed_bytes)]);
    table.row(["caches and buffers", &size(need.state_bytes)]);
    table.row(["largest run", &size(need.run_bytes)]);
}
