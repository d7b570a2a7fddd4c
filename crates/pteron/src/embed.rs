//! Vectors of texts, and how well texts answer a question: an encoder by path or name, texts in, numbers out.

use crate::carried;
use crate::error::{Error, Lack, Result};
use crate::located::{self, ExportAs, Located, Trouble};
use crate::options::{OpenOptions, Source};
use crate::progress::Event;
use pteron_companion::Encoder;
use pteron_llm::LlmError;
use pteron_llm::tokenizer::{Ends, Tokenizer};
use pteron_runtime::{Options, Precision, Program, Value};
use pteron_tensor::HostTensor;
use std::fmt;

/// The method of encoders that give a vector, and of those that give numbers for a pair of texts.
const EMBED: &str = "embed";
const SCORE: &str = "score";

/// A model that makes a vector of a text, or numbers of a pair of texts.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let model = pteron::tiny::embedding(folder.path())?;
/// # let options = pteron::OpenOptions::default().home(folder.path());
/// use pteron::Embedder;
///
/// let embedder = Embedder::open(model.as_path(), options)?;
/// let vectors = embedder.embed(&["a", "a", "b"])?;
/// assert_eq!((vectors.len(), vectors[0].len()), (3, embedder.dimensions()));
/// assert_eq!(vectors[0], vectors[1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Embedder {
    name: String,
    program: Program,
    tokenizer: Tokenizer,
    info: Encoder,
    /// Whether the method is told which tokens belong to the second text of a pair.
    has_kinds: bool,
}

impl Embedder {
    /// Opens an encoder: a program, a BERT, RoBERTa or ModernBERT as Hugging Face and sentence-transformers publish them
    /// (converted once and kept), or one that the registry knows by its name.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::embedding(folder.path())?;
    /// let options = pteron::OpenOptions::default().home(folder.path());
    /// let embedder = pteron::Embedder::open(model.as_path(), options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::open`](crate::Model::open).
    pub fn open(source: impl Into<Source>, options: OpenOptions) -> Result<Embedder> {
        let source = source.into();
        let runtime = options.runtime_with(Precision::Fast)?;
        // Vectors are compared with those of others: nothing is rounded unless the model is published so.
        located::opened(&source, ExportAs::VECTORS, &options, &runtime, |found| {
            opened(found, &options, &runtime).map_err(Trouble::any)
        })
    }

