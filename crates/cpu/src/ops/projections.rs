//! Products of one tensor with several quantised weights, in one parallel region.

use super::lowering::{Compiled, Numbered, Planner};
use super::quantized::{
    Fields, bound, even_rows, is_one_matrix, list_sources, list_targets, most_rows, prepared_input, rows_of,
};
use crate::batch::Pieces;
use crate::constants::Bound;
use crate::fault::invalid;
use crate::joint::Joint;
use crate::run::Run;
use pteron_ir::{Op, ValueId};
use pteron_kernels::pool::Pool;
use pteron_kernels::quant::{Joined, LinearError, MOST_JOINED, Rows, RowsMut, run_joined};
use pteron_runtime::NodeError;
use pteron_tensor::DType;
use std::sync::Arc;

/// One of the weights, bound to its kernel.
pub(super) struct Part {
    pub(super) linear: Bound,
    /// Where the activations lie in the form that it wants, and whether this node brings them into it.
    prepared: usize,
    prepares: bool,
}

/// All weights of a node and the tensor that they multiply.
pub(super) struct Parts {
    pub(super) x: ValueId,
    pub(super) parts: Vec<Part>,
    /// Room for rows of the tensor that do not lie evenly.
    pub(super) dense: usize,
}

impl Parts {
    pub(super) fn plan(
        planner: &mut Planner<'_>,
        node: &Numbered,
        x: ValueId,
        fields: &[Fields<'_>],
    ) -> Option<Parts> {
        if fields.is_empty() || fields.len() > MOST_JOINED {
            return None;
        }
        let dtype = planner.dtype(x)?;
        let linears = fields
            .iter()
            .map(|&fields| bound(planner, fields, dtype).filter(is_one_matrix))
            .collect::<Option<Vec<_>>>()?;
        let k = linears[0].alone.weight().k();
        if linears.iter().any(|linear| linear.alone.weight().k() != k) {
            return None;
        }
        let rows = planner.most_elements(x)? / k.max(1);
        let dense = planner.reserve(node.number, planner.types.most_bytes(x)?);
        let mut parts: Vec<Part> = Vec::with_capacity(linears.len());
        for linear in linears {
            let layout = linear.alone.input_layout();
            let same = parts.iter().find(|part| part.linear.alone.input_layout() == layout);
            let (prepared, prepares) = match same {
                Some(part) => (part.prepared, false),
                None => prepared_input(planner, node, x, &linear.alone, rows),
            };
            parts.push(Part { linear, prepared, prepares });
        }
        planner.lower.bound.insert(node.number);
        Some(Parts { x, parts, dense })
    }

    /// Brings the tensor into the forms that the weights want, `all` of them or those that no earlier node has made.
    pub(super) fn prepare(&self, run: &Run<'_>, all: bool) -> Result<(), NodeError> {
        for (at, part) in self.parts.iter().enumerate() {
            if !(part.prepares || all && self.like(at) == at) {
                continue;
            }
            let (mut prepared, mut dense) = (run.lend(part.prepared)?, run.lend(self.dense)?);
            let source = even_rows(run, self.x, part.linear.alone.weight().k(), &mut dense)?.rows()?;
            let done = part.linear.alone.prepare_input(run.pool, source, &mut prepared);
            done.map_err(|error| invalid(error.to_string()))?;
        }
        Ok(())
    }

    /// The first part that wants activations in the same form, itself perhaps.
    fn like(&self, at: usize) -> usize {
        let layout = self.parts[at].linear.alone.input_layout();
        self.parts.iter().position(|part| part.linear.alone.input_layout() == layout).unwrap_or(at)
    }

    /// Bytes of so many rows in the form that a part wants; none where an earlier part has the same.
    pub(super) fn prepared_bytes(&self, at: usize, rows: usize) -> usize {
        if self.like(at) == at { self.parts[at].linear.together.input_bytes(rows) } else { 0 }
    }

    /// The rows of several lanes in all forms that the parts want, by part.
    pub(super) fn prepare_together<'b>(
        &self,
        pool: &Pool,
        sources: &[*mut u8],
        dtype: DType,
        pieces: &mut Pieces<'b>,
    ) -> Result<[&'b [u8]; MOST_JOINED], LinearError> {
        let mut prepared: [&'b [u8]; MOST_JOINED] = [&[]; MOST_JOINED];
        for (at, part) in self.parts.iter().enumerate() {
            let like = self.like(at);
            if like < at {
                prepared[at] = prepared[like];
                continue;
            }
            let piece = pieces.next(self.prepared_bytes(at, sources.len()));
            // SAFETY: rows of the lanes' own values, which nobody writes while the step runs.
            let rows = unsafe { Rows::listed(sources, dtype, part.linear.together.weight().k())? };
            part.linear.together.prepare_input(pool, rows, piece)?;
            prepared[at] = piece;
        }
        Ok(prepared)
    }

    /// One product, after [`Parts::prepare`].
    pub(super) fn joined<'r>(&'r self, run: &'r Run<'_>, at: usize, out: RowsMut<'r>) -> Joined<'r> {
        let part = &self.parts[at];
        let (data, bytes) = run.scratch(part.prepared);
        let prepared = match data.is_null() || bytes == 0 {
            true => &[][..],
            // SAFETY: the arena holds these bytes, and nobody writes them before the node has run.
            false => unsafe { std::slice::from_raw_parts(data, bytes) },
        };
        Joined { linear: &part.linear.alone, prepared, out }
    }

    pub(super) fn columns(&self, at: usize) -> usize {
        self.parts[at].linear.alone.weight().n()
    }

    pub(super) fn inner(&self) -> usize {
        self.parts[0].linear.alone.weight().k()
    }

    /// The most rows of several lanes that are taken together.
    pub(super) fn most_rows(&self, lanes: &Joint<'_, '_>) -> usize {
        most_rows(lanes, |run| self.rows(run), self.parts.iter().map(|part| &part.linear))
    }

    /// Rows of the tensor in a run.
    pub(super) fn rows(&self, run: &Run<'_>) -> usize {
        run.slot(self.x).layout.len() / self.inner().max(1)
    }
}

pub(super) fn projections(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::Projections { x, w, scales, biases, group_size, bits, mode } = &node.node.op else { return None };
    let fields = fields_of((w, scales, biases), *group_size, *bits, mode)?;
    let parts = Parts::plan(planner, node, *x, &fields)?;
    let results = node.node.results.clone();
    if results.len() != parts.parts.len() {
        return None;
    }
    let projections = Arc::new(Projections { parts, results });
    let joint = projections.clone();
    Some(Compiled::Joint(
        Box::new(move |run| projections.alone(run, false)),
        Box::new(move |lanes| joint.together(lanes)),
    ))
}

/// Products with several weights, each with a result of its own.
struct Projections {
    parts: Parts,
    results: Vec<ValueId>,
}

impl Projections {
    fn alone(&self, run: &Run<'_>, all: bool) -> Result<(), NodeError> {
        let Projections { parts, results } = self;
        if results.iter().all(|&result| run.slot(result).layout.is_empty()) {
            return Ok(());
        }
        parts.prepare(run, all)?;
        let mut joined = [const { None }; MOST_JOINED];
        for (at, (&result, joined)) in results.iter().zip(&mut joined).enumerate() {
            *joined = Some(parts.joined(run, at, rows_of(run, result, parts.columns(at))?));
        }
        run_joined(run.pool, joined.into_iter().flatten()).map_err(|error| invalid(error.to_string()))
    }

