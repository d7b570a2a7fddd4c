//! The planner: from a graph and the sizes of its inputs to a plan and the steps of a backend, which the backend's lowering
//! makes one by one.

use crate::arena::{self, Span};
use crate::groups::{Groups, Join};
use crate::hazards::Touching;
use crate::layout::Layout;
use crate::lifetimes::{Lifetimes, Sharing};
use crate::plan::{BufferWrite, Plan, PlanError, RunMemory, Storage};
use crate::types::Types;
use pteron_ir::liveness::Tick;
use pteron_ir::{Block, Effect, Graph, Node, Op, RuleError, ValueId};
use pteron_tensor::DType;
use std::collections::HashMap;
use std::sync::Arc;

/// A value whose size depends on data gets planned memory up to this bound; above it, memory that grows with use.
const LARGEST_PLANNED_BOUND: usize = 64 << 20;

/// How a backend turns nodes into steps. What it needs for that (its weights, tables that several steps share) it owns.
pub trait Lower: Join + Sized {
    /// What a run does for a node.
    type Step;

    /// The step of a node; `blocks` are the steps of its nested blocks in order.
    fn step(planner: &mut Planner<'_, Self>, node: &Numbered, blocks: Vec<Vec<Self::Step>>) -> Self::Step;

    /// The step of a node that its rule refuses: it fails when it is reached.
    fn refused(number: usize, error: &RuleError) -> Self::Step;

    /// Hears of a node that runs inside another one's step.
    fn joined(planner: &mut Planner<'_, Self>, node: &Node);
}

/// A node with its number in pre-order.
#[derive(Clone)]
pub struct Numbered {
    /// The node.
    pub node: Arc<Node>,
    /// Counts all nodes, nested ones after the node that holds them.
    pub number: usize,
    /// Whether all sizes and numbers are known to the plan, so that its rule has been applied for good.
    pub is_static: bool,
}

/// How a plan is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What values lie in.
    pub memory: RunMemory,
    /// Where values in the region begin: multiples of so many bytes.
    pub alignment: usize,
    /// The most bytes of a value.
    pub tensor_bytes: u64,
    /// The most bytes of the region.
    pub live_bytes: u64,
}

/// A plan, its steps, and the lowering with all that it has gathered.
pub struct Made<L: Lower> {
    /// Where everything lies.
    pub plan: Plan,
    /// In execution order.
    pub steps: Vec<L::Step>,
    /// What made them.
    pub lower: L,
}

/// What a lowering sees of the plan so far.
pub struct Planner<'p, L> {
    /// The graph that is planned.
    pub graph: &'p Graph,
    /// The types of its values.
    pub types: &'p Types,
    /// When they are needed, and which share memory.
    pub lifetimes: &'p Lifetimes,
    /// What they lie in; offsets into the region are not known yet.
    pub storage: &'p [Storage],
    /// Which nodes run inside others.
    pub groups: &'p Groups<'p>,
    /// What values lie in.
    pub memory: RunMemory,
    /// How many blocks enclose the node that is lowered.
    pub depth: usize,
    /// The backend's own.
    pub lower: L,
    /// Scratch asked for so far, and the nodes that use each piece.
    scratch: Vec<Span>,
    uses: HashMap<usize, Vec<usize>>,
}

impl<L> Planner<'_, L> {
    /// The dtype of a tensor.
    pub fn dtype(&self, value: ValueId) -> Option<DType> {
        self.types.tensor(value).map(|tensor| tensor.dtype)
    }

    /// The most elements of a tensor, for scratch.
    pub fn most_elements(&self, value: ValueId) -> Option<usize> {
        Some(self.types.most_bytes(value)? / self.dtype(value)?.size())
    }

    /// The buffer of the session in whose memory a value lies.
    pub fn buffer_of(&self, value: ValueId) -> Option<usize> {
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

    /// Memory for the time of one node; the number goes to [`Plan::scratch`].
    pub fn reserve(&mut self, node: usize, bytes: usize) -> usize {
        self.reserve_until(node, Tick::START, bytes)
    }

    /// Memory from when a node runs to a later moment.
    pub fn reserve_until(&mut self, node: usize, to: Tick, bytes: usize) -> usize {
        let from = self.lifetimes.at(node);
        let scratch = self.reserve_span(Span { from, to: to.max(from), bytes });
        self.reuse(node, scratch);
        scratch
    }

    /// Notes that a node uses what an earlier one has reserved, and left there for it.
    pub fn reuse(&mut self, node: usize, scratch: usize) {
        self.uses.entry(node).or_default().push(scratch);
    }

    fn reserve_span(&mut self, span: Span) -> usize {
        self.scratch.push(span);
        self.scratch.len() - 1
    }
}

