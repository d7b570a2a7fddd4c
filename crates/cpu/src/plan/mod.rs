//! A plan: everything that can be decided about a graph once the sizes of its inputs are known. Types, which values are
//! views, where the others lie in one region of memory, and the steps that compute them. It is made once per input
//! signature and replayed; positions and other numbers read from data stay numbers of the run, so that a decode step at
//! any position replays one plan.

pub(crate) mod arena;
pub(crate) mod chains;
pub(crate) mod lifetimes;
pub(crate) mod types;

use crate::constants::Prepared;
use crate::layout::Layout;
use crate::ops;
use crate::ops::rope::TableKey;
use crate::run::Step;
use arena::Span;
use chains::Chains;
use lifetimes::{Lifetimes, Sharing, Tick};
use pteron_format::Limits;
use pteron_ir::{Effect, Graph, Op, Ssa, TypeSource, ValueId};
use pteron_kernels::path::Path;
use pteron_kernels::quant::InputLayout;
use pteron_runtime::reference::extent;
use pteron_runtime::{Error, Precision, Result};
use pteron_tensor::DType;
use std::collections::{HashMap, HashSet};
use types::Types;

/// A value whose size depends on data gets planned memory up to this bound; above it, memory that grows with use.
const LARGEST_PLANNED_BOUND: usize = 64 << 20;

/// What the values of a run lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunMemory {
    /// One region, in which values that are never needed at the same time share places.
    #[default]
    Planned,
    /// An allocation for every value and all scratch, spoiled when the plan says that it is no longer needed. Slow; what
    /// it computes is bit by bit what the region gives, unless a plan or a kernel is wrong. Under a sanitizer, an access
    /// one byte beyond a value is seen.
    Separate,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Nowhere: a number, or a value that is never made.
    None,
    /// In the planned region.
    Arena { offset: usize, bytes: usize },
    /// In memory of its own, which grows with use where sizes are not known.
    Heap(usize),
    /// A constant of the graph.
    Constant(usize),
    /// An input of the run.
    Input(usize),
    /// A buffer of the session.
    Buffer(usize),
    /// In the memory of another value.
    View,
}

/// What a run does at its end with a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferWrite {
    pub(crate) buffer: usize,
    /// What it will hold.
    pub(crate) value: ValueId,
    /// Where that is put first, because it lies in a buffer itself.
    pub(crate) staging: Option<usize>,
}

/// Everything that is decided before a run.
pub(crate) struct Plan {
    /// By value; numbers have none.
    pub(crate) dtypes: Vec<Option<DType>>,
    pub(crate) storage: Vec<Storage>,
    /// Constants whose elements some step reads where they lie; the biases of quantised weights need not be there.
    pub(crate) read: Vec<bool>,
    /// Sizes that are known, of values with storage of their own.
    pub(crate) fixed: Vec<(ValueId, Layout)>,
    /// Numbers that are known.
    pub(crate) numbers: Vec<(ValueId, i64)>,
    pub(crate) steps: Vec<Step>,
    pub(crate) arena_bytes: usize,
    /// Bytes of memory of its own that each value or piece of scratch begins with.
    pub(crate) heaps: Vec<usize>,
    pub(crate) memory: RunMemory,
    /// With separate memory: by step, the heaps that nobody needs when it has run.
    pub(crate) deaths: Vec<Vec<usize>>,
    /// Buffers that a run changes, in place or at its end.
    pub(crate) changed: Vec<bool>,
    pub(crate) writes: Vec<BufferWrite>,
    /// Whether it advances the session's random generator.
    pub(crate) draws: bool,
    /// Work of all steps whose sizes are known.
    pub(crate) work: u64,
}

/// How plans of a program are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    pub(crate) path: Path,
    pub(crate) precision: Precision,
    pub(crate) memory: RunMemory,
    pub(crate) threads: usize,
}

