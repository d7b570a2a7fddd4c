//! Rules of quantised weights: modes, layouts, and how packed sizes relate to the numbers they stand for.

use super::{Results, RuleError, Typing, invalid, one};
use crate::dim::Dim;
use crate::graph::{TensorType, ValueId};
use pteron_tensor::{DType, promote};

impl Typing<'_> {
    #[allow(clippy::too_many_arguments)] // the op's own fields
    pub(crate) fn dequantize(
        &mut self,
        w: ValueId,
        scales: ValueId,
        biases: Option<ValueId>,
        group_size: i32,
        bits: i32,
        mode: &str,
        global_scale: Option<ValueId>,
        dtype: Option<DType>,
    ) -> Results {
        let weights = self.weights(w, scales, biases, group_size, bits, mode)?;
        if let Some(global_scale) = self.maybe(global_scale)? {
            if mode != "nvfp4" {
                return invalid(format!("mode {mode} has no global scale"));
            }
            if !global_scale.dtype.is_float()
                || self.product(&global_scale.shape).is_some_and(|n| n != Dim::known(1))
            {
                return invalid("a global scale is one float");
            }
        }
        let natural = if mode == "affine" { weights.scale_dtype } else { DType::BF16 };
        let dtype = dtype.unwrap_or(natural);
        if !dtype.is_float() {
            return Err(RuleError::DType { what: "the result", got: dtype, want: "a float" });
        }
        one(dtype, weights.shape)
    }

    #[allow(clippy::too_many_arguments)] // the op's own fields
    pub(crate) fn quantized_matmul(
        &mut self,
        x: ValueId,
        w: ValueId,
        scales: ValueId,
        biases: Option<ValueId>,
        group_size: i32,
        bits: i32,
        mode: &str,
        transpose: bool,
    ) -> Results {
        let weights = self.weights(w, scales, biases, group_size, bits, mode)?;
        let x = self.float_tensor("x", x)?;
        let matrix = weights.matrix(transpose)?;
        let shape = self.matmul(&x.shape, &matrix)?;
        one(weights.product_dtype(x, mode), shape)
    }

    #[allow(clippy::too_many_arguments)] // the op's own fields
    pub(crate) fn gather_qmm(
        &mut self,
        x: ValueId,
        w: ValueId,
        scales: ValueId,
        biases: Option<ValueId>,
        lhs: Option<ValueId>,
        rhs: Option<ValueId>,
        group_size: i32,
        bits: i32,
        mode: &str,
        transpose: bool,
    ) -> Results {
        if lhs.is_none() && rhs.is_none() {
            return self.quantized_matmul(x, w, scales, biases, group_size, bits, mode, transpose);
        }
        let weights = self.weights(w, scales, biases, group_size, bits, mode)?;
        let x = self.float_tensor("x", x)?;
        let matrix = weights.matrix(transpose)?;
        let ([batch_x @ .., rows, inner_x], [batch_w @ .., inner_w, columns]) =
            (x.shape.as_slice(), matrix.as_slice())
        else {
            return invalid("picked matrices need two axes each");
        };
        self.same_dim("inner sizes", inner_x, inner_w)?;
        let mut shape = self.picked(batch_x, lhs, batch_w, rhs)?;
        shape.extend([rows.clone(), columns.clone()]);
        one(weights.product_dtype(x, mode), shape)
    }

    fn weights(
        &mut self,
        w: ValueId,
        scales: ValueId,
        biases: Option<ValueId>,
        group_size: i32,
        bits: i32,
        mode: &str,
    ) -> Result<Weights, RuleError> {
        let (w, scales, biases) = (self.tensor(w)?, self.tensor(scales)?, self.maybe(biases)?);
        let form_exists = match mode {
            "affine" => matches!(bits, 2..=6 | 8) && matches!(group_size, 16 | 32 | 64 | 128),
            "mxfp4" => (bits, group_size) == (4, 32),
            "nvfp4" => (bits, group_size) == (4, 16),
            "mxfp8" => (bits, group_size) == (8, 32),
            _ => return invalid(format!("there is no quantisation mode {mode:?}")),
        };
        if !form_exists {
            return invalid(format!("mode {mode} does not come in {bits} bits with groups of {group_size}"));
        }
        if w.dtype != DType::U32 {
            return Err(RuleError::DType { what: "packed weights", got: w.dtype, want: "u32" });
        }
        let affine = mode == "affine";
        if affine != biases.is_some() {
            return invalid(if affine {
                "affine weights need biases"
            } else {
                "only affine weights have biases"
            });
        }
        if affine != scales.dtype.is_float() || (!affine && scales.dtype != DType::U8) {
            let want = if affine { "a float" } else { "u8" };
            return Err(RuleError::DType { what: "scales", got: scales.dtype, want });
        }
        if let Some(biases) = biases {
            if !biases.dtype.is_float() {
                return Err(RuleError::DType { what: "biases", got: biases.dtype, want: "a float" });
            }
            self.same_shape("scales and biases", &scales.shape, &biases.shape)?;
        }
        let ([lead @ .., packed], [lead_scales @ .., groups]) = (w.shape.as_slice(), scales.shape.as_slice())
        else {
            return Err(RuleError::Rank { what: "packed weights", got: 0, want: "1 or more".into() });
        };
        self.same_shape("rows of weights and scales", lead, lead_scales)?;
        let words = packed.scale(32).ok_or(RuleError::Overflow)?;
        let inner = groups.scale(group_size.into()).ok_or(RuleError::Overflow)?;
        let packed_bits = inner.scale(bits.into()).ok_or(RuleError::Overflow)?;
        self.same_dim("bits in a packed row and in its groups", &words, &packed_bits)?;
        let mut shape = lead.to_vec();
        shape.push(inner);
        let scale_dtype = biases.map_or(scales.dtype, |biases| promote(scales.dtype, biases.dtype));
        Ok(Weights { shape, scale_dtype })
    }
}

/// The numbers that packed weights stand for.
struct Weights {
    shape: Vec<Dim>,
    scale_dtype: DType,
}

impl Weights {
    /// As the right-hand matrix of a product.
    fn matrix(&self, transpose: bool) -> Result<Vec<Dim>, RuleError> {
        let mut shape = self.shape.clone();
        let rank = shape.len();
        if rank < 2 {
            return Err(RuleError::Rank { what: "packed weights", got: rank, want: "2 or more".into() });
        }
        if transpose {
            shape.swap(rank - 2, rank - 1);
        }
        Ok(shape)
    }

    fn product_dtype(&self, x: &TensorType, mode: &str) -> DType {
        if mode == "affine" { promote(x.dtype, self.scale_dtype) } else { x.dtype }
    }
}
