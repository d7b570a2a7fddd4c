//! Ops from one world to another: the same attributes, other operands.
//!
//! `lift` goes from slots to values with it and `emit` back; both say only how one operand is translated.

use pteron_ir::Op;
use pteron_ir::op::{Field, FieldRef, FloatArg, IndexArg, IntArg, OffsetArg, World};

/// How operands of world `A` become operands of world `B`.
pub(crate) trait Translate<A: World, B: World> {
    /// Why one has no counterpart.
    type Error;

    fn tensor(&mut self, tensor: A::Tensor) -> Result<B::Tensor, Self::Error>;
    fn scalar(&mut self, scalar: A::Scalar) -> Result<B::Scalar, Self::Error>;

    /// The error for a field that this translation has nothing to say about: a body, or the slots of a loop.
    /// Ops that have them are built by hand.
    fn unknown(&self, field: &'static str) -> Self::Error;
}

/// The op with its operands translated, in field order.
pub(crate) fn translate<A: World, B: World, T: Translate<A, B>>(
    op: &Op<A>,
    by: &mut T,
) -> Result<Op<B>, T::Error> {
    let mut fields = Vec::with_capacity(op.spec().fields.len());
    let mut failure = None;
    op.for_each_field(|spec, value| {
        if failure.is_none() {
            match field(spec.name, value, by) {
                Ok(field) => fields.push(field),
                Err(error) => failure = Some(error),
            }
        }
    });
    match failure {
        Some(error) => Err(error),
        None => Op::from_fields(op.kind(), fields).map_err(|field| by.unknown(field)),
    }
}

fn field<A: World, B: World, T: Translate<A, B>>(
    name: &'static str,
    value: FieldRef<'_, A>,
    by: &mut T,
) -> Result<Field<B>, T::Error> {
    Ok(match value {
        FieldRef::Tensor(tensor) => Field::Tensor(by.tensor(*tensor)?),
        FieldRef::MaybeTensor(tensor) => {
            Field::MaybeTensor(tensor.map(|tensor| by.tensor(tensor)).transpose()?)
        }
        FieldRef::Tensors(tensors) => {
            Field::Tensors(tensors.iter().map(|&tensor| by.tensor(tensor)).collect::<Result<_, _>>()?)
        }
        FieldRef::Int(arg) => Field::Int(int(arg, by)?),
        FieldRef::MaybeInt(arg) => Field::MaybeInt(arg.as_ref().map(|arg| int(arg, by)).transpose()?),
        FieldRef::Ints(args) => Field::Ints(ints(args, by)?),
        FieldRef::MaybeInts(args) => Field::MaybeInts(args.as_ref().map(|args| ints(args, by)).transpose()?),
        FieldRef::Float(arg) => Field::Float(match arg {
            FloatArg::Literal(literal) => FloatArg::Literal(*literal),
            FloatArg::Value(scalar) => FloatArg::Value(by.scalar(*scalar)?),
        }),
        FieldRef::Offset(arg) => Field::Offset(match arg {
            OffsetArg::Value(scalar) => OffsetArg::Value(by.scalar(*scalar)?),
            OffsetArg::Tensor(tensor) => OffsetArg::Tensor(by.tensor(*tensor)?),
        }),
        FieldRef::Index(arg) => Field::Index(match arg {
            IndexArg::Literal(literal) => IndexArg::Literal(*literal),
            IndexArg::Value(scalar) => IndexArg::Value(by.scalar(*scalar)?),
            IndexArg::Tensor(tensor) => IndexArg::Tensor(by.tensor(*tensor)?),
        }),
        FieldRef::MaybeScalar(scalar) => {
            Field::MaybeScalar(scalar.map(|scalar| by.scalar(scalar)).transpose()?)
        }
        FieldRef::I32(value) => Field::I32(*value),
        FieldRef::MaybeI32(value) => Field::MaybeI32(*value),
        FieldRef::I32s(values) => Field::I32s(values.clone()),
        FieldRef::MaybeI32s(values) => Field::MaybeI32s(values.clone()),
        FieldRef::MaybeI8s(values) => Field::MaybeI8s(values.clone()),
        FieldRef::U64(value) => Field::U64(*value),
        FieldRef::F32(value) => Field::F32(*value),
        FieldRef::MaybeF32(value) => Field::MaybeF32(*value),
        FieldRef::Bool(value) => Field::Bool(*value),
        FieldRef::Str(text) => Field::Str(text.clone()),
        FieldRef::MaybeStr(text) => Field::MaybeStr(text.clone()),
        FieldRef::MaybeStrs(texts) => Field::MaybeStrs(texts.clone()),
        FieldRef::DType(dtype) => Field::DType(*dtype),
        FieldRef::MaybeDType(dtype) => Field::MaybeDType(*dtype),
        FieldRef::MaybeDTypes(dtypes) => Field::MaybeDTypes(dtypes.clone()),
        FieldRef::Body(_) | FieldRef::LoopSlots(_) => return Err(by.unknown(name)),
    })
}

/// One integer argument; also what the hand-built control ops use.
pub(crate) fn int<A: World, B: World, T: Translate<A, B>>(
    arg: &IntArg<A::Scalar>,
    by: &mut T,
) -> Result<IntArg<B::Scalar>, T::Error> {
    Ok(match arg {
        IntArg::Literal(literal) => IntArg::Literal(*literal),
        IntArg::Value(scalar) => IntArg::Value(by.scalar(*scalar)?),
    })
}

fn ints<A: World, B: World, T: Translate<A, B>>(
    args: &[IntArg<A::Scalar>],
    by: &mut T,
) -> Result<Vec<IntArg<B::Scalar>>, T::Error> {
    args.iter().map(|arg| int(arg, by)).collect()
}
