//! What becomes of a run that was handed over: its flight, the words for what its kernels may find wrong, and values that stay on the
//! device until somebody asks for them.

use crate::error::VulkanError;
use crate::ffi::{Device, Flight, Report};
use crate::workspace::{Outputs, SMALL_BYTES};
use pteron_gpu::{Planned, WalkError};
use pteron_ir::text::Printer;
use pteron_ir::{Graph, Module, Node};
use pteron_runtime::backend::{GraphId, Late, ProgramGraphs};
use pteron_runtime::{DeviceTensor, Error, KernelError, NodeError, Result};
use pteron_tensor::{DType, HostTensor};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A graph that outlives a run.
#[derive(Clone)]
pub(crate) enum Ran {
    /// As it was verified.
    Plain(Arc<Module>),
    /// With fused ops.
    Fused(Arc<Graph>),
}

impl Ran {
    pub(crate) fn graph(&self) -> &Graph {
        match self {
            Ran::Plain(module) => &module.main,
            Ran::Fused(graph) => graph,
        }
    }
}

/// A run that was handed over.
pub(crate) struct Outcome {
    pub(crate) flight: Arc<Flight>,
    pub(crate) planned: Arc<Planned>,
    pub(crate) ran: Ran,
    pub(crate) graphs: Arc<ProgramGraphs>,
    pub(crate) id: GraphId,
}

impl Outcome {
    /// Waits for its end; what it tells, or what is wrong.
    pub(crate) fn wait(&self) -> Result<Report> {
        self.judged(self.flight.wait())
    }

    /// What is wrong with it, where that is known already.
    pub(crate) fn known_fault(&self) -> Option<Error> {
        self.judged(self.flight.told()?.clone()).err()
    }

    /// An error where a kernel met an index outside its axis.
    fn judged(&self, told: Result<Report, VulkanError>) -> Result<Report> {
        let report = told?;
        match report[0].checked_sub(1) {
            None => Ok(report),
            Some(step) => {
                let error = KernelError::Index { index: (report[1] as i32).into(), size: report[2] as usize };
                let node = self.planned.node(step as usize);
                let source = Box::new(with_place(self.ran.graph(), node, NodeError::Kernel(error)));
                // Nobody who hears of it late knows where it was.
                let own = self.graphs.graphs.get(self.id.0);
                let method = own.map_or_else(String::new, |graph| graph.method.clone());
                let place = format!("delegate {}", own.map_or(0, |graph| graph.delegate));
                Err(Error::Step { method, place, source })
            }
        }
    }
}

/// Lanes that are under way.
pub(crate) struct Outcomes(pub(crate) Vec<(usize, Arc<Outcome>)>);

impl Late for Outcomes {
    fn wait(self: Box<Self>) -> Vec<(usize, Error)> {
        self.0.into_iter().filter_map(|(lane, outcome)| Some((lane, outcome.wait().err()?))).collect()
    }
}

/// An error with the op and its place. `most` is what a result may have.
pub(crate) fn at_node(graph: &Graph, node: Option<&Arc<Node>>, error: WalkError, most: u64) -> Error {
    let source = match error {
        WalkError::Rule(error) => NodeError::Rule(error),
        WalkError::Large(found) => {
            return Error::Limit { what: "a result", limit: "tensor_bytes", found, allowed: most };
        }
        WalkError::Invalid(problem) => NodeError::Kernel(KernelError::Invalid(problem)),
    };
    with_place(graph, node, source)
}

fn with_place(graph: &Graph, node: Option<&Arc<Node>>, source: NodeError) -> Error {
    let Some(node) = node else { return Error::Invalid(source.to_string()) };
    let mut operands = Vec::new();
    node.for_each_operand(|value| operands.push(format!("%{}", value.0)));
    let operands = if operands.is_empty() { "nothing".to_owned() } else { operands.join(", ") };
    let op = Printer::new(graph).node(node).to_string();
    let place = match node.place {
        Some(place) => format!("chain {} #{}", place.chain, place.index),
        None => "made by lift".to_owned(),
    };
    Error::Node { op, place, operands, source: Box::new(source) }
}

/// An output that stays where it was computed.
pub(crate) struct Kept {
    outputs: Arc<Outputs>,
    outcome: Arc<Outcome>,
    offset: u64,
    dtype: DType,
    shape: Vec<usize>,
    /// Which of its last row is the greatest, where somebody has looked.
    greatest: Option<Greatest>,
    /// The words of the report that it is, where the host was told it.
    told: Option<usize>,
    /// Bytes of outputs that are brought to the host at once, where others will be asked for too.
    together: Option<u64>,
}

/// Which of a row of scores is the greatest.
#[derive(Clone, Copy)]
pub(crate) struct Greatest {
    /// Where among the outputs that is written.
    pub(crate) offset: u64,
    /// Where the run's report says it.
    pub(crate) word: usize,
}

impl Kept {
    pub(crate) fn new(
        (outputs, outcome): (Arc<Outputs>, Arc<Outcome>),
        offset: u64,
        (dtype, shape): (DType, Vec<usize>),
        greatest: Option<Greatest>,
    ) -> Kept {
        Kept { outputs, outcome, offset, dtype, shape, greatest, told: None, together: None }
    }

    /// The same, one of several in so many bytes of outputs.
    pub(crate) fn one_of(self, bytes: u64) -> Kept {
        Kept { together: Some(bytes), ..self }
    }

    /// Whether it is small, and nobody asks for less of it.
    pub(crate) fn is_read_at_once(&self) -> bool {
        let count = pteron_tensor::element_count(&self.shape);
        let is_small = count.is_some_and(|count| (count * self.dtype.size()) as u64 <= SMALL_BYTES);
        is_small && self.greatest.is_none()
    }

    /// The memory that it lies in, and where, for kernels of this device.
    pub(crate) fn place(&self, device: &Arc<Device>) -> Option<(Arc<Outputs>, u64)> {
        Arc::ptr_eq(self.outputs.buffer.device(), device).then(|| (self.outputs.clone(), self.offset))
    }
}

impl DeviceTensor for Kept {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn to_host(&self) -> Result<HostTensor> {
        let report = self.outcome.wait()?;
        let mut tensor = HostTensor::zeros(self.dtype, self.shape.clone())?;
        let bytes = tensor.bytes_mut();
        if let Some(first) = self.told {
            let words = report[first..].iter().flat_map(|word| word.to_ne_bytes());
            bytes.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        } else {
            self.outputs.read(self.offset, bytes, self.together.map(|all| (&self.outcome, all)))?;
        }
        Ok(tensor)
    }

    fn argmax_last(&self, dtype: DType, shape: &[usize]) -> Result<Option<Arc<dyn DeviceTensor>>> {
        let Some(Greatest { offset, word }) = self.greatest else { return Ok(None) };
        if !matches!(dtype, DType::I32 | DType::I64) || pteron_tensor::element_count(shape) != Some(1) {
            return Ok(None);
        }
        let (outputs, outcome) = (self.outputs.clone(), self.outcome.clone());
        let shape = shape.to_vec();
        let told = Kept::new((outputs, outcome), offset, (dtype, shape), None);
        Ok(Some(Arc::new(Kept { told: Some(word), ..told })))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)
    }
}
