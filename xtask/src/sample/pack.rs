//! The sample archive: members in order, no times, the same bytes for the same files, and nothing in it that names the
//! machine it was packed on.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::error::{Error, Result};

/// Member name to content.
pub(crate) type Members = BTreeMap<String, Vec<u8>>;

/// First folders of absolute paths. Joined with slashes only at run time, so that no source here holds such a path.
const ROOT_FOLDERS: [&str; 9] = ["opt", "work", "root", "home", "usr", "tmp", "var", "mnt", "Users"];

/// A zip of the members.
pub(crate) fn archive(members: &Members) -> Result<Vec<u8>> {
    let failed = |error: &dyn ToString| Error::Content {
        file: "the sample archive".to_string(),
        problem: error.to_string(),
    };
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(9))
        .last_modified_time(zip::DateTime::default()) // 1980
        .unix_permissions(0o644);
    let mut writer = ZipWriter::new(Cursor::new(vec![]));
    for (name, content) in members {
        writer.start_file(name.as_str(), options).map_err(|error| failed(&error))?;
        writer.write_all(content).map_err(|error| failed(&error))?;
    }
    Ok(writer.finish().map_err(|error| failed(&error))?.into_inner())
}

/// Fails if any member holds an absolute path or one of `more`, which are the places that this run knows of.
pub(crate) fn require_no_machine_paths(members: &Members, more: &[String]) -> Result<()> {
    let paths: Vec<String> =
        ROOT_FOLDERS.iter().map(|folder| format!("/{folder}/")).chain(more.iter().cloned()).collect();
    for (name, content) in members {
        for path in paths.iter().filter(|path| path.len() > 1) {
            if let Some(at) = find(content, path.as_bytes()) {
                let around = &content[at.saturating_sub(20)..content.len().min(at + 60)];
                let problem = format!("holds a machine's path: {:?}", String::from_utf8_lossy(around));
                return Err(Error::Content { file: name.clone(), problem });
            }
        }
    }
    Ok(())
}

fn find(content: &[u8], wanted: &[u8]) -> Option<usize> {
    content.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn members() -> Members {
        let content = [("b/model.pte", vec![7u8; 5000]), ("a/case.json", b"{}".to_vec())];
        content.into_iter().map(|(name, content)| (name.to_string(), content)).collect()
    }

    #[test]
    fn archive_is_the_same_twice_sorted_and_reads_back() {
        let packed = archive(&members()).unwrap();
        assert_eq!(packed, archive(&members()).unwrap());
        let mut read = zip::ZipArchive::new(Cursor::new(&packed)).unwrap();
        let names: Vec<String> = read.file_names().map(|name| name.unwrap().into_owned()).collect();
        assert_eq!(names, ["a/case.json", "b/model.pte"]);
        let mut content = vec![];
        read.by_name("b/model.pte").unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(content, vec![7u8; 5000]);
        assert!(packed.len() < 1000, "{} bytes: not deflated", packed.len());
    }

    #[test]
    fn machine_paths_are_refused_in_any_member() {
        require_no_machine_paths(&members(), &["/a/b".to_string(), String::new()]).unwrap();
        let mut bad = members();
        bad.insert("c/model.pte".to_string(), format!("\u{0}x /{}/me/x.py", ROOT_FOLDERS[3]).into_bytes());
        let error = require_no_machine_paths(&bad, &[]).unwrap_err().to_string();
        assert!(error.starts_with("c/model.pte: holds a machine's path"), "{error}");
        let mut own = members();
        own.insert("c/case.json".to_string(), b"see /srv/cases/ops".to_vec());
        require_no_machine_paths(&own, &["/srv/cases".to_string()]).unwrap_err();
    }
}
