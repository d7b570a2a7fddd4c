//! A model that is built: its graph, the weights it wants, and the program that both become.

use std::collections::HashSet;
use std::sync::Arc;

use pteron_format::assemble::{Metadata, MethodWriter, PayloadIndex, ProgramWriter, TensorSpec};
use pteron_ir::{Module, Type};
use pteron_tensor::{DType, HostTensor};

use crate::net::{Built, Net};
use crate::quantize::Reports;
use crate::weights::{Recipe, Stored, Writer};
use crate::{Architecture, Facts, ModelError, Quantization, Rule, WeightReport, WeightSource};

/// The method of a model of one part.
const FORWARD: &str = "forward";

/// What a program is to be like, whatever its architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelOptions {
    /// The dtype that activations have: f32, bf16 or f16.
    pub activations: DType,
    /// The dtype that caches have; keys and values outside the graph have that of activations.
    pub cache: DType,
    /// Positions that a text may have: of caches in the graph all that fit, of others all that the model can tell apart.
    pub context: usize,
    /// Positions of a session's cache unless who opens it asks for others, where that is not the context.
    pub session_context: Option<usize>,
    /// Tokens of the largest part of a text that is read at once.
    pub chunk: usize,
    /// Tokens of other texts that fit into an input beside such a part.
    pub beside: usize,
    /// How matrices are packed.
    pub quantization: Quantization,
    /// Which logits there are.
    pub logits: Logits,
    /// Where keys and values are kept.
    pub kv: KvCache,
    /// How the position of the first token is given.
    pub position: Position,
}

/// Which logits a program gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logits {
    /// `forward` gives those of the last position: what a runner wants.
    #[default]
    Last,
    /// `forward` gives those of all positions.
    All,
    /// `forward` is told of which positions it shall give them, rows of its input by number: of the last for a runner, of
    /// all for judges and perplexity, of the last few for checks of guessed tokens.
    Selected,
}

/// Where keys and values are kept from call to call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCache {
    /// In buffers of the graph, as long as the context, or rings where attention slides.
    #[default]
    InGraph,
    /// In the session's cache, which grows with use; metadata say its layers.
    OffGraph,
}

/// How a call is told the position of its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Position {
    /// As a tensor of one element: what ExecuTorch's runners give.
    #[default]
    Tensor,
    /// As a number of the call, so that no backend reads it back from data.
    Number,
    /// As a tensor with the position of each token: tokens may then be those of several texts, one behind the other.
    Each,
}

/// One layer of the session's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheLayer {
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) window: Option<usize>,
}

