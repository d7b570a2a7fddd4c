//! The registry as data: `models.toml` of this crate, and a file of the user's that adds to it or overrides it.
//!
//! Later files win over earlier ones, model by model.

mod repository;
mod tables;

use crate::{Error, Result, Sha256, Source};
use indexmap::IndexMap;
use serde::Deserialize;
use std::borrow::Cow;
use std::path::Path;
use tables::Document;

/// What is known from the start.
const OWN: &str = include_str!("../models.toml");

/// Every model that has a name.
#[derive(Clone, Debug)]
pub struct Registry {
    models: IndexMap<String, Model>,
    pub(crate) default_model: String,
    pub(crate) platforms: IndexMap<String, PlatformDefaults>,
}

/// A model with its variants.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// The model's licence, in short.
    pub licence: String,
    /// Where the licence is written.
    pub licence_url: Option<String>,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// In the order in which they are considered for a backend.
    pub variants: Vec<Variant>,
}

/// One form of a model: certain bytes, for certain backends.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The model that it is a form of.
    pub model: String,
    /// Its name among the forms of that model.
    pub name: String,
    /// Backends that it is for; empty if for any.
    pub backends: Vec<String>,
    /// What the bytes are.
    pub kind: FileKind,
    /// The name that the file gets; a folder has none.
    pub file: Option<String>,
    /// Bytes, where they are known.
    pub size: Option<u64>,
    /// Hash of the whole file, where it is known.
    pub sha256: Option<Sha256>,
    /// Hashes of files of a folder, where they are known.
    pub files: IndexMap<String, Sha256>,
    /// How it becomes a program.
    pub export: Export,
    /// Places that hold these bytes, in the order in which they are tried.
    pub sources: Vec<Source>,
}

/// What a variant's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A GGUF file, to be converted.
    Gguf,
    /// A checkpoint folder, to be converted.
    Folder,
    /// What `torch.save` wrote, to be converted.
    Pt,
    /// What NVIDIA's NeMo wrote, to be converted.
    Nemo,
    /// Weights that a command reads as they are.
    Safetensors,
    /// A program, ready to run.
    Pte,
}

impl FileKind {
    /// Whether it is one file, with a name and a hash of its own.
    pub(crate) fn is_file(self) -> bool {
        self != FileKind::Folder
    }
}

/// Options of the conversion, in the words of `pteron export`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// A quantisation scheme such as `4w`; none keeps what the source has.
    pub quantize: Option<String>,
    /// Elements that share a scale.
    pub group_size: Option<u32>,
    /// `bf16`, `f16` or `f32`.
    pub activations: Option<String>,
}

/// The machine that a model is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// As Rust names it: `linux`, `macos`, ...
    pub os: String,
    /// As Rust names it: `x86_64`, `aarch64`, ...
    pub architecture: String,
}

impl Platform {
    /// The one that this was built for.
    pub fn here() -> Platform {
        Platform { os: std::env::consts::OS.to_owned(), architecture: std::env::consts::ARCH.to_owned() }
    }
}

/// What is tried first on a platform.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlatformDefaults {
    #[serde(default)]
    pub(crate) backends: Vec<String>,
    pub(crate) model: Option<String>,
}

impl Registry {
    /// What is known from the start.
    pub fn built_in() -> Result<Registry> {
        let empty =
            Registry { models: IndexMap::new(), default_model: String::new(), platforms: IndexMap::new() };
        empty.with("models.toml", OWN)
    }

    /// What is known from the start, and what a file of the user's adds; no file is no reason to complain.
    pub fn with_user_file(path: &Path) -> Result<Registry> {
        let own = Registry::built_in()?;
        match std::fs::read_to_string(path) {
            Ok(text) => own.with(&path.display().to_string(), &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(own),
            Err(error) => Err(Error::io(path, "read")(error)),
        }
    }

    /// The same with the models of one more data file, which take the place of those with the same name.
    pub fn with(mut self, file: &str, text: &str) -> Result<Registry> {
        let wrong = |problem: String| Error::Data { file: file.to_owned(), problem };
        let document: Document = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        for (name, table) in document.models {
            let model = Model::check(name, table).map_err(wrong)?;
            self.models.insert(model.name.clone(), model);
        }
        self.platforms.extend(document.defaults.platforms);
        if let Some(model) = document.defaults.model {
            self.default_model = model;
        }
        let defaults = self.platforms.values().filter_map(|platform| platform.model.as_deref());
        for name in defaults.chain([self.default_model.as_str()]) {
            self.model(name).map_err(|error| wrong(format!("the default: {error}")))?;
        }
        Ok(self)
    }

    /// Every model, in the order of the file.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.models.values()
    }

