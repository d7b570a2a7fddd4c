//! A graph in ops that have a kernel: what has none is said in several that have. Types follow from the catalogue's rules.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};

use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::rules::slice_range;
use pteron_ir::{Dim, Effect, Graph, Node, Op, Output, Ssa, TensorType, Type, ValueId, infer};
use pteron_tensor::{DType, promote};

use crate::Limits;
use crate::draft::{Draft, Int, Lifted, Part, Step, Stop, problem};

/// The graph in ops that have a kernel, with the constants that these want; or all ops that cannot be said so.
pub(super) fn in_plain_ops(graph: &Graph, limits: &Limits) -> Result<Lifted, Vec<String>> {
    let mut problems = Vec::new();
    let draft = Draft::new(&graph.name, "graph", limits);
    let (known, constants, rows) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut plain = Plain { draft, known, constants, rows };
    let new = plain.main.graph_mut();
    new.symbols = graph.symbols.clone();
    let (mut known, mut names) = (HashMap::new(), HashMap::new());
    for input in &graph.inputs {
        if let Some(ty) = graph.ty(input.value) {
            known.insert(input.value, new.add_input(&input.name, ty.clone()));
        }
    }
    for constant in &graph.constants {
        if let Some(Type::Tensor(ty)) = graph.ty(constant.value) {
            let value = new.add_constant(&constant.name, ty.clone());
            names.insert(value, constant.name.clone());
            known.insert(constant.value, value);
        }
    }
    for buffer in &graph.buffers {
        if let Some(Type::Tensor(ty)) = graph.ty(buffer.value) {
            known.insert(buffer.value, new.add_buffer(&buffer.name, ty.clone()));
        }
    }
    (plain.known, plain.constants) = (known, names);
    for (at, node) in graph.body.nodes.iter().enumerate() {
        plain.place = node.place;
        match plain.node(node) {
            Ok(values) => plain.known.extend(node.results.iter().copied().zip(values)),
            // What reads it is passed over: it has been complained about.
            Err(Stop::Spoilt) => {}
            Err(Stop::Problem(text)) => problems.push(format!("{}: {text}", named(node, at))),
            Err(Stop::Limit(error)) => {
                problems.push(error.to_string());
                break;
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let outputs = graph.outputs.iter().filter_map(|output| {
        let value = *plain.known.get(&output.value)?;
        Some(Output { value, ..output.clone() })
    });
    let outputs: Vec<Output> = outputs.collect();
    let updates: Vec<Option<ValueId>> =
        graph.buffers.iter().map(|buffer| plain.known.get(&buffer.update).copied()).collect();
    let mut lifted = plain.draft.finish().map_err(|error| vec![error.to_string()])?;
    let new = &mut lifted.module.main;
    new.outputs = outputs;
    for (buffer, update) in new.buffers.iter_mut().zip(updates) {
        buffer.update = update.unwrap_or(buffer.value);
    }
    drop_unread(new);
    Ok(lifted)
}

/// Leaves out nodes whose values nobody reads.
fn drop_unread(graph: &mut Graph) {
    let mut read: HashSet<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    read.extend(graph.buffers.iter().map(|buffer| buffer.update));
    let mut nodes = std::mem::take(&mut graph.body.nodes);
    nodes.reverse();
    nodes.retain(|node| {
        let is_read = node.results.iter().any(|value| read.contains(value));
        if is_read {
            node.for_each_operand(|value| {
                read.insert(value);
            });
        }
        is_read
    });
    nodes.reverse();
    graph.body.nodes = nodes;
}

/// A node as errors call it: as it is counted in its payload, or here.
pub(super) fn named(node: &Node, at: usize) -> String {
    let number = node.place.map_or(at, |place| place.index as usize);
    format!("node {number} (`{}`)", node.op.spec().text)
}

/// Dtype and shape of a constant, which has known sizes.
pub(super) fn constant_type(graph: &Graph, value: ValueId) -> Option<(DType, Vec<usize>)> {
    match graph.ty(value)? {
        Type::Tensor(ty) => Some((ty.dtype, ty.known_shape()?)),
        _ => None,
    }
}

/// A graph on its way.
pub(super) struct Plain<'p> {
    draft: Draft<'p>,
    /// What values of the old graph are in the new one.
    known: HashMap<ValueId, ValueId>,
    /// Names of constants of the new one.
    pub(super) constants: HashMap<ValueId, String>,
    /// Rows of constants: of which, and where.
    pub(super) rows: HashMap<ValueId, (ValueId, IndexArg<ValueId, ValueId>)>,
}

impl<'p> Deref for Plain<'p> {
    type Target = Draft<'p>;

    fn deref(&self) -> &Draft<'p> {
        &self.draft
    }
}

impl DerefMut for Plain<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.draft
    }
}

