//! What a model is asked for by: a program, something that can be made into one, or a name. What is made is kept, so that
//! the second start needs neither the network nor the work.

use crate::convert::Conversion;
use crate::error::{Error, Lack, Reason, Result};
use crate::form::{self, Form};
use crate::home::Home;
pub use crate::located::Located;
use crate::options::Source;
use crate::progress::{Cancel, Progress};
use pteron_checkpoint::gguf;
use pteron_registry::{Export, FileKind, Identity, Model};
use pteron_runtime::Options;
use std::path::{Path, PathBuf};

/// Where models are looked for, and who is told of it.
pub struct Finder<'f> {
    /// Models with names, and what was converted; opened for what is named, where that needs it.
    pub home: &'f dyn Fn(&str) -> Result<Home>,
    /// The backends that there are.
    pub options: &'f Options,
    /// Who is told.
    pub progress: &'f dyn Progress,
    /// Who may want it no more.
    pub cancel: &'f Cancel,
}

impl Finder<'_> {
    /// The program of whatever is meant; of a file or folder that nothing else is said of, exported so.
    pub fn find(&self, source: &Source, export: &Export) -> Result<Located> {
        self.cancel.check()?;
        match source {
            Source::Usual => self.named(None),
            Source::Named(name) if Path::new(name).exists() => self.at(Path::new(name), export),
            Source::Named(name) if looks_like_a_path(name) => Err(nothing_at(name)),
            Source::Named(name) => self.named(Some(name)),
            Source::Path(path) if path.exists() => self.at(path, export),
            Source::Path(path) => Err(nothing_at(&path.display().to_string())),
            Source::Memory { name, bytes } => Ok(Located::memory(name, bytes)),
        }
    }

    /// The program of a file or folder.
    fn at(&self, path: &Path, export: &Export) -> Result<Located> {
        match kind(path)? {
            FileKind::Pte | FileKind::Safetensors => Ok(Located::file(path, &path.display().to_string())),
            FileKind::Gguf | FileKind::Folder | FileKind::Pt | FileKind::Nemo => {
                let store = (self.home)(&path.display().to_string())?.store;
                let conversion = Conversion::new(&store, path, identity(path)?, export)?;
                conversion.converted(self.progress, self.cancel)
            }
        }
    }

    /// The program of a model that the registry knows; fetched and converted the first time.
    fn named(&self, name: Option<&str>) -> Result<Located> {
        let home = (self.home)(name.unwrap_or("the default model"))?;
        let resolution = home.resolve(name, self.options.backend.as_deref(), &self.present())?;
        let name = name.unwrap_or(&resolution.model.name);
        let installed = home.fetch(&resolution.variant, self.progress)?;
        match resolution.variant.kind {
            FileKind::Pte => Ok(Located::file(&installed.path, name)),
            FileKind::Safetensors => Err(Error::lacks(name, Lack::Speaker)),
            FileKind::Gguf | FileKind::Folder | FileKind::Pt | FileKind::Nemo => {
                let identity = Identity::of_installed(&installed);
                let export = &resolution.variant.export;
                let conversion = Conversion::new(&home.store, &installed.path, identity, export)?;
                conversion.called(name).converted(self.progress, self.cancel)
            }
        }
    }

    /// The files of a model that the registry knows, fetched the first time, as they were published; with what they are.
    pub fn source(&self, name: &str) -> Result<(PathBuf, FileKind)> {
        self.cancel.check()?;
        let home = (self.home)(name)?;
        let resolution = home.resolve(Some(name), self.options.backend.as_deref(), &self.present())?;
        Ok((home.fetch(&resolution.variant, self.progress)?.path, resolution.variant.kind))
    }

    /// A path as it is, or the files behind a name, fetched the first time.
    pub fn published(&self, model: &str) -> Result<PathBuf> {
        let path = Path::new(model);
        if path.exists() || looks_like_a_path(model) {
            return Ok(path.to_owned());
        }
        Ok(self.source(model)?.0)
    }

    /// The backends that there are, best first.
    fn present(&self) -> Vec<&str> {
        self.options.registry.backends().iter().map(|backend| backend.name()).collect()
    }
}

/// An error about a path that leads nowhere.
pub(crate) fn nothing_at(path: &str) -> Error {
    Error::NotFound(Reason::new(format_args!("there is no file or folder {path}")))
}

/// What a checkpoint at a path is told by; all parts of a GGUF file count.
pub fn identity(path: &Path) -> Result<Identity> {
    Ok(Identity::of_paths(&gguf::files(path))?)
}

/// What lies at a path, told by what it says of itself; what is no model is refused in words of its own kind.
pub fn kind(path: &Path) -> Result<FileKind> {
    Ok(match form::check(path, form::Wanted::Model)? {
        Form::Folder => FileKind::Folder,
        Form::Gguf => FileKind::Gguf,
        Form::Saved => FileKind::Pt,
        Form::Tar => FileKind::Nemo,
        _ => FileKind::Pte,
    })
}

/// Names in the registry have neither separators nor the endings of files. `ORG/REPOSITORY` is the hub's, but where a folder
/// is called as the organisation.
pub fn looks_like_a_path(name: &str) -> bool {
    let above = Path::new(name).parent().filter(|above| !above.as_os_str().is_empty());
    if Model::of_repository(name).is_some() && !above.is_some_and(Path::exists) {
        return false;
    }
    let endings = [".pt", ".nemo", ".pte", ".bpte", ".ptd", ".pt2", ".gguf", ".safetensors"];
    name.contains(['/', '\\']) || name.starts_with('.') || endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_told_apart() {
        for path in ["model.pte", "./model", "src/b", "a/b/c", "a/b.gguf", "..", "x.gguf", "C:\\models\\x"] {
            assert!(looks_like_a_path(path), "{path}");
        }
        for name in
            ["smollm2-135m", "qwen2.5-coder-0.5b", "gemma4_e2b", "Qwen/Qwen3-0.6B", "hf:Qwen/Qwen3-0.6B"]
        {
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
        assert!(kind(&file).unwrap_err().to_string().contains("this is a text; wanted is a program"));
        assert_eq!(kind(folder.path()).unwrap(), FileKind::Folder);
    }
}
