//! Parakeet as NVIDIA publishes it: a tar of settings in YAML, weights of `torch.save` and a SentencePiece vocabulary.
//!
//! Sizes are read off the weights; settings say what weights cannot.

mod names;
mod settings;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use pteron_companion::{Parakeet, Speech, TokenizerConfig, TokenizerFormat};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_import::pt2::Saved;
use pteron_models::architectures::{self, ParakeetHead};
use pteron_models::{Config, ConfigError};
use pteron_tensor::Bytes;
use serde_json::json;

use self::names::stored;
use self::settings::Settings;
use crate::saved::SavedWeights;
use crate::{ChatTemplates, Checkpoint, CheckpointError, Origin, TokenizerData};

/// Bytes of a file that tell whether it is one of these.
pub(crate) const START: usize = 512;
/// Where a tar says what it is.
const MAGIC: &[u8] = b"ustar";
const MAGIC_AT: usize = 257;
/// Larger than any settings, which list the vocabulary.
const LARGEST_SETTINGS: u64 = 16 << 20;
/// Larger than any vocabulary.
const LARGEST_TOKENIZER: u64 = 256 << 20;
/// More files than any has.
const MOST_FILES: usize = 1000;
/// A token in one place after another, before the next place is looked at, unless settings say otherwise.
const USUAL_SYMBOLS: usize = 10;

/// Whether a file begins as these do.
pub fn recognises(start: &[u8]) -> bool {
    start.get(MAGIC_AT..).is_some_and(|rest| rest.starts_with(MAGIC))
}

/// Opens a file.
pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let wrong = |error: &dyn std::fmt::Display| CheckpointError::file(path, error.to_string());
    let limits = Limits::own();
    let mapped = MappedFile::open(path, &limits).map_err(|error| wrong(&error))?;
    let bytes = mapped.to_bytes();
    let files = files(&bytes).map_err(|error| wrong(&error))?;
    let inside = |ending: &str| files.iter().find(|(name, _)| name.ends_with(ending)).map(|(_, bytes)| bytes);
    let not_one = |what: &str| CheckpointError::NotACheckpoint {
        path: path.to_owned(),
        problem: format!("it is no .nemo of NVIDIA's: {what} is missing in the archive"),
    };
    let settings = inside("model_config.yaml").ok_or_else(|| not_one("model_config.yaml"))?;
    let settings = text(settings).ok_or_else(|| wrong(&"model_config.yaml is no text, or too long"))?;
    let settings = Settings::read(settings);
    let weights = inside("model_weights.ckpt").ok_or_else(|| not_one("model_weights.ckpt"))?;
    let mut saved = Saved::read(weights.clone(), &limits).map_err(|error| wrong(&error))?;
    // Window and filters of the front end, which its settings say as well.
    saved.tensors.retain(|name, _| !name.starts_with("preprocessor."));
    let configuration = |error: ConfigError| CheckpointError::configuration(path, error.to_string());
    settings.check().map_err(|problem| CheckpointError::configuration(path, problem))?;
    let config =
        config(&saved, &settings).ok_or_else(|| not_one("a Parakeet's encoder with a known head"))?;
    let parakeet =
        architectures::Parakeet::read(&Config::new(config).map_err(configuration)?).map_err(configuration)?;
    let tokenizer = match inside("tokenizer.model") {
        Some(bytes) if bytes.len() as u64 <= LARGEST_TOKENIZER => Some(TokenizerData {
            format: TokenizerFormat::guess(bytes)
                .ok_or_else(|| wrong(&"tokenizer.model is no tokenizer of a known format"))?,
            bytes: bytes.to_vec(),
            config: TokenizerConfig::default(),
        }),
        _ => None,
    };
    let name = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    let origin = Origin {
        format: "nemo".to_owned(),
        name: name(path.file_stem()),
        architecture: "parakeet".to_owned(),
        files: BTreeMap::from([(name(path.file_name()), bytes.len() as u64)]),
        adapter: None,
    };
    let speech = Some(Speech::Parakeet(speech(&parakeet)));
    Ok(Checkpoint {
        architecture: Box::new(parakeet),
        weights: Arc::new(SavedWeights::new(saved, "", stored)),
        tokenizer,
        chat_templates: ChatTemplates::default(),
        generation_config: None,
        speech,
        vision: None,
        encoder: None,
        origin,
        remarks: Vec::new(),
    })
}

