//! Random typed ops and programs on two backends: the reference backend says what is right, and another one is given the
//! same with the same operands. All ops are tried one by one, because a difference that is allowed in one would grow in
//! the next; whole programs ([`programs`]) are made of those that leave no room for one.
//!
//! Both come out of random bytes, so that whatever shrinks the bytes shrinks the graph. The fuzz targets `cpu` and `mlx`
//! and tests share this.

#[path = "../graphs/mod.rs"]
mod graphs;
#[allow(dead_code)] // each test file uses its part
pub(crate) mod programs;
mod session;
#[allow(dead_code)] // as above
mod tally;

use pteron_ir::op::{Field, FieldKind, FloatArg, IndexArg, IntArg, OffsetArg};
use pteron_ir::{Builder, Dim, Graph, Op, OpKind, Output, Ssa, TensorType, Type, TypeSource, ValueId};
use pteron_runtime::Value;
use pteron_runtime::backend::{Backend, RunControl, StateOptions};
use pteron_runtime::reference::run_op;
use pteron_tensor::{Bytes, DType, HostTensor};
use std::collections::HashMap;

/// Ops of one graph.
const MOST_OPS: usize = 24;
/// Sizes above this are of no interest.
const MOST_ELEMENTS: usize = 1 << 14;

/// Bytes that are read once; zeros when they are over.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn new(bytes: &'a [u8]) -> Source<'a> {
        Source(bytes)
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, count: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % count.max(1)
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn maybe<T>(&mut self, item: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.byte() % 2 == 1 { Some(item(self)) } else { None }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(5);
        (0..count).map(|_| item(self)).collect()
    }
}

/// What two backends disagree on.
#[derive(Debug)]
pub(crate) struct Difference(pub(crate) String);

/// Builds a graph out of bytes and holds a backend against the reference, op by op.
pub(crate) fn check(bytes: &[u8], backend: &dyn Backend) -> Result<usize, Difference> {
    let mut source = Source::new(bytes);
    let mut values = Operands::new(&mut source);
    let mut compared = 0;
    for _ in 0..MOST_OPS {
        if source.0.is_empty() {
            break;
        }
        let Some(op) = random_op(&mut source, &values) else { continue };
        let Ok(types) = pteron_ir::infer(&op, &values, &mut pteron_ir::Symbols::default()) else { continue };
        if types.iter().any(|ty| elements(ty) > MOST_ELEMENTS) {
            continue;
        }
        if let Some(results) = check_op(&op, &values.of(&op), backend)? {
            compared += 1;
            results.into_iter().for_each(|value| values.push(value));
        }
    }
    Ok(compared)
}

/// Shows ops that bytes make, with the types of what they may have as operands, where their rules take those.
#[allow(dead_code)] // each test file uses its part
pub(crate) fn each_op(bytes: &[u8], mut show: impl FnMut(&Op<Ssa>, &dyn TypeSource)) {
    let mut source = Source::new(bytes);
    let values = Operands::new(&mut source);
    while !source.0.is_empty() {
        let Some(op) = random_op(&mut source, &values) else { continue };
        if pteron_ir::infer(&op, &values, &mut pteron_ir::Symbols::default()).is_ok() {
            show(&op, &values);
        }
    }
}

/// Holds a backend against the reference over one op; what it gives, unless both refuse it.
pub(crate) fn check_op(
    op: &Op<Ssa>,
    operands: &[(ValueId, Value)],
    backend: &dyn Backend,
) -> Result<Option<Vec<Value>>, Difference> {
    let shown = || {
        let operand = |pair: &(ValueId, Value)| {
            let first: Vec<f64> =
                pair.1.to_tensor().ok().flatten().iter().flat_map(numbers).take(16).collect();
            format!("%{} {} {first:?}", pair.0.0, pair.1.describe())
        };
        format!("{op:?} of {}", operands.iter().map(operand).collect::<Vec<_>>().join(", "))
    };
    let wanted = run_op(op, operands, &Default::default(), &RunControl::default());
    let got = alone(op, operands, backend);
    match (wanted, got) {
        (Ok(wanted), Ok(got)) => {
            for (wanted, got) in wanted.iter().zip(&got) {
                compare(op, operands, wanted, got)
                    .map_err(|problem| Difference(format!("{}: {problem}", shown())))?;
            }
            Ok(Some(wanted))
        }
        (Err(_), Err(_)) => Ok(None),
        // Where a result is empty nothing is read, so an index that is nowhere does no harm.
        (Err(_), Ok(got)) if got.iter().all(is_empty) => Ok(None),
        (Ok(_), Err(error)) => Err(Difference(format!("{}: refused: {error}", shown()))),
        (Err(error), Ok(_)) => Err(Difference(format!("{}: not refused, though {error}", shown()))),
    }
}

