//! Ops whose result is a number beside the tensors. Such numbers have 32 bits; what does not fit is an error.

use super::functions::{floor_divide_int, remainder_int};
use super::lanes::Reader;
use super::offsets::axis_of;
use super::{KernelError, Operands};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::Scalar;

/// The number that an op with a scalar result gives.
pub(crate) fn compute_scalar(op: &Op<Ssa>, operands: &Operands<'_>) -> Result<Scalar, KernelError> {
    let value = match op {
        Op::ItemInt { x } => item(operands, *x)?,
        Op::SymSize { a, dim } => {
            let a = operands.tensor(*a)?;
            let size = a.shape().get(axis_of((*dim).into(), a.rank()));
            *size.ok_or_else(|| KernelError::Invalid(format!("no axis {dim}")))? as i128
        }
        Op::AddInt { a, b } => int(operands, a)? + int(operands, b)?,
        Op::SubtractInt { a, b } => int(operands, a)? - int(operands, b)?,
        Op::MultiplyInt { a, b } => int(operands, a)? * int(operands, b)?,
        Op::FloorDivideInt { a, b } => floor_divide_int(int(operands, a)?, divisor(operands, b)?),
        Op::ModInt { a, b } => remainder_int(int(operands, a)?, divisor(operands, b)?),
        _ => return Err(KernelError::Invalid("the op gives no number".into())),
    };
    match i32::try_from(value) {
        Ok(value) => Ok(Scalar::Int(value.into())),
        Err(_) => Err(KernelError::Invalid(format!("{value} does not fit 32 bits"))),
    }
}

/// By its dtype: ExecuTorch reads four bytes as an i32 whatever they are. Floats truncate.
fn item(operands: &Operands<'_>, x: ValueId) -> Result<i128, KernelError> {
    let x = operands.tensor(x)?;
    if x.len() != 1 {
        return Err(KernelError::Invalid(format!("{} elements where one is needed", x.len())));
    }
    let mut item = [0i128];
    Reader::new(x).fill(&mut item)?;
    Ok(item[0])
}

fn int(operands: &Operands<'_>, arg: &IntArg<ValueId>) -> Result<i128, KernelError> {
    operands.int(arg).map(i128::from)
}

fn divisor(operands: &Operands<'_>, arg: &IntArg<ValueId>) -> Result<i128, KernelError> {
    match int(operands, arg)? {
        0 => Err(KernelError::Invalid("division by zero".into())),
        divisor => Ok(divisor),
    }
}
