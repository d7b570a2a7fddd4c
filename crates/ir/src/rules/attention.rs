//! Rules of norms, rotary positions and attention.

use super::{Results, RuleError, Typing, invalid, one};
use crate::dim::Dim;
use crate::graph::{TensorType, ValueId};
use crate::op::OffsetArg;
use pteron_tensor::{DType, promote};

impl<'a> Typing<'a> {
    pub(crate) fn rms_norm(&mut self, x: ValueId, weight: Option<ValueId>) -> Results {
        let x = self.normalised(x)?;
        let weight = self.per_feature("a weight", weight, x)?;
        one(weight.map_or(x.dtype, |weight| promote(x.dtype, weight)), x.shape.clone())
    }

    pub(crate) fn layer_norm(
        &mut self,
        x: ValueId,
        weight: Option<ValueId>,
        bias: Option<ValueId>,
    ) -> Results {
        let x = self.normalised(x)?;
        let weight = self.per_feature("a weight", weight, x)?;
        let bias = self.per_feature("a bias", bias, x)?;
        // With a bias and no weight MLX keeps x's dtype.
        let dtype =
            weight.map_or(x.dtype, |weight| promote(promote(x.dtype, weight), bias.unwrap_or(weight)));
        one(dtype, x.shape.clone())
    }

    fn normalised(&self, x: ValueId) -> Result<&'a TensorType, RuleError> {
        let x = self.float_tensor("x", x)?;
        if x.shape.is_empty() {
            return Err(RuleError::Rank { what: "x", got: 0, want: "1 or more".into() });
        }
        Ok(x)
    }

    fn per_feature(
        &self,
        what: &'static str,
        value: Option<ValueId>,
        x: &TensorType,
    ) -> Result<Option<DType>, RuleError> {
        let Some(value) = value else { return Ok(None) };
        let tensor = self.float_tensor(what, value)?;
        let [size] = tensor.shape.as_slice() else {
            return Err(RuleError::Rank { what, got: tensor.shape.len(), want: "1".into() });
        };
        self.same_dim("features and their weights", &x.shape[x.shape.len() - 1], size)?;
        Ok(Some(tensor.dtype))
    }

    pub(crate) fn rope(
        &mut self,
        x: ValueId,
        dims: i32,
        offset: &OffsetArg<ValueId, ValueId>,
        freqs: Option<ValueId>,
    ) -> Results {
        let x = self.float_tensor("x", x)?;
        let rank = x.shape.len();
        if rank < 3 {
            return Err(RuleError::Rank { what: "x", got: rank, want: "3 or more".into() });
        }
        let too_many = x.shape[rank - 1].as_known().is_some_and(|features| i64::from(dims) > features);
        if dims <= 0 || dims % 2 != 0 || too_many {
            return invalid(format!("{dims} rotated features of {}", self.symbols.show(&x.shape[rank - 1])));
        }
        match *offset {
            OffsetArg::Value(value) => {
                self.int(&crate::op::IntArg::Value(value))?;
            }
            OffsetArg::Tensor(offset) => {
                let offset = self.int_tensor("an offset", offset)?;
                let count = self.product(&offset.shape);
                if let Some(count) = count.filter(|count| *count != Dim::known(1)) {
                    self.same_dim("offsets and batch rows", &count, &x.shape[0])?;
                }
            }
        }
        if let Some(freqs) = freqs {
            let freqs = self.float_tensor("freqs", freqs)?;
            self.same_shape(
                "periods and half the rotated features",
                &freqs.shape,
                &[Dim::known((dims / 2).into())],
            )?;
        }
        one(x.dtype, x.shape.clone())
    }

    pub(crate) fn sdpa(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        mask: Option<ValueId>,
        causal: bool,
    ) -> Results {
        let (q, k, v) = self.attended(q, k, v)?;
        let (queries, keys) = (&q.shape[2], &k.shape[2]);
        if let Some(mask) = self.maybe(mask)? {
            if causal {
                return invalid("a mask together with the causal one");
            }
            let scores = [q.shape[0].clone(), q.shape[1].clone(), queries.clone(), keys.clone()];
            self.broadcasts_to("a mask and the scores", &mask.shape, &scores)?;
        }
        let shape = vec![q.shape[0].clone(), q.shape[1].clone(), queries.clone(), v.shape[3].clone()];
        one(promote(promote(q.dtype, k.dtype), v.dtype), shape)
    }

    #[allow(clippy::too_many_arguments)] // the op's own fields
    pub(crate) fn update_and_attend(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        position: ValueId,
        layer_id: Option<i32>,
        scale: Option<f32>,
        out_dtype: Option<DType>,
    ) -> Results {
        let (q, k, v) = self.attended(q, k, v)?;
        let position = self.int_tensor("a position", position)?;
        if position.shape.iter().any(|dim| dim.as_known() == Some(0)) {
            return invalid("a position needs an element");
        }
        // That of the first token, or one for each; in a column that of the first and the last that all of them see.
        let is_column = matches!(&position.shape[..], [rows, one] if rows.as_known() == Some(2) && one.as_known() == Some(1));
        if !is_column
            && let Some(count) =
                self.product(&position.shape).and_then(|count| count.as_known()).filter(|&count| count != 1)
            && let Some(tokens) = q.shape[2].as_known().filter(|&tokens| tokens != count)
        {
            return invalid(format!("{count} positions for {tokens} tokens"));
        }
        if layer_id.is_none_or(|layer| layer < 0) || scale.is_none() {
            return invalid("layer_id and scale must be given");
        }
        for (what, dim) in
            [("the cache's batch and 1", &q.shape[0]), ("the cache's batch and 1", &k.shape[0])]
        {
            self.same_dim(what, dim, &Dim::known(1))?;
        }
        self.same_dim("features of keys and values", &k.shape[3], &v.shape[3])?;
        self.same_dim("lengths of queries and keys", &q.shape[2], &k.shape[2])?;
        let out_dtype = out_dtype.unwrap_or(q.dtype);
        if !out_dtype.is_float() {
            return Err(RuleError::DType { what: "out_dtype", got: out_dtype, want: "a float" });
        }
        one(out_dtype, q.shape.clone())
    }

    /// Queries, keys and values that fit together, all of rank 4.
    fn attended(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
    ) -> Result<(&'a TensorType, &'a TensorType, &'a TensorType), RuleError> {
        let (q, k, v) = (self.float_tensor("q", q)?, self.float_tensor("k", k)?, self.float_tensor("v", v)?);
        for (what, tensor) in [("q", q), ("k", k), ("v", v)] {
            if tensor.shape.len() != 4 {
                return Err(RuleError::Rank { what, got: tensor.shape.len(), want: "4".into() });
            }
        }
        self.same_dim("batches of q and k", &q.shape[0], &k.shape[0])?;
        self.same_shape("batches, heads and lengths of k and v", &k.shape[..3], &v.shape[..3])?;
        self.same_dim("features of q and k", &q.shape[3], &k.shape[3])?;
        if let (Some(heads), Some(shared)) = (q.shape[1].as_known(), k.shape[1].as_known())
            && (shared == 0 || heads % shared != 0)
        {
            return invalid(format!("{heads} query heads over {shared} key heads"));
        }
        Ok((q, k, v))
    }
}
