//! What a program keeps from call to call, and whether a text can be cut back without reading it again.
//!
//! Read off the graph: a buffer whose slots are positions (a line) is cut back by naming the earlier position, or by
//! clearing what lies behind it where the program looks at the whole buffer. A ring still holds the last positions, so
//! that it is cut back by no more than it has slots beyond its window, and one call may write no more than that, whatever
//! the file declares. Anything else (recurrent states, counters) has to be kept or made again.

use pteron_ir::op::IntArg;
use pteron_ir::{Graph, Node, Op, Type, ValueId};
use pteron_runtime::{BufferId, BufferInfo, Program, Scope};
use pteron_tensor::HostTensor;
use std::collections::HashMap;

/// All that a session of the program keeps.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    /// Buffers that the methods in use write.
    pub(crate) buffers: Vec<(BufferInfo, Kind)>,
    /// Whether there is an off-graph cache.
    pub(crate) off_graph: bool,
    /// Whether a layer of it slides.
    pub(crate) off_graph_slides: bool,
}

/// How a buffer follows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Slot n of the axis belongs to position n.
    Line {
        /// The axis of slots.
        axis: usize,
        /// Whether the program also looks at slots behind the text, which must then be zero.
        looks_behind: bool,
    },
    /// Slot n mod slots of the axis belongs to position n.
    Ring {
        /// The axis of slots.
        axis: usize,
        /// Positions that are overwritten before any query that sees them is past, counted from the newest: slots beyond
        /// the window, and one. So many tokens may be written in one call, and so many taken back. `None` where the
        /// graph does not show its window.
        spare: Option<usize>,
    },
    /// Made of all tokens so far.
    Other,
}

impl Caches {
    /// Of the methods that a runner calls.
    pub(crate) fn of(program: &Program, methods: [&str; 2]) -> Caches {
        let in_use = |scope: &Scope| match scope {
            Scope::Method(name) => methods.contains(&name.as_str()),
            Scope::Shared => true,
        };
        let buffers = program.buffers().iter().filter(|buffer| in_use(&buffer.id.scope));
        let buffers = buffers.filter_map(|buffer| Some((buffer.clone(), kind(program, &buffer.id)?)));
        let slides =
            |spec: &pteron_runtime::CacheSpec| spec.layers.iter().any(|layer| layer.window.is_some());
        Caches {
            buffers: buffers.collect(),
            off_graph: program.needs_cache(),
            // Where the metadata do not describe the cache, it may.
            off_graph_slides: program.needs_cache() && program.cache_spec().is_none_or(slides),
        }
    }

    /// Positions that the shortest line has.
    pub(crate) fn slots(&self) -> Option<usize> {
        let lines = self.buffers.iter().filter_map(|(buffer, kind)| match kind {
            Kind::Line { axis, .. } => buffer.shape.get(*axis).copied(),
            _ => None,
        });
        lines.min()
    }

    /// Whether any earlier position can be gone back to, always.
    pub(crate) fn rewind_freely(&self) -> bool {
        !self.off_graph_slides && self.buffers.iter().all(|(_, kind)| matches!(kind, Kind::Line { .. }))
    }

    /// Whether the last tokens of a call can be taken back, always.
    pub(crate) fn take_back(&self) -> bool {
        self.buffers
            .iter()
            .all(|(_, kind)| matches!(kind, Kind::Line { .. } | Kind::Ring { spare: Some(_), .. }))
    }

    /// Whether the buffers can be cut back to `to` when positions up to `high` have been written.
    pub(crate) fn hold(&self, to: usize, high: usize) -> bool {
        self.buffers.iter().all(|(buffer, kind)| match kind {
            Kind::Line { .. } => true,
            Kind::Ring { axis, spare } => {
                high <= buffer.shape[*axis] || spare.is_some_and(|spare| high - to <= spare)
            }
            Kind::Other => false,
        })
    }

    /// Tokens that one call may write in a text of that many positions; `None` for any number.
    pub(crate) fn most_at_once(&self, context: Option<usize>) -> Option<usize> {
        let rings = self.buffers.iter().filter_map(|(buffer, kind)| match kind {
            Kind::Ring { axis, spare } => {
                let slots = buffer.shape[*axis];
                // A ring that never comes round is a line.
                let comes_round = context.is_none_or(|context| context > slots);
                Some(spare.filter(|_| comes_round).unwrap_or(slots).max(1))
            }
            _ => None,
        });
        rings.min()
    }
}

