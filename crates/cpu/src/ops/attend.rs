//! Keys and values into the session's cache, and attention over what it holds. The tokens of a flat batch are those of several
//! sessions: each has a cache of its own, and its queries see nothing of the others.

use super::attention::most_sizes;
use super::lowering::{Compiled, Numbered, Planner};
use crate::cache::{Cache, Caches, SpanCache, Written};
use crate::fault::{invalid, of_run};
use crate::run::Run;
use pteron_ir::{Op, ValueId};
use pteron_kernels::attention::{Attention, Mask, attention, scratch_bytes};
use pteron_kernels::index::integer_at;
use pteron_kernels::path::Path;
use pteron_kernels::view::{View, ViewMut};
use pteron_runtime::{Error, NodeError};
use pteron_tensor::DType;
use std::ops::Range;

/// An op over the cache.
struct Attending {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    position: ValueId,
    result: ValueId,
    layer: usize,
    scale: f32,
    path: Path,
    scratch: usize,
}

pub(super) fn update_and_attend(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::UpdateAndAttend { q, k, v, position, layer_id, scale, .. } = node.node.op else { return None };
    let &result = node.node.results.first()?;
    let (layer, scale) = (usize::try_from(layer_id?).ok()?, scale?);
    // Keys are as many as the session's cache holds, which no plan knows; scratch does not grow with them.
    let sizes = most_sizes(planner, q, k, v)?;
    let scratch = planner.reserve(node.number, scratch_bytes(&sizes, planner.lower.threads));
    let path = planner.lower.path;
    let attending = Attending { q, k, v, position, result, layer, scale, path, scratch };
    Some(Compiled::Compute(Box::new(move |run| {
        let mut caches = run.caches.take();
        let attended = attending.run(run, &mut caches);
        run.caches = caches;
        attended
    })))
}

impl Attending {
    fn run(&self, run: &Run<'_>, caches: &mut Caches<'_>) -> Result<(), NodeError> {
        let length = run.view(self.k)?.sizes().get(2).copied().unwrap_or(0);
        let spans = match caches {
            Caches::One(cache) => return self.rows(run, cache, 0..length),
            Caches::Several(spans) => spans,
            Caches::None => {
                return Err(invalid(
                    "the program keeps keys and values in a cache of the session, and its metadata do not say how \
                     long that is: open the session with a context or a cache",
                ));
            }
        };
        let together = spans.iter().fold(0usize, |sum, span| sum.saturating_add(span.tokens));
        if together != length {
            return Err(invalid(format!("{length} tokens, {together} of them in the batch")));
        }
        let mut from = 0;
        for (span, SpanCache { cache, tokens, control }) in spans.iter_mut().enumerate() {
            let rows = from..from + *tokens;
            from = rows.end;
            let attended = control.check().map_err(of_run).and_then(|()| self.rows(run, cache, rows));
            attended.map_err(|error| {
                let source = match error {
                    NodeError::Run(error) => error,
                    other => Box::new(Error::Invalid(other.to_string())),
                };
                of_run(Error::Span { span, source })
            })?;
        }
        Ok(())
    }

