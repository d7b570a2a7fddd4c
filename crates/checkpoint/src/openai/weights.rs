//! Weights under OpenAI's names as the names that the architecture asks for.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use half::f16;
use pteron_import::pt2::argument::ScalarType;
use pteron_import::pt2::{Saved, StridedTensor};
use pteron_models::{Form, Wanted, WeightError, WeightSource};
use pteron_tensor::Bytes;

/// Where the weights are in the file.
const PREFIX: &str = "model_state_dict.";

/// Parts of names, as Hugging Face has them and as OpenAI does; the first that fits counts, then those behind it.
const NAMES: [(&str, &str); 15] = [
    ("embed_tokens.weight", "token_embedding.weight"),
    ("embed_positions.weight", "positional_embedding"),
    ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"),
    (".layers.", ".blocks."),
    (".self_attn_layer_norm", ".attn_ln"),
    (".encoder_attn_layer_norm", ".cross_attn_ln"),
    (".final_layer_norm", ".mlp_ln"),
    (".self_attn.", ".attn."),
    (".encoder_attn.", ".cross_attn."),
    (".fc1.", ".mlp.0."),
    (".fc2.", ".mlp.2."),
    (".q_proj.", ".query."),
    (".k_proj.", ".key."),
    (".v_proj.", ".value."),
];

pub(super) struct OpenAiWeights {
    saved: Saved,
    /// The last tensor in row-major order, by its name: published ones lie transposed, and are read row by row.
    last: Mutex<Option<(String, Bytes)>>,
}

impl OpenAiWeights {
    pub(super) fn new(saved: Saved) -> OpenAiWeights {
        OpenAiWeights { saved, last: Mutex::new(None) }
    }

    fn find(&self, wanted: Wanted<'_>) -> Result<&StridedTensor, WeightError> {
        let name = stored(wanted.name);
        let missing = || WeightError::Missing { name: name.clone() };
        let tensor = self.saved.tensors.get(&format!("{PREFIX}{name}")).ok_or_else(missing)?;
        if tensor.sizes() != wanted.shape {
            let (found, wanted) = (tensor.sizes().to_vec(), wanted.shape.to_vec());
            return Err(WeightError::Shape { name, found, wanted });
        }
        match tensor.dtype() {
            ScalarType::F16 | ScalarType::F32 => Ok(tensor),
            other => {
                let problem = format!("it is stored as {}; f32 and f16 are read", other.name());
                Err(WeightError::Read { name, problem })
            }
        }
    }
}

impl OpenAiWeights {
    /// The elements of a tensor in order.
    fn ordered(&self, name: &str, tensor: &StridedTensor) -> Bytes {
        // A panic elsewhere leaves a whole tensor here, or none.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, bytes)) if known == name => bytes.clone(),
            _ => {
                let bytes = tensor.to_bytes();
                *last = Some((name.to_owned(), bytes.clone()));
                bytes
            }
        }
    }
}

/// A name as the file has it.
fn stored(name: &str) -> String {
    let name = name.strip_prefix("model.").unwrap_or(name);
    let name = NAMES.iter().fold(name.to_owned(), |name, (ours, theirs)| name.replacen(ours, theirs, 1));
    name.replacen(".out_proj.", ".out.", 1)
}

impl WeightSource for OpenAiWeights {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        self.find(wanted).map(|_| Form::Floats)
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let tensor = self.find(wanted)?;
        let size = tensor.dtype().size();
        let short =
            || WeightError::Read { name: wanted.name.to_owned(), problem: "it is too short".to_owned() };
        let bytes = self.ordered(wanted.name, tensor);
        let bytes = bytes.get(elements.start * size..elements.end * size).ok_or_else(short)?;
        match tensor.dtype() {
            ScalarType::F16 => {
                let halves = bytes.as_chunks::<2>().0.iter();
                out.iter_mut().zip(halves).for_each(|(out, half)| *out = f16::from_le_bytes(*half).to_f32());
            }
            _ => {
                let words = bytes.as_chunks::<4>().0.iter();
                out.iter_mut().zip(words).for_each(|(out, word)| *out = f32::from_le_bytes(*word));
            }
        }
        Ok(())
    }

    fn beyond(&self, weights: &HashSet<String>) -> Vec<String> {
        let taken: HashSet<String> = weights.iter().map(|name| stored(name)).collect();
        let names = self.saved.tensors.keys().filter_map(|name| name.strip_prefix(PREFIX));
        names.filter(|name| !taken.contains(*name)).map(str::to_owned).collect()
    }

    fn stored_bytes(&self, name: &str) -> Option<u64> {
        self.saved.tensors.get(&format!("{PREFIX}{}", stored(name))).map(StridedTensor::byte_size)
    }
}

#[cfg(test)]
mod tests {
    use super::stored;

    #[test]
    fn names_are_openais() {
        for (ours, theirs) in [
            ("model.encoder.conv1.weight", "encoder.conv1.weight"),
            ("model.encoder.embed_positions.weight", "encoder.positional_embedding"),
            ("model.encoder.layer_norm.bias", "encoder.ln_post.bias"),
            ("model.encoder.layers.2.self_attn.out_proj.bias", "encoder.blocks.2.attn.out.bias"),
            ("model.encoder.layers.2.self_attn_layer_norm.weight", "encoder.blocks.2.attn_ln.weight"),
            ("model.decoder.embed_tokens.weight", "decoder.token_embedding.weight"),
            ("model.decoder.layers.10.encoder_attn.k_proj.weight", "decoder.blocks.10.cross_attn.key.weight"),
            ("model.decoder.layers.0.encoder_attn_layer_norm.bias", "decoder.blocks.0.cross_attn_ln.bias"),
            ("model.decoder.layers.0.final_layer_norm.bias", "decoder.blocks.0.mlp_ln.bias"),
            ("model.decoder.layers.0.fc2.weight", "decoder.blocks.0.mlp.2.weight"),
            ("model.decoder.layer_norm.weight", "decoder.ln.weight"),
        ] {
            assert_eq!(stored(ours), theirs);
        }
    }
}
