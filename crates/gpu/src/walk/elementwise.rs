//! Ops that compute each element from those at the same place, and folds of axes.

use super::{Walk, WalkError, invalid};
use crate::dispatch::View;
use crate::lower::{self, Numbers, axis_of};
use pteron_ir::{Op, OpKind, ValueId};
use pteron_tensor::{DType, Scalar, promote};

impl Walk<'_> {
    /// Ops that compute each element from those at the same place, and folds.
    pub(super) fn elementwise(&mut self, op: &Op<pteron_ir::Ssa>, out: View) -> Result<(), WalkError> {
        let kind = op.kind();
        let (inputs, form, work) = match op {
            Op::Where { condition, x, y } => (vec![*condition, *x, *y], 0, out.dtype),
            Op::Clip { x, a_min, a_max } => match (a_min, a_max) {
                (Some(low), Some(high)) => (vec![*x, *low, *high], 3, out.dtype),
                (Some(low), None) => (vec![*x, *low], 1, out.dtype),
                (None, Some(high)) => (vec![*x, *high], 2, out.dtype),
                (None, None) => {
                    let x = self.tensor(*x)?;
                    lower::cast(&mut self.lowering, out, x);
                    return Ok(());
                }
            },
            Op::Gelu { x, approximate } => (vec![*x], u8::from(approximate == "tanh"), out.dtype),
            Op::LogicalNot { x } => (vec![*x], 0, DType::Bool),
            Op::Round { x, decimals } if *decimals != 0 => return self.rounded(out, *x, *decimals),
            Op::LogicalAnd { a, b } | Op::LogicalOr { a, b } => (vec![*a, *b], 0, DType::Bool),
            Op::Less { a, b }
            | Op::LessEqual { a, b }
            | Op::Greater { a, b }
            | Op::GreaterEqual { a, b }
            | Op::Equal { a, b }
            | Op::NotEqual { a, b } => {
                let work = promote(self.tensor(*a)?.dtype, self.tensor(*b)?.dtype);
                (vec![*a, *b], 0, work)
            }
            _ if crate::support::is_reduction(kind) => return self.folded(op, out),
            _ => {
                let mut inputs = Vec::new();
                op.for_each_tensor(|value| inputs.push(value));
                (inputs, 0, out.dtype)
            }
        };
        // Rounding leaves integers as they are.
        let is_rounding = matches!(kind, OpKind::Floor | OpKind::Ceil | OpKind::Trunc | OpKind::Round);
        let kind = if is_rounding && !out.dtype.is_float() { OpKind::AsType } else { kind };
        let inputs = inputs.iter().map(|&value| self.tensor(value)).collect::<Result<Vec<_>, _>>()?;
        let what = Numbers { kind, form, work, numbers: [0; 2], inputs: &inputs };
        lower::elementwise(&mut self.lowering, out, &what);
        Ok(())
    }

    /// To a number of decimals.
    fn rounded(&mut self, out: View, x: ValueId, decimals: i32) -> Result<(), WalkError> {
        let x = self.tensor(x)?;
        let power = decimals.unsigned_abs();
        let (form, numbers) = match (out.dtype.is_float(), decimals > 0) {
            (true, up) => {
                let unit = 10f64.powi(power.min(400) as i32) as f32;
                (if up { 1 } else { 2 }, [unit.to_bits(), 0])
            }
            (false, true) => {
                lower::cast(&mut self.lowering, out, x);
                return Ok(());
            }
            (false, false) => {
                let unit = 10i64
                    .checked_pow(power)
                    .filter(|&unit| out.dtype != DType::Bool && (out.dtype.size() == 8 || unit < 1 << 31));
                let Some(unit) = unit else {
                    // Every integer, and every truth value, is less than half of it.
                    lower::fill(&mut self.lowering, out, Scalar::Int(0));
                    return Ok(());
                };
                (2, [unit as u32, (unit >> 32) as u32])
            }
        };
        let kind = OpKind::Round;
        let what = Numbers { kind, form, work: out.dtype, numbers, inputs: &[x] };
        lower::elementwise(&mut self.lowering, out, &what);
        Ok(())
    }

    fn folded(&mut self, op: &Op<pteron_ir::Ssa>, out: View) -> Result<(), WalkError> {
        let all: [i32; 0] = [];
        let (x, axes, ddof) = match op {
            Op::Sum { x, axes, .. }
            | Op::Mean { x, axes, .. }
            | Op::Prod { x, axes, .. }
            | Op::Max { x, axes, .. }
            | Op::Min { x, axes, .. }
            | Op::Any { x, axes, .. }
            | Op::All { x, axes, .. }
            | Op::LogSumExp { x, axes, .. } => (*x, axes.as_deref().unwrap_or(&all), 0),
            Op::Var { x, axes, ddof, .. } | Op::Std { x, axes, ddof, .. } => {
                (*x, axes.as_deref().unwrap_or(&all), *ddof)
            }
            Op::Argmax { x, axis, .. } | Op::Argmin { x, axis, .. } => (*x, std::slice::from_ref(axis), 0),
            _ => return invalid("the op folds nothing"),
        };
        let x = self.tensor(x)?;
        let rank = x.layout.rank();
        let listed: Vec<usize> = axes.iter().map(|&axis| axis_of(axis, rank)).collect();
        let folded: Vec<bool> = (0..rank).map(|axis| listed.is_empty() || listed.contains(&axis)).collect();
        let each: usize =
            x.sizes().iter().zip(&folded).filter(|(_, folded)| **folded).map(|(size, _)| size).product();
        let chooses = matches!(op.kind(), OpKind::Max | OpKind::Min | OpKind::Argmax | OpKind::Argmin);
        if chooses && each == 0 && !out.layout.is_empty() {
            return invalid("there is no element to choose");
        }
        let divisor = (each as f32 - ddof as f32).max(0.0);
        lower::reduce(&mut self.lowering, out, x, op.kind(), &folded, divisor);
        Ok(())
    }
}
