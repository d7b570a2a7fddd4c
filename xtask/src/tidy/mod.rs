//! `cargo xtask tidy`: what the pages promise about the sources, held against the sources. It reads text and compiles
//! nothing, so it runs with every change. The rules take a tree of names and contents, so that tests can make one up.

mod order;
mod page;
mod sources;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::CommandFactory;

use crate::error::{Doing, Result};
use crate::{Outcome, workspace};
use text::Source;

/// Hold ARCHITECTURE.md and the rules of the house to the sources.
///
/// Paths and commands that pages name exist; crates use those that the page lists for them and no other; what a crate "never
/// knows of" is not in its sources; modules whose order the page gives import nothing above them; libraries do not print,
/// read the environment or exit; `unsafe` stands only where the page says, with its reason; files are short, and nothing is
/// left for later. The last line is `tidy: N files, N faults`.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<Outcome> {
    let tree = Tree::read(workspace::root())?;
    let faults = faults(&tree);
    for fault in &faults {
        println!("{fault}");
    }
    println!("tidy: {} files, {} faults", tree.texts.len() + tree.sources.len(), faults.len());
    Ok(if faults.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Everything that is wrong, as `FILE:LINE: what`.
fn faults(tree: &Tree) -> Vec<String> {
    let command = crate::Arguments::command();
    let commands: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let mut faults = page::faults(tree, &commands);
    faults.extend(sources::faults(tree));
    faults.extend(order::faults(tree));
    faults
}

/// A checkout: the names of all that is in it, and what its sources, manifests and pages say.
#[derive(Default)]
struct Tree {
    /// Files and folders, with `/` between parts.
    paths: BTreeSet<String>,
    /// Contents of `.toml` and `.md` files.
    texts: BTreeMap<String, String>,
    /// Of `.rs` files.
    sources: BTreeMap<String, Source>,
}

impl Tree {
    fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        tree.add(root, "")?;
        Ok(tree)
    }

    fn add(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(folder).doing("read", folder)? {
            let path = entry.doing("read", folder)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // What cargo, git and Python make is not ours to judge.
            if name == "target" || name == "__pycache__" || name.starts_with('.') {
                continue;
            }
            let place = format!("{prefix}{name}");
            if path.is_dir() {
                self.add(&path, &format!("{place}/"))?;
            } else if [".rs", ".toml", ".md"].iter().any(|end| name.ends_with(end)) {
                self.put(&place, &fs::read_to_string(&path).doing("read", &path)?);
            }
            self.paths.insert(place);
        }
        Ok(())
    }

    fn put(&mut self, path: &str, text: &str) {
        if path.ends_with(".rs") {
            self.sources.insert(path.to_string(), Source::of(text));
        } else {
            self.texts.insert(path.to_string(), text.to_string());
        }
    }

    /// A page or a manifest; nothing where it is missing.
    fn text(&self, path: &str) -> &str {
        self.texts.get(path).map_or("", String::as_str)
    }

    /// Sources whose names begin so.
    fn rust(&self, prefix: &str) -> impl Iterator<Item = (&str, &Source)> {
        let found = self.sources.iter().filter(move |(path, _)| path.starts_with(prefix));
        found.map(|(path, source)| (path.as_str(), source))
    }

    /// The crates in `crates/`.
    fn crates(&self) -> Vec<&str> {
        let name = |path: &'_ str| path.strip_prefix("crates/").is_some_and(|name| !name.contains('/'));
        self.paths.iter().filter(|path| name(path)).map(|path| &path["crates/".len()..]).collect()
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            tree.paths.extend(ends.map(|end| path[..end].to_string()));
            tree.put(path, text);
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_tidy() {
        let tree = Tree::read(workspace::root()).unwrap();
        assert!(tree.crates().len() > 10 && tree.sources.len() > 300, "{} sources", tree.sources.len());
        let ordered: Vec<String> = order::orders(&tree).into_iter().map(|(name, _)| name).collect();
        assert_eq!(ordered, ["plan", "cpu"]);
        let faults = faults(&tree);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
