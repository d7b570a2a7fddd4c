//! The calls that the shim offers, by name. Their numbers are asked for when it is opened, so that the two sides can
//! never mean different functions by one number.

use crate::error::MlxError;
use crate::ffi::{Array, Attributes, Device, Flight, Shared, Shim, Submitted};
use crate::values::Held;
use pteron_tensor::HostTensor;
use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::Arc;

macro_rules! calls {
    ($($Name:ident = $name:literal),* $(,)?) => {
        /// A function of MLX; what it takes is written beside its row in the shim.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Call { $($Name),* }

        const NAMES: &[&str] = &[$($name),*];
    };
}

calls! {
    Abs = "abs", Negative = "negative", Square = "square", Sign = "sign", Floor = "floor", Ceil = "ceil",
    Trunc = "trunc", Sigmoid = "sigmoid", Erf = "erf", Exp = "exp", Expm1 = "expm1", Log = "log", Log2 = "log2",
    Log10 = "log10", Log1p = "log1p", Sqrt = "sqrt", Rsqrt = "rsqrt", Reciprocal = "reciprocal", Sin = "sin",
    Cos = "cos", Tan = "tan", Arcsin = "arcsin", Arccos = "arccos", Arctan = "arctan", Sinh = "sinh", Cosh = "cosh",
    Tanh = "tanh", Arcsinh = "arcsinh", Arccosh = "arccosh", Arctanh = "arctanh", LogicalNot = "logical_not",
    BitwiseInvert = "bitwise_invert", Contiguous = "contiguous", Round = "round", AsType = "astype", View = "view",
    Add = "add", Subtract = "subtract", Multiply = "multiply", Divide = "divide", FloorDivide = "floor_divide",
    Remainder = "remainder", Power = "power", Maximum = "maximum", Minimum = "minimum", Arctan2 = "arctan2",
    LogAddExp = "logaddexp", Less = "less", LessEqual = "less_equal", Greater = "greater",
    GreaterEqual = "greater_equal", Equal = "equal", NotEqual = "not_equal", LogicalAnd = "logical_and",
    LogicalOr = "logical_or", BitwiseAnd = "bitwise_and", BitwiseOr = "bitwise_or", BitwiseXor = "bitwise_xor",
    RightShift = "right_shift", Matmul = "matmul", Where = "where", Clip = "clip", Full = "full", ARange = "arange",
    Tri = "tri", Tril = "tril", Triu = "triu", Sum = "sum", Prod = "prod", Mean = "mean", Max = "max", Min = "min",
    Any = "any", All = "all", Median = "median", LogSumExp = "logsumexp", Var = "var", Std = "std",
    Argmax = "argmax", Argmin = "argmin", Cumsum = "cumsum", Softmax = "softmax", Sort = "sort",
    Argsort = "argsort", Partition = "partition", ArgPartition = "argpartition", Reshape = "reshape",
    BroadcastTo = "broadcast_to", Transpose = "transpose", Flip = "flip", Slice = "slice",
    SliceUpdate = "slice_update", Split = "split", Concatenate = "concatenate", Stack = "stack", Tile = "tile",
    Repeat = "repeat", Roll = "roll", AsStrided = "as_strided", Pad = "pad", Take = "take",
    TakeAlongAxis = "take_along_axis", Gather = "gather", Scatter = "scatter", ScatterAddAxis = "scatter_add_axis",
    Addmm = "addmm", Conv = "conv", ConvTranspose = "conv_transpose", GatherMm = "gather_mm",
    Dequantize = "dequantize", QuantizedMatmul = "quantized_matmul", GatherQmm = "gather_qmm", RmsNorm = "rms_norm",
    LayerNorm = "layer_norm", Rope = "rope", Attention = "attention", RandomBits = "random_bits",
    MetalKernel = "metal_kernel",
}

/// MLX in this process: the opened shim, and the number of every call.
#[derive(Clone, Copy)]
pub(crate) struct Mlx {
    shim: &'static Shim,
    numbers: &'static [u32],
    pub(crate) device: Device,
}

