//! The cut of the set of checkpoints: one of each family and of each kind of file.

use std::fs;
use std::path::Path;

use super::pack::Members;
use crate::error::{Doing, Error, Result};

/// Packed bytes of the whole archive.
pub(super) const LIMIT: usize = 2_000_000;

/// Every family, dtype and kind of quantised file once; the full set crosses them.
const CASES: [&str; 18] = [
    "executorch-gemma4-int4",
    "gemma3-wrapped-bf16",
    "gemma4-dense-wrapped-bf16",
    "gemma4-e2b-wrapped-bf16",
    "gguf-gemma4-dense-q4_0",
    "gguf-llama-q2_k",
    "gguf-llama-q4_1",
    "gguf-qwen3-q8_0",
    "llama3-untied-bf16-sharded",
    "mistral-window-f32",
    "mlx-gemma3-q4-g32",
    "mlx-llama2-mxfp4",
    "mlx-qwen2-mixed",
    "qwen2-untied-bf16",
    "qwen3-untied-bf16-sharded",
    "smollm2-bf16",
    "torchao-llama2-int8",
    "torchao-qwen3-int4",
];

/// All files of the chosen cases of a set.
pub(super) fn members(set: &Path) -> Result<Members> {
    let mut members = Members::new();
    for case in CASES {
        let folder = set.join(case);
        if !folder.join("case.json").exists() {
            return Err(Error::message(format!("the set of checkpoints has no case {case}")));
        }
        add(&mut members, &folder, case)?;
    }
    Ok(members)
}

fn add(members: &mut Members, folder: &Path, name: &str) -> Result<()> {
    for entry in fs::read_dir(folder).doing("read", folder)? {
        let path = entry.doing("read", folder)?.path();
        let name = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            add(members, &path, &name)?;
        } else {
            members.insert(name, fs::read(&path).doing("read", &path)?);
        }
    }
    Ok(())
}
