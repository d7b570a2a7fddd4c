//! A Hugging Face folder as a model: configuration, weights, tokenizer.

mod adapter;
mod json;
mod mlx;
mod mxfp4;
mod names;
mod pieces;
mod published;
mod realtime;
mod safetensors;
mod sentences;
mod small_floats;
mod tokenizer;
mod torchao;
mod vision;
mod weights;
mod whole;

use std::path::Path;
use std::sync::Arc;

use pteron_companion::{Realtime, Speech, Voxtral};
use pteron_models::Config;
use pteron_models::architectures::{self, families};
use serde_json::{Map, Value};

use self::adapter::Adapter;
use self::names::{Head, Names};
use self::safetensors::Tensors;
use self::weights::FolderWeights;
use crate::{Checkpoint, CheckpointError, Origin, nemo, openai};

/// Larger than any configuration.
const LARGEST_CONFIG: u64 = 16 << 20;
/// Larger than any `generation_config.json`, which travels in the program.
const LARGEST_GENERATION_CONFIG: u64 = 1 << 20;

/// Wrappers around a text model that hears.
const HEARS: [&str; 2] = ["voxtral", "voxtral_realtime"];

/// Wrappers around a text model that sees, and the family that both are.
const SEES: [(&str, &str); 4] = [
    ("gemma3", "gemma3 with eyes"),
    ("gemma4", "gemma4 with eyes"),
    ("qwen2_5_vl", "qwen2_5_vl"),
    ("qwen3_vl", "qwen3_vl"),
];

/// Opens a folder with a `config.json`.
pub fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    open_with(folder, None)
}

/// Opens a folder with a `config.json`, and an adapter (LoRA) that is added to its weights.
pub fn open_with(folder: &Path, adapter: Option<&Path>) -> Result<Checkpoint, CheckpointError> {
    let path = folder.join("config.json");
    if !path.is_file() {
        return Err(CheckpointError::NotACheckpoint {
            path: folder.to_owned(),
            problem: "it has no config.json; a Hugging Face folder with safetensors or a GGUF file is read"
                .into(),
        });
    }
    let file = json::read(&path, LARGEST_CONFIG)?;
    let quantization = Quantization::of(&file);
    let wrong = |error: pteron_models::ConfigError| CheckpointError::configuration(&path, error.to_string());
    let mut config = Config::new(file).map_err(wrong)?;
    // A wrapper whose other half is built too; of all others the text model alone is.
    let wrapper = config.wrapper().filter(|name| HEARS.contains(name));
    let architecture = wrapper.map_or_else(|| config.family(), Ok).map_err(wrong)?.to_owned();
    // Older files of some have no wrapper: all is in one object.
    let outer = config.wrapper().unwrap_or(&architecture);
    let sees = SEES.iter().find(|(wrapper, _)| *wrapper == outer);
    let sees = sees.filter(|_| config.get_anywhere("vision_config").is_some());
    if sees.is_some() {
        vision::bound(folder, &mut config)?;
    }
    let name = sees.map_or(architecture.as_str(), |(_, family)| family);
    let family = architectures::family(name).ok_or_else(|| CheckpointError::Architecture {
        path: path.clone(),
        name: architecture.clone(),
        known: families().map(|family| family.names[0]).collect::<Vec<_>>().join(", "),
    })?;
    match family.is_encoder() {
        true => sentences::modules(folder, &mut config)?,
        false => config.check_task().map_err(wrong)?,
    }
    let generation_config = generation_config(folder)?;
    if let Some(GenerationConfig { said: generation, .. }) = &generation_config {
        // What ends a text is decided where texts are generated.
        // So it is which heads of a speech model follow the sound.
        for key in ["eos_token_id", "bos_token_id", "alignment_heads"] {
            if let Some(value) = generation.get(key).filter(|value| !value.is_null()) {
                config.set(key, value.clone());
            }
        }
    }
    if let Quantization::Other(method) = &quantization
        && method == "bitnet"
    {
        // Its floats are not what the model computes with.
        return Err(CheckpointError::configuration(&path, "weights of `bitnet` are not read".to_owned()));
    }
    let tensors = Tensors::open(folder)?;
    let names = Names::of(&tensors, &family.read(&config).map_err(wrong)?.places());
    match names.head(&tensors)? {
        Head::Absent => {}
        head => config.set("tie_word_embeddings", Value::Bool(head == Head::Copy)),
    }
    let name = folder.canonicalize().ok();
    let name = name.as_deref().unwrap_or(folder).file_name().map(|name| name.to_string_lossy().into_owned());
    let origin = Origin {
        format: "huggingface".to_owned(),
        name: name.unwrap_or_default(),
        files: tensors.files(),
        ..Origin::default()
    };
    let speech = match architecture.as_str() {
        "whisper" | "WhisperForConditionalGeneration" => {
            openai::speech(&architectures::Whisper::read(&config).map_err(wrong)?).map(Speech::Whisper)
        }
        name if name.to_ascii_lowercase().starts_with("parakeet") => {
            let parakeet = architectures::Parakeet::read(&config).map_err(wrong)?;
            Some(Speech::Parakeet(nemo::speech(&parakeet)))
        }
        name if HEARS[1] == name => {
            let told = realtime::read(folder)?;
            if let Some(delay) = told.delay {
                // What the vocabulary was made with comes before what models are by themselves.
                config.set("default_num_delay_tokens", delay.into());
            }
            let model = architectures::Realtime::read(&config).map_err(wrong)?;
            let (mels, frames, delay) = (model.num_mel_bins, model.frames(), model.delay);
            Some(Speech::Realtime(Realtime { mels, frames, delay, silence: told.silence }))
        }
        name if HEARS[0] == name => {
            let voxtral = architectures::Voxtral::read(&config).map_err(wrong)?;
            let (mels, frames) = (voxtral.num_mel_bins, 2 * voxtral.max_source_positions);
            Some(Speech::Voxtral(Voxtral { mels, frames }))
        }
        _ => None,
    };
    let vision = sees.map(|_| vision::read(folder, &config)).transpose()?;
    let origin = Origin { architecture, ..origin };
    let architecture = family.read(&config).map_err(wrong)?;
    let context = architecture.facts().context;
    let encoder = architecture.encodes().map(|encodes| sentences::encoder(folder, encodes, context));
    let encoder = encoder.transpose()?;
    let (tokenizer, chat_templates) = tokenizer::read(folder)?;
    let mut origin = origin;
    let adapter = match adapter {
        Some(adapter) => {
            origin.adapter = adapter.file_name().map(|name| name.to_string_lossy().into_owned());
            Some(Adapter::open(adapter, &tensors)?)
        }
        None => None,
    };
    let weights = Arc::new(FolderWeights::new(tensors, names, architecture.places(), quantization, adapter));
    let generation_config = generation_config.map(|config| config.text);
    let remarks = Vec::new();
    Ok(Checkpoint {
        architecture,
        weights,
        tokenizer,
        chat_templates,
        generation_config,
        speech,
        vision,
        encoder,
        origin,
        remarks,
    })
}

