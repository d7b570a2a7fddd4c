//! The backends there are, and which device of which one is taken: what the user says (`mlx:0`, `cpu`), else the first
//! that is present in a fixed order.

use crate::backend::{Backend, DeviceId, DeviceInfo};
use crate::reference::Reference;
use crate::{Error, Result};
use std::sync::Arc;

/// The order in which a backend is chosen when nobody names one: fastest first.
pub const ORDER: [&str; 4] = ["mlx", "vulkan", "cpu", "reference"];

/// Backends that take every op that can be run at all, the faster first.
const LAST_RESORT: [&str; 2] = ["cpu", "reference"];

/// A list of backends. The binary adds those that it was built with.
#[derive(Clone)]
pub struct Registry {
    backends: Vec<Arc<dyn Backend>>,
}

impl Default for Registry {
    /// The reference backend alone: it is always there.
    fn default() -> Registry {
        Registry { backends: vec![Arc::new(Reference::default())] }
    }
}

impl Registry {
    /// Adds a backend, in place of one of the same name.
    pub fn add(&mut self, backend: Arc<dyn Backend>) {
        self.backends.retain(|known| known.name() != backend.name());
        self.backends.push(backend);
    }

    /// All backends, in the order in which they are chosen.
    pub fn backends(&self) -> Vec<&Arc<dyn Backend>> {
        let mut sorted: Vec<_> = self.backends.iter().collect();
        // Backends that the order does not know come last, in the order in which they were added.
        sorted.sort_by_key(|backend| {
            ORDER.iter().position(|name| *name == backend.name()).unwrap_or(ORDER.len())
        });
        sorted
    }

    /// The device that is meant by `name` or `name:number`; without a number the backend's first, without a name the
    /// first device of the order.
    pub fn resolve(&self, wanted: Option<&str>) -> Result<Target> {
        let backends = self.backends();
        let Some(wanted) = wanted else {
            let first = self.in_order().into_iter().next();
            return first.ok_or_else(|| unknown("default", &backends));
        };
        let (name, number) = parse(wanted).ok_or_else(|| unknown(wanted, &backends))?;
        let backend = backends.iter().find(|backend| backend.name() == name);
        let backend = backend.ok_or_else(|| unknown(name, &backends))?;
        Target::of(backend, number).ok_or_else(|| Error::UnknownDevice {
            backend: name.to_owned(),
            device: number.unwrap_or_default().0,
            known: match backend.devices() {
                devices if devices.is_empty() => "none".to_owned(),
                devices => {
                    let names =
                        devices.iter().map(|device| format!("{name}:{} ({})", device.id, device.name));
                    names.collect::<Vec<_>>().join(", ")
                }
            },
        })
    }

    /// The first device of every backend that has one, in the order in which they are tried where nobody names one.
    pub fn in_order(&self) -> Vec<Target> {
        self.backends().into_iter().filter_map(|backend| Target::of(backend, None)).collect()
    }

    /// What runs the ops that a backend lacks: `cpu`, or the reference backend where there is none. Those two are the last
    /// resort themselves.
    pub fn fallback(&self, chosen: &Target) -> Option<Target> {
        let is_last = LAST_RESORT.contains(&chosen.name());
        let mut last = LAST_RESORT.iter().filter(|_| !is_last);
        last.find_map(|name| self.resolve(Some(name)).ok())
    }
}

/// A device of a backend: what a program is loaded for.
#[derive(Clone)]
pub struct Target {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// One of its devices.
    pub device: DeviceInfo,
}

impl Target {
    fn of(backend: &Arc<dyn Backend>, number: Option<DeviceId>) -> Option<Target> {
        let mut devices = backend.devices().into_iter();
        let device = match number {
            Some(number) => devices.find(|device| device.id == number)?,
            None => devices.next()?,
        };
        Some(Target { backend: backend.clone(), device })
    }

    /// The backend's name.
    pub fn name(&self) -> &'static str {
        self.backend.name()
    }
}

/// The name in `name` or `name:number`.
pub fn backend_name(wanted: &str) -> &str {
    wanted.split_once(':').map_or(wanted, |(name, _)| name)
}

fn parse(wanted: &str) -> Option<(&str, Option<DeviceId>)> {
    match wanted.split_once(':') {
        Some((name, number)) => Some((name, Some(DeviceId(number.parse().ok()?)))),
        None => Some((wanted, None)),
    }
}

fn unknown(name: &str, backends: &[&Arc<dyn Backend>]) -> Error {
    let known = backends.iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ");
    Error::UnknownBackend { name: name.to_owned(), known }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.backends().iter().map(|backend| backend.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Support;

    #[test]
    fn an_unknown_name_lists_what_exists() {
        let registry = Registry::default();
        assert_eq!(registry.resolve(None).unwrap().name(), "reference");
        let error = registry.resolve(Some("quantum")).err().unwrap();
        assert_eq!(error.to_string(), "no backend is called `quantum`; there are: reference");
    }

    #[test]
    fn devices_are_chosen_by_number() {
        let registry = Registry::default();
        let target = registry.resolve(Some("reference:0")).unwrap();
        assert_eq!((target.name(), target.device.id), ("reference", DeviceId(0)));
        let error = registry.resolve(Some("reference:1")).err().unwrap().to_string();
        assert_eq!(error, "backend `reference` has no device 1; there are: reference:0 (host, scalar)");
        for wrong in ["reference:", "reference:-1", "reference:first", "quantum:0"] {
            let error = registry.resolve(Some(wrong)).err().unwrap();
            assert!(matches!(error, Error::UnknownBackend { .. }), "{wrong}: {error}");
        }
        assert_eq!((backend_name("mlx:1"), backend_name("cpu")), ("mlx", "cpu"));
    }

    /// A backend that finds nothing to compute on here.
    struct Absent;

    impl Backend for Absent {
        fn name(&self) -> &'static str {
            "mlx"
        }

        fn devices(&self) -> Vec<DeviceInfo> {
            Vec::new()
        }

        fn supports(&self, _: &pteron_ir::Op<pteron_ir::Ssa>, _: &dyn pteron_ir::TypeSource) -> Support {
            Support::Native
        }

        fn load(
            &self,
            _: DeviceId,
            _: &crate::VerifiedProgram,
            _: &crate::backend::LoadOptions,
        ) -> Result<Arc<dyn crate::backend::Loaded>> {
            Err(Error::Invalid("it cannot compute".into()))
        }
    }

    #[test]
    fn a_backend_without_a_device_is_passed_over_and_says_so_where_it_is_named() {
        let mut registry = Registry::default();
        registry.add(Arc::new(Absent));
        assert_eq!(registry.resolve(None).unwrap().name(), "reference");
        let error = registry.resolve(Some("mlx")).err().unwrap().to_string();
        assert_eq!(error, "backend `mlx` has no device 0; there are: none");
    }
}
