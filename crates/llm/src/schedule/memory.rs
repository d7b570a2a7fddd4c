//! What an answer will take, before it is begun: memory is set aside for its whole length, so that no answer is given up
//! half-way because another one grew.

use crate::LanguageModel;
use pteron_runtime::CacheSpec;

/// Positions of an off-graph cache that are allocated at once.
const PAGE: usize = 64;
/// Bytes of a number in an off-graph cache whose type nothing says.
const WIDEST: usize = 4;

/// Bytes of caches that answers to one prompt take at most. Off-graph caches share the prompt.
pub(super) fn answer_bytes(model: &LanguageModel, prompt: usize, budget: usize, answers: usize) -> u64 {
    let program = model.program();
    let buffers = program.state_bytes().saturating_mul(answers as u64);
    let Some(spec) = program.cache_spec().filter(|_| program.needs_cache()) else { return buffers };
    let own = budget.saturating_add(PAGE);
    let positions = prompt.saturating_add(own.saturating_mul(answers)).saturating_add(PAGE);
    buffers.saturating_add(cache_bytes(spec, positions, answers))
}

/// Bytes of so many positions. Layers that slide hold no more than their window, but each session its own.
fn cache_bytes(spec: &CacheSpec, positions: usize, sessions: usize) -> u64 {
    let number = spec.dtype.map_or(WIDEST, |dtype| dtype.size());
    let layers = spec.layers.iter().map(|layer| {
        let (slots, _) = layer.extent(spec);
        let held = match layer.window {
            Some(_) => slots.saturating_add(PAGE).saturating_mul(sessions).min(positions),
            None => positions,
        };
        let row = layer.kv_heads.saturating_mul(layer.head_dim).saturating_mul(2 * number);
        row.saturating_mul(held) as u64
    });
    layers.fold(0, u64::saturating_add)
}