    /// The model of that name or alias, in upper or lower case, or that of a repository of the hub.
    pub fn model(&self, name: &str) -> Result<Cow<'_, Model>> {
        let asked = name.to_lowercase();
        let by_alias =
            || self.models().find(|model| model.aliases.iter().any(|alias| alias.to_lowercase() == asked));
        if let Some(model) = self.models.get(&asked).or_else(by_alias) {
            return Ok(Cow::Borrowed(model));
        }
        Model::of_repository(name).map(Cow::Owned).ok_or_else(|| Error::UnknownModel {
            name: name.chars().take(100).collect(),
            nearest: self.nearest(&asked),
        })
    }

    /// Names that somebody who wrote `asked` may have meant, best first.
    fn nearest(&self, asked: &str) -> Vec<String> {
        // Distances take time by the product of the lengths; nobody means a name that is so long.
        let asked: String = asked.chars().take(64).collect();
        let mut scored: Vec<(f64, &str)> = self
            .models()
            .map(|model| {
                let names = model.aliases.iter().chain([&model.name]);
                let best = names.map(|name| strsim::jaro_winkler(&asked, name)).fold(0.0, f64::max);
                (best, model.name.as_str())
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let near = scored.iter().filter(|(score, _)| *score > 0.75).take(3);
        near.map(|(_, name)| (*name).to_owned()).collect()
    }
}

impl Variant {
    /// Whether it is for a backend.
    pub fn is_for(&self, backend: &str) -> bool {
        self.backends.is_empty() || self.backends.iter().any(|own| own == backend)
    }

    /// `model/variant`, as the store and messages call it.
    pub fn id(&self) -> String {
        format!("{}/{}", self.model, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Registry> {
        Registry::built_in().unwrap().with("mine.toml", text)
    }

    #[test]
    fn what_is_built_in_can_be_read() {
        let registry = Registry::built_in().unwrap();
        assert_eq!(registry.model("SmolLM2").unwrap().name, "smollm2-135m");
        for name in [
            "gemma3-270m",
            "qwen2.5-coder-0.5b",
            "qwen2.5-coder-1.5b",
            "gemma4_e2b",
            "gemma4_31b",
            "whisper-tiny.en",
            "all-minilm-l6-v2",
        ] {
            assert_eq!(registry.model(name).unwrap().name, name);
        }
    }

    #[test]
    fn names_and_aliases_are_unique() {
        let registry = Registry::built_in().unwrap();
        let mut names: Vec<&String> =
            registry.models().flat_map(|model| model.aliases.iter().chain([&model.name])).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn packages_of_others_come_after_the_publisher_and_are_held_to_a_hash() {
        let is_package = |source: &Source| matches!(source, Source::Pypi(_) | Source::Npm(_));
        for variant in Registry::built_in().unwrap().models().flat_map(|model| &model.variants) {
            assert!(variant.sources.is_sorted_by_key(is_package), "{}", variant.id());
            let is_held = variant.sha256.is_some() || !variant.files.is_empty();
            assert!(is_held || !variant.sources.iter().any(is_package), "{}", variant.id());
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let registry = Registry::built_in().unwrap();
        let message = |name: &str| registry.model(name).unwrap_err().to_string();
        assert!(message("smolm2").contains("smollm2-135m"), "{}", message("smolm2"));
        assert!(message("gemma4-e2").contains("gemma4_e2b"), "{}", message("gemma4-e2"));
        // What nothing is near to gets no list of all.
        for name in ["zzz", "nope"] {
            assert_eq!(message(name), format!("no model is called `{name}`"));
        }
        assert!(message(&"q".repeat(1 << 20)).len() < 1000);
    }

    #[test]
    fn the_users_file_adds_and_overrides() {
        let registry = with(
            r#"
            [defaults]
            model = "mine"
            [models.mine]
            licence = "MIT"
            [[models.mine.variants]]
            name = "only"
            kind = "pte"
            file = "mine.pte"
            sources = ["path:/somewhere/mine.pte"]
            [models.gemma3-270m]
            licence = "Gemma"
            [[models.gemma3-270m.variants]]
            name = "folder"
            kind = "folder"
            sources = ["path:/somewhere/gemma"]
            "#,
        )
        .unwrap();
        assert_eq!(registry.default_model, "mine");
        assert_eq!(registry.model("gemma3-270m").unwrap().variants[0].kind, FileKind::Folder);
        assert!(registry.model("smollm2").is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let model = |variant: &str| format!("[models.m]\nlicence = 'x'\n[[models.m.variants]]\n{variant}");
        let cases = [
            ("[models".to_owned(), "mine.toml"),
            ("[models.m]\nlicence = 'x'\nvariants = []".to_owned(), "no variants"),
            ("[models.'../m']\nlicence = 'x'\nvariants = []".to_owned(), "plain name"),
            ("[models.M]\nlicence = 'x'\nvariants = []".to_owned(), "lower case"),
            ("[defaults]\nmodel = 'nobody'".to_owned(), "the default: no model is called `nobody`"),
            (model("name = 'v'\nkind = 'gguf'\nfile = '../f'\nsources = ['path:/x']"), "is a path"),
            (model("name = 'v'\nkind = 'gguf'\nfile = '..'\nsources = ['path:/x']"), "not a path below"),
            (model("name = 'v'\nkind = 'gguf'\nsources = ['path:/x']"), "`file`"),
            (model("name = 'v'\nkind = 'folder'\nfile = 'f'\nsources = ['path:/x']"), "no `file`"),
            (model("name = 'v'\nkind = 'pte'\nfile = 'f'\nsources = []"), "no sources"),
            (model("name = 'v'\nkind = 'pte'\nfile = 'f'\nsources = ['x']"), "not a source"),
            (model("name = 'v'\nkind = 'pte'\nfile = 'f'\nsources = ['http://h/x']"), "give its hash"),
            (model("name = 'v'\nkind = 'pte'\nfile = 'f'\nsources = ['pypi:p==1!x']"), "publisher states"),
            (model("name = 'v'\nkind = 'pte'\nfile = 'f'\nsha256 = '12'\nsources = ['path:/x']"), "64"),
            (model("name = 'v'\nkind = 'zip'\nfile = 'f'\nsources = ['path:/x']"), "zip"),
        ];
        for (text, expected) in cases {
            let message = with(&text).unwrap_err().to_string();
            assert!(message.contains(expected) && message.starts_with("mine.toml"), "{message}");
        }
    }
}