/// The files of a tar by their names, as parts of it.
fn files(tar: &Bytes) -> std::io::Result<Vec<(String, Bytes)>> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(Cursor::new(&**tar)).entries_with_seek()?.take(MOST_FILES) {
        let entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let (start, size) = (entry.raw_file_position() as usize, entry.size() as usize);
        let whole = start.checked_add(size).and_then(|end| tar.slice(start..end));
        let cut = || std::io::Error::other(format!("{} is cut off", crate::left_out::shown(&name)));
        let whole = whole.ok_or_else(cut)?;
        files.push((name, whole));
    }
    Ok(files)
}

fn text(bytes: &Bytes) -> Option<&str> {
    (bytes.len() as u64 <= LARGEST_SETTINGS).then(|| std::str::from_utf8(bytes).ok())?
}

/// What the file says, as a `config.json` would; nothing where a part of the model is missing.
fn config(saved: &Saved, settings: &Settings) -> Option<serde_json::Value> {
    let sizes = |name: &str| saved.tensors.get(&stored(name)).map(|tensor| tensor.sizes());
    let size = |name: &str, axis: usize| sizes(name)?.get(axis).copied();
    let layers =
        (0..).take_while(|n| sizes(&format!("encoder.layers.{n}.norm_out.weight")).is_some()).count();
    let stages = (0..6).take_while(|n| sizes(&subsampling(*n)).is_some()).count();
    let factor = 1usize << stages;
    let channels = size("encoder.subsampling.layers.0.weight", 0)?;
    let encoder = json!({
        "hidden_size": size("encoder.subsampling.linear.weight", 0)?,
        "num_hidden_layers": layers,
        "num_attention_heads": size("encoder.layers.0.self_attn.bias_u", 0)?,
        "intermediate_size": size("encoder.layers.0.feed_forward1.linear1.weight", 0)?,
        "attention_bias": sizes("encoder.layers.0.self_attn.q_proj.bias").is_some(),
        "convolution_bias": sizes("encoder.layers.0.conv.pointwise_conv1.bias").is_some(),
        "conv_kernel_size": size("encoder.layers.0.conv.depthwise_conv.weight", 2)?,
        "subsampling_factor": factor,
        "subsampling_conv_channels": channels,
        "num_mel_bins": match settings.number("preprocessor.features") {
            Some(bands) => bands,
            None => size("encoder.subsampling.linear.weight", 1)?.checked_div(channels)? * factor,
        },
        "scale_input": settings.flag("encoder.xscaling").unwrap_or(true),
    });
    if let Some(vocabulary) = size("ctc_head.weight", 0) {
        let blank = vocabulary.checked_sub(1)?;
        return Some(json!({
            "model_type": "parakeet_ctc", "vocab_size": vocabulary, "pad_token_id": blank, "encoder_config": encoder,
        }));
    }
    let vocabulary = size("decoder.embedding.weight", 0)?;
    let blank = vocabulary.checked_sub(1)?;
    let extra = size("joint.head.weight", 0)?.checked_sub(vocabulary)?;
    let durations = settings.numbers(&[
        "model_defaults.tdt_durations",
        "decoding.durations",
        "loss.tdt_kwargs.durations",
    ]);
    let durations = durations.filter(|durations| durations.len() == extra).unwrap_or((0..extra).collect());
    let stacked = |n: &usize| sizes(&format!("decoder.lstm.weight_ih_l{n}")).is_some();
    Some(json!({
        "model_type": if extra > 0 { "parakeet_tdt" } else { "parakeet_rnnt" },
        "vocab_size": vocabulary,
        "blank_token_id": blank,
        "decoder_hidden_size": size("decoder.embedding.weight", 1)?,
        "num_decoder_layers": (0..100).take_while(stacked).count(),
        "hidden_act": settings.word("joint.jointnet.activation").unwrap_or("relu"),
        "max_symbols_per_step": settings.number("decoding.greedy.max_symbols").unwrap_or(USUAL_SYMBOLS),
        "durations": durations,
        "encoder_config": encoder,
    }))
}

/// The first convolution of a stage that halves frames.
fn subsampling(stage: usize) -> String {
    format!("encoder.subsampling.layers.{}.weight", (3 * stage).saturating_sub(1))
}

/// What a runner has to know.
pub(crate) fn speech(parakeet: &architectures::Parakeet) -> Parakeet {
    let (durations, most_symbols) = match &parakeet.head {
        ParakeetHead::Ctc => (Vec::new(), 1),
        ParakeetHead::Transducer { durations, most_symbols, .. } => (durations.clone(), *most_symbols),
    };
    Parakeet {
        mels: parakeet.num_mel_bins,
        frames: parakeet.frames(),
        subsampling: parakeet.subsampling_factor,
        blank: parakeet.blank,
        durations,
        most_symbols,
    }
}
