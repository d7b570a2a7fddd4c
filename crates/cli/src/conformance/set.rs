//! A set of cases: a folder with one folder a case, or a zip of such a folder, read where it lies.
//!
//! Nothing is unpacked to disk: members of an archive are read into memory, each under a bound on its size, and
//! their names are only ever compared, so that no path in an archive means anything to the file system.

use crate::failure::{Failure, in_format};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_tensor::Bytes;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zip::ZipArchive;

const DESCRIPTION: &str = "case.json";
/// No member of an archive is read beyond this; the largest case there is has 690 MB.
const MEMBER_BYTES: u64 = 1 << 30;
/// Members of an archive; a set has three or four files a case.
const MOST_MEMBERS: usize = 1 << 20;

/// Cases by name, ready to be read.
pub(crate) struct Set {
    place: Place,
    cases: BTreeMap<String, PathBuf>,
}

enum Place {
    Folder,
    Archive(ZipArchive<Cursor<Archived>>),
}

/// The bytes of an archive; cloning shares them.
#[derive(Clone)]
struct Archived(Bytes);

impl AsRef<[u8]> for Archived {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Set {
    /// Opens a folder of cases, the folder of a single case, or an archive.
    pub(crate) fn open(path: &Path) -> Result<Set, Failure> {
        let set = if path.is_dir() { Set::of_folder(path)? } else { Set::of_archive(path)? };
        if set.cases.is_empty() {
            return Err(Failure::in_file(path, "there is no case in it")
                .hint("a set is a folder, or a zip of one, with a folder per case that holds a case.json"));
        }
        Ok(set)
    }

    fn of_folder(path: &Path) -> Result<Set, Failure> {
        let name = |folder: &Path| folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut cases = BTreeMap::new();
        if path.join(DESCRIPTION).is_file() {
            let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            cases.insert(name(&whole).unwrap_or_default(), path.to_owned());
            return Ok(Set { place: Place::Folder, cases });
        }
        let entries = fs::read_dir(path).map_err(|error| Failure::in_file(path, error))?;
        for entry in entries {
            let folder = entry.map_err(|error| Failure::in_file(path, error))?.path();
            if folder.join(DESCRIPTION).is_file() {
                cases.insert(name(&folder).unwrap_or_default(), folder);
            }
        }
        Ok(Set { place: Place::Folder, cases })
    }

    fn of_archive(path: &Path) -> Result<Set, Failure> {
        let bytes = MappedFile::open(path, &Limits::default()).map_err(|error| in_format(path, error))?;
        let wrong = |problem: String| {
            Failure::in_file(path, problem).hint("SET is a folder of cases or a zip of one")
        };
        let archive = ZipArchive::new(Cursor::new(Archived(bytes.to_bytes())))
            .map_err(|error| wrong(format!("not a sound zip: {error}")))?;
        if archive.len() > MOST_MEMBERS {
            return Err(wrong(format!("{} members are more than any set has", archive.len())));
        }
        let mut cases = BTreeMap::new();
        for member in archive.file_names() {
            let Ok(member) = member else { continue };
            let Some(folder) = member.strip_suffix(DESCRIPTION).and_then(|path| path.strip_suffix('/'))
            else {
                continue;
            };
            let name = folder.rsplit('/').next().unwrap_or(folder).to_owned();
            if cases.insert(name.clone(), PathBuf::from(folder)).is_some() {
                return Err(wrong(format!("two cases are called `{name}`")));
            }
        }
        Ok(Set { place: Place::Archive(archive), cases })
    }

    /// The names of all cases, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.cases.keys().map(String::as_str)
    }

    /// Whether a case has a file of that name.
    pub(crate) fn has(&self, case: &str, name: &str) -> bool {
        let Some(folder) = self.cases.get(case) else { return false };
        match &self.place {
            Place::Folder => folder.join(name).is_file(),
            Place::Archive(archive) => {
                let member = format!("{}/{name}", folder.to_string_lossy());
                archive.index_for_name(&member).is_some()
            }
        }
    }

    /// A file of a case; `name` must not come from anywhere but a checked description.
    pub(crate) fn read(&self, case: &str, name: &str) -> Result<Bytes, String> {
        let folder = self.cases.get(case).ok_or_else(|| format!("there is no case `{case}`"))?;
        match &self.place {
            Place::Folder => match MappedFile::open(&folder.join(name), &Limits::default()) {
                Ok(file) => Ok(file.to_bytes()),
                Err(error) => Err(error.to_string()),
            },
            Place::Archive(archive) => {
                let member = format!("{}/{name}", folder.to_string_lossy());
                read_member(&mut archive.clone(), &member).map_err(|problem| format!("{member}: {problem}"))
            }
        }
    }
}

/// A folder of a case on disk; what was unpacked for it goes when it is dropped.
pub(crate) struct Subfolder {
    path: PathBuf,
    _unpacked: Option<TempDir>,
}

