//! The op catalogue: one entry says what an op is. Everything else that treats all ops alike is derived from
//! it; what gives an op its meaning is one kernel per backend.
//!
//! An entry reads: documentation, name, text name, union tag, `{ fields }`, `-> result @ wire slot`, type rule.
//! Fields are in wire order; the result's slot is skipped when fields are numbered. In the rule, `t` is the
//! [`Typing`] and every field is in scope by reference.
//!
//! Internal ops stand behind those of the payload. They have no tag and no slot, and instead of a rule `=>` and the
//! plain ops that they stand for, which also say what their results are; there `e` is the [`Expansion`].

use super::field::{FieldOf, kind};
use super::{
    DefaultValue, Field, FieldKind, FieldMut, FieldRef, FieldSpec, NO_SLOT, OpSpec, ResultKind, ResultSpec,
    World,
};
use crate::expand::{Expansion, QuantizedList};
use crate::graph::{Ssa, Type};
use crate::rules::{RuleError, Typing};

macro_rules! catalogue {
    ($(
        #[doc = $doc:literal]
        $Name:ident $text:literal $(= $tag:literal)?
        { $( $field:ident : $Kind:ident $(= $default:literal)? ),* $(,)? }
        -> $out:ident : $ResultKind:ident $(@ $slot:literal)?
        $(| $t:ident | $rule:expr)?
        $(=> | $e:ident | $expansion:expr)?;
    )*) => {
        /// An op with its operands and attributes; results are listed beside it.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // the fields' meaning is the entry's documentation
        #[allow(clippy::large_enum_variant)] // only `MetalKernel` is large, and entries stay plain lists of fields
        pub enum Op<W: World> {
            $( #[doc = $doc] $Name { $( $field: <kind::$Kind as FieldOf<W>>::Type ),* } ),*
        }

        /// Which op, without operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OpKind { $( #[doc = $doc] $Name ),* }

        impl OpKind {
            /// Every entry: those of the payload in the order of their tags, then internal ones.
            pub(super) const KINDS: &'static [OpKind] = &[ $( OpKind::$Name ),* ];

            /// The catalogue entry.
            pub fn spec(self) -> &'static OpSpec {
                const SPECS: &[OpSpec] = &[ $( OpSpec {
                    name: stringify!($Name),
                    text: $text,
                    tag: catalogue!(@tag $($tag)?),
                    doc: $doc,
                    fields: &[ $( FieldSpec {
                        name: stringify!($field),
                        kind: FieldKind::$Kind,
                        default: catalogue!(@default $Kind $($default)?),
                    } ),* ],
                    result: ResultSpec { name: stringify!($out), kind: ResultKind::$ResultKind, slot: catalogue!(@slot $($slot)?) },
                } ),* ];
                &SPECS[self as usize]
            }
        }

        impl<W: World> Op<W> {
            /// Which op this is.
            pub fn kind(&self) -> OpKind {
                match self { $( Op::$Name { .. } => OpKind::$Name ),* }
            }

            /// Visits every field in declaration order.
            #[allow(unused_mut, unused_variables)] // an op without fields
            pub fn for_each_field<'a>(&'a self, mut visit: impl FnMut(&'static FieldSpec, FieldRef<'a, W>)) {
                let mut specs = self.kind().spec().fields.iter();
                match self { $(
                    Op::$Name { $( $field ),* } => {
                        $( if let Some(spec) = specs.next() { visit(spec, FieldRef::$Kind($field)); } )*
                    }
                )* }
            }

            /// Visits every field in declaration order, for changing.
            #[allow(unused_mut, unused_variables)] // an op without fields
            pub fn for_each_field_mut(&mut self, mut visit: impl FnMut(&'static FieldSpec, FieldMut<'_, W>)) {
                let mut specs = self.kind().spec().fields.iter();
                match self { $(
                    Op::$Name { $( $field ),* } => {
                        $( if let Some(spec) = specs.next() { visit(spec, FieldMut::$Kind($field)); } )*
                    }
                )* }
            }

            /// The op of that kind with those fields, which must be all of them, in order and of the right
            /// kinds; the first field that is not is returned as the error.
            #[allow(unused_mut, unused_variables)] // an op without fields
            pub fn from_fields(kind: OpKind, fields: Vec<Field<W>>) -> Result<Op<W>, &'static str> {
                let mut fields = fields.into_iter();
                match kind { $(
                    OpKind::$Name => {
                        $( let Some(Field::$Kind($field)) = fields.next() else { return Err(stringify!($field)) }; )*
                        Ok(Op::$Name { $( $field ),* })
                    }
                )* }
            }
        }

        /// The types of an op's results, by its entry's rule.
        #[allow(unused_variables)] // attributes that do not bear on types
        pub(crate) fn apply_rule(op: &Op<Ssa>, typing: &mut Typing<'_>) -> Result<Vec<Type>, RuleError> {
            match op { $(
                Op::$Name { $( $field ),* } => catalogue!(@rule op typing $(| $t | $rule)?),
            )* }
        }

        /// Appends the plain ops that an internal op stands for; nothing for the others.
        #[allow(unused_variables)] // fields of ops that stand for themselves
        pub(crate) fn expand_into(op: &Op<Ssa>, expansion: &mut Expansion) -> Result<(), RuleError> {
            match op { $(
                Op::$Name { $( $field ),* } => catalogue!(@expand expansion $(| $e | $expansion)?),
            )* }
        }
    };
    (@tag) => { None };
    (@tag $tag:literal) => { Some($tag) };
    (@slot) => { NO_SLOT };
    (@slot $slot:literal) => { $slot };
    (@rule $op:ident $typing:ident | $t:ident | $rule:expr) => {{ let $t = $typing; $rule }};
    (@rule $op:ident $typing:ident) => { $typing.expanded($op) };
    (@expand $into:ident | $e:ident | $expansion:expr) => {{ let $e = $into; $expansion }};
    (@expand $into:ident) => { Ok(()) };
    (@default $Kind:ident) => { None };
    (@default $Kind:ident $default:literal) => { Some(DefaultValue::$Kind($default)) };
}

