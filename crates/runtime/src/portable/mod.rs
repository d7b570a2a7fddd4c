//! Portable operators: what a program calls outside its delegates. A table says for each `name.overload` how
//! many arguments it takes and which family computes it; a family is one generic loop.
//!
//! The numbers are PyTorch's, not MLX's: category-based promotion with weak scalars, true division of integers,
//! results in the dtype of the out argument. Values come in, tensors go out; where they live is not known here.

mod attention;
mod binary;
mod call;
pub(crate) mod complex;
mod convolution;
mod create;
mod index;
mod join;
pub(crate) mod lanes;
mod matrix;
mod norm;
mod pad;
mod pool;
mod prim;
mod promote;
mod quantized;
mod random;
mod reduce;
mod sampler;
mod shape;
mod sort;
mod special;
mod unary;
mod volume;
pub(crate) mod walk;

#[cfg(test)]
mod tests;

pub(crate) use call::{Call, OutType};

use crate::Value;
use pteron_tensor::TensorError;

/// Why an operator could not compute; whoever called it adds its name, place and arguments.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PortableError {
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("argument {index} is {given}; {wanted} is needed")]
    Argument { index: usize, wanted: &'static str, given: String },
    #[error("index {index} is outside an axis of size {size}")]
    Index { index: i64, size: usize },
    #[error("{0}")]
    Invalid(String),
}

/// What an operator gives: one value for each out argument.
pub(crate) type Results = Result<Vec<Value>, PortableError>;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    /// `name.overload`, as a program writes it.
    pub(crate) name: &'static str,
    /// Arguments before those that are written.
    pub(crate) inputs: usize,
    /// What is written.
    pub(crate) outs: Outs,
    /// What computes it.
    pub(crate) kernel: Kernel,
}

/// Which arguments of a call an operator writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outs {
    /// That many tensors after the inputs.
    Tensors(usize),
    /// One list of tensors after the inputs.
    List,
    /// One number after the inputs.
    Number,
    /// The first input itself, which is read too.
    First,
    /// The first input itself, of which only the part written before in the same run is read.
    Grown,
    /// The inputs at those places themselves, which are read too, then one tensor after the inputs.
    Inputs(&'static [usize]),
}

/// How an operator computes.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    /// Element by element in floats.
    Float(fn(f64) -> f64),
    /// Element by element, integers staying integers.
    Keep(fn(i64) -> i64, fn(f64) -> f64),
    /// Element by element to a truth value.
    Test(fn(i64) -> bool, fn(f64) -> bool),
    /// Two operands that meet in their common dtype.
    Arithmetic(binary::Arithmetic),
    /// Two operands that meet in a float dtype.
    FloatPair(fn(f64, f64) -> f64),
    /// Two operands compared in their common dtype.
    Compare(fn(i64, i64) -> bool, fn(f64, f64) -> bool),
    /// Two truth values.
    Logical(fn(bool, bool) -> bool),
    /// A number of the program.
    Number(fn(&Call<'_>) -> Result<Value, PortableError>),
    /// Anything else.
    Whole(fn(&Call<'_>) -> Results),
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

const FAMILIES: [&[Operator]; 19] = [
    unary::TABLE,
    binary::TABLE,
    reduce::TABLE,
    shape::TABLE,
    join::TABLE,
    index::TABLE,
    matrix::TABLE,
    norm::TABLE,
    create::TABLE,
    sort::TABLE,
    pad::TABLE,
    pool::TABLE,
    convolution::TABLE,
    prim::TABLE,
    quantized::TABLE,
    attention::TABLE,
    sampler::TABLE,
    volume::TABLE,
    random::TABLE,
];

/// The operator of that name; an overload is written after a dot.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    FAMILIES.iter().copied().flatten().find(|row| row.name == name)
}

/// The same, where the first input and the result may be complex.
pub(crate) fn find_for(name: &str, takes_complex: bool, gives_complex: bool) -> Option<&'static Operator> {
    match complex::find(name, takes_complex, gives_complex) {
        None if !takes_complex && !gives_complex => find(name),
        found => found,
    }
}

/// Whether programs may call an operator of that name outside their delegates; an overload is written after a dot.
pub fn knows_operator(name: &str) -> bool {
    find(name).is_some() || complex::knows(name)
}

impl Operator {
    /// Computes; the results fit the out arguments in number, but not yet in dtype and size.
    pub(crate) fn run(&self, call: &Call<'_>) -> Results {
        match self.kernel {
            Kernel::Float(float) => unary::float(call, float),
            Kernel::Keep(int, float) => unary::keep(call, int, float),
            Kernel::Test(int, float) => unary::test(call, int, float),
            Kernel::Arithmetic(arithmetic) => binary::arithmetic(call, &arithmetic),
            Kernel::FloatPair(float) => binary::float_pair(call, float),
            Kernel::Compare(int, float) => binary::compare(call, int, float),
            Kernel::Logical(op) => binary::logical(call, op),
            Kernel::Number(kernel) => Ok(vec![kernel(call)?]),
            Kernel::Whole(kernel) => kernel(call),
        }
    }
}

/// A row whose kernel writes one tensor.
const fn row(name: &'static str, inputs: usize, kernel: Kernel) -> Operator {
    Operator { name, inputs, outs: Outs::Tensors(1), kernel }
}

/// A row with a kernel of its own that writes one tensor.
const fn whole(name: &'static str, inputs: usize, kernel: fn(&Call<'_>) -> Results) -> Operator {
    row(name, inputs, Kernel::Whole(kernel))
}

fn one(tensor: Result<pteron_tensor::HostTensor, TensorError>) -> Results {
    Ok(vec![Value::Tensor(tensor?)])
}

fn invalid<T>(message: impl Into<String>) -> Result<T, PortableError> {
    Err(PortableError::Invalid(message.into()))
}
