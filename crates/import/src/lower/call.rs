//! One operator's call with its arguments resolved to values of the graph that is being built.
//!
//! Arguments are asked for by the names of torch's schemas; defaults stand where they are asked for, since files
//! leave them out.

use super::context::Weight;
use super::error::{Lowered, Refusal};
use crate::pt2::argument::{ScalarType, TensorMeta};
use crate::pt2::schema::Node;
use pteron_ir::ValueId;
use pteron_ir::op::IntArg;
use pteron_tensor::DType;
use std::rc::Rc;

/// An integer that is a number or a value.
pub(crate) type Int = IntArg<ValueId>;

/// An argument.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    None,
    Tensor(ValueId),
    /// A weight of several tensors that stands for one.
    Weight(Rc<Weight>),
    Tensors(Vec<ValueId>),
    MaybeTensors(Vec<Option<ValueId>>),
    Int(Int),
    Ints(Vec<Int>),
    Float(f64),
    Bool(bool),
    Text(String),
    Type(ScalarType),
    /// Memory formats, devices and whatever else says nothing about values.
    Other,
}

/// A number of the source model: promotion depends on which kind it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Bool(bool),
    Int(i64),
    Float(f64),
    /// An integer that is known only when the program runs.
    Value(ValueId),
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) node: &'a Node,
    pub(crate) args: Vec<(&'a str, Arg)>,
    /// What is recorded of each tensor that it gives, in order.
    pub(crate) results: Vec<&'a TensorMeta>,
}