fn is_empty(value: &Value) -> bool {
    matches!(value.to_tensor(), Ok(Some(tensor)) if tensor.is_empty())
}

fn elements(ty: &Type) -> usize {
    match ty {
        Type::Tensor(ty) => ty.known_shape().map_or(usize::MAX, |shape| shape.iter().product()),
        _ => 1,
    }
}

/// Values so far, with types for the rules.
struct Operands {
    values: Vec<Value>,
    types: Vec<Type>,
}

impl TypeSource for Operands {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.types.get(value.0 as usize)
    }
}

impl Operands {
    fn new(source: &mut Source<'_>) -> Operands {
        const SHAPES: [&[usize]; 12] = [
            &[],
            &[3],
            &[1, 3],
            &[2, 3],
            &[3, 4],
            &[2, 1, 4],
            &[1, 2, 3, 4],
            &[2, 2, 3, 4],
            &[1, 5, 4],
            &[0, 3],
            &[4],
            &[2, 64],
        ];
        const DTYPES: [DType; 10] = [
            DType::F32,
            DType::F32,
            DType::BF16,
            DType::F16,
            DType::I32,
            DType::I64,
            DType::Bool,
            DType::U8,
            DType::I8,
            DType::U32,
        ];
        let mut made = Operands { values: Vec::new(), types: Vec::new() };
        for _ in 0..6 {
            let (dtype, shape) = (source.pick(&DTYPES), source.pick(&SHAPES));
            made.push(Value::Tensor(random_tensor(source, dtype, shape)));
        }
        made.push(Value::Int(i64::from(source.byte() % 4)));
        made
    }

    fn push(&mut self, value: Value) {
        let ty = match &value {
            Value::Int(number) => Type::Int(Dim::known(*number)),
            other => match other.to_tensor() {
                Ok(Some(tensor)) => Type::Tensor(TensorType::known(tensor.dtype(), tensor.shape())),
                _ => return,
            },
        };
        self.values.push(value);
        self.types.push(ty);
    }

    fn of(&self, op: &Op<Ssa>) -> Vec<(ValueId, Value)> {
        let mut ids = Vec::new();
        op.for_each_tensor(|value| ids.push(value));
        op.for_each_scalar(|value| ids.push(value));
        ids.sort();
        ids.dedup();
        ids.into_iter().filter_map(|id| Some((id, self.values.get(id.0 as usize)?.clone()))).collect()
    }
}

fn random_tensor(source: &mut Source<'_>, dtype: DType, shape: &[usize]) -> HostTensor {
    let step = f32::from(source.byte()) / 64.0;
    let number = |at: usize| f64::from(((at as f32 * 0.37 + step) * 2.7).sin() * 3.0);
    match dtype.is_float() || dtype == DType::Bool {
        true => of_numbers(dtype, shape, number),
        false => of_numbers(dtype, shape, |at| (number(at) as f32 * 1.3).trunc().into()),
    }
}

/// A tensor whose elements are the numbers nearest to what a function gives; a bool holds where one is positive.
fn of_numbers(dtype: DType, shape: &[usize], number: impl Fn(usize) -> f64) -> HostTensor {
    let count: usize = shape.iter().product();
    let bytes: Vec<u8> = (0..count)
        .flat_map(|at| match dtype {
            DType::F32 => (number(at) as f32).to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(number(at)).to_le_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f64(number(at)).to_le_bytes().to_vec(),
            DType::Bool => vec![u8::from(number(at) > 0.0)],
            _ => (number(at) as i64).to_le_bytes()[..dtype.size()].to_vec(),
        })
        .collect();
    HostTensor::new(dtype, shape.to_vec(), Bytes::copy_of(&bytes)).unwrap_or_else(|error| panic!("{error}"))
}

