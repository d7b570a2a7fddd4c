//! GGUF files as models: their configuration, weights and tokenizer.
//!
//! The metadata is said again in the words of a `config.json`, so that architectures are read in one place whatever
//! they come in; tensors are found under the names that architectures ask for; rows that llama.cpp moved are moved
//! back. Quantised blocks become packed codes without loss:
//!
//! | blocks | codes | scales |
//! | --- | --- | --- |
//! | Q4_0, Q5_0, Q8_0 | 4, 5 and 8 bits around the middle, groups of 32 | f16; biases follow from them at load |
//! | Q4_1, Q5_1 | 4 and 5 bits, groups of 32 | f16, with biases |
//! | Q4_K, Q5_K | 4 and 5 bits, groups of 32 | f32, with biases |
//! | Q2_K | 2 bits, groups of 16 | f32, with biases |
//! | Q3_K, Q6_K | 3 and 6 bits around the middle, groups of 16 | f32; biases follow from them at load |
//! | Q2_0; TQ1_0, TQ2_0 | 2 bits, groups of 64; of 128 | f16, with biases |
//! | Q1_0 | 2 bits, groups of 128 | f32, with biases |
//! | IQ4_NL | 8 bits around the middle, groups of 32 | f16; biases follow from them at load |
//! | IQ4_XS, IQ3_XXS, IQ2_XXS; IQ2_XS, IQ2_S | the same, groups of 32; of 16 | f32 |
//! | MXFP4 | as they are | a power of two |
//! | IQ3_S, IQ1_S; IQ1_M, NVFP4 | 5 bits around the middle, groups of 32; of 16 | f32 |
//!
//! Where levels are no even steps, codes have more bits than the file spends on a value: as many as hold every level.
//!
//! To read a further architecture: its rows in `names`, in `configuration` what its metadata says beyond the keys that
//! all have, and those keys in `keys`.

mod configuration;
mod families;
mod keys;
mod names;
mod parts;
mod sampling;
mod tokenizer;
mod weights;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use pteron_models::Config;
use pteron_models::architectures::family;

use crate::{Checkpoint, CheckpointError, Origin};
use configuration::Configuration;
use names::Family;
use parts::Parts;
pub use parts::files;
pub(crate) use parts::is_later_part;
use weights::GgufWeights;

/// Opens a GGUF file, with its other parts where it is one of several.
pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let refused = |problem: String| CheckpointError::file(path, problem);
    let (file, paths) = Parts::open(path)?;
    let metadata = file.metadata();
    let name = metadata.text("general.architecture").map_err(|error| refused(error.to_string()))?;
    let name = name.ok_or_else(|| refused("it names no architecture (general.architecture)".into()))?;
    let known = || CheckpointError::Architecture {
        path: path.to_owned(),
        name: name.to_owned(),
        known: names::known(),
    };
    let names = Family::of(name).ok_or_else(known)?;
    let wrong = |problem: String| CheckpointError::configuration(path, problem);
    names.check_tensors(&file).map_err(wrong)?;
    let configuration = Configuration::read(&file, name, names).map_err(wrong)?;
    let config = Config::new(configuration.json).map_err(|error| wrong(error.to_string()))?;
    let built = config.family().ok().and_then(family).ok_or_else(known)?;
    let kind = metadata.text("general.type").map_err(|error| refused(error.to_string()))?;
    if let Some(kind) = kind.filter(|&kind| kind != "model") {
        return Err(wrong(format!("it holds no model but {kind:?} (general.type)")));
    }
    let architecture = built.read(&config).map_err(|error| wrong(error.to_string()))?;
    let tokenizer = tokenizer::extract(file.first()).map_err(|error| refused(error.to_string()))?;
    let chat_templates = tokenizer::chat_templates(file.first());
    let name_of = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut blocks = Vec::new();
    let mut files = BTreeMap::new();
    for path in &paths {
        let io = |error| CheckpointError::io(path, error);
        let part = File::open(path).map_err(io)?;
        files.insert(name_of(path), part.metadata().map_err(io)?.len());
        blocks.push(part);
    }
    let origin = Origin {
        format: "gguf".to_owned(),
        name: match metadata.get("general.name").and_then(|name| name.as_str()) {
            Some(name) => name.to_owned(),
            None => name_of(&paths[0]),
        },
        architecture: name.to_owned(),
        files,
        adapter: None,
    };
    let generation_config = sampling::generation_config(metadata);
    let weights = Arc::new(GgufWeights::new(file, blocks, names, configuration.heads));
    let remarks = configuration.remarks;
    let speech = None;
    Ok(Checkpoint {
        architecture,
        weights,
        tokenizer,
        chat_templates,
        generation_config,
        speech,
        vision: None,
        encoder: None,
        origin,
        remarks,
    })
}