/// Plans a graph for inputs of these shapes; inputs without one are numbers.
pub fn make<L: Lower>(
    graph: &Graph,
    shapes: &[Option<&[usize]>],
    lower: L,
    options: &Options,
) -> Result<Made<L>, PlanError> {
    let types = Types::of(graph, shapes);
    let groups = Groups::of(graph, &types, &lower);
    let lifetimes = Lifetimes::of(graph, &types, &groups);
    let mut placing = Placing::new(graph, &types);
    for value in made(graph, &groups) {
        placing.place(value, &types, &lifetimes, options)?;
    }
    let mut planner = Planner {
        graph,
        types: &types,
        lifetimes: &lifetimes,
        storage: &placing.storage,
        groups: &groups,
        memory: options.memory,
        depth: 0,
        lower,
        scratch: Vec::new(),
        uses: HashMap::new(),
    };
    let (numbers, steps): (Vec<usize>, Vec<L::Step>) =
        steps(&mut planner, &graph.body, &mut 0).into_iter().unzip();
    let writes = buffer_writes(graph, &mut planner);
    let (scratch, uses, lower) = (planner.scratch, planner.uses, planner.lower);

    let Placing { mut storage, mut heaps, planned, mut spans } = placing;
    spans.extend(&scratch);
    let (offsets, arena_bytes) = arena::place(&spans, options.alignment);
    if arena_bytes as u64 > options.live_bytes {
        let (what, limit) = ("the memory of a run", "live_bytes");
        let (found, allowed) = (arena_bytes as u64, options.live_bytes);
        return Err(PlanError::Limit { what, limit, found, allowed });
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
    if options.memory == RunMemory::Separate {
        let places = planned.iter().map(|value| value.0 as usize).chain(graph.values.len()..storage.len());
        let ends = keep_apart(&mut storage, &mut heaps, places.collect(), &spans);
        deaths = deaths_by_step(ends, &numbers, &lifetimes);
    }
    let touching = Touching {
        lifetimes: &lifetimes,
        groups: &groups,
        storage: &storage,
        values: graph.values.len(),
        scratch: uses,
    };
    let accesses = touching.accesses(graph, &numbers);
    let changed = (graph.buffers.iter().enumerate())
        .map(|(index, buffer)| {
            writes.iter().any(|write| write.buffer == index) || buffer.update != buffer.value
        })
        .collect();
    let mut draws = false;
    graph.for_each_node(|node, _| draws |= node.op.effect() == Effect::Random);
    let values = || (0..graph.values.len() as u32).map(ValueId);
    let plan = Plan {
        dtypes: values().map(|value| types.tensor(value).map(|ty| ty.dtype)).collect(),
        fixed: fixed(&storage, &types, values())?,
        numbers: values().filter_map(|value| Some((value, types.known_int(value)?))).collect(),
        storage,
        arena_bytes: if options.memory == RunMemory::Planned { arena_bytes } else { 0 },
        heaps,
        memory: options.memory,
        deaths,
        accesses,
        changed,
        writes,
        draws,
    };
    Ok(Made { plan, steps, lower })
}

/// What values lie in, before offsets are known.
struct Placing {
    storage: Vec<Storage>,
    heaps: Vec<usize>,
    /// Values that lie in the region, and for how long.
    planned: Vec<ValueId>,
    spans: Vec<Span>,
}

impl Placing {
    /// What is there before a run begins.
    fn new(graph: &Graph, types: &Types) -> Placing {
        let mut storage = vec![Storage::None; graph.values.len()];
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
        Placing { storage, heaps: Vec::new(), planned: Vec::new(), spans: Vec::new() }
    }

    /// Decides what a value that a run makes lies in.
    fn place(
        &mut self,
        value: ValueId,
        types: &Types,
        lifetimes: &Lifetimes,
        options: &Options,
    ) -> Result<(), PlanError> {
        let slot = &mut self.storage[value.0 as usize];
        let (Storage::None, Some(_)) = (*slot, types.tensor(value)) else { return Ok(()) };
        let life = lifetimes.life(value);
        if matches!(life.sharing, Sharing::View(_) | Sharing::InPlace(_)) || lifetimes.root(value) != value {
            *slot = Storage::View;
            return Ok(());
        }
        let known = types.sizes(value).is_some();
        match types.most_bytes(value) {
            Some(bytes) if known || bytes <= LARGEST_PLANNED_BOUND => {
                if bytes as u64 > options.tensor_bytes {
                    let (what, limit) = ("a result", "tensor_bytes");
                    let (found, allowed) = (bytes as u64, options.tensor_bytes);
                    return Err(PlanError::Limit { what, limit, found, allowed });
                }
                self.planned.push(value);
                self.spans.push(Span { from: life.from, to: lifetimes.end_of_root(value), bytes });
                *slot = Storage::Arena { offset: 0, bytes };
            }
            _ if known => return Err(PlanError::Overflow(value)),
            _ => {
                *slot = Storage::Heap(self.heaps.len());
                self.heaps.push(0);
            }
        }
        Ok(())
    }
}

/// Every value that nodes and blocks make in memory.
fn made(graph: &Graph, groups: &Groups<'_>) -> Vec<ValueId> {
    let (mut values, mut number) = (Vec::new(), 0);
    graph.for_each_node(|node, _| {
        if !groups.is_inner(number) {
            values.extend(&node.results);
        }
        number += 1;
        node.for_each_block(|block| values.extend(&block.params));
    });
    values
}

/// The steps of a block, with the numbers of their nodes. `number` counts nodes in pre-order.
fn steps<L: Lower>(planner: &mut Planner<'_, L>, block: &Block, number: &mut usize) -> Vec<(usize, L::Step)> {
    block.nodes.iter().filter_map(|node| Some((*number, step(planner, node, number)?))).collect()
}

/// The step of a node; `None` when the plan itself has done all there is to do.
fn step<L: Lower>(planner: &mut Planner<'_, L>, node: &Node, number: &mut usize) -> Option<L::Step> {
    let own = *number;
    *number += 1;
    if let Some(error) = planner.types.refused.get(&own) {
        *number = planner.lifetimes.next_number(own);
        return Some(L::refused(own, error));
    }
    if numbers_are_known(planner.types, node) {
        return None;
    }
    if planner.groups.is_inner(own) {
        L::joined(planner, node);
        return None;
    }
    let mut blocks = Vec::new();
    planner.depth += 1;
    node.for_each_block(|block| {
        blocks.push(steps(planner, block, number).into_iter().map(|(_, step)| step).collect());
    });
    planner.depth -= 1;
    let is_static = planner.types.is_static(node);
    let node = Numbered { node: Arc::new(node.clone()), number: own, is_static };
    Some(L::step(planner, &node, blocks))
}

/// Whether a node only gives numbers that the plan knows.
fn numbers_are_known(types: &Types, node: &Node) -> bool {
    !matches!(node.op, Op::If { .. } | Op::Scan { .. })
        && !node.results.is_empty()
        && node.results.iter().all(|&value| types.known_int(value).is_some())
}

/// Buffers that do not hold their new contents when the last step has run.
fn buffer_writes<L>(graph: &Graph, planner: &mut Planner<'_, L>) -> Vec<BufferWrite> {
    let mut writes = Vec::new();
    for (index, buffer) in graph.buffers.iter().enumerate() {
        if is_whole(graph, planner.lifetimes, buffer.update, buffer.value) {
            continue;
        }
        let staging = planner.may_lie_in_a_buffer(buffer.update).then(|| {
            let bytes = planner.types.most_bytes(buffer.update).unwrap_or(0);
            planner.reserve_span(Span { from: Tick::END, to: Tick::END, bytes })
        });
        writes.push(BufferWrite { buffer: index, value: buffer.update, staging });
    }
    writes
}

/// Whether a value is the whole of a buffer, changed in place or not at all.
fn is_whole(graph: &Graph, lifetimes: &Lifetimes, value: ValueId, buffer: ValueId) -> bool {
    let mut at = value;
    while at != buffer {
        match lifetimes.life(at).sharing {
            Sharing::InPlace(target) => at = target,
            Sharing::View(source) if is_copy_of(graph, at, source) => at = source,
            _ => return false,
        }
    }
    true
}

/// Whether a value is another one under a new name.
fn is_copy_of(graph: &Graph, value: ValueId, source: ValueId) -> bool {
    let mut found = false;
    graph.for_each_node(|node, _| {
        found |= matches!(&node.op, Op::IdCopy { x } if *x == source) && node.results == [value];
    });
    found
}

/// Gives everything that was placed in the region memory of its own instead; when each of those dies.
fn keep_apart(
    storage: &mut [Storage],
    heaps: &mut Vec<usize>,
    places: Vec<usize>,
    spans: &[Span],
) -> Vec<(Tick, usize)> {
    let mut ends = Vec::with_capacity(spans.len());
    for (place, span) in places.into_iter().zip(spans) {
        ends.push((span.to, heaps.len()));
        storage[place] = Storage::Heap(heaps.len());
        heaps.push(span.bytes);
    }
    ends.sort_unstable();
    ends
}

/// By step: the heaps that die with it.
fn deaths_by_step(ends: Vec<(Tick, usize)>, numbers: &[usize], lifetimes: &Lifetimes) -> Vec<Vec<usize>> {
    let mut ends = ends.into_iter().peekable();
    let mut deaths = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let now = lifetimes.behind(number);
        let mut dead = Vec::new();
        while let Some((_, heap)) = ends.next_if(|&(end, _)| end <= now) {
            dead.push(heap);
        }
        deaths.push(dead);
    }
    deaths
}

/// The layouts of values with storage of their own whose sizes are known.
fn fixed(
    storage: &[Storage],
    types: &Types,
    values: impl Iterator<Item = ValueId>,
) -> Result<Vec<(ValueId, Layout)>, PlanError> {
    let mut fixed = Vec::new();
    for value in values {
        let own = !matches!(storage[value.0 as usize], Storage::None | Storage::View);
        if let (true, Some(sizes)) = (own, types.sizes(value)) {
            let layout = Layout::row_major(&sizes).ok_or(PlanError::Rank { value, axes: sizes.len() })?;
            fixed.push((value, layout));
        }
    }
    Ok(fixed)
}