/// A `generation_config.json`: as it stands there, and what it says.
struct GenerationConfig {
    text: String,
    said: Map<String, Value>,
}

/// That of a folder; nothing where it is no object.
fn generation_config(folder: &Path) -> Result<Option<GenerationConfig>, CheckpointError> {
    let path = folder.join("generation_config.json");
    let Some(text) = json::text_optional(&path, LARGEST_GENERATION_CONFIG)? else { return Ok(None) };
    let said = serde_json::from_str(&text);
    Ok(match said.map_err(|error| CheckpointError::file(&path, error.to_string()))? {
        Value::Object(said) => Some(GenerationConfig { text, said }),
        _ => None,
    })
}

/// What the configuration says of weights in few bits.
enum Quantization {
    /// Nothing.
    None,
    /// MLX's block: defaults, and settings by module.
    Mlx(mlx::Settings),
    /// Weights that torchao quantised; their files say how.
    Torchao,
    /// A method that others publish weights in.
    Published(published::Settings),
    /// Something else, by its name.
    Other(String),
}

impl Quantization {
    fn of(config: &Value) -> Quantization {
        let block = config.get("quantization").filter(|block| block.is_object());
        let block = block.or_else(|| config.get("quantization_config")).and_then(Value::as_object);
        let block = block.or_else(|| config.get("text_config")?.get("quantization_config")?.as_object());
        let Some(block) = block else { return Quantization::None };
        match block.get("quant_method").and_then(Value::as_str) {
            Some("torchao") => Quantization::Torchao,
            Some(method) => match published::Settings::new(method, block) {
                Some(settings) => Quantization::Published(settings),
                None => Quantization::Other(method.to_owned()),
            },
            None => Quantization::Mlx(mlx::Settings::new(block.clone())),
        }
    }
}