    /// How many numbers a vector has.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::embedding(folder.path())?;
    /// # let options = pteron::OpenOptions::default().home(folder.path());
    /// let embedder = pteron::Embedder::open(model.as_path(), options)?;
    /// assert_eq!(embedder.dimensions(), 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dimensions(&self) -> usize {
        self.info.numbers
    }

    /// Whether it gives numbers for pairs of texts, by [`Embedder::score`], and no vectors.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::embedding(folder.path())?;
    /// # let options = pteron::OpenOptions::default().home(folder.path());
    /// let embedder = pteron::Embedder::open(model.as_path(), options)?;
    /// assert!(!embedder.scores());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scores(&self) -> bool {
        self.info.method == SCORE
    }

    /// The vector of each text. A text that is too long for the model is cut off.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::embedding(folder.path())?;
    /// # let options = pteron::OpenOptions::default().home(folder.path());
    /// let embedder = pteron::Embedder::open(model.as_path(), options)?;
    /// let vectors = embedder.embed(&["Why is the sky blue?"])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the model gives no vectors, or a run fails.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>> {
        if self.info.method != EMBED {
            return Err(Error::lacks(&self.name, Lack::Vectors));
        }
        texts.iter().map(|text| self.run(&self.tokens(text.as_ref())?, None)).collect()
    }

    /// Tokens that the model reads of a text.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::embedding(folder.path())?;
    /// # let options = pteron::OpenOptions::default().home(folder.path());
    /// let embedder = pteron::Embedder::open(model.as_path(), options)?;
    /// assert_eq!(embedder.count_tokens("abc")?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the tokenizer does not take the text.
    pub fn count_tokens(&self, text: &str) -> Result<usize> {
        Ok(self.tokens(text)?.len())
    }

    /// What a reranker says of each document beside a question: numbers, of which most models have one.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::embedding(folder.path())?;
    /// # let options = pteron::OpenOptions::default().home(folder.path());
    /// let embedder = pteron::Embedder::open(model.as_path(), options)?;
    /// assert!(embedder.score("a question", &["an answer"]).is_err(), "it gives vectors");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the model gives vectors, or a run fails.
    pub fn score<T: AsRef<str>>(&self, question: &str, documents: &[T]) -> Result<Vec<Vec<f32>>> {
        if self.info.method != SCORE {
            return Err(Error::lacks(&self.name, Lack::Scores));
        }
        documents.iter().map(|document| self.pair(question, document.as_ref())).collect()
    }

    /// The tokens of a text with those that the tokenizer puts around it, cut to what the model reads.
    fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let whole = self.tokenizer.encode(text, Ends::AsConfigured).map_err(LlmError::from)?;
        if whole.len() <= self.info.tokens {
            return Ok(whole);
        }
        let bare = self.tokenizer.encode(text, Ends::None).map_err(LlmError::from)?;
        let around = whole.len().saturating_sub(bare.len());
        let before = (0..=around).find(|&at| whole[at..].starts_with(&bare)).unwrap_or(0);
        let kept = self.info.tokens.saturating_sub(around);
        let mut cut = whole[..(before + kept).min(whole.len())].to_vec();
        cut.extend(&whole[before + bare.len()..]);
        cut.truncate(self.info.tokens);
        Ok(cut)
    }

    /// A question and a document in one text, as models of the family were trained: a mark between them, the first mark once.
    fn pair(&self, question: &str, document: &str) -> Result<Vec<f32>> {
        let mut tokens = self.tokens(question)?;
        let first = tokens.len();
        let mut second = self.tokens(document)?;
        match (self.has_kinds, second.first_mut(), tokens.last()) {
            (true, Some(_), _) => drop(second.remove(0)),
            // Models without kinds of tokens have two marks between the texts.
            (false, Some(begin), Some(&end)) => *begin = end,
            _ => {}
        }
        tokens.append(&mut second);
        tokens.truncate(self.info.tokens);
        let kinds = (0..tokens.len()).map(|at| i64::from(at >= first)).collect();
        self.run(&tokens, Some(kinds))
    }

    fn run(&self, tokens: &[u32], kinds: Option<Vec<i64>>) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::invalid("a text without tokens has no meaning to a model"));
        }
        let ids: Vec<i64> = tokens.iter().map(|&id| id.into()).collect();
        let shape = vec![1, ids.len()];
        let failed = |error| Error::from(pteron_runtime::Error::from(error));
        let mut inputs = vec![Value::Tensor(HostTensor::from_slice(shape.clone(), &ids).map_err(failed)?)];
        if self.has_kinds {
            let kinds = kinds.unwrap_or_else(|| vec![0; ids.len()]);
            inputs.push(Value::Tensor(HostTensor::from_slice(shape, &kinds).map_err(failed)?));
        }
        let outputs = self.program.session()?.run(&self.info.method, &inputs)?;
        let numbers = outputs.first().map(Value::to_tensor).transpose()?.flatten();
        let numbers = numbers.and_then(|tensor| Some(tensor.as_slice::<f32>().ok()?.to_vec()));
        numbers.ok_or_else(|| Error::lacks(&self.name, Lack::Vectors))
    }
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder").field("name", &self.name).finish_non_exhaustive()
    }
}

fn opened(found: &Located, options: &OpenOptions, runtime: &Options) -> Result<Embedder> {
    options.cancel.check()?;
    options.progress.tell(Event::Loading);
    let path = &*found.program;
    let pte = found.pte()?;
    let info = carried::encoder(path, &pte)?.ok_or_else(|| Error::lacks(&found.name, Lack::Vectors))?;
    let program = found.load(runtime)?;
    let has_kinds = program.method(&info.method)?.inputs.len() > 1;
    let tokenizer = match options.tokenizer.as_deref() {
        Some(path) => carried::tokenizer(path)?,
        None => {
            carried::voice(&pte, None)?.0.ok_or_else(|| Error::lacks(&found.name, Lack::Tokenizer))?.tokenizer
        }
    };
    Ok(Embedder { name: found.name.clone(), program, tokenizer, info, has_kinds })
}
