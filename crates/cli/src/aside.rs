//! Files that commands write: all of them are there before the first one takes its place, so that whatever fails leaves
//! nothing behind but what was there before.

use crate::failure::Failure;
use pteron_aside::{AsideError, Readers, Whole, write_aside};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// A file that becomes what it was named when it lands, and nothing if it does not.
pub(crate) struct Aside(Whole);

impl Aside {
    /// Calls `write` with a new file beside `path`.
    pub(crate) fn write<E: std::fmt::Display>(
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<Aside, Failure> {
        if path.is_dir() {
            return Err(Failure::in_file(path, "it is a folder, not a file to write"));
        }
        let (_, whole) = write_aside(path, Readers::AsUsual, |out| {
            write(out).map_err(|error| Failure::in_file(path, error))
        })?;
        Ok(Aside(whole))
    }

    /// Puts the file in its place.
    pub(crate) fn land(self) -> Result<(), Failure> {
        Ok(self.0.land()?)
    }
}

/// Refuses, before any work is done, a place that no file can take, and one that holds what the command is going to read:
/// an input file, or whatever lies in an input folder and is no program of an earlier run.
pub(crate) fn check_place(place: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    let ends_as_folder = place
        .as_os_str()
        .as_encoded_bytes()
        .last()
        .is_some_and(|&byte| std::path::is_separator(byte as char));
    if place.is_dir() || ends_as_folder {
        return Err(Failure::usage(format!("{}: it is a folder, not a file to write", place.display()))
            .hint(format!("name the file, such as {}", place.join("model.pte").display())));
    }
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Failure::in_file(folder, "there is no such folder"));
    }
    match inputs.iter().any(|input| is_read(place, input)) {
        true => Err(Failure::usage(format!(
            "{}: it is one of the files that are read, and would be lost",
            place.display()
        ))
        .hint("write to another file")),
        false => Ok(()),
    }
}

/// Whether a file that may be there belongs to an input.
fn is_read(place: &Path, input: &Path) -> bool {
    if !input.is_dir() {
        return is_same(place, input);
    }
    let below = match (fs::canonicalize(place), fs::canonicalize(input)) {
        (Ok(place), Ok(input)) => place.starts_with(input),
        _ => return false,
    };
    // Folders of the hub's own cache hold links to files elsewhere.
    let entries = || fs::read_dir(input).into_iter().flatten().flatten();
    (below || entries().any(|entry| is_same(place, &entry.path()))) && !is_program(place)
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let file = |path: &Path| fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
        file(one).is_some_and(|one| Some(one) == file(other))
    }
    #[cfg(not(unix))]
    fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

fn is_program(path: &Path) -> bool {
    let mut start = [0; 8];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start[4..6] == *b"ET"
}

impl From<AsideError> for Failure {
    fn from(error: AsideError) -> Failure {
        match (error.place.parent(), error.source.kind()) {
            (Some(folder), ErrorKind::NotFound) => Failure::in_file(folder, "there is no such folder"),
            _ => Failure::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_says_why_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let failed = Aside::write(&path, |out| {
            out.write_all(b"half").unwrap();
            Err("the source ended early")
        });
        assert!(failed.err().unwrap().message().ends_with("out: the source ended early"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(Aside::write(folder.path(), |_| Ok::<(), String>(())).is_err());
        let lost = Aside::write(&folder.path().join("no/out"), |_| Ok::<(), String>(()));
        assert!(lost.err().unwrap().message().contains("no such folder"));
    }

    #[test]
    fn a_place_that_is_read_or_no_file_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("model/more")).unwrap();
        for name in ["model/config.json", "model/more/x.jinja", "other.gguf"] {
            fs::write(at(name), b"input that is read").unwrap();
        }
        fs::write(at("model/earlier.pte"), b"0000ET12 and so on").unwrap();
        let check = |place: &str, inputs: &[&str]| {
            let inputs: Vec<PathBuf> = inputs.iter().map(|name| at(name)).collect();
            check_place(&at(place), &inputs).map_err(|failure| failure.message().to_owned())
        };
        for (place, problem) in [
            ("model", "it is a folder"),
            ("new/", "it is a folder"),
            ("new/model.pte", "there is no such folder"),
            ("model/config.json", "one of the files that are read"),
            ("model/more/x.jinja", "one of the files that are read"),
            ("model/../other.gguf", "one of the files that are read"),
        ] {
            let message = check(place, &["model", "other.gguf"]).unwrap_err();
            assert!(message.contains(problem), "{place}: {message}");
        }
        for place in ["model/new.pte", "model/earlier.pte", "new.pte"] {
            assert_eq!(check(place, &["model", "other.gguf"]), Ok(()), "{place}");
        }
        assert_eq!(check("other.gguf", &["model"]), Ok(()), "what is not read may be replaced");
    }

    #[cfg(unix)]
    #[test]
    fn links_do_not_hide_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("hub/snapshot")).unwrap();
        fs::write(at("hub/blob"), b"the weights").unwrap();
        std::os::unix::fs::symlink("../blob", at("hub/snapshot/model.safetensors")).unwrap();
        fs::hard_link(at("hub/blob"), at("second")).unwrap();
        for place in ["hub/blob", "second", "hub/snapshot/model.safetensors"] {
            assert!(check_place(&at(place), &[at("hub/snapshot")]).is_err(), "{place}");
        }
    }
}
