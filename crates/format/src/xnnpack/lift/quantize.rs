//! Rounding to grids: numbers stay numbers, and become those that a value's codes can stand for.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::Lifter;
use super::boundary::stored_dtype;
use crate::draft::{Step, problem};
use crate::xnnpack::tables::{Datatype, Quantization};

/// The codes of 8 bits.
fn codes(datatype: Datatype) -> (f64, f64) {
    if datatype == Datatype::Quint8 { (0.0, 255.0) } else { (-128.0, 127.0) }
}

impl Lifter<'_> {
    /// The numbers that a value keeps of those that a node computed for it.
    pub(super) fn rounded(&mut self, id: u32, x: ValueId) -> Step<ValueId> {
        let value = self.declared(id)?;
        let datatype = self.datatype(id)?;
        match value.quantization() {
            None => self.cast(x, stored_dtype(datatype)?),
            Some(Quantization::PerTensor(grid)) if datatype != Datatype::Qint32 => {
                let x = self.cast(x, DType::F32)?;
                let (lowest, highest) = codes(datatype);
                let zero = f64::from(grid.zero_point);
                // The inverse as XNNPACK and PyTorch take it, in f32: halves round as theirs do.
                let inverse = self.number(f64::from(1.0 / grid.scale), DType::F32)?;
                let steps = self.emit(Op::Multiply { a: x, b: inverse })?;
                let steps = self.emit(Op::Round { x: steps, decimals: 0 })?;
                let a_min = Some(self.number(lowest - zero, DType::F32)?);
                let a_max = Some(self.number(highest - zero, DType::F32)?);
                let steps = self.emit(Op::Clip { x: steps, a_min, a_max })?;
                let scale = self.number(grid.scale.into(), DType::F32)?;
                self.emit(Op::Multiply { a: steps, b: scale })
            }
            Some(Quantization::PerTokenDynamic(rows)) => {
                let x = self.cast(x, DType::F32)?;
                self.rounded_rows(x, rows.num_nonbatch_dims)
            }
            Some(_) => problem(format!("no node gives {}", datatype.name())),
        }
    }

    /// Every row rounded to 256 steps between its least and largest number, zero among them, as XNNPACK finds them. A
    /// row is the last `inner` axes.
    pub(super) fn rounded_rows(&mut self, x: ValueId, inner: i32) -> Step<ValueId> {
        let axes = || Some((-inner..0).collect::<Vec<i32>>());
        let one = |lifter: &mut Self, number: f64| lifter.number(number, DType::F32);
        let (zero, lowest, highest) = (one(self, 0.0)?, one(self, -128.0)?, one(self, 127.0)?);
        let least = self.emit(Op::Min { x, axes: axes(), keepdims: true })?;
        let least = self.emit(Op::Minimum { a: least, b: zero })?;
        let largest = self.emit(Op::Max { x, axes: axes(), keepdims: true })?;
        let largest = self.emit(Op::Maximum { a: largest, b: zero })?;
        let range = self.emit(Op::Subtract { a: largest, b: least })?;
        let (all, unit) = (one(self, 255.0)?, one(self, 1.0)?);
        let empty = self.emit(Op::Equal { a: range, b: zero })?;
        let inverse = self.emit(Op::Divide { a: all, b: range })?;
        let inverse = self.emit(Op::Where { condition: empty, x: unit, y: inverse })?;

        // The code of zero comes from the end at which the smaller error is made.
        let low = self.emit(Op::Multiply { a: least, b: inverse })?;
        let high = self.emit(Op::Multiply { a: largest, b: inverse })?;
        let low_error = self.emit(Op::Add { a: low, b: lowest })?;
        let high_error = self.emit(Op::Add { a: high, b: highest })?;
        let error = self.emit(Op::Add { a: low_error, b: high_error })?;
        let condition = self.emit(Op::Greater { a: error, b: zero })?;
        let from_low = self.emit(Op::Subtract { a: lowest, b: low })?;
        let from_high = self.emit(Op::Subtract { a: highest, b: high })?;
        let point = self.emit(Op::Where { condition, x: from_low, y: from_high })?;
        let bounds = (Some(lowest), Some(highest));
        let point = self.emit(Op::Clip { x: point, a_min: bounds.0, a_max: bounds.1 })?;
        let point = self.emit(Op::Round { x: point, decimals: 0 })?;

        let codes = self.emit(Op::Multiply { a: x, b: inverse })?;
        let codes = self.emit(Op::Round { x: codes, decimals: 0 })?;
        let codes = self.emit(Op::Add { a: codes, b: point })?;
        let codes = self.emit(Op::Clip { x: codes, a_min: bounds.0, a_max: bounds.1 })?;
        let steps = self.emit(Op::Subtract { a: codes, b: point })?;
        let scale = self.emit(Op::Divide { a: unit, b: inverse })?;
        self.emit(Op::Multiply { a: steps, b: scale })
    }

    /// The codes of numbers that are on the grid.
    pub(super) fn encode(&mut self, x: ValueId, scale: f32, zero_point: i32) -> Step<ValueId> {
        let inverse = self.number(f64::from(1.0 / scale), DType::F32)?;
        let steps = self.emit(Op::Multiply { a: x, b: inverse })?;
        let steps = self.emit(Op::Round { x: steps, decimals: 0 })?;
        let zero = self.number(zero_point.into(), DType::F32)?;
        self.emit(Op::Add { a: steps, b: zero })
    }
}
