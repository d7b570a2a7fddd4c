//! Branches and loops: nested blocks that run over the same values as the block that holds them.

use crate::calls::Call;
use crate::error::{MlxError, invalid};
use crate::machine::{Machine, refused};
use crate::values::{ArrayType, Datum, Tensor};
use pteron_ir::{Block, Node, Op, ValueId};
use pteron_runtime::reference::BlockLife;
use pteron_runtime::{NodeError, Result};

/// Steps of a loop after which what it has made is computed, so that MLX's graph does not grow with the loop.
const STEPS_AT_ONCE: usize = 256;

impl<'a> Machine<'a> {
    pub(crate) fn branch(&mut self, node: &'a Node, lives: &'a [BlockLife]) -> Result<Vec<Datum>, NodeError> {
        let Op::If { cond, then_chain_idx, else_chain_idx } = &node.op else {
            return Err(refused(MlxError::Invalid("not a branch".into())));
        };
        let taken = self.values.int(cond).map_err(refused)? != 0;
        let (block, life) =
            if taken { (then_chain_idx, lives.first()) } else { (else_chain_idx, lives.get(1)) };
        let Some(life) = life else { return Ok(Vec::new()) };
        self.nested(block, life)
    }

    /// Runs a nested block and takes what it gives.
    fn nested(&mut self, block: &'a Block, life: &'a BlockLife) -> Result<Vec<Datum>, NodeError> {
        self.block(block, life).map_err(|error| NodeError::Run(Box::new(error)))?;
        let results = block.results.iter().map(|&value| self.values.get(value).cloned()).collect();
        life.left.iter().for_each(|&value| self.release(value));
        let results: Result<Vec<Datum>, MlxError> = results;
        results.map_err(refused)
    }

    /// A loop over slices: what each step gives is stacked, what is carried goes on to the next.
    pub(crate) fn scan(&mut self, node: &'a Node, lives: &'a [BlockLife]) -> Result<Vec<Datum>, NodeError> {
        let (Op::Scan { originals, carry, body_chain_idx: body, scan_axis, .. }, [life]) = (&node.op, lives)
        else {
            return Err(refused(MlxError::Invalid("not a loop".into())));
        };
        let steps = self.steps(originals, *scan_axis).map_err(refused)?;
        if body.params.len() != originals.len() + carry.len() || body.results.len() < carry.len() {
            return Err(refused(MlxError::Invalid("the body does not take what the loop gives".into())));
        }
        if self.context.is_traced() && steps > STEPS_AT_ONCE {
            return Err(refused(MlxError::Invalid(format!("a loop of {steps} steps is not traced"))));
        }
        let (slices, carried) = body.params.split_at(originals.len());
        let outputs = body.results.len() - carry.len();
        let start = carry.iter().map(|&value| self.values.get(value).cloned());
        let mut state = start.collect::<Result<Vec<Datum>, MlxError>>().map_err(refused)?;
        let mut made: Vec<Vec<Tensor>> = vec![Vec::new(); outputs];
        for step in 0..steps {
            self.context.control.charge(1).map_err(|error| NodeError::Run(Box::new(error)))?;
            for (&original, &param) in originals.iter().zip(slices) {
                let slice = self.slice(original, *scan_axis, step).map_err(refused)?;
                self.set_param(param, Datum::Tensor(slice));
            }
            for (&param, datum) in carried.iter().zip(state) {
                self.set_param(param, datum);
            }
            let mut given = self.nested(body, life)?;
            state = given.split_off(outputs);
            for (list, datum) in made.iter_mut().zip(given) {
                let Datum::Tensor(tensor) = datum else {
                    return Err(refused(MlxError::Invalid("numbers cannot be stacked".into())));
                };
                list.push(tensor);
            }
            if !self.context.is_traced() && step % STEPS_AT_ONCE == STEPS_AT_ONCE - 1 {
                self.settle(&state, &made).map_err(refused)?;
            }
        }
        if steps == 0 && outputs > 0 {
            return Err(refused(MlxError::Invalid("a loop over an empty axis has nothing to stack".into())));
        }
        let stacked = made.iter().map(|list| self.stack(list, *scan_axis).map(Datum::Tensor));
        let stacked = stacked.collect::<Result<Vec<Datum>, MlxError>>().map_err(refused)?;
        Ok(stacked.into_iter().chain(state).collect())
    }

    /// Computes what the last steps of a loop have made.
    fn settle(&self, state: &[Datum], made: &[Vec<Tensor>]) -> Result<(), MlxError> {
        let carried = state.iter().filter_map(|datum| match datum {
            Datum::Tensor(tensor) => Some(tensor),
            Datum::Scalar(_) => None,
        });
        let recent = made.iter().flat_map(|list| &list[list.len().saturating_sub(STEPS_AT_ONCE)..]);
        self.context.mlx.compute(carried.chain(recent).map(|tensor| &*tensor.array))
    }

    fn steps(&self, originals: &[ValueId], axis: i32) -> Result<usize, MlxError> {
        let mut steps = None;
        for &original in originals {
            let shape = &self.values.tensor(original)?.ty.shape;
            let size = shape[counted(axis, shape.len())?];
            if steps.is_some_and(|steps| steps != size) {
                return invalid(format!("tensors of a loop have {steps:?} and {size} steps"));
            }
            steps = Some(size);
        }
        steps.ok_or_else(|| MlxError::Invalid("nothing to loop over".into()))
    }

    /// One step's slice, without the axis.
    fn slice(&self, original: ValueId, axis: i32, step: usize) -> Result<Tensor, MlxError> {
        let tensor = self.values.tensor(original)?;
        let mut shape = tensor.ty.shape.clone();
        let axis = counted(axis, shape.len())?;
        let mut starts = vec![0; shape.len()];
        let mut stops = tensor.ty.ints();
        (starts[axis], stops[axis]) = (step as i64, step as i64 + 1);
        let bounds = [starts, stops, vec![1; shape.len()]].concat();
        let cut = self.context.mlx.one(Call::Slice, &[&tensor.array], &bounds)?;
        shape.remove(axis);
        let ty = ArrayType { dtype: tensor.ty.dtype, shape };
        Ok(Tensor::new(self.context.mlx.one(Call::Reshape, &[&cut], &ty.ints())?, ty))
    }

    /// Tensors of one type along a new axis.
    fn stack(&self, list: &[Tensor], axis: i32) -> Result<Tensor, MlxError> {
        let first = list.first().ok_or_else(|| MlxError::Invalid("nothing to stack".into()))?;
        if list.iter().any(|tensor| tensor.ty != first.ty) {
            return invalid("the steps of a loop give tensors of different types");
        }
        let mut ty = ArrayType::clone(&first.ty);
        let axis = counted(axis, ty.shape.len() + 1)?;
        ty.shape.insert(axis, list.len());
        let arrays: Vec<_> = list.iter().map(|tensor| &*tensor.array).collect();
        Ok(Tensor::new(self.context.mlx.one(Call::Stack, &arrays, &[axis as i64])?, ty))
    }
}

fn counted(axis: i32, rank: usize) -> Result<usize, MlxError> {
    let at = if axis < 0 { i64::from(axis) + rank as i64 } else { axis.into() };
    match usize::try_from(at) {
        Ok(at) if at < rank => Ok(at),
        _ => invalid(format!("axis {axis} of a tensor of rank {rank}")),
    }
}
