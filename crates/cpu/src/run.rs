//! One run of a plan over one frame: what its steps read, write, reserve and charge. It knows places, not steps.

use crate::cache::Caches;
use crate::constants::Constants;
use crate::copy;
use crate::fault::{invalid, of_run, out_of_range};
use crate::frame::{Frame, Slot};
use crate::memory::{Memory, Region};
use crate::scratch::{Lending, Scratch};
use crate::undo::{BufferPlace, Undo};
use pteron_format::Limits;
use pteron_ir::op::IntArg;
use pteron_ir::text::Printer;
use pteron_ir::{Dim, Graph, Node, Symbols, TensorType, Type, TypeSource, ValueId, infer};
use pteron_kernels::index::for_each_position;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::{Layout, Plan, RunMemory, Storage};
use pteron_runtime::backend::{self, Detail, GraphId, RunControl};
use pteron_runtime::reference::{Effects, extent, work};
use pteron_runtime::{Error, KernelError, NodeError, Result, Value};
use pteron_tensor::{DType, HostTensor, Scalar};

/// Everything that steps work with.
pub(crate) struct Run<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) id: GraphId,
    pub(crate) plan: &'a Plan,
    pub(crate) frame: &'a mut Frame,
    pub(crate) arena: Region,
    pub(crate) constants: &'a Constants,
    pub(crate) effects: &'a mut Effects,
    pub(crate) undo: &'a mut Undo,
    pub(crate) caches: Caches<'a>,
    pub(crate) pool: &'a Pool,
    pub(crate) control: &'a RunControl,
    pub(crate) limits: &'a Limits,
    /// All nodes in pre-order, where somebody listens.
    pub(crate) listened: Vec<&'a Node>,
    pub(crate) lending: Lending,
}

impl TypeSource for Operands {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.0.iter().find(|(known, _)| *known == value).map(|(_, ty)| ty)
    }
}

/// Types of the operands of one node, with the numbers at hand.
struct Operands(Vec<(ValueId, Type)>);