/// What a step's builder sees.
pub(crate) struct Planner<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) types: &'a Types,
    pub(crate) lifetimes: &'a Lifetimes,
    pub(crate) storage: &'a [Storage],
    pub(crate) chains: &'a Chains,
    pub(crate) prepared: &'a Prepared,
    pub(crate) path: Path,
    pub(crate) precision: Precision,
    pub(crate) memory: RunMemory,
    pub(crate) threads: usize,
    /// How many blocks enclose the node that is compiled.
    pub(crate) depth: usize,
    /// Tables of turns that several nodes share, by what they are made of.
    pub(crate) tables: HashMap<TableKey, usize>,
    /// Activations prepared for quantised weights: of which value, in which form, where.
    pub(crate) inputs: Vec<(ValueId, InputLayout, usize)>,
    /// Products whose kernel holds the weight itself, by the node's number.
    pub(crate) bound: HashSet<usize>,
    /// Scratch asked for so far.
    pub(crate) scratch: Vec<Span>,
    pub(crate) work: u64,
}

impl Planner<'_> {
    pub(crate) fn dtype(&self, value: ValueId) -> Option<DType> {
        self.types.tensor(value).map(|tensor| tensor.dtype)
    }

    /// The most elements of a tensor, for scratch.
    pub(crate) fn most_elements(&self, value: ValueId) -> Option<usize> {
        Some(self.types.most_bytes(value)? / self.dtype(value)?.size())
    }

    /// Whether a value's memory is that of a buffer of the session.
    pub(crate) fn buffer_of(&self, value: ValueId) -> Option<usize> {
        match self.storage[self.lifetimes.root(value).0 as usize] {
            Storage::Buffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Whether a value's memory may be that of a buffer: what is a view only where strides allow it counts as one.
    fn may_lie_in_a_buffer(&self, value: ValueId) -> bool {
        let mut at = self.lifetimes.root(value);
        loop {
            match (self.storage[at.0 as usize], self.lifetimes.life(at).sharing) {
                (Storage::Buffer(_), _) => return true,
                (_, Sharing::MaybeView(source)) => at = self.lifetimes.root(source),
                _ => return false,
            }
        }
    }

    /// Memory for the time of one node; the number goes to `Run::scratch`.
    pub(crate) fn reserve(&mut self, node: usize, bytes: usize) -> usize {
        self.reserve_until(node, Tick::at(node), bytes)
    }

    /// Memory from when a node runs to a later moment.
    pub(crate) fn reserve_until(&mut self, from: usize, to: Tick, bytes: usize) -> usize {
        self.reserve_span(Span { from: Tick::at(from), to, bytes })
    }

    fn reserve_span(&mut self, span: Span) -> usize {
        self.scratch.push(span);
        self.scratch.len() - 1
    }
}

impl Plan {
    /// Plans a graph for inputs of these shapes; inputs without one are numbers.
    pub(crate) fn make(
        graph: &Graph,
        shapes: &[Option<&[usize]>],
        prepared: &Prepared,
        making: Making,
        limits: &Limits,
    ) -> Result<Plan> {
        let types = Types::of(graph, shapes);
        let chains = Chains::of(graph, &types, making.path);
        let lifetimes = Lifetimes::of(graph, &types, &chains);
        let count = graph.values.len();
        let mut storage = vec![Storage::None; count];
        for (index, constant) in graph.constants.iter().enumerate() {
            storage[constant.value.0 as usize] = Storage::Constant(index);
        }
        for (index, input) in graph.inputs.iter().enumerate() {
            if types.tensor(input.value).is_some() {
                storage[input.value.0 as usize] = Storage::Input(index);
            }
        }
        for (index, buffer) in graph.buffers.iter().enumerate() {
            storage[buffer.value.0 as usize] = Storage::Buffer(index);
        }

        let mut spans = Vec::new();
        let mut planned = Vec::new();
        let mut heaps: Vec<usize> = Vec::new();
        let mut place = |value: ValueId, storage: &mut Vec<Storage>| -> Result<()> {
            let slot = &mut storage[value.0 as usize];
            let (Storage::None, Some(_)) = (*slot, types.tensor(value)) else { return Ok(()) };
            let life = lifetimes.life(value);
            if matches!(life.sharing, Sharing::View(_) | Sharing::InPlace(_))
                || lifetimes.root(value) != value
            {
                *slot = Storage::View;
                return Ok(());
            }
            let known = types.sizes(value).is_some();
            match types.most_bytes(value) {
                Some(bytes) if known || bytes <= LARGEST_PLANNED_BOUND => {
                    if bytes as u64 > limits.tensor_bytes {
                        let (what, limit) = ("a result", "tensor_bytes");
                        return Err(Error::Limit {
                            what,
                            limit,
                            found: bytes as u64,
                            allowed: limits.tensor_bytes,
                        });
                    }
                    planned.push(value);
                    spans.push(Span { from: life.from, to: lifetimes.end_of_root(value), bytes });
                    *slot = Storage::Arena { offset: 0, bytes };
                }
                _ if known => return Err(Error::Invalid(format!("the size of %{} overflows", value.0))),
                _ => {
                    *slot = Storage::Heap(heaps.len());
                    heaps.push(0);
                }
            }
            Ok(())
        };
        for value in made(graph, &chains) {
            place(value, &mut storage)?;
        }

        let mut planner = Planner {
            graph,
            types: &types,
            lifetimes: &lifetimes,
            storage: &storage,
            chains: &chains,
            prepared,
            path: making.path,
            precision: making.precision,
            memory: making.memory,
            threads: making.threads,
            depth: 0,
            tables: HashMap::new(),
            inputs: Vec::new(),
            bound: HashSet::new(),
            scratch: Vec::new(),
            work: 0,
        };
        let steps = ops::steps(&mut planner, &graph.body, &mut 0);
        let writes = buffer_writes(graph, &mut planner);
        let changed = (graph.buffers.iter().enumerate())
            .map(|(index, buffer)| {
                writes.iter().any(|write| write.buffer == index) || buffer.update != buffer.value
            })
            .collect();
        let read = read_constants(graph, &planner.bound);
        let (scratch, work) = (planner.scratch, planner.work);
        spans.extend(&scratch);
        let (offsets, arena_bytes) = arena::place(&spans);
        if arena_bytes as u64 > limits.live_bytes {
            let (what, limit) = ("the memory of a run", "live_bytes");
            return Err(Error::Limit { what, limit, found: arena_bytes as u64, allowed: limits.live_bytes });
        }
        for (&value, &at) in planned.iter().zip(&offsets) {
            if let Storage::Arena { offset, .. } = &mut storage[value.0 as usize] {
                *offset = at;
            }
        }
        // Scratch lies behind the values in the list of storages.
        for (span, &offset) in scratch.iter().zip(&offsets[planned.len()..]) {
            storage.push(Storage::Arena { offset, bytes: span.bytes });
        }
        let mut deaths = Vec::new();
        if making.memory == RunMemory::Separate {
            deaths = keep_apart(&mut storage, &mut heaps, &planned, &spans, &steps, &lifetimes);
        }

        let mut fixed = Vec::new();
        let mut numbers = Vec::new();
        for (index, &place) in storage.iter().enumerate().take(count) {
            let value = ValueId(index as u32);
            if let Some(number) = types.known_int(value) {
                numbers.push((value, number));
            }
            if let (
                Storage::Arena { .. }
                | Storage::Heap(_)
                | Storage::Constant(_)
                | Storage::Buffer(_)
                | Storage::Input(_),
                Some(sizes),
            ) = (place, types.sizes(value))
            {
                let layout = Layout::row_major(&sizes)
                    .ok_or_else(|| Error::Invalid(format!("%{index} has {} axes", sizes.len())))?;
                fixed.push((value, layout));
            }
        }
        let dtypes = (0..count).map(|index| types.tensor(ValueId(index as u32)).map(|ty| ty.dtype)).collect();
        let mut draws = false;
        graph.for_each_node(|node, _| draws |= node.op.effect() == Effect::Random);
        Ok(Plan {
            dtypes,
            storage,
            read,
            fixed,
            numbers,
            steps,
            arena_bytes: if making.memory == RunMemory::Planned { arena_bytes } else { 0 },
            heaps,
            memory: making.memory,
            deaths,
            changed,
            writes,
            draws,
            work,
        })
    }

    /// Where scratch lies.
    pub(crate) fn scratch(&self, number: usize) -> Storage {
        self.storage.get(self.dtypes.len() + number).copied().unwrap_or(Storage::None)
    }
}

/// Gives everything that was placed in the region memory of its own instead; by step, what dies with it.
fn keep_apart(
    storage: &mut [Storage],
    heaps: &mut Vec<usize>,
    planned: &[ValueId],
    spans: &[Span],
    steps: &[Step],
    lifetimes: &Lifetimes,
) -> Vec<Vec<usize>> {
    let scratch = storage.len() - (spans.len() - planned.len());
    let places = planned.iter().map(|value| value.0 as usize).chain(scratch..storage.len());
    let mut ends = Vec::with_capacity(spans.len());
    for (place, span) in places.zip(spans) {
        ends.push((span.to, heaps.len()));
        storage[place] = Storage::Heap(heaps.len());
        heaps.push(span.bytes);
    }
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut deaths = Vec::with_capacity(steps.len());
    for step in steps {
        let now = Tick::behind(lifetimes.spans[step.number] - 1);
        let mut dead = Vec::new();
        while let Some((_, heap)) = ends.next_if(|&(end, _)| end <= now) {
            dead.push(heap);
        }
        deaths.push(dead);
    }
    deaths
}

/// Which constants are read by more than products that hold them as biases.
fn read_constants(graph: &Graph, bound: &HashSet<usize>) -> Vec<bool> {
    let mut read: HashSet<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    read.extend(graph.buffers.iter().map(|buffer| buffer.update));
    let mut number = 0;
    graph.for_each_node(|node, _| {
        let unread = match &node.op {
            _ if !bound.contains(&number) => &[][..],
            Op::<Ssa>::QuantizedMatmul { biases, .. } | Op::PackedEmbedding { biases, .. } => {
                biases.as_slice()
            }
            Op::Projections { biases, .. } | Op::GatedProjection { biases, .. } => biases,
            _ => &[],
        };
        node.for_each_operand(|value| {
            if !unread.contains(&value) {
                read.insert(value);
            }
        });
        node.for_each_block(|block| read.extend(&block.results));
        number += 1;
    });
    graph.constants.iter().map(|constant| read.contains(&constant.value)).collect()
}

/// Every value that nodes and blocks make in memory.
fn made(graph: &Graph, chains: &Chains) -> Vec<ValueId> {
    let (mut values, mut number) = (Vec::new(), 0);
    graph.for_each_node(|node, _| {
        if !chains.is_inner(number) {
            values.extend(&node.results);
        }
        number += 1;
        node.for_each_block(|block| values.extend(&block.params));
    });
    values
}

/// Buffers that do not hold their new contents when the last step has run.
fn buffer_writes(graph: &Graph, planner: &mut Planner<'_>) -> Vec<BufferWrite> {
    let mut writes = Vec::new();
    for (index, buffer) in graph.buffers.iter().enumerate() {
        if is_whole(planner, buffer.update, buffer.value) {
            continue;
        }
        let staging = planner.may_lie_in_a_buffer(buffer.update).then(|| {
            let bytes = planner.types.most_bytes(buffer.update).unwrap_or(0);
            let end = planner.lifetimes.end;
            planner.reserve_span(Span { from: end, to: end, bytes })
        });
        writes.push(BufferWrite { buffer: index, value: buffer.update, staging });
    }
    writes
}

/// Whether a value is the whole of a buffer, changed in place or not at all.
fn is_whole(planner: &Planner<'_>, value: ValueId, buffer: ValueId) -> bool {
    let mut at = value;
    while at != buffer {
        match planner.lifetimes.life(at).sharing {
            Sharing::InPlace(target) => at = target,
            Sharing::View(source) if is_copy_of(planner.graph, at, source) => at = source,
            _ => return false,
        }
    }
    true
}

/// Whether a value is another one under a new name.
fn is_copy_of(graph: &Graph, value: ValueId, source: ValueId) -> bool {
    let mut found = false;
    graph.for_each_node(|node, _| {
        found |= matches!(&node.op, Op::<Ssa>::IdCopy { x } if *x == source) && node.results == [value];
    });
    found
}

/// The extent of all known results of a node.
pub(crate) fn written(types: &Types, results: &[ValueId]) -> u64 {
    let extents = results.iter().filter_map(|&value| types.sizes(value)).map(|sizes| extent(&sizes));
    extents.fold(0u64, u64::saturating_add)
}

/// Whether a value is a tensor.
pub(crate) fn is_tensor(types: &Types, value: ValueId) -> bool {
    matches!(types.type_of(value), Some(pteron_ir::Type::Tensor(_)))
}
