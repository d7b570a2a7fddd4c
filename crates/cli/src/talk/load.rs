//! A model, loaded and ready to talk: its program on a backend, its tokenizer, its chat template.

use super::find::{self, Wanted};
use super::memory;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::file::{Content, File};
use crate::output::size;
use pteron_llm::template::LocalTime;
use pteron_llm::tokenizer::Tokenizer;
use pteron_llm::{Clock, Decoder, DecoderOptions, LanguageModel, Suggested, Voice};
use pteron_models::Logits;
use pteron_runtime::{Options, Precision, Program};
use std::path::{Path, PathBuf};

/// Options of every command that talks to a model.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Loading {
    /// The tokenizer, where the program carries none: tokenizer.json, a SentencePiece model, tekken.json, a GGUF file,
    /// or a folder that has one
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Positions of the context [default: what the model has]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// Refuse a model that needs more memory than this, before it is loaded: 800M, 2G
    #[arg(long, value_name = "SIZE", value_parser = memory::parse)]
    memory_limit: Option<u64>,
    #[command(flatten)]
    engine: Engine,
}

/// A model that can be talked to.
pub(crate) struct Loaded {
    pub(crate) model: LanguageModel,
    /// Without a tokenizer, tokens in and out are all there is.
    pub(crate) voice: Option<Voice>,
    /// How its publisher wants tokens chosen.
    pub(crate) suggested: Suggested,
    pub(crate) path: PathBuf,
    pub(crate) load_start: f64,
    pub(crate) load_end: f64,
    context: Option<usize>,
}

impl Loading {
    /// Finds a model by path or name, and loads it; for speed, unless the user says otherwise.
    pub(crate) fn load(&self, model: Option<&str>) -> Result<Loaded, Failure> {
        let options = self.engine.options(Precision::Fast)?;
        let path = find::program(model, &self.wanted(Logits::Last), &options)?;
        self.open(&path, &options)
    }

    /// The same for a reader that looks at every token's logits; with `compared`, once to be exact and once more for
    /// speed.
    pub(crate) fn load_to_score(
        &self,
        model: &str,
        compared: bool,
    ) -> Result<(Loaded, Option<Loaded>), Failure> {
        let options = self.engine.options(Precision::Fast)?;
        let path = find::program(Some(model), &self.wanted(Logits::All), &options)?;
        let load = |precision| self.open(&path, &Options { precision, ..options.clone() });
        match compared {
            false => Ok((load(options.precision)?, None)),
            true => Ok((load(Precision::Exact)?, Some(load(Precision::Fast)?))),
        }
    }

    fn wanted(&self, logits: Logits) -> Wanted {
        Wanted { context: self.context, logits }
    }

    fn open(&self, path: &Path, options: &Options) -> Result<Loaded, Failure> {
        let clock = Clock::default();
        let load_start = clock.now();
        if let Some(limit) = self.memory_limit {
            memory::check(path, self.context, limit)?;
        }
        let (voice, suggested) = self.voice(path)?;
        let model = LanguageModel::new(Program::open(path, &[], options)?)?;
        let suggested = if model.draws_itself() { suggested.for_drawing_programs() } else { suggested };
        let held = model.program().memory();
        let held = held.mapped_bytes + held.packed_bytes + held.state_bytes;
        if let Some(limit) = self.memory_limit.filter(|&limit| held > limit) {
            return Err(Failure::new(format!(
                "{} takes {} once it is packed for this backend; the limit is {}",
                path.display(),
                size(held),
                size(limit)
            )));
        }
        if let (Some(vocab), Some(voice)) = (model.vocab(), &voice)
            && voice.tokenizer.vocab_size() > vocab
        {
            tracing::warn!(
                tokenizer = voice.tokenizer.vocab_size(),
                vocab,
                "the tokenizer has more tokens than the model"
            );
        }
        Ok(Loaded {
            model,
            voice,
            suggested,
            path: path.to_owned(),
            load_start,
            load_end: clock.now(),
            context: self.context,
        })
    }

    /// The voice of a program, and the settings that it carries.
    fn voice(&self, path: &Path) -> Result<(Option<Voice>, Suggested), Failure> {
        let file = File::open(path)?;
        let pte = match &file.content {
            Content::Pte(pte) => pte,
            Content::Bpte(bundle) => &bundle.pte,
            Content::Ptd(_) => {
                return Err(Failure::in_file(path, "external data, not a program").hint("name the .pte file"));
            }
        };
        let tokenizer = match &self.tokenizer {
            Some(path) => Some(Tokenizer::open(path).map_err(Failure::new)?),
            None => Voice::tokenizer_inside(pte)?,
        };
        let suggested = Voice::suggested_inside(pte);
        let Some(tokenizer) = tokenizer else { return Ok((None, suggested)) };
        let template = Voice::template_inside(pte)?;
        let voice = Voice { template, now: LocalTime::utc_now(), ..Voice::new(tokenizer) };
        Ok((Some(voice), suggested))
    }
}

impl Loaded {
    /// A decoder with empty caches.
    pub(crate) fn decoder(&self, seed: u64) -> Result<Decoder, Failure> {
        Ok(Decoder::new(&self.model, &DecoderOptions { context: self.context, seed })?)
    }

    /// The voice, or an error that says how to give the model one.
    pub(crate) fn voice(&self) -> Result<&Voice, Failure> {
        self.voice.as_ref().ok_or_else(|| {
            Failure::usage(format!("{} carries no tokenizer", self.path.display()))
                .hint("name one with `--tokenizer FILE`")
        })
    }

    /// Tokens that end an answer.
    pub(crate) fn end_tokens(&self) -> Vec<u32> {
        self.voice.as_ref().map_or_else(|| self.model.eos().to_vec(), |voice| voice.end_tokens(&self.model))
    }
}