fn random_op(source: &mut Source<'_>, values: &Operands) -> Option<Op<Ssa>> {
    let kind = source.pick(OpKind::all());
    // Bodies and effects are for whoever runs a graph; Metal kernels have tests of their own.
    let skipped = matches!(
        kind,
        OpKind::If
            | OpKind::Scan
            | OpKind::UpdateAndAttend
            | OpKind::MetalKernel
            | OpKind::RandomBits
            | OpKind::Noop
    );
    if skipped {
        return None;
    }
    let tensors: Vec<ValueId> = ids(values, |ty| matches!(ty, Type::Tensor(_)));
    let ints: Vec<ValueId> = ids(values, |ty| matches!(ty, Type::Int(_)));
    let small = |source: &mut Source<'_>| i64::from(source.byte() % 9) - 3;
    let int = |source: &mut Source<'_>| match source.byte() % 4 {
        0 => IntArg::Value(source.pick(&ints)),
        _ => IntArg::Literal(small(source)),
    };
    let tensor = |source: &mut Source<'_>| source.pick(&tensors);
    let dtype = |source: &mut Source<'_>| {
        source.pick(&[
            DType::F32,
            DType::BF16,
            DType::F16,
            DType::I32,
            DType::I64,
            DType::Bool,
            DType::U8,
            DType::I16,
        ])
    };
    let fields = kind.spec().fields.iter().map(|spec| match spec.kind {
        FieldKind::Tensor => Field::Tensor(tensor(source)),
        FieldKind::MaybeTensor => Field::MaybeTensor(source.maybe(tensor)),
        FieldKind::Tensors => Field::Tensors(source.list(tensor)),
        FieldKind::Int => Field::Int(int(source)),
        FieldKind::MaybeInt => Field::MaybeInt(None),
        FieldKind::Ints => Field::Ints(source.list(int)),
        FieldKind::MaybeInts => Field::MaybeInts(None),
        FieldKind::Float => Field::Float(FloatArg::Literal(small(source) as f64 * 0.75)),
        FieldKind::Offset => Field::Offset(match source.byte() % 2 {
            0 => OffsetArg::Value(source.pick(&ints)),
            _ => OffsetArg::Tensor(tensor(source)),
        }),
        FieldKind::Index => Field::Index(match source.byte() % 2 {
            0 => IndexArg::Literal(small(source)),
            _ => IndexArg::Tensor(tensor(source)),
        }),
        FieldKind::MaybeScalar => Field::MaybeScalar(Some(source.pick(&ints))),
        FieldKind::I32 => Field::I32(match spec.default {
            Some(pteron_ir::op::DefaultValue::I32(value)) if source.byte().is_multiple_of(2) => value,
            _ => source.pick(&[0, 1, -1, 2, -2, 3, 4, 32]),
        }),
        FieldKind::MaybeI32 => Field::MaybeI32(None),
        FieldKind::I32s => Field::I32s(source.list(|source| small(source) as i32)),
        FieldKind::MaybeI32s => {
            Field::MaybeI32s(source.maybe(|source| source.list(|source| small(source) as i32)))
        }
        FieldKind::MaybeI8s => Field::MaybeI8s(None),
        FieldKind::U64 => Field::U64(u64::from(source.byte() % 3)),
        // A smaller base makes angles that f32 cannot tell apart.
        FieldKind::F32 if spec.name == "base" => Field::F32(10000.0),
        FieldKind::F32 => Field::F32(source.pick(&[1.0, 0.5, 1e-5, 2.0, 10000.0])),
        FieldKind::MaybeF32 => Field::MaybeF32(None),
        FieldKind::Bool => Field::Bool(source.byte().is_multiple_of(2)),
        FieldKind::Str => Field::Str(source.pick(&["constant", "edge", "affine", "tanh", "none"]).to_owned()),
        FieldKind::MaybeStr => Field::MaybeStr(None),
        FieldKind::MaybeStrs => Field::MaybeStrs(None),
        FieldKind::DType => Field::DType(dtype(source)),
        FieldKind::MaybeDType => Field::MaybeDType(source.maybe(dtype)),
        FieldKind::MaybeDTypes => Field::MaybeDTypes(None),
        FieldKind::Body => Field::Body(pteron_ir::Block::default()),
        FieldKind::LoopSlots => Field::LoopSlots(()),
    });
    Op::from_fields(kind, fields.collect()).ok()
}