impl Call<'_> {
    /// The operator with its overload, without the namespace's prefix.
    pub(crate) fn operator(&self) -> &str {
        self.node.target.strip_prefix("torch.ops.").unwrap_or(&self.node.target)
    }

    fn get(&self, name: &str) -> Option<&Arg> {
        self.args.iter().find(|(known, _)| *known == name).map(|(_, arg)| arg)
    }

    /// An argument by position, for Python's own functions, whose arguments have no names.
    pub(crate) fn at(&self, position: usize) -> Lowered<&Arg> {
        let found = self.args.get(position).map(|(_, arg)| arg);
        found.ok_or_else(|| Refusal::because(format!("there is no argument {position}")))
    }

    fn wrong<T>(&self, name: &str, wanted: &str) -> Lowered<T> {
        match self.get(name) {
            Some(found) => {
                Err(Refusal::because(format!("argument `{name}` is {found:?}; {wanted} is needed")))
            }
            None => Err(Refusal::because(format!("argument `{name}`, {wanted}, is missing"))),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !matches!(self.get(name), None | Some(Arg::None))
    }

    /// The argument as it was given.
    pub(crate) fn raw(&self, name: &str) -> Lowered<&Arg> {
        self.get(name).map_or_else(|| self.wrong(name, "anything"), Ok)
    }

    pub(crate) fn tensor(&self, name: &str) -> Lowered<ValueId> {
        match self.get(name) {
            Some(Arg::Tensor(value)) => Ok(*value),
            Some(Arg::Weight(_)) => Err(Refusal::because(format!(
                "argument `{name}` is a packed weight, which only a few operators take"
            ))),
            _ => self.wrong(name, "a tensor"),
        }
    }

    pub(crate) fn maybe_tensor(&self, name: &str) -> Lowered<Option<ValueId>> {
        if self.has(name) { self.tensor(name).map(Some) } else { Ok(None) }
    }

    pub(crate) fn tensors(&self, name: &str) -> Lowered<Vec<ValueId>> {
        match self.get(name) {
            Some(Arg::Tensors(values)) => Ok(values.clone()),
            _ => self.wrong(name, "a list of tensors"),
        }
    }

    pub(crate) fn maybe_tensors(&self, name: &str) -> Lowered<Vec<Option<ValueId>>> {
        match self.get(name) {
            Some(Arg::MaybeTensors(values)) => Ok(values.clone()),
            Some(Arg::Tensors(values)) => Ok(values.iter().copied().map(Some).collect()),
            _ => self.wrong(name, "a list of tensors"),
        }
    }

    /// An integer that may be known only when the program runs.
    pub(crate) fn any_int(&self, name: &str, default: i64) -> Lowered<Int> {
        match self.get(name) {
            None | Some(Arg::None) => Ok(Int::Literal(default)),
            Some(Arg::Int(value)) => Ok(*value),
            Some(Arg::Bool(value)) => Ok(Int::Literal(i64::from(*value))),
            _ => self.wrong(name, "an integer"),
        }
    }

    pub(crate) fn maybe_any_int(&self, name: &str) -> Lowered<Option<Int>> {
        if self.has(name) { self.any_int(name, 0).map(Some) } else { Ok(None) }
    }

    /// An integer that must be known.
    pub(crate) fn int(&self, name: &str, default: i64) -> Lowered<i64> {
        match self.any_int(name, default)? {
            Int::Literal(value) => Ok(value),
            Int::Value(_) => Err(Refusal::because(format!("argument `{name}` depends on the input"))),
        }
    }

    pub(crate) fn maybe_int(&self, name: &str) -> Lowered<Option<i64>> {
        if self.has(name) { self.int(name, 0).map(Some) } else { Ok(None) }
    }

    /// A list of integers, some of them known only when the program runs. One integer is a list of one.
    pub(crate) fn any_ints(&self, name: &str) -> Lowered<Vec<Int>> {
        match self.get(name) {
            Some(Arg::Ints(values)) => Ok(values.clone()),
            Some(Arg::Int(value)) => Ok(vec![*value]),
            _ => self.wrong(name, "a list of integers"),
        }
    }

    pub(crate) fn ints(&self, name: &str) -> Lowered<Vec<i64>> {
        let known = |value: &Int| match value {
            Int::Literal(value) => Ok(*value),
            Int::Value(_) => Err(Refusal::because(format!("argument `{name}` depends on the input"))),
        };
        self.any_ints(name)?.iter().map(known).collect()
    }

    pub(crate) fn maybe_ints(&self, name: &str) -> Lowered<Option<Vec<i64>>> {
        if self.has(name) { self.ints(name).map(Some) } else { Ok(None) }
    }

    /// As many integers as there are spatial dims; one stands for all, none for the default.
    pub(crate) fn spatial(&self, name: &str, dims: usize, default: i64) -> Lowered<Vec<i64>> {
        let given = self.maybe_ints(name)?.unwrap_or_default();
        match given.len() {
            0 => Ok(vec![default; dims]),
            1 => Ok(vec![given[0]; dims]),
            count if count == dims => Ok(given),
            count => Err(Refusal::because(format!("argument `{name}` has {count} numbers for {dims} dims"))),
        }
    }

    pub(crate) fn float(&self, name: &str, default: f64) -> Lowered<f64> {
        match self.get(name) {
            None | Some(Arg::None) => Ok(default),
            Some(Arg::Float(value)) => Ok(*value),
            Some(Arg::Int(Int::Literal(value))) => Ok(*value as f64),
            Some(Arg::Bool(value)) => Ok(f64::from(u8::from(*value))),
            _ => self.wrong(name, "a number"),
        }
    }

    pub(crate) fn maybe_float(&self, name: &str) -> Lowered<Option<f64>> {
        if self.has(name) { self.float(name, 0.0).map(Some) } else { Ok(None) }
    }

    pub(crate) fn scalar(&self, name: &str) -> Lowered<Scalar> {
        match self.get(name) {
            Some(Arg::Float(value)) => Ok(Scalar::Float(*value)),
            Some(Arg::Int(Int::Literal(value))) => Ok(Scalar::Int(*value)),
            Some(Arg::Int(Int::Value(value))) => Ok(Scalar::Value(*value)),
            Some(Arg::Bool(value)) => Ok(Scalar::Bool(*value)),
            _ => self.wrong(name, "a number"),
        }
    }

    pub(crate) fn maybe_scalar(&self, name: &str) -> Lowered<Option<Scalar>> {
        if self.has(name) { self.scalar(name).map(Some) } else { Ok(None) }
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> Lowered<bool> {
        match self.get(name) {
            None | Some(Arg::None) => Ok(default),
            Some(Arg::Bool(value)) => Ok(*value),
            _ => self.wrong(name, "true or false"),
        }
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> Lowered<String> {
        match self.get(name) {
            None | Some(Arg::None) => Ok(default.to_owned()),
            Some(Arg::Text(text)) => Ok(text.clone()),
            _ => self.wrong(name, "a text"),
        }
    }

    /// The dtype that torch recorded of a result.
    pub(crate) fn result_dtype(&self, position: usize) -> Lowered<DType> {
        let meta = self.results.get(position).ok_or_else(|| Refusal::because("it gives too few tensors"))?;
        meta.dtype
            .dtype()
            .ok_or_else(|| Refusal::because(format!("the delegate has no {}", meta.dtype.name())))
    }
}
