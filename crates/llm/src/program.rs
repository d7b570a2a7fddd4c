//! What a `.pte` says of itself as a language model, whatever vocabulary its exporter used: which methods read and
//! write text, how they are called, how long a text may be, where it begins and ends, what its caches are.
//!
//! A [`Program`] flows in; a [`LanguageModel`] flows out that every runner drives the same way. No model is known here
//! by name.

use crate::caches::Caches;
use crate::seeing::Sight;
use crate::signature::{Gives, Signature};
use crate::{LlmError, Result};
use pteron_runtime::{BufferId, BufferInfo, MethodInfo, Program, Value};
use pteron_tensor::DType;
use std::sync::Arc;

/// Names that a context goes by. `get_max_seq_len` comes last: in some files it is the largest input of one call.
const CONTEXT: [&str; 3] = ["get_max_context_len", "get_max_ctx_len", "get_max_seq_len"];

/// What a context that can be chosen can be chosen up to.
const LONGEST: &str = "get_longest_context_len";

/// Names that a bound on the tokens of one call goes by.
const CHUNK: [&str; 3] = ["get_prefill_chunk_size", "get_max_prefill_chunk", "get_max_seq_len"];

/// Lengths of a text beyond which all of it is read otherwise, and the buffers in which a program is told the length.
const BORDERS: &str = "get_text_length_borders";
const TEXT_LENGTH: &str = "text_length";

/// A program that reads and writes text. Cloning shares it.
#[derive(Clone, Debug)]
pub struct LanguageModel(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: Program,
    prefill: Signature,
    decode: Signature,
    all: Option<Signature>,
    sight: Option<Sight>,
    caches: Caches,
    borders: Vec<usize>,
    told: Vec<BufferId>,
    chunk: usize,
    most_flat: Option<usize>,
    context: Option<usize>,
    longest: Option<usize>,
    vocab: Option<usize>,
    bos: Option<u32>,
    eos: Vec<u32>,
}

impl LanguageModel {
    /// Reads what the program says of itself.
    pub fn new(program: Program) -> Result<LanguageModel> {
        let (prefill, decode) = reading_methods(&program)?;
        let all = prefill.for_all_logits();
        let caches = Caches::of(&program, [&prefill.method, &decode.method]);
        let useful = program.backend().1.useful_input_length;
        let context = CONTEXT.iter().find_map(|name| size(&program, name)).or_else(|| caches.slots());
        let declared = CHUNK.iter().filter_map(|name| size(&program, name));
        let bounds = declared.chain(prefill.longest).chain(useful).chain(caches.most_at_once(context));
        let told = length_buffers(&program);
        let borders = if told.is_empty() { Vec::new() } else { sizes(&program, BORDERS) };
        let reads_flat = prefill == decode
            && borders.is_empty()
            && prefill.takes_several_texts()
            && program.reads_flat(&prefill.method).is_ok();
        let inner = Inner {
            most_flat: reads_flat.then(|| prefill.longest.unwrap_or(usize::MAX)),
            chunk: bounds.min().unwrap_or(1).max(1),
            context,
            longest: size(&program, LONGEST),
            vocab: size(&program, "get_vocab_size").or(prefill.vocab),
            bos: tokens(&program, &["get_bos_id"]).first().copied(),
            eos: tokens(&program, &["get_eos_ids", "get_eos_id"]),
            // What was seen is read for its logits.
            sight: Sight::of(&program).filter(|_| decode.gives != Gives::Token),
            program,
            prefill,
            decode,
            all,
            caches,
            borders,
            told,
        };
        Ok(LanguageModel(Arc::new(inner)))
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.0.program
    }

    /// The call that reads many tokens.
    pub fn prefill(&self) -> &Signature {
        &self.0.prefill
    }

    /// The call that reads one token; often the same.
    pub fn decode(&self) -> &Signature {
        &self.0.decode
    }

    /// The call that gives the logits of every token, where there is one.
    pub fn all_logits(&self) -> Option<&Signature> {
        self.0.all.as_ref()
    }

    /// The calls that look at images and read them, where there are such.
    pub(crate) fn sight(&self) -> Option<&Sight> {
        self.0.sight.as_ref()
    }

    /// What is kept from call to call.
    pub(crate) fn caches(&self) -> &Caches {
        &self.0.caches
    }

    /// Whether texts of both lengths are read alike, as far as they are the same.
    pub(crate) fn reads_alike(&self, length: usize, other: usize) -> bool {
        self.0.borders.iter().all(|&border| (length > border) == (other > border))
    }