fn ids(values: &Operands, wanted: impl Fn(&Type) -> bool) -> Vec<ValueId> {
    let all = values.types.iter().enumerate().filter(|(_, ty)| wanted(ty));
    all.map(|(at, _)| ValueId(at as u32)).collect()
}

/// One op as a program of its own.
fn alone(op: &Op<Ssa>, operands: &[(ValueId, Value)], backend: &dyn Backend) -> Result<Vec<Value>, String> {
    let mut graph = Graph::default();
    let mut numbers = HashMap::new();
    for (id, value) in operands {
        let ty = match value {
            Value::Int(number) => Type::Int(Dim::known(*number)),
            other => {
                let tensor = other.to_tensor().ok().flatten().ok_or("an operand that is no tensor")?;
                Type::Tensor(TensorType::known(tensor.dtype(), tensor.shape()))
            }
        };
        numbers.insert(*id, graph.add_input("", ty));
    }
    let mut op = op.clone();
    op.for_each_field_mut(|_, mut field| {
        let renumber = |id: &mut ValueId| *id = numbers.get(id).copied().unwrap_or(ValueId(u32::MAX));
        field.for_each_tensor(&mut { renumber });
        field.for_each_scalar(&mut { renumber });
    });
    let mut builder = Builder::new(graph);
    let results = builder.append(op, None).map_err(|error| error.to_string())?;
    let mut graph = builder.finish();
    graph.outputs = results
        .into_iter()
        .map(|value| Output { name: String::new(), value, ty: graph.values[value.0 as usize].ty.clone() })
        .collect();
    let inputs: Vec<Value> = operands.iter().map(|pair| pair.1.clone()).collect();
    run_graph(graph, &inputs, backend).map_err(|error| error.to_string())
}

/// One graph as a program of its own, run once.
pub(crate) fn run_graph(
    graph: Graph,
    inputs: &[Value],
    backend: &dyn Backend,
) -> pteron_runtime::Result<Vec<Value>> {
    graphs::Trial::new(&[graph], &[], backend, &StateOptions::default())?.run(0, inputs)
}

