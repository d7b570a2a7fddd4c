//! Kernels: what a pipeline is made of. A [`Kernel`] is a key of dtypes, ranks and kinds; its text is written when a device first
//! needs it. Sizes, strides and offsets are parameters, so that one kernel serves all sizes and a recorded run all positions.

mod attention;
mod bitonic;
mod conv;
mod cooperative;
mod copy;
mod decode;
mod delta;
mod functions;
mod gemm;
mod gemv;
mod greatest;
mod map;
mod matmul;
pub(crate) mod matvec;
mod norm;
mod order;
mod packed;
mod random;
mod reduce;
pub(crate) mod rope;
mod rows;
mod running;
mod scatter;
mod sorted;
pub(crate) mod source;
mod tiled;
mod token;
mod turn;

pub(crate) use attention::MOST_FEATURES;
pub use bitonic::Merge;
pub use conv::Conv;
pub use cooperative::Cooperative;
pub use decode::Decode;
pub(crate) use decode::MOST_FOURS;
pub use delta::Delta;
pub(crate) use delta::{DELTA_ROWS, MOST_KEY_FEATURES};
pub use gemm::Gemm;
pub(crate) use gemm::{GEMM_STEP, GEMM_TILE};
pub use gemv::Gemv;
pub use greatest::Greatest;
pub(crate) use matmul::TILE;
pub use norm::Norm;
pub(crate) use order::MOST_ORDERED;
pub use packed::Packed;
pub(crate) use source::{THREADS, per_vector, per_word};
pub use tiled::Tiled;
pub(crate) use tiled::{MOST_TILED_FEATURES, TILED_QUERIES};
pub use token::Token;
pub use turn::Turn;

use pteron_ir::OpKind;
use pteron_tensor::DType;

/// A kernel. Bindings behind the parameters: what is written, then what is read, in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Each element from the elements at the same place.
    Map {
        /// What is computed.
        kind: OpKind,
        /// Which form of it.
        form: u8,
        /// Of the operands.
        inputs: Vec<DType>,
        /// In what it is computed.
        work: DType,
        /// Of the result.
        out: DType,
        /// Axes of the operands; without any, all lie as the result does.
        rank: u32,
    },
    /// Elements of so many bytes from strides to strides.
    Copy {
        /// Bytes of an element.
        size: u32,
        /// Axes.
        rank: u32,
    },
    /// Elements picked by index tensors.
    Pick {
        /// Of the elements.
        dtype: DType,
        /// Of the index tensors.
        indices: Vec<DType>,
        /// Axes of the result.
        rank: u32,
    },
    /// Rows placed by indices, the later over the earlier.
    Place {
        /// Bytes of an element.
        size: u32,
        /// Of the indices.
        indices: DType,
        /// Axes of what is placed, but for the one that is indexed.
        rank: u32,
    },
    /// Indices that sort rows.
    Order {
        /// Of the elements.
        input: DType,
        /// Axes of the rows' places.
        rank: u32,
    },
    /// The same of longer rows, step by step.
    Bitonic {
        /// Of the elements.
        input: DType,
        /// Which steps.
        merge: Merge,
        /// Axes of the rows' places.
        rank: u32,
    },
    /// Running sums.
    Running {
        /// Of the elements.
        input: DType,
        /// Of the sums, of whole words.
        out: DType,
        /// Whether an element is part of its own sum.
        inclusive: bool,
        /// Whether each thread has a row by itself.
        alone: bool,
        /// Axes of the rows' places.
        rank: u32,
    },
    /// Updates added at indices.
    Scatter {
        /// Of what they are added to, of whole words.
        out: DType,
        /// Of the updates.
        updates: DType,
        /// Of the indices.
        indices: DType,
        /// Axes of the lines' places.
        rank: u32,
    },
    /// Random bits of a key.
    Random,
    /// Convolutions.
    Conv(Conv),
    /// The gated delta rule.
    Delta(Delta),
    /// Rows sorted by the matrix that they pick.
    Sorted {
        /// Of the picks.
        picks: DType,
    },
    /// Axes folded to one element.
    Reduce {
        /// How.
        kind: OpKind,
        /// Of the operand.
        input: DType,
        /// Of the result.
        out: DType,
        /// Axes that stay.
        kept: u32,
        /// Axes that are folded.
        folded: u32,
    },
    /// Rows to rows: softmax and norms.
    Rows {
        /// How.
        kind: OpKind,
        /// Of the rows.
        input: DType,
        /// Of the result.
        out: DType,
        /// Of a factor by feature.
        weight: Option<DType>,
        /// Of what is added by feature.
        bias: Option<DType>,
        /// Axes of the rows' places.
        rank: u32,
    },
    /// Rotary position embedding.
    Rope {
        /// Of the operand and the result.
        dtype: DType,
        /// Of the periods.
        freqs: Option<DType>,
        /// Of offsets that lie in a tensor.
        offsets: Option<DType>,
        /// Whether pairs lie side by side.
        traditional: bool,
        /// Axes.
        rank: u32,
    },
    /// Products of matrices in tiles.
    Matmul {
        /// Of the left operand.
        left: DType,
        /// The right operand.
        right: Right,
        /// Of the result.
        out: DType,
        /// Of what is added.
        bias: Option<DType>,
        /// Of numbers that pick the right operand's matrix for each batch.
        picks: Option<DType>,
        /// Axes of batches.
        batch: u32,
    },
    /// Products of few rows with a quantised matrix.
    Matvec {
        /// Of the rows.
        left: DType,
        /// The matrix.
        right: Packed,
        /// Of the result.
        out: DType,
        /// Whether sums run over subgroups.
        subgroups: bool,
    },
    /// The same by vectors, with what stands around products.
    Gemv(Gemv),
    /// Products of many rows with packed rows, in register tiles.
    Gemm(Gemm),
    /// The same on matrix units.
    Cooperative(Cooperative),
    /// Where the greatest of a row is.
    Greatest(Greatest),
    /// RMS norms with the sum before them.
    Norm(Norm),
    /// Attention of few queries over rows of whole vectors.
    Decode(Decode),
    /// Attention of many queries over rows of whole vectors.
    Tiled(Tiled),
    /// Attention of one token, from its projections on.
    Token(Token),
    /// Queries and keys turned, keys and values written into the cache.
    Turn(Turn),
    /// The numbers that packed rows stand for.
    Dequantize {
        /// The rows.
        packed: Packed,
        /// Of the result.
        out: DType,
    },
    /// The same of rows that indices pick.
    Embed {
        /// The rows.
        packed: Packed,
        /// Of the indices.
        indices: DType,
        /// Of the result.
        out: DType,
    },
    /// Attention of each query over keys and values.
    Attention {
        /// Of queries.
        q: DType,
        /// Of keys and values.
        kv: DType,
        /// Of a mask.
        mask: Option<DType>,
        /// Of the result.
        out: DType,
    },
}

