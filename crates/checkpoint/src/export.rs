//! From a checkpoint to a program: which options, what travels beside the graph, how it is written.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use pteron_companion as companion;
use pteron_format::WriteOptions;
use pteron_format::assemble::{DataWriter, ProgramWriter};
use pteron_models::architectures::LOOK;
use pteron_models::{KvCache, Logits, Model, ModelOptions, Position, Quantization, WeightReport};
use pteron_tensor::{Bytes, DType};
use serde_json::json;

use crate::left_out::left_out;
use crate::{Checkpoint, CheckpointError};

/// Positions that caches hold unless more are asked for: longer texts cost memory in every session.
const USUAL_CONTEXT: usize = 4096;
/// Tokens of the largest input unless another number is asked for.
const USUAL_CHUNK: usize = 512;
/// Tokens of other sessions that a batched program takes beside a whole part of a prompt: one each of so many.
const BESIDE: usize = 64;

/// What a program is to be like.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportOptions {
    /// The dtype that activations and caches have: f32, bf16 or f16.
    pub activations: DType,
    /// How matrices are packed; by default as the checkpoint has them.
    pub quantization: Quantization,
    /// Positions of a session; without, what the model was made for, up to 4,096. Caches in the graph have so many; others
    /// can be asked for more when a session opens, up to what the model was made for.
    pub context: Option<usize>,
    /// Tokens of the largest input; without, 512, or the context where that is shorter.
    pub chunk: Option<usize>,
    /// Where keys and values are kept.
    pub kv: KvCache,
    /// How the position is given.
    pub position: Position,
    /// Whose logits there are.
    pub logits: Logits,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions {
            activations: DType::BF16,
            quantization: Quantization::default(),
            context: None,
            chunk: None,
            kv: KvCache::OffGraph,
            position: Position::Number,
            logits: Logits::Selected,
        }
    }
}

impl ExportOptions {
    /// For ExecuTorch's own runners: they give the position as a tensor, and keep no cache for a program.
    pub fn for_executorch() -> ExportOptions {
        ExportOptions {
            kv: KvCache::InGraph,
            position: Position::Tensor,
            logits: Logits::Last,
            ..ExportOptions::default()
        }
    }

    /// For flat batches: tokens of several sessions in one call, each with its position, and the rows that want logits.
    /// ExecuTorch's runners of batches take such programs too.
    pub fn batched() -> ExportOptions {
        ExportOptions { position: Position::Each, ..ExportOptions::default() }
    }

    fn model(&self, longest: usize, kv: KvCache) -> ModelOptions {
        let wanted = self.context.unwrap_or(longest.min(USUAL_CONTEXT));
        let (context, session_context) = match kv {
            KvCache::InGraph => (wanted, None),
            KvCache::OffGraph => (longest.max(wanted), Some(wanted)),
        };
        ModelOptions {
            activations: self.activations,
            cache: self.activations,
            context,
            session_context,
            chunk: self.chunk.unwrap_or(USUAL_CHUNK.min(wanted)),
            beside: if self.position == Position::Each { BESIDE } else { 0 },
            quantization: self.quantization.clone(),
            logits: self.logits,
            kv,
            position: self.position,
        }
    }
}

/// How far writing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights written.
    pub written: u64,
    /// Bytes of all weights.
    pub total: u64,
}

/// A checkpoint with the program that it becomes. Nothing has been read of the weights but names and shapes.
pub struct Export<'c> {
    checkpoint: &'c Checkpoint,
    model: Model,
    options: ModelOptions,
    remarks: Vec<String>,
}

