//! Which models there are, which of them are loaded, and what is known of one, as clients of Ollama ask for it.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::keep::{date, now};
use crate::models::{Loaded, Served};
use crate::pool::{Opened, Pool};
use crate::routes::model_name;
use serde_json::{Value, json};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// When a model goes that stays.
const NEVER: &str = "2999-12-31T00:00:00Z";

/// What is told of a model that was loaded or dropped.
pub(crate) fn loaded(name: &str, reason: &str) -> Value {
    let message = json!({"role": "assistant", "content": ""});
    json!({
        "model": name, "created_at": now(), "message": message, "response": "", "done": true,
        "done_reason": reason,
    })
}

pub(crate) fn version() -> Value {
    json!({"version": env!("CARGO_PKG_VERSION")})
}

/// All models.
pub(crate) fn tags(pool: &Pool) -> Value {
    let models: Vec<Value> = pool.list().iter().map(listed).collect();
    json!({"models": models})
}

fn listed(served: &Served) -> Value {
    json!({
        "name": served.name, "model": served.name, "modified_at": date(served.created, 0),
        "size": served.size.unwrap_or(0), "digest": "", "details": details(),
    })
}

fn details() -> Value {
    json!({
        "parent_model": "", "format": "pte", "family": "", "families": [], "parameter_size": "",
        "quantization_level": "",
    })
}

/// Models that are loaded.
pub(crate) fn running(pool: &Pool) -> Value {
    let one = |opened: &Opened| {
        let (bytes, context) = match &opened.loaded {
            Loaded::Talks(model) => (model.bytes, model.handle.context()),
            Loaded::Hears(model) => (model.bytes(), None),
            Loaded::Embeds(model) => (model.bytes(), None),
        };
        let left = opened.expires.map(|end| end.saturating_duration_since(Instant::now()));
        let expires = left.map_or(NEVER.to_owned(), |left| {
            let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(left);
            date(end.as_secs(), end.subsec_nanos())
        });
        json!({
            "name": opened.name, "model": opened.name, "size": bytes, "digest": "", "details": details(),
            "expires_at": expires, "size_vram": 0, "context_length": context,
        })
    };
    json!({"models": pool.opened().iter().map(one).collect::<Vec<_>>()})
}

/// What is known of a model; of one that is not loaded, little: it is not loaded for this.
pub(crate) fn show(mut fields: Fields, pool: &Pool) -> Result<Value, ApiError> {
    let given = match fields.text("model")? {
        Some(name) => Some(name),
        // As the interface called it once.
        None => fields.text("name")?,
    };
    let name = model_name(pool, given)?;
    fields.truth("verbose")?;
    fields.end()?;
    let served = pool.find(&name).ok_or_else(|| ApiError::unknown_model(&name))?;
    let opened = pool.opened().into_iter().find(|opened| opened.name == served.name);
    let mut about = json!({"general.architecture": "pteron", "general.basename": served.name});
    let mut capabilities = vec!["completion"];
    let mut parameters = String::new();
    match opened.map(|opened| opened.loaded) {
        Some(Loaded::Talks(model)) => {
            about["pteron.context_length"] = json!(model.handle.context());
            capabilities.extend(model.tools.map(|_| "tools"));
            capabilities.extend(model.thinks.then_some("thinking"));
            capabilities.extend(model.voice.eyes.is_some().then_some("vision"));
            let sampling = &model.sampling;
            parameters = format!(
                "temperature {}\ntop_k {}\ntop_p {}\nmin_p {}\nrepeat_penalty {}",
                sampling.temperature,
                sampling.top_k,
                sampling.top_p,
                sampling.min_p,
                sampling.repetition_penalty
            );
        }
        Some(Loaded::Hears(_)) => capabilities = vec!["audio"],
        Some(Loaded::Embeds(_)) => capabilities = vec!["embedding"],
        None => {}
    }
    Ok(json!({
        "modelfile": format!("FROM {}\n", served.name), "parameters": parameters, "template": "{{ .Prompt }}",
        "details": details(), "model_info": about, "capabilities": capabilities,
        "modified_at": date(served.created, 0),
    }))
}
