//! Rules of matrix products and convolutions.

use super::{Results, RuleError, Typing, invalid, one};
use crate::dim::Dim;
use crate::graph::{TensorType, ValueId};
use pteron_tensor::promote;

impl Typing<'_> {
    pub(crate) fn addmm(&mut self, mat1: ValueId, mat2: ValueId, bias: Option<ValueId>) -> Results {
        let (a, b) = (self.float_tensor("mat1", mat1)?, self.float_tensor("mat2", mat2)?);
        let shape = self.matmul(&a.shape, &b.shape)?;
        let mut dtype = promote(a.dtype, b.dtype);
        if let Some(bias) = bias {
            let bias = self.float_tensor("bias", bias)?;
            self.broadcasts_to("a bias and the product", &bias.shape, &shape)?;
            dtype = promote(dtype, bias.dtype);
        }
        one(dtype, shape)
    }

    /// Numpy's rules: vectors are rows on the left and columns on the right, leading axes broadcast.
    pub(super) fn matmul(&mut self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, RuleError> {
        for (what, shape) in [("the left matrix", a), ("the right matrix", b)] {
            if shape.is_empty() {
                return Err(RuleError::Rank { what, got: 0, want: "1 or more".into() });
            }
        }
        let (rows, batch_a) = match a {
            [_] => (None, &[][..]),
            [batch @ .., rows, _] => (Some(rows), batch),
            [] => (None, &[][..]),
        };
        let (columns, inner_b, batch_b) = match b {
            [batch @ .., inner, columns] => (Some(columns), inner, batch),
            _ => (None, &b[0], &[][..]),
        };
        self.same_dim("inner sizes", &a[a.len() - 1], inner_b)?;
        let mut shape = self.broadcast(batch_a, batch_b)?;
        shape.extend(rows.cloned());
        shape.extend(columns.cloned());
        Ok(shape)
    }

    pub(crate) fn gather_mm(
        &mut self,
        a: ValueId,
        b: ValueId,
        lhs: Option<ValueId>,
        rhs: Option<ValueId>,
    ) -> Results {
        let (a, b) = (self.float_tensor("a", a)?, self.float_tensor("b", b)?);
        let dtype = promote(a.dtype, b.dtype);
        if lhs.is_none() && rhs.is_none() {
            return one(dtype, self.matmul(&a.shape, &b.shape)?);
        }
        let ([batch_a @ .., rows, inner_a], [batch_b @ .., inner_b, columns]) =
            (a.shape.as_slice(), b.shape.as_slice())
        else {
            return invalid("picked matrices need two axes each");
        };
        self.same_dim("inner sizes", inner_a, inner_b)?;
        let mut shape = self.picked(batch_a, lhs, batch_b, rhs)?;
        shape.extend([rows.clone(), columns.clone()]);
        one(dtype, shape)
    }

    /// The shape of the pairs that two lists of picks name; a missing list names every matrix in turn.
    pub(super) fn picked(
        &mut self,
        batch_a: &[Dim],
        lhs: Option<ValueId>,
        batch_b: &[Dim],
        rhs: Option<ValueId>,
    ) -> Result<Vec<Dim>, RuleError> {
        let of = |rules: &Self, picks: Option<ValueId>, batch: &[Dim]| match picks {
            Some(picks) => Ok(rules.int_tensor("an index", picks)?.shape.clone()),
            None => Ok(batch.to_vec()),
        };
        let (lhs, rhs) = (of(self, lhs, batch_a)?, of(self, rhs, batch_b)?);
        self.broadcast(&lhs, &rhs)
    }

    pub(crate) fn conv(
        &mut self,
        x: ValueId,
        w: ValueId,
        stride: &[i32],
        padding: &[i32],
        dilation: &[i32],
        groups: i32,
    ) -> Results {
        let (x, w) = self.conv_operands(x, w, stride, padding, dilation, groups)?;
        let mut shape = vec![x.shape[0].clone()];
        for axis in 0..stride.len() {
            let reach = reach(&w.shape[axis + 1], dilation[axis])?;
            // in + 2 * padding - reach positions, every stride-th of them, and the first.
            let room = x.shape[axis + 1]
                .add(&Dim::known(2 * i64::from(padding[axis])))
                .and_then(|padded| padded.sub(&reach))
                .ok_or(RuleError::Overflow)?;
            if self.symbols.upper(&room).is_some_and(|most| most < 0) {
                return invalid(format!("the kernel reaches beyond {}", self.show(&x.shape)));
            }
            let step = i64::from(stride[axis]);
            shape.push(match (room.as_known(), step) {
                (_, 1) => room.add(&Dim::known(1)).ok_or(RuleError::Overflow)?,
                (Some(room), _) => Dim::known(room / step + 1),
                (None, _) => {
                    let most = self.symbols.upper(&room).map(|most| most / step + 1);
                    self.symbols.fresh_size(most)
                }
            });
        }
        shape.push(w.shape[0].clone());
        one(promote(x.dtype, w.dtype), shape)
    }

    #[allow(clippy::too_many_arguments)] // one list a setting, as in the op
    pub(crate) fn conv_transpose(
        &mut self,
        x: ValueId,
        w: ValueId,
        stride: &[i32],
        padding: &[i32],
        dilation: &[i32],
        output_padding: &[i32],
        groups: i32,
    ) -> Results {
        let (x, w) = self.conv_operands(x, w, stride, padding, dilation, groups)?;
        let mut shape = vec![x.shape[0].clone()];
        for axis in 0..stride.len() {
            if output_padding[axis] < 0 {
                return invalid(format!("output padding {}", output_padding[axis]));
            }
            let reach = reach(&w.shape[axis + 1], dilation[axis])?;
            let fixed = i64::from(output_padding[axis]) - 2 * i64::from(padding[axis]);
            let size = x.shape[axis + 1]
                .sub(&Dim::known(1))
                .and_then(|gaps| gaps.scale(stride[axis].into()))
                .and_then(|span| span.add(&reach))
                .and_then(|span| span.add(&Dim::known(fixed)))
                .ok_or(RuleError::Overflow)?;
            if self.symbols.upper(&size).is_some_and(|most| most < 0) {
                return invalid(format!("padding leaves nothing of {}", self.show(&x.shape)));
            }
            shape.push(size);
        }
        shape.push(w.shape[0].clone());
        one(promote(x.dtype, w.dtype), shape)
    }

    fn conv_operands(
        &mut self,
        x: ValueId,
        w: ValueId,
        stride: &[i32],
        padding: &[i32],
        dilation: &[i32],
        groups: i32,
    ) -> Result<(TensorType, TensorType), RuleError> {
        let (x, w) = (self.float_tensor("x", x)?.clone(), self.float_tensor("w", w)?.clone());
        let rank = stride.len() + 2;
        for (what, tensor) in [("x", &x), ("w", &w)] {
            if tensor.shape.len() != rank {
                return Err(RuleError::Rank { what, got: tensor.shape.len(), want: rank.to_string() });
            }
        }
        let positive = |list: &[i32]| list.iter().all(|&value| value > 0);
        if !positive(stride) || !positive(dilation) || groups <= 0 || padding.iter().any(|&value| value < 0) {
            return invalid(format!(
                "stride {stride:?}, padding {padding:?}, dilation {dilation:?}, groups {groups}: strides, dilations \
                 and groups are at least 1, paddings at least 0"
            ));
        }
        let channels = w.shape[rank - 1].scale(groups.into()).ok_or(RuleError::Overflow)?;
        self.same_dim("channels of x and w", &x.shape[rank - 1], &channels)?;
        if w.shape[0].as_known().is_some_and(|out| out % i64::from(groups) != 0) {
            return invalid(format!("{} output channels in {groups} groups", self.symbols.show(&w.shape[0])));
        }
        Ok((x, w))
    }
}

/// How many positions a dilated kernel covers.
fn reach(kernel: &Dim, dilation: i32) -> Result<Dim, RuleError> {
    kernel
        .sub(&Dim::known(1))
        .and_then(|gaps| gaps.scale(dilation.into()))
        .and_then(|span| span.add(&Dim::known(1)))
        .ok_or(RuleError::Overflow)
}
