//! The nodes of an XNNPACK payload: 47 kinds, each of one of a few tables.
//!
//! One list gives the kinds with their tags; reading, writing and names are loops over it. What a node reads and writes is
//! said once for each table.

use super::tables::{NO_ID, OutputMinMax};
use crate::flatbuffer::{Builder, Offset, Table, TableFields};
use crate::mirror::{Field, List, Mirror, Source, empty_union, mirror_table, write_union};
use crate::{FormatError, Limits, Result};

mirror_table! {
    /// One value in, one out.
    pub struct Unary {
        /// What is read.
        0 input_id: u32,
        /// What is written.
        1 output_id: u32,
        /// Bits by node kind.
        2 flags: u32,
    }

    /// Two values in, one out.
    pub struct Binary {
        /// Read first.
        0 input1_id: u32,
        /// Read second.
        1 input2_id: u32,
        /// What is written.
        2 output_id: u32,
        /// Bits by node kind.
        3 flags: u32,
    }

    /// A product with weights.
    pub struct FullyConnected {
        /// The rows.
        0 input1_id: u32,
        /// The weights.
        1 filter_id: u32,
        /// What is added, or [`NO_ID`].
        2 bias_id: u32,
        /// What is written.
        3 output_id: u32,
        /// 1: weights are [inputs, outputs].
        4 flags: u32,
    }

    /// Permuted axes.
    pub struct StaticTranspose {
        /// Rank.
        0 num_dims: u32,
        /// Where each axis of the result comes from.
        1 perm: List<u32>,
        /// What is read.
        2 input_id: u32,
        /// What is written.
        3 output_id: u32,
        /// None are known.
        4 flags: u32,
    }

    /// A convolution of any of three kinds, channels last.
    pub struct Convolution {
        /// Zeros above.
        0 padding_top: u32,
        /// Zeros at the right.
        1 padding_right: u32,
        /// Zeros below.
        2 padding_bottom: u32,
        /// Zeros at the left.
        3 padding_left: u32,
        /// Rows of the kernel.
        4 kernel_height: u32,
        /// Columns of the kernel.
        5 kernel_width: u32,
        /// Stride over rows.
        6 subsampling_height: u32,
        /// Stride over columns.
        7 subsampling_width: u32,
        /// Dilation over rows.
        8 dilation_height: u32,
        /// Dilation over columns.
        9 dilation_width: u32,
        /// Input channels of a group.
        10 group_input_channels: u32,
        /// Output channels of a group.
        11 group_output_channels: u32,
        /// Groups.
        12 groups: u32,
        /// Rows that a transposed one adds to its result.
        13 adjustment_height: u32,
        /// Columns that a transposed one adds to its result.
        14 adjustment_width: u32,
        /// What is convolved.
        15 input1_id: u32,
        /// The kernels.
        16 filter_id: u32,
        /// What is added, or [`NO_ID`].
        17 bias_id: u32,
        /// What is written.
        18 output_id: u32,
        /// None are known.
        19 flags: u32,
    }

    /// Windows folded to one number each.
    pub struct Pooling {
        /// Padding above.
        0 padding_top: u32,
        /// Padding at the right.
        1 padding_right: u32,
        /// Padding below.
        2 padding_bottom: u32,
        /// Padding at the left.
        3 padding_left: u32,
        /// Rows of a window.
        4 pooling_height: u32,
        /// Columns of a window.
        5 pooling_width: u32,
        /// Stride over rows.
        6 stride_height: u32,
        /// Stride over columns.
        7 stride_width: u32,
        /// Dilation over rows; averages have none.
        8 dilation_height: u32,
        /// Dilation over columns; averages have none.
        9 dilation_width: u32,
        /// What is read.
        10 input_id: u32,
        /// What is written.
        11 output_id: u32,
        /// Keeping dims, which pools do anyway.
        12 flags: u32,
    }

    /// The largest of windows side by side, and where it stands.
    pub struct ArgMaxPooling {
        /// Padding above.
        0 padding_top: u32,
        /// Padding at the right.
        1 padding_right: u32,
        /// Padding below.
        2 padding_bottom: u32,
        /// Padding at the left.
        3 padding_left: u32,
        /// Rows of a window.
        4 pooling_height: u32,
        /// Columns of a window.
        5 pooling_width: u32,
        /// What is read.
        6 input_id: u32,
        /// Where the largest goes.
        7 output_value_id: u32,
        /// Where its index in the window goes.
        8 output_index_id: u32,
        /// None are known.
        9 flags: u32,
    }

    /// Another height and width, by linear interpolation.
    pub struct StaticResizeBilinear2D {
        /// Rows of the result.
        0 new_height: u32,
        /// Columns of the result.
        1 new_width: u32,
        /// What is read.
        2 input_id: u32,
        /// What is written.
        3 output_id: u32,
        /// 8: corners keep their places; 4: TensorFlow's old way.
        4 flags: u32,
    }

    /// A frame of one number.
    pub struct StaticConstantPad {
        /// Elements before each axis.
        0 pre_paddings: List<u32>,
        /// Elements behind each axis.
        1 post_paddings: List<u32>,
        /// The number.
        2 padding_value: f32,
        /// What is read.
        3 input_id: u32,
        /// What is written.
        4 output_id: u32,
        /// None are known.
        5 flags: u32,
    }

    /// The same elements under another shape.
    pub struct StaticReshape {
        /// Rank of the result.
        0 num_dims: u32,
        /// Sizes; one may be 0, which is what is left.
        1 new_shape: List<u32>,
        /// What is read.
        2 input_id: u32,
        /// What is written.
        3 output_id: u32,
        /// None are known.
        4 flags: u32,
    }

    /// A range of each axis.
    pub struct StaticSlice {
        /// Rank.
        0 num_dims: u32,
        /// Where each range begins.
        1 offsets: List<u32>,
        /// How long it is; 0 goes to the end.
        2 sizes: List<u32>,
        /// What is read.
        3 input_id: u32,
        /// What is written.
        4 output_id: u32,
        /// None are known.
        5 flags: u32,
    }

    /// Attention; the runtime of ExecuTorch does not run it.
    pub struct Attention {
        /// Queries.
        0 query_id: u32,
        /// Keys.
        1 key_id: u32,
        /// Values.
        2 value_id: u32,
        /// What queries are multiplied with.
        3 scale_id: u32,
        /// What is added to the products.
        4 mask_id: u32,
        /// What is written.
        5 output_id: u32,
        /// None are known.
        6 flags: u32,
    }

    /// Tensors joined along an axis.
    pub struct Concatenation {
        /// The axis.
        0 axis: u32,
        /// The first.
        1 input1_id: u32,
        /// The second.
        2 input2_id: u32,
        /// The third, of three or more.
        3 input3_id: u32,
        /// The fourth, of four or more.
        4 input4_id: u32,
        /// What is written.
        5 output_id: u32,
        /// None are known.
        6 flags: u32,
        /// The fifth, of five.
        7 input5_id: u32,
    }

    /// `x` above zero, `alpha * (exp(x) - 1)` below.
    pub struct Elu {
        /// The factor below zero.
        0 alpha: f32,
        /// What is read.
        1 input_id: u32,
        /// What is written.
        2 output_id: u32,
        /// None are known.
        3 flags: u32,
    }

    /// `x` above zero, a multiple of it below.
    pub struct LeakyRelu {
        /// The factor below zero.
        0 negative_slope: f32,
        /// What is read.
        1 input_id: u32,
        /// What is written.
        2 output_id: u32,
        /// None are known.
        3 flags: u32,
    }
}

