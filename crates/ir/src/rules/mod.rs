//! The type rule of every op: what operands must be, and what the results then are.
//!
//! Rules work on symbolic types at lift time and on known ones at run time; it is the same code. What cannot be
//! decided symbolically is let through and gets a fresh symbol, because the run checks it again with numbers.
//! A rule that was given known sizes gives known sizes, except for integers read out of tensors.

mod attention;
mod control;
mod elementwise;
mod index;
mod linear;
mod quantized;
mod reduce;
mod shape;

pub use shape::{SliceRange, slice_range};

use crate::dim::{Dim, Symbols, Verdict};
use crate::expand::{self, Expansion};
use crate::graph::{Ssa, TensorType, Type, ValueId};
use crate::op::{IntArg, Op};
use pteron_tensor::DType;

/// Why an op cannot have these operands. Whoever applies the rule adds the op and its place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum RuleError {
    #[error("%{} is not defined here", .0.0)]
    Undefined(ValueId),
    #[error("%{} is not {want}", .value.0)]
    Kind { value: ValueId, want: &'static str },
    #[error("{what} cannot be {got}; {want} is needed")]
    DType { what: &'static str, got: DType, want: &'static str },
    #[error("{what} has rank {got}; {want} is needed")]
    Rank { what: &'static str, got: usize, want: String },
    #[error("axis {axis} is outside a tensor of rank {rank}")]
    Axis { axis: i64, rank: usize },
    #[error("{what} differ: {a} and {b}")]
    Dims { what: &'static str, a: String, b: String },
    #[error("{0}")]
    Invalid(String),
    #[error("a size overflows 64 bits")]
    Overflow,
}

/// What a rule gives: the types of the results in order.
pub type Results = Result<Vec<Type>, RuleError>;

/// Knows the types of values.
pub trait TypeSource {
    /// The type of a value, if it is defined.
    fn type_of(&self, value: ValueId) -> Option<&Type>;
}

/// The types of the results of `op`. New symbols are made where a size cannot be told from the operands.
pub fn infer(op: &Op<Ssa>, types: &dyn TypeSource, symbols: &mut Symbols) -> Results {
    crate::op::apply_rule(op, &mut Typing { types, symbols })
}

/// What rules work with: the operands' types and the symbols they are written in.
pub struct Typing<'a> {
    types: &'a dyn TypeSource,
    symbols: &'a mut Symbols,
}

impl Typing<'_> {
    /// The types of what an internal op gives: those of the plain ops that it stands for.
    pub(crate) fn expanded(&mut self, op: &Op<Ssa>) -> Results {
        let expansion = Expansion::of(op)?;
        let mut made = Made { outer: self.types, types: Vec::new() };
        for op in &expansion.ops {
            // Plain ops of an expansion give one value each.
            let types = infer(op, &made, self.symbols)?;
            made.types.extend(types);
        }
        let given = expansion.given.iter().map(|&value| made.type_of(value).cloned());
        given.collect::<Option<Vec<_>>>().ok_or_else(|| RuleError::Invalid("an op that gives nothing".into()))
    }
}

/// Types around an expansion, and of what it has made so far.
struct Made<'a> {
    outer: &'a dyn TypeSource,
    types: Vec<Type>,
}

impl TypeSource for Made<'_> {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        match expand::made_at(value) {
            Some(at) => self.types.get(at),
            None => self.outer.type_of(value),
        }
    }
}

fn one(dtype: DType, shape: Vec<Dim>) -> Results {
    Ok(vec![Type::Tensor(TensorType { dtype, shape })])
}

fn invalid<T>(message: impl Into<String>) -> Result<T, RuleError> {
    Err(RuleError::Invalid(message.into()))
}