impl Plain<'_> {
    fn node(&mut self, node: &Node) -> Step<Vec<ValueId>> {
        if matches!(node.op, Op::If { .. } | Op::Scan { .. }) {
            return problem("branches and loops have no portable form here");
        }
        if node.op.effect() != Effect::Pure {
            return problem("what it changes besides what it gives has no portable form");
        }
        let mut moved = Node { op: node.op.clone(), results: Vec::new(), place: None };
        let mut spoilt = false;
        moved.for_each_value_mut(&mut |value| match self.known.get(value) {
            Some(known) => *value = *known,
            None => spoilt = true,
        });
        if spoilt {
            return Err(Stop::Spoilt);
        }
        self.op(moved.op)
    }

    fn op(&mut self, op: Op<Ssa>) -> Step<Vec<ValueId>> {
        let one = match op {
            Op::IdCopy { x } | Op::Contiguous { x } => x,
            Op::Addmm { mat1, mat2, bias, alpha, beta } => {
                let wanted = self.dtype_of(&op)?;
                let (mat1, mat2) = (self.cast(mat1, wanted)?, self.cast(mat2, wanted)?);
                let product = self.product(mat1, mat2)?;
                let product = self.scaled(product, alpha)?;
                match bias {
                    Some(bias) => {
                        let bias = self.cast(bias, wanted)?;
                        let bias = self.scaled(bias, beta)?;
                        self.emit(Op::Add { a: product, b: bias })?
                    }
                    None => product,
                }
            }
            Op::QuantizedMatmul { .. } | Op::Dequantize { .. } => self.quantized(op)?,
            Op::Sdpa { q, k, v, scale, mask, causal } => self.attention([q, k, v], scale, mask, causal)?,
            Op::Rope { x, dims, offset, freqs, traditional, base, scale } => {
                self.rope(x, (dims, traditional), offset, (freqs, base, scale))?
            }
            Op::RMSNorm { x, weight, eps } => self.rms_norm(&op, x, weight, eps)?,
            Op::LayerNorm { x, weight, bias, eps } => self.layer_norm(&op, x, (weight, bias), eps)?,
            Op::LogSumExp { x, ref axes, keepdims } => self.log_sum_exp(x, axes.clone(), keepdims)?,
            Op::Silu { x } => {
                let gate = self.emit(Op::Sigmoid { x })?;
                self.emit(Op::Multiply { a: x, b: gate })?
            }
            Op::Square { x } => self.emit(Op::Multiply { a: x, b: x })?,
            Op::Std { x, axes, keepdims, ddof } => {
                let x = self.emit(Op::Var { x, axes, keepdims, ddof })?;
                self.emit(Op::Sqrt { x })?
            }
            Op::All { x, axes, keepdims } => {
                let not = self.emit(Op::LogicalNot { x })?;
                let any = self.emit(Op::Any { x: not, axes, keepdims })?;
                self.emit(Op::LogicalNot { x: any })?
            }
            Op::Round { x, decimals } if decimals != 0 => {
                let factor = self.number_like(x, 10f64.powi(decimals))?;
                let large = self.emit(Op::Multiply { a: x, b: factor })?;
                let round = self.emit(Op::Round { x: large, decimals: 0 })?;
                self.emit(Op::Divide { a: round, b: factor })?
            }
            Op::Clip { x, a_min, a_max } => {
                let wanted = self.dtype_of(&op)?;
                let x = self.cast(x, wanted)?;
                let a_min = a_min.map(|bound| self.cast(bound, wanted)).transpose()?;
                let a_max = a_max.map(|bound| self.cast(bound, wanted)).transpose()?;
                self.emit(Op::Clip { x, a_min, a_max })?
            }
            Op::Where { condition, x, y } => {
                let wanted = self.dtype_of(&op)?;
                let condition = self.truth(condition)?;
                let (x, y) = (self.cast(x, wanted)?, self.cast(y, wanted)?);
                self.emit(Op::Where { condition, x, y })?
            }
            Op::FullLike { x, v, scalar_type } => {
                let scalar_type = scalar_type.map_or_else(|| self.dtype(x), Ok)?;
                let shape = self.sizes(x)?;
                self.emit(Op::Full { shape, v, scalar_type })?
            }
            Op::FloorDivideInt { a, b: IntArg::Literal(b) } => self.quotient(a, b)?,
            Op::Repeat { x, repeats, axis } => self.repeated(x, repeats, axis)?,
            Op::Split { .. } => return self.split(op),
            Op::Squeeze { x, dims: None } => {
                let shape = self.ty(Part::Main, x)?.shape.iter().enumerate();
                let dims: Vec<i32> =
                    shape.filter(|(_, dim)| dim.as_known() == Some(1)).map(|(axis, _)| axis as i32).collect();
                if dims.is_empty() { x } else { self.emit(Op::Squeeze { x, dims: Some(dims) })? }
            }
            Op::Take { x, index, axis: 0 } => self.taken(x, index)?,
            Op::TakeAlongAxis { x, indices, axis } => {
                let indices = self.cast(indices, DType::I64)?;
                let (x, indices) = self.beside(x, indices, axis)?;
                self.emit(Op::TakeAlongAxis { x, indices, axis })?
            }
            Op::Remainder { a, b } if !self.dtype_of(&op)?.is_float() => {
                // Kernels differ on remainders of integers below zero.
                let whole = self.one(Op::FloorDivide { a, b })?;
                let whole = self.one(Op::Multiply { a: whole, b })?;
                self.one(Op::Subtract { a, b: whole })?
            }
            Op::Partition { x, axis, .. } => self.emit(Op::Sort { x, axis })?,
            Op::ScatterAdd { x, indices, updates, axis } => {
                let wanted = self.dtype(x)?;
                let (indices, updates) = (self.cast(indices, DType::I64)?, self.cast(updates, wanted)?);
                if self.sizes(indices)? != self.sizes(updates)? {
                    return problem("indices and updates of several shapes have no portable form");
                }
                self.emit(Op::ScatterAdd { x, indices, updates, axis })?
            }
            Op::IndexCopy { dst, update, indices, axis } => {
                let wanted = self.dtype(dst)?;
                let update = self.cast(update, wanted)?;
                self.emit(Op::IndexCopy { dst, update, indices, axis })?
            }
            Op::GatherMm { a, b, lhs_indices, rhs_indices, .. } => {
                let wanted = self.dtype_of(&op)?;
                let (a, b) = (self.cast(a, wanted)?, self.cast(b, wanted)?);
                let (a, b) = (self.picked(a, lhs_indices)?, self.picked(b, rhs_indices)?);
                self.product(a, b)?
            }
            Op::GatherQmm {
                x,
                w,
                scales,
                ref mode,
                biases,
                lhs_indices,
                rhs_indices,
                transpose,
                group_size,
                bits,
                ..
            } => {
                let x = self.picked(x, lhs_indices)?;
                let (w, scales) = (self.picked(w, rhs_indices)?, self.picked(scales, rhs_indices)?);
                let biases = biases.map(|biases| self.picked(biases, rhs_indices)).transpose()?;
                let mode = mode.clone();
                self.quantized(Op::QuantizedMatmul {
                    x,
                    w,
                    scales,
                    biases,
                    group_size,
                    bits,
                    mode,
                    transpose,
                })?
            }
            Op::Slice { x, axis, start, stop, step } if step < 0 => {
                self.backwards(x, axis, [start, stop], step)?
            }
            Op::SliceUpdate { dst, update, ref axis, ref start, ref stop, step } => {
                let (axis, start, stop) = (*axis, *start, *stop);
                let slice = self.emit(Op::Slice { x: dst, axis, start, stop, step })?;
                let shape = self.sizes(slice)?;
                let wanted = self.dtype(dst)?;
                let update = self.cast(update, wanted)?;
                let update = self.emit(Op::BroadcastTo { x: update, shape })?;
                self.emit(Op::SliceUpdate { dst, update, axis, start, stop, step })?
            }
            Op::Concatenate { tensors, axis } => {
                let tensors = self.of_one_type(tensors)?;
                self.emit(Op::Concatenate { tensors, axis })?
            }
            Op::Stack { tensors, axis } => {
                let tensors = self.of_one_type(tensors)?;
                self.emit(Op::Stack { tensors, axis })?
            }
            Op::Cumsum { x, axis, reverse, inclusive } if reverse || !inclusive => {
                let turn = |plain: &mut Self, x| match reverse {
                    true => plain.emit(Op::Flip { x, axes: vec![axis] }),
                    false => Ok(x),
                };
                let ahead = turn(self, x)?;
                let mut sum = self.emit(Op::Cumsum { x: ahead, axis, reverse: false, inclusive: true })?;
                if !inclusive {
                    sum = self.emit(Op::Subtract { a: sum, b: ahead })?;
                }
                turn(self, sum)?
            }
            Op::Triu { x, k } => {
                let below = self.band(x, k)?;
                let zero = self.number_like(x, 0.0)?;
                self.emit(Op::Where { condition: below, x, y: zero })?
            }
            Op::Tri { n, m, k, scalar_type } => {
                let k = IntArg::Literal(k.into());
                let stop = self.plus(n, k)?;
                let rows = self.counted(k, stop)?;
                let rows = self.emit(Op::ExpandDims { x: rows, axis: 1 })?;
                let columns = self.counted(IntArg::Literal(0), m)?;
                let inside = self.emit(Op::LessEqual { a: columns, b: rows })?;
                self.cast(inside, scalar_type)?
            }
            Op::Argsort { .. } | Op::Conv3D { .. } | Op::ConvTranspose3D { .. } | Op::Median { .. } => {
                return problem("no portable operator computes it");
            }
            Op::MetalKernel { .. } => return problem("kernels of Metal have no portable form"),
            Op::Pad { ref mode, .. } if mode != "constant" => {
                return problem(format!("padding of mode {mode} has no portable form"));
            }
            Op::LogAddExp { a, b } => {
                let largest = self.emit(Op::Maximum { a, b })?;
                let apart = self.emit(Op::Subtract { a, b })?;
                let apart = self.emit(Op::Abs { x: apart })?;
                let apart = self.emit(Op::Neg { x: apart })?;
                let small = self.emit(Op::Exp { x: apart })?;
                let more = self.emit(Op::Log1p { x: small })?;
                self.emit(Op::Add { a: largest, b: more })?
            }
            other => return self.on_one_type(other),
        };
        Ok(vec![one])
    }

    /// The one value of an op, whatever it takes.
    fn one(&mut self, op: Op<Ssa>) -> Step<ValueId> {
        match self.op(op)?.first() {
            Some(&value) => Ok(value),
            None => problem("an op gave nothing"),
        }
    }

    /// The dtype that an op gives.
    pub(super) fn dtype_of(&mut self, op: &Op<Ssa>) -> Step<DType> {
        let graph = self.main.graph_mut();
        match infer(op, &graph.values, &mut graph.symbols).ok().as_deref() {
            Some([Type::Tensor(ty), ..]) => Ok(ty.dtype),
            _ => problem("it gives no tensor"),
        }
    }

    /// An op whose tensors are first cast to what they are computed in: kernels have promotions of their own.
    fn on_one_type(&mut self, mut op: Op<Ssa>) -> Step<Vec<ValueId>> {
        use Op::*;
        let wanted = match &op {
            Less { a, b } | LessEqual { a, b } | Greater { a, b } | GreaterEqual { a, b } | Equal { a, b }
            | NotEqual { a, b } => promote(self.dtype(*a)?, self.dtype(*b)?),
            Add { .. } | Subtract { .. } | Multiply { .. } | Maximum { .. } | Minimum { .. } | Power { .. }
            | FloorDivide { .. } | Remainder { .. } | Divide { .. } | Atan2 { .. } | BitwiseAnd { .. }
            | BitwiseOr { .. } | BitwiseXor { .. } | Softmax { .. } | Mean { .. } | Var { .. }
            // Of one tensor, to floats.
            | Gelu { .. } | Sigmoid { .. } | Tanh { .. } | Rsqrt { .. } | Log { .. } | Exp { .. } | Sin { .. }
            | Cos { .. } | Tan { .. } | Arcsin { .. } | Arccos { .. } | Arctan { .. } | Sinh { .. } | Cosh { .. }
            | Arcsinh { .. } | Arccosh { .. } | Arctanh { .. } | Log2 { .. } | Log10 { .. } | Log1p { .. }
            | Erf { .. } | Expm1 { .. } | Reciprocal { .. } | Sqrt { .. }
            | Conv1D { .. } | Conv2D { .. } | ConvTranspose1D { .. } | ConvTranspose2D { .. } => self.dtype_of(&op)?,
            _ => return self.draft.append_all(Part::Main, op),
        };
        let mut operands = Vec::new();
        op.for_each_tensor(|value| operands.push(value));
        for value in &mut operands {
            *value = self.cast(*value, wanted)?;
        }
        let mut cast = operands.into_iter();
        let node = &mut Node { op: op.clone(), results: Vec::new(), place: None };
        node.for_each_value_mut(&mut |value| *value = cast.next().unwrap_or(*value));
        op = node.op.clone();
        self.draft.append_all(Part::Main, op)
    }

    fn of_one_type(&mut self, mut tensors: Vec<ValueId>) -> Step<Vec<ValueId>> {
        let mut wanted = None;
        for &tensor in &tensors {
            let dtype = self.dtype(tensor)?;
            wanted = Some(wanted.map_or(dtype, |wanted| promote(wanted, dtype)));
        }
        for tensor in &mut tensors {
            *tensor = self.cast(*tensor, wanted.unwrap_or(DType::F32))?;
        }
        Ok(tensors)
    }

    /// Whether elements are not zero.
    pub(super) fn truth(&mut self, x: ValueId) -> Step<ValueId> {
        if self.dtype(x)? == DType::Bool {
            return Ok(x);
        }
        let zero = self.number_like(x, 0.0)?;
        self.emit(Op::NotEqual { a: x, b: zero })
    }

    pub(super) fn scaled(&mut self, x: ValueId, by: f32) -> Step<ValueId> {
        if by == 1.0 {
            return Ok(x);
        }
        let factor = self.number_like(x, by.into())?;
        self.emit(Op::Multiply { a: x, b: factor })
    }

    /// A quotient of the run, bounded by what is divided: sizes come of it, and memory is planned for the largest.
    fn quotient(&mut self, a: Int, b: i64) -> Step<ValueId> {
        let op = Op::FloorDivideInt { a, b: IntArg::Literal(b) };
        let place = self.place;
        let graph = self.main.graph_mut();
        let dim = match a {
            IntArg::Value(a) => graph.ty(a).and_then(|ty| match ty {
                Type::Int(dim) if b > 0 && dim.divide_exactly(b).is_none() => Some(dim),
                _ => None,
            }),
            IntArg::Literal(_) => None,
        };
        let bounds = dim.and_then(|dim| Some((graph.symbols.lower(dim)?, graph.symbols.upper(dim)?)));
        let Some((low, high)) = bounds else { return self.emit(op) };
        let symbol = graph.symbols.add("", low.div_euclid(b), Some(high.div_euclid(b)));
        let value = graph.add_value(Type::Int(Dim::symbol(symbol)));
        graph.body.nodes.push(Node { op, results: vec![value], place });
        Ok(value)
    }

    /// Each element several times along an axis: as an axis of its own that is joined to the other.
    pub(super) fn repeated(&mut self, x: ValueId, repeats: Int, axis: i32) -> Step<ValueId> {
        let rank = self.rank(x)?;
        let axis = usize::try_from(if axis < 0 { i64::from(axis) + rank as i64 } else { axis.into() });
        let axis = axis.or_else(|_| problem("an axis that is not there"))?;
        let mut shape = self.sizes(x)?;
        let mut joined = shape.clone();
        match joined.get_mut(axis) {
            Some(size) => *size = self.times(*size, repeats)?,
            None => return problem("an axis that is not there"),
        }
        let apart = self.emit(Op::ExpandDims { x, axis: axis as i32 + 1 })?;
        shape.insert(axis + 1, repeats);
        let apart = self.emit(Op::BroadcastTo { x: apart, shape })?;
        self.emit(Op::Reshape { x: apart, shape: joined })
    }

    fn split(&mut self, op: Op<Ssa>) -> Step<Vec<ValueId>> {
        let Op::Split { x, axis, .. } = op else { return problem("no split") };
        let rank = self.rank(x)? as i64;
        let axis = if axis < 0 { i64::from(axis) + rank } else { axis.into() };
        let graph = self.main.graph_mut();
        let types = match infer(&op, &graph.values, &mut graph.symbols) {
            Ok(types) => types,
            Err(error) => return problem(error.to_string()),
        };
        let mut start = 0;
        let mut pieces = Vec::new();
        for ty in types {
            let Type::Tensor(TensorType { shape, .. }) = ty else { return problem("it gives no tensor") };
            let size = usize::try_from(axis).ok().and_then(|axis| shape.get(axis)?.as_known());
            let Some(size) = size else { return problem("pieces whose sizes are known at run time only") };
            let [axis, from, stop] = [axis, start, start + size].map(IntArg::Literal);
            pieces.push(self.emit(Op::Slice { x, axis, start: from, stop, step: 1 })?);
            start += size;
        }
        Ok(pieces)
    }

    /// The elements from `start` down to `stop`: taken upwards, then turned round.
    fn backwards(&mut self, x: ValueId, axis: Int, bounds: [Int; 2], step: i32) -> Step<ValueId> {
        let (IntArg::Literal(axis), [IntArg::Literal(start), IntArg::Literal(stop)]) = (axis, bounds) else {
            return problem("a slice backwards between bounds of the run has no portable form");
        };
        let rank = self.rank(x)? as i64;
        let axis = if axis < 0 { axis + rank } else { axis };
        let size = match usize::try_from(axis).map(|axis| self.size(x, axis)) {
            Ok(Ok(IntArg::Literal(size))) => size,
            _ => return problem("a slice backwards of an axis of the run has no portable form"),
        };
        let Some(range) = slice_range(size as usize, start, stop, step) else {
            return problem("a slice of step 0");
        };
        let (first, count, step) = (range.start as i64, range.count as i64, -range.step as i64);
        let lowest = if count == 0 { first } else { first - (count - 1) * step };
        let end = if count == 0 { first } else { first + 1 };
        let [at, start, stop] = [axis, lowest, end].map(IntArg::Literal);
        let x = self.emit(Op::Slice { x, axis: at, start, stop, step: step as i32 })?;
        self.emit(Op::Flip { x, axes: vec![axis as i32] })
    }

    /// A tensor and indices into one axis of it, of one size on all others.
    fn beside(&mut self, x: ValueId, indices: ValueId, axis: i32) -> Step<(ValueId, ValueId)> {
        let rank = self.rank(x)?;
        let axis = if axis < 0 { axis + rank as i32 } else { axis };
        let (of_x, of_indices) = (self.sizes(x)?, self.sizes(indices)?);
        let (mut wide_x, mut wide_indices) = (of_x.clone(), of_indices.clone());
        for at in (0..rank.min(of_indices.len())).filter(|at| *at as i32 != axis) {
            match (of_x[at], of_indices[at]) {
                (IntArg::Literal(1), size) => wide_x[at] = size,
                (size, IntArg::Literal(1)) => wide_indices[at] = size,
                _ => {}
            }
        }
        let mut wide = |x, from: Vec<Int>, to: Vec<Int>| match from == to {
            true => Ok(x),
            false => self.emit(Op::BroadcastTo { x, shape: to }),
        };
        Ok((wide(x, of_x, wide_x)?, wide(indices, of_indices, wide_indices)?))
    }

    /// Where the last two axes of `x` are at or above the `k`-th diagonal.
    fn band(&mut self, x: ValueId, k: i32) -> Step<ValueId> {
        let rank = self.rank(x)?;
        let [rows, columns] = [self.size(x, rank.saturating_sub(2))?, self.size(x, rank.saturating_sub(1))?];
        let k = IntArg::Literal(k.into());
        let stop = self.plus(rows, k)?;
        let rows = self.counted(k, stop)?;
        let rows = self.emit(Op::ExpandDims { x: rows, axis: 1 })?;
        let columns = self.counted(IntArg::Literal(0), columns)?;
        self.emit(Op::GreaterEqual { a: columns, b: rows })
    }

    /// The integers from `start` to `stop`.
    pub(super) fn counted(&mut self, start: Int, stop: Int) -> Step<ValueId> {
        let step = IntArg::Literal(1);
        self.emit(Op::ARange { start, stop, step, scalar_type: Some(DType::I32) })
    }
}