impl Default for ModelOptions {
    fn default() -> ModelOptions {
        ModelOptions {
            activations: DType::BF16,
            cache: DType::BF16,
            context: 2048,
            session_context: None,
            chunk: 512,
            beside: 0,
            quantization: Quantization::default(),
            logits: Logits::Last,
            kv: KvCache::InGraph,
            position: Position::Tensor,
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
        if self.session_context.is_some_and(|context| context > self.context || self.kv == KvCache::InGraph) {
            let problem =
                "only caches outside the graph have another context than the graph, and no longer one";
            return Err(ModelError::configuration(problem));
        }
        if self.position == Position::Each && self.kv == KvCache::InGraph {
            let problem =
                "positions of each token are for caches outside the graph, which are asked by position";
            return Err(ModelError::configuration(problem));
        }
        if self.beside > 0 && self.position != Position::Each {
            let problem = "tokens of other texts fit beside those of one only where each has its position";
            return Err(ModelError::configuration(problem));
        }
        if i32::try_from(self.context).is_err() || self.longest_input().is_none() {
            return Err(ModelError::configuration(format!("a context of {} positions", self.context)));
        }
        Ok(())
    }

    /// Tokens of the largest input.
    pub(crate) fn longest_input(&self) -> Option<i32> {
        self.chunk.checked_add(self.beside).and_then(|tokens| i32::try_from(tokens).ok())
    }
}

/// A model that is built.
pub struct Model {
    methods: Vec<(&'static str, Built)>,
    stored: Vec<Stored>,
    source: Arc<dyn WeightSource>,
    facts: Facts,
    options: ModelOptions,
    reports: Arc<Reports>,
}

impl Model {
    /// Builds the graphs of an architecture. Weights are asked for by name and not read yet.
    pub fn build(
        architecture: &dyn Architecture,
        source: Arc<dyn WeightSource>,
        options: ModelOptions,
    ) -> Result<Model, ModelError> {
        options.check()?;
        let mut methods = Vec::new();
        let mut stored: Vec<Stored> = Vec::new();
        let mut keys = HashSet::new();
        let parts = architecture.parts();
        if !parts.is_empty() && (options.position == Position::Each || options.logits == Logits::Selected) {
            return Err(ModelError::configuration("a model of several parts reads one input at a time"));
        }
        for &part in &parts {
            let mut net = Net::part(source.clone(), options.clone(), part)?;
            let outputs = architecture.build_part(part, &mut net)?;
            methods.push((part, net.finish_with(outputs)?));
        }
        if parts.is_empty() {
            let mut net = Net::new(source.clone(), options.clone(), FORWARD)?;
            let logits = architecture.build(&mut net)?;
            methods.push((FORWARD, net.finish(logits)?));
        }
        for part in architecture.beside(&options) {
            let own = ModelOptions {
                position: Position::Number,
                logits: Logits::Last,
                beside: 0,
                ..options.clone()
            };
            let mut net = Net::part(source.clone(), own, part)?;
            let outputs = architecture.build_part(part, &mut net)?;
            methods.push((part, net.finish_with(outputs)?));
        }
        for (_, built) in &mut methods {
            // Methods have their weights in common.
            stored.extend(built.stored.drain(..).filter(|weight| keys.insert(weight.key.clone())));
        }
        // A rule that was mistyped must not pass for one that was kept.
        let modules = || stored.iter().filter_map(|stored| stored.key.strip_suffix(".weight"));
        let rules = &options.quantization.rules;
        let fits = |rule: &&Rule| modules().any(|module| fast_glob::glob_match(&rule.pattern, module));
        if let Some(rule) = rules.iter().find(|rule| !fits(rule)) {
            let pattern = &rule.pattern;
            let module = modules().find(|module| module.ends_with("_proj")).unwrap_or_default();
            return Err(ModelError::configuration(format!(
                "the rule for `{pattern}` fits no module; names look like {module}"
            )));
        }
        let reports = Arc::default();
        Ok(Model { methods, stored, source, facts: architecture.facts(), options, reports })
    }

    /// The graph of `forward`, and the one that runs once at load.
    pub fn module(&self) -> &Module {
        &self.methods[0].1.module
    }

    /// Whether the program has a method of that name.
    pub fn has_method(&self, name: &str) -> bool {
        self.methods.iter().any(|(method, _)| *method == name)
    }

    /// Bytes of all weights as the file stores them.
    pub fn weight_bytes(&self) -> u64 {
        self.stored.iter().map(|stored| stored.bytes).sum()
    }

    /// Keys of what the program reads from the source. Whatever else it has (numbers, tables of angles) follows from the
    /// options and belongs to the graph.
    pub fn weight_keys(&self) -> HashSet<String> {
        let is_read = |stored: &&Stored| !matches!(stored.recipe, Recipe::Literal(_));
        self.stored.iter().filter(is_read).map(|stored| stored.key.clone()).collect()
    }

    /// Names of the weights of the source that the model is made of.
    pub fn weights(&self) -> impl Iterator<Item = &str> {
        self.stored.iter().filter_map(|stored| match &stored.recipe {
            Recipe::Floats { name, .. } | Recipe::Packed { name, .. } => Some(name.as_str()),
            Recipe::Literal(_) => None,
        })
    }

    /// What became of each packed matrix; complete once the program has been written.
    pub fn reports(&self) -> Vec<WeightReport> {
        self.reports.all()
    }

    /// The program, ready to be written; more may be added, such as a tokenizer. `wrote` is told of the bytes of each
    /// weight when it has been written.
    pub fn program<'a>(&self, wrote: impl Fn(u64) + Clone + 'a) -> Result<ProgramWriter<'a>, ModelError> {
        let mut program = ProgramWriter::new();
        let writer = Arc::new(Writer::new(self.source.clone(), self.reports.clone()));
        for stored in &self.stored {
            let (writer, recipe, bytes, wrote) =
                (writer.clone(), stored.recipe.clone(), stored.bytes, wrote.clone());
            program.name_produced(&stored.key, bytes, move |out| {
                writer.write(&recipe, out)?;
                wrote(bytes);
                Ok(())
            })?;
        }
        for (name, built) in &self.methods {
            let payload = program.payload(&built.module)?;
            program.method(method(name, built, payload)?)?;
        }
        for (name, value) in self.metadata()? {
            program.metadata(name, &value)?;
        }
        Ok(program)
    }

