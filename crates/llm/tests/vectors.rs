//! Tokenizers, templates and samplers against vectors that the reference libraries gave.
//!
//! `vectors.zip` holds templates, vocabularies and settings of our own making; `make_vectors.py` writes it.
//! `PTERON_VECTORS` names a further folder, as `conformance/make_vectors.py` writes it, and `PTERON_LLAMA` the
//! llama.cpp checkout whose vocabularies its cases speak of.

#![allow(clippy::unwrap_used)] // a test's own helpers

use pteron_llm::vectors::{Report, run_sampling, run_templates, run_tokenizers};
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The folders to run: the packed one, and the one that the environment names.
fn folders() -> (TempDir, Vec<PathBuf>) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors.zip");
    let folder = tempfile::tempdir().unwrap();
    zip::ZipArchive::new(File::open(packed).unwrap()).unwrap().extract(folder.path()).unwrap();
    let mut folders = vec![folder.path().to_owned()];
    folders.extend(env::var_os("PTERON_VECTORS").map(PathBuf::from));
    (folder, folders)
}

#[track_caller]
fn assert_all_passed(report: &Report, at_least: usize) {
    assert!(report.failures.is_empty(), "{} failed:\n{}", report.failures.len(), report.failures.join("\n"));
    assert!(report.passed >= at_least, "only {} cases were found", report.passed);
}

#[test]
fn templates_give_the_text_that_jinja_gives() {
    let (_packed, folders) = folders();
    for folder in folders {
        // Five templates with 23 conversations each, and the hostile ones.
        assert_all_passed(&run_templates(&folder.join("templates")).unwrap(), 5 * 23 + 25);
    }
}

#[test]
fn tokenizers_give_the_ids_of_their_own_libraries() {
    let (_packed, folders) = folders();
    let checkout = env::var_os("PTERON_LLAMA").map(PathBuf::from);
    for folder in folders {
        assert_all_passed(&run_tokenizers(&folder.join("tokenizers"), checkout.as_deref()).unwrap(), 500);
    }
}

#[test]
fn samplers_give_the_distributions_of_both_libraries() {
    let (_packed, folders) = folders();
    for folder in folders {
        assert_all_passed(&run_sampling(&folder.join("sampling/cases.jsonl")).unwrap(), 32);
    }
}
