//! What the builders of steps work with: the planner, and what the CPU's lowering owns besides it.

use crate::constants::Prepared;
use crate::step::{JointKernel, Kernel};
use pteron_ir::ValueId;
use pteron_kernels::path::Path;
use pteron_kernels::quant::InputLayout;
use pteron_runtime::Precision;
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
    pub(crate) threads: usize,
    /// Tables of turns that several nodes share, by what they are made of.
    pub(super) tables: HashMap<TableKey, usize>,
    /// Activations prepared for quantised weights: of which value, in which form, where.
    pub(super) inputs: Vec<(ValueId, InputLayout, usize)>,
    /// Products whose kernel holds the weight itself, by the node's number.
    pub(super) bound: HashSet<usize>,
    /// Work of all steps whose sizes are known.
    pub(super) work: u64,
}

impl Lowering {
    pub(crate) fn new(prepared: Arc<Prepared>, how: Numerics, threads: usize) -> Lowering {
        let (tables, inputs, bound) = Default::default();
        let Numerics { path, precision, invariant, invariant_rows } = how;
        Lowering {
            prepared,
            path,
            precision,
            invariant,
            invariant_rows,
            threads,
            tables,
            inputs,
            bound,
            work: 0,
        }
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