impl Subfolder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Set {
    /// A folder of a case as one on disk; of an archive, its plain files are unpacked.
    pub(crate) fn subfolder(&self, case: &str, name: &str) -> Result<Subfolder, String> {
        let folder = self.cases.get(case).ok_or_else(|| format!("there is no case `{case}`"))?;
        let Place::Archive(archive) = &self.place else {
            return Ok(Subfolder { path: folder.join(name), _unpacked: None });
        };
        let unpacked = TempDir::with_prefix("pteron-case-").map_err(|error| error.to_string())?;
        let prefix = format!("{}/{name}/", folder.to_string_lossy());
        let members: Vec<String> =
            archive.file_names().filter_map(|name| Some(name.ok()?.to_string())).collect();
        for member in members {
            // Names with further folders, or none, are no files of a checkpoint.
            let Some(file) = member.strip_prefix(&prefix) else { continue };
            if file.is_empty() || file.starts_with('.') || file.contains(['/', '\\', ':']) {
                continue;
            }
            let bytes = read_member(&mut archive.clone(), &member);
            let bytes = bytes.map_err(|problem| format!("{member}: {problem}"))?;
            fs::write(unpacked.path().join(file), &*bytes).map_err(|error| error.to_string())?;
        }
        Ok(Subfolder { path: unpacked.path().to_owned(), _unpacked: Some(unpacked) })
    }
}

fn read_member(archive: &mut ZipArchive<Cursor<Archived>>, member: &str) -> Result<Bytes, String> {
    let mut file = archive.by_name(member).map_err(|error| error.to_string())?;
    if file.size() > MEMBER_BYTES {
        return Err(format!("it unpacks to {} bytes; at most {MEMBER_BYTES} are read", file.size()));
    }
    // Zeroed pages cost nothing until they are written, so that a size that lies allocates nothing.
    let mut bytes = Bytes::zeroed(file.size() as usize);
    file.read_exact(bytes.make_mut()).map_err(|error| format!("it does not unpack: {error}"))?;
    let mut more = [0];
    match file.read(&mut more) {
        Ok(0) => Ok(bytes),
        Ok(_) => Err("it unpacks to more bytes than it says".into()),
        Err(error) => Err(format!("it does not unpack: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use zip::write::SimpleFileOptions;

    fn archive(members: &[(&str, &[u8])]) -> tempfile::NamedTempFile {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in members {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(writer.finish().unwrap().get_ref()).unwrap();
        file
    }

    #[test]
    fn cases_are_found_in_folders_and_archives_alike() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b", "a", "not_a_case"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        for name in ["b", "a"] {
            fs::write(root.path().join(name).join(DESCRIPTION), name).unwrap();
        }
        let folder = Set::open(root.path()).unwrap();
        assert_eq!(folder.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(&*folder.read("a", DESCRIPTION).unwrap(), b"a");
        assert!(folder.read("a", "model.pte").unwrap_err().contains("model.pte: cannot open"));
        let single = Set::open(&root.path().join("b")).unwrap();
        assert_eq!(single.names().collect::<Vec<_>>(), ["b"]);
        for prefix in ["", "ops/"] {
            let names = [format!("{prefix}a/case.json"), format!("{prefix}b/case.json")];
            let file = archive(&[(&names[1], b"b"), (&names[0], b"a"), ("readme", b"")]);
            let set = Set::open(file.path()).unwrap();
            assert_eq!(set.names().collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(&*set.read("b", DESCRIPTION).unwrap(), b"b");
            assert!(set.read("b", "model.pte").is_err());
        }
    }

    #[test]
    fn what_is_no_set_is_an_error_that_says_what_one_is() {
        let empty = tempfile::tempdir().unwrap();
        let twice = archive(&[("x/a/case.json", b""), ("y/a/case.json", b"")]);
        let mut text = tempfile::NamedTempFile::new().unwrap();
        text.write_all(b"PK, or so it says").unwrap();
        let cases = [
            (empty.path(), "there is no case in it"),
            (twice.path(), "two cases are called `a`"),
            (text.path(), "not a sound zip"),
            (Path::new("/nowhere/at/all"), "cannot open"),
        ];
        for (path, message) in cases {
            let error = Set::open(path).err().unwrap();
            assert!(error.message().contains(message), "{}", error.message());
        }
    }

    #[test]
    fn damaged_archives_never_panic() {
        let file = archive(&[("a/case.json", &[7; 500]), ("a/model.pte", b"program")]);
        let whole = fs::read(file.path()).unwrap();
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let mut file = tempfile::NamedTempFile::new().unwrap();
                file.write_all(&damaged).unwrap();
                let Ok(set) = Set::open(file.path()) else { continue };
                let names: Vec<String> = set.names().map(str::to_owned).collect();
                for name in names {
                    let _ = set.read(&name, DESCRIPTION);
                    let _ = set.read(&name, "model.pte");
                }
            }
        }
    }
}
