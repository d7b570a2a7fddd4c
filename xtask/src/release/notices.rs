//! The licences of what is linked, as their authors ask: every package by name, and each text once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::materials::{Materials, Package};
use crate::error::{Doing, Result};

/// The beginnings of the names of files that hold licences and notices.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];
/// Larger than any licence.
const LARGEST: u64 = 1 << 20;

/// All licences as one text.
pub(super) fn text(materials: &Materials) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = String::from("What Pteron is built with, and under which licences.\n\n");
    for package in materials.packages() {
        let license = package.license.as_deref().unwrap_or("see its text below");
        // Writing to a string does not fail.
        let _ = writeln!(out, "{} {}: {license}", package.name, package.version);
        for text in own_texts(package)? {
            texts.entry(text).or_default().push(format!("{} {}", package.name, package.version));
        }
    }
    for (text, users) in texts {
        let _ = write!(out, "\n{}\n{}\n\n{text}\n", "-".repeat(80), users.join(", "));
    }
    Ok(out)
}

/// The texts in a package's folder.
fn own_texts(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().unwrap_or(Path::new("."));
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).doing("list", folder)? {
        let entry = entry.doing("list", folder)?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_text = entry.metadata().is_ok_and(|about| about.is_file() && about.len() <= LARGEST);
        if is_text && NAMES.iter().any(|start| name.starts_with(start)) {
            let bytes = fs::read(entry.path()).doing("read", entry.path())?;
            texts.push(String::from_utf8_lossy(&bytes).trim().replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}
