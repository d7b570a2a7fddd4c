//! Rotary positions. The sines and cosines of a step's positions are computed once and shared by all layers that turn by
//! the same amounts.

use super::lowering::{Compiled, Numbered, Planner, TableKey};
use super::rows::{Contiguous, DenseRows};
use crate::fault::invalid;
use crate::run::Run;
use pteron_ir::liveness::Tick;
use pteron_ir::op::OffsetArg;
use pteron_ir::{Op, ValueId};
use pteron_kernels::index::integer_at;
use pteron_kernels::path::Path;
use pteron_kernels::rope::{Pairs, inverse_periods, rope, turns};
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::Layout;
use pteron_runtime::NodeError;
use pteron_tensor::{DType, Scalar};

/// The table of one node.
struct Table {
    offset: OffsetArg<ValueId, ValueId>,
    periods: Option<Contiguous>,
    dims: usize,
    base: f32,
    scale: f32,
    scratch: usize,
    /// Room for radians per position.
    inverse: usize,
    /// Whether this node is the first that needs it.
    fills: bool,
}

/// The turning of one tensor.
pub(super) struct Turning {
    rows: DenseRows,
    table: Table,
    dims: usize,
    pairs: Pairs,
    path: Path,
}

pub(super) fn compile(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let &result = node.node.results.first()?;
    let turning = Turning::plan(planner, node)?;
    Some(Compiled::Compute(Box::new(move |run| turning.write(run, &mut run.target(result)?))))
}

impl Turning {
    /// What a node turns, whether it is that alone or writes it into a cache; `None` where the kernel does not take it.
    pub(super) fn plan(planner: &mut Planner<'_>, node: &Numbered) -> Option<Turning> {
        let (Op::Rope { x, dims, offset, freqs, traditional, base, scale }
        | Op::RopeUpdate { x, dims, offset, freqs, traditional, base, scale, .. }) = node.node.op.clone()
        else {
            return None;
        };
        planner.dtype(x).filter(|dtype| dtype.is_float() && dtype.size() <= 4)?;
        if freqs.is_some_and(|freqs| planner.dtype(freqs) != Some(DType::F32)) {
            return None;
        }
        let dims = usize::try_from(dims).ok()?;
        let shape = planner.types.tensor(x)?.shape.clone();
        let most = |at: usize| usize::try_from(planner.types.symbols.upper(shape.get(at)?)?).ok();
        let (batch, length) = (most(0)?, most(shape.len().checked_sub(2)?)?);
        let batch = match offset {
            OffsetArg::Tensor(tensor) if planner.most_elements(tensor)? > 1 => batch,
            _ => 1,
        };
        let key = TableKey {
            offset: match offset {
                OffsetArg::Tensor(value) | OffsetArg::Value(value) => value,
            },
            periods: freqs,
            dims,
            base: base.to_bits(),
            scale: scale.to_bits(),
            sizes: (batch, length),
        };
        // A table that is filled in a branch may not be there for others, nor one whose size a step changes.
        let shared = planner.depth == 0 && shape.iter().all(|dim| dim.as_known().is_some());
        let bytes = batch.checked_mul(length)?.checked_mul(dims)?.checked_mul(4)?;
        let known = planner.lower.tables.get(&key).copied().filter(|_| shared);
        let fills = known.is_none();
        let scratch = match known {
            Some(scratch) => {
                planner.reuse(node.number, scratch);
                scratch
            }
            None if shared => {
                let scratch = planner.reserve_until(node.number, Tick::END, bytes);
                planner.lower.tables.insert(key, scratch);
                scratch
            }
            None => planner.reserve(node.number, bytes),
        };
        let inverse = planner.reserve(node.number, dims / 2 * 4);
        let rows = DenseRows::plan(planner, node, x)?;
        let periods = match freqs {
            Some(freqs) => Some(Contiguous::plan(planner, node, freqs)?),
            None => None,
        };
        let table = Table { offset, periods, dims, base, scale, scratch, inverse, fills };
        let pairs = if traditional { Pairs::Neighbours } else { Pairs::Halves };
        Some(Turning { rows, table, dims, pairs, path: planner.lower.path })
    }

    /// Writes nothing, but leaves the table for those that share it.
    pub(super) fn skip(&self, run: &Run<'_>) -> Result<(), NodeError> {
        let mut layout = Layout::SCALAR;
        self.table.get(run, &self.rows.view(run, &mut layout)?)?;
        Ok(())
    }

    /// Writes the turned tensor to a place of its sizes.
    pub(super) fn write(&self, run: &Run<'_>, target: &mut ViewMut<'_>) -> Result<(), NodeError> {
        let mut layout = Layout::SCALAR;
        let x = self.rows.view(run, &mut layout)?;
        let table = self.table.get(run, &x)?;
        rope(run.pool, self.path, target, &x, self.dims, self.pairs, table);
        Ok(())
    }
}

impl Table {
    /// The turns of all positions of `x`.
    fn get<'r>(&self, run: &'r Run<'_>, x: &View<'_>) -> Result<&'r [f32], NodeError> {
        let &[batch, .., length, _] = x.sizes() else { return Err(invalid("positions need an axis")) };
        let offsets = match self.offset {
            OffsetArg::Tensor(value) => run.view(value)?.len(),
            OffsetArg::Value(_) => 1,
        };
        let batch = if offsets > 1 { batch } else { 1 };
        let (data, bytes) = run.scratch(self.scratch);
        let floats = batch * length * self.dims;
        if floats * 4 > bytes || offsets > batch.max(1) {
            return Err(invalid("more positions than planned"));
        }
        if self.fills && floats > 0 {
            // SAFETY: reserved for this node and those after it, which only read.
            let table = unsafe { std::slice::from_raw_parts_mut(data.cast::<f32>(), floats) };
            let mut inverse = run.lend(self.inverse)?;
            let inverse: &mut [f32] = bytemuck::cast_slice_mut(&mut inverse);
            let mut layout = Layout::SCALAR;
            let periods = match &self.periods {
                Some(periods) => {
                    let view = periods.view(run, &mut layout)?;
                    if view.len() < self.dims / 2 {
                        return Err(invalid("fewer periods than pairs of features"));
                    }
                    // SAFETY: that many floats lie there side by side.
                    Some(unsafe { std::slice::from_raw_parts(view.data().cast::<f32>(), view.len()) })
                }
                None => None,
            };
            inverse_periods(self.dims, self.base, periods, inverse);
            for (row, table) in table.chunks_exact_mut((length * self.dims).max(1)).enumerate() {
                turns(self.position(run, row)?, self.scale, inverse, table);
            }
        }
        if floats == 0 {
            return Ok(&[]);
        }
        // SAFETY: filled above, by this node or by the first that shares it.
        Ok(unsafe { std::slice::from_raw_parts(data.cast::<f32>(), floats) })
    }

    /// The position of a batch row's first element.
    fn position(&self, run: &Run<'_>, row: usize) -> Result<i64, NodeError> {
        let value = match self.offset {
            OffsetArg::Value(value) => {
                return match run.number(value) {
                    Scalar::Int(position) => Ok(position),
                    other => Err(invalid(format!("offset {other:?} is not an integer"))),
                };
            }
            OffsetArg::Tensor(value) => value,
        };
        let view = run.view(value)?;
        integer_at(&view, row).ok_or_else(|| invalid(format!("no offset {row} among {:?}", view.sizes())))
    }
}