catalogue! {
    #[doc = "Does nothing."]
    Noop "noop" = 1 {} -> nothing: Nothing @ 255 |t| t.nothing();
    #[doc = "The same tensor under another name."]
    IdCopy "id_copy" = 2 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "`alpha * (mat1 @ mat2) + beta * bias`; without a bias, `mat1 @ mat2`."]
    Addmm "addmm" = 3 { mat1: Tensor, mat2: Tensor, bias: MaybeTensor, alpha: F32 = 1.0, beta: F32 = 1.0 }
        -> out: Tensor @ 2 |t| t.addmm(*mat1, *mat2, *bias);
    #[doc = "The one element of a tensor as an integer."]
    ItemInt "item_int" = 4 { x: Tensor } -> out: Scalar @ 1 |t| t.item_int(*x);
    #[doc = "Inserts an axis of size 1; the axis counts in the result."]
    ExpandDims "expand_dims" = 5 { x: Tensor, axis: I32 } -> out: Tensor @ 1 |t| t.expand_dims(*x, *axis);
    #[doc = "Repeats the whole tensor along each axis; missing leading repeats are 1."]
    Tile "tile" = 6 { x: Tensor, reps: Ints } -> out: Tensor @ 1 |t| t.tile(*x, reps);
    #[doc = "Picks elements along one axis by an index tensor of the same rank."]
    TakeAlongAxis "take_along_axis" = 7 { x: Tensor, indices: Tensor, axis: I32 }
        -> out: Tensor @ 2 |t| t.take_along_axis(*x, *indices, *axis);
    #[doc = "Picks slices along one axis by an integer, which removes the axis, or by a tensor."]
    Take "take" = 8 { x: Tensor, index: Index, axis: I32 } -> out: Tensor @ 1 |t| t.take(*x, index, *axis);
    #[doc = "Divides by the root of the mean square over the last axis, times the weight."]
    RMSNorm "rms_norm" = 9 { x: Tensor, weight: MaybeTensor, eps: F32 }
        -> out: Tensor @ 2 |t| t.rms_norm(*x, *weight);
    #[doc = "Normalises the last axis to mean 0 and variance 1, then scales and shifts."]
    LayerNorm "layer_norm" = 10 { x: Tensor, weight: MaybeTensor, bias: MaybeTensor, eps: F32 }
        -> out: Tensor @ 1 |t| t.layer_norm(*x, *weight, *bias);
    #[doc = "Rotary position embedding of the first `dims` features; `freqs` are periods."]
    Rope "rope" = 11 {
        x: Tensor, dims: I32, offset: Offset, freqs: MaybeTensor,
        traditional: Bool = false, base: F32 = 500000.0, scale: F32 = 1.0,
    } -> out: Tensor @ 1 |t| t.rope(*x, *dims, offset, *freqs);
    #[doc = "Scaled dot-product attention with grouped heads, a mask or a lower-right causal one."]
    Sdpa "sdpa" = 12 { q: Tensor, k: Tensor, v: Tensor, scale: F32, mask: MaybeTensor, causal: Bool = false }
        -> out: Tensor @ 3 |t| t.sdpa(*q, *k, *v, *mask, *causal);
    #[doc = "Sum."]
    Add "add" = 13 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "Sum of integers; overflow of 32 bits is an error."]
    AddInt "add_int" = 14 { a: Int, b: Int } -> out: Scalar @ 2 |t| t.add_int(a, b);
    #[doc = "Difference of integers; overflow of 32 bits is an error."]
    SubtractInt "subtract_int" = 15 { a: Int, b: Int } -> out: Scalar @ 2 |t| t.subtract_int(a, b);
    #[doc = "Product of integers; overflow of 32 bits is an error."]
    MultiplyInt "multiply_int" = 16 { a: Int, b: Int } -> out: Scalar @ 2 |t| t.multiply_int(a, b);
    #[doc = "Quotient of integers, rounded down."]
    FloorDivideInt "floor_divide_int" = 17 { a: Int, b: Int } -> out: Scalar @ 2 |t| t.floor_divide_int(a, b);
    #[doc = "The size of one axis."]
    SymSize "sym_size" = 18 { a: Tensor, dim: I32 } -> out: Scalar @ 2 |t| t.sym_size(*a, *dim);
    #[doc = "Product."]
    Multiply "multiply" = 19 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "True quotient; integers give f32."]
    Divide "divide" = 20 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.float_binary(*a, *b);
    #[doc = "Difference."]
    Subtract "subtract" = 21 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "Convolution over one axis, channels last."]
    Conv1D "conv1d" = 22 {
        x: Tensor, w: Tensor, stride: I32 = 1, padding: I32 = 0, dilation: I32 = 1, groups: I32 = 1,
    } -> out: Tensor @ 2 |t| t.conv(*x, *w, &[*stride], &[*padding], &[*dilation], *groups);
    #[doc = "Convolution over two axes, channels last."]
    Conv2D "conv2d" = 23 {
        x: Tensor, w: Tensor, stride_h: I32 = 1, stride_w: I32 = 1, padding_h: I32 = 0, padding_w: I32 = 0,
        dilation_h: I32 = 1, dilation_w: I32 = 1, groups: I32 = 1,
    } -> out: Tensor @ 2 |t| t.conv(
        *x, *w, &[*stride_h, *stride_w], &[*padding_h, *padding_w], &[*dilation_h, *dilation_w], *groups
    );
    #[doc = "Convolution over three axes, channels last."]
    Conv3D "conv3d" = 24 {
        x: Tensor, w: Tensor, stride_d: I32 = 1, stride_h: I32 = 1, stride_w: I32 = 1, padding_d: I32 = 0,
        padding_h: I32 = 0, padding_w: I32 = 0, dilation_d: I32 = 1, dilation_h: I32 = 1, dilation_w: I32 = 1,
        groups: I32 = 1,
    } -> out: Tensor @ 2 |t| t.conv(
        *x, *w, &[*stride_d, *stride_h, *stride_w], &[*padding_d, *padding_h, *padding_w],
        &[*dilation_d, *dilation_h, *dilation_w], *groups
    );
    #[doc = "Gaussian error linear unit: `tanh` means the tanh form, anything else the exact one."]
    Gelu "gelu" = 25 { x: Tensor, approximate: Str } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Integers from start to stop by step; without a dtype, i32."]
    ARange "arange" = 26 { start: Int, stop: Int, step: Int, scalar_type: MaybeDType }
        -> out: Tensor @ 0 |t| t.arange(start, stop, step, *scalar_type);
    #[doc = "`x * sigmoid(x)`."]
    Silu "silu" = 27 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Logistic function."]
    Sigmoid "sigmoid" = 28 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Hyperbolic tangent."]
    Tanh "tanh" = 29 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Removes the listed axes that have size 1; without a list, all of them."]
    Squeeze "squeeze" = 30 { x: Tensor, dims: MaybeI32s } -> out: Tensor @ 1 |t| t.squeeze(*x, dims.as_deref());
    #[doc = "Cuts along one axis: one size is the length of every piece, several are the lengths."]
    Split "split" = 31 { x: Tensor, sizes: Ints, axis: I32 } -> outs: Tensors @ 1 |t| t.split(*x, sizes, *axis);
    #[doc = "`1 / sqrt(x)`."]
    Rsqrt "rsqrt" = 32 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "The larger of two; NaN wins."]
    Maximum "maximum" = 33 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "The smaller of two; NaN wins."]
    Minimum "minimum" = 34 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "Natural logarithm."]
    Log "log" = 35 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Exponentials along one axis, scaled to sum to 1."]
    Softmax "softmax" = 36 { x: Tensor, axis: I32, precise: Bool = false }
        -> out: Tensor @ 1 |t| t.softmax(*x, *axis);
    #[doc = "Repeats axes of size 1 to a shape; -1 keeps the size."]
    BroadcastTo "broadcast_to" = 37 { x: Tensor, shape: Ints } -> out: Tensor @ 1 |t| t.broadcast_to(*x, shape);
    #[doc = "Adds elements before and after each axis: a constant, or the edge repeated."]
    Pad "pad" = 38 { x: Tensor, pad_width: Ints, mode: Str, constant_value: F32 = 0.0 }
        -> out: Tensor @ 1 |t| t.pad(*x, pad_width, mode);
    #[doc = "`x` where the condition is not zero, else `y`."]
    Where "where" = 39 { condition: Tensor, x: Tensor, y: Tensor }
        -> out: Tensor @ 3 |t| t.choose(*condition, *x, *y);
    #[doc = "The same elements under another shape; one size may be -1."]
    Reshape "reshape" = 40 { x: Tensor, shape: Ints } -> out: Tensor @ 1 |t| t.reshape(*x, shape);
    #[doc = "Permutes the axes."]
    Transpose "transpose" = 41 { x: Tensor, perm: I32s } -> out: Tensor @ 1 |t| t.transpose(*x, perm);
    #[doc = "Reads the row-major elements through strides."]
    AsStrided "as_strided" = 42 { x: Tensor, shape: Ints, strides: Ints, offset: U64 = 0 }
        -> out: Tensor @ 1 |t| t.as_strided(*x, shape, strides);
    #[doc = "The same tensor, row-major in memory."]
    Contiguous "contiguous" = 43 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "Slices of fixed size that begin at index tensors on some axes and at 0 on the others."]
    Gather "gather" = 44 { x: Tensor, indices: Tensors, axes: I32s, slice_sizes: I32s }
        -> out: Tensor @ 2 |t| t.gather(*x, indices, axes, slice_sizes);
    #[doc = "Every step-th element of a range of one axis, by Python's rules."]
    Slice "slice" = 45 { x: Tensor, axis: Int, start: Int, stop: Int, step: I32 = 1 }
        -> out: Tensor @ 1 |t| t.slice(*x, axis, start, stop, *step);
    #[doc = "Converts the elements."]
    AsType "as_type" = 46 { x: Tensor, scalar_type: DType } -> out: Tensor @ 1 |t| t.as_type(*x, *scalar_type);
    #[doc = "Joins tensors along one axis."]
    Concatenate "concatenate" = 47 { tensors: Tensors, axis: I32 }
        -> out: Tensor @ 1 |t| t.concatenate(tensors, *axis);
    #[doc = "One value everywhere."]
    Full "full" = 48 { shape: Ints, v: Float, scalar_type: DType } -> out: Tensor @ 0 |t| t.full(shape, *scalar_type);
    #[doc = "One value everywhere, in the shape of another tensor."]
    FullLike "full_like" = 49 { x: Tensor, v: Float, scalar_type: MaybeDType }
        -> out: Tensor @ 1 |t| t.full_like(*x, *scalar_type);
    #[doc = "Index of the largest element; the first of several."]
    Argmax "argmax" = 50 { x: Tensor, axis: I32, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.arg_reduce(*x, *axis, *keepdims);
    #[doc = "A copy of `dst` with a range of one axis replaced."]
    SliceUpdate "slice_update" = 51 { dst: Tensor, update: Tensor, axis: Int, start: Int, stop: Int, step: I32 = 1 }
        -> out: Tensor @ 2 |t| t.slice_update(*dst, *update, axis, start, stop, *step);
    #[doc = "A copy of `dst` with the rows at 1-D indices replaced; of equal ones the last wins."]
    IndexCopy "index_copy" = 52 { dst: Tensor, update: Tensor, indices: Tensor, axis: I32 }
        -> out: Tensor @ 3 |t| t.index_copy(*dst, *update, *indices, *axis);
    #[doc = "The numbers that quantised weights stand for."]
    Dequantize "dequantize" = 53 {
        w: Tensor, scales: Tensor, biases: MaybeTensor, group_size: I32, bits: I32, mode: Str,
        global_scale: MaybeTensor, dtype: MaybeDType,
    } -> out: Tensor @ 2 |t| t.dequantize(*w, *scales, *biases, *group_size, *bits, mode, *global_scale, *dtype);
    #[doc = "Whether `a < b`."]
    Less "less" = 54 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "Whether `a <= b`."]
    LessEqual "less_equal" = 55 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "Whether `a > b`."]
    Greater "greater" = 56 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "Whether `a >= b`."]
    GreaterEqual "greater_equal" = 57 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "Whether `a == b`."]
    Equal "equal" = 58 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "Whether `a != b`."]
    NotEqual "not_equal" = 59 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "Whether the element is zero."]
    LogicalNot "logical_not" = 60 { x: Tensor } -> out: Tensor @ 1 |t| t.logical_not(*x);
    #[doc = "Whether both are not zero."]
    LogicalAnd "logical_and" = 61 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "Whether one is not zero."]
    LogicalOr "logical_or" = 62 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.compare(*a, *b);
    #[doc = "An n by m matrix of ones at and below the k-th diagonal."]
    Tri "tri" = 63 { n: Int, m: Int, k: I32 = 0, scalar_type: DType } -> out: Tensor @ 0 |t| t.tri(n, m, *scalar_type);
    #[doc = "Zero above the k-th diagonal of the last two axes."]
    Tril "tril" = 64 { x: Tensor, k: I32 = 0 } -> out: Tensor @ 1 |t| t.triangle(*x);
    #[doc = "Zero below the k-th diagonal of the last two axes."]
    Triu "triu" = 65 { x: Tensor, k: I32 = 0 } -> out: Tensor @ 1 |t| t.triangle(*x);
    #[doc = "Rounds down; integers stay."]
    Floor "floor" = 66 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "Rounds up; integers stay."]
    Ceil "ceil" = 67 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "`x * x`."]
    Square "square" = 68 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "Exponential."]
    Exp "exp" = 69 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Sine."]
    Sin "sin" = 70 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Cosine."]
    Cos "cos" = 71 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Tangent."]
    Tan "tan" = 72 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Inverse sine."]
    Arcsin "arcsin" = 73 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Inverse cosine."]
    Arccos "arccos" = 74 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Inverse tangent."]
    Arctan "arctan" = 75 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Hyperbolic sine."]
    Sinh "sinh" = 76 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Hyperbolic cosine."]
    Cosh "cosh" = 77 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Inverse hyperbolic sine."]
    Arcsinh "arcsinh" = 78 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Inverse hyperbolic cosine."]
    Arccosh "arccosh" = 79 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Inverse hyperbolic tangent."]
    Arctanh "arctanh" = 80 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Logarithm to base 2."]
    Log2 "log2" = 81 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Logarithm to base 10."]
    Log10 "log10" = 82 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "`log(1 + x)`, exact near zero."]
    Log1p "log1p" = 83 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Gauss error function."]
    Erf "erf" = 84 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "`exp(x) - 1`, exact near zero."]
    Expm1 "expm1" = 85 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Rounds to a number of decimals, halves to even."]
    Round "round" = 86 { x: Tensor, decimals: I32 = 0 } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "`1 / x`."]
    Reciprocal "reciprocal" = 87 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Square root."]
    Sqrt "sqrt" = 88 { x: Tensor } -> out: Tensor @ 1 |t| t.float_unary(*x);
    #[doc = "Absolute value."]
    Abs "abs" = 89 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "Negative; not of bools."]
    Neg "neg" = 90 { x: Tensor } -> out: Tensor @ 1 |t| t.negative(*x);
    #[doc = "Angle of the point (b, a)."]
    Atan2 "atan2" = 91 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.float_binary(*a, *b);
    #[doc = "`log(exp(a) + exp(b))`."]
    LogAddExp "log_add_exp" = 92 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.float_binary(*a, *b);
    #[doc = "Quotient rounded down."]
    FloorDivide "floor_divide" = 93 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "Power; integers wrap, and a negative exponent of an integer gives 0."]
    Power "power" = 94 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "Logarithm of the sum of exponentials."]
    LogSumExp "log_sum_exp" = 95 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_to_float(*x, axes.as_deref(), *keepdims);
    #[doc = "Sum of elements; small integers widen to 32 bits."]
    Sum "sum" = 96 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_widening(*x, axes.as_deref(), *keepdims);
    #[doc = "Mean of elements."]
    Mean "mean" = 97 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_to_float(*x, axes.as_deref(), *keepdims);
    #[doc = "Variance, divided by the count less `ddof`."]
    Var "var" = 98 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false, ddof: I32 = 0 }
        -> out: Tensor @ 1 |t| t.reduce_to_float(*x, axes.as_deref(), *keepdims);
    #[doc = "Standard deviation: the root of the variance."]
    Std "std" = 99 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false, ddof: I32 = 0 }
        -> out: Tensor @ 1 |t| t.reduce_to_float(*x, axes.as_deref(), *keepdims);
    #[doc = "Product of elements; small integers widen to 32 bits."]
    Prod "prod" = 100 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_widening(*x, axes.as_deref(), *keepdims);
    #[doc = "Largest element; NaN wins."]
    Max "max" = 101 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_nonempty(*x, axes.as_deref(), *keepdims);
    #[doc = "Smallest element; NaN wins."]
    Min "min" = 102 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_nonempty(*x, axes.as_deref(), *keepdims);
    #[doc = "Index of the smallest element; the first of several."]
    Argmin "argmin" = 103 { x: Tensor, axis: I32, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.arg_reduce(*x, *axis, *keepdims);
    #[doc = "Median; of an even count, the mean of the middle two."]
    Median "median" = 104 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.median(*x, axes.as_deref(), *keepdims);
    #[doc = "Remainder of integers with the divisor's sign."]
    ModInt "mod_int" = 105 { a: Int, b: Int } -> out: Scalar @ 2 |t| t.mod_int(a, b);
    #[doc = "Remainder with the divisor's sign."]
    Remainder "remainder" = 106 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.arithmetic(*a, *b);
    #[doc = "Transposed convolution over one axis, channels last."]
    ConvTranspose1D "conv_transpose1d" = 107 {
        x: Tensor, w: Tensor, stride: I32 = 1, padding: I32 = 0, dilation: I32 = 1, output_padding: I32 = 0,
        groups: I32 = 1,
    } -> out: Tensor @ 2 |t| t.conv_transpose(
        *x, *w, &[*stride], &[*padding], &[*dilation], &[*output_padding], *groups
    );
    #[doc = "Transposed convolution over two axes, channels last."]
    ConvTranspose2D "conv_transpose2d" = 108 {
        x: Tensor, w: Tensor, stride_h: I32 = 1, stride_w: I32 = 1, padding_h: I32 = 0, padding_w: I32 = 0,
        dilation_h: I32 = 1, dilation_w: I32 = 1, output_padding_h: I32 = 0, output_padding_w: I32 = 0,
        groups: I32 = 1,
    } -> out: Tensor @ 2 |t| t.conv_transpose(
        *x, *w, &[*stride_h, *stride_w], &[*padding_h, *padding_w], &[*dilation_h, *dilation_w],
        &[*output_padding_h, *output_padding_w], *groups
    );
    #[doc = "Transposed convolution over three axes, channels last."]
    ConvTranspose3D "conv_transpose3d" = 109 {
        x: Tensor, w: Tensor, stride_d: I32 = 1, stride_h: I32 = 1, stride_w: I32 = 1, padding_d: I32 = 0,
        padding_h: I32 = 0, padding_w: I32 = 0, dilation_d: I32 = 1, dilation_h: I32 = 1, dilation_w: I32 = 1,
        output_padding_d: I32 = 0, output_padding_h: I32 = 0, output_padding_w: I32 = 0, groups: I32 = 1,
    } -> out: Tensor @ 2 |t| t.conv_transpose(
        *x, *w, &[*stride_d, *stride_h, *stride_w], &[*padding_d, *padding_h, *padding_w],
        &[*dilation_d, *dilation_h, *dilation_w], &[*output_padding_d, *output_padding_h, *output_padding_w], *groups
    );
    #[doc = "Limits to a range; where the bounds cross, the upper one wins."]
    Clip "clip" = 110 { x: Tensor, a_min: MaybeTensor, a_max: MaybeTensor }
        -> out: Tensor @ 1 |t| t.clip(*x, *a_min, *a_max);
    #[doc = "Running sum along one axis."]
    Cumsum "cumsum" = 111 { x: Tensor, axis: I32, reverse: Bool = false, inclusive: Bool = true }
        -> out: Tensor @ 1 |t| t.cumsum(*x, *axis);
    #[doc = "Joins tensors along a new axis, which counts in the result."]
    Stack "stack" = 112 { tensors: Tensors, axis: I32 = 0 } -> out: Tensor @ 1 |t| t.stack(tensors, *axis);
    #[doc = "-1, 0 or 1; of NaN, 0."]
    Sign "sign" = 113 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "Whether an element is not zero."]
    Any "any" = 114 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_to_bool(*x, axes.as_deref(), *keepdims);
    #[doc = "Whether no element is zero."]
    All "all" = 115 { x: Tensor, axes: MaybeI32s, keepdims: Bool = false }
        -> out: Tensor @ 1 |t| t.reduce_to_bool(*x, axes.as_deref(), *keepdims);
    #[doc = "Each element several times along one axis."]
    Repeat "repeat" = 116 { x: Tensor, repeats: Int, axis: I32 } -> out: Tensor @ 1 |t| t.repeat(*x, repeats, *axis);
    #[doc = "Ascending order along one axis, NaN last."]
    Sort "sort" = 117 { x: Tensor, axis: I32 } -> out: Tensor @ 1 |t| t.along_axis(*x, *axis);
    #[doc = "Indices that sort, stable."]
    Argsort "argsort" = 118 { x: Tensor, axis: I32 } -> out: Tensor @ 1 |t| t.indices_along_axis(*x, *axis);
    #[doc = "The k-th smallest in its place, smaller ones before, larger ones after."]
    Partition "partition" = 119 { x: Tensor, kth: Int, axis: I32 } -> out: Tensor @ 1 |t| t.partition(*x, kth, *axis);
    #[doc = "Indices that partition."]
    ArgPartition "arg_partition" = 120 { x: Tensor, kth: Int, axis: I32 }
        -> out: Tensor @ 1 |t| t.arg_partition(*x, kth, *axis);
    #[doc = "Product with quantised weights, summed in f32."]
    QuantizedMatmul "quantized_matmul" = 121 {
        x: Tensor, w: Tensor, scales: Tensor, biases: MaybeTensor, group_size: I32, bits: I32, mode: Str,
        transpose: Bool = true,
    } -> out: Tensor @ 3 |t| t.quantized_matmul(*x, *w, *scales, *biases, *group_size, *bits, mode, *transpose);
    #[doc = "A copy of `x` with updates added at indices along one axis; equal ones add up."]
    ScatterAdd "scatter_add" = 122 { x: Tensor, indices: Tensor, updates: Tensor, axis: I32 }
        -> out: Tensor @ 3 |t| t.scatter_add(*x, *indices, *updates, *axis);
    #[doc = "Products of matrices picked by indices: mixture of experts."]
    GatherMm "gather_mm" = 123 {
        a: Tensor, b: Tensor, lhs_indices: MaybeTensor, rhs_indices: MaybeTensor, sorted_indices: Bool = false,
        sorted_indices_flag: MaybeInt,
    } -> out: Tensor @ 2 |t| t.gather_mm(*a, *b, *lhs_indices, *rhs_indices);
    #[doc = "Products with quantised matrices picked by indices."]
    GatherQmm "gather_qmm" = 124 {
        x: Tensor, w: Tensor, scales: Tensor, mode: Str, biases: MaybeTensor, lhs_indices: MaybeTensor,
        rhs_indices: MaybeTensor, transpose: Bool = true, group_size: I32, bits: I32, sorted_indices: Bool = false,
        sorted_indices_flag: MaybeInt,
    } -> out: Tensor @ 3 |t| t.gather_qmm(
        *x, *w, *scales, *biases, *lhs_indices, *rhs_indices, *group_size, *bits, mode, *transpose
    );
    #[doc = "Runs a body for each slice along an axis; stacks what it gives, then the carried values."]
    Scan "scan" = 125 {
        originals: Tensors, sliced: LoopSlots, carry: Tensors, body_chain_idx: Body, scan_axis: I32 = 1,
    } -> outputs: Tensors @ 2 |t| t.scan(originals, carry, body_chain_idx, *scan_axis);
    #[doc = "A kernel known by name; its source is never run."]
    MetalKernel "metal_kernel" = 126 {
        name: Str, source: Str, inputs: Tensors, grid: Ints, threadgroup: Ints, header: MaybeStr,
        input_names: MaybeStrs, output_names: MaybeStrs, ensure_row_contiguous: Bool = true,
        atomic_outputs: Bool = false, output_shapes_flat: MaybeInts, output_shape_lengths: MaybeI32s,
        output_dtypes: MaybeDTypes, template_arg_names: MaybeStrs, template_arg_kinds: MaybeI8s,
        template_arg_values: MaybeI32s, init_value: MaybeF32,
    } -> outputs: Tensors @ 3 |t| t.metal_kernel(
        inputs, output_shapes_flat.as_deref(), output_shape_lengths.as_deref(), output_dtypes.as_deref()
    );
    #[doc = "All bits turned; of bools, not."]
    BitwiseInvert "bitwise_invert" = 127 { x: Tensor } -> out: Tensor @ 1 |t| t.bitwise_invert(*x);
    #[doc = "Shifts axes in a circle."]
    Roll "roll" = 128 { x: Tensor, shift: Ints, axes: I32s } -> out: Tensor @ 1 |t| t.roll(*x, shift, axes);
    #[doc = "Bits that both have."]
    BitwiseAnd "bitwise_and" = 129 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.bitwise(*a, *b);
    #[doc = "Bits that one has."]
    BitwiseOr "bitwise_or" = 130 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.bitwise(*a, *b);
    #[doc = "Bits that only one has."]
    BitwiseXor "bitwise_xor" = 131 { a: Tensor, b: Tensor } -> out: Tensor @ 2 |t| t.bitwise(*a, *b);
    #[doc = "Runs one of two bodies; both yield values of the same types."]
    If "if" = 132 { cond: Int, then_chain_idx: Body, else_chain_idx: Body }
        -> branches: Yielded @ 255 |t| t.branch(cond, then_chain_idx, else_chain_idx);
    #[doc = "Random bits of 1, 2 or 4 bytes by MLX's keys; without a seed, of the session's generator."]
    RandomBits "random_bits" = 133 { shape: Ints, seed: MaybeScalar, width: I32 = 4 }
        -> out: Tensor @ 0 |t| t.random_bits(shape, *seed, *width);
    #[doc = "Writes keys and values into the off-graph cache and attends over it: each token sees up to itself, or all up to the last of two positions in a column."]
    UpdateAndAttend "update_and_attend" = 134 {
        q: Tensor, k: Tensor, v: Tensor, position: Tensor, layer_id: MaybeI32, scale: MaybeF32, out_dtype: MaybeDType,
    } -> out: Tensor @ 4 |t| t.update_and_attend(*q, *k, *v, *position, *layer_id, *scale, *out_dtype);
    #[doc = "Rounds toward zero; integers stay."]
    Trunc "trunc" = 135 { x: Tensor } -> out: Tensor @ 1 |t| t.same(*x);
    #[doc = "Reverses the listed axes."]
    Flip "flip" = 136 { x: Tensor, axes: I32s } -> out: Tensor @ 1 |t| t.flip(*x, axes);

    #[doc = "`a + b`, then its `rms_norm`: what a layer passes on and what the next one reads."]
    AddRmsNorm "add_rms_norm" { a: Tensor, b: Tensor, weight: MaybeTensor, eps: F32 }
        -> outs: Tensors => |e| e.add_rms_norm(*a, *b, *weight, *eps);
    #[doc = "Products of one tensor with several quantised weights, all transposed."]
    Projections "projections" {
        x: Tensor, w: Tensors, scales: Tensors, biases: Tensors, group_size: I32, bits: I32, mode: Str,
    } -> outs: Tensors => |e| e.projections(*x, &QuantizedList { w, scales, biases, group_size, bits, mode });
    #[doc = "An activation of the product with the first of two quantised weights, times that with the second."]
    GatedProjection "gated_projection" {
        x: Tensor, w: Tensors, scales: Tensors, biases: Tensors, group_size: I32, bits: I32, mode: Str,
        activation: Str,
    } -> out: Tensor
        => |e| e.gated_projection(*x, &QuantizedList { w, scales, biases, group_size, bits, mode }, activation);
    #[doc = "A copy of `dst` with a range of one axis replaced by what `rope` makes of `x`."]
    RopeUpdate "rope_update" {
        x: Tensor, dims: I32, offset: Offset, freqs: MaybeTensor,
        traditional: Bool = false, base: F32 = 500000.0, scale: F32 = 1.0,
        dst: Tensor, axis: Int, start: Int, stop: Int, step: I32 = 1,
    } -> out: Tensor => |e| {
        let turned = e.op(Op::Rope {
            x: *x, dims: *dims, offset: *offset, freqs: *freqs, traditional: *traditional, base: *base, scale: *scale,
        });
        e.give(Op::SliceUpdate { dst: *dst, update: turned, axis: *axis, start: *start, stop: *stop, step: *step });
        Ok(())
    };
    #[doc = "Rows of a quantised matrix as numbers: an embedding (gather) of packed weights."]
    PackedEmbedding "packed_embedding" {
        w: Tensor, scales: Tensor, biases: MaybeTensor, indices: Tensor, group_size: I32, bits: I32, mode: Str,
        dtype: MaybeDType,
    } -> out: Tensor => |e| {
        let mut rows = |x| e.op(Op::Take { x, index: super::IndexArg::Tensor(*indices), axis: 0 });
        let (w, scales, biases) = (rows(*w), rows(*scales), biases.map(rows));
        e.give(Op::Dequantize {
            w, scales, biases, group_size: *group_size, bits: *bits, mode: mode.clone(), global_scale: None, dtype: *dtype,
        });
        Ok(())
    };
}
