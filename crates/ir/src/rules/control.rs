//! Rules of integers, branches, loops, random bits and known kernels.

use super::{Results, RuleError, Typing, invalid, one};
use crate::dim::{Dim, Verdict};
use crate::graph::{Block, TensorType, Type, ValueId};
use crate::op::IntArg;
use pteron_tensor::DType;

/// An integer that is a sum of more symbols than this is as good as unknown.
const MOST_TERMS: usize = 8;

/// The least and the largest value of an integer.
type Bounds = (i64, i64);

const EVERY_INT: Bounds = (i32::MIN as i64, i32::MAX as i64);

fn spanning(values: [i64; 4]) -> Bounds {
    values.into_iter().fold((i64::MAX, i64::MIN), |(low, high), value| (low.min(value), high.max(value)))
}

impl Typing<'_> {
    pub(crate) fn item_int(&mut self, x: ValueId) -> Results {
        let x = self.tensor(x)?;
        for dim in &x.shape {
            self.same_dim("a size of a single element and 1", dim, &Dim::known(1))?;
        }
        let value =
            if x.dtype == DType::Bool { self.symbols.fresh_size(Some(1)) } else { self.symbols.fresh_int() };
        Ok(vec![Type::Int(value)])
    }

    pub(crate) fn sym_size(&mut self, x: ValueId, dim: i32) -> Results {
        let x = self.tensor(x)?;
        let at = self.axis(dim.into(), x.shape.len())?;
        Ok(vec![Type::Int(x.shape[at].clone())])
    }

    pub(crate) fn add_int(&mut self, a: &IntArg<ValueId>, b: &IntArg<ValueId>) -> Results {
        self.int_op(a, b, |a, b| a.add(b), |_, _| EVERY_INT)
    }

    pub(crate) fn subtract_int(&mut self, a: &IntArg<ValueId>, b: &IntArg<ValueId>) -> Results {
        self.int_op(a, b, |a, b| a.sub(b), |_, _| EVERY_INT)
    }

    pub(crate) fn multiply_int(&mut self, a: &IntArg<ValueId>, b: &IntArg<ValueId>) -> Results {
        self.int_op(a, b, |a, b| a.mul(b), |a, b| spanning([a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1]))
    }

    pub(crate) fn floor_divide_int(&mut self, a: &IntArg<ValueId>, b: &IntArg<ValueId>) -> Results {
        self.divisor(b)?;
        let quotient = |a: &Dim, b: &Dim| match (a.as_known(), b.as_known()?) {
            (Some(a), b) => Some(Dim::known(floor_divide(a, b)?)),
            (None, b) => a.divide_exactly(b),
        };
        self.int_op(a, b, quotient, |a, b| match b {
            // A divisor is never 0, so that no quotient is farther from 0 than what is divided.
            (0.., _) if b.0 != b.1 => spanning([a.0, a.1, 0, 0]),
            _ if b.0 != b.1 => spanning([a.0, a.1, -a.0, -a.1]),
            _ => {
                let [low, high] = [a.0, a.1].map(|a| floor_divide(a, b.0).unwrap_or(0));
                spanning([low, high, low, high])
            }
        })
    }

    pub(crate) fn mod_int(&mut self, a: &IntArg<ValueId>, b: &IntArg<ValueId>) -> Results {
        self.divisor(b)?;
        let rest = |a: &Dim, b: &Dim| {
            let (a, b) = (a.as_known()?, b.as_known()?);
            Some(Dim::known(a.checked_sub(floor_divide(a, b)?.checked_mul(b)?)?))
        };
        // It has the divisor's sign, and is nearer to 0.
        self.int_op(a, b, rest, |_, b| ((b.0 + 1).min(0), (b.1 - 1).max(0)))
    }

    fn divisor(&mut self, b: &IntArg<ValueId>) -> Result<(), RuleError> {
        if self.int(b)?.as_known() == Some(0) { invalid("division by zero") } else { Ok(()) }
    }

    /// What an op gives: `op` where that is affine, else some number within the bounds that `between` finds.
    fn int_op(
        &mut self,
        a: &IntArg<ValueId>,
        b: &IntArg<ValueId>,
        op: impl Fn(&Dim, &Dim) -> Option<Dim>,
        between: impl Fn(Bounds, Bounds) -> Bounds,
    ) -> Results {
        let (a, b) = (self.int(a)?, self.int(b)?);
        let value = match op(&a, &b) {
            Some(value) => value,
            None if a.as_known().is_some() && b.as_known().is_some() => return Err(RuleError::Overflow),
            None => {
                let bounds = between(self.bounds(&a), self.bounds(&b));
                self.int_within(bounds)
            }
        };
        // Sums of ever more symbols would cost ever more to add to.
        let value = match value.parts().1.len() > MOST_TERMS {
            true => self.int_within(self.bounds(&value)),
            false => value,
        };
        if value.as_known().is_some_and(|value| i32::try_from(value).is_err()) {
            return invalid(format!("{} does not fit 32 bits", self.symbols.show(&value)));
        }
        Ok(vec![Type::Int(value)])
    }

    /// What an integer lies between: it has 32 bits.
    fn bounds(&self, value: &Dim) -> Bounds {
        let clamped =
            |bound: Option<i64>, otherwise: i64| bound.unwrap_or(otherwise).clamp(EVERY_INT.0, EVERY_INT.1);
        (clamped(self.symbols.lower(value), EVERY_INT.0), clamped(self.symbols.upper(value), EVERY_INT.1))
    }

    fn int_within(&mut self, (low, high): Bounds) -> Dim {
        let [low, high] = [low, high].map(|bound| bound.clamp(EVERY_INT.0, EVERY_INT.1));
        Dim::symbol(self.symbols.add("", low, Some(high)))
    }

    /// Both branches yield values of the same kinds, dtypes and ranks; sizes that differ become unknown.
    pub(crate) fn branch(&mut self, cond: &IntArg<ValueId>, then: &Block, otherwise: &Block) -> Results {
        self.int(cond)?;
        if !then.params.is_empty() || !otherwise.params.is_empty() {
            return invalid("a branch takes no parameters");
        }
        if then.results.len() != otherwise.results.len() {
            return invalid(format!(
                "one branch yields {} values, the other {}",
                then.results.len(),
                otherwise.results.len()
            ));
        }
        let pairs = then.results.iter().zip(&otherwise.results);
        pairs.map(|(&then, &otherwise)| self.join(then, otherwise)).collect()
    }

    fn join(&mut self, a: ValueId, b: ValueId) -> Result<Type, RuleError> {
        match (self.ty(a)?, self.ty(b)?) {
            (Type::Tensor(x), Type::Tensor(y)) if x.dtype == y.dtype && x.shape.len() == y.shape.len() => {
                let shape = x.shape.iter().zip(&y.shape).map(|(x, y)| match self.symbols.equal(x, y) {
                    Verdict::Yes => x.clone(),
                    _ => {
                        let most = self.symbols.upper(x).zip(self.symbols.upper(y)).map(|(x, y)| x.max(y));
                        self.symbols.fresh_size(most)
                    }
                });
                Ok(Type::Tensor(TensorType { dtype: x.dtype, shape: shape.collect() }))
            }
            (Type::Int(x), Type::Int(y)) => {
                if x == y {
                    return Ok(Type::Int(x.clone()));
                }
                let (x, y) = (self.bounds(x), self.bounds(y));
                Ok(Type::Int(self.int_within(spanning([x.0, x.1, y.0, y.1]))))
            }
            (Type::Float, Type::Float) => Ok(Type::Float),
            (Type::Bool, Type::Bool) => Ok(Type::Bool),
            _ => invalid(format!("values of different types meet: %{} and %{}", a.0, b.0)),
        }
    }

    /// The body's parameters are the slices and the carried values, its results what is stacked and the next
    /// carried values.
    pub(crate) fn scan(
        &mut self,
        originals: &[ValueId],
        carry: &[ValueId],
        body: &Block,
        axis: i32,
    ) -> Results {
        let Some(&first) = originals.first() else { return invalid("nothing to scan") };
        let first = self.tensor(first)?;
        let steps = first.shape[self.axis(axis.into(), first.shape.len())?].clone();
        if body.params.len() != originals.len() + carry.len() || body.results.len() < carry.len() {
            return invalid(format!(
                "{} slices and {} carried values for a body with {} parameters and {} results",
                originals.len(),
                carry.len(),
                body.params.len(),
                body.results.len()
            ));
        }
        let (slices, carried) = body.params.split_at(originals.len());
        for (&original, &slice) in originals.iter().zip(slices) {
            let (original, slice) = (self.tensor(original)?, self.tensor(slice)?);
            let mut shape = original.shape.clone();
            let length = shape.remove(self.axis(axis.into(), shape.len())?);
            self.same_dim("lengths of scanned tensors", &steps, &length)?;
            self.same_type(original.dtype, &shape, slice)?;
        }
        let (outputs, next) = body.results.split_at(body.results.len() - carry.len());
        for ((&start, &param), &next) in carry.iter().zip(carried).zip(next) {
            let (start, param, next) = (self.tensor(start)?, self.tensor(param)?, self.tensor(next)?);
            self.same_type(start.dtype, &start.shape, param)?;
            self.same_type(param.dtype, &param.shape, next)?;
        }
        let mut types = Vec::with_capacity(body.results.len());
        for &output in outputs {
            let output = self.tensor(output)?;
            let mut shape = output.shape.clone();
            let at = self.axis(axis.into(), shape.len() + 1)?;
            shape.insert(at, steps.clone());
            types.push(Type::Tensor(TensorType { dtype: output.dtype, shape }));
        }
        for &param in carried {
            types.push(Type::Tensor(self.tensor(param)?.clone()));
        }
        Ok(types)
    }

    fn same_type(&self, dtype: DType, shape: &[Dim], other: &TensorType) -> Result<(), RuleError> {
        if dtype != other.dtype {
            return Err(RuleError::DType {
                what: "a value that a loop passes on",
                got: other.dtype,
                want: dtype.name(),
            });
        }
        self.same_shape("shapes of a value that a loop passes on", shape, &other.shape).map(drop)
    }

    pub(crate) fn random_bits(
        &mut self,
        shape: &[IntArg<ValueId>],
        seed: Option<ValueId>,
        width: i32,
    ) -> Results {
        if let Some(seed) = seed {
            self.int(&IntArg::Value(seed))?;
        }
        let dtype = match width {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => return invalid(format!("random elements of {width} bytes")),
        };
        one(dtype, self.sizes(shape)?)
    }

    /// Shapes and dtypes are what the node says; whether a known kernel gives them is the backend's to check.
    pub(crate) fn metal_kernel(
        &mut self,
        inputs: &[ValueId],
        shapes: Option<&[IntArg<ValueId>]>,
        ranks: Option<&[i32]>,
        dtypes: Option<&[DType]>,
    ) -> Results {
        for &input in inputs {
            self.tensor(input)?;
        }
        let mut sizes = self.sizes(shapes.unwrap_or_default())?.into_iter();
        let (ranks, dtypes) = (ranks.unwrap_or_default(), dtypes.unwrap_or_default());
        if ranks.len() != dtypes.len() {
            return invalid(format!("{} output shapes and {} output dtypes", ranks.len(), dtypes.len()));
        }
        let mut types = Vec::with_capacity(ranks.len());
        for (&rank, &dtype) in ranks.iter().zip(dtypes) {
            let rank = usize::try_from(rank).map_err(|_| RuleError::Invalid(format!("rank {rank}")))?;
            let shape: Vec<Dim> = sizes.by_ref().take(rank).collect();
            if shape.len() != rank {
                return invalid("fewer sizes than the output ranks need");
            }
            types.push(Type::Tensor(TensorType { dtype, shape }));
        }
        if sizes.next().is_some() {
            return invalid("more sizes than the output ranks need");
        }
        Ok(types)
    }
}

fn floor_divide(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}
