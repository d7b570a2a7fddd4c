//! Where the full case sets and the Python environment live: one folder outside the checkout, so that every clone on
//! a machine finds what another one made. The choice is made from the environment by a pure function.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Overrides the choice: the folder itself, not its parent.
pub(crate) const OVERRIDE: &str = "PTERON_CASES";

/// The folder of the case sets and what they were made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The folder that this process's environment calls for; it need not exist yet.
    pub(crate) fn locate() -> Result<Cache> {
        let root = choose(Platform::HERE, |name| env::var_os(name)).ok_or_else(|| {
            Error::message(format!("no home folder is known; set {OVERRIDE} to a folder for the case sets"))
        })?;
        // Absolute, because the generators run in a working folder of their own.
        let root = std::path::absolute(&root).map_err(|error| Error::content(&root, error))?;
        Ok(Cache { root })
    }

    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Cache {
        Cache { root: root.to_path_buf() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of benchmarks, beside that of cases: the peer and the models that both run.
    pub(crate) fn benchmarks(&self) -> PathBuf {
        self.root.with_file_name("bench")
    }

    /// The folder of one set, and the stamp that says what it was made from.
    pub(crate) fn set(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn stamp(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.stamp.json"))
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.log"))
    }

    pub(crate) fn environment(&self) -> PathBuf {
        self.root.join("venv")
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.environment().join("bin").join("python")
    }
}

#[derive(Clone, Copy, Debug)]
enum Platform {
    Linux,
    MacOs,
    Windows,
}

impl Platform {
    const HERE: Platform = if cfg!(target_os = "macos") {
        Platform::MacOs
    } else if cfg!(windows) {
        Platform::Windows
    } else {
        Platform::Linux
    };
}

fn choose(platform: Platform, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(chosen) = folder(OVERRIDE) {
        return Some(chosen);
    }
    let caches = match platform {
        // The XDG specification: a relative path in the variable is to be ignored.
        Platform::Linux => folder("XDG_CACHE_HOME")
            .filter(|path| path.has_root())
            .or_else(|| folder("HOME").map(|home| home.join(".cache"))),
        Platform::MacOs => folder("HOME").map(|home| home.join("Library").join("Caches")),
        Platform::Windows => folder("LOCALAPPDATA"),
    };
    caches.map(|caches| caches.join("pteron").join("conformance"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables = &'static [(&'static str, &'static str)];

    #[test]
    fn cache_folder_follows_override_then_platform() {
        let cases: &[(Platform, Variables, Option<&str>)] = &[
            (Platform::Linux, &[("HOME", "/h")], Some("/h/.cache/pteron/conformance")),
            (Platform::Linux, &[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/pteron/conformance")),
            (
                Platform::Linux,
                &[("HOME", "/h"), ("XDG_CACHE_HOME", "x")],
                Some("/h/.cache/pteron/conformance"),
            ),
            (
                Platform::Linux,
                &[("HOME", "/h"), ("XDG_CACHE_HOME", "")],
                Some("/h/.cache/pteron/conformance"),
            ),
            (Platform::Linux, &[("HOME", "/h"), ("PTERON_CASES", "/p")], Some("/p")),
            (Platform::Linux, &[("HOME", "/h"), ("PTERON_CASES", "")], Some("/h/.cache/pteron/conformance")),
            (Platform::Linux, &[("LOCALAPPDATA", "/l")], None),
            (
                Platform::MacOs,
                &[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")],
                Some("/h/Library/Caches/pteron/conformance"),
            ),
            (Platform::Windows, &[("LOCALAPPDATA", "/l"), ("HOME", "/h")], Some("/l/pteron/conformance")),
            (Platform::Windows, &[("HOME", "/h")], None),
        ];
        for (platform, variables, wanted) in cases {
            let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, v)| v.into());
            assert_eq!(choose(*platform, lookup), wanted.map(PathBuf::from), "{platform:?} {variables:?}");
        }
    }
}