/// What a node's table says of its ends.
trait Ends {
    fn inputs(&self) -> Vec<u32>;
    fn outputs(&self) -> Vec<u32>;
    fn flags(&self) -> u32;
}

macro_rules! ends {
    ($( $table:ident: $($input:ident)* -> $($output:ident)*; )*) => {$(
        impl Ends for $table {
            fn inputs(&self) -> Vec<u32> {
                vec![$( self.$input ),*]
            }

            fn outputs(&self) -> Vec<u32> {
                vec![$( self.$output ),*]
            }

            fn flags(&self) -> u32 {
                self.flags
            }
        }
    )*};
}

ends! {
    Unary: input_id -> output_id;
    Binary: input1_id input2_id -> output_id;
    FullyConnected: input1_id filter_id bias_id -> output_id;
    StaticTranspose: input_id -> output_id;
    Convolution: input1_id filter_id bias_id -> output_id;
    Pooling: input_id -> output_id;
    ArgMaxPooling: input_id -> output_value_id output_index_id;
    StaticResizeBilinear2D: input_id -> output_id;
    StaticConstantPad: input_id -> output_id;
    StaticReshape: input_id -> output_id;
    StaticSlice: input_id -> output_id;
    Attention: query_id key_id value_id scale_id mask_id -> output_id;
    Concatenation: input1_id input2_id input3_id input4_id input5_id -> output_id;
    Elu: input_id -> output_id;
    LeakyRelu: input_id -> output_id;
}

macro_rules! kinds {
    ($( $tag:literal $name:ident($table:ident), )*) => {
        /// What a node computes; names are the schema's, less `XNN`.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // each is named for what it computes, and its table says the rest
        pub enum Kind { $( $name($table), )* }

        impl Kind {
            /// The highest tag that is known.
            pub const LAST: u8 = [$( $tag ),*].len() as u8;

            fn read(source: &Source<'_>, table: &Table<'_>, tag: u8, member: &Table<'_>) -> Result<Kind> {
                match tag {
                    $( $tag => Ok(Kind::$name(known(source, member)?)), )*
                    _ => Err(FormatError::UnknownTag {
                        place: table.place("xnode_union"),
                        union_name: "XNodeUnion",
                        tag,
                        known: Kind::LAST,
                    }),
                }
            }

            fn write(&self, builder: &mut Builder) -> (u8, Offset) {
                match self { $( Kind::$name(table) => ($tag, table.write(builder)), )* }
            }

            /// The name in the schema, less `XNN`.
            pub fn name(&self) -> &'static str {
                match self { $( Kind::$name(_) => stringify!($name), )* }
            }

            fn ends(&self) -> &dyn Ends {
                match self { $( Kind::$name(table) => table, )* }
            }

            /// One of each, its table filled by `Default`.
            #[cfg(test)]
            pub(super) fn all() -> Vec<Kind> {
                vec![$( Kind::$name($table::default()), )*]
            }
        }
    };
}