/// The buffer's kind; `None` where nothing writes it.
fn kind(program: &Program, id: &BufferId) -> Option<Kind> {
    let Some(delegate) = id.delegate else {
        return match program.keeper(id) {
            Some(module) => kind_in(&module.main, &id.name, |_| None),
            None => Some(Kind::Other),
        };
    };
    let graphs = program.methods().iter().filter(|method| match &id.scope {
        Scope::Method(name) => *name == method.name,
        Scope::Shared => true,
    });
    let graphs = graphs.filter_map(|method| method.delegates.get(delegate));
    let mut kinds = graphs.filter_map(|delegate| {
        let number = |name: &str| whole_number(program.weights().get(delegate.graph, name)?);
        kind_in(&delegate.module.main, &id.name, number)
    });
    let first = kinds.next()?;
    Some(if kinds.all(|kind| kind == first) { first } else { Kind::Other })
}

/// The one number of a constant.
fn whole_number(tensor: &HostTensor) -> Option<usize> {
    match (tensor.as_slice::<i64>(), tensor.as_slice::<i32>()) {
        (Ok(&[number]), _) => usize::try_from(number).ok(),
        (_, Ok(&[number])) => usize::try_from(number).ok(),
        _ => None,
    }
}

/// `number` gives the one number of the constant of a name.
fn kind_in(graph: &Graph, name: &str, number: impl Fn(&str) -> Option<usize>) -> Option<Kind> {
    let buffer = graph.buffers.iter().find(|buffer| buffer.name == name)?;
    if buffer.update == buffer.value {
        return None;
    }
    let flow = Flow::of(graph);
    let kind = flow.kind(buffer.value, buffer.update).unwrap_or(Kind::Other);
    let Kind::Ring { axis, .. } = kind else { return Some(kind) };
    let slots = match graph.ty(buffer.value)? {
        Type::Tensor(ty) => *ty.known_shape()?.get(axis)?,
        _ => return Some(Kind::Other),
    };
    let constant = |value: ValueId| {
        let constant = graph.constants.iter().find(|constant| constant.value == value)?;
        number(&constant.name)
    };
    let window = flow.window(slots, constant);
    Some(Kind::Ring { axis, spare: window.map(|window| slots - window + 1) })
}

/// Who makes and who reads each value of a graph.
struct Flow<'g> {
    graph: &'g Graph,
    made_by: HashMap<ValueId, &'g Node>,
    read_by: HashMap<ValueId, Vec<&'g Node>>,
}

/// Where a slice begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// At the position that the call was given.
    Position,
    /// At that position modulo a number.
    Modulo(i64),
    /// At the beginning.
    Zero,
}

