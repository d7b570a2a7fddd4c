//! Rotary position embedding in ops that have a kernel: pairs of features turned by angles that grow with the position.

use pteron_ir::op::{IndexArg, IntArg, OffsetArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::plain::Plain;
use crate::draft::{Part, Step, problem};

impl Plain<'_> {
    pub(super) fn rope(
        &mut self,
        x: ValueId,
        (dims, is_traditional): (i32, bool),
        offset: OffsetArg<ValueId, ValueId>,
        (freqs, base, scale): (Option<ValueId>, f32, f32),
    ) -> Step<ValueId> {
        let wanted = self.dtype(x)?;
        let rank = self.rank(x)?;
        let IntArg::Literal(features) = self.size(x, rank.saturating_sub(1))? else {
            return problem("features whose number is known at run time only");
        };
        if rank < 3 || dims < 2 || dims % 2 != 0 || i64::from(dims) > features {
            return problem(format!("{dims} of {features} features turned in a tensor of {rank} dims"));
        }
        let (dims, last) = (i64::from(dims), rank as i32 - 1);
        let x = self.cast(x, DType::F32)?;
        let (sin, cos) = self.turns(x, rank, dims, offset, (freqs, base, scale))?;
        let slice = |plain: &mut Self, x, start: i64, stop: i64| {
            let [axis, start, stop] = [last.into(), start, stop].map(IntArg::Literal);
            plain.emit(Op::Slice { x, axis, start, stop, step: 1 })
        };
        let turned = slice(self, x, 0, dims)?;
        let whole = self.sizes(turned)?;
        let (a, b) = if is_traditional {
            let mut pairs = whole.clone();
            pairs.splice(rank - 1.., [dims / 2, 2].map(IntArg::Literal));
            let pairs = self.emit(Op::Reshape { x: turned, shape: pairs })?;
            let mut side =
                |at| self.emit(Op::Take { x: pairs, index: IndexArg::Literal(at), axis: rank as i32 });
            (side(0)?, side(1)?)
        } else {
            (slice(self, turned, 0, dims / 2)?, slice(self, turned, dims / 2, dims)?)
        };
        let mut mixed = |x: ValueId, by: ValueId| self.emit(Op::Multiply { a: x, b: by });
        let (a_cos, b_sin) = (mixed(a, cos)?, mixed(b, sin)?);
        let (a_sin, b_cos) = (mixed(a, sin)?, mixed(b, cos)?);
        let first = self.emit(Op::Subtract { a: a_cos, b: b_sin })?;
        let second = self.emit(Op::Add { a: a_sin, b: b_cos })?;
        let tensors = vec![first, second];
        let mut out = if is_traditional {
            let pairs = self.emit(Op::Stack { tensors, axis: rank as i32 })?;
            self.emit(Op::Reshape { x: pairs, shape: whole })?
        } else {
            self.emit(Op::Concatenate { tensors, axis: last })?
        };
        if dims < features {
            let rest = slice(self, x, dims, features)?;
            out = self.emit(Op::Concatenate { tensors: vec![out, rest], axis: last })?;
        }
        self.cast(out, wanted)
    }

    /// Sine and cosine of the angle of every position and pair.
    fn turns(
        &mut self,
        x: ValueId,
        rank: usize,
        dims: i64,
        offset: OffsetArg<ValueId, ValueId>,
        (freqs, base, scale): (Option<ValueId>, f32, f32),
    ) -> Step<(ValueId, ValueId)> {
        let length = self.size(x, rank - 2)?;
        let positions = match offset {
            OffsetArg::Value(offset) => {
                let start = IntArg::Value(offset);
                let stop = self.plus(start, length)?;
                self.counted(start, stop)?
            }
            OffsetArg::Tensor(offset) => {
                // One offset for all, or one a batch row.
                let positions = self.counted(IntArg::Literal(0), length)?;
                let offset = self.cast(offset, DType::I32)?;
                let mut shape = vec![IntArg::Literal(1); rank - 1];
                shape[0] = IntArg::Literal(-1);
                let offset = self.emit(Op::Reshape { x: offset, shape })?;
                self.emit(Op::Add { a: positions, b: offset })?
            }
        };
        let positions = self.cast(positions, DType::F32)?;
        let positions = self.scaled(positions, scale)?;
        let positions = self.emit(Op::ExpandDims { x: positions, axis: -1 })?;
        let pairs = dims / 2;
        let inverse = match freqs {
            Some(freqs) => {
                let freqs = self.cast(freqs, DType::F32)?;
                let [axis, start, stop] = [0, 0, pairs].map(IntArg::Literal);
                let freqs = self.emit(Op::Slice { x: freqs, axis, start, stop, step: 1 })?;
                self.emit(Op::Reciprocal { x: freqs })?
            }
            None => {
                let of = |at: i64| f64::from(base).powf(-2.0 * at as f64 / dims as f64) as f32;
                let bytes: Vec<u8> = (0..pairs).flat_map(|at| of(at).to_le_bytes()).collect();
                let name = format!("rope_{dims}_{base}");
                self.written(Part::Main, &name, DType::F32, &[pairs as usize], &bytes)?
            }
        };
        let angles = self.emit(Op::Multiply { a: positions, b: inverse })?;
        Ok((self.emit(Op::Sin { x: angles })?, self.emit(Op::Cos { x: angles })?))
    }
}
