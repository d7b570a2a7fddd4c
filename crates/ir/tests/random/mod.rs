//! Random graphs out of random bytes: whatever shrinks the bytes shrinks the graph.

use pteron_ir::op::{DefaultValue, Field, FieldKind, FloatArg, IndexArg, IntArg, OffsetArg};
use pteron_ir::{
    Block, Buffer, Builder, Dim, Graph, Node, Op, OpKind, Output, Place, Ssa, Symbol, TensorType, Type,
    ValueId,
};
use pteron_tensor::DType;

/// Bytes that are read once; zeros when they are over.
pub(crate) struct Source<'a> {
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Source<'a> {
        Source { bytes }
    }

    fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    fn below(&mut self, count: usize) -> usize {
        let number = usize::from(self.byte()) << 8 | usize::from(self.byte());
        number % count.max(1)
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        let at = self.below(items.len());
        items.get(at).cloned()
    }

    fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    fn bits(&mut self) -> u64 {
        (0..8).fold(0, |bits, _| bits << 8 | u64::from(self.byte()))
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(4);
        (0..count).map(|_| item(self)).collect()
    }

    fn maybe<T>(&mut self, item: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.flag() { Some(item(self)) } else { None }
    }

    /// Small numbers, the ends of the range, and anything.
    fn integer(&mut self) -> i64 {
        match self.byte() % 4 {
            0 => i64::from(self.byte() as i8),
            1 => *[0, 1, -1, i64::MAX, i64::MIN, i64::from(i32::MAX), i64::from(i32::MIN)]
                .get(self.below(7))
                .unwrap_or(&0),
            _ => self.bits() as i64,
        }
    }

    fn text(&mut self) -> String {
        const CHARS: &[char] = &[
            'a', 'Z', '_', '0', ' ', ';', '"', '\\', '\n', '\r', '\t', '\0', '\u{7f}', '\u{200b}', '\'', 'é',
            '🦀', '{', '%',
        ];
        let count = self.below(6);
        (0..count).filter_map(|_| self.pick(CHARS)).collect()
    }

    fn dtype(&mut self) -> DType {
        self.pick(&DType::all().collect::<Vec<_>>()).unwrap_or(DType::F32)
    }

    /// Every float but NaN, which equals nothing; files test that one.
    fn f32(&mut self) -> f32 {
        let float = f32::from_bits(self.bits() as u32);
        if float.is_nan() { f32::INFINITY } else { float }
    }

    fn f64(&mut self) -> f64 {
        let float = f64::from_bits(self.bits());
        if float.is_nan() { f64::NEG_INFINITY } else { float }
    }
}

fn add_symbols(graph: &mut Graph, source: &mut Source<'_>) {
    for _ in 0..source.below(4) {
        let name = match source.byte() % 3 {
            0 => source.text(),
            1 => "T".to_owned(),
            _ => String::new(),
        };
        let min = source.integer();
        let max = source.maybe(Source::integer);
        graph.symbols.add(&name, min, max);
    }
}

fn dim(graph: &Graph, source: &mut Source<'_>) -> Dim {
    let mut dim = Dim::known(source.integer());
    for _ in 0..source.below(3) {
        if graph.symbols.is_empty() {
            break;
        }
        let term = Dim::symbol(Symbol(source.below(graph.symbols.len()) as u32)).scale(source.integer());
        dim = term.and_then(|term| dim.add(&term)).unwrap_or(dim);
    }
    dim
}

fn ty(graph: &Graph, source: &mut Source<'_>) -> Type {
    match source.byte() % 6 {
        0 => Type::Int(dim(graph, source)),
        1 => Type::Float,
        2 => Type::Bool,
        _ => {
            let dtype = source.dtype();
            Type::Tensor(TensorType { dtype, shape: source.list(|source| dim(graph, source)) })
        }
    }
}

/// A graph that need not mean anything: any op, any fields, any results.
pub(crate) fn broken_graph(source: &mut Source<'_>) -> Graph {
    let mut graph = Graph { name: source.text(), ..Graph::default() };
    add_symbols(&mut graph, source);
    for _ in 0..1 + source.below(4) {
        let ty = ty(&graph, source);
        match source.byte() % 4 {
            0 => drop(graph.add_value(ty)),
            1 => {
                let (value, name) = (graph.add_value(ty), source.text());
                graph.buffers.push(Buffer { name, value, update: any_value(&graph, source) });
            }
            2 => {
                let (value, name) = (graph.add_value(ty), source.text());
                graph.constants.push(pteron_ir::Constant { name, value });
            }
            _ => drop(graph.add_input(&source.text(), ty)),
        }
    }
    graph.body = block(&mut graph, source, 0);
    for _ in 0..source.below(3) {
        let (name, value) = (source.text(), any_value(&graph, source));
        graph.outputs.push(Output { name, value, ty: ty(&graph, source) });
    }
    graph
}

