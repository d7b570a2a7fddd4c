//! Writes a Hugging Face folder of a published shape with random bf16 weights, one tensor at a time: what the memory of
//! an export is measured on.
//!
//!     cargo run --release -p pteron-checkpoint --example random_checkpoint -- llama-3.1-8b OUT
//!     /usr/bin/time -v pteron export OUT -o model.pte --quantize 4w

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pteron_models::{
    Form, Model, ModelOptions, RandomWeights, Wanted, WeightError, WeightSource, encode, shapes,
};
use pteron_tensor::DType;
use serde_json::{Map, Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, folder] = arguments.as_slice() else {
        return Err("usage: random_checkpoint SHAPE FOLDER".into());
    };
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("config.json"), config(name)?.to_string())?;
    let shape = shapes::find(name).ok_or("no such shape")?;
    let recorder = Arc::new(Recorder::default());
    Model::build(shape.architecture()?.as_ref(), recorder.clone(), ModelOptions::default())?;
    let asked = recorder.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    write(&folder.join("model.safetensors"), &asked)?;
    Ok(())
}

/// Notes which weights a model asks for.
#[derive(Default)]
struct Recorder(Mutex<BTreeMap<String, Vec<usize>>>);

impl WeightSource for Recorder {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(wanted.name.to_owned(), wanted.shape.to_vec());
        Ok(Form::Floats)
    }

    fn read(&self, wanted: Wanted<'_>, _: Range<usize>, _: &mut [f32]) -> Result<(), WeightError> {
        Err(WeightError::Missing { name: wanted.name.to_owned() })
    }
}

/// The published configuration, of the keys that sizes need.
fn config(name: &str) -> Result<Value, Box<dyn Error>> {
    let rope = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192});
    let llama = |hidden, inner, layers, heads, tied| {
        json!({"model_type": "llama", "vocab_size": 128_256, "hidden_size": hidden, "intermediate_size": inner,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": 8,
            "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
            "rope_scaling": rope, "tie_word_embeddings": tied})
    };
    match name {
        "llama-3.2-1b" => Ok(llama(2048, 8192, 16, 32, true)),
        "llama-3.1-8b" => Ok(llama(4096, 14336, 32, 32, false)),
        other => Err(format!("no configuration of `{other}`; llama-3.2-1b and llama-3.1-8b have one").into()),
    }
}

fn write(path: &Path, tensors: &BTreeMap<String, Vec<usize>>) -> Result<(), Box<dyn Error>> {
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * 2;
        header.insert(name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}));
    }
    let header = Value::Object(header).to_string();
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let weights = RandomWeights::new(1);
    let mut floats = vec![0.0; 1 << 16];
    let mut bytes = Vec::new();
    for (name, shape) in tensors {
        let count: usize = shape.iter().product();
        for start in (0..count).step_by(floats.len()) {
            let part = start..count.min(start + floats.len());
            let floats = &mut floats[..part.len()];
            weights.floats(Wanted::new(name, shape), start, floats)?;
            bytes.clear();
            encode(floats, DType::BF16, &mut bytes);
            out.write_all(&bytes)?;
        }
    }
    Ok(out.flush()?)
}
