//! Random programs: several nodes, branches and loops inside each other, buffers that are updated in place, constants
//! under several schemes, several delegates over one state. A session of each is led through runs that succeed and runs
//! that fail, snapshots and what goes back to them, on two backends at once.
//!
//! Ops move elements or add whole numbers that every dtype holds, so that both sides agree to the last bit but for what
//! rounds by its nature (products with quantised weights, rotary embeddings, attention), which is held to a share of
//! the largest element.

use super::session::{self, Constants, Way};
pub(crate) use super::tally::Tally;
use super::{Difference, Source};
use pteron_ir::op::{IndexArg, IntArg, OffsetArg};
use pteron_ir::{Builder, Dim, Graph, Op, Output, Ssa, TensorType, Type, ValueId};
use pteron_runtime::backend::Backend;
use pteron_runtime::reference::Reference;
use pteron_tensor::DType;

/// Nodes of one graph, nested ones counted.
const MOST_NODES: usize = 14;
/// Blocks inside each other.
const MOST_DEPTH: usize = 2;
/// A tensor of more elements is not used further.
const MOST_ELEMENTS: usize = 256;
/// Rows of packed weights; words of each.
pub(super) const PACKED: [usize; 2] = [6, 16];
/// Features of a head, and positions of a cache that is a buffer.
pub(super) const HEAD: usize = 4;
/// Positions that the off-graph cache holds.
pub(super) const POSITIONS: usize = 16;

/// The schemes under which the same words, scales and biases are legal: bits and groups.
const SCHEMES: [(i32, i32); 2] = [(8, 32), (4, 64)];

/// Builds a program out of bytes and leads a session of it on a backend and on the reference.
pub(crate) fn check_program(bytes: &[u8], backend: &dyn Backend) -> Result<Tally, Difference> {
    check(bytes, Way::Close, [&Reference::default(), backend])
}

/// The same on two backends of any kind, which give the same bytes; in the end several sessions of it run together on the
/// second, and each has what it has alone.
pub(crate) fn check_program_exactly(bytes: &[u8], backends: [&dyn Backend; 2]) -> Result<Tally, Difference> {
    check(bytes, Way::Exact, backends)
}

fn check(bytes: &[u8], way: Way, backends: [&dyn Backend; 2]) -> Result<Tally, Difference> {
    let mut source = Source::new(bytes);
    let dtype = source.pick(&[DType::F32, DType::F32, DType::BF16, DType::F16]);
    let count = 1 + usize::from(source.byte().is_multiple_of(3));
    let mut has = Has::default();
    let graphs: Vec<Graph> = (0..count).map(|_| Maker::new(&mut source, dtype).make(&mut has)).collect();
    let constants = Constants::new(dtype);
    let led = session::lead(&mut source, &graphs, &constants, (way, backends)).and_then(|led| {
        if way == Way::Exact {
            session::side_by_side(&mut source, &graphs, &constants, backends[1])?;
        }
        Ok(led)
    });
    let led = led.map_err(|problem| {
        let shown: Vec<String> = graphs.iter().map(ToString::to_string).collect();
        Difference(format!("{problem}, of\n{}", shown.join("\n")))
    })?;
    let of = |is_there: bool| usize::from(is_there && led.runs > 0);
    Ok(Tally {
        programs: of(true),
        branches: of(has.branch),
        loops: of(has.scan),
        nested: of(has.nested),
        buffers: of(has.buffer),
        outer_updates: of(has.outer_update),
        shared: of(has.schemes == [true; 2]),
        embeddings: of(has.embedding),
        turned: of(has.turned),
        draws: of(has.draws),
        attends: of(has.attends),
        delegates: of(count > 1),
        failed: of(led.failed),
        restored: of(led.restored),
    })
}

/// What the graphs of a program have.
#[derive(Clone, Copy, Default)]
struct Has {
    branch: bool,
    scan: bool,
    nested: bool,
    buffer: bool,
    outer_update: bool,
    schemes: [bool; 2],
    embedding: bool,
    turned: bool,
    draws: bool,
    attends: bool,
}

/// Inputs that every graph has, in order, as the session makes them.
struct Inputs {
    /// Whole numbers of several shapes.
    tensors: Vec<ValueId>,
    /// Where rows go, in an integer dtype.
    places: ValueId,
    /// Rows of a table, in an integer dtype.
    ids: ValueId,
    /// Activations for either scheme.
    wide: [ValueId; 2],
    /// Of one token.
    heads: ValueId,
    position: ValueId,
    condition: ValueId,
}