/// The right operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Elements with strides.
    Dense(DType),
    /// Packed rows; each is a column of the matrix, or, not transposed, a row.
    Packed {
        /// How.
        packed: Packed,
        /// Whether rows are columns.
        transposed: bool,
    },
}

impl Kernel {
    /// Whether its parameters are pushed when it is recorded, so that another run with others is another recording.
    pub fn is_pushed(&self) -> bool {
        matches!(self, Kernel::Gemv(gemv) if gemv.is_pushed())
    }

    /// Its text; the entry point is `main`.
    pub fn wgsl(&self) -> String {
        match self {
            Kernel::Map { kind, form, inputs, work, out, rank } => {
                map::text(*kind, *form, inputs, *work, *out, *rank)
            }
            Kernel::Copy { size, rank } => copy::text(*size, *rank),
            Kernel::Pick { dtype, indices, rank } => copy::pick(*dtype, indices, *rank),
            Kernel::Place { size, indices, rank } => copy::place(*size, *indices, *rank),
            Kernel::Reduce { kind, input, out, kept, folded } => {
                reduce::text(*kind, *input, *out, *kept, *folded)
            }
            Kernel::Rows { kind, input, out, weight, bias, rank } => {
                rows::text(*kind, (*input, *out), *weight, *bias, *rank)
            }
            Kernel::Rope { dtype, freqs, offsets, traditional, rank } => {
                rope::text(*dtype, *freqs, *offsets, *traditional, *rank)
            }
            Kernel::Order { input, rank } => order::text(*input, *rank),
            Kernel::Bitonic { input, merge, rank } => bitonic::text(*input, *merge, *rank),
            Kernel::Running { input, out, inclusive, alone, rank } => {
                running::text(*input, *out, *inclusive, *alone, *rank)
            }
            Kernel::Scatter { out, updates, indices, rank } => scatter::text(*out, *updates, *indices, *rank),
            Kernel::Random => random::text(),
            Kernel::Conv(conv) => conv.text(),
            Kernel::Delta(delta) => delta.text(),
            Kernel::Sorted { picks } => sorted::text(*picks),
            Kernel::Matmul { left, right, out, bias, picks, batch } => {
                matmul::text(*left, *right, *out, *bias, *picks, *batch)
            }
            Kernel::Matvec { left, right, out, subgroups } => matvec::text(*left, *right, *out, *subgroups),
            Kernel::Gemv(gemv) => gemv.text(),
            Kernel::Gemm(gemm) => gemm.text(),
            Kernel::Cooperative(product) => product.text(),
            Kernel::Greatest(greatest) => greatest.text(),
            Kernel::Norm(norm) => norm.text(),
            Kernel::Decode(decode) => decode.text(),
            Kernel::Tiled(tiled) => tiled.text(),
            Kernel::Token(token) => token.text(),
            Kernel::Turn(turn) => turn.text(),
            Kernel::Dequantize { packed, out } => matvec::dequantize(*packed, *out),
            Kernel::Embed { packed, indices, out } => matvec::embed(*packed, *indices, *out),
            Kernel::Attention { q, kv, mask, out } => attention::text(*q, *kv, *mask, *out),
        }
    }
}
