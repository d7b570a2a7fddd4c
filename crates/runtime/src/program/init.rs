//! Init graphs: what they make of the constants in the files, once per program. Most of it is made at load; multiples of
//! a constant are only noted, because backends that know the factor never read them.

use crate::backend::{GraphId, ProgramGraphs, RunControl};
use crate::{Error, Multiple, Result, Weights, reference};
use half::{bf16, f16};
use pteron_format::Limits;
use pteron_ir::{Graph, Op, ValueId};
use pteron_tensor::{DType, HostTensor};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Runs every init graph once; its outputs are constants of the main graph.
pub(super) fn run_all(graphs: &ProgramGraphs, weights: &mut Weights, limits: &Limits) -> Result<()> {
    let work = Some(Arc::new(AtomicU64::new(limits.work)));
    let mut control = RunControl { work, ..RunControl::default() };
    for (index, delegate) in graphs.graphs.iter().enumerate() {
        let Some(init) = &delegate.module.init else { continue };
        let id = GraphId(index);
        let mut init = init.clone();
        for (name, multiple) in take_multiples(&mut init, id, weights) {
            control.held = control.held.saturating_add(multiple.of.bytes().len() as u64);
            if control.held > limits.live_bytes {
                let (what, limit) = ("what init graphs make", "live_bytes");
                return Err(Error::Limit { what, limit, found: control.held, allowed: limits.live_bytes });
            }
            weights.add_multiple(id, &name, multiple);
        }
        if init.outputs.is_empty() {
            continue;
        }
        let place = format!("delegate {}, init graph", delegate.delegate);
        let missing = |name: &str| Error::Invalid(format!("constant `{name}` has no data"));
        let constants = init
            .constants
            .iter()
            .map(|constant| weights.get(id, &constant.name).cloned().ok_or_else(|| missing(&constant.name)));
        let constants = constants.collect::<Result<Vec<_>>>()?;
        let outputs = reference::run_init(id, &init, &constants, limits, &control)
            .map_err(|error| error.at(&delegate.method, place))?;
        for (output, tensor) in init.outputs.iter().zip(outputs) {
            control.held = control.held.saturating_add(tensor.bytes().len() as u64);
            weights.add_derived(id, &output.name, tensor);
        }
    }
    Ok(())
}

/// Takes the outputs out of an init graph that are a constant times a number, and that nothing else in it reads.
fn take_multiples(init: &mut Graph, id: GraphId, weights: &Weights) -> Vec<(String, Multiple)> {
    let constants: HashMap<ValueId, &HostTensor> = (init.constants.iter())
        .filter_map(|constant| Some((constant.value, weights.get(id, &constant.name)?)))
        .collect();
    let mut read = HashSet::new();
    init.for_each_node(|node, _| {
        node.for_each_operand(|value| {
            read.insert(value);
        });
    });
    let mut multiples: HashMap<ValueId, Multiple> = HashMap::new();
    for node in &init.body.nodes {
        let (Op::Multiply { a, b }, [result]) = (&node.op, &node.results[..]) else { continue };
        let (Some(of), Some(by)) = (constants.get(a), constants.get(b)) else { continue };
        // Of one dtype, so that the product has it too; a number, so that it has the shape.
        let has_same_type = by.rank() == 0 && by.dtype() == of.dtype() && init.ty(*result) == init.ty(*a);
        if has_same_type
            && !read.contains(result)
            && let Some(multiple) = number(by).and_then(|factor| Multiple::new(of, factor))
        {
            multiples.insert(*result, multiple);
        }
    }
    init.body.nodes.retain(|node| !node.results.iter().any(|value| multiples.contains_key(value)));
    let (taken, kept) = std::mem::take(&mut init.outputs)
        .into_iter()
        .partition(|output| multiples.contains_key(&output.value));
    init.outputs = kept;
    let named = |output: pteron_ir::Output| Some((output.name, multiples.get(&output.value)?.clone()));
    Vec::into_iter(taken).filter_map(named).collect()
}

fn number(tensor: &HostTensor) -> Option<f32> {
    match (tensor.dtype(), &tensor.bytes()[..]) {
        (DType::F32, &[a, b, c, d]) => Some(f32::from_le_bytes([a, b, c, d])),
        (DType::F16, &[a, b]) => Some(f16::from_le_bytes([a, b]).to_f32()),
        (DType::BF16, &[a, b]) => Some(bf16::from_le_bytes([a, b]).to_f32()),
        _ => None,
    }
}