impl<'c> Export<'c> {
    /// Builds the graphs; whatever the checkpoint lacks is an error here, before anything is written.
    pub fn new(checkpoint: &'c Checkpoint, options: &ExportOptions) -> Result<Export<'c>, CheckpointError> {
        let longest = checkpoint.architecture.facts().context;
        // Some models spell their scores out, over keys that lie in the graph.
        let kv = match checkpoint.architecture.keeps_caches_in_graph() {
            true => KvCache::InGraph,
            false => options.kv,
        };
        let mut options = options.model(longest, kv);
        if !checkpoint.architecture.parts().is_empty() {
            // Methods of several parts say themselves what they give.
            options.logits = Logits::Last;
        }
        if options.context > longest {
            let context = options.context;
            let problem = format!(
                "a context of {context} positions where the model was made for {longest}; ask for at most that"
            );
            return Err(pteron_models::ModelError::Configuration { problem }.into());
        }
        let architecture = checkpoint.architecture.as_ref();
        let model = Model::build(architecture, checkpoint.weights.clone(), options.clone())?;
        let mut remarks = checkpoint.remarks.clone();
        let used = model.weights().map(str::to_owned).chain(architecture.spare()).collect();
        remarks.extend(left_out(&checkpoint.weights.beyond(&used), model.has_method(LOOK)));
        Ok(Export { checkpoint, model, options, remarks })
    }

    /// What the user should be told: tensors of the checkpoint that the program leaves out, keys that are not known; a
    /// sentence each.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What the program is like, all choices made.
    pub fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// Bytes of all weights as the program stores them.
    pub fn weight_bytes(&self) -> u64 {
        self.model.weight_bytes()
    }

    /// What became of each packed matrix; complete once the program has been written.
    pub fn reports(&self) -> Vec<WeightReport> {
        self.model.reports()
    }

    /// Writes the program as a file that appears whole or not at all; its bytes.
    pub fn write_file(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, CheckpointError> {
        Ok(self.program(progress)?.write_file(path, &WriteOptions::default())?)
    }

    /// Writes the program; its bytes.
    pub fn write(
        &self,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, CheckpointError> {
        Ok(self.program(progress)?.write(&WriteOptions::default(), out)?)
    }

    /// The program without its weights, and the weights: a `.ptd` file that is the same for every context, cache and choice
    /// of logits, so that all such programs can share it.
    pub fn apart<'p>(
        &self,
        progress: &'p mut dyn FnMut(Progress),
    ) -> Result<(ProgramWriter<'p>, DataWriter<'p>), CheckpointError> {
        let weights = self.model.weight_keys();
        Ok(self.program(progress)?.split(|key| weights.contains(key)))
    }

    fn program<'p>(
        &self,
        progress: &'p mut dyn FnMut(Progress),
    ) -> Result<ProgramWriter<'p>, CheckpointError> {
        let total = self.weight_bytes();
        // Weights are written one after another, by closures that all report to one place.
        let state = Rc::new(RefCell::new((0, progress)));
        let mut program = self.model.program(move |bytes| {
            let (written, progress) = &mut *state.borrow_mut();
            *written += bytes;
            progress(Progress { written: *written, total });
        })?;
        self.name_beside(&mut program)?;
        Ok(program)
    }

    /// What runners need beside the graph, under names that other runtimes skip.
    fn name_beside(&self, program: &mut ProgramWriter<'_>) -> Result<(), CheckpointError> {
        let mut name = |key: &str, bytes: &[u8]| program.name(key, Bytes::copy_of(bytes));
        if let Some(tokenizer) = &self.checkpoint.tokenizer {
            name(companion::TOKENIZER, &tokenizer.bytes)?;
            name(companion::TOKENIZER_FORMAT, tokenizer.format.name().as_bytes())?;
            name(companion::TOKENIZER_CONFIG, json!(tokenizer.config).to_string().as_bytes())?;
        }
        let templates = &self.checkpoint.chat_templates;
        if let Some(template) = &templates.default {
            name(companion::CHAT_TEMPLATE, template.as_bytes())?;
        }
        for (key, template) in &templates.named {
            name(&companion::named_chat_template(key), template.as_bytes())?;
        }
        if let Some(config) = &self.checkpoint.generation_config {
            name(companion::GENERATION_CONFIG, config.as_bytes())?;
        }
        if let Some(speech) = &self.checkpoint.speech {
            name(companion::SPEECH, json!(speech).to_string().as_bytes())?;
        }
        if let Some(vision) = self.checkpoint.vision.as_ref().filter(|_| self.model.has_method(LOOK)) {
            name(companion::VISION, json!(vision).to_string().as_bytes())?;
        }
        if let Some(encoder) = &self.checkpoint.encoder {
            name(companion::ENCODER, json!(encoder).to_string().as_bytes())?;
        }
        name(companion::PROVENANCE, self.provenance().to_string().as_bytes())?;
        Ok(())
    }

    /// What the program was made from, by which version, with which options.
    fn provenance(&self) -> serde_json::Value {
        let options = &self.options;
        json!({
            "made_by": format!("pteron {}", env!("CARGO_PKG_VERSION")),
            "source": self.checkpoint.origin,
            "options": {
                "activations": options.activations.to_string(),
                "quantize": options.quantization.to_string(),
                "context": options.session_context.unwrap_or(options.context),
                "chunk": options.chunk,
                "kv": match options.kv {
                    KvCache::InGraph => "in-graph",
                    KvCache::OffGraph => "off-graph",
                },
                "position": match options.position {
                    Position::Tensor => "tensor",
                    Position::Number => "number",
                    Position::Each => "each",
                },
                "all_logits": options.logits != Logits::Last,
            },
        })
    }
}

/// Writes a checkpoint as a program, a file that appears whole or not at all; its bytes.
pub fn export(
    checkpoint: &Checkpoint,
    options: &ExportOptions,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, CheckpointError> {
    Export::new(checkpoint, options)?.write_file(path, progress)
}
