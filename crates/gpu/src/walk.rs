//! A call of a planned graph: its steps with the numbers of this call, turned into dispatches one by one. Sizes and positions are
//! computed here, on the host; where a number lies in what the device has computed, the walk pauses until it is read.

use crate::dispatch::{Dispatch, Region, View};
use crate::features::Features;
use crate::lower::{Lowering, Turned, axis_of};
use crate::steps::{Planned, StepNode};
use products::Normed;
use pteron_ir::op::{IntArg, ResultKind};
use pteron_ir::{Dim, Graph, Node, Op, RuleError, Symbols, TensorType, Type, TypeSource, ValueId, infer};
use pteron_plan::{Layout, Storage, arithmetic};
use pteron_tensor::{DType, Scalar};
use std::collections::HashMap;
use std::sync::Arc;

mod along;
mod attend;
mod compute;
mod elementwise;
mod finish;
mod products;
mod replay;
mod spans;

pub use replay::Lowered;
use spans::SpannedRope;

/// What a call is given, or what a constant or buffer is.
#[derive(Clone, Debug)]
pub enum Given {
    /// A tensor.
    Tensor {
        /// Its element type.
        dtype: DType,
        /// Its dims.
        sizes: Vec<usize>,
        /// Where it begins in its region.
        offset: usize,
        /// Its first element, where that is an integer that the host knows.
        first: Option<i64>,
    },
    /// A number.
    Number(Scalar),
}

/// One of the texts that a call reads side by side: so many of its tokens belong to it, behind those of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The position of its first token.
    pub start: usize,
    /// How many there are.
    pub tokens: usize,
}

/// What goes into an off-graph cache.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The text whose cache it is, among those that are read side by side.
    pub span: usize,
    /// The layer.
    pub layer: usize,
    /// Where the first row goes.
    pub position: i64,
    /// How many rows.
    pub length: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Features of a head.
    pub features: usize,
    /// Of the keys.
    pub dtype: DType,
}

/// How a layer of the cache lies in memory once there is room for what is written: by head, rows of features.
#[derive(Clone, Copy, Debug)]
pub struct CacheView {
    /// What is stored.
    pub dtype: DType,
    /// Rows of a head that there is memory for.
    pub rows: usize,
    /// Slots of a ring; 0 where rows lie in the order of positions.
    pub slots: usize,
    /// The first position that any query sees.
    pub first: usize,
    /// Positions that a query sees; 0 where that has no bound.
    pub window: usize,
}

/// A number or a tensor of a run.
#[allow(clippy::large_enum_variant)] // a box would be an allocation for every value of every token
#[derive(Clone, Copy, Debug)]
pub enum Datum {
    /// A tensor.
    Tensor(View),
    /// A number.
    Number(Scalar),
}

/// What a call gives.
#[derive(Clone, Debug)]
pub struct Finished {
    /// By output: a number, or a tensor in the region of outputs.
    pub outputs: Vec<Datum>,
    /// Bytes that the region needs.
    pub bytes: usize,
    /// The one output that is scores, and where in the region lie integers of 64 bits that say where the greatest element of its
    /// last row is, the first of several, or -1 where none is; of texts that are read side by side, of each row. The host is told
    /// them too.
    pub greatest: Option<(usize, Vec<usize>)>,
}

/// Why a walk stands still.
#[allow(clippy::large_enum_variant)] // a box would be an allocation for every value of every token
#[derive(Debug)]
pub enum Pause {
    /// It needs the first element of a view as an integer: [`Walk::give`] it.
    Read(View),
    /// There is no room yet for what goes into the cache: [`Walk::admit`] it.
    Admit(Written),
    /// A step has been lowered, and somebody wants its results.
    Step(Vec<Datum>),
    /// All steps are lowered.
    Done,
}

/// What is wrong with a step.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// Its rule refuses what it is given.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// More bytes than a tensor may have.
    #[error("a result of {0} bytes is too large")]
    Large(u64),
    /// Anything else.
    #[error("{0}")]
    Invalid(String),
}

pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, WalkError> {
    Err(WalkError::Invalid(message.into()))
}

struct Table(Vec<Option<Type>>);

impl TypeSource for Table {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.0.get(value.0 as usize)?.as_ref()
    }
}

/// What a walk has paused for.
enum Waiting {
    /// A number of the run.
    Number(ValueId),
    /// The first element of a tensor.
    First(ValueId),
}