fn any_value(graph: &Graph, source: &mut Source<'_>) -> ValueId {
    ValueId(source.below(graph.values.len()) as u32)
}

fn new_values(graph: &mut Graph, source: &mut Source<'_>) -> Vec<ValueId> {
    let types = source.list(|source| ty(graph, source));
    types.into_iter().map(|ty| graph.add_value(ty)).collect()
}

fn block(graph: &mut Graph, source: &mut Source<'_>, depth: usize) -> Block {
    let mut block = Block { params: new_values(graph, source), ..Block::default() };
    for _ in 0..source.below(4) {
        block.nodes.push(node(graph, source, depth));
    }
    block.results = source.list(|source| any_value(graph, source));
    block
}

fn node(graph: &mut Graph, source: &mut Source<'_>, depth: usize) -> Node {
    let kinds = if source.byte().is_multiple_of(16) { OpKind::internal() } else { OpKind::all() };
    let kind = source.pick(kinds).unwrap_or(OpKind::Noop);
    let fields = kind.spec().fields.iter().map(|spec| match spec.default {
        Some(default) if source.flag() => match default {
            DefaultValue::I32(value) => Field::I32(value),
            DefaultValue::U64(value) => Field::U64(value),
            DefaultValue::F32(value) => Field::F32(value),
            DefaultValue::Bool(value) => Field::Bool(value),
        },
        _ => field(spec.kind, graph, source, depth),
    });
    let op = Op::from_fields(kind, fields.collect()).unwrap_or(Op::Noop {});
    let results = new_values(graph, source);
    let place = source.maybe(|source| Place { chain: source.byte().into(), index: source.byte().into() });
    Node { op, results, place }
}

fn field(kind: FieldKind, graph: &mut Graph, source: &mut Source<'_>, depth: usize) -> Field<Ssa> {
    let value = |source: &mut Source<'_>| any_value(graph, source);
    let int = |source: &mut Source<'_>| match source.flag() {
        true => IntArg::Literal(source.integer()),
        false => IntArg::Value(any_value(graph, source)),
    };
    let i32 = |source: &mut Source<'_>| source.integer() as i32;
    match kind {
        FieldKind::Tensor => Field::Tensor(value(source)),
        FieldKind::MaybeTensor => Field::MaybeTensor(source.maybe(value)),
        FieldKind::Tensors => Field::Tensors(source.list(value)),
        FieldKind::Int => Field::Int(int(source)),
        FieldKind::MaybeInt => Field::MaybeInt(source.maybe(int)),
        FieldKind::Ints => Field::Ints(source.list(int)),
        FieldKind::MaybeInts => Field::MaybeInts(source.maybe(|source| source.list(int))),
        FieldKind::Float => Field::Float(match source.flag() {
            true => FloatArg::Literal(source.f64()),
            false => FloatArg::Value(value(source)),
        }),
        FieldKind::Offset => Field::Offset(match source.flag() {
            true => OffsetArg::Tensor(value(source)),
            false => OffsetArg::Value(value(source)),
        }),
        FieldKind::Index => Field::Index(match source.byte() % 3 {
            0 => IndexArg::Tensor(value(source)),
            1 => IndexArg::Value(value(source)),
            _ => IndexArg::Literal(source.integer()),
        }),
        FieldKind::MaybeScalar => Field::MaybeScalar(source.maybe(value)),
        FieldKind::I32 => Field::I32(i32(source)),
        FieldKind::MaybeI32 => Field::MaybeI32(source.maybe(i32)),
        FieldKind::I32s => Field::I32s(source.list(i32)),
        FieldKind::MaybeI32s => Field::MaybeI32s(source.maybe(|source| source.list(i32))),
        FieldKind::MaybeI8s => {
            Field::MaybeI8s(source.maybe(|source| source.list(|source| source.byte() as i8)))
        }
        FieldKind::U64 => Field::U64(source.bits()),
        FieldKind::F32 => Field::F32(source.f32()),
        FieldKind::MaybeF32 => Field::MaybeF32(source.maybe(Source::f32)),
        FieldKind::Bool => Field::Bool(source.flag()),
        FieldKind::Str => Field::Str(source.text()),
        FieldKind::MaybeStr => Field::MaybeStr(source.maybe(Source::text)),
        FieldKind::MaybeStrs => Field::MaybeStrs(source.maybe(|source| source.list(Source::text))),
        FieldKind::DType => Field::DType(source.dtype()),
        FieldKind::MaybeDType => Field::MaybeDType(source.maybe(Source::dtype)),
        FieldKind::MaybeDTypes => Field::MaybeDTypes(source.maybe(|source| source.list(Source::dtype))),
        FieldKind::Body if depth < 3 => Field::Body(block(graph, source, depth + 1)),
        FieldKind::Body => Field::Body(Block::default()),
        FieldKind::LoopSlots => Field::LoopSlots(()),
    }
}

