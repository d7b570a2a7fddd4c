//! What this machine has, what would run, and what a model needs: the shape that `doctor --json` prints (docs/json.md)
//! and the text is made from.

mod backends;
mod machine;
mod need;
mod render;

pub(crate) use render::render;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::home;
use pteron_runtime::Precision;
use serde::Serialize;

/// Everything that `doctor` found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    machine: machine::Machine,
    /// In the order in which they are tried.
    backends: Vec<backends::Row>,
    models: Models,
    /// What was asked about.
    model: Option<need::ModelReport>,
}

/// Where models live.
#[derive(Debug, Serialize)]
struct Models {
    folder: String,
    bytes: u64,
    free_bytes: Option<u64>,
    /// The file that adds to the registry.
    settings: String,
    settings_found: bool,
    /// Package clients that sources may need, with the command that starts each.
    clients: Vec<Client>,
}

#[derive(Debug, Serialize)]
struct Client {
    name: &'static str,
    command: Option<String>,
}

/// Looks at the machine, and at a model if one is named.
pub(crate) fn examine(engine: &Engine, model: Option<&str>) -> Result<Report, Failure> {
    let home = home::open()?;
    let options = engine.options(Precision::Fast)?;
    let machine = machine::look(engine.threads(), options.placement);
    let model = model.map(|model| need::examine(model, &home, &options, &machine)).transpose()?;
    let clients = home.store.package_clients().into_iter().map(|(name, command)| Client { name, command });
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        backends: backends::consider(&home, &options),
        machine,
        models: Models {
            folder: home.store.root().display().to_string(),
            bytes: home.store.bytes(),
            free_bytes: home.store.free_bytes(),
            settings: home.settings.display().to_string(),
            settings_found: home.settings.is_file(),
            clients: clients.collect(),
        },
        model,
    })
}

impl Report {
    /// Whether the model that was asked about can run here; without one, whether anything can.
    pub(crate) fn is_well(&self) -> bool {
        self.model.as_ref().is_none_or(|model| model.fits != Some(false) && model.problem.is_none())
    }
}
