//! `/v1/embeddings` and `/api/embed`: texts become vectors, as OpenAI's and Ollama's interfaces have them.

use crate::connection;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::Loaded;
use crate::routes::{Reply, aside, json_reply, model_name, open};
use crate::server::Shared;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// Texts of one request.
const MOST_TEXTS: usize = 2048;

/// A model that makes vectors of texts.
pub trait Embeds: Send + Sync {
    /// Bytes that it holds.
    fn bytes(&self) -> u64;

    /// The vector of each text, and how many tokens were read.
    ///
    /// # Errors
    /// When the model fails, in words for whoever asked.
    fn embed(&self, texts: &[String]) -> Result<(Vec<Vec<f32>>, usize), String>;
}

/// Whose words are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    OpenAi,
    Ollama,
}

/// What was asked for.
struct Asked {
    texts: Vec<String>,
    /// Whether vectors are bytes in base64.
    packed: bool,
    dimensions: Option<usize>,
}

impl Asked {
    fn read(mut fields: Fields, wire: Wire) -> Result<Asked, ApiError> {
        let texts = match fields.take("input") {
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(list)) => {
                let texts = list.into_iter().map(|value| match value {
                    Value::String(text) => Ok(text),
                    _ => Err(ApiError::parameter(
                        "input",
                        "`input` must be a text, or a list of texts; tokens are not taken",
                    )),
                });
                texts.collect::<Result<_, _>>()?
            }
            _ => return Err(ApiError::parameter("input", "`input` must be a text, or a list of texts")),
        };
        if texts.is_empty() || texts.len() > MOST_TEXTS {
            let message = format!("`input` has {} texts; 1 to {MOST_TEXTS} are taken", texts.len());
            return Err(ApiError::parameter("input", message));
        }
        if texts.iter().any(String::is_empty) {
            return Err(ApiError::parameter("input", "`input` has a text without a character"));
        }
        let packed = match fields.text("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => {
                return Err(ApiError::parameter("encoding_format", "`encoding_format` is float or base64"));
            }
        };
        let dimensions = fields.count("dimensions")?;
        match wire {
            Wire::OpenAi => fields.ignore(&["user"]),
            Wire::Ollama => {
                if fields.truth("truncate")? == Some(false) {
                    return Err(ApiError::unsupported(
                        "truncate",
                        "texts that are too long are always cut off",
                    ));
                }
                fields.ignore(&["options", "keep_alive"]);
            }
        }
        fields.end()?;
        Ok(Asked { texts, packed, dimensions })
    }
}

/// Answers with the vectors of the texts.
pub(crate) async fn embeddings(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    wire: Wire,
) -> Result<Reply, ApiError> {
    let mut fields = connection::fields(request, shared).await?;
    let name = model_name(&shared.pool, fields.text("model")?)?;
    let known = shared.pool.find(&name).ok_or_else(|| ApiError::unknown_model(&name))?.name;
    let held = open(shared, &known, None).await?;
    let Loaded::Embeds(model) = held.loaded.clone() else {
        // Not a wrong request: clients that look for what there is take it for nothing.
        let message = format!("the model {known} gives no embeddings");
        return Err(ApiError::new(StatusCode::NOT_FOUND, message).at("model").code("no_embeddings"));
    };
    let asked = Asked::read(fields, wire)?;
    let work = aside(move || {
        let made = model.embed(&asked.texts).map_err(ApiError::internal);
        drop(held);
        let (mut vectors, tokens) = made?;
        if let Some(wanted) = asked.dimensions {
            for vector in &mut vectors {
                shorten(vector, wanted)?;
            }
        }
        Ok(match wire {
            Wire::OpenAi => {
                let data: Vec<Value> = vectors.iter().enumerate().map(|(index, vector)| {
                    json!({"object": "embedding", "index": index, "embedding": shown(vector, asked.packed)})
                }).collect();
                let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
                json_reply(&json!({"object": "list", "data": data, "model": known, "usage": usage}))
            }
            Wire::Ollama => {
                json_reply(&json!({"model": known, "embeddings": vectors, "prompt_eval_count": tokens}))
            }
        })
    });
    match tokio::time::timeout(shared.options.to_answer, work).await {
        Ok(made) => made,
        Err(_) => Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "the texts took too long to be read")),
    }
}

/// A vector of the first few numbers, of length one again.
fn shorten(vector: &mut Vec<f32>, wanted: usize) -> Result<(), ApiError> {
    if wanted == 0 || wanted > vector.len() {
        let message = format!("`dimensions` is {wanted}; the model gives {}", vector.len());
        return Err(ApiError::parameter("dimensions", message));
    }
    vector.truncate(wanted);
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number /= length);
    }
    Ok(())
}

fn shown(vector: &[f32], packed: bool) -> Value {
    match packed {
        true => {
            STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()).into()
        }
        false => json!(vector),
    }
}
