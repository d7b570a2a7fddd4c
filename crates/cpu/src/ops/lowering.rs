//! What the builders of steps work with: the planner, and what the CPU's lowering owns besides it.

use crate::constants::{Form, Prepared};
use crate::run::Run;
use crate::step::{JointKernel, Kernel};
use pteron_ir::{Graph, Op, Type, ValueId};
use pteron_kernels::epilogue::Epilogue;
use pteron_kernels::path::Path;
use pteron_kernels::quant::InputLayout;
use pteron_kernels::view::ViewMut;
use pteron_plan::Storage;
use pteron_runtime::{NodeError, Precision};
use pteron_tensor::HostTensor;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(crate) use pteron_plan::Numbered;

/// What a step's builder sees.
pub(crate) type Planner<'p> = pteron_plan::Planner<'p, Lowering>;

/// How this backend makes steps, and what it has made so far that several of them share.
pub(crate) struct Lowering {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) path: Path,
    pub(crate) precision: Precision,
    /// Whether lanes that run together must not change each other's numbers.
    pub(crate) invariant: bool,
    /// Whether that holds for the rows of one run too.
    pub(crate) invariant_rows: bool,
    /// Whether weights are brought into the order of the kernels.
    pub(crate) arranges: bool,
    pub(crate) threads: usize,
    /// Tables of turns that several nodes share, by what they are made of.
    pub(super) tables: HashMap<TableKey, usize>,
    /// Activations prepared for quantised weights: of which value, in which form, where.
    pub(super) inputs: Vec<(ValueId, InputLayout, usize)>,
    /// Products whose kernel holds the weight itself, by the node's number.
    pub(super) bound: HashSet<usize>,
    /// Transposes of matrices that are constants, by result.
    turned: HashMap<ValueId, ValueId>,
    /// Who listens to the plain ops hears of every product.
    pub(super) form: Form,
    /// Whether inputs have one size for good, so that weights are packed for it.
    is_fixed: bool,
    /// Work of all steps whose sizes are known.
    pub(super) work: u64,
}

impl Lowering {
    pub(crate) fn new(prepared: Arc<Prepared>, how: Numerics, threads: usize, form: Form) -> Lowering {
        let (tables, inputs, bound, turned) = Default::default();
        let Numerics { path, precision, invariant, invariant_rows, arranges } = how;
        Lowering {
            prepared,
            path,
            precision,
            invariant,
            invariant_rows,
            arranges,
            threads,
            tables,
            inputs,
            bound,
            turned,
            is_fixed: false,
            form,
            work: 0,
        }
    }
}

impl Lowering {
    /// Looks at the graph that is planned.
    pub(super) fn read(mut self, graph: &Graph) -> Lowering {
        self.is_fixed = graph.inputs.iter().all(|input| match graph.ty(input.value) {
            Some(Type::Tensor(ty)) => ty.known_shape().is_some(),
            _ => true,
        });
        graph.for_each_node(|node, _| {
            if let (Op::Transpose { x, perm }, &[result]) = (&node.op, node.results.as_slice())
                && matches!(perm[..], [1 | -1, 0 | -2])
                && self.constant_index(*x).is_some()
            {
                self.turned.insert(result, *x);
            }
        });
        self
    }

    /// Which constant a value is.
    pub(super) fn constant_index(&self, value: ValueId) -> Option<usize> {
        let constants = &self.prepared.graph(Form::Plain).constants;
        constants.iter().position(|constant| constant.value == value)
    }

    /// A matrix that is a constant or the transpose of one, and whether it is that.
    pub(super) fn matrix(&self, value: ValueId) -> Option<(usize, bool)> {
        match self.turned.get(&value) {
            Some(&constant) => Some((self.constant_index(constant)?, true)),
            None => Some((self.constant_index(value)?, false)),
        }
    }

    /// Whether inputs have one size for good.
    pub(super) fn is_fixed(&self) -> bool {
        self.is_fixed
    }
}

/// Computes the sums of a product or a convolution into a target, and what the epilogue says.
pub(super) type Sums =
    Box<dyn Fn(&Run<'_>, &mut ViewMut<'_>, &Epilogue<'_>) -> Result<(), NodeError> + Send + Sync>;

/// A constant operand.
pub(super) fn constant<'p>(planner: &'p Planner<'_>, value: ValueId) -> Option<&'p HostTensor> {
    match planner.storage[value.0 as usize] {
        Storage::Constant(index) => planner.lower.prepared.constants.get(index),
        _ => None,
    }
}

/// What decides about the last bits of results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numerics {
    pub(crate) path: Path,
    pub(crate) precision: Precision,
    /// Whether lanes that run together must not change each other's numbers.
    pub(crate) invariant: bool,
    /// Whether that holds for the rows of one run too.
    pub(crate) invariant_rows: bool,
    /// Whether weights are brought into the order of the kernels, which add up in that order.
    pub(crate) arranges: bool,
}

/// What a table of turns is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TableKey {
    pub(super) offset: ValueId,
    pub(super) periods: Option<ValueId>,
    pub(super) dims: usize,
    pub(super) base: u32,
    pub(super) scale: u32,
    /// Batch rows and positions.
    pub(super) sizes: (usize, usize),
}

/// How a node was compiled.
pub(super) enum Compiled {
    /// Sets the slots of its results itself and computes nothing.
    View(Kernel),
    /// Computes into results that have their places.
    Compute(Kernel),
    /// The same, and for several lanes at once.
    Joint(Kernel, JointKernel),
    /// Does everything itself, its rule and places included.
    Whole(Kernel),
}