/// A block that is still open.
struct Inside {
    params: Vec<ValueId>,
    /// What can be read in it and nowhere else, the parameters first.
    values: Vec<ValueId>,
    given: Vec<ValueId>,
}

struct Maker<'s, 'b> {
    source: &'s mut Source<'b>,
    builder: Builder,
    dtype: DType,
    inputs: Inputs,
    /// Tensors of the program's dtype that can be read here.
    scope: Vec<ValueId>,
    /// By open block: how many values of the scope are from outside.
    outside: Vec<usize>,
    /// Whether a block around this place may run again.
    in_loop: bool,
    left: usize,
    /// Values of this block that are given out as they are made: they are of another dtype, or not exact.
    given: Vec<ValueId>,
}

impl<'s, 'b> Maker<'s, 'b> {
    fn new(source: &'s mut Source<'b>, dtype: DType) -> Maker<'s, 'b> {
        const SHAPES: [&[usize]; 4] = [&[4], &[3, 4], &[5, 2], &[4, 3]];
        let mut graph = Graph { name: "forward".into(), ..Graph::default() };
        let tensor = |dtype, shape: &[usize]| Type::Tensor(TensorType::known(dtype, shape));
        let integer = source.pick(&session::INTEGERS);
        let condition = graph.symbols.add("C", 0, Some(1));
        let inputs = Inputs {
            tensors: SHAPES.iter().map(|shape| graph.add_input("x", tensor(dtype, shape))).collect(),
            places: graph.add_input("places", tensor(integer, &[4])),
            ids: graph.add_input("ids", tensor(integer, &[3, 2])),
            wide: [64, 128].map(|k| graph.add_input("wide", tensor(dtype, &[2, k]))),
            heads: graph.add_input("heads", tensor(dtype, &[1, 2, 1, HEAD])),
            position: graph.add_input("position", tensor(DType::I64, &[1])),
            condition: graph.add_input("condition", Type::Int(Dim::symbol(condition))),
        };
        let mut scope = inputs.tensors.clone();
        for number in 0..source.below(3) {
            let shape = source.pick(&SHAPES);
            scope.push(graph.add_buffer(&format!("kept{number}"), TensorType::known(dtype, shape)));
        }
        Maker {
            source,
            builder: Builder::new(graph),
            dtype,
            inputs,
            scope,
            outside: Vec::new(),
            in_loop: false,
            left: MOST_NODES,
            given: Vec::new(),
        }
    }

    /// The graph: nodes, then what buffers hold afterwards, then outputs.
    fn make(mut self, has: &mut Has) -> Graph {
        let nodes = 3 + self.source.below(MOST_NODES - 3);
        for _ in 0..nodes {
            self.node(has);
        }
        for at in 0..self.builder.graph().buffers.len() {
            let value = self.builder.graph().buffers[at].value;
            // Caches of keys have theirs already.
            if !self.scope.contains(&value) {
                continue;
            }
            let same = self.like(value);
            let update = self.source.pick(&same);
            has.buffer |= update != value;
            self.builder.graph_mut().buffers[at].update = update;
        }
        let mut given = self.given;
        for _ in 0..1 + self.source.below(3) {
            given.push(self.source.pick(&self.scope));
        }
        let mut graph = self.builder.finish();
        graph.outputs = given
            .into_iter()
            .map(|value| Output { name: "y".into(), value, ty: graph.values[value.0 as usize].ty.clone() })
            .collect();
        graph
    }