impl Run<'_> {
    pub(crate) fn slot(&self, value: ValueId) -> &Slot {
        &self.frame.slots[value.0 as usize]
    }

    pub(crate) fn set(&mut self, value: ValueId, slot: Slot) {
        self.frame.slots[value.0 as usize] = slot;
    }

    /// The dtype of a value that a step knows to be a tensor.
    pub(crate) fn dtype(&self, value: ValueId) -> Result<DType, NodeError> {
        self.plan.dtypes[value.0 as usize].ok_or(NodeError::Kernel(KernelError::Unset))
    }

    /// A tensor to read.
    pub(crate) fn view(&self, value: ValueId) -> Result<View<'_>, NodeError> {
        let slot = self.slot(value);
        if slot.data.is_null() && !slot.layout.is_empty() {
            return Err(NodeError::Kernel(KernelError::Unset));
        }
        let dtype = self.dtype(value)?;
        // SAFETY: slots are only set to places whose memory holds all elements of the layout: storage that was
        // sized for it, or a view of such a place. Memory stays while the run borrows it, and no step
        // writes to what it reads, except where the kernel allows it.
        Ok(unsafe { View::from_raw(slot.data, dtype, slot.layout.sizes(), slot.layout.strides()) })
    }

    /// A tensor to write.
    pub(crate) fn target(&self, value: ValueId) -> Result<ViewMut<'_>, NodeError> {
        let slot = self.slot(value);
        if slot.data.is_null() && !slot.layout.is_empty() {
            return Err(NodeError::Kernel(KernelError::Unset));
        }
        let dtype = self.dtype(value)?;
        // SAFETY: as above; results lie in the arena, in memory of their own or in a buffer, which only this run
        // touches, and the plan gives no two values that live at once the same place.
        Ok(unsafe { ViewMut::from_raw(slot.data, dtype, slot.layout.sizes(), slot.layout.strides()) })
    }

    /// Saves a region of a buffer, before it is written.
    pub(crate) fn save(&mut self, buffer: usize, dtype: DType, region: &Slot) {
        let place = BufferPlace { graph: self.id, buffer };
        // Its value is where the run found it, whatever was made of it since.
        let base = self.slot(self.graph.buffers[buffer].value).data;
        // SAFETY: as for `view`: the region is part of a value that lies in the buffer.
        let old =
            unsafe { View::from_raw(region.data, dtype, region.layout.sizes(), region.layout.strides()) };
        self.undo.save(self.pool, place, base, &old);
    }

    /// Saves the rows of a value in a buffer that an index tensor names.
    pub(crate) fn save_rows(
        &mut self,
        buffer: usize,
        value: ValueId,
        indices: ValueId,
        axis: usize,
    ) -> Result<(), NodeError> {
        let (slot, dtype) = (*self.slot(value), self.dtype(value)?);
        let picks = *self.slot(indices);
        let of_picks = self.dtype(indices)?;
        // SAFETY: as for `view`; the slot is a copy of the frame's, which no step changes meanwhile.
        let picks =
            unsafe { View::from_raw(picks.data, of_picks, picks.layout.sizes(), picks.layout.strides()) };
        for_each_position(&picks, slot.layout.sizes()[axis], |start| {
            let range = pteron_ir::rules::SliceRange { start, step: 1, count: 1 };
            if let Some((offset, layout)) = slot.layout.slice(axis, range) {
                let data = slot.data.wrapping_offset(offset * dtype.size() as isize);
                self.save(buffer, dtype, &Slot { data, layout });
            }
        })
        .map_err(|error| out_of_range(&error))
    }

    /// Memory that a step asked for when it was planned.
    pub(crate) fn scratch(&self, number: usize) -> (*mut u8, usize) {
        match self.plan.scratch(number) {
            Storage::Arena { offset, bytes } => (self.arena.at(offset), bytes),
            Storage::Heap(number) => {
                let heap = &self.frame.heaps[number];
                (heap.address(), heap.len())
            }
            _ => (std::ptr::null_mut(), 0),
        }
    }

    /// Borrows the memory that `Planner::reserve` gave a number to; aligned for every dtype.
    pub(crate) fn lend(&self, number: usize) -> Result<Scratch<'_>, NodeError> {
        // SAFETY: the memory of the run holds these bytes for as long as it is borrowed, and the plan gives them to the
        // node that runs and to nothing else that lives then.
        unsafe { self.lending.lend(number, self.scratch(number)) }
    }

    /// A number.
    pub(crate) fn number(&self, value: ValueId) -> Scalar {
        self.frame.numbers[value.0 as usize]
    }

    pub(crate) fn set_number(&mut self, value: ValueId, number: Scalar) {
        self.frame.numbers[value.0 as usize] = number;
    }

    /// The integer that an argument is now.
    pub(crate) fn int(&self, arg: &IntArg<ValueId>) -> i64 {
        match arg {
            IntArg::Literal(number) => *number,
            IntArg::Value(value) => match self.number(*value) {
                Scalar::Int(number) => number,
                Scalar::Bool(truth) => truth.into(),
                Scalar::Float(number) => number as i64,
            },
        }
    }

    /// The bytes of a tensor of these sizes, where one may be so large. Views cost nothing until they are copied: a
    /// broadcast one can be larger than any memory.
    fn bytes_within_limits(&self, value: ValueId, sizes: &[usize]) -> Result<usize, NodeError> {
        let element = self.dtype(value)?.size();
        pteron_tensor::element_count(sizes)
            .and_then(|count| count.checked_mul(element))
            .filter(|&bytes| bytes as u64 <= self.limits.tensor_bytes)
            .ok_or_else(|| {
                of_run(Error::Limit {
                    what: "a result",
                    limit: "tensor_bytes",
                    found: extent(sizes).saturating_mul(element as u64),
                    allowed: self.limits.tensor_bytes,
                })
            })
    }

    /// Gives a value with storage of its own these sizes.
    pub(crate) fn place(&mut self, value: ValueId, sizes: &[usize]) -> Result<(), NodeError> {
        let layout = Layout::row_major(sizes).ok_or_else(|| invalid(format!("{} axes", sizes.len())))?;
        let bytes = self.bytes_within_limits(value, sizes)?;
        let data = match self.plan.storage[value.0 as usize] {
            Storage::Arena { offset, bytes: most } if bytes <= most => self.arena.at(offset),
            Storage::Arena { bytes: most, .. } => {
                return Err(invalid(format!("a result of {bytes} bytes where at most {most} were planned")));
            }
            Storage::Heap(number) => {
                let heap = &mut self.frame.heaps[number];
                match self.plan.memory {
                    RunMemory::Planned if heap.len() < bytes => {
                        *heap = Memory::zeroed(bytes.next_power_of_two());
                    }
                    // No byte beyond the last element, so that one step too far is seen.
                    RunMemory::Separate if heap.len() != bytes => *heap = Memory::zeroed(bytes),
                    _ => {}
                }
                heap.address()
            }
            _ => return Err(invalid("a result without memory")),
        };
        self.set(value, Slot { data, layout });
        Ok(())
    }

    /// Applies a node's rule to the numbers at hand, charges its work, and gives its results their places.
    pub(crate) fn prepare(&mut self, node: &Node) -> Result<(), NodeError> {
        let types = self.infer(node)?;
        let shape_of = |value: ValueId| match self.plan.dtypes.get(value.0 as usize) {
            Some(Some(_)) => self.frame.slots[value.0 as usize].layout.sizes(),
            _ => &[],
        };
        let shapes: Vec<Option<Vec<usize>>> = types
            .iter()
            .map(|ty| match ty {
                Type::Tensor(tensor) => tensor.known_shape(),
                _ => None,
            })
            .collect();
        let written = shapes.iter().flatten().fold(0u64, |sum, sizes| sum.saturating_add(extent(sizes)));
        let work = work(node, &shape_of, written).saturating_add(1);
        self.control.charge(work).map_err(of_run)?;
        for (&value, sizes) in node.results.iter().zip(&shapes) {
            let own = matches!(self.plan.storage[value.0 as usize], Storage::Arena { .. } | Storage::Heap(_));
            if let (true, Some(sizes)) = (own, sizes) {
                self.place(value, sizes)?;
            }
        }
        Ok(())
    }

    /// As [`Run::prepare`] for a node with one result whose sizes are known to follow its rule. Allocates
    /// nothing.
    pub(crate) fn place_result(
        &mut self,
        node: &Node,
        result: ValueId,
        sizes: &[usize],
    ) -> Result<(), NodeError> {
        let shape_of = |value: ValueId| match self.plan.dtypes.get(value.0 as usize) {
            Some(Some(_)) => self.frame.slots[value.0 as usize].layout.sizes(),
            _ => &[],
        };
        let work = work(node, &shape_of, extent(sizes)).saturating_add(1);
        self.control.charge(work).map_err(of_run)?;
        match self.plan.storage[result.0 as usize] {
            Storage::Arena { .. } | Storage::Heap(_) => self.place(result, sizes),
            _ => Ok(()),
        }
    }

    /// The types of a node's results, with the numbers at hand.
    pub(crate) fn infer(&self, node: &Node) -> Result<Vec<Type>, NodeError> {
        let mut operands = Operands(Vec::new());
        node.for_each_operand(|value| {
            let index = value.0 as usize;
            let ty = match (self.plan.dtypes[index], self.frame.numbers[index]) {
                (Some(dtype), _) => {
                    Type::Tensor(TensorType::known(dtype, self.frame.slots[index].layout.sizes()))
                }
                (None, Scalar::Int(number)) => Type::Int(Dim::known(number)),
                (None, Scalar::Bool(truth)) => Type::Int(Dim::known(truth.into())),
                (None, Scalar::Float(_)) => Type::Float,
            };
            operands.0.push((value, ty));
        });
        Ok(infer(&node.op, &operands, &mut Symbols::default())?)
    }

    /// A copy of a value for whoever is outside.
    pub(crate) fn read(&self, value: ValueId) -> Result<Value, NodeError> {
        let mut copy = Value::None;
        self.read_into(value, &mut copy)?;
        Ok(copy)
    }

    /// As [`Run::read`], in memory that the place has where that fits.
    pub(crate) fn read_into(&self, value: ValueId, place: &mut Value) -> Result<(), NodeError> {
        let Some(dtype) = self.plan.dtypes[value.0 as usize] else {
            *place = match self.number(value) {
                Scalar::Int(number) => Value::Int(number),
                Scalar::Float(number) => Value::Float(number),
                Scalar::Bool(truth) => Value::Bool(truth),
            };
            return Ok(());
        };
        if let Storage::Constant(index) = self.plan.storage[value.0 as usize]
            && let Some(tensor) = self.constants.get(index)
        {
            *place = Value::Tensor(tensor.clone());
            return Ok(());
        }
        let view = self.view(value)?;
        self.bytes_within_limits(value, view.sizes())?;
        if let Value::Tensor(tensor) = place
            && let Some(bytes) = tensor.reuse(dtype, view.sizes())
        {
            copy::to_bytes(self.pool, &view, bytes);
            return Ok(());
        }
        // What does not serve goes before more is asked for.
        *place = Value::None;
        let mut tensor = HostTensor::zeros(dtype, view.sizes().to_vec()).map_err(KernelError::Tensor)?;
        copy::to_bytes(self.pool, &view, tensor.bytes_mut());
        *place = Value::Tensor(tensor);
        Ok(())
    }

    /// Tells who listens that a node has run. Who asks for no values hears of what a group of nodes begins with: that is where its
    /// time goes.
    pub(crate) fn trace(&self, number: usize, begins: Option<&Node>) -> Result<()> {
        let (Some(trace), Some(node)) = (&self.control.trace, self.listened.get(number)) else {
            return Ok(());
        };
        let mut results = Vec::new();
        if trace.detail() == Detail::Values {
            for &value in &node.results {
                results.push(self.read(value).map_err(|error| self.at_node(number, error))?);
            }
        }
        let told = begins.filter(|_| trace.detail() != Detail::Values).unwrap_or(node);
        trace.step(&backend::Step { graph: self.id, op: &told.op, place: told.place, results: &results });
        Ok(())
    }

    /// Adds the op, its place and its operands; errors from inside a nested block have theirs already.
    pub(crate) fn at_node(&self, number: usize, source: NodeError) -> Error {
        let source = match source {
            NodeError::Run(inner) => match *inner {
                error @ (Error::Node { .. } | Error::Cancelled | Error::Deadline) => return error,
                other => of_run(other),
            },
            source => source,
        };
        let Some(node) = nodes(self.graph).get(number).copied() else {
            return Error::Invalid(source.to_string());
        };
        let mut operands = Vec::new();
        node.for_each_operand(|value| {
            operands.push(match self.plan.dtypes[value.0 as usize] {
                Some(dtype) => format!("%{} {dtype} {:?}", value.0, self.slot(value).layout.sizes()),
                None => format!("%{} = {:?}", value.0, self.number(value)),
            });
        });
        let operands = if operands.is_empty() { "nothing".to_owned() } else { operands.join(", ") };
        let place = match node.place {
            Some(place) => format!("chain {} #{}", place.chain, place.index),
            None => "made by lift".to_owned(),
        };
        let op = Printer::new(self.graph).node(node).to_string();
        Error::Node { op, place, operands, source: Box::new(source) }
    }
}

/// The nodes of a graph in pre-order: by their numbers.
pub(crate) fn nodes(graph: &Graph) -> Vec<&Node> {
    let mut nodes = Vec::new();
    graph.for_each_node(|node, _| nodes.push(node));
    nodes
}
