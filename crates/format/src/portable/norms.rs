//! Norms in ops that have a kernel, computed in f32.

use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::DType;

use super::plain::Plain;
use crate::draft::Step;

impl Plain<'_> {
    pub(super) fn rms_norm(
        &mut self,
        op: &Op<Ssa>,
        x: ValueId,
        weight: Option<ValueId>,
        eps: f32,
    ) -> Step<ValueId> {
        let wanted = self.dtype_of(op)?;
        let x = self.cast(x, DType::F32)?;
        let squares = self.emit(Op::Multiply { a: x, b: x })?;
        let normal = self.over_root(x, squares, eps)?;
        self.weighted(normal, (weight, None), wanted)
    }

    pub(super) fn layer_norm(
        &mut self,
        op: &Op<Ssa>,
        x: ValueId,
        parameters: (Option<ValueId>, Option<ValueId>),
        eps: f32,
    ) -> Step<ValueId> {
        let wanted = self.dtype_of(op)?;
        let x = self.cast(x, DType::F32)?;
        let mean = self.emit(Op::Mean { x, axes: Some(vec![-1]), keepdims: true })?;
        let x = self.emit(Op::Subtract { a: x, b: mean })?;
        let squares = self.emit(Op::Multiply { a: x, b: x })?;
        let normal = self.over_root(x, squares, eps)?;
        self.weighted(normal, parameters, wanted)
    }

    /// `x` over the root of the mean of squares along the last axis.
    fn over_root(&mut self, x: ValueId, squares: ValueId, eps: f32) -> Step<ValueId> {
        let mean = self.emit(Op::Mean { x: squares, axes: Some(vec![-1]), keepdims: true })?;
        let eps = self.number(eps.into(), DType::F32)?;
        let mean = self.emit(Op::Add { a: mean, b: eps })?;
        let factor = self.emit(Op::Rsqrt { x: mean })?;
        self.emit(Op::Multiply { a: x, b: factor })
    }

    fn weighted(
        &mut self,
        x: ValueId,
        (weight, bias): (Option<ValueId>, Option<ValueId>),
        wanted: DType,
    ) -> Step<ValueId> {
        let mut x = x;
        if let Some(weight) = weight {
            let weight = self.cast(weight, DType::F32)?;
            x = self.emit(Op::Multiply { a: x, b: weight })?;
        }
        if let Some(bias) = bias {
            let bias = self.cast(bias, DType::F32)?;
            x = self.emit(Op::Add { a: x, b: bias })?;
        }
        self.cast(x, wanted)
    }

    /// The largest is taken out first, so that no exponential overflows; where it is not finite it stays in.
    pub(super) fn log_sum_exp(
        &mut self,
        x: ValueId,
        axes: Option<Vec<i32>>,
        keepdims: bool,
    ) -> Step<ValueId> {
        let largest = self.emit(Op::Max { x, axes: axes.clone(), keepdims: true })?;
        let size = self.emit(Op::Abs { x: largest })?;
        let infinite = self.number_like(x, f64::INFINITY)?;
        let condition = self.emit(Op::Less { a: size, b: infinite })?;
        let zero = self.number_like(x, 0.0)?;
        let shift = self.emit(Op::Where { condition, x: largest, y: zero })?;
        let low = self.emit(Op::Subtract { a: x, b: shift })?;
        let low = self.emit(Op::Exp { x: low })?;
        let sum = self.emit(Op::Sum { x: low, axes: axes.clone(), keepdims })?;
        let sum = self.emit(Op::Log { x: sum })?;
        // Of axes with one element, the sum is the element.
        let shift = if keepdims { shift } else { self.emit(Op::Sum { x: shift, axes, keepdims })? };
        self.emit(Op::Add { a: sum, b: shift })
    }
}
