//! MODEL on the command line: a program, something that can be made into one, or a name. What is made is kept, so that
//! the second start needs neither the network nor the work.

use super::convert::Conversion;
use crate::failure::Failure;
use crate::form::{self, Form};
use crate::home::Home;
use pteron_checkpoint::gguf;
use pteron_models::Logits;
use pteron_registry::{Export, FileKind, Identity, Store};
use pteron_runtime::Options;
use std::path::{Path, PathBuf};

/// What a program shall be like where it is still to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Whose logits it gives.
    pub(crate) logits: Logits,
}

/// A program, and where the rest of it is.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// What the user calls the model.
    pub(crate) name: String,
    /// The `.pte` file.
    pub(crate) program: PathBuf,
    /// The `.ptd` file with its weights, where they are not in it.
    pub(crate) weights: Option<PathBuf>,
    /// What it was converted from, and where that is kept.
    pub(crate) source: Option<(Store, Identity)>,
}

impl Located {
    fn file(program: PathBuf, name: &str) -> Located {
        Located { name: name.to_owned(), program, weights: None, source: None }
    }

    /// A failure in words of whoever named the model: where its files are kept is of no use to them.
    pub(crate) fn named(&self, failure: Failure) -> Failure {
        let files = self.data().into_iter().chain([&*self.program]);
        files.fold(failure, |failure, file| failure.naming(file, &self.name))
    }

    /// Files that go with the program.
    pub(crate) fn data(&self) -> Vec<&Path> {
        self.weights.iter().map(PathBuf::as_path).collect()
    }

    /// Takes a conversion away that is not as it was written, so that it is made again; whether it was.
    pub(crate) fn mend(&self) -> Result<bool, Failure> {
        let Some((store, source)) = &self.source else { return Ok(false) };
        Ok(store.mend(source)?)
    }
}

/// The program behind a path or a name; with neither, the default model's.
pub(crate) fn program(model: Option<&str>, wanted: &Wanted, options: &Options) -> Result<Located, Failure> {
    program_exported(model, &Export::default(), wanted, options)
}

/// The same, with how a file or folder becomes a program that nothing else is said of.
pub(crate) fn program_exported(
    model: Option<&str>,
    export: &Export,
    wanted: &Wanted,
    options: &Options,
) -> Result<Located, Failure> {
    if let Some(path) = model.map(Path::new).filter(|path| path.exists()) {
        return match kind(path)? {
            FileKind::Pte | FileKind::Safetensors => {
                Ok(Located::file(path.to_owned(), &path.display().to_string()))
            }
            FileKind::Gguf | FileKind::Folder | FileKind::Pt => {
                let store = Home::open()?.store;
                Conversion::new(&store, path, identity(path)?, export, wanted)?.converted()
            }
        };
    }
    if let Some(name) = model.filter(|name| looks_like_a_path(name)) {
        return Err(Failure::usage(format!("there is no file or folder {name}")));
    }
    named(model, wanted, options)
}

/// The files of a model that the registry knows, fetched the first time, as they were published; with what they are.
pub(crate) fn source(name: &str, options: &Options) -> Result<(PathBuf, FileKind), Failure> {
    let home = Home::open()?;
    let resolution = home.resolve(Some(name), options.backend.as_deref(), &present(options))?;
    Ok((home.fetch(resolution.variant)?.path, resolution.variant.kind))
}

/// A path as it is, or the files behind a name, fetched the first time.
pub(crate) fn published(model: &str, options: &Options) -> Result<PathBuf, Failure> {
    let path = Path::new(model);
    if path.exists() || looks_like_a_path(model) {
        return Ok(path.to_owned());
    }
    Ok(source(model, options)?.0)
}

/// The backends that there are, best first.
fn present(options: &Options) -> Vec<&str> {
    options.registry.backends().iter().map(|backend| backend.name()).collect()
}

/// What a checkpoint at a path is told by; all parts of a GGUF file count.
pub(crate) fn identity(path: &Path) -> Result<Identity, Failure> {
    Ok(Identity::of_paths(&gguf::files(path))?)
}

/// The program of a model that the registry knows; fetched and converted the first time.
fn named(name: Option<&str>, wanted: &Wanted, options: &Options) -> Result<Located, Failure> {
    let home = Home::open()?;
    let resolution = home.resolve(name, options.backend.as_deref(), &present(options))?;
    let name = name.unwrap_or(&resolution.model.name);
    let installed = home.fetch(resolution.variant)?;
    match resolution.variant.kind {
        FileKind::Pte => Ok(Located::file(installed.path, name)),
        FileKind::Safetensors => Err(Failure::usage(format!("{name} is no model to talk to"))
            .hint("`pteron transcribe` uses it by itself")),
        FileKind::Gguf | FileKind::Folder | FileKind::Pt => {
            let identity = Identity::of_installed(&installed);
            let export = &resolution.variant.export;
            Conversion::new(&home.store, &installed.path, identity, export, wanted)?.called(name).converted()
        }
    }
}

/// What lies at a path, told by what it says of itself; what is no model is refused in words of its own kind.
pub(crate) fn kind(path: &Path) -> Result<FileKind, Failure> {
    Ok(match form::check(path, form::Wanted::Model)? {
        Form::Folder => FileKind::Folder,
        Form::Gguf => FileKind::Gguf,
        Form::Saved => FileKind::Pt,
        _ => FileKind::Pte,
    })
}

/// Names in the registry have neither separators nor the endings of files.
pub(crate) fn looks_like_a_path(name: &str) -> bool {
    let endings = [".pt", ".pte", ".bpte", ".ptd", ".pt2", ".gguf", ".safetensors"];
    name.contains(['/', '\\']) || name.starts_with('.') || endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_told_apart() {
        for path in ["model.pte", "./model", "a/b", "..", "x.gguf", "C:\\models\\x"] {
            assert!(looks_like_a_path(path), "{path}");
        }
        for name in ["smollm2-135m", "qwen2.5-coder-0.5b", "gemma4_e2b"] {
            assert!(!looks_like_a_path(name), "{name}");
        }
    }

    #[test]
    fn files_are_what_they_say() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.pte");
        std::fs::write(&file, b"GGUF\x03\0\0\0").unwrap();
        assert_eq!(kind(&file).unwrap(), FileKind::Gguf);
        std::fs::write(&file, b"\0\x01").unwrap();
        assert_eq!(kind(&file).unwrap(), FileKind::Pte);
        std::fs::write(&file, b"GG").unwrap();
        assert!(kind(&file).unwrap_err().message().contains("this is a text; wanted is a program"));
        assert_eq!(kind(folder.path()).unwrap(), FileKind::Folder);
    }
}
