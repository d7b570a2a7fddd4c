//! The kinds of fields that catalogue entries are made of, in two worlds: on the wire an operand is a slot
//! number, in a graph it is an SSA value.

use pteron_tensor::DType;
use std::fmt::Debug;

/// Where an op lives: what its operands are.
pub trait World: Clone + Debug + PartialEq + 'static {
    /// A tensor operand.
    type Tensor: Copy + Debug + PartialEq;
    /// An integer, float or bool operand.
    type Scalar: Copy + Debug + PartialEq;
    /// A nested body: a chain number on the wire, a block in a graph.
    type Body: Clone + Debug + PartialEq;
    /// Slots that a loop fills before its body runs: listed on the wire, parameters of the block in a graph.
    type LoopSlots: Clone + Debug + PartialEq;
}

/// A literal integer or an integer value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum IntArg<S> {
    Literal(i64),
    Value(S),
}

/// A literal float or a scalar value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum FloatArg<S> {
    Literal(f64),
    Value(S),
}

/// An integer value or a tensor of integers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum OffsetArg<T, S> {
    Value(S),
    Tensor(T),
}

/// A literal integer, an integer value or a tensor of integers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum IndexArg<T, S> {
    Literal(i64),
    Value(S),
    Tensor(T),
}

/// The Rust type of a field kind in a world.
pub trait FieldOf<W: World> {
    /// What such a field holds.
    type Type: Clone + Debug + PartialEq;
}

macro_rules! field_kinds {
    ($( $(#[$doc:meta])* $Kind:ident = $Type:ty ),* $(,)?) => {
        /// One marker type per field kind, so that a kind can be turned into a Rust type by [`FieldOf`].
        pub(crate) mod kind { $( #[derive(Debug)] pub struct $Kind; )* }
        $( impl<W: World> FieldOf<W> for kind::$Kind { type Type = $Type; } )*

        /// The kind of a field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FieldKind { $( $(#[$doc])* $Kind ),* }

        /// A field by value: what a decoder or parser hands to [`crate::Op::from_fields`].
        #[derive(Clone, Debug, PartialEq)]
        pub enum Field<W: World> { $( $(#[$doc])* $Kind(<kind::$Kind as FieldOf<W>>::Type) ),* }

        /// A field for reading: what an encoder, printer or operand walk sees.
        #[derive(Debug)]
        pub enum FieldRef<'a, W: World> { $( $(#[$doc])* $Kind(&'a <kind::$Kind as FieldOf<W>>::Type) ),* }

        /// A field for changing: what a rewrite sees.
        #[derive(Debug)]
        pub enum FieldMut<'a, W: World> { $( $(#[$doc])* $Kind(&'a mut <kind::$Kind as FieldOf<W>>::Type) ),* }

        impl<W: World> Field<W> {
            /// Which kind this is.
            pub fn kind(&self) -> FieldKind {
                match self { $( Field::$Kind(_) => FieldKind::$Kind ),* }
            }
        }
    };
}

field_kinds! {
    /// A tensor.
    Tensor = W::Tensor,
    /// A tensor that may be absent.
    MaybeTensor = Option<W::Tensor>,
    /// A list of tensors.
    Tensors = Vec<W::Tensor>,
    /// A literal integer or an integer value.
    Int = IntArg<W::Scalar>,
    /// The same, may be absent.
    MaybeInt = Option<IntArg<W::Scalar>>,
    /// A list of literal integers and integer values: a shape.
    Ints = Vec<IntArg<W::Scalar>>,
    /// The same, may be absent.
    MaybeInts = Option<Vec<IntArg<W::Scalar>>>,
    /// A literal float or a scalar value.
    Float = FloatArg<W::Scalar>,
    /// An integer value or a tensor.
    Offset = OffsetArg<W::Tensor, W::Scalar>,
    /// A literal integer, an integer value or a tensor.
    Index = IndexArg<W::Tensor, W::Scalar>,
    /// A scalar value that may be absent.
    MaybeScalar = Option<W::Scalar>,
    /// A 32-bit integer.
    I32 = i32,
    /// The same, may be absent.
    MaybeI32 = Option<i32>,
    /// A list of 32-bit integers.
    I32s = Vec<i32>,
    /// The same, may be absent.
    MaybeI32s = Option<Vec<i32>>,
    /// A list of bytes, may be absent.
    MaybeI8s = Option<Vec<i8>>,
    /// A 64-bit unsigned integer.
    U64 = u64,
    /// A float.
    F32 = f32,
    /// A float that may be absent.
    MaybeF32 = Option<f32>,
    /// A flag.
    Bool = bool,
    /// Text.
    Str = String,
    /// Text that may be absent.
    MaybeStr = Option<String>,
    /// A list of texts, may be absent.
    MaybeStrs = Option<Vec<String>>,
    /// An element type.
    DType = DType,
    /// An element type that may be absent.
    MaybeDType = Option<DType>,
    /// A list of element types, may be absent.
    MaybeDTypes = Option<Vec<DType>>,
    /// A nested body.
    Body = W::Body,
    /// The slots that a loop fills.
    LoopSlots = W::LoopSlots,
}

/// Name, kind and default of one field.
#[derive(Debug)]
pub struct FieldSpec {
    /// The name in the payload schema and in the text form.
    pub name: &'static str,
    /// What it holds.
    pub kind: FieldKind,
    /// What an absent scalar means; never set for kinds that can be absent themselves.
    pub default: Option<DefaultValue>,
}

/// A default of the payload schema.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum DefaultValue {
    I32(i32),
    U64(u64),
    F32(f32),
    Bool(bool),
}