    fn shape(&self, value: ValueId) -> Vec<usize> {
        match self.builder.graph().ty(value) {
            Some(Type::Tensor(ty)) => ty.known_shape().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Values in reach of the same shape, itself among them.
    fn like(&self, value: ValueId) -> Vec<ValueId> {
        let shape = self.shape(value);
        self.scope.iter().copied().filter(|&other| self.shape(other) == shape).collect()
    }

    /// Later values are taken more often: chains come of it.
    fn any(&mut self) -> ValueId {
        let count = self.scope.len();
        let at = self.source.below(count).max(self.source.below(count));
        self.scope[at]
    }

    /// Appends an op that gives one tensor; `None` where its rule refuses it.
    fn append(&mut self, op: Op<Ssa>) -> Option<ValueId> {
        let made = self.builder.append(op, None).ok()?;
        made.first().copied()
    }

    /// The same; the result can be read from here on.
    fn push(&mut self, op: Op<Ssa>) -> Option<ValueId> {
        let value = self.append(op)?;
        let elements: usize = self.shape(value).iter().product();
        if (1..=MOST_ELEMENTS).contains(&elements) {
            self.scope.push(value);
        }
        Some(value)
    }

    fn node(&mut self, has: &mut Has) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        // Bytes that are over give the first.
        let _ = match self.source.below(22) {
            0..=3 => self.elementwise(),
            4..=7 => self.view(),
            8..=9 => self.slice_update(has),
            10..=11 => self.index_copy(has),
            12..=13 => self.branch(has),
            14..=16 => self.scan(has),
            17..=19 => self.product(has),
            20 => self.embedding(has),
            _ => match self.source.below(3) {
                0 => self.turned(has),
                1 => self.draw(has),
                _ => self.attend(has),
            },
        };
    }

    fn elementwise(&mut self) -> Option<ValueId> {
        let a = self.any();
        let same = self.like(a);
        let b = self.source.pick(&same);
        let op = match self.source.below(6) {
            0 => Op::Add { a, b },
            1 => Op::Subtract { a, b },
            2 => Op::Maximum { a, b },
            3 => Op::Minimum { a, b },
            4 => Op::Neg { x: a },
            _ => Op::Abs { x: a },
        };
        self.push(op)
    }

    fn view(&mut self) -> Option<ValueId> {
        let x = self.any();
        let shape = self.shape(x);
        let rank = shape.len();
        let axis = self.source.below(rank.max(1));
        let op = match self.source.below(7) {
            0 => {
                let (start, length) = self.range(*shape.get(axis)?);
                let step = 1 + self.source.below(2) as i32;
                let literal = IntArg::Literal;
                Op::Slice {
                    x,
                    axis: literal(axis as i64),
                    start: literal(start),
                    stop: literal(start + length),
                    step,
                }
            }
            1 => Op::Transpose { x, perm: (0..rank as i32).rev().collect() },
            2 => Op::Reshape { x, shape: vec![IntArg::Literal(-1)] },
            3 => Op::Flip { x, axes: vec![axis as i32] },
            4 => Op::Contiguous { x },
            5 => Op::ExpandDims { x, axis: axis as i32 },
            _ => {
                let same = self.like(x);
                let other = self.source.pick(&same);
                Op::Concatenate { tensors: vec![x, other], axis: axis as i32 }
            }
        };
        self.push(op)
    }

    /// A part of an axis that is not empty: start and length.
    fn range(&mut self, size: usize) -> (i64, i64) {
        let start = self.source.below(size);
        let length = 1 + self.source.below(size - start);
        (start as i64, length as i64)
    }

    /// Whether a value is from outside a loop that this place is in.
    fn is_outer(&self, value: ValueId) -> bool {
        let outside = self.outside.last().copied().unwrap_or(0);
        self.in_loop && self.scope[..outside].contains(&value)
    }

    /// The update lies in the target itself, or in another tensor of its shape.
    fn slice_update(&mut self, has: &mut Has) -> Option<ValueId> {
        let dst = self.any();
        let shape = self.shape(dst);
        let axis = self.source.below(shape.len().max(1));
        let size = *shape.get(axis)?;
        let (start, length) = self.range(size);
        let from = self.source.below(size - length as usize + 1) as i64;
        let same = self.like(dst);
        let (x, literal) = (self.source.pick(&same), IntArg::Literal);
        let axis = literal(axis as i64);
        let mut update =
            self.append(Op::Slice { x, axis, start: literal(from), stop: literal(from + length), step: 1 })?;
        if self.source.byte() % 2 == 1 {
            update = self.append(Op::Neg { x: update })?;
        }
        has.outer_update |= self.is_outer(dst);
        let (start, stop) = (literal(start), literal(start + length));
        self.push(Op::SliceUpdate { dst, update, axis, start, stop, step: 1 })
    }

    /// Rows by an input; its values can be outside the target, and the run fails.
    fn index_copy(&mut self, has: &mut Has) -> Option<ValueId> {
        let dst = self.any();
        let shape = self.shape(dst);
        let axis = self.source.below(shape.len().max(1));
        let size = *shape.get(axis)?;
        let literal = IntArg::Literal;
        // Side by side, or every other one.
        let step = 1 + self.source.below(2) as i32;
        let count = (1 + self.source.below(2)).min(size) as i64;
        let stop = literal(count * i64::from(step));
        let indices = self.append(Op::Slice {
            x: self.inputs.places,
            axis: literal(0),
            start: literal(0),
            stop,
            step,
        })?;
        let same = self.like(dst);
        let x = self.source.pick(&same);
        let (axis_arg, axis) = (literal(axis as i64), axis as i32);
        let update =
            self.append(Op::Slice { x, axis: axis_arg, start: literal(0), stop: literal(count), step: 1 })?;
        has.outer_update |= self.is_outer(dst);
        self.push(Op::IndexCopy { dst, update, indices, axis })
    }

    /// Opens a block, fills it, and gives what its values are there.
    fn block(&mut self, params: Vec<Type>, is_loop: bool, has: &mut Has) -> Inside {
        has.nested |= !self.outside.is_empty();
        let (outside, was_in_loop) = (self.scope.len(), self.in_loop);
        self.outside.push(outside);
        let given_outside = std::mem::take(&mut self.given);
        self.in_loop |= is_loop;
        let params = self.builder.open_block(params);
        self.scope.extend(&params);
        for _ in 0..1 + self.source.below(3) {
            self.node(has);
        }
        self.in_loop = was_in_loop;
        self.outside.pop();
        let given = std::mem::replace(&mut self.given, given_outside);
        Inside { params, values: self.scope.split_off(outside), given }
    }

    fn branch(&mut self, has: &mut Has) -> Option<ValueId> {
        if self.outside.len() >= MOST_DEPTH {
            return None;
        }
        // Branches yield tensors of these shapes, one perhaps twice.
        let mut wanted = vec![self.any()];
        if self.source.byte() % 2 == 1 {
            wanted.push(if self.source.byte() % 2 == 1 { wanted[0] } else { self.any() });
        }
        let blocks = [(); 2].map(|()| {
            let inside = self.block(Vec::new(), false, has).values;
            let twice = self.source.byte() % 2 == 1;
            let mut results: Vec<ValueId> = Vec::new();
            for &like in &wanted {
                let shape = self.shape(like);
                let fits = inside.iter().rev().copied().filter(|&value| self.shape(value) == shape);
                let fits: Vec<ValueId> = fits.chain([like]).collect();
                let same = results.iter().copied().find(|&value| twice && self.shape(value) == shape);
                results.push(same.unwrap_or_else(|| self.source.pick(&fits)));
            }
            self.builder.close_block(results)
        });
        let [then_chain_idx, else_chain_idx] = blocks;
        let cond = IntArg::Value(self.inputs.condition);
        let made = self.builder.append(Op::If { cond, then_chain_idx, else_chain_idx }, None).ok()?;
        self.scope.extend(&made);
        has.branch = true;
        made.first().copied()
    }

    fn scan(&mut self, has: &mut Has) -> Option<ValueId> {
        if self.outside.len() >= MOST_DEPTH {
            return None;
        }
        let original = self.any();
        let shape = self.shape(original);
        let axis = self.source.below(shape.len().max(1));
        let steps = *shape.get(axis)?;
        if shape.len() < 2 || steps > 8 {
            return None;
        }
        let before = *has;
        let carry: Vec<ValueId> = (0..self.source.below(3)).map(|_| self.any()).collect();
        let mut slice = shape.clone();
        slice.remove(axis);
        let tensor = |shape: &[usize]| Type::Tensor(TensorType::known(self.dtype, shape));
        let mut params = vec![tensor(&slice)];
        params.extend(carry.iter().map(|&value| tensor(&self.shape(value))));
        let Inside { params, values: inside, given } = self.block(params, true, has);
        // The last that was made, or anything that is in reach there, the parameters and outer values among them.
        let mut results = Vec::new();
        for _ in 0..1 + self.source.below(2) {
            results.push(match self.source.byte() % 4 {
                0 => self.any(),
                1 => self.source.pick(&inside),
                _ => inside[inside.len() - 1],
            });
        }
        for &param in &params[1..] {
            let shape = self.shape(param);
            let fits: Vec<ValueId> =
                inside.iter().copied().filter(|&value| self.shape(value) == shape).collect();
            results.push(match self.source.byte() % 3 {
                0 => self.source.pick(&fits),
                _ => fits[fits.len() - 1],
            });
        }
        let (stacked, carried) = results.split_at(results.len() - carry.len());
        let results = [stacked, &given, carried].concat();
        let given = stacked.len()..stacked.len() + given.len();
        let body_chain_idx = self.builder.close_block(results);
        let scan_axis = axis as i32;
        // An axis that the stacked ones do not have is refused, and the block is gone.
        let op = Op::Scan { originals: vec![original], sliced: (), carry, body_chain_idx, scan_axis };
        let Ok(made) = self.builder.append(op, None) else {
            *has = before;
            return None;
        };
        for (at, &value) in made.iter().enumerate() {
            if given.contains(&at) {
                self.given.push(value);
            } else if self.shape(value).iter().product::<usize>() <= MOST_ELEMENTS {
                self.scope.push(value);
            }
        }
        has.scan = true;
        made.first().copied()
    }

    /// The words, scales and biases that all delegates share.
    fn packed(&mut self) -> [ValueId; 3] {
        let [rows, words] = PACKED;
        let parts = [
            ("w", TensorType::known(DType::U32, &[rows, words])),
            ("scales", TensorType::known(self.dtype, &[rows, 2])),
            ("biases", TensorType::known(self.dtype, &[rows, 2])),
        ];
        parts.map(|(name, ty)| {
            let graph = self.builder.graph_mut();
            let known = graph.constants.iter().find(|constant| constant.name == name);
            known.map(|constant| constant.value).unwrap_or_else(|| graph.add_constant(name, ty))
        })
    }

    /// A product under one of the schemes; nothing is made of it.
    fn product(&mut self, has: &mut Has) -> Option<ValueId> {
        let [w, scales, biases] = self.packed();
        let which = self.source.below(2);
        let ((bits, group_size), x) = (SCHEMES[which], self.inputs.wide[which]);
        let (biases, mode) = (Some(biases), "affine".to_owned());
        let op = Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose: true };
        let value = self.append(op)?;
        self.given.push(value);
        has.schemes[which] = true;
        None
    }

