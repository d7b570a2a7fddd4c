//! What the host knows of integers without asking MLX: token ids and positions come from there, and what is looked up by
//! them can be checked before anything is computed. Nothing has to be read back then in the middle of a run.

use crate::values::Tensor;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::{DType, HostTensor};
use std::sync::Arc;

/// Elements of a tensor whose numbers are kept; longer ones are asked for like any other.
const MOST: usize = 1 << 14;

/// What is known of the elements of a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// All of them, in order. None is beyond 32 bits, so that a cast between integers changes nothing.
    Numbers(Arc<[i64]>),
    /// The least and the greatest that they can be.
    Within(i64, i64),
    /// They are those of what a compiled piece takes, by its place there; only while it is traced.
    Taken(usize),
}

/// Whether indices are inside an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Inside,
    /// The greatest that is not.
    Outside(i64),
    Unknown,
}

impl Known {
    /// The elements of a host tensor of integers.
    pub(crate) fn of(tensor: &HostTensor) -> Option<Known> {
        if tensor.len() > MOST {
            return None;
        }
        let numbers: Arc<[i64]> = match tensor.dtype() {
            DType::I64 => tensor.as_slice::<i64>().ok()?.into(),
            DType::I32 => tensor.as_slice::<i32>().ok()?.iter().map(|&number| number.into()).collect(),
            _ => return None,
        };
        numbers.iter().all(|&number| i32::try_from(number).is_ok()).then_some(Known::Numbers(numbers))
    }

    /// What is known of an op's result: of one that moves no element, what is known of its operand; of one that writes a
    /// number of the call down, that number.
    pub(crate) fn after<'t>(
        op: &Op<Ssa>,
        operand: impl Fn(ValueId) -> Option<&'t Tensor>,
        number: impl Fn(ValueId) -> Option<i64>,
    ) -> Option<Known> {
        let x = match op {
            Op::Full { shape, v: FloatArg::Value(v), scalar_type: DType::I32 | DType::I64 } => {
                let one = shape.iter().all(|size| *size == IntArg::Literal(1));
                let number = number(*v).filter(|&number| one && i32::try_from(number).is_ok())?;
                return Some(Known::Numbers([number].into()));
            }
            Op::IdCopy { x, .. }
            | Op::Contiguous { x, .. }
            | Op::Reshape { x, .. }
            | Op::Squeeze { x, .. }
            | Op::ExpandDims { x, .. }
            | Op::AsType { x, scalar_type: DType::I32 | DType::I64 } => *x,
            _ => return None,
        };
        let tensor = operand(x)?;
        matches!(tensor.ty.dtype, DType::I32 | DType::I64).then(|| tensor.known.clone())?
    }

    /// The first element.
    pub(crate) fn first(&self) -> Option<i64> {
        match self {
            Known::Numbers(numbers) => numbers.first().copied(),
            Known::Within(..) | Known::Taken(_) => None,
        }
    }

    /// Whether all elements lie in `least..=most`.
    pub(crate) fn verdict(&self, least: i64, most: i64) -> Verdict {
        let is_inside = |number: i64| (least..=most).contains(&number);
        match self {
            Known::Numbers(numbers) => {
                let outside = numbers.iter().copied().filter(|&number| !is_inside(number));
                outside.max().map_or(Verdict::Inside, Verdict::Outside)
            }
            Known::Within(low, high) if is_inside(*low) && is_inside(*high) => Verdict::Inside,
            Known::Within(..) | Known::Taken(_) => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_host_are_judged_without_a_look_at_the_device() {
        let known = Known::of(&HostTensor::from_slice(vec![3], &[2i64, -1, 5]).unwrap()).unwrap();
        assert_eq!(known.first(), Some(2));
        assert_eq!(known.verdict(-6, 5), Verdict::Inside);
        assert_eq!(known.verdict(0, 3), Verdict::Outside(5));
        assert_eq!(known.verdict(0, 5), Verdict::Outside(-1));
        assert_eq!(Known::Within(0, 7).verdict(-8, 7), Verdict::Inside);
        assert_eq!(Known::Within(0, 8).verdict(-8, 7), Verdict::Unknown);
        assert_eq!(Known::Taken(0).verdict(0, 7), Verdict::Unknown);
    }

    #[test]
    fn a_number_of_the_call_is_known_where_it_is_written_down() {
        let v = FloatArg::Value(ValueId(0));
        let full = |shape: &[i64], scalar_type| Op::Full {
            shape: shape.iter().map(|&size| IntArg::Literal(size)).collect(),
            v,
            scalar_type,
        };
        let after = |op: Op<Ssa>, number| Known::after(&op, |_| None, |_| number);
        assert_eq!(after(full(&[1], DType::I64), Some(7)).and_then(|known| known.first()), Some(7));
        assert!(after(full(&[2], DType::I64), Some(7)).is_none());
        assert!(after(full(&[1], DType::F32), Some(7)).is_none());
        assert!(after(full(&[1], DType::I64), Some(1 << 40)).is_none());
        assert!(after(full(&[1], DType::I64), None).is_none());
    }

    #[test]
    fn what_a_cast_would_change_is_not_known() {
        assert!(Known::of(&HostTensor::from_slice(vec![1], &[1i64 << 40]).unwrap()).is_none());
        assert!(Known::of(&HostTensor::from_slice(vec![1], &[1.0f32]).unwrap()).is_none());
        assert!(Known::of(&HostTensor::zeros(DType::I64, vec![MOST + 1]).unwrap()).is_none());
    }
}
