//! Which backends there are, which one would run, and why.

use pteron::parts::{Home, mlx, vulkan};
use pteron_registry::{Platform, Wish};
use pteron_runtime::Options;
use pteron_runtime::registry::{ORDER, Registry, backend_name};
use serde::Serialize;

/// A backend and what became of it.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(super) name: String,
    pub(super) present: bool,
    pub(super) taken: bool,
    pub(super) why: String,
    /// What it computes on, if it is there.
    pub(super) device: Option<String>,
    /// Memory of the device, where it has its own.
    pub(super) memory_bytes: Option<u64>,
}

/// Every backend that has a name, in the order in which they are tried.
pub(super) fn consider(home: &Home, options: &Options) -> Vec<Row> {
    let backends = options.registry.backends();
    let present: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
    let named = options.backend.as_deref().map(backend_name);
    let target = options.registry.resolve(options.backend.as_deref()).ok();
    // Those that are not here are shown too, in their place.
    let mut all = ORDER.to_vec();
    all.extend(present.iter().filter(|name| !ORDER.contains(name)));
    let names = home.registry.order(&Wish { platform: Platform::here(), backend: None, present: &all });
    let first = names.iter().find(|name| present.contains(&name.as_str()));
    let taken = named.map(str::to_owned).or_else(|| first.cloned());
    let row = |name: String| {
        let is_taken = taken.as_deref() == Some(&name);
        let chosen =
            target.as_ref().filter(|target| target.name() == name).map(|target| target.device.clone());
        let first = || backends.iter().find(|backend| backend.name() == name)?.devices().into_iter().next();
        let device = chosen.or_else(first);
        let why = match (&device, is_taken) {
            (Some(_), true) if named.is_some() => "it was named".to_owned(),
            (Some(_), true) => "the first of the order that is here".to_owned(),
            (Some(_), false) if named.is_some() => "another one was named".to_owned(),
            (Some(_), false) => "comes after the one that is taken".to_owned(),
            (None, _) => absence(&name, named),
        };
        Row {
            present: device.is_some(),
            taken: is_taken,
            why,
            memory_bytes: device.as_ref().and_then(|device| device.memory_bytes),
            device: device.map(|device| device.name),
            name,
        }
    };
    names.into_iter().map(row).collect()
}

/// Why a backend is not among those that can be chosen.
fn absence(name: &str, named: Option<&str>) -> String {
    match name {
        _ if named.is_some() => "another one was named".to_owned(),
        "mlx" => match crate::mlx::settings()
            .and_then(|settings| mlx::add(&mut Registry::default(), Some(name), &settings))
        {
            Ok(()) => "here, but without a GPU it is taken by name only".to_owned(),
            Err(reason) => reason,
        },
        "vulkan" => {
            let mut registry = Registry::default();
            match vulkan::add(&mut registry, Some(name)) {
                Ok(()) => format!("here, and taken by name only: {}", listed(&registry, name)),
                Err(reason) => reason,
            }
        }
        _ => "not in this binary".to_owned(),
    }
}

/// The devices of a backend with what they are.
fn listed(registry: &Registry, name: &str) -> String {
    let backends = registry.backends();
    let devices =
        backends.iter().filter(|backend| backend.name() == name).flat_map(|backend| backend.devices());
    let texts: Vec<String> = devices
        .map(|device| format!("{name}:{} {} ({})", device.id, device.name, device.features.join(", ")))
        .collect();
    texts.join("; ")
}