    /// Rows of the same constants by ids, as they are or the other way round.
    fn embedding(&mut self, has: &mut Has) -> Option<ValueId> {
        let [w, scales, biases] = self.packed();
        let (bits, group_size) = self.source.pick(&SCHEMES);
        let mut ids = self.inputs.ids;
        if self.source.byte() % 2 == 1 {
            ids = self.append(Op::Transpose { x: ids, perm: vec![1, 0] })?;
        }
        let [w, scales, biases] =
            [w, scales, biases].map(|x| self.append(Op::Take { x, index: IndexArg::Tensor(ids), axis: 0 }));
        let value = self.append(Op::Dequantize {
            w: w?,
            scales: scales?,
            biases: Some(biases?),
            group_size,
            bits,
            mode: "affine".to_owned(),
            global_scale: None,
            dtype: None,
        })?;
        self.given.push(value);
        has.embedding = true;
        None
    }

    /// Keys that are turned and put into a cache that is a buffer.
    fn turned(&mut self, has: &mut Has) -> Option<ValueId> {
        if !self.outside.is_empty() {
            return None;
        }
        let ty = TensorType::known(self.dtype, &[1, 2, POSITIONS, HEAD]);
        let count = self.builder.graph().buffers.len();
        let buffer = self.builder.graph_mut().add_buffer(&format!("keys{count}"), ty);
        let (x, offset) = (self.inputs.heads, OffsetArg::Tensor(self.inputs.position));
        let (dims, base, scale) = (HEAD as i32, 10000.0, 1.0);
        let update =
            self.append(Op::Rope { x, dims, offset, freqs: None, traditional: false, base, scale })?;
        let made = self.builder.append(Op::ItemInt { x: self.inputs.position }, None).ok()?;
        let (axis, start) = (IntArg::Literal(2), IntArg::Value(*made.first()?));
        let made = self.builder.append(Op::AddInt { a: start, b: IntArg::Literal(1) }, None).ok()?;
        let stop = IntArg::Value(*made.first()?);
        let value = self.append(Op::SliceUpdate { dst: buffer, update, axis, start, stop, step: 1 })?;
        let buffers = &mut self.builder.graph_mut().buffers;
        buffers.iter_mut().filter(|kept| kept.value == buffer).for_each(|kept| kept.update = value);
        self.given.push(value);
        has.turned = true;
        None
    }

    fn draw(&mut self, has: &mut Has) -> Option<ValueId> {
        let value = self.append(Op::RandomBits { shape: vec![IntArg::Literal(3)], seed: None, width: 4 })?;
        self.given.push(value);
        has.draws = true;
        None
    }

    fn attend(&mut self, has: &mut Has) -> Option<ValueId> {
        if !self.outside.is_empty() || has.attends {
            return None;
        }
        let (q, position) = (self.inputs.heads, self.inputs.position);
        let (layer_id, scale) = (Some(0), Some(0.5));
        let value =
            self.append(Op::UpdateAndAttend { q, k: q, v: q, position, layer_id, scale, out_dtype: None })?;
        self.given.push(value);
        has.attends = true;
        None
    }
}