/// The float dtype in which a function of `dtype` is computed: integers and bools go to f32.
fn float_of(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

impl<'a> Typing<'a> {
    fn ty(&self, value: ValueId) -> Result<&'a Type, RuleError> {
        self.types.type_of(value).ok_or(RuleError::Undefined(value))
    }

    fn tensor(&self, value: ValueId) -> Result<&'a TensorType, RuleError> {
        match self.ty(value)? {
            Type::Tensor(tensor) => Ok(tensor),
            _ => Err(RuleError::Kind { value, want: "a tensor" }),
        }
    }

    fn maybe(&self, value: Option<ValueId>) -> Result<Option<&'a TensorType>, RuleError> {
        value.map(|value| self.tensor(value)).transpose()
    }

    fn float_tensor(&self, what: &'static str, value: ValueId) -> Result<&'a TensorType, RuleError> {
        let tensor = self.tensor(value)?;
        if tensor.dtype.is_float() {
            Ok(tensor)
        } else {
            Err(RuleError::DType { what, got: tensor.dtype, want: "a float" })
        }
    }

    fn int_tensor(&self, what: &'static str, value: ValueId) -> Result<&'a TensorType, RuleError> {
        let tensor = self.tensor(value)?;
        if tensor.dtype.is_int() {
            Ok(tensor)
        } else {
            Err(RuleError::DType { what, got: tensor.dtype, want: "an integer" })
        }
    }

    fn int(&mut self, arg: &IntArg<ValueId>) -> Result<Dim, RuleError> {
        match *arg {
            IntArg::Literal(value) => Ok(Dim::known(value)),
            IntArg::Value(value) => match self.ty(value)? {
                Type::Int(dim) => Ok(dim.clone()),
                Type::Bool => Ok(self.symbols.fresh_size(Some(1))),
                _ => Err(RuleError::Kind { value, want: "an integer" }),
            },
        }
    }

    /// A list of sizes, none of them negative.
    fn sizes(&mut self, args: &[IntArg<ValueId>]) -> Result<Vec<Dim>, RuleError> {
        let dims = args.iter().map(|arg| self.int(arg)).collect::<Result<Vec<_>, _>>()?;
        for dim in &dims {
            if self.symbols.upper(dim).is_some_and(|most| most < 0) {
                return invalid(format!("{} is not a size", self.symbols.show(dim)));
            }
        }
        Ok(dims)
    }

    fn show(&self, shape: &[Dim]) -> String {
        let dims: Vec<String> = shape.iter().map(|dim| self.symbols.show(dim)).collect();
        format!("[{}]", dims.join(", "))
    }

    /// Refuses what is provably different; the shorter-known of the two is kept.
    fn same_dim(&self, what: &'static str, a: &Dim, b: &Dim) -> Result<Dim, RuleError> {
        match self.symbols.equal(a, b) {
            Verdict::No => Err(RuleError::Dims { what, a: self.symbols.show(a), b: self.symbols.show(b) }),
            _ if b.as_known().is_some() => Ok(b.clone()),
            _ => Ok(a.clone()),
        }
    }

    fn same_shape(&self, what: &'static str, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, RuleError> {
        if a.len() != b.len() {
            return Err(RuleError::Dims { what, a: self.show(a), b: self.show(b) });
        }
        a.iter().zip(b).map(|(a, b)| self.same_dim(what, a, b)).collect()
    }

    fn broadcast_dim(&mut self, a: &Dim, b: &Dim) -> Result<Dim, RuleError> {
        match (a.as_known(), b.as_known()) {
            (Some(1), _) => Ok(b.clone()),
            (_, Some(1)) => Ok(a.clone()),
            (Some(_), Some(_)) => self.same_dim("sizes that should broadcast", a, b),
            // The unknown one is 1 or the same when this runs.
            (Some(_), None) => Ok(a.clone()),
            (None, Some(_)) => Ok(b.clone()),
            (None, None) if a == b => Ok(a.clone()),
            (None, None) => {
                let bound = self.symbols.upper(a).zip(self.symbols.upper(b)).map(|(a, b)| a.max(b));
                Ok(self.symbols.fresh_size(bound))
            }
        }
    }

    fn broadcast(&mut self, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, RuleError> {
        let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
        let lead = long.len() - short.len();
        let mut shape = long[..lead].to_vec();
        for (x, y) in long[lead..].iter().zip(short) {
            let dim = self.broadcast_dim(x, y).map_err(|_| RuleError::Dims {
                what: "shapes that should broadcast",
                a: self.show(a),
                b: self.show(b),
            })?;
            shape.push(dim);
        }
        Ok(shape)
    }

    /// Refuses a shape that provably does not broadcast to another one of the same or a higher rank.
    fn broadcasts_to(&self, what: &'static str, from: &[Dim], to: &[Dim]) -> Result<(), RuleError> {
        let fits = from.len() <= to.len()
            && from.iter().rev().zip(to.iter().rev()).all(|(from, to)| {
                // A symbol may be 1 when this runs.
                self.symbols.equal(from, &Dim::known(1)) != Verdict::No
                    || self.symbols.equal(from, to) != Verdict::No
            });
        if fits { Ok(()) } else { Err(RuleError::Dims { what, a: self.show(from), b: self.show(to) }) }
    }

    /// An axis counted from the front.
    fn axis(&self, axis: i64, rank: usize) -> Result<usize, RuleError> {
        let counted = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match counted {
            Some(at) if at >= 0 && (at as usize) < rank => Ok(at as usize),
            _ => Err(RuleError::Axis { axis, rank }),
        }
    }

    /// The same, where a tensor of rank 0 counts as one element along axis 0 or -1, as in PyTorch.
    fn axis_or_scalar(&self, axis: i64, rank: usize) -> Result<Option<usize>, RuleError> {
        if rank == 0 && (axis == 0 || axis == -1) {
            return Ok(None);
        }
        self.axis(axis, rank).map(Some)
    }

    fn product(&mut self, dims: &[Dim]) -> Option<Dim> {
        dims.iter().try_fold(Dim::known(1), |product, dim| product.mul(dim))
    }

    fn times(&mut self, a: &Dim, b: &Dim) -> Result<Dim, RuleError> {
        match a.mul(b) {
            Some(dim) => Ok(dim),
            None if a.as_known().is_some() && b.as_known().is_some() => Err(RuleError::Overflow),
            None => {
                let bound = self.symbols.upper(a).zip(self.symbols.upper(b));
                Ok(self.symbols.fresh_size(bound.and_then(|(a, b)| a.checked_mul(b))))
            }
        }
    }
}
