//! Conformance cases on disk as these commands see them: where they are, what kinds of nodes they hold, which files
//! belong to one. The layout is described in `conformance/README.md`; running and judging is the binary's business.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Doing, Error, Result};

/// A case folder and what its `case.json` says of the program.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) folder: PathBuf,
    pub(crate) description: Description,
}

/// The part of `case.json` that matters here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// Where the case comes from, in words.
    pub(crate) source: String,
    /// MLX node kinds of the program's payloads, with counts.
    pub(crate) nodes: BTreeMap<String, u64>,
    /// Operators outside the delegate, with counts.
    pub(crate) portable: BTreeMap<String, u64>,
    /// External data files to be loaded with the program.
    #[serde(default)]
    pub(crate) data: Vec<String>,
}

impl Case {
    pub(crate) fn read(folder: &Path) -> Result<Case> {
        let path = folder.join("case.json");
        let text = fs::read(&path).doing("read", &path)?;
        let description = serde_json::from_slice(&text).map_err(|error| Error::content(&path, error))?;
        Ok(Case { folder: folder.to_path_buf(), description })
    }

    pub(crate) fn name(&self) -> &str {
        &self.description.name
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("model.pte")
    }

    /// The case's `.pt2` files, one a method; none where it has no such files.
    pub(crate) fn exports(&self) -> Result<Vec<PathBuf>> {
        let mut found = vec![];
        for entry in fs::read_dir(&self.folder).doing("read", &self.folder)? {
            let path = entry.doing("read", &self.folder)?.path();
            if path.extension().is_some_and(|extension| extension == "pt2") {
                found.push(path);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The names of the files that running the case takes; `.pt2` files are for compilers.
    pub(crate) fn files(&self) -> Vec<String> {
        let fixed = ["case.json", "io.safetensors", "model.pte"];
        let mut names: Vec<String> = fixed.iter().map(ToString::to_string).collect();
        names.extend(self.description.data.iter().cloned());
        names.sort_unstable();
        names
    }
}

/// The cases of a set, or of all sets in a folder, by name within each.
pub(crate) fn find(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = vec![];
    for inner in subfolders(folder)? {
        if is_case(&inner) {
            cases.push(Case::read(&inner)?);
        } else {
            // One level more: a folder of sets. Not deeper, for the environment lies there as well.
            for innermost in subfolders(&inner)?.iter().filter(|folder| is_case(folder)) {
                cases.push(Case::read(innermost)?);
            }
        }
    }
    Ok(cases)
}

/// Whether it is a case with a program; those of checkpoints have none.
fn is_case(folder: &Path) -> bool {
    folder.join("case.json").is_file() && folder.join("model.pte").is_file()
}

/// In order, without the hidden ones, where half-made sets are.
fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).doing("read", folder)? {
        let path = entry.doing("read", folder)?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() && !hidden {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether a name matches a glob of `*` and `?`.
pub(crate) fn matches(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    // The classic two-pointer walk: on a mismatch the last star takes one character more.
    let (mut g, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (g, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_a_shell() {
        let cases = [
            ("*", "", true),
            ("add*", "add_alpha", true),
            ("*add", "my_add_add", true),
            ("a?d", "add", true),
            ("a?d", "ad", false),
            ("*_k*_p*", "x_k3_p1", true),
            ("conv", "conv2d", false),
            ("**x", "yx", true),
        ];
        for (glob, name, wanted) in cases {
            assert_eq!(matches(glob, name), wanted, "{glob} {name}");
        }
    }

    #[test]
    fn cases_are_found_in_a_set_and_in_a_folder_of_sets() {
        let root = tempfile::tempdir().unwrap();
        for name in ["ops/b", "ops/a", "models/m", ".ops.making/half", "venv/lib/deep"] {
            let folder = root.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            let case = folder.file_name().unwrap().to_string_lossy().into_owned();
            let text = format!(r#"{{"name": "{case}", "source": "t", "nodes": {{}}, "portable": {{}}}}"#);
            fs::write(folder.join("case.json"), text).unwrap();
            fs::write(folder.join("model.pte"), "").unwrap();
        }
        // A case of a checkpoint has no program, and says other things.
        fs::create_dir_all(root.path().join("checkpoints/c")).unwrap();
        fs::write(root.path().join("checkpoints/c/case.json"), r#"{"name": "c"}"#).unwrap();
        fs::remove_file(root.path().join("venv/lib/deep/case.json")).unwrap();
        let names = |folder: &Path| -> Vec<String> {
            find(folder).unwrap().iter().map(|case| case.name().to_string()).collect()
        };
        assert_eq!(names(root.path()), ["m", "a", "b"]);
        assert_eq!(names(&root.path().join("ops")), ["a", "b"]);
    }
}
