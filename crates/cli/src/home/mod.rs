//! Where models live on this machine: the store, the registry with what the user adds to it, and the way to the network,
//! all as the environment says.

mod bars;
mod screen;
pub(crate) mod table;

use crate::failure::Failure;
use directories::ProjectDirs;
use pteron::OpenOptions;
use pteron::parts::Home;
use pteron::parts::find::Finder;
use pteron_registry::{Installed, Network, Variant};
use pteron_runtime::Options;
use screen::Screen;
use std::path::{Path, PathBuf};

/// The environment variable that names one folder for models, settings and the history of chats.
pub(crate) const HOME_VARIABLE: &str = "PTERON_HOME";

/// The environment variables of the Hugging Face hub, as its own tools read them.
const HUB_TOKEN_VARIABLE: &str = "HF_TOKEN";
const HUB_VARIABLE: &str = "HF_ENDPOINT";

/// Lines that were typed in chats.
const HISTORY_FILE: &str = "chat-history";

/// How models are opened on this machine: in the folder that PTERON_HOME names, or those that the platform has for caches and
/// settings, with what happens on standard error.
pub(crate) fn options() -> OpenOptions {
    let options = OpenOptions::default().network(network()).progress(Screen::default());
    match places() {
        Some((models, settings)) => options.home(models).settings(settings),
        None => options,
    }
}

/// Models of this machine.
pub(crate) fn open() -> Result<Home, Failure> {
    Ok(options().open_home()?)
}

/// Makes sure that a variant of a model is here, with what happens on standard error.
pub(crate) fn fetch(home: &Home, variant: &Variant) -> Result<Installed, Failure> {
    Ok(home.fetch(variant, &Screen::default())?)
}

/// Looks for a model, with what happens on standard error.
pub(crate) fn find<T>(
    engine: &Options,
    find: impl FnOnce(&Finder<'_>) -> pteron::Result<T>,
) -> Result<T, Failure> {
    Ok(options().finding(engine, find)?)
}

/// The file that keeps what was typed; `None` where this system names no folder for it.
pub(crate) fn history() -> Option<PathBuf> {
    let folder = match variable_path(HOME_VARIABLE) {
        Some(home) => home,
        None => ProjectDirs::from("", "", "pteron")?.data_local_dir().to_owned(),
    };
    Some(folder.join(HISTORY_FILE))
}

/// The folder that keeps what drivers of GPUs have compiled; `None` where this system names no folder for it.
pub(crate) fn kept_kernels() -> Option<PathBuf> {
    places().map(|(models, _)| Home::kernels(&models))
}

/// The folders for models and for settings; `None` where this system names none.
fn places() -> Option<(PathBuf, PathBuf)> {
    if let Some(home) = variable_path(HOME_VARIABLE) {
        return Some((home.clone(), home));
    }
    let folders = ProjectDirs::from("", "", "pteron")?;
    Some((folders.cache_dir().to_owned(), folders.config_dir().to_owned()))
}

fn network() -> Network {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let own = Network::default();
    Network { hub: text(HUB_VARIABLE).unwrap_or(own.hub), hub_token: text(HUB_TOKEN_VARIABLE), ..own }
}

fn variable_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| Path::new(&value).to_owned())
}