kinds! {
    1 Add(Binary),
    2 FullyConnected(FullyConnected),
    3 Softmax(Unary),
    4 Sigmoid(Unary),
    5 StaticTranspose(StaticTranspose),
    6 Clamp(Unary),
    7 Conv2d(Convolution),
    8 Div(Binary),
    9 StaticResizeBilinear2D(StaticResizeBilinear2D),
    10 StaticConstantPad(StaticConstantPad),
    11 AvgPooling2d(Pooling),
    12 Minimum(Binary),
    13 DepthwiseConv2d(Convolution),
    14 MaxPooling2d(Pooling),
    15 Multiply(Binary),
    16 Subtract(Binary),
    17 Floor(Unary),
    18 Convert(Unary),
    19 GlobalAvgPooling2d(Unary),
    20 StaticReshape(StaticReshape),
    21 ArgMaxPooling2d(ArgMaxPooling),
    22 SquareRoot(Unary),
    23 Ceiling(Unary),
    24 Hardswish(Unary),
    25 LeakyReLU(LeakyRelu),
    26 Maximum(Binary),
    27 Negate(Unary),
    28 Square(Unary),
    29 ELU(Elu),
    30 Abs(Unary),
    31 PReLU(Binary),
    32 Concatenate2(Concatenation),
    33 Concatenate3(Concatenation),
    34 Concatenate4(Concatenation),
    35 StaticSlice(StaticSlice),
    36 ScaledDotProductAttention(Attention),
    37 BatchMatrixMultiply(Binary),
    38 Concatenate5(Concatenation),
    39 ConvTranspose2d(Convolution),
    40 ReciprocalSquareRoot(Unary),
    41 Log(Unary),
    42 Gelu(Unary),
    43 Tanh(Unary),
    44 Exp(Unary),
    45 Sin(Unary),
    46 Copy(Unary),
    47 Cos(Unary),
}

impl Kind {
    /// The values that it reads, less those that need not be there and are not.
    pub fn inputs(&self) -> Vec<u32> {
        let mut inputs = self.ends().inputs();
        match self {
            Kind::Concatenate2(_) => inputs.truncate(2),
            Kind::Concatenate3(_) => inputs.truncate(3),
            Kind::Concatenate4(_) => inputs.truncate(4),
            Kind::FullyConnected(_)
            | Kind::Conv2d(_)
            | Kind::DepthwiseConv2d(_)
            | Kind::ConvTranspose2d(_) => inputs.retain(|id| *id != NO_ID),
            _ => {}
        }
        inputs
    }

    /// The values that it writes.
    pub fn outputs(&self) -> Vec<u32> {
        self.ends().outputs()
    }

    /// Its bits.
    pub fn flags(&self) -> u32 {
        self.ends().flags()
    }
}

/// A node's table. A field that a newer exporter wrote is an error: nobody knows what it asks for.
fn known<T: Mirror>(source: &Source<'_>, table: &Table<'_>) -> Result<T> {
    match (T::SLOTS..table.slots()).find(|slot| table.has(*slot)) {
        None => T::read(source, table),
        Some(slot) => {
            let problem =
                format!("field {slot}, which a newer exporter wrote, is unknown; a newer pteron may read it");
            Err(table.problem("xnode_union", problem))
        }
    }
}

/// One step: `XNode` in the schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is computed, from what.
    pub kind: Kind,
    /// Where it came from in the exporter's graph.
    pub debug_handle: u32,
    /// Bounds of the result.
    pub output_min_max: Option<OutputMinMax>,
}

impl Mirror for Node {
    const NAME: &'static str = "XNode";
    const SLOTS: u16 = 4;

    fn limit(limits: &Limits) -> (&'static str, u64) {
        ("instructions", limits.instructions)
    }

    fn read(source: &Source<'_>, table: &Table<'_>) -> Result<Node> {
        const NAME: &str = "xnode_union";
        let Some((tag, member)) = table.union(0, NAME)? else { return Err(empty_union(table, NAME)) };
        Ok(Node {
            kind: Kind::read(source, table, tag, &member)?,
            debug_handle: table.scalar(2, "debug_handle", 0)?,
            output_min_max: Field::read(source, table, 3, "output_min_max")?,
        })
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        let (tag, member) = self.kind.write(builder);
        let mut fields = TableFields::new();
        Field::write(&self.output_min_max, builder, &mut fields, 3);
        write_union(&mut fields, 0, tag, member);
        fields.scalar_unless(2, self.debug_handle, 0);
        builder.table(&fields)
    }
}