    fn together(&self, lanes: &mut Joint<'_, '_>) -> Result<(), NodeError> {
        let Projections { parts, results } = self;
        let most = parts.most_rows(lanes);
        lanes.by_rows(
            most,
            |run| parts.rows(run),
            |part, batch| {
                if let Some(run) = part.only() {
                    return self.alone(run, true);
                }
                let (pool, rows) = (part.first().pool, part.rows);
                let bytes = (0..parts.parts.len()).map(|at| parts.prepared_bytes(at, rows));
                let (sources, targets, mut pieces) = batch.begin(bytes);
                for run in part.runs() {
                    list_sources(run, parts.x, parts.inner(), parts.dense, sources)?;
                }
                for (at, &result) in results.iter().enumerate() {
                    part.runs().try_for_each(|run| list_targets(run, result, parts.columns(at), targets))?;
                }
                let dtype = part.first().dtype(parts.x)?;
                let prepared = parts.prepare_together(pool, sources, dtype, &mut pieces);
                let prepared = prepared.map_err(|error| invalid(error.to_string()))?;
                let mut joined = [const { None }; MOST_JOINED];
                for (at, (&result, joined)) in results.iter().zip(&mut joined).enumerate() {
                    let own =
                        targets.get(at * rows..(at + 1) * rows).ok_or_else(|| invalid("rows are missing"))?;
                    // SAFETY: rows of the lanes' own results, which only this step touches.
                    let out = unsafe { RowsMut::listed(own, part.first().dtype(result)?, parts.columns(at)) };
                    let out = out.map_err(|error| invalid(error.to_string()))?;
                    *joined = Some(Joined {
                        linear: &parts.parts[at].linear.together,
                        prepared: prepared[at],
                        out,
                    });
                }
                run_joined(pool, joined.into_iter().flatten()).map_err(|error| invalid(error.to_string()))
            },
        )
    }
}

/// The weights of a node, one by one.
pub(super) fn fields_of<'a>(
    (w, scales, biases): (&[ValueId], &[ValueId], &[ValueId]),
    group_size: i32,
    bits: i32,
    mode: &'a str,
) -> Option<Vec<Fields<'a>>> {
    let fits = w.len() == scales.len() && (biases.is_empty() || biases.len() == w.len());
    let fields = |at: usize| Fields {
        w: w[at],
        scales: scales[at],
        biases: biases.get(at).copied(),
        group_size,
        bits,
        mode,
    };
    fits.then(|| (0..w.len()).map(fields).collect())
}
