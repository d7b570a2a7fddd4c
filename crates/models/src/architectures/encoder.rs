//! Models that read a text as a whole and make one vector of it (embeddings), or one number of a pair of texts (rerankers).

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;
use serde_json::Value;

use super::decoder::{BERT, Decoder, MODERNBERT, ROBERTA, Row};
use super::{Architecture, Encodes, Facts, Places};
use crate::blocks::{bias, linear, matrix, unweighted_norm};
use crate::{Config, ConfigError, ModelError, Net};

/// An encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    body: Decoder,
    /// Whether what leaves the last layer is normed.
    normed: bool,
    task: Task,
}

/// What an encoder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// One vector of a text.
    Embed {
        /// How the vectors of tokens become one.
        pooling: Pooling,
        /// Whether its length is one.
        normalised: bool,
    },
    /// Numbers for a pair of texts, so many.
    Score(usize, ScoreHead),
}

/// How the vectors of tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first.
    First,
    /// The last.
    Last,
}

/// Where files keep the layers behind the first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScoreHead {
    /// A pooler that is part of the model, and a classifier.
    Pooler,
    /// Both in the classifier.
    Classifier,
}

/// The method of models that give vectors, and of those that give numbers.
const EMBED: &str = "embed";
const SCORE: &str = "score";
/// Added to the mean square of a vector before it is divided by its length: nothing, but for a vector of zeros.
const TINY: f32 = 1e-30;

impl Encoder {
    /// The encoder of a row that a configuration describes.
    fn read(row: &Row, config: &Config, head: Option<ScoreHead>) -> Result<Encoder, ConfigError> {
        let body = row.read(config)?;
        let scores = config.classes().iter().any(|class| class.ends_with("ForSequenceClassification"));
        let task = match (scores, head) {
            (true, Some(head)) => Task::Score(labels(config)?, head),
            (true, None) => {
                return Err(ConfigError("classifiers of this family are not supported".into()));
            }
            (false, _) => {
                Task::Embed { pooling: pooling(config)?, normalised: config.flag(NORMALISED, false)? }
            }
        };
        Ok(Encoder { normed: body.head.norm, body, task })
    }

    pub(super) fn bert(config: &Config) -> Result<Encoder, ConfigError> {
        Encoder::read(&BERT, config, Some(ScoreHead::Pooler))
    }

    pub(super) fn roberta(config: &Config) -> Result<Encoder, ConfigError> {
        Encoder::read(&ROBERTA, config, Some(ScoreHead::Classifier))
    }

    pub(super) fn modernbert(config: &Config) -> Result<Encoder, ConfigError> {
        Encoder::read(&MODERNBERT, config, None)
    }

    fn has_kinds(&self) -> bool {
        self.body.embedding.kinds.is_some_and(|kinds| kinds > 1)
    }
}

/// The key under which a folder says how vectors of tokens become one; it has files of its own for that.
pub const POOLING: &str = "sentence_pooling";
/// The key under which it says that vectors have the length one.
pub const NORMALISED: &str = "sentence_normalised";

fn pooling(config: &Config) -> Result<Pooling, ConfigError> {
    match config.get(POOLING).map(|value| value.as_str().unwrap_or_default()) {
        None | Some("mean") => Ok(Pooling::Mean),
        Some("cls") => Ok(Pooling::First),
        Some("lasttoken") => Ok(Pooling::Last),
        Some(other) => Err(ConfigError(format!("pooling by {other:?} is not supported"))),
    }
}

/// How many numbers a classifier gives.
fn labels(config: &Config) -> Result<usize, ConfigError> {
    match config.get("id2label").and_then(Value::as_object) {
        Some(labels) if !labels.is_empty() => Ok(labels.len()),
        _ => config.size("num_labels", Some(2)),
    }
}

impl Architecture for Encoder {
    fn facts(&self) -> Facts {
        self.body.facts()
    }

    fn build(&self, _: &mut Net) -> Result<ValueId, ModelError> {
        Err(ModelError::configuration("an encoder writes no text"))
    }

    fn parts(&self) -> Vec<&'static str> {
        match self.task {
            Task::Embed { .. } => vec![EMBED],
            Task::Score(..) => vec![SCORE],
        }
    }

    fn build_part(&self, _: &str, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        net.read_whole(self.has_kinds())?;
        let (_, mut x) = self.body.states(net)?;
        if self.normed {
            x = self.body.norm_of("model.norm.weight".to_owned()).apply(net, x)?;
        }
        net.enter("head");
        match self.task {
            Task::Embed { pooling, normalised } => {
                let pooled = match pooling {
                    Pooling::Mean => {
                        let x = net.cast(x, DType::F32)?;
                        net.op(Op::Mean { x, axes: Some(vec![1]), keepdims: false })?
                    }
                    Pooling::First => net.pick(x, 0, 1)?,
                    Pooling::Last => net.pick(x, -1, 1)?,
                };
                let mut vector = net.cast(pooled, DType::F32)?;
                if normalised {
                    vector = unweighted_norm(net, vector, TINY)?;
                    vector = net.scaled(vector, (self.body.hidden_size as f32).powf(-0.5))?;
                }
                Ok(vec![("embedding".to_owned(), vector)])
            }
            Task::Score(labels, head) => {
                let hidden = self.body.hidden_size;
                let first = net.pick(x, 0, 1)?;
                let (inner, outer) = match head {
                    ScoreHead::Pooler => ("model.pooler", "classifier"),
                    ScoreHead::Classifier => ("classifier.dense", "classifier.out_proj"),
                };
                let weight = matrix(net, &format!("{inner}.weight"), hidden, hidden)?;
                let of_bias = bias(net, &format!("{inner}.bias"), hidden)?;
                let x = linear(net, first, weight, Some(of_bias))?;
                let x = net.op(Op::Tanh { x })?;
                let weight = matrix(net, &format!("{outer}.weight"), labels, hidden)?;
                let of_bias = bias(net, &format!("{outer}.bias"), labels)?;
                let x = linear(net, x, weight, Some(of_bias))?;
                Ok(vec![("scores".to_owned(), net.cast(x, DType::F32)?)])
            }
        }
    }

    fn places(&self) -> Places {
        self.body.places()
    }

    fn encodes(&self) -> Option<Encodes> {
        Some(match self.task {
            Task::Embed { .. } => Encodes { method: EMBED, numbers: self.body.hidden_size },
            Task::Score(labels, _) => Encodes { method: SCORE, numbers: labels },
        })
    }

    fn spare(&self) -> Vec<String> {
        // Models that are published with a head for masks, or a pooler, give their vectors without them.
        let spare = ["model.pooler.weight", "model.pooler.bias", "model.embeddings.position_ids"];
        spare.map(str::to_owned).to_vec()
    }
}