/// Refuses results that are not the same as far as their dtype can tell.
fn compare(op: &Op<Ssa>, operands: &[(ValueId, Value)], wanted: &Value, got: &Value) -> Result<(), String> {
    let (Ok(Some(wanted)), Ok(Some(got))) = (wanted.to_tensor(), got.to_tensor()) else {
        return if wanted.as_int() == got.as_int() { Ok(()) } else { Err(format!("{got:?} for {wanted:?}")) };
    };
    same_type(&wanted, &got)?;
    let given: Vec<f64> =
        operands.iter().filter_map(|pair| pair.1.to_tensor().ok()?).flat_map(|x| numbers(&x)).collect();
    let finite = given.iter().all(|number| number.is_finite());
    let mut scale = 1e-3;
    match op {
        // The order on either side of the k-th element is free.
        Op::Partition { .. } | Op::ArgPartition { .. } => return Ok(()),
        // MLX rounds the quotient down, PyTorch goes by way of the remainder: they part where the quotient is within a
        // rounding of a whole number, and at infinities.
        Op::FloorDivide { .. } if wanted.dtype().is_float() => {
            if !finite || !all_finite(&wanted) || !all_finite(&got) {
                return Ok(());
            }
            scale = 2e4;
        }
        // The reference sums in f64, whose range holds what f32's does not; positions have 31 bits.
        Op::Mean { .. }
        | Op::Var { .. }
        | Op::Std { .. }
        | Op::Prod { .. }
        | Op::RMSNorm { .. }
        | Op::LayerNorm { .. }
        | Op::Rope { .. }
            if largest(&given) > 1e6 =>
        {
            return Ok(());
        }
        // MLX's exponential is infinite from 88 on, f32 ends at 88.7.
        Op::Exp { .. } if largest(&given) > 88.0 => return Ok(()),
        // A key of no weight leaks NaN out of its value, or does not.
        Op::Sdpa { .. } if !finite => return Ok(()),
        // MLX's approximation is off by 3e-7 of 1.
        Op::Erf { .. } | Op::Gelu { .. } => scale = 1e-2,
        // A divisor of nothing gives infinity or NaN, by how the sum of zeros was rounded.
        Op::Var { .. } | Op::Std { .. } if !all_finite(&wanted) => return Ok(()),
        // Zeros of a padding or dilation are multiplied with NaN, or are not.
        Op::Conv1D { .. }
        | Op::Conv2D { .. }
        | Op::Conv3D { .. }
        | Op::ConvTranspose1D { .. }
        | Op::ConvTranspose2D { .. }
        | Op::ConvTranspose3D { .. }
            if !finite =>
        {
            return Ok(());
        }
        // What cancels leaves the rounding of what was summed.
        Op::Sum { .. } | Op::Mean { .. } | Op::Cumsum { .. } | Op::Addmm { .. } | Op::LayerNorm { .. } => {
            scale = largest(&given);
        }
        Op::Var { .. } | Op::Std { .. } => scale = largest(&given).max(largest(&given).powi(2)),
        _ => {}
    }
    close(&wanted, &got, scale)
}

/// Refuses tensors that are not the same as far as their dtype can tell: up to a share of the largest element, or of
/// `scale` where that is more.
fn close(wanted: &HostTensor, got: &HostTensor, scale: f64) -> Result<(), String> {
    same_type(wanted, got)?;
    let share = match wanted.dtype() {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        DType::F32 => 1e-4,
        _ => 0.0,
    };
    let (wanted, got) = (numbers(wanted), numbers(got));
    let allowed = share * largest(&wanted).max(scale);
    for (at, (&wanted, &got)) in wanted.iter().zip(&got).enumerate() {
        let same = wanted == got || (wanted.is_nan() && got.is_nan());
        if !same && ((wanted - got).abs() > allowed || wanted.is_nan() || got.is_nan()) {
            return Err(format!("element {at} is {got}, not {wanted}"));
        }
    }
    Ok(())
}

fn same_type(wanted: &HostTensor, got: &HostTensor) -> Result<(), String> {
    match (wanted.dtype(), wanted.shape()) == (got.dtype(), got.shape()) {
        true => Ok(()),
        false => {
            Err(format!("{} {:?} for {} {:?}", got.dtype(), got.shape(), wanted.dtype(), wanted.shape()))
        }
    }
}

fn all_finite(tensor: &HostTensor) -> bool {
    numbers(tensor).iter().all(|number| number.is_finite())
}

/// The largest finite magnitude.
fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().filter(|number| number.is_finite()).fold(0.0, |most, number| most.max(number.abs()))
}

fn numbers(tensor: &HostTensor) -> Vec<f64> {
    let elements = tensor.bytes().chunks_exact(tensor.dtype().size());
    elements
        .map(|bytes| {
            let mut word = [0u8; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let bits = u64::from_le_bytes(word);
            match tensor.dtype() {
                DType::F32 => f32::from_bits(bits as u32).into(),
                DType::F64 => f64::from_bits(bits),
                DType::F16 => half::f16::from_bits(bits as u16).to_f64(),
                DType::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
                DType::I8 => f64::from(bits as i8),
                DType::I16 => f64::from(bits as i16),
                DType::I32 => f64::from(bits as i32),
                DType::I64 => bits as i64 as f64,
                _ => bits as f64,
            }
        })
        .collect()
}