impl<'g> Flow<'g> {
    fn of(graph: &'g Graph) -> Flow<'g> {
        let mut flow = Flow { graph, made_by: HashMap::new(), read_by: HashMap::new() };
        graph.for_each_node(|node, _| {
            for &result in &node.results {
                flow.made_by.insert(result, node);
            }
            node.for_each_operand(|operand| flow.read_by.entry(operand).or_default().push(node));
        });
        flow
    }

    /// The kind of a buffer that enters as `value` and leaves as `update`; `None` for one of another making.
    fn kind(&self, value: ValueId, update: ValueId) -> Option<Kind> {
        let Type::Tensor(ty) = self.graph.ty(value)? else { return None };
        let shape = ty.known_shape()?;
        let (mut at, mut starts, mut axes) = (update, Vec::new(), Vec::new());
        while at != value {
            if let Op::IdCopy { x } = &self.made_by.get(&at)?.op {
                at = *x;
                continue;
            }
            let (dst, axis, start) = match &self.made_by.get(&at)?.op {
                Op::SliceUpdate { dst, axis: IntArg::Literal(axis), start, step: 1, .. } => {
                    (*dst, *axis, self.start(start)?)
                }
                Op::IndexCopy { dst, indices, axis, .. } if self.is_input(*indices) => {
                    (*dst, i64::from(*axis), Start::Position)
                }
                _ => return None,
            };
            // What stands between two writes is nobody else's.
            if at != update && self.read_by.get(&at).is_none_or(|readers| readers.len() != 1) {
                return None;
            }
            starts.push(start);
            axes.push(usize::try_from(if axis < 0 { axis + shape.len() as i64 } else { axis }).ok()?);
            at = dst;
        }
        let &axis = axes.first().filter(|first| axes.iter().all(|axis| axis == *first))?;
        let slots = i64::try_from(*shape.get(axis)?).ok()?;
        let read_before = self.read_by.get(&value).is_none_or(|readers| readers.len() != 1);
        match starts.as_slice() {
            [Start::Position] => {
                let looks_behind = read_before || !self.reads_up_to_the_end(update, axis);
                Some(Kind::Line { axis, looks_behind })
            }
            [Start::Zero, Start::Modulo(modulus)] if *modulus == slots && !read_before => {
                Some(Kind::Ring { axis, spare: None })
            }
            _ => None,
        }
    }

    /// The window of rings of that many slots: what distances between queries and slots are compared with. The largest
    /// of several.
    fn window(&self, slots: usize, number: impl Fn(ValueId) -> Option<usize>) -> Option<usize> {
        let mut largest = None;
        self.graph.for_each_node(|node, _| {
            let Op::Less { b, .. } = &node.op else { return };
            let over_slots = node.results.first().is_some_and(|&result| match self.graph.ty(result) {
                Some(Type::Tensor(ty)) => {
                    ty.shape.last().and_then(|dim| dim.as_known()) == Some(slots as i64)
                }
                _ => false,
            });
            if over_slots && let Some(window) = number(*b).filter(|window| (1..=slots).contains(window)) {
                largest = largest.max(Some(window));
            }
        });
        largest
    }

    /// Whether every reader sees only slots from 0 to the end of the text.
    fn reads_up_to_the_end(&self, value: ValueId, axis: usize) -> bool {
        let readers = self.read_by.get(&value).map(Vec::as_slice).unwrap_or_default();
        readers.iter().all(|node| match &node.op {
            Op::Slice { axis: IntArg::Literal(along), start: IntArg::Literal(0), stop, step: 1, .. } => {
                *along == axis as i64 && self.is_end(stop)
            }
            _ => false,
        })
    }

    fn start(&self, start: &IntArg<ValueId>) -> Option<Start> {
        let value = match start {
            IntArg::Literal(0) => return Some(Start::Zero),
            IntArg::Literal(_) => return None,
            IntArg::Value(value) => *value,
        };
        if self.graph.inputs.iter().any(|input| input.value == value) {
            return Some(Start::Position);
        }
        match &self.made_by.get(&value)?.op {
            Op::ItemInt { x } if self.is_input(*x) => Some(Start::Position),
            Op::ModInt { a, b: IntArg::Literal(modulus) } => {
                (self.start(a)? == Start::Position).then_some(Start::Modulo(*modulus))
            }
            _ => None,
        }
    }

    /// Whether a number is the position plus something: how many tokens came.
    fn is_end(&self, stop: &IntArg<ValueId>) -> bool {
        let IntArg::Value(value) = stop else { return false };
        match self.made_by.get(value).map(|node| &node.op) {
            Some(Op::AddInt { a, b }) => {
                let is_position = |part| self.start(part) == Some(Start::Position);
                let is_length = |part: &IntArg<ValueId>| match part {
                    IntArg::Value(part) => {
                        matches!(self.made_by.get(part).map(|node| &node.op), Some(Op::SymSize { .. }))
                    }
                    IntArg::Literal(_) => false,
                };
                (is_position(a) && is_length(b)) || (is_position(b) && is_length(a))
            }
            _ => false,
        }
    }

    /// Whether a tensor is an argument of the graph, looked at in another shape or in part.
    fn is_input(&self, mut value: ValueId) -> bool {
        loop {
            if self.graph.inputs.iter().any(|input| input.value == value) {
                return true;
            }
            value = match self.made_by.get(&value).map(|node| &node.op) {
                Some(
                    Op::Take { x, .. }
                    | Op::Slice { x, .. }
                    | Op::Reshape { x, .. }
                    | Op::AsType { x, .. }
                    | Op::ExpandDims { x, .. }
                    | Op::Squeeze { x, .. },
                ) => *x,
                _ => return false,
            };
        }
    }
}
