//! A model, loaded and ready to talk: its program on a backend, its tokenizer, its chat template.

use crate::carried;
use crate::error::{Error, Lack, Result};
use crate::located::{self, ExportAs, Located, Trouble};
use crate::machine::size;
use crate::options::{OpenOptions, Source};
use crate::progress::Event;
use crate::requirements;
use pteron_llm::{Clock, Decoder, DecoderOptions, Eyes, LanguageModel, Suggested, Voice};
use pteron_runtime::backend::MemoryReport;
use pteron_runtime::{Options, Precision, Program};
use std::fmt;
use std::sync::Arc;

/// A model that can be talked to. Clones share it, and all that is said with them shares its weights.
///
/// ```
/// use pteron::{GenerateOptions, Model, OpenOptions};
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// # let source = path.as_path();
///
/// let model = Model::open(source, OpenOptions::default().home("models"))?;
/// let answers = model.generate("Why is the sky blue?", &GenerateOptions::default().max_tokens(8))?;
/// println!("{}", answers[0].text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Model(Arc<Inner>);

struct Inner {
    language: LanguageModel,
    /// Without a tokenizer, tokens in and out are all there is.
    voice: Option<Voice>,
    /// How its publisher wants tokens chosen.
    suggested: Suggested,
    found: Located,
    context: Option<usize>,
    load_start: f64,
    load_end: f64,
}

impl Model {
    /// Opens a model: a program, a GGUF file or a checkpoint folder by its path, or one that the registry knows by its name.
    /// What has to be fetched or converted is so the first time and kept in [`OpenOptions::home`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let source = path.as_path();
    /// let model = pteron::Model::open(source, pteron::OpenOptions::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such model, or it cannot be fetched, converted, loaded or talked to; [`Error::Cancelled`] where
    /// [`OpenOptions::cancel`] was used.
    pub fn open(source: impl Into<Source>, options: OpenOptions) -> Result<Model> {
        let runtime = options.runtime_with(Precision::Fast)?;
        located::opened(&source.into(), ExportAs::TEXT, &options, &runtime, |found| {
            load(found, &options, &runtime)
        })
    }

    /// What it was asked for by: a path, or the name that the registry has for it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert_eq!(model.name(), path.display().to_string());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.0.found.name
    }

    /// Positions that a text may have; `None` where nothing says it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), pteron::OpenOptions::default().context(64))?;
    /// assert_eq!(model.context(), Some(64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn context(&self) -> Option<usize> {
        self.0.context.or(self.0.language.context())
    }

    /// What it holds, with all that is said with it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert!(model.memory().mapped_bytes + model.memory().packed_bytes > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(&self) -> MemoryReport {
        self.program().memory()
    }

    /// The program below, to run its methods on tensors.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert!(model.program().method("forward").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn program(&self) -> &Program {
        self.0.language.program()
    }

    /// Its tokenizer and its chat template.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let prompt = model.voice()?.raw("abc")?;
    /// assert_eq!(prompt.tokens.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it has no tokenizer.
    pub fn voice(&self) -> Result<&Voice> {
        self.0.voice.as_ref().ok_or_else(|| Error::lacks(self.name(), Lack::Tokenizer))
    }

    /// Whether it sees images: those that [`Message::showing`](crate::Message::showing) and [`Chat::show`](crate::Chat::show) give
    /// it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert!(!model.sees());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sees(&self) -> bool {
        self.0.voice.as_ref().is_some_and(|voice| voice.eyes.is_some())
    }

    /// What an image is refused with that it does not see.
    pub(crate) fn is_blind(&self) -> Error {
        Error::lacks(self.name(), Lack::Eyes)
    }

    /// A text in caches of its own, to read tokens and look at scores.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// assert!(model.decoder(0)?.tokens().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the context is longer than the model has, or there is no memory for it.
    pub fn decoder(&self, seed: u64) -> Result<Decoder> {
        let decoder = Decoder::new(&self.0.language, &DecoderOptions { context: self.0.context, seed });
        decoder.map_err(|error| self.named(error))
    }

    /// What it is to the layer that decodes.
    #[doc(hidden)]
    pub fn language(&self) -> &LanguageModel {
        &self.0.language
    }

    /// How its publisher wants tokens chosen, and what of that makes no sense.
    #[doc(hidden)]
    pub fn suggested(&self) -> &Suggested {
        &self.0.suggested
    }

    /// The context that was chosen when it was opened.
    pub(crate) fn given_context(&self) -> Option<usize> {
        self.0.context
    }

    /// Whether both are the same model, loaded once.
    pub(crate) fn is(&self, other: &Model) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// When loading began and had ended, for statistics.
    pub(crate) fn load_times(&self) -> (f64, f64) {
        (self.0.load_start, self.0.load_end)
    }

    /// Tokens that end an answer.
    pub(crate) fn end_tokens(&self) -> Vec<u32> {
        let language = &self.0.language;
        self.0.voice.as_ref().map_or_else(|| language.eos().to_vec(), |voice| voice.end_tokens(language))
    }

    /// The same error, in words of whoever named the model.
    pub(crate) fn named(&self, error: impl Into<Error>) -> Error {
        self.0.found.named(error.into())
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.name()).finish_non_exhaustive()
    }
}

fn load(found: &Located, options: &OpenOptions, runtime: &Options) -> Result<Model, Trouble> {
    options.cancel.check()?;
    let clock = Clock::default();
    let load_start = clock.now();
    if let Some(limit) = options.memory_limit {
        requirements::check(found, options.context, limit)?;
    }
    options.progress.tell(Event::Loading);
    let given = options.tokenizer.as_deref().map(carried::tokenizer).transpose()?;
    let pte = found.pte().map_err(Trouble::Reading)?;
    let (mut voice, suggested) = carried::voice(&pte, given).map_err(Trouble::Reading)?;
    let program = found.load(runtime).map_err(Trouble::reading)?;
    let language = LanguageModel::new(program)?;
    if let Some(voice) = &mut voice {
        voice.eyes = Eyes::inside(&pte, &language).map_err(Trouble::reading)?;
    }
    let suggested = if language.draws_itself() { suggested.for_drawing_programs() } else { suggested };
    let held = language.program().memory();
    let held = held.mapped_bytes + held.packed_bytes + held.state_bytes;
    if let Some(limit) = options.memory_limit.filter(|&limit| held > limit) {
        let path = found.program.display();
        let what = format!("{path} takes {} once it is packed for this backend", size(held));
        return Err(requirements::too_large(held, limit, &what).into());
    }
    if let (Some(vocab), Some(voice)) = (language.vocab(), &voice)
        && voice.tokenizer.vocab_size() > vocab
    {
        tracing::warn!(
            tokenizer = voice.tokenizer.vocab_size(),
            vocab,
            "the tokenizer has more tokens than the model"
        );
    }
    options.cancel.check()?;
    let (found, context, load_end) = (found.clone(), options.context, clock.now());
    Ok(Model(Arc::new(Inner { language, voice, suggested, found, context, load_start, load_end })))
}
