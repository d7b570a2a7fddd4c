//! Which variant of a model is meant, for which backend, and why.
//!
//! The order is: what the user says; else what the registry prefers on the platform; else what is present, in the order
//! in which the runtime would take it. The first backend that is present and that the model has a variant for is taken.

use crate::{Error, Model, Platform, Registry, Result, Variant};
use std::borrow::Cow;
use std::fmt;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// The machine.
    pub platform: Platform,
    /// The backend that the user names.
    pub backend: Option<&'a str>,
    /// Backends that this machine and binary have, best first.
    pub present: &'a [&'a str],
}

/// What was chosen, and how.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The model.
    pub model: Model,
    /// The form of it that is to be fetched.
    pub variant: Variant,
    /// The backend that is to run it.
    pub backend: String,
    /// Every backend that was considered, in order.
    pub considered: Vec<Considered>,
}

/// A backend and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// The backend.
    pub backend: String,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a backend in the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Taken,
    /// This machine or this binary does not have it.
    Absent,
    /// The model has no variant for it.
    NoVariant,
    /// One before it was taken.
    Later,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Taken => "taken",
            Verdict::Absent => "not on this machine, or not in this binary",
            Verdict::NoVariant => "the model has no variant for it",
            Verdict::Later => "comes after the one that is taken",
        })
    }
}

impl Registry {
    /// The backends that are considered, in order.
    pub fn order(&self, wish: &Wish<'_>) -> Vec<String> {
        if let Some(named) = wish.backend {
            return vec![named.to_owned()];
        }
        let preferred = self.platform(&wish.platform).flat_map(|defaults| defaults.backends.iter().cloned());
        let present = wish.present.iter().map(|&backend| backend.to_owned());
        let mut order = Vec::new();
        for backend in preferred.chain(present) {
            if !order.contains(&backend) {
                order.push(backend);
            }
        }
        order
    }

    /// The model that is taken where nobody names one.
    pub fn default_model(&self, platform: &Platform) -> Result<Cow<'_, Model>> {
        let here = self.platform(platform).find_map(|defaults| defaults.model.as_deref());
        self.model(here.unwrap_or(&self.default_model))
    }

    /// The variant of a model, or of the default model, that is meant here.
    pub fn resolve(&self, name: Option<&str>, wish: &Wish<'_>) -> Result<Resolution> {
        let model = match name {
            Some(name) => self.model(name)?,
            None => self.default_model(&wish.platform)?,
        };
        let mut taken = None;
        let mut considered = Vec::new();
        for backend in self.order(wish) {
            let variant = model.variants.iter().find(|variant| variant.is_for(&backend));
            let verdict = match variant {
                _ if taken.is_some() => Verdict::Later,
                _ if !wish.present.contains(&backend.as_str()) => Verdict::Absent,
                None => Verdict::NoVariant,
                Some(variant) => {
                    taken = Some((variant, backend.clone()));
                    Verdict::Taken
                }
            };
            considered.push(Considered { backend, verdict });
        }
        match taken {
            Some((variant, backend)) => {
                let variant = variant.clone();
                Ok(Resolution { model: model.into_owned(), variant, backend, considered })
            }
            None => Err(Error::NoVariant {
                model: model.name.clone(),
                wanted: describe_considered(&considered),
                has: describe_variants(&model),
            }),
        }
    }

    /// What the data says of a platform, most particular first.
    fn platform(&self, platform: &Platform) -> impl Iterator<Item = &crate::catalogue::PlatformDefaults> {
        let exact = format!("{}-{}", platform.os, platform.architecture);
        [exact, platform.os.clone()].into_iter().filter_map(|key| self.platforms.get(&key))
    }
}

fn describe_considered(considered: &[Considered]) -> String {
    let each = considered.iter().map(|Considered { backend, verdict }| format!("{backend} ({verdict})"));
    each.collect::<Vec<_>>().join(", ")
}

fn describe_variants(model: &Model) -> String {
    let each = model.variants.iter().map(|variant| match variant.backends.is_empty() {
        true => format!("{} for any backend", variant.name),
        false => format!("{} for {}", variant.name, variant.backends.join(", ")),
    });
    each.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        let text = r#"
            [defaults.platforms.macos]
            backends = ["mlx", "cpu"]
            [defaults.platforms.macos-aarch64]
            backends = ["metal"]
            [models.both]
            licence = "MIT"
            [[models.both.variants]]
            name = "m"
            backends = ["mlx"]
            kind = "folder"
            sources = ["path:/m"]
            [[models.both.variants]]
            name = "c"
            backends = ["cpu", "reference"]
            kind = "folder"
            sources = ["path:/c"]
        "#;
        Registry::built_in().unwrap().with("test", text).unwrap()
    }

    fn on(os: &str, architecture: &str) -> Platform {
        Platform { os: os.to_owned(), architecture: architecture.to_owned() }
    }

    #[test]
    fn what_the_user_says_comes_first_then_the_platform_then_what_is_there() {
        let registry = registry();
        let all = ["mlx", "cpu", "reference"];
        let choose = |platform: Platform, backend, present: &[&str]| {
            let resolved = registry.resolve(Some("both"), &Wish { platform, backend, present });
            resolved
                .map(|chosen| (chosen.variant.name.clone(), chosen.backend))
                .map_err(|error| error.to_string())
        };
        let chosen = |variant: &str, backend: &str| Ok((variant.to_owned(), backend.to_owned()));
        assert_eq!(choose(on("macos", "aarch64"), None, &all), chosen("m", "mlx"));
        assert_eq!(choose(on("macos", "aarch64"), Some("cpu"), &all), chosen("c", "cpu"));
        assert_eq!(choose(on("macos", "aarch64"), None, &["cpu", "reference"]), chosen("c", "cpu"));
        assert_eq!(choose(on("linux", "x86_64"), None, &["reference", "cpu"]), chosen("c", "reference"));
        let error = choose(on("linux", "x86_64"), Some("cuda"), &all).unwrap_err();
        assert!(error.contains("cuda (not on this machine") && error.contains("m for mlx"), "{error}");
        let error = choose(on("linux", "x86_64"), None, &["cuda"]).unwrap_err();
        assert!(error.contains("cuda (the model has no variant for it)"), "{error}");
    }

    #[test]
    fn the_choice_is_told_step_by_step() {
        let registry = registry();
        let wish = Wish { platform: on("macos", "aarch64"), backend: None, present: &["cpu", "reference"] };
        let resolved = registry.resolve(Some("both"), &wish).unwrap();
        let told: Vec<(&str, Verdict)> =
            resolved.considered.iter().map(|each| (each.backend.as_str(), each.verdict)).collect();
        let expected = [
            ("metal", Verdict::Absent),
            ("mlx", Verdict::Absent),
            ("cpu", Verdict::Taken),
            ("reference", Verdict::Later),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn with_no_name_the_default_model_is_meant() {
        let registry = registry();
        let wish = Wish { platform: Platform::here(), backend: None, present: &["cpu", "reference"] };
        assert_eq!(registry.resolve(None, &wish).unwrap().model.name, "qwen2.5-coder-1.5b");
    }
}
