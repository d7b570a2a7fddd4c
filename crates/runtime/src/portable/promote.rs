//! PyTorch's type promotion: by category (bool, integer, float), where a tensor of rank 0 only counts if its
//! category is higher than that of the others, and a plain number less still.

use pteron_tensor::{DType, HostTensor, Scalar};

/// What an operand brings to a promotion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    /// A tensor with dims.
    Array(DType),
    /// A tensor of rank 0.
    Single(DType),
    /// A plain number.
    Number(Scalar),
}

impl Operand {
    /// A tensor's part.
    pub(crate) fn of(tensor: &HostTensor) -> Operand {
        if tensor.rank() == 0 { Operand::Single(tensor.dtype()) } else { Operand::Array(tensor.dtype()) }
    }

    fn dtype(self) -> DType {
        match self {
            Operand::Array(dtype) | Operand::Single(dtype) => dtype,
            Operand::Number(Scalar::Bool(_)) => DType::Bool,
            Operand::Number(Scalar::Int(_)) => DType::I64,
            // Torch's default float: a number never widens a tensor beyond it.
            Operand::Number(Scalar::Float(_)) => DType::F32,
        }
    }

    fn weight(self) -> usize {
        match self {
            Operand::Array(_) => 2,
            Operand::Single(_) => 1,
            Operand::Number(_) => 0,
        }
    }
}

/// The dtype in which operands meet.
pub(crate) fn common(operands: &[Operand]) -> DType {
    let mut by_weight: [Option<DType>; 3] = [None; 3];
    for operand in operands {
        let slot = &mut by_weight[operand.weight()];
        *slot = Some(slot.map_or(operand.dtype(), |dtype| promote(dtype, operand.dtype())));
    }
    by_weight.into_iter().rev().flatten().reduce(weaker).unwrap_or(DType::F32)
}

/// `strong`, unless `weak` is of a higher category.
fn weaker(strong: DType, weak: DType) -> DType {
    if category(weak) > category(strong) { weak } else { strong }
}

fn category(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        _ if dtype.is_int() => 1,
        _ => 2,
    }
}

/// Two dtypes of equal standing.
pub(crate) fn promote(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    match (category(a), category(b)) {
        (0, _) => b,
        (_, 0) => a,
        (2, 1) => a,
        (1, 2) => b,
        (2, 2) => match (a, b) {
            (F16, BF16) | (BF16, F16) => F32,
            _ if a.size() > b.size() => a,
            _ => b,
        },
        _ => match (a.is_unsigned(), b.is_unsigned()) {
            (true, true) | (false, false) => {
                if a.size() > b.size() {
                    a
                } else {
                    b
                }
            }
            (true, false) => mixed(a, b),
            (false, true) => mixed(b, a),
        },
    }
}

/// An unsigned with a signed integer: the smallest signed one that holds both. Torch refuses most of these
/// pairs; u64, which nothing signed holds, goes to f32 as in its promotion of wide unsigned types.
fn mixed(unsigned: DType, signed: DType) -> DType {
    use DType::*;
    match unsigned {
        U64 => F32,
        _ if unsigned.size() < signed.size() => signed,
        U8 => I16,
        U16 => I32,
        _ => I64,
    }
}

/// The float dtype that an operator without an integer form computes in.
pub(crate) fn to_float(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn numbers_and_rank_0_tensors_are_weak() {
        let cases = [
            (vec![Operand::Array(F16), Operand::Single(F32)], F16),
            (vec![Operand::Array(I32), Operand::Single(F64)], F64),
            (vec![Operand::Array(BF16), Operand::Number(Scalar::Float(2.5))], BF16),
            (vec![Operand::Array(I8), Operand::Number(Scalar::Int(300))], I8),
            (vec![Operand::Array(I64), Operand::Number(Scalar::Float(0.5))], F32),
            (vec![Operand::Array(Bool), Operand::Number(Scalar::Int(1))], I64),
            (vec![Operand::Array(F16), Operand::Array(BF16)], F32),
            (vec![Operand::Array(U8), Operand::Array(I8)], I16),
            (vec![Operand::Array(F32), Operand::Array(F64)], F64),
            (vec![Operand::Single(F64), Operand::Single(F32)], F64),
        ];
        for (operands, want) in cases {
            assert_eq!(common(&operands), want, "{operands:?}");
        }
    }
}
