//! Where models live on this machine: the store, the registry with what the user adds to it, and the way to the network,
//! all as the environment says.

mod bars;
pub(crate) mod table;

use crate::failure::Failure;
use bars::Bars;
use directories::ProjectDirs;
use pteron_registry::{Installed, Network, Platform, Registry, Resolution, Store, Variant, Wish};
use pteron_runtime::registry::backend_name;
use std::path::{Path, PathBuf};

/// The environment variable that names one folder for models, settings and the history of chats.
pub(crate) const HOME_VARIABLE: &str = "PTERON_HOME";

/// The environment variables of the Hugging Face hub, as its own tools read them.
const HUB_TOKEN_VARIABLE: &str = "HF_TOKEN";
const HUB_VARIABLE: &str = "HF_ENDPOINT";

/// The user's own models.
const SETTINGS_FILE: &str = "models.toml";

/// Lines that were typed in chats.
const HISTORY_FILE: &str = "chat-history";

/// Models of this machine.
pub(crate) struct Home {
    /// Every model that has a name here.
    pub(crate) registry: Registry,
    /// Those that are here.
    pub(crate) store: Store,
    /// The file that adds to the registry, whether or not it is there.
    pub(crate) settings: PathBuf,
}

impl Home {
    /// The folder that PTERON_HOME names, or those that the platform has for caches and settings.
    pub(crate) fn open() -> Result<Home, Failure> {
        let (cache, settings) = places()?;
        let settings = settings.join(SETTINGS_FILE);
        let registry = Registry::with_user_file(&settings)?;
        let store = Store::open(&cache)?.with_network(network());
        Ok(Home { registry, store, settings })
    }

    /// Which variant of a model, or of the default model, is meant, where `present` are the backends that there are,
    /// best first. A backend that the user names is taken at the word.
    pub(crate) fn resolve(
        &self,
        name: Option<&str>,
        backend: Option<&str>,
        present: &[&str],
    ) -> Result<Resolution<'_>, Failure> {
        let backend = backend.map(backend_name);
        let mut present = present.to_vec();
        present.extend(backend);
        Ok(self.registry.resolve(name, &Wish { platform: Platform::here(), backend, present: &present })?)
    }

    /// Makes sure that a variant is here, with bars on standard error where that is a terminal.
    pub(crate) fn fetch(&self, variant: &Variant) -> Result<Installed, Failure> {
        let mut bars = Bars::new(variant);
        let fetched = self.store.fetch(variant, &mut |event| bars.show(event));
        bars.end();
        Ok(fetched?)
    }
}

/// The file that keeps what was typed; `None` where this system names no folder for it.
pub(crate) fn history() -> Option<PathBuf> {
    let folder = match variable_path(HOME_VARIABLE) {
        Some(home) => home,
        None => ProjectDirs::from("", "", "pteron")?.data_local_dir().to_owned(),
    };
    Some(folder.join(HISTORY_FILE))
}

/// The folders for models and for settings.
fn places() -> Result<(PathBuf, PathBuf), Failure> {
    if let Some(home) = variable_path(HOME_VARIABLE) {
        return Ok((home.clone(), home));
    }
    match ProjectDirs::from("", "", "pteron") {
        Some(folders) => Ok((folders.cache_dir().to_owned(), folders.config_dir().to_owned())),
        None => Err(Failure::new("this system names no folder for caches")
            .hint(format!("set {HOME_VARIABLE} to a folder for models and settings"))),
    }
}

fn network() -> Network {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let own = Network::default();
    Network { hub: text(HUB_VARIABLE).unwrap_or(own.hub), hub_token: text(HUB_TOKEN_VARIABLE), ..own }
}

fn variable_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| Path::new(&value).to_owned())
}
