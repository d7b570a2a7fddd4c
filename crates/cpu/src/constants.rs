//! What all plans of a graph share: its fused form, its constants, and quantised weights bound to their kernels.

use crate::residence::{bring_in, rarely_needed};
use pteron_ir::{Graph, Op, ValueId};
use pteron_kernels::convolution::packed::Filters;
use pteron_kernels::dense::packed::Panels;
use pteron_kernels::quant::QuantLinear;
use pteron_runtime::backend::{GraphId, ProgramGraphs};
use pteron_runtime::{Multiple, Weights};
use pteron_tensor::quant::Scheme;
use pteron_tensor::{DType, HostTensor};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// How the ops of a graph are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Several as one, where there is a kernel for that.
    Fused,
    /// As the file has them: for whoever wants the values of all.
    Plain,
}

/// What all plans of a graph share.
pub(crate) struct Prepared {
    /// The graph with internal ops. Values have the numbers that they have in the file's graph.
    fused: Graph,
    pub(crate) constants: Constants,
    /// Quantised weights bound to their kernels.
    pub(crate) linears: Mutex<HashMap<LinearKey, Bound>>,
    /// Those that were brought into the order of the kernels.
    pub(crate) arranged: Arc<Arranged>,
    /// Filters of convolutions, packed: by constant and groups.
    pub(crate) filters: Mutex<HashMap<(usize, usize), Arc<Filters>>>,
    /// Matrices of products, packed: by constant, and whether it is the transpose that is multiplied.
    pub(crate) panels: Mutex<HashMap<(usize, bool), Arc<Panels>>>,
}

impl Prepared {
    pub(crate) fn new(fused: Graph, constants: Constants, arranged: Arc<Arranged>) -> Prepared {
        let (linears, filters, panels) = Default::default();
        Prepared { fused, constants, linears, arranged, filters, panels }
    }

    /// Bytes of weights that were packed beside those of the file.
    pub(crate) fn packed_bytes(&self) -> u64 {
        let linears = self.linears.lock().unwrap_or_else(PoisonError::into_inner);
        let filters = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        let panels = self.panels.lock().unwrap_or_else(PoisonError::into_inner);
        let linears = linears.values().map(|bound| bound.alone.packed_bytes() as u64);
        let filters = filters.values().map(|filters| filters.bytes() as u64);
        linears.chain(filters).chain(panels.values().map(|panels| panels.bytes() as u64)).sum()
    }

    /// The graph in one of its forms.
    pub(crate) fn graph(&self, form: Form) -> &Graph {
        match form {
            Form::Fused => &self.fused,
            Form::Plain => self.constants.graph(),
        }
    }
}

/// The constants of a graph, in its order. All of them are there; those that are multiples of others are made when they
/// are first read, which the kernels of quantised weights never do.
pub(crate) struct Constants {
    weights: Arc<Weights>,
    graphs: Arc<ProgramGraphs>,
    id: GraphId,
}

impl Constants {
    /// Of one graph of a program, which has it.
    pub(crate) fn new(weights: Arc<Weights>, graphs: Arc<ProgramGraphs>, id: GraphId) -> Constants {
        Constants { weights, graphs, id }
    }

    fn graph(&self) -> &Graph {
        &self.graphs.graphs[self.id.0].module.main
    }

    fn name(&self, index: usize) -> Option<&str> {
        Some(&self.graph().constants.get(index)?.name)
    }

    /// The data of a constant; `None` where the graph has fewer.
    pub(crate) fn get(&self, index: usize) -> Option<&HostTensor> {
        self.weights.get(self.id, self.name(index)?)
    }

    /// What it is a multiple of, where it is one.
    pub(crate) fn multiple(&self, index: usize) -> Option<&Multiple> {
        self.weights.multiple(self.id, self.name(index)?)
    }
}

/// A quantised weight bound to its kernels.
#[derive(Clone)]
pub(crate) struct Bound {
    /// For one run.
    pub(crate) alone: Arc<QuantLinear>,
    /// For the rows of several lanes.
    pub(crate) together: Arc<QuantLinear>,
}

/// Where the parts of a weight lie in the files, its scheme and the activations' type.
type Place = (usize, usize, Scheme, DType);

/// Weights in the order of the kernels, once for all graphs of a program.
#[derive(Default)]
pub(crate) struct Arranged {
    pub(crate) linears: Mutex<HashMap<Place, Arc<QuantLinear>>>,
    /// Where constants lie that are read as they are filed, also where a product has them in another order: of a table of
    /// embeddings every token reads a row.
    filed: HashSet<usize>,
}

impl Arranged {
    /// For a program whose weights will be arranged. What is read as it is filed is brought into memory now: page by page,
    /// as tokens ask for it, a server would grow for hours, and each page would be waited for.
    pub(crate) fn new(graphs: &ProgramGraphs, weights: &Weights) -> Arranged {
        let mut filed = HashSet::new();
        for (index, graph) in graphs.graphs.iter().enumerate() {
            let main = &graph.module.main;
            let mut read = HashSet::new();
            main.for_each_node(|node, _| match node.op {
                // Of the experts' matrices those are read that are chosen, perhaps never all of them.
                Op::QuantizedMatmul { .. } | Op::GatherQmm { .. } | Op::GatherMm { .. } => {}
                _ => node.for_each_operand(|value| read.extend([value])),
            });
            for constant in main.constants.iter().filter(|constant| read.contains(&constant.value)) {
                let Some(tensor) = weights.get(GraphId(index), &constant.name) else { continue };
                if filed.insert(tensor.bytes().as_ptr() as usize) {
                    bring_in(tensor.bytes());
                }
            }
        }
        Arranged { linears: Mutex::default(), filed }
    }

    /// The pages of bytes that nobody reads any more, once they are arranged, are given back.
    pub(crate) fn give_back(&self, bytes: &[u8]) {
        if !self.filed.contains(&(bytes.as_ptr() as usize)) {
            rarely_needed(bytes);
        }
    }
}

/// Which weight, for which activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinearKey {
    pub(crate) parts: (ValueId, ValueId, Option<ValueId>),
    /// The same constants may be read under several schemes.
    pub(crate) scheme: Scheme,
    pub(crate) input: DType,
}
