//! Whether the tokens that a graph is given may be those of several texts, one behind the other: whether every row of every
//! value is made of one token alone, and rows meet nowhere but in the off-graph cache, which keeps texts apart. A program of
//! that form reads a flat batch.
//!
//! A graph that is told the position of its first token alone may still read one token each of several texts, in lanes: its rows keep
//! apart, and what depends on the position is done lane by lane.
//!
//! Read off the graph, op by op, and with caution: what is not known to keep rows apart is taken to mix them.

use crate::dim::Dim;
use crate::graph::{Graph, Input, Node, Ssa, TensorType, Type, ValueId};
use crate::op::{FloatArg, IndexArg, IntArg, OffsetArg, Op};

/// A graph whose tokens may be those of several texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRows {
    /// By input: the axis along which it has a row for each token; `None` for what is the same for all of them, and for
    /// numbers of rows to be picked.
    pub tokens: Vec<Option<usize>>,
}

/// A graph whose tokens may be the next ones of several texts, each with a position of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRows {
    /// By input.
    pub inputs: Vec<LaneInput>,
    /// By output: the axis along which it has a row for each token, or for each that was picked.
    pub outputs: Vec<usize>,
}

/// What an input of lanes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneInput {
    /// It has a row for each token.
    Tokens {
        /// Along this axis.
        axis: usize,
        /// Of integers, which pick rows of tables: how many rows the smallest table has. What one lane gives beyond that would be the
        /// fault of all.
        below: Option<usize>,
    },
    /// It says which rows are wanted.
    Picks,
    /// The position of the first token.
    Start,
    /// It is the same for all tokens.
    Same,
}

/// What a value has to do with tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Free,
    /// It is the number of them.
    Length,
    /// It says which rows are wanted.
    Picks,
    /// It is the position of the first of them.
    Start,
    /// Each row along the axis is made of one of them: of all in their order, or of those that were picked.
    Rows { axis: usize, picked: bool },
}

/// The rows of a graph; or why its tokens are those of one text.
pub fn token_rows(graph: &Graph) -> Result<TokenRows, String> {
    if let Some(buffer) = graph.buffers.first() {
        return Err(format!("buffer `{}` belongs to one text", buffer.name));
    }
    let rows = Rows::of(graph, None)?;
    let axis = |input: &Input| match rows.kind(input.value) {
        Kind::Rows { axis, .. } => Some(axis),
        _ => None,
    };
    Ok(TokenRows { tokens: graph.inputs.iter().map(axis).collect() })
}

/// The rows of a graph whose tokens may be those of several lanes; or why they are those of one text.
pub fn lane_rows(graph: &Graph) -> Result<LaneRows, String> {
    if let Some(buffer) = graph.buffers.first() {
        return Err(format!("buffer `{}` belongs to one text", buffer.name));
    }
    let start = position_input(graph).and_then(|at| graph.inputs.get(at));
    let start = start.ok_or("no input is the position of its first token")?;
    let rows = Rows::of(graph, Some(start.value))?;
    let input = |input: &Input| {
        Ok(match rows.kind(input.value) {
            Kind::Rows { axis, .. } => LaneInput::Tokens { axis, below: rows.below(input)? },
            Kind::Picks => LaneInput::Picks,
            Kind::Start => LaneInput::Start,
            Kind::Free | Kind::Length => LaneInput::Same,
        })
    };
    let inputs = graph.inputs.iter().map(input).collect::<Result<_, String>>()?;
    let outputs = graph.outputs.iter().map(|output| Ok(rows.rows(output.value)?.0));
    Ok(LaneRows { inputs, outputs: outputs.collect::<Result<_, String>>()? })
}

/// The input from which ops over the cache have their positions as they are given.
pub fn position_input(graph: &Graph) -> Option<usize> {
    let mut nodes = graph.body.nodes.iter().rev();
    let mut value = nodes.find_map(|node| match &node.op {
        Op::UpdateAndAttend { position, .. } => Some(*position),
        _ => None,
    })?;
    for node in nodes.filter(|node| !matches!(node.op, Op::UpdateAndAttend { .. })) {
        if node.results.as_slice() == [value] {
            value = restated(&node.op)?;
        }
    }
    graph.inputs.iter().position(|input| input.value == value)
}