    /// The tokens of one session.
    fn rows(&self, run: &Run<'_>, cache: &mut Cache, rows: Range<usize>) -> Result<(), NodeError> {
        let (start, is_ahead) = start_of(&run.view(self.position)?, rows.clone())?;
        let (q, k, v) = (run.view(self.q)?, run.view(self.k)?, run.view(self.v)?);
        let (queries, keys, values) = (part(&q, &rows)?, part(&k, &rows)?, part(&v, &rows)?);
        if q.sizes()[2] != k.sizes()[2] || v.sizes()[2] != k.sizes()[2] {
            return Err(invalid(format!("queries {:?} over {} new keys", q.sizes(), k.sizes()[2])));
        }
        let written = Written { keys: cut(&k, &rows, &keys), values: cut(&v, &rows, &values) };
        let live = cache.write(run.pool, self.layer, start, &written)?;
        let q = cut(&q, &rows, &queries);
        let (&[_, heads, _, features], &[_, shared, _, wide]) = (&queries, live.keys().sizes()) else {
            return Err(invalid(format!("queries {queries:?} of a cache")));
        };
        if features != wide || shared == 0 || heads % shared != 0 {
            return Err(invalid(format!("queries {queries:?} over {shared} heads of {wide} features")));
        }
        if q.is_empty() {
            // Nothing is asked, and a cache that nothing was written to has no page to look at.
            return Ok(());
        }
        let work = (q.len() as u64).saturating_mul(live.ring.live as u64).saturating_mul(2);
        run.control.charge(work).map_err(of_run)?;
        let (k, v, ring, pages) = (live.keys(), live.values(), Some(live.ring), Some(live.pages()));
        let (tokens, keys) = (queries[2], live.ring.live);
        let seen = is_ahead.then(|| behind(tokens, keys, live.window));
        let (sizes, strides) = ([1, heads, tokens, keys], [0, 0, keys as isize, 1]);
        let mask = match &seen {
            None => Mask::Causal { window: live.window },
            // No query has left any key behind.
            Some(None) => Mask::None,
            // The same for all heads.
            Some(Some(seen)) => match View::new(seen, DType::Bool, 0, &sizes, &strides) {
                Some(seen) => Mask::Tensor(seen),
                None => return Err(invalid(format!("{tokens} tokens that see {keys} keys"))),
            },
        };
        let job = Attention { q, k, v, scale: self.scale, mask, ring, pages };
        let target = run.target(self.result)?;
        let mut sizes =
            <[usize; 4]>::try_from(target.sizes()).map_err(|_| invalid("a result without tokens"))?;
        if sizes[2] < rows.end {
            return Err(invalid(format!("a result {sizes:?} for tokens up to {}", rows.end)));
        }
        sizes[2] = rows.len();
        let offset = target.strides()[2] * rows.start as isize * target.dtype().size() as isize;
        // SAFETY: the rows of these tokens, a part of the result.
        let mut target = unsafe {
            ViewMut::from_raw(target.data().wrapping_offset(offset), target.dtype(), &sizes, target.strides())
        };
        attention(run.pool, self.path, &mut target, &job, &mut run.lend(self.scratch)?);
        Ok(())
    }
}

/// Which keys the window of each query has not left behind, where it has left any; the last query is that of the last key.
fn behind(queries: usize, keys: usize, window: Option<usize>) -> Option<Vec<u8>> {
    let window = window.filter(|&window| window < keys)?;
    let first = |query: usize| (keys + query + 1).saturating_sub(queries + window);
    let row = |query: usize| (0..keys).map(move |key| u8::from(key >= first(query)));
    Some((0..queries).flat_map(row).collect())
}

/// The sizes of some tokens' part of `[1, heads, T, features]`.
fn part(view: &View<'_>, rows: &Range<usize>) -> Result<[usize; 4], NodeError> {
    match <[usize; 4]>::try_from(view.sizes()) {
        Ok(mut sizes) if rows.end <= sizes[2] => {
            sizes[2] = rows.len();
            Ok(sizes)
        }
        _ => Err(invalid(format!("{:?} for tokens up to {}", view.sizes(), rows.end))),
    }
}

/// That part, by the sizes that [`part`] has found.
fn cut<'v>(view: &View<'v>, rows: &Range<usize>, sizes: &'v [usize; 4]) -> View<'v> {
    let offset = view.strides()[2] * rows.start as isize * view.dtype().size() as isize;
    // SAFETY: `part` has seen that these tokens are a part of the view.
    unsafe { View::from_raw(view.data().wrapping_offset(offset), view.dtype(), sizes, view.strides()) }
}

/// The position of the first of these tokens, and whether they see those behind them. Where each has one, they follow each
/// other: a text has no gaps inside a call.
fn start_of(positions: &View<'_>, tokens: Range<usize>) -> Result<(i64, bool), NodeError> {
    let count = positions.len();
    let get = |at: usize| {
        integer_at(positions, at).ok_or_else(|| invalid(format!("no position in {:?}", positions.sizes())))
    };
    if positions.sizes() == [2, 1] {
        let (first, last) = (get(0)?, get(1)?);
        return match tokens.start == 0 && first.checked_add(tokens.len() as i64 - 1) == Some(last) {
            true => Ok((first, true)),
            false => Err(invalid(format!("{} tokens at {first} see up to {last}", tokens.len()))),
        };
    }
    // One position is that of the first of all tokens.
    if count == 1 && tokens.start == 0 || tokens.is_empty() {
        return Ok((get(0)?, false));
    }
    if tokens.end > count {
        return Err(invalid(format!("{count} positions for {} tokens", tokens.end)));
    }
    let start = get(tokens.start)?;
    for (at, token) in tokens.enumerate() {
        let position = get(token)?;
        if start.checked_add(at as i64) != Some(position) {
            return Err(invalid(format!(
                "position {position} is that of token {at} of a text that begins at {start}: positions of a call follow \
                 each other"
            )));
        }
    }
    Ok((start, false))
}