impl<W: World> FieldRef<'_, W> {
    /// Tensors in this field, in order.
    pub fn for_each_tensor(&self, visit: &mut impl FnMut(W::Tensor)) {
        match self {
            FieldRef::Tensor(tensor) => visit(**tensor),
            FieldRef::MaybeTensor(Some(tensor)) => visit(*tensor),
            FieldRef::Tensors(tensors) => tensors.iter().copied().for_each(visit),
            FieldRef::Offset(OffsetArg::Tensor(tensor)) | FieldRef::Index(IndexArg::Tensor(tensor)) => {
                visit(*tensor);
            }
            _ => {}
        }
    }

    /// Scalars in this field, in order.
    pub fn for_each_scalar(&self, visit: &mut impl FnMut(W::Scalar)) {
        let mut int = |arg: &IntArg<W::Scalar>| {
            if let IntArg::Value(scalar) = arg {
                visit(*scalar);
            }
        };
        match self {
            FieldRef::Int(arg) => int(arg),
            FieldRef::MaybeInt(arg) => arg.iter().for_each(int),
            FieldRef::Ints(args) => args.iter().for_each(int),
            FieldRef::MaybeInts(args) => args.iter().flatten().for_each(int),
            FieldRef::Float(FloatArg::Value(scalar))
            | FieldRef::Offset(OffsetArg::Value(scalar))
            | FieldRef::Index(IndexArg::Value(scalar))
            | FieldRef::MaybeScalar(Some(scalar)) => visit(*scalar),
            _ => {}
        }
    }
}

impl<W: World> FieldMut<'_, W> {
    /// Tensors in this field, for replacing.
    pub fn for_each_tensor(&mut self, visit: &mut impl FnMut(&mut W::Tensor)) {
        match self {
            FieldMut::Tensor(tensor) => visit(tensor),
            FieldMut::MaybeTensor(Some(tensor)) => visit(tensor),
            FieldMut::Tensors(tensors) => tensors.iter_mut().for_each(visit),
            FieldMut::Offset(OffsetArg::Tensor(tensor)) | FieldMut::Index(IndexArg::Tensor(tensor)) => {
                visit(tensor)
            }
            _ => {}
        }
    }

    /// Scalars in this field, for replacing.
    pub fn for_each_scalar(&mut self, visit: &mut impl FnMut(&mut W::Scalar)) {
        let mut int = |arg: &mut IntArg<W::Scalar>| {
            if let IntArg::Value(scalar) = arg {
                visit(scalar);
            }
        };
        match self {
            FieldMut::Int(arg) => int(arg),
            FieldMut::MaybeInt(arg) => arg.iter_mut().for_each(int),
            FieldMut::Ints(args) => args.iter_mut().for_each(int),
            FieldMut::MaybeInts(args) => args.iter_mut().flatten().for_each(int),
            FieldMut::Float(FloatArg::Value(scalar))
            | FieldMut::Offset(OffsetArg::Value(scalar))
            | FieldMut::Index(IndexArg::Value(scalar))
            | FieldMut::MaybeScalar(Some(scalar)) => visit(scalar),
            _ => {}
        }
    }
}

impl<W: World> Field<W> {
    /// The field that an absent wire value stands for, where absence means something.
    pub fn absent(spec: &FieldSpec) -> Option<Field<W>> {
        Some(match spec.kind {
            FieldKind::MaybeTensor => Field::MaybeTensor(None),
            FieldKind::MaybeInt => Field::MaybeInt(None),
            FieldKind::MaybeInts => Field::MaybeInts(None),
            FieldKind::MaybeScalar => Field::MaybeScalar(None),
            FieldKind::MaybeI32 => Field::MaybeI32(None),
            FieldKind::MaybeI32s => Field::MaybeI32s(None),
            FieldKind::MaybeI8s => Field::MaybeI8s(None),
            FieldKind::MaybeF32 => Field::MaybeF32(None),
            FieldKind::MaybeStr => Field::MaybeStr(None),
            FieldKind::MaybeStrs => Field::MaybeStrs(None),
            FieldKind::MaybeDType => Field::MaybeDType(None),
            FieldKind::MaybeDTypes => Field::MaybeDTypes(None),
            FieldKind::I32 => match spec.default {
                Some(DefaultValue::I32(value)) => Field::I32(value),
                _ => Field::I32(0),
            },
            FieldKind::U64 => match spec.default {
                Some(DefaultValue::U64(value)) => Field::U64(value),
                _ => Field::U64(0),
            },
            FieldKind::F32 => match spec.default {
                Some(DefaultValue::F32(value)) => Field::F32(value),
                _ => Field::F32(0.0),
            },
            FieldKind::Bool => match spec.default {
                Some(DefaultValue::Bool(value)) => Field::Bool(value),
                _ => Field::Bool(false),
            },
            // Code 0 is u8; a node that leaves its dtype out says so.
            FieldKind::DType => Field::DType(DType::U8),
            _ => return None,
        })
    }
}
