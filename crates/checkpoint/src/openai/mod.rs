//! Whisper as OpenAI publishes it: one file of `torch.save` with sizes and weights. The vocabulary comes with OpenAI's code,
//! and is kept here; which tokens have a meaning follows from its size.

mod names;
mod vocabulary;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pteron_companion::{Speech, Whisper, WhisperTokens};
use pteron_format::Limits;
use pteron_import::pt2::Saved;
use pteron_models::{Config, architectures};
use serde_json::{Value, json};

use self::names::{PREFIX, stored};
use crate::saved::SavedWeights;
use crate::{ChatTemplates, Checkpoint, CheckpointError, Origin};

/// How such a file begins, as every zip archive does.
pub(crate) const START: &[u8] = b"PK\x03\x04";

/// Sizes under OpenAI's names and Hugging Face's.
const SIZES: [(&str, &str); 10] = [
    ("n_vocab", "vocab_size"),
    ("n_mels", "num_mel_bins"),
    ("n_audio_state", "d_model"),
    ("n_audio_layer", "encoder_layers"),
    ("n_audio_head", "encoder_attention_heads"),
    ("n_audio_ctx", "max_source_positions"),
    ("n_text_layer", "decoder_layers"),
    ("n_text_head", "decoder_attention_heads"),
    ("n_text_ctx", "max_target_positions"),
    ("n_text_state", "n_text_state"),
];

/// Heads that follow the sound, by decoder layers, heads and vocabulary, as Hugging Face's files of the same models list
/// them; the weights do not say.
const ALIGNED: [(usize, usize, usize, &[[usize; 2]]); 1] =
    [(4, 6, 51_864, &[[1, 0], [2, 0], [2, 5], [3, 0], [3, 1], [3, 2], [3, 3], [3, 4]])];

/// Opens a file.
pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let wrong = |error: &dyn std::fmt::Display| CheckpointError::file(path, error.to_string());
    let saved = Saved::open(path, &Limits::own()).map_err(|error| wrong(&error))?;
    let config = config(&saved).ok_or_else(|| CheckpointError::NotACheckpoint {
        path: path.to_owned(),
        problem: "it holds no Whisper of OpenAI's: sizes under `dims` are missing".to_owned(),
    })?;
    let configuration =
        |error: pteron_models::ConfigError| CheckpointError::configuration(path, error.to_string());
    let config = Config::new(config).map_err(configuration)?;
    let whisper = architectures::Whisper::read(&config).map_err(configuration)?;
    let info = speech(&whisper);
    let tokenizer = info.as_ref().map(|info| vocabulary::tokenizer(&info.tokens));
    let speech = info.map(Speech::Whisper);
    let bytes = std::fs::metadata(path).map_err(|error| CheckpointError::io(path, error))?.len();
    let name = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    let origin = Origin {
        format: "openai".to_owned(),
        name: name(path.file_stem()),
        architecture: "whisper".to_owned(),
        files: BTreeMap::from([(name(path.file_name()), bytes)]),
        adapter: None,
    };
    Ok(Checkpoint {
        architecture: Box::new(whisper),
        weights: Arc::new(SavedWeights::new(saved, PREFIX, stored)),
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

/// The sizes as a `config.json` has them; nothing where one is missing.
fn config(saved: &Saved) -> Option<Value> {
    let mut config = serde_json::Map::new();
    for (theirs, ours) in SIZES {
        config.insert(ours.to_owned(), json!(saved.numbers.get(&format!("dims.{theirs}"))?));
    }
    // Feed-forward networks are always four times as wide, and both halves have one width.
    let wide = config["d_model"].as_i64()?.checked_mul(4)?;
    config.insert("encoder_ffn_dim".to_owned(), json!(wide));
    config.insert("decoder_ffn_dim".to_owned(), json!(wide));
    let size = |key: &str| config.get(key).and_then(Value::as_u64).map(|size| size as usize);
    let found = (size("decoder_layers")?, size("decoder_attention_heads")?, size("vocab_size")?);
    if let Some((.., heads)) =
        ALIGNED.iter().find(|(layers, heads, vocabulary, _)| (*layers, *heads, *vocabulary) == found)
    {
        config.insert("alignment_heads".to_owned(), json!(heads));
    }
    Some(Value::Object(config))
}

/// What a runner has to know; nothing for a vocabulary that no published model has.
pub(crate) fn speech(whisper: &architectures::Whisper) -> Option<Whisper> {
    Some(Whisper {
        mels: whisper.num_mel_bins,
        frames: 2 * whisper.max_source_positions,
        positions: whisper.max_target_positions,
        tokens: WhisperTokens::published(whisper.vocab_size)?,
        alignment_heads: whisper.alignment_heads.clone(),
    })
}
