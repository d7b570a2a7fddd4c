//! Branches and loops: nested blocks that run over the same values as the block that holds them.

use super::interpret::Machine;
use super::kernels::{Datum, KernelError, Operands};
use super::liveness::BlockLife;
use crate::Result;
use crate::error::NodeError;
use pteron_ir::{Block, Node, Op, ValueId};
use pteron_tensor::HostTensor;

/// What a step of a loop costs besides its elements.
const STEP_BYTES: u64 = 128;

impl<'a> Machine<'a> {
    pub(super) fn branch(&mut self, node: &'a Node, lives: &'a [BlockLife]) -> Result<Vec<Datum>, NodeError> {
        let Op::If { cond, then_chain_idx, else_chain_idx } = &node.op else {
            return Err(NodeError::Kernel(KernelError::Invalid("not a branch".into())));
        };
        let operands = Operands::new(&mut self.values.data, &|_| false, Vec::new());
        let taken = operands.int(cond)? != 0;
        let (block, life) =
            if taken { (then_chain_idx, lives.first()) } else { (else_chain_idx, lives.get(1)) };
        let Some(life) = life else { return Ok(Vec::new()) };
        self.nested(block, life)
    }

    /// Runs a nested block and takes what it gives.
    fn nested(&mut self, block: &'a Block, life: &'a BlockLife) -> Result<Vec<Datum>, NodeError> {
        let inner = |error| NodeError::Run(Box::new(error));
        self.block(block, life).map_err(inner)?;
        let results = block.results.iter().map(|&value| self.get(value).cloned()).collect::<Result<_>>();
        life.left.iter().for_each(|&value| self.clear(value));
        results.map_err(inner)
    }

    /// A loop over slices: what each step gives is stacked, what is carried goes on to the next.
    pub(super) fn scan(&mut self, node: &'a Node, lives: &'a [BlockLife]) -> Result<Vec<Datum>, NodeError> {
        let invalid = |message: String| NodeError::Kernel(KernelError::Invalid(message));
        let inner = |error| NodeError::Run(Box::new(error));
        let (Op::Scan { originals, carry, body_chain_idx: body, scan_axis, .. }, [life]) = (&node.op, lives)
        else {
            return Err(invalid("not a loop".into()));
        };
        let slicer = Slicer::new(self, originals, *scan_axis)?;
        if body.params.len() != originals.len() + carry.len() || body.results.len() < carry.len() {
            return Err(invalid("the body does not take what the loop gives".into()));
        }
        let (slices, carried) = body.params.split_at(originals.len());
        let outputs = body.results.len() - carry.len();
        let start = carry.iter().map(|&value| self.get(value).cloned()).collect::<Result<Vec<_>>>();
        let mut state = start.map_err(inner)?;
        let mut steps: Vec<Vec<HostTensor>> = vec![Vec::new(); outputs];
        for step in 0..slicer.steps {
            self.context.control.charge(1).map_err(inner)?;
            for (original, &param) in originals.iter().zip(slices) {
                let slice = slicer.slice(self.tensor(*original).map_err(inner)?, step)?;
                self.set(param, Datum::Tensor(slice));
            }
            for (&param, datum) in carried.iter().zip(state) {
                self.set(param, datum);
            }
            // Nothing but `state` holds what is carried then, so the next step may change it in place.
            let mut given = self.nested(body, life)?;
            state = given.split_off(outputs);
            for (list, datum) in steps.iter_mut().zip(given) {
                let Datum::Tensor(tensor) = datum else {
                    return Err(invalid("numbers cannot be stacked".into()));
                };
                let grown = (tensor.bytes().len() as u64 + STEP_BYTES) * (list.len() as u64 + 1);
                self.held.admit(grown, grown).map_err(inner)?;
                list.push(tensor);
            }
        }
        if slicer.steps == 0 && outputs > 0 {
            return Err(invalid("a loop over an empty axis has nothing to stack".into()));
        }
        let stacked = steps.iter().map(|list| stack(list, *scan_axis)).collect::<Result<Vec<_>, _>>()?;
        Ok(stacked.into_iter().map(Datum::Tensor).chain(state).collect())
    }
}

/// How the tensors of a loop are cut along its axis.
struct Slicer {
    axis: i32,
    steps: usize,
}

impl Slicer {
    fn new(machine: &Machine<'_>, originals: &[ValueId], axis: i32) -> Result<Slicer, NodeError> {
        let mut steps = None;
        for &original in originals {
            let tensor = machine.tensor(original).map_err(|error| NodeError::Run(Box::new(error)))?;
            let size = tensor.shape()[counted(axis, tensor.rank())?];
            if steps.is_some_and(|steps| steps != size) {
                let message = format!("tensors of a loop have {steps:?} and {size} steps");
                return Err(NodeError::Kernel(KernelError::Invalid(message)));
            }
            steps = Some(size);
        }
        let steps =
            steps.ok_or_else(|| NodeError::Kernel(KernelError::Invalid("nothing to loop over".into())))?;
        Ok(Slicer { axis, steps })
    }

    /// One step's slice, without the axis.
    fn slice(&self, tensor: &HostTensor, step: usize) -> Result<HostTensor, NodeError> {
        let at = counted(self.axis, tensor.rank())?;
        let mut shape = tensor.shape().to_vec();
        let size = shape.remove(at);
        let outer: usize = tensor.shape()[..at].iter().product();
        let run = shape[at..].iter().product::<usize>() * tensor.dtype().size();
        let mut slice = HostTensor::zeros(tensor.dtype(), shape).map_err(KernelError::Tensor)?;
        for (block, target) in slice.bytes_mut().chunks_exact_mut(run.max(1)).enumerate().take(outer) {
            target.copy_from_slice(&tensor.bytes()[(block * size + step) * run..][..run]);
        }
        Ok(slice)
    }
}

/// Tensors of one shape along a new axis.
fn stack(list: &[HostTensor], axis: i32) -> Result<HostTensor, NodeError> {
    let invalid = |message: &str| NodeError::Kernel(KernelError::Invalid(message.to_owned()));
    let first = list.first().ok_or_else(|| invalid("nothing to stack"))?;
    if list.iter().any(|tensor| (tensor.dtype(), tensor.shape()) != (first.dtype(), first.shape())) {
        return Err(invalid("the steps of a loop give tensors of different types"));
    }
    let at = counted(axis, first.rank() + 1)?;
    let mut shape = first.shape().to_vec();
    shape.insert(at, list.len());
    let run = first.shape()[at..].iter().product::<usize>() * first.dtype().size();
    let mut out = HostTensor::zeros(first.dtype(), shape).map_err(KernelError::Tensor)?;
    for (number, target) in out.bytes_mut().chunks_exact_mut(run.max(1)).enumerate() {
        let (block, step) = (number / list.len(), number % list.len());
        target.copy_from_slice(&list[step].bytes()[block * run..][..run]);
    }
    Ok(out)
}

fn counted(axis: i32, rank: usize) -> Result<usize, NodeError> {
    let at = if axis < 0 { i64::from(axis) + rank as i64 } else { axis.into() };
    match usize::try_from(at) {
        Ok(at) if at < rank => Ok(at),
        _ => Err(NodeError::Kernel(KernelError::Invalid(format!("axis {axis} of a tensor of rank {rank}")))),
    }
}
