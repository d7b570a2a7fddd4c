//! How a folder's files call the weights that architectures ask for: published models put the text model under
//! different prefixes, beside towers that no text needs.

use pteron_models::WeightError;

use super::safetensors::Tensors;

/// Prefixes of the text model, the likeliest first.
const MODEL: [&str; 6] =
    ["model.", "model.language_model.", "language_model.model.", "model.text_model.", "language_model.", ""];
/// Prefixes of the head.
const HEAD: [&str; 4] =
    ["lm_head.", "language_model.lm_head.", "model.lm_head.", "model.language_model.lm_head."];
/// A matrix is stored under one of these behind its module's name.
const MATRIX: [&str; 2] = ["weight", "_weight_qdata"];

/// The prefixes of one checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Names {
    model: &'static str,
    head: Option<&'static str>,
}

impl Names {
    pub(super) fn of(tensors: &Tensors) -> Names {
        let has = |module: &str| MATRIX.iter().any(|part| tensors.get(&format!("{module}{part}")).is_some());
        let model = MODEL.into_iter().find(|prefix| has(&format!("{prefix}embed_tokens.")));
        Names { model: model.unwrap_or(MODEL[0]), head: HEAD.into_iter().find(|prefix| has(prefix)) }
    }

    /// The name in the files.
    pub(super) fn stored(&self, name: &str) -> String {
        match (name.strip_prefix("model."), name.strip_prefix("lm_head.")) {
            (Some(rest), _) => format!("{}{rest}", self.model),
            (_, Some(rest)) => format!("{}{rest}", self.head.unwrap_or(HEAD[0])),
            _ => name.to_owned(),
        }
    }

    /// Whether a name in the files is one of the head's.
    pub(super) fn is_head(&self, stored: &str) -> bool {
        self.head.is_some_and(|head| stored.starts_with(head))
    }

    /// What the files hold as the head. Some hold one although the configuration says that it is tied; where it
    /// differs from the embedding, it is the one that is meant.
    pub(super) fn head(&self, tensors: &Tensors) -> Result<Head, WeightError> {
        let Some(head) = self.head else { return Ok(Head::Absent) };
        for name in tensors.names().filter(|name| name.starts_with(head)) {
            let twin = format!("{}embed_tokens.{}", self.model, &name[head.len()..]);
            match (tensors.get(name), tensors.get(&twin)) {
                (Some(a), Some(b)) if tensors.same((name, a), (&twin, b))? => {}
                _ => return Ok(Head::Own),
            }
        }
        Ok(Head::Copy)
    }
}

/// The head in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// None.
    Absent,
    /// The embedding again.
    Copy,
    /// One of its own.
    Own,
}
