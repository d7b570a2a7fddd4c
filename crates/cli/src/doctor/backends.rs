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
    /// All devices of a backend that is taken by name only, with what they can do.
    pub(super) devices: Vec<Listed>,
}

/// A device that is used where it is named.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    /// As `--backend` takes it.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) features: Vec<String>,
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
        // Software on the CPU, or a GPU that nobody has measured: asked for by its name, or not used.
        let by_name = if device.is_none() && named.is_none() { by_name_only(&name) } else { Vec::new() };
        let why = match (&device, is_taken) {
            (Some(_), true) if named.is_some() => "it was named".to_owned(),
            (Some(_), true) => "the first of the order that is here".to_owned(),
            (Some(_), false) if named.is_some() => "another one was named".to_owned(),
            (Some(_), false) => "comes after the one that is taken".to_owned(),
            (None, _) if !by_name.is_empty() => "only where --backend names it".to_owned(),
            (None, _) => absence(&name, named),
        };
        Row {
            present: device.is_some() || !by_name.is_empty(),
            taken: is_taken,
            why,
            memory_bytes: device.as_ref().and_then(|device| device.memory_bytes),
            device: device.map(|device| device.name),
            name,
            devices: by_name,
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
            vulkan::add(&mut Registry::default(), vulkan::Wanted::Named(name), None).err().unwrap_or_default()
        }
        _ => "not in this binary".to_owned(),
    }
}

/// The devices, with what they can do, of a backend that is here and is not chosen unless it is named.
fn by_name_only(name: &str) -> Vec<Listed> {
    let mut registry = Registry::default();
    if name != "vulkan" || vulkan::add(&mut registry, vulkan::Wanted::Named(name), None).is_err() {
        return Vec::new();
    }
    let backends = registry.backends();
    let devices =
        backends.iter().filter(|backend| backend.name() == name).flat_map(|backend| backend.devices());
    devices
        .map(|device| {
            let features = device.features.iter().map(ToString::to_string).collect();
            Listed { id: format!("{name}:{}", device.id), name: device.name, features }
        })
        .collect()
}
