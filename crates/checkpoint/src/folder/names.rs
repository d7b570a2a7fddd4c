//! How a folder's files call the weights that architectures ask for: published models put the text model under
//! different prefixes, beside towers that no text needs.

use pteron_models::WeightError;
use pteron_models::architectures::Places;

use super::safetensors::Tensors;

/// Prefixes of the head.
const HEAD: [&str; 6] = [
    "lm_head.",
    "language_model.lm_head.",
    "model.lm_head.",
    "model.language_model.lm_head.",
    "embed_out.",
    "output_projection.",
];
/// A matrix is stored under one of these behind its module's name.
const MATRIX: [&str; 4] = ["weight", "_weight_qdata", "qweight", "weight_packed"];

/// What stands beside a text model, and the prefix that some files put before it.
const BESIDE: [&str; 5] =
    ["audio_tower.", "vision_tower.", "embed_vision.", "visual.", "multi_modal_projector."];
const BESIDE_PREFIX: &str = "model.";
/// A module that some files put around what is in the vision tower.
const TOWER: &str = "vision_tower.";
const INSIDE: &str = "vision_model.";

/// The prefixes of one checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Names {
    model: &'static str,
    beside: &'static str,
    /// What the modules of the vision tower are in.
    inside: &'static str,
    head: Option<&'static str>,
    embedding: &'static str,
}

impl Names {
    pub(super) fn of(tensors: &Tensors, places: &Places) -> Names {
        let has = |module: &str| MATRIX.iter().any(|part| tensors.get(&format!("{module}{part}")).is_some());
        let (prefixes, embedding) = (places.prefixes(), places.embedding());
        let model = prefixes.iter().find(|prefix| has(&format!("{prefix}{embedding}.")));
        let model = model.or(prefixes.first()).copied().unwrap_or_default();
        let is_beside = |name: &str| {
            let name = name.strip_prefix(BESIDE_PREFIX);
            name.is_some_and(|name| BESIDE.iter().any(|part| name.starts_with(part)))
        };
        let beside = if tensors.names().any(is_beside) { BESIDE_PREFIX } else { "" };
        let tower = format!("{beside}{TOWER}{INSIDE}");
        let inside = if tensors.names().any(|name| name.starts_with(&tower)) { INSIDE } else { "" };
        Names { model, beside, inside, head: HEAD.into_iter().find(|prefix| has(prefix)), embedding }
    }

    /// The name in the files.
    pub(super) fn stored(&self, name: &str) -> String {
        match (name.strip_prefix("model."), name.strip_prefix("lm_head.")) {
            (Some(rest), _) => format!("{}{rest}", self.model),
            (_, Some(rest)) => format!("{}{rest}", self.head.unwrap_or(HEAD[0])),
            _ if name.starts_with(TOWER) => {
                format!("{}{TOWER}{}{}", self.beside, self.inside, &name[TOWER.len()..])
            }
            _ if BESIDE.iter().any(|part| name.starts_with(part)) => format!("{}{name}", self.beside),
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
            let twin = format!("{}{}.{}", self.model, self.embedding, &name[head.len()..]);
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