    /// The buffers in which the program is told how long the text is; none where that changes nothing.
    pub(crate) fn length_buffers(&self) -> &[BufferId] {
        if self.0.borders.is_empty() { &[] } else { &self.0.told }
    }

    /// Tokens of the largest call that makes sense: the least of what the file declares, its metadata say, the backend
    /// wants and its rings have room for.
    pub fn chunk(&self) -> usize {
        self.0.chunk
    }

    /// Tokens that one call may have which reads several texts, where there is such a call.
    pub fn most_flat_tokens(&self) -> Option<usize> {
        self.0.most_flat
    }

    /// Positions there are; `None` where nothing says it.
    pub fn context(&self) -> Option<usize> {
        self.0.context
    }

    /// Whether the context can be chosen: off-graph caches grow as they are used, others were sized at export.
    pub fn context_is_free(&self) -> bool {
        self.0.program.needs_cache()
    }

    /// Positions that may be asked for at most: where the context can be chosen, what the file says that the model can
    /// tell apart; `None` where nothing says it.
    pub fn longest_context(&self) -> Option<usize> {
        if self.context_is_free() { self.0.longest } else { self.0.context }
    }

    /// Tokens of the vocabulary, where the file says it.
    pub fn vocab(&self) -> Option<usize> {
        self.0.vocab
    }

    /// The token that a text begins with, where the file says it.
    pub fn bos(&self) -> Option<u32> {
        self.0.bos
    }

    /// Tokens that end an answer, as the file says.
    pub fn eos(&self) -> &[u32] {
        &self.0.eos
    }

    /// Whether it gives tokens that it has drawn itself, in place of logits.
    pub fn draws_itself(&self) -> bool {
        self.0.decode.gives == Gives::Token
    }
}

/// The methods that read many tokens and one.
fn reading_methods(program: &Program) -> Result<(Signature, Signature)> {
    let not_one = |reason: String| {
        let file = program.name().to_owned();
        LlmError::NotALanguageModel { file, reason }
    };
    if let Some(forward) = method(program, "forward") {
        let signature = Signature::of(forward).map_err(not_one)?;
        return Ok((signature.clone(), signature));
    }
    if let (Some(prefill), Some(decode)) = (method(program, "prefill"), method(program, "decode")) {
        let prefill = Signature::of(prefill).map_err(not_one)?;
        return Ok((prefill, Signature::of(decode).map_err(not_one)?));
    }
    let names: Vec<&str> = program.methods().iter().map(|method| method.name.as_str()).collect();
    Err(not_one(format!("it has neither `forward` nor `prefill` and `decode`, but {}", names.join(", "))))
}

fn method<'p>(program: &'p Program, name: &str) -> Option<&'p MethodInfo> {
    program.methods().iter().find(|method| method.name == name)
}

/// A constant method as numbers, however they are stored.
fn numbers(program: &Program, name: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for value in program.metadata().get(name).into_iter().flatten() {
        match value {
            Value::Int(number) => all.push(*number),
            Value::Ints(numbers) => all.extend(numbers),
            Value::Tensor(tensor) => match (tensor.as_slice::<i64>(), tensor.as_slice::<i32>()) {
                (Ok(numbers), _) => all.extend(numbers),
                (_, Ok(numbers)) => all.extend(numbers.iter().map(|&number| i64::from(number))),
                _ => {}
            },
            _ => {}
        }
    }
    all
}

fn size(program: &Program, name: &str) -> Option<usize> {
    numbers(program, name).first().and_then(|&number| usize::try_from(number).ok()).filter(|&size| size > 0)
}

/// Lengths that a constant method lists; what is none counts for nothing.
fn sizes(program: &Program, name: &str) -> Vec<usize> {
    numbers(program, name).into_iter().filter_map(|number| usize::try_from(number).ok()).collect()
}

/// Buffers of one number, of the name that exporters give to the length of a text.
fn length_buffers(program: &Program) -> Vec<BufferId> {
    let is_one = |buffer: &&BufferInfo| {
        buffer.id.name == TEXT_LENGTH && buffer.dtype == DType::I64 && buffer.shape == [1]
    };
    program.buffers().iter().filter(is_one).map(|buffer| buffer.id.clone()).collect()
}

/// Token ids under the first of the names that is there; exporters write -1 for none.
fn tokens(program: &Program, names: &[&str]) -> Vec<u32> {
    let found = names.iter().map(|name| numbers(program, name)).find(|numbers| !numbers.is_empty());
    let ids = found.unwrap_or_default();
    ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect()
}
