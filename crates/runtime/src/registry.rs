//! The backends there are, and which one is taken: what the user says, else the first that is present in a
//! fixed order.

use crate::backend::Backend;
use crate::reference::Reference;
use crate::{Error, Result};
use std::sync::Arc;

/// The order in which a backend is chosen when nobody names one: fastest first.
pub const ORDER: [&str; 5] = ["mlx", "cuda", "vulkan", "cpu", "reference"];

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

    /// The named backend, or else the first of the order.
    pub fn resolve(&self, name: Option<&str>) -> Result<Arc<dyn Backend>> {
        let backends = self.backends();
        let found = match name {
            Some(name) => backends.iter().find(|backend| backend.name() == name),
            None => backends.first(),
        };
        found.map(|backend| Arc::clone(backend)).ok_or_else(|| Error::UnknownBackend {
            name: name.unwrap_or("default").to_owned(),
            known: backends.iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.backends().iter().map(|backend| backend.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_what_exists() {
        let registry = Registry::default();
        assert_eq!(registry.resolve(None).unwrap().name(), "reference");
        let error = registry.resolve(Some("quantum")).err().unwrap();
        assert_eq!(error.to_string(), "no backend is called `quantum`; there are: reference");
    }
}