/// A call under way.
pub struct Walk<'a> {
    graph: &'a Graph,
    planned: &'a Planned,
    values: Vec<Option<Datum>>,
    types: Table,
    /// By value: the first element of a tensor of integers, where the host knows it.
    firsts: Vec<Option<i64>>,
    lowering: Lowering,
    next: usize,
    waiting: Option<Waiting>,
    /// The texts that are read side by side; none where it is one.
    spans: Vec<Span>,
    /// How the layer at hand lies, text by text, as far as that is known.
    admitted: Vec<CacheView>,
    /// Whether every step's results are wanted.
    traced: bool,
    /// Norms that the products which read them compute themselves.
    norms: HashMap<ValueId, Normed>,
    /// By result: ropes that were just lowered.
    ropes: HashMap<ValueId, Turned>,
    /// Ropes of texts side by side that are still to be lowered: whoever writes their results elsewhere does them there.
    spanned: Vec<SpannedRope>,
    /// By step: where its scratch begins, and the first of the steps that it was lowered together with.
    places: Vec<((usize, usize), usize)>,
    /// Whether a number was read back.
    has_read: bool,
    /// Where scratch behind the last step begins.
    finish_cursor: Option<(usize, usize)>,
}

impl<'a> Walk<'a> {
    /// Begins a call. `constants` and `buffers` are by number; all of a plan's own sizes hold for the inputs. `spans` are the texts that
    /// are read side by side, where it is not one.
    pub fn new(
        (graph, planned): (&'a Graph, &'a Planned),
        inputs: &[Given],
        constants: &[Given],
        buffers: &[Given],
        spans: &[Span],
        (features, traced): (Features, bool),
    ) -> Result<Walk<'a>, WalkError> {
        let count = graph.values.len();
        let mut walk = Walk {
            graph,
            planned,
            values: vec![None; count],
            types: Table(vec![None; count]),
            firsts: vec![None; count],
            lowering: Lowering::new(features, planned.plan.arena_bytes),
            next: 0,
            waiting: None,
            spans: spans.to_vec(),
            admitted: Vec::new(),
            traced,
            norms: HashMap::new(),
            ropes: HashMap::new(),
            spanned: Vec::new(),
            places: Vec::with_capacity(planned.steps.len()),
            has_read: false,
            finish_cursor: None,
        };
        for &(value, number) in &planned.plan.numbers {
            walk.set_number(value, Scalar::Int(number));
        }
        for (at, (input, given)) in graph.inputs.iter().zip(inputs).enumerate() {
            walk.enter(input.value, given, (Region::Input(at), Storage::Input(at)))?;
        }
        for (at, (constant, given)) in graph.constants.iter().zip(constants).enumerate() {
            walk.enter(constant.value, given, (Region::Constant(at), Storage::Constant(at)))?;
        }
        for (at, (buffer, given)) in graph.buffers.iter().zip(buffers).enumerate() {
            walk.enter(buffer.value, given, (Region::Buffer(at), Storage::Buffer(at)))?;
        }
        Ok(walk)
    }

    fn enter(
        &mut self,
        value: ValueId,
        given: &Given,
        (region, storage): (Region, Storage),
    ) -> Result<(), WalkError> {
        match given {
            Given::Number(number) => self.set_number(value, *number),
            Given::Tensor { dtype, sizes, offset, first } => {
                let Some(layout) = Layout::row_major(sizes) else { return invalid("too many axes") };
                let view = View { region, offset: *offset, dtype: *dtype, layout, storage };
                self.set_tensor(value, view);
                self.firsts[value.0 as usize] = *first;
            }
        }
        Ok(())
    }

    fn set_number(&mut self, value: ValueId, number: Scalar) {
        let at = value.0 as usize;
        self.values[at] = Some(Datum::Number(number));
        self.types.0[at] = Some(match number {
            Scalar::Int(number) => Type::Int(Dim::known(number)),
            Scalar::Float(_) => Type::Float,
            Scalar::Bool(_) => Type::Bool,
        });
    }

    fn set_tensor(&mut self, value: ValueId, view: View) {
        let at = value.0 as usize;
        self.types.0[at] = Some(Type::Tensor(TensorType::known(view.dtype, view.sizes())));
        self.values[at] = Some(Datum::Tensor(view));
    }

    /// The number of the step at hand.
    pub fn step(&self) -> usize {
        self.next.saturating_sub(1)
    }

    /// The node of a step.
    pub fn node(&self, step: usize) -> Option<&Arc<Node>> {
        self.planned.node(step)
    }

    /// Whether a number was read back from the device.
    pub fn has_read(&self) -> bool {
        self.has_read
    }

    /// Bytes of the arena that this call needs so far.
    pub fn arena_bytes(&self) -> usize {
        self.lowering.next
    }

    /// What was lowered since this was last asked.
    pub fn take(&mut self) -> Vec<Dispatch> {
        self.turn_spans();
        // What is taken is not changed any more.
        self.lowering.product = None;
        self.ropes.clear();
        std::mem::take(&mut self.lowering.dispatches)
    }

    /// The shape of an operand, for estimates of work.
    pub fn sizes_of(&self, value: ValueId) -> &[usize] {
        match self.values.get(value.0 as usize) {
            Some(Some(Datum::Tensor(view))) => view.sizes(),
            _ => &[],
        }
    }

    /// The number that it paused for.
    pub fn give(&mut self, number: i64) {
        self.has_read = true;
        match self.waiting.take() {
            Some(Waiting::Number(value)) => match i32::try_from(number) {
                Ok(number) => self.set_number(value, Scalar::Int(number.into())),
                // Left unset: whoever reads it says so.
                Err(_) => self.values[value.0 as usize] = None,
            },
            Some(Waiting::First(value)) => self.firsts[value.0 as usize] = Some(number),
            None => {}
        }
    }

    /// How the layer lies that it paused for.
    pub fn admit(&mut self, view: CacheView) {
        self.admitted.push(view);
    }

    /// Goes on to the next pause.
    pub fn advance(&mut self) -> Result<Pause, WalkError> {
        while let Some(step) = self.planned.steps.get(self.next) {
            self.lowering.step = self.next;
            if self.places.len() == self.next {
                self.places.push((self.lowering.cursor(), self.next));
            }
            let node = match step {
                StepNode::Refused(error) => {
                    self.next += 1;
                    return Err(error.clone().into());
                }
                StepNode::Run { node, .. } => node.clone(),
            };
            let paused = self.step_on()?;
            if let Some(bytes) = self.lowering.take_beyond() {
                return invalid(format!(
                    "{bytes} bytes between the kernels of an op are more than one of them can see on this device"
                ));
            }
            match paused {
                Some(Pause::Admit(written)) => {
                    self.next -= 1;
                    return Ok(Pause::Admit(written));
                }
                Some(pause) => return Ok(pause),
                None if self.traced => {
                    let results = node.results.iter().filter_map(|value| self.values[value.0 as usize]);
                    return Ok(Pause::Step(results.collect()));
                }
                None => {}
            }
        }
        Ok(Pause::Done)
    }

    /// Lowers the step at hand, or pauses before it.
    fn step_on(&mut self) -> Result<Option<Pause>, WalkError> {
        let planned = self.planned;
        let Some(StepNode::Run { node, in_place, scratch }) = planned.steps.get(self.next) else {
            return invalid("there is no such step");
        };
        self.lowering.step = self.next;
        self.next += 1;
        if self.admitted.len() < self.spans.len().max(1) {
            return self.one(node, *in_place, *scratch);
        }
        let mut views = std::mem::take(&mut self.admitted);
        let attended = match views.as_slice() {
            &[view] if self.spans.is_empty() => self.attend(node, view),
            views => self.attend_spans(node, views),
        };
        views.clear();
        self.admitted = views;
        attended.map(|()| None)
    }

    /// Notes that the step at hand was lowered together with an earlier one.
    fn merge_with(&mut self, step: usize) {
        let own = self.lowering.step;
        if let Some(place) = self.places.get_mut(own) {
            place.1 = place.1.min(step);
        }
    }

    fn tensor(&self, value: ValueId) -> Result<View, WalkError> {
        match self.values.get(value.0 as usize) {
            Some(Some(Datum::Tensor(view))) => Ok(*view),
            _ => invalid(format!("%{} is no tensor here", value.0)),
        }
    }

    fn maybe(&self, value: Option<ValueId>) -> Result<Option<View>, WalkError> {
        value.map(|value| self.tensor(value)).transpose()
    }

    fn scalar(&self, value: ValueId) -> Result<Scalar, WalkError> {
        match self.values.get(value.0 as usize) {
            Some(Some(Datum::Number(number))) => Ok(*number),
            _ => invalid(format!("%{} is no number of 32 bits here", value.0)),
        }
    }

    fn int(&self, argument: &IntArg<ValueId>) -> Result<i64, WalkError> {
        match argument {
            IntArg::Literal(number) => Ok(*number),
            IntArg::Value(value) => match self.scalar(*value)? {
                Scalar::Int(number) => Ok(number),
                Scalar::Bool(truth) => Ok(truth.into()),
                Scalar::Float(_) => invalid(format!("%{} is no integer", value.0)),
            },
        }
    }

    fn first_of(&self, value: ValueId) -> Option<i64> {
        self.firsts.get(value.0 as usize).copied().flatten()
    }

    /// Memory for the one result of a node, of the type that its rule gives.
    fn own(&mut self, node: &Node) -> Result<View, WalkError> {
        let types = infer(&node.op, &self.types, &mut Symbols::default())?;
        let (Some(Type::Tensor(ty)), Some(&value)) = (types.first(), node.results.first()) else {
            return invalid("the op gives no tensor");
        };
        self.placed(value, ty)
    }

    fn placed(&mut self, value: ValueId, ty: &TensorType) -> Result<View, WalkError> {
        let Some(sizes) = ty.known_shape() else { return invalid("the size of a result is not known") };
        let Some(layout) = Layout::row_major(&sizes) else { return invalid("too many axes") };
        let bytes = layout.len().saturating_mul(ty.dtype.size());
        if bytes as u64 > self.lowering.features.max_binding || layout.len() > i32::MAX as usize {
            return invalid(format!(
                "a result of {bytes} bytes is more than a kernel of this device can see"
            ));
        }
        let storage = self.planned.plan.storage_of(value);
        let offset = match storage {
            Storage::Arena { offset, bytes: room } if bytes <= room => offset,
            _ => self.lowering.reserve(bytes),
        };
        Ok(View { region: Region::Arena, offset, dtype: ty.dtype, layout, storage })
    }

    /// One step that needs no cache.
    fn one(
        &mut self,
        node: &Node,
        in_place: bool,
        scratch: Option<usize>,
    ) -> Result<Option<Pause>, WalkError> {
        if node.op.spec().result.kind == ResultKind::Scalar {
            return self.number(node);
        }
        if let Op::UpdateAndAttend { k, position, layer_id, .. } = &node.op {
            let (k, Some(&layer)) = (self.tensor(*k)?, layer_id.as_ref()) else {
                return invalid("the node has no layer");
            };
            if self.tensor(*position)?.sizes() == [2, 1] {
                return invalid(
                    "tokens that see those behind them (images) are read by the cpu backend alone",
                );
            }
            let &[1, heads, length, features] = k.sizes() else {
                return invalid(format!("keys {:?} of a cache", k.sizes()));
            };
            let span = self.admitted.len();
            let (start, length) = match (self.spans.get(span), self.first_of(*position)) {
                (Some(&Span { start, tokens }), _) => {
                    let all = self.spans.iter().fold(0usize, |sum, span| sum.saturating_add(span.tokens));
                    if all != length {
                        return invalid(format!("{length} tokens, {all} of them in texts"));
                    }
                    (start as i64, tokens)
                }
                (None, Some(start)) => (start, length),
                (None, None) => {
                    // Read, then asked for again.
                    let view = self.tensor(*position)?;
                    self.next -= 1;
                    self.waiting = Some(Waiting::First(*position));
                    return Ok(Some(Pause::Read(view)));
                }
            };
            infer(&node.op, &self.types, &mut Symbols::default())?;
            let Ok(layer) = usize::try_from(layer) else { return invalid("the layer is negative") };
            let written = Written { span, layer, position: start, length, heads, features, dtype: k.dtype };
            return Ok(Some(Pause::Admit(written)));
        }
        if let Op::MetalKernel { inputs, .. } = &node.op
            && let Some(&steps) = inputs.last()
            && self.first_of(steps).is_none()
        {
            let view = self.tensor(steps)?;
            if view.layout.len() != 1 {
                return invalid(format!("{} elements where one is needed", view.layout.len()));
            }
            // Read, then asked for again.
            self.next -= 1;
            self.waiting = Some(Waiting::First(steps));
            return Ok(Some(Pause::Read(view)));
        }
        self.compute(node, in_place, scratch)?;
        Ok(None)
    }

    /// A number of the host, or one to be read.
    fn number(&mut self, node: &Node) -> Result<Option<Pause>, WalkError> {
        let &[result] = node.results.as_slice() else { return invalid("one number is given") };
        let number = match &node.op {
            Op::ItemInt { x } => {
                let view = self.tensor(*x)?;
                if view.layout.len() != 1 {
                    return invalid(format!("{} elements where one is needed", view.layout.len()));
                }
                match self.first_of(*x) {
                    Some(first) => first,
                    None => {
                        self.waiting = Some(Waiting::Number(result));
                        return Ok(Some(Pause::Read(view)));
                    }
                }
            }
            Op::SymSize { a, dim } => {
                let view = self.tensor(*a)?;
                let size = view.sizes().get(axis_of(*dim, view.layout.rank()));
                *size.ok_or_else(|| WalkError::Invalid(format!("no axis {dim}")))? as i64
            }
            op => {
                let Some(([a, b], apply)) = arithmetic(op) else { return invalid("the op gives no number") };
                let (a, b) = (self.int(&a)?, self.int(&b)?);
                let Some(number) = apply(a, b) else {
                    return invalid(format!("{a} and {b} give no integer of 32 bits"));
                };
                number
            }
        };
        let Ok(number) = i32::try_from(number) else {
            return invalid(format!("{number} does not fit 32 bits"));
        };
        self.set_number(result, Scalar::Int(number.into()));
        Ok(None)
    }
}