    /// What runners read, in the vocabulary of each.
    fn metadata(&self) -> Result<Vec<(&'static str, Metadata)>, ModelError> {
        let ModelOptions { context: longest, session_context, chunk, beside, logits, .. } = self.options;
        let (context, chunk) = (session_context.unwrap_or(longest) as i64, chunk as i64);
        let eos = self.facts.eos.iter().map(|&id| id.into()).collect();
        let mut metadata = vec![
            // The largest input, in the vocabulary that also has `get_max_context_len`.
            ("get_max_seq_len", Metadata::Int(chunk + beside as i64)),
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
        // For runners that let the user choose: metadata of others are bounds, this one is what the model can do.
        let longer =
            session_context.is_some().then_some(("get_longest_context_len", Metadata::Int(longest as i64)));
        metadata.extend(longer);
        if logits == Logits::Selected {
            // In the vocabulary of ExecuTorch's runners of batches: the third input picks rows.
            metadata.push(("get_logits_to_keep_mode", Metadata::Int(2)));
            metadata.push(("get_activation_dtype", Metadata::Int(scalar_type(self.options.activations))));
        }
        metadata.extend(self.facts.bos.map(|bos| ("get_bos_id", Metadata::Int(bos.into()))));
        let built = &self.methods[0].1;
        if !built.borders.is_empty() {
            let borders = built.borders.iter().map(|&border| border as i64).collect();
            metadata.push(("get_text_length_borders", Metadata::Ints(borders)));
        }
        if built.is_recurrent {
            // For runners that would go back by naming an earlier position.
            metadata.push(("use_recurrent_state", Metadata::Bool(true)));
        }
        let caches = &built.caches;
        if !caches.is_empty() {
            metadata.push(("get_n_caches", Metadata::Int(caches.len() as i64)));
            metadata.push(("get_kv_heads", by_cache(caches, |cache| cache.kv_heads)?));
            metadata.push(("get_head_dims", by_cache(caches, |cache| cache.head_dim)?));
            metadata.push(("get_windows", by_cache(caches, |cache| cache.window.unwrap_or(0))?));
        }
        Ok(metadata)
    }
}

/// ExecuTorch's number of a dtype that activations may have.
fn scalar_type(dtype: DType) -> i64 {
    match dtype {
        DType::F16 => 5,
        DType::BF16 => 15,
        _ => 6,
    }
}

/// One number a cache.
fn by_cache(caches: &[CacheLayer], number: impl Fn(&CacheLayer) -> usize) -> Result<Metadata, ModelError> {
    let numbers: Vec<i32> = caches.iter().map(|cache| number(cache) as i32).collect();
    let tensor = HostTensor::from_slice(vec![numbers.len()], &numbers);
    Ok(Metadata::Tensor(tensor.map_err(|error| ModelError::configuration(error.to_string()))?))
}

/// One call of the payload between the method's inputs and outputs.
fn method(name: &str, built: &Built, payload: PayloadIndex) -> Result<MethodWriter, ModelError> {
    let main = &built.module.main;
    let mut method = MethodWriter::new(name);
    let spec = |ty: &Type| match ty {
        Type::Tensor(ty) => TensorSpec::of(ty, &main.symbols),
        _ => None,
    };
    let unbounded = || ModelError::configuration("an input or output has no bound");
    let mut inputs = Vec::new();
    for input in &main.inputs {
        let ty = main.ty(input.value).ok_or_else(unbounded)?;
        inputs.push(match ty {
            Type::Int(_) => {
                let number = method.int(0);
                method.input_value(number)
            }
            _ => method.input(&spec(ty).ok_or_else(unbounded)?),
        });
    }
    let mut outputs = Vec::new();
    for output in &main.outputs {
        outputs.push(method.tensor(&spec(&output.ty).ok_or_else(unbounded)?));
    }
    method.delegate(payload, &inputs, &outputs);
    outputs.iter().for_each(|&output| method.output(output));
    Ok(method)
}
