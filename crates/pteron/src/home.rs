//! Where models live: the store, and the registry with what a settings file adds to it. Folders flow in; nothing here
//! chooses one.

use crate::error::{Error, Lack, Reason, Result};
use crate::progress::Progress;
use pteron_registry::{Installed, Network, Platform, Registry, Resolution, Store, Variant, Wish};
use pteron_runtime::registry::backend_name;
use std::path::{Path, PathBuf};

/// The file in the folder for settings that adds models.
const SETTINGS_FILE: &str = "models.toml";

/// Models of this machine.
pub struct Home {
    /// Every model that has a name here.
    pub registry: Registry,
    /// Those that are here.
    pub store: Store,
    /// The file that adds to the registry, whether or not it is there.
    pub settings: PathBuf,
}

impl Home {
    /// Where in the folder of models stays what drivers of GPUs have compiled.
    pub fn kernels(models: &Path) -> PathBuf {
        models.join("kernels")
    }

    /// Models in one folder, settings in another.
    pub fn open(models: &Path, settings: &Path, network: Network) -> Result<Home> {
        let settings = settings.join(SETTINGS_FILE);
        let registry = Registry::with_user_file(&settings)?;
        let store = Store::open(models)?.with_network(network);
        Ok(Home { registry, store, settings })
    }

    /// Which variant of a model, or of the default model, is meant, where `present` are the backends that there are,
    /// best first. A backend that is named is taken at the word.
    pub fn resolve(&self, name: Option<&str>, backend: Option<&str>, present: &[&str]) -> Result<Resolution> {
        let backend = backend.map(backend_name);
        let mut present = present.to_vec();
        present.extend(backend);
        Ok(self.registry.resolve(name, &Wish { platform: Platform::here(), backend, present: &present })?)
    }

    /// Makes sure that a variant is here.
    pub fn fetch(&self, variant: &Variant, progress: &dyn Progress) -> Result<Installed> {
        let fetched = self.store.fetch(variant, &mut |event| progress.fetch(variant, event));
        progress.fetched();
        Ok(fetched?)
    }
}

/// No folder was named, and one is needed.
pub(crate) fn missing(what: &str) -> Error {
    let message = format!("{what} needs a folder for models, and none was named");
    Error::Invalid(Reason::new(message).by(Lack::Home))
}