impl Mlx {
    /// Opens the shim at a path, and checks that it and MLX are those that this crate was made for.
    pub(crate) fn open(path: &OsStr, wanted: &'static str) -> Result<Mlx, MlxError> {
        let shim = Shim::open(path)?;
        let found = shim.version();
        if found != wanted {
            return Err(MlxError::Version { found, wanted });
        }
        let numbers =
            NAMES.iter().map(|name| shim.find(name).map_err(|_| MlxError::Call(format!("no `{name}`"))));
        let numbers = numbers.collect::<Result<Vec<u32>, _>>()?.leak();
        Ok(Mlx { shim, numbers, device: shim.device()? })
    }

    /// A call over arrays that are all there, with one result.
    pub(crate) fn one(&self, call: Call, arrays: &[&Array], ints: &[i64]) -> Result<Array, MlxError> {
        let arrays: Vec<Option<&Array>> = arrays.iter().copied().map(Some).collect();
        self.with(call, &arrays, Attributes { ints, ..Attributes::default() })
    }

    /// A call with one result.
    pub(crate) fn with(
        &self,
        call: Call,
        arrays: &[Option<&Array>],
        attributes: Attributes<'_>,
    ) -> Result<Array, MlxError> {
        let mut results = self.many(call, arrays, attributes, 1)?;
        results.pop().ok_or_else(|| MlxError::Call(format!("`{call:?}` gives nothing")))
    }

    /// A call with at most that many results.
    pub(crate) fn many(
        &self,
        call: Call,
        arrays: &[Option<&Array>],
        attributes: Attributes<'_>,
        most: usize,
    ) -> Result<Vec<Array>, MlxError> {
        self.shim.apply(self.numbers[call as usize], arrays, attributes, most)
    }

    /// A copy of host data in memory of MLX's own, as an operand.
    pub(crate) fn copy(&self, tensor: &HostTensor) -> Result<Array, MlxError> {
        self.shim.copy(tensor).map(Shared::into_array)
    }

    /// The same, to be kept.
    pub(crate) fn place(&self, tensor: &HostTensor) -> Result<Shared, MlxError> {
        self.shim.copy(tensor)
    }

    /// Host data as an array that shares its memory, where MLX can.
    pub(crate) fn wrap(&self, tensor: &HostTensor) -> Result<Shared, MlxError> {
        self.shim.wrap(tensor)
    }

    /// Computes arrays that stay with the thread that made them, and waits for them.
    pub(crate) fn compute<'a>(&self, arrays: impl Iterator<Item = &'a Array>) -> Result<(), MlxError> {
        self.shim.compute(arrays)
    }

    /// Hands over what a walk holds, all at once, for threads to share; in the same order, with the flight that computes
    /// it, where something is to be computed. `before` are flights that it builds on.
    pub(crate) fn submit(
        &self,
        held: Vec<Held>,
        before: Vec<Arc<Flight>>,
    ) -> Result<Submitted<Vec<Arc<Shared>>>, MlxError> {
        let (mut made, mut order) = (Vec::new(), Vec::with_capacity(held.len()));
        for array in held {
            order.push(match array {
                Held::Shared(array) => Some(array),
                Held::Made(array) => {
                    // Two results may be one array.
                    made.push(Rc::try_unwrap(array).or_else(|shared| shared.share())?);
                    None
                }
            });
        }
        let (made, flight) = match made.is_empty() {
            true => (Vec::new(), None),
            false => {
                let (made, flight) = self.shim.submit(made, before)?;
                (made, Some(flight))
            }
        };
        let mut made = made.into_iter().map(Arc::new);
        let in_order = order.into_iter().map(|array| array.or_else(|| made.next()));
        let in_order = in_order.collect::<Option<_>>();
        let in_order = in_order.ok_or_else(|| MlxError::Invalid("fewer arrays than were made".into()))?;
        Ok((in_order, flight))
    }

    /// A function that is traced and replayed.
    pub(crate) fn compile(&self, trace: Box<crate::ffi::Trace>) -> Result<crate::ffi::Function, MlxError> {
        self.shim.compile(trace)
    }
}
