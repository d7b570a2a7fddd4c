//! A model that is built: its graph, the weights it wants, and the program that both become.

use std::sync::Arc;

use pteron_format::assemble::{Metadata, MethodWriter, ProgramWriter, TensorSpec};
use pteron_ir::{Module, Type};
use pteron_tensor::DType;

use crate::net::{METHOD, Net};
use crate::weights::{Stored, Writer};
use crate::{Architecture, Facts, ModelError, Packing, WeightSource};

/// What a program is to be like, whatever its architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelOptions {
    /// The dtype that activations have: f32, bf16 or f16.
    pub activations: DType,
    /// The dtype that caches have.
    pub cache: DType,
    /// Positions that fit into the caches.
    pub context: usize,
    /// Tokens of the largest input.
    pub chunk: usize,
    /// How matrices are packed that the source holds as floats; without, they stay floats.
    pub packing: Option<Packing>,
    /// Which logits the method gives.
    pub logits: Logits,
}

/// Which logits a method gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logits {
    /// Of the last position: what a runner wants.
    #[default]
    Last,
    /// Of all positions: what a judge wants.
    All,
}

impl Default for ModelOptions {
    fn default() -> ModelOptions {
        ModelOptions {
            activations: DType::BF16,
            cache: DType::BF16,
            context: 2048,
            chunk: 512,
            packing: None,
            logits: Logits::Last,
        }
    }
}

impl ModelOptions {
    fn check(&self) -> Result<(), ModelError> {
        let is_float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        if !is_float(self.activations) || !is_float(self.cache) {
            return Err(ModelError::configuration("activations and caches are f32, f16 or bf16"));
        }
        if self.chunk == 0 || self.chunk > self.context {
            let (chunk, context) = (self.chunk, self.context);
            return Err(ModelError::configuration(format!(
                "inputs of {chunk} tokens in a context of {context}"
            )));
        }
        if i32::try_from(self.context).is_err() {
            return Err(ModelError::configuration(format!("a context of {} positions", self.context)));
        }
        Ok(())
    }
}

/// A model that is built.
pub struct Model {
    module: Module,
    stored: Vec<Stored>,
    source: Arc<dyn WeightSource>,
    facts: Facts,
    options: ModelOptions,
}

impl Model {
    /// Builds the graph of an architecture. Weights are asked for by name and not read yet.
    pub fn build(
        architecture: &dyn Architecture,
        source: Arc<dyn WeightSource>,
        options: ModelOptions,
    ) -> Result<Model, ModelError> {
        options.check()?;
        let mut net = Net::new(source.clone(), options.clone())?;
        let logits = architecture.build(&mut net)?;
        let (module, stored) = net.finish(logits)?;
        Ok(Model { module, stored, source, facts: architecture.facts(), options })
    }

    /// The graph, and the one that runs once at load.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Bytes of all weights as the file stores them.
    pub fn weight_bytes(&self) -> u64 {
        self.stored.iter().map(|stored| stored.bytes).sum()
    }

    /// The program, ready to be written; more may be added, such as a tokenizer. `wrote` is told of the bytes of each
    /// weight when it has been written.
    pub fn program(
        &self,
        wrote: impl Fn(u64) + Clone + 'static,
    ) -> Result<ProgramWriter<'static>, ModelError> {
        let mut program = ProgramWriter::new();
        let payload = program.payload(&self.module)?;
        let writer = Arc::new(Writer::new(self.source.clone()));
        for stored in &self.stored {
            let (writer, recipe, bytes, wrote) =
                (writer.clone(), stored.recipe.clone(), stored.bytes, wrote.clone());
            program.name_produced(&stored.key, bytes, move |out| {
                writer.write(&recipe, out)?;
                wrote(bytes);
                Ok(())
            })?;
        }
        let main = &self.module.main;
        let mut method = MethodWriter::new(METHOD);
        let spec = |ty: &Type| match ty {
            Type::Tensor(ty) => TensorSpec::of(ty, &main.symbols),
            _ => None,
        };
        let unbounded = || ModelError::configuration("an input or output has no bound");
        let mut inputs = Vec::new();
        for input in &main.inputs {
            inputs.push(method.input(&main.ty(input.value).and_then(spec).ok_or_else(unbounded)?));
        }
        let mut outputs = Vec::new();
        for output in &main.outputs {
            outputs.push(method.tensor(&spec(&output.ty).ok_or_else(unbounded)?));
        }
        method.delegate(payload, &inputs, &outputs);
        outputs.iter().for_each(|&output| method.output(output));
        program.method(method)?;
        for (name, value) in self.metadata() {
            program.metadata(name, &value)?;
        }
        Ok(program)
    }

    /// What runners read, in the vocabulary of each.
    fn metadata(&self) -> Vec<(&'static str, Metadata)> {
        let (context, chunk) = (self.options.context as i64, self.options.chunk as i64);
        let eos = self.facts.eos.iter().map(|&id| id.into()).collect();
        let mut metadata = vec![
            // The largest input, in the vocabulary that also has `get_max_context_len`.
            ("get_max_seq_len", Metadata::Int(chunk)),
            ("get_max_context_len", Metadata::Int(context)),
            ("get_max_ctx_len", Metadata::Int(context)),
            ("get_prefill_chunk_size", Metadata::Int(chunk)),
            ("get_max_prefill_chunk", Metadata::Int(chunk)),
            ("get_vocab_size", Metadata::Int(self.facts.vocab_size as i64)),
            ("get_n_layers", Metadata::Int(self.facts.layers as i64)),
            ("get_eos_ids", Metadata::Ints(eos)),
            ("use_kv_cache", Metadata::Bool(true)),
            ("use_sdpa_with_kv_cache", Metadata::Bool(false)),
            ("enable_dynamic_shape", Metadata::Bool(true)),
            ("use_sampling", Metadata::Bool(false)),
        ];
        metadata.extend(self.facts.bos.map(|bos| ("get_bos_id", Metadata::Int(bos.into()))));
        metadata
    }
}
