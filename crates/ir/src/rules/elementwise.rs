//! Rules of element-wise ops: promotion and broadcasting.

use super::{Results, RuleError, Typing, float_of, one};
use crate::graph::ValueId;
use pteron_tensor::{DType, promote};

impl Typing<'_> {
    pub(crate) fn nothing(&mut self) -> Results {
        Ok(Vec::new())
    }

    pub(crate) fn same(&mut self, x: ValueId) -> Results {
        let x = self.tensor(x)?;
        one(x.dtype, x.shape.clone())
    }

    pub(crate) fn float_unary(&mut self, x: ValueId) -> Results {
        let x = self.tensor(x)?;
        one(float_of(x.dtype), x.shape.clone())
    }

    pub(crate) fn negative(&mut self, x: ValueId) -> Results {
        match self.tensor(x)?.dtype {
            DType::Bool => Err(RuleError::DType { what: "x", got: DType::Bool, want: "a number" }),
            _ => self.same(x),
        }
    }

    pub(crate) fn logical_not(&mut self, x: ValueId) -> Results {
        one(DType::Bool, self.tensor(x)?.shape.clone())
    }

    pub(crate) fn bitwise_invert(&mut self, x: ValueId) -> Results {
        self.bits("x", self.tensor(x)?.dtype)?;
        self.same(x)
    }

    pub(crate) fn arithmetic(&mut self, a: ValueId, b: ValueId) -> Results {
        let (a, b) = (self.tensor(a)?, self.tensor(b)?);
        one(promote(a.dtype, b.dtype), self.broadcast(&a.shape, &b.shape)?)
    }

    pub(crate) fn float_binary(&mut self, a: ValueId, b: ValueId) -> Results {
        let (a, b) = (self.tensor(a)?, self.tensor(b)?);
        one(float_of(promote(a.dtype, b.dtype)), self.broadcast(&a.shape, &b.shape)?)
    }

    pub(crate) fn compare(&mut self, a: ValueId, b: ValueId) -> Results {
        let (a, b) = (self.tensor(a)?, self.tensor(b)?);
        one(DType::Bool, self.broadcast(&a.shape, &b.shape)?)
    }

    pub(crate) fn bitwise(&mut self, a: ValueId, b: ValueId) -> Results {
        self.bits("a", self.tensor(a)?.dtype)?;
        self.bits("b", self.tensor(b)?.dtype)?;
        self.arithmetic(a, b)
    }

    pub(crate) fn choose(&mut self, condition: ValueId, x: ValueId, y: ValueId) -> Results {
        let (condition, x, y) = (self.tensor(condition)?, self.tensor(x)?, self.tensor(y)?);
        let shape = self.broadcast(&x.shape, &y.shape)?;
        one(promote(x.dtype, y.dtype), self.broadcast(&condition.shape, &shape)?)
    }

    pub(crate) fn clip(&mut self, x: ValueId, low: Option<ValueId>, high: Option<ValueId>) -> Results {
        let x = self.tensor(x)?;
        let (mut dtype, mut shape) = (x.dtype, x.shape.clone());
        for bound in [self.maybe(low)?, self.maybe(high)?].into_iter().flatten() {
            dtype = promote(dtype, bound.dtype);
            shape = self.broadcast(&shape, &bound.shape)?;
        }
        one(dtype, shape)
    }

    pub(crate) fn as_type(&mut self, x: ValueId, dtype: DType) -> Results {
        one(dtype, self.tensor(x)?.shape.clone())
    }

    fn bits(&self, what: &'static str, dtype: DType) -> Result<(), RuleError> {
        if dtype.is_float() {
            return Err(RuleError::DType { what, got: dtype, want: "an integer or bool" });
        }
        Ok(())
    }
}