/// The number that an op gives once more, in another form.
fn restated(op: &Op<Ssa>) -> Option<ValueId> {
    match op {
        Op::Full { v: FloatArg::Value(value), .. } => Some(*value),
        Op::AsType { x, .. }
        | Op::Reshape { x, .. }
        | Op::Contiguous { x }
        | Op::ExpandDims { x, .. }
        | Op::Squeeze { x, .. }
        | Op::IdCopy { x } => Some(*x),
        _ => None,
    }
}

struct Rows<'g> {
    graph: &'g Graph,
    /// By value.
    kinds: Vec<Kind>,
    /// Whether an op over the cache was met.
    attends: bool,
}

const MIXES: &str = "reads tokens of several rows at once";

fn mixes() -> Result<Kind, String> {
    Err(MIXES.to_owned())
}

impl<'g> Rows<'g> {
    /// What all values are, where one may be the position of the first token.
    fn of(graph: &'g Graph, start: Option<ValueId>) -> Result<Rows<'g>, String> {
        let mut rows = Rows { graph, kinds: vec![Kind::Free; graph.values.len()], attends: false };
        for input in &graph.inputs {
            let kind = match start {
                Some(start) if input.value == start => Some(Kind::Start),
                _ => rows.input(input.value),
            };
            rows.set(input.value, kind.ok_or_else(|| format!("input `{}` has several sizes", input.name))?);
        }
        for node in &graph.body.nodes {
            let kind = rows.node(node).map_err(|reason| format!("`{}` {reason}", node.op.spec().text))?;
            node.results.iter().for_each(|&result| rows.set(result, kind));
        }
        match rows.attends {
            true => Ok(rows),
            false => Err("it keeps nothing in the session's cache".to_owned()),
        }
    }

    fn kind(&self, value: ValueId) -> Kind {
        self.kinds.get(value.0 as usize).copied().unwrap_or(Kind::Free)
    }

    fn set(&mut self, value: ValueId, kind: Kind) {
        if let Some(place) = self.kinds.get_mut(value.0 as usize) {
            *place = kind;
        }
    }

    fn shape(&self, value: ValueId) -> &[Dim] {
        match self.graph.ty(value) {
            Some(Type::Tensor(tensor)) => &tensor.shape,
            _ => &[],
        }
    }

    /// What an input is: the one axis whose size varies is that of tokens, unless it only says which rows are wanted.
    fn input(&self, value: ValueId) -> Option<Kind> {
        let shape = self.shape(value);
        let mut varying = (0..shape.len()).filter(|&axis| shape[axis].as_known().is_none());
        let Some(axis) = varying.next() else { return Some(Kind::Free) };
        if varying.next().is_some() {
            return None;
        }
        let picks = shape.len() == 1 && self.only_picks(value);
        Some(if picks { Kind::Picks } else { Kind::Rows { axis, picked: false } })
    }

    /// Whether all that is done with an input is to take rows of other values by it.
    fn only_picks(&self, input: ValueId) -> bool {
        let is_constant = |x: ValueId| self.graph.constants.iter().any(|constant| constant.value == x);
        let (mut picks, mut other) = (false, false);
        self.graph.for_each_node(|node, _| match &node.op {
            Op::Take { x, index: IndexArg::Tensor(index), .. } if *index == input && *x != input => {
                if is_constant(*x) {
                    other = true
                } else {
                    picks = true
                }
            }
            _ => node.for_each_operand(|operand| other |= operand == input),
        });
        picks && !other
    }

    /// How many rows the smallest table has from which an input of integers picks; an error where it does anything else.
    fn below(&self, input: &Input) -> Result<Option<usize>, String> {
        let is_integer = |ty: &TensorType| !ty.dtype.is_float();
        if !matches!(self.graph.ty(input.value), Some(Type::Tensor(ty)) if is_integer(ty)) {
            return Ok(None);
        }
        let (mut below, mut other) = (None, false);
        self.graph.for_each_node(|node, _| match &node.op {
            Op::SymSize { .. } => {}
            Op::Take { x, index: IndexArg::Tensor(index), axis } if *index == input.value && *x != *index => {
                let shape = self.shape(*x);
                let rows = shape.get(at(*axis, shape.len())).and_then(Dim::as_known);
                match rows.and_then(|rows| usize::try_from(rows).ok()) {
                    Some(rows) => below = Some(below.map_or(rows, |below: usize| below.min(rows))),
                    None => other = true,
                }
            }
            _ => node.for_each_operand(|operand| other |= operand == input.value),
        });
        match (below, other) {
            (Some(below), false) => Ok(Some(below)),
            _ => Err(format!("input `{}` does more than to pick rows of tables", input.name)),
        }
    }

    fn all_free(&self, node: &Node) -> bool {
        let mut free = true;
        node.for_each_operand(|operand| free &= self.kind(operand) == Kind::Free);
        free
    }

    /// What the results of a node are.
    fn node(&mut self, node: &Node) -> Result<Kind, String> {
        if matches!(node.op, Op::If { .. } | Op::Scan { .. } | Op::RandomBits { seed: None, .. }) {
            return Err("is not for several texts at once".to_owned());
        }
        if self.all_free(node) && !matches!(node.op, Op::UpdateAndAttend { .. }) {
            return Ok(Kind::Free);
        }
        let Some(&result) = node.results.first() else { return mixes() };
        if restated(&node.op).is_some_and(|value| self.kind(value) == Kind::Start) {
            let is_one = product(self.shape(result)) == Some(1);
            return if is_one { Ok(Kind::Start) } else { mixes() };
        }
        match &node.op {
            Op::SymSize { a, dim } => match self.kind(*a) {
                Kind::Rows { axis, picked: false } if axis == at(*dim, self.shape(*a).len()) => {
                    Ok(Kind::Length)
                }
                _ => match self.shape(*a).get(at(*dim, self.shape(*a).len())) {
                    Some(dim) if dim.as_known().is_some() => Ok(Kind::Free),
                    _ => mixes(),
                },
            },
            Op::IdCopy { x }
            | Op::Contiguous { x }
            | Op::AsType { x, .. }
            | Op::Gelu { x, .. }
            | Op::Silu { x }
            | Op::Sigmoid { x }
            | Op::Tanh { x }
            | Op::Rsqrt { x }
            | Op::Log { x }
            | Op::Square { x }
            | Op::Exp { x }
            | Op::Sin { x }
            | Op::Cos { x }
            | Op::Erf { x }
            | Op::Round { x, .. }
            | Op::Reciprocal { x }
            | Op::Sqrt { x }
            | Op::Abs { x }
            | Op::Neg { x }
            | Op::Sign { x }
            | Op::Floor { x }
            | Op::Ceil { x }
            | Op::Trunc { x }
            | Op::LogicalNot { x }
            | Op::FullLike { x, .. } => self.elementwise(&[*x], result),
            Op::Add { a, b }
            | Op::Multiply { a, b }
            | Op::Divide { a, b }
            | Op::Subtract { a, b }
            | Op::Maximum { a, b }
            | Op::Minimum { a, b }
            | Op::Power { a, b }
            | Op::LogAddExp { a, b }
            | Op::FloorDivide { a, b }
            | Op::Remainder { a, b }
            | Op::Less { a, b }
            | Op::LessEqual { a, b }
            | Op::Greater { a, b }
            | Op::GreaterEqual { a, b }
            | Op::Equal { a, b }
            | Op::NotEqual { a, b }
            | Op::LogicalAnd { a, b }
            | Op::LogicalOr { a, b } => self.elementwise(&[*a, *b], result),
            Op::Where { condition, x, y } => self.elementwise(&[*condition, *x, *y], result),
            Op::Clip { x, a_min, a_max } => {
                let operands: Vec<ValueId> = [Some(*x), *a_min, *a_max].into_iter().flatten().collect();
                self.elementwise(&operands, result)
            }
            Op::RMSNorm { x, .. } | Op::LayerNorm { x, .. } => self.along(node, &[*x], -1),
            Op::Softmax { x, axis, .. } => self.along(node, &[*x], *axis),
            Op::Addmm { mat1, mat2, .. } if self.shape(*mat1).len() > 1 && self.shape(*mat2).len() == 2 => {
                self.along(node, &[*mat1], -1)
            }
            Op::QuantizedMatmul { x, .. } if self.shape(*x).len() > 1 => self.along(node, &[*x], -1),
            Op::Dequantize { w, scales, biases, .. } => {
                let parts: Vec<ValueId> = [Some(*w), Some(*scales), *biases].into_iter().flatten().collect();
                self.along(node, &parts, -1)
            }
            Op::Concatenate { tensors, axis } => self.along(node, tensors, *axis),
            Op::Split { x, axis, .. } => self.along(node, &[*x], *axis),
            Op::Repeat { x, axis, .. } => self.along(node, &[*x], *axis),
            Op::Slice { x, axis: IntArg::Literal(axis), .. } => self.along(node, &[*x], *axis),
            Op::Sum { x, axes, keepdims }
            | Op::Mean { x, axes, keepdims }
            | Op::Max { x, axes, keepdims }
            | Op::Min { x, axes, keepdims } => {
                self.reduced(*x, axes.as_deref().unwrap_or_default(), *keepdims)
            }
            Op::Argmax { x, axis, keepdims } => self.reduced(*x, &[*axis], *keepdims),
            Op::Transpose { x, perm } => {
                let (axis, picked) = self.rows(*x)?;
                let to = perm.iter().position(|&from| at(from, perm.len()) == axis);
                to.map_or_else(mixes, |axis| Ok(Kind::Rows { axis, picked }))
            }
            Op::ExpandDims { x, axis } => {
                let (rows, picked) = self.rows(*x)?;
                let new = at(*axis, self.shape(*x).len() + 1);
                Ok(Kind::Rows { axis: rows + usize::from(new <= rows), picked })
            }
            Op::Squeeze { x, dims: Some(dims) } => self.reduced(*x, dims, false),
            Op::Reshape { x, shape } => self.reshaped(*x, shape, result),
            Op::BroadcastTo { x, shape } => {
                let (axis, picked) = self.rows(*x)?;
                let axis = (axis + shape.len()).checked_sub(self.shape(*x).len());
                let is_length = |arg: &IntArg<ValueId>| match arg {
                    IntArg::Value(value) => self.kind(*value) == Kind::Length,
                    IntArg::Literal(size) => *size == -1,
                };
                match axis.filter(|&axis| !picked && shape.get(axis).is_some_and(is_length)) {
                    Some(axis) => Ok(Kind::Rows { axis, picked }),
                    None => mixes(),
                }
            }
            Op::Take { x, index, axis } => self.taken(*x, index, at(*axis, self.shape(*x).len())),
            Op::Rope { x, offset, freqs, .. } => {
                let (axis, picked) = self.rows(*x)?;
                let (OffsetArg::Tensor(offset) | OffsetArg::Value(offset)) = *offset;
                // By the position of each row, or from that of the first on, as far as lanes let it.
                let by_row = axis == 0 && self.is_one_a_token(offset);
                let from_start = self.kind(offset) == Kind::Start && axis == 2 && self.shape(*x).len() == 4;
                let is_free = |value: ValueId| self.kind(value) == Kind::Free;
                match (by_row || from_start) && !picked && freqs.is_none_or(is_free) {
                    true => Ok(Kind::Rows { axis, picked }),
                    false => Err("turns by the position of the first token".to_owned()),
                }
            }
            Op::UpdateAndAttend { q, k, v, position, .. } => {
                self.attends = true;
                if !self.is_one_a_token(*position) && self.kind(*position) != Kind::Start {
                    return Err("is told the position of the first token only".to_owned());
                }
                let rows = Kind::Rows { axis: 2, picked: false };
                if [*q, *k, *v].iter().all(|&value| self.kind(value) == rows) { Ok(rows) } else { mixes() }
            }
            _ => mixes(),
        }
    }

    /// The axis of a value's rows.
    fn rows(&self, value: ValueId) -> Result<(usize, bool), String> {
        match self.kind(value) {
            Kind::Rows { axis, picked } => Ok((axis, picked)),
            _ => Err(MIXES.to_owned()),
        }
    }

    /// Whether a value has one element for each token.
    fn is_one_a_token(&self, value: ValueId) -> bool {
        let Kind::Rows { axis, picked: false } = self.kind(value) else { return false };
        let shape = self.shape(value);
        shape.iter().enumerate().all(|(at, dim)| at == axis || dim.as_known() == Some(1))
    }

    /// Element by element, with sizes of 1 repeated.
    fn elementwise(&self, operands: &[ValueId], result: ValueId) -> Result<Kind, String> {
        let rank = self.shape(result).len();
        let mut found = None;
        for &operand in operands.iter().filter(|&&operand| self.kind(operand) != Kind::Free) {
            let (axis, picked) = self.rows(operand)?;
            let here = (axis + rank - self.shape(operand).len(), picked);
            if *found.get_or_insert(here) != here {
                return mixes();
            }
        }
        let Some((axis, picked)) = found else { return mixes() };
        for &operand in operands.iter().filter(|&&operand| self.kind(operand) == Kind::Free) {
            let shape = self.shape(operand);
            let dim = (axis + shape.len()).checked_sub(rank).and_then(|axis| shape.get(axis));
            if dim.is_some_and(|dim| dim.as_known() != Some(1)) {
                return mixes();
            }
        }
        Ok(Kind::Rows { axis, picked })
    }

    /// An op that mixes what lies along one axis of these operands, and leaves the order of axes. All others are the same for
    /// all tokens.
    fn along(&self, node: &Node, operands: &[ValueId], axis: impl Into<i64>) -> Result<Kind, String> {
        let mut others = true;
        node.for_each_operand(|operand| {
            others &= operands.contains(&operand) || self.kind(operand) == Kind::Free;
        });
        let (&first, true) = (operands.first().ok_or(MIXES)?, others) else { return mixes() };
        let kind = self.kind(first);
        let (rows, _) = self.rows(first)?;
        let same = operands.iter().all(|&operand| self.kind(operand) == kind);
        if same && rows != at(axis, self.shape(first).len()) { Ok(kind) } else { mixes() }
    }

    /// Axes that go, or become one element.
    fn reduced(&self, x: ValueId, axes: &[i32], keepdims: bool) -> Result<Kind, String> {
        let ((rows, picked), rank) = (self.rows(x)?, self.shape(x).len());
        let axes: Vec<usize> = axes.iter().map(|&axis| at(axis, rank)).collect();
        if axes.is_empty() || axes.contains(&rows) {
            return mixes();
        }
        let before = axes.iter().filter(|&&axis| axis < rows && !keepdims).count();
        Ok(Kind::Rows { axis: rows - before, picked })
    }

    /// Rows keep their order where as many elements lie before them, and as many in each.
    fn reshaped(&self, x: ValueId, shape: &[IntArg<ValueId>], result: ValueId) -> Result<Kind, String> {
        let ((axis, picked), from, to) = (self.rows(x)?, self.shape(x), self.shape(result));
        let (before, behind) = (product(&from[..axis]), product(&from[axis + 1..]));
        let fits = |&at: &usize| {
            let same_before = before.is_some() && product(&to[..at]) == before;
            same_before
                && match shape[at] {
                    IntArg::Value(value) => !picked && self.kind(value) == Kind::Length,
                    // What is left over for this axis.
                    IntArg::Literal(-1) => behind.is_some() && product(&to[at + 1..]) == behind,
                    IntArg::Literal(_) => false,
                }
        };
        match (0..shape.len().min(to.len())).find(fits) {
            Some(axis) => Ok(Kind::Rows { axis, picked }),
            None => mixes(),
        }
    }

    fn taken(&self, x: ValueId, index: &IndexArg<ValueId, ValueId>, axis: usize) -> Result<Kind, String> {
        let index = match index {
            IndexArg::Tensor(index) => *index,
            IndexArg::Literal(_) | IndexArg::Value(_) => {
                let (rows, picked) = self.rows(x)?;
                return match rows == axis {
                    true => Err("takes the row of one token".to_owned()),
                    false => Ok(Kind::Rows { axis: rows - usize::from(axis < rows), picked }),
                };
            }
        };
        match (self.kind(x), self.kind(index)) {
            // A row of a table for each token.
            (Kind::Free, Kind::Rows { axis: rows, picked }) => Ok(Kind::Rows { axis: axis + rows, picked }),
            (Kind::Rows { axis: rows, picked: false }, Kind::Picks) if rows == axis => {
                Ok(Kind::Rows { axis, picked: true })
            }
            (Kind::Rows { axis: rows, picked }, Kind::Free) if rows != axis => {
                let more = self.shape(index).len();
                Ok(Kind::Rows { axis: if rows < axis { rows } else { rows + more - 1 }, picked })
            }
            _ => mixes(),
        }
    }
}

/// An axis that may be counted from the end.
fn at(axis: impl Into<i64>, rank: usize) -> usize {
    let axis = axis.into();
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(axis).unwrap_or(usize::MAX)
}

/// The product of sizes that are all known.
fn product(dims: &[Dim]) -> Option<i64> {
    dims.iter().try_fold(1i64, |product, dim| product.checked_mul(dim.as_known()?))
}