/// A sound graph over a handful of ops: what a rule refuses is left out.
pub(crate) fn built_graph(source: &mut Source<'_>) -> Graph {
    let mut graph = Graph { name: source.text(), ..Graph::default() };
    let t = Dim::symbol(graph.symbols.add("T", 2, Some(64)));
    let n = Dim::symbol(graph.symbols.add(&source.text(), 0, None));
    let dims = [Dim::known(1), Dim::known(2), Dim::known(3), t, n];
    let tensor = |source: &mut Source<'_>| TensorType {
        dtype: source.pick(&[DType::F32, DType::BF16, DType::I32, DType::Bool]).unwrap_or(DType::F32),
        shape: source.list(|source| source.pick(&dims).unwrap_or(Dim::known(1))),
    };
    let mut values = vec![graph.add_input("x", Type::Tensor(tensor(source)))];
    values.push(graph.add_constant("w", tensor(source)));
    let state = graph.add_buffer("state", tensor(source));
    values.push(state);
    let mut builder = Builder::new(graph);
    steps(&mut builder, &mut values, source, 0);
    let mut graph = builder.finish();
    graph.buffers[0].update =
        values.iter().copied().rfind(|&v| graph.ty(v) == graph.ty(state)).unwrap_or(state);
    let last = values[values.len() - 1];
    if let Some(ty) = graph.ty(last).cloned() {
        graph.outputs.push(Output { name: source.text(), value: last, ty });
    }
    graph
}

fn steps(builder: &mut Builder, values: &mut Vec<ValueId>, source: &mut Source<'_>, depth: usize) {
    for _ in 0..source.below(if depth == 0 { 12 } else { 3 }) {
        if source.is_over() {
            return;
        }
        let operand = |source: &mut Source<'_>| values[source.below(values.len())];
        let (x, y) = (operand(source), operand(source));
        let is_int = |value: &ValueId| matches!(builder.graph().ty(*value), Some(Type::Int(_)));
        let number = values.iter().copied().rfind(is_int).unwrap_or(x);
        let axis = i32::from(source.byte() % 5) - 2;
        let op = match source.byte() % 14 {
            0 => Op::Add { a: x, b: y },
            1 => Op::Exp { x },
            2 => Op::Transpose { x, perm: source.list(|source| i32::from(source.byte() % 3)) },
            3 => Op::Sum { x, axes: source.maybe(|_| vec![axis]), keepdims: source.flag() },
            4 => Op::Reshape { x, shape: vec![IntArg::Literal(-1)] },
            5 => Op::Concatenate { tensors: vec![x, y], axis },
            6 => Op::SymSize { a: x, dim: axis },
            7 => Op::AddInt { a: IntArg::Value(number), b: IntArg::Literal(i64::from(source.byte())) },
            8 => Op::Full {
                shape: vec![IntArg::Value(number)],
                v: FloatArg::Literal(source.f64()),
                scalar_type: source.dtype(),
            },
            9 => Op::Take { x, index: IndexArg::Tensor(y), axis },
            10 => Op::Split { x, sizes: vec![IntArg::Literal(1)], axis },
            11 => Op::AsType { x, scalar_type: source.dtype() },
            12 if depth < 3 => branch(builder, values, source, depth),
            13 if depth < 3 => match scan(builder, values, source, depth, x) {
                Some(op) => op,
                None => continue,
            },
            _ => Op::Noop {},
        };
        let place = source.maybe(|source| Place { chain: depth as u32, index: source.byte().into() });
        // What was refused has left values behind that nothing defines: those must survive too.
        values.extend(builder.append(op, place).unwrap_or_default());
    }
}

fn branch(builder: &mut Builder, values: &[ValueId], source: &mut Source<'_>, depth: usize) -> Op<Ssa> {
    let mut side = || {
        builder.open_block(Vec::new());
        let mut inner = values.to_vec();
        steps(builder, &mut inner, source, depth + 1);
        builder.close_block(inner.last().copied().into_iter().collect())
    };
    let (then, otherwise) = (side(), side());
    Op::If { cond: IntArg::Literal(1), then_chain_idx: then, else_chain_idx: otherwise }
}

fn scan(
    builder: &mut Builder,
    values: &[ValueId],
    source: &mut Source<'_>,
    depth: usize,
    x: ValueId,
) -> Option<Op<Ssa>> {
    let Some(Type::Tensor(tensor)) = builder.graph().ty(x).cloned() else { return None };
    let mut slice = tensor;
    if slice.shape.is_empty() {
        return None;
    }
    slice.shape.remove(0);
    let params = builder.open_block(vec![Type::Tensor(slice)]);
    let mut inner = values.to_vec();
    inner.extend(params);
    steps(builder, &mut inner, source, depth + 1);
    let body = builder.close_block(inner.last().copied().into_iter().collect());
    Some(Op::Scan { originals: vec![x], sliced: (), carry: Vec::new(), body_chain_idx: body, scan_axis: 0 })
}
