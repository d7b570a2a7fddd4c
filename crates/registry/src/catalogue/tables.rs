//! The tables of a data file as they are written, and whether they make sense.
//!
//! Names become folders of the store, so that they are checked here, once.

use super::{Export, FileKind, Model, PlatformDefaults, Variant};
use crate::source::{plain_word, relative_path};
use crate::{Sha256, Source};
use indexmap::IndexMap;
use serde::Deserialize;

/// A data file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default)]
    pub(super) defaults: Defaults,
    #[serde(default)]
    pub(super) models: IndexMap<String, ModelTable>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) platforms: IndexMap<String, PlatformDefaults>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelTable {
    #[serde(default)]
    description: String,
    licence: String,
    licence_url: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    variants: Vec<VariantTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantTable {
    name: String,
    #[serde(default)]
    backends: Vec<String>,
    kind: FileKind,
    file: Option<String>,
    size: Option<u64>,
    sha256: Option<Sha256>,
    #[serde(default)]
    files: IndexMap<String, Sha256>,
    #[serde(default)]
    export: Export,
    sources: Vec<Source>,
}

impl Model {
    /// A model of a data file, if it makes sense.
    pub(super) fn check(name: String, table: ModelTable) -> Result<Model, String> {
        let in_model = |problem: String| format!("model `{}`: {problem}", name.escape_debug());
        folder_name(&name).map_err(in_model)?;
        if table.variants.is_empty() {
            return Err(in_model("it has no variants".to_owned()));
        }
        let mut variants: Vec<Variant> = Vec::new();
        for variant in table.variants {
            let variant = Variant::check(&name, variant).map_err(in_model)?;
            if variants.iter().any(|other| other.name == variant.name) {
                return Err(in_model(format!("it has two variants `{}`", variant.name)));
            }
            variants.push(variant);
        }
        let ModelTable { description, licence, licence_url, aliases, .. } = table;
        Ok(Model { name, description, licence, licence_url, aliases, variants })
    }
}

impl Variant {
    fn check(model: &str, table: VariantTable) -> Result<Variant, String> {
        let in_variant = |problem: String| format!("variant `{}`: {problem}", table.name.escape_debug());
        folder_name(&table.name).map_err(in_variant)?;
        match (&table.file, table.kind) {
            (Some(_), FileKind::Folder) => {
                return Err(in_variant("a folder has no `file`".to_owned()));
            }
            (None, kind) if kind.is_file() => {
                return Err(in_variant("`file` says how it shall be called here, and is missing".to_owned()));
            }
            (Some(file), _) if file.contains('/') => {
                return Err(in_variant(format!("`{file}` is a path, not the name of a file")));
            }
            (Some(file), _) => relative_path(file).map_err(in_variant)?,
            (None, _) if table.sha256.is_some() => {
                return Err(in_variant("a folder has no hash of its own; its files do".to_owned()));
            }
            (None, _) => {}
        }
        for path in table.files.keys() {
            relative_path(path).map_err(in_variant)?;
        }
        if !table.files.is_empty() && table.kind.is_file() {
            return Err(in_variant("`files` are those of a folder".to_owned()));
        }
        if table.sources.is_empty() {
            return Err(in_variant("it has no sources".to_owned()));
        }
        for source in &table.sources {
            match source {
                Source::Url(url) if table.sha256.is_none() && !is_private(url) => {
                    return Err(in_variant(format!(
                        "{url} can be read and changed on its way; give its hash"
                    )));
                }
                Source::Pypi(_) | Source::Npm(_) if table.file.is_some() && table.sha256.is_none() => {
                    return Err(in_variant(format!(
                        "{source} is a package of somebody else; give the hash that the publisher states"
                    )));
                }
                _ => {}
            }
        }
        let VariantTable { name, backends, kind, file, size, sha256, files, export, sources } = table;
        let model = model.to_owned();
        Ok(Variant { model, name, backends, kind, file, size, sha256, files, export, sources })
    }
}

/// A name that may be a folder's, in lower case, since some systems know no other.
pub(super) fn folder_name(name: &str) -> Result<(), String> {
    plain_word(name)?;
    match name.chars().any(char::is_uppercase) {
        true => Err(format!("`{name}` has capitals; names are written in lower case")),
        false => Ok(()),
    }
}

/// Whether nobody on the way can change what an address gives.
fn is_private(url: &str) -> bool {
    let host = |rest: &str| rest.split(['/', ':']).next().map(str::to_owned);
    match url.strip_prefix("http://").and_then(host) {
        Some(host) => matches!(host.as_str(), "localhost" | "127.0.0.1"),
        None => true,
    }
}
