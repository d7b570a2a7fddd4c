//! A model as the command line asks for it.

use super::choosing::whole;
use super::memory;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::home;
use pteron::{Model, OpenOptions, Source};
use pteron_runtime::Precision;
use std::path::PathBuf;

/// Options of every command that talks to a model.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Loading {
    /// The tokenizer, where the program carries none: tokenizer.json, a SentencePiece model, tekken.json, a GGUF file,
    /// or a folder that has one
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Positions of the context [default: what a program was exported with; of other models what they were made for, up
    /// to 4096]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    pub(crate) context: Option<usize>,
    /// Refuse a model that needs more memory than this, before it is loaded: 800M, 2G
    #[arg(long, value_name = "SIZE", value_parser = memory::parse)]
    memory_limit: Option<u64>,
    #[command(flatten)]
    engine: Engine,
}

impl Loading {
    /// Finds a model by path or name, and loads it; for speed, unless the user says otherwise.
    pub(crate) fn load(&self, model: Option<&str>) -> Result<Model, Failure> {
        Ok(Model::open(source(model), self.options()?)?)
    }

    /// A smaller model that guesses for another one: of the tokenizer that is given, where one is.
    pub(crate) fn load_draft(&self, model: &str) -> Result<Model, Failure> {
        let draft = Loading { context: None, ..self.clone() };
        Ok(Model::open(model, draft.options()?)?)
    }

    /// The same for a reader that looks at every token's logits; with `compared`, once to be exact and once more for
    /// speed.
    pub(crate) fn load_to_score(
        &self,
        model: &str,
        compared: bool,
    ) -> Result<(Model, Option<Model>), Failure> {
        let options = self.options()?;
        if !compared {
            return Ok((Model::open(model, options)?, None));
        }
        let load = |precision| Model::open(model, options.clone().precision(precision));
        Ok((load(Precision::Exact)?, Some(load(Precision::Fast)?)))
    }

    /// For many sessions at once.
    pub(crate) fn for_many(mut self) -> Loading {
        self.engine.many_sessions = true;
        self
    }

    pub(crate) fn options(&self) -> Result<OpenOptions, Failure> {
        let mut options = home::options().engine(self.engine.for_library()?);
        if let Some(tokenizer) = &self.tokenizer {
            options = options.tokenizer(tokenizer);
        }
        if let Some(context) = self.context {
            options = options.context(context);
        }
        if let Some(limit) = self.memory_limit {
            options = options.memory_limit(limit);
        }
        Ok(options)
    }
}

/// MODEL on the command line: a path or a name; without, the default model.
pub(crate) fn source(model: Option<&str>) -> Source {
    model.map_or(Source::Usual, Source::from)
}
