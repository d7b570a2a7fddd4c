//! Stamps: small files beside what was made that say from what, so that it is made again when that has changed and
//! never otherwise. A stamp is written last and lands by rename: where there is one, what it stands for is whole.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};

/// What a set of cases, or the environment (which has none), was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// Of the sources and the packages.
    pub(crate) fingerprint: String,
    /// Arguments that decide what is made.
    pub(crate) options: Vec<String>,
    /// How many cases there are.
    pub(crate) cases: usize,
}

impl Stamp {
    /// The stamp in a file; none when there is no file or it is not one of ours.
    pub(crate) fn read(path: &Path) -> Option<Stamp> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::content(path, error))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).doing("make a file in", folder)?;
        writeln!(file, "{text}").doing("write", path)?;
        file.persist(path).map_err(|error| error.error).doing("write", path)?;
        Ok(())
    }
}

/// One line for many texts: names and contents of `sources`, and `more` (package pins, say).
pub(crate) fn fingerprint(sources: &[PathBuf], more: &[String]) -> Result<String> {
    let mut hash = Fnv::new();
    for source in sources {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let content = fs::read_to_string(source).doing("read", source)?;
        hash.add(&name);
        // A checkout with other line ends is the same source.
        hash.add(&content.replace("\r\n", "\n"));
    }
    for text in more {
        hash.add(text);
    }
    Ok(format!("{:016x}", hash.0))
}

/// `package==version` lines of the set-up script, in a fixed order.
pub(crate) fn pins(script: &str) -> Vec<String> {
    let mut pins: Vec<String> =
        script.lines().map(str::trim).filter(|line| is_pin(line)).map(String::from).collect();
    pins.sort_unstable();
    pins
}

fn is_pin(line: &str) -> bool {
    let plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    line.split_once("==").is_some_and(|(package, version)| plain(package) && plain(version))
}

/// FNV-1a: it tells versions of a source apart, which needs no cryptography.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and its end, so that "ab", "c" is not "a", "bc".
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, name: &str, content: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn fingerprint_changes_with_names_contents_and_pins_only() {
        let folder = tempfile::tempdir().unwrap();
        let a = written(folder.path(), "a.py", "one\ntwo\n");
        let other_name = written(folder.path(), "b.py", "one\ntwo\n");
        let pins = vec!["torch==1".to_string()];
        let first = fingerprint(std::slice::from_ref(&a), &pins).unwrap();
        assert_eq!(fingerprint(std::slice::from_ref(&a), &pins).unwrap(), first);
        assert_ne!(fingerprint(&[other_name], &pins).unwrap(), first);
        assert_ne!(fingerprint(std::slice::from_ref(&a), &["torch==2".to_string()]).unwrap(), first);
        written(folder.path(), "a.py", "one\r\ntwo\r\n");
        assert_eq!(fingerprint(std::slice::from_ref(&a), &pins).unwrap(), first, "line ends do not count");
        written(folder.path(), "a.py", "one\ntwo");
        assert_ne!(fingerprint(&[a], &pins).unwrap(), first);
    }

    #[test]
    fn pins_are_found_among_shell() {
        let script =
            "#!/bin/sh\nset -eu\npackages='\ntorch==2.1\n mlx-cpu==0.3.1\n'\n[ \"$a\" == b ]\nx==y z\n";
        assert_eq!(pins(script), ["mlx-cpu==0.3.1", "torch==2.1"]);
    }

    #[test]
    fn stamp_survives_writing_and_damage_reads_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ops.stamp.json");
        assert_eq!(Stamp::read(&path), None);
        let stamp = Stamp { fingerprint: "f".into(), options: vec!["--large".into()], cases: 3 };
        stamp.write(&path).unwrap();
        assert_eq!(Stamp::read(&path), Some(stamp));
        fs::write(&path, "{").unwrap();
        assert_eq!(Stamp::read(&path), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no file is left aside");
    }
}
