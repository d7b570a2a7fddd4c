//! The small steps that all families of operators share: sizes, casts, shapes, constants, arithmetic of integers.

use super::super::call::{Int, Scalar};
use super::super::constants::{permuted, scalar, type_of};
use super::super::error::{Lowered, Refusal};
use super::{Lowerer, axis_of, check_dtype};
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Dim, Op, TensorType, Type, ValueId};
use pteron_tensor::{DType, HostTensor};

impl Lowerer<'_> {
    pub(crate) fn ty(&self, value: ValueId) -> Lowered<TensorType> {
        match self.graph().ty(value) {
            Some(Type::Tensor(ty)) => Ok(ty.clone()),
            _ => Err(Refusal::because("a number where a tensor is needed")),
        }
    }

    pub(crate) fn dtype(&self, value: ValueId) -> Lowered<DType> {
        Ok(self.ty(value)?.dtype)
    }

    pub(crate) fn rank(&self, value: ValueId) -> Lowered<usize> {
        Ok(self.ty(value)?.shape.len())
    }

    /// The sizes, where all are known.
    pub(crate) fn known_shape(&self, value: ValueId) -> Lowered<Option<Vec<usize>>> {
        Ok(self.ty(value)?.known_shape())
    }

    /// A size that must be known.
    pub(crate) fn known_dim(&self, value: ValueId, axis: usize) -> Lowered<i64> {
        let ty = self.ty(value)?;
        let known = ty.shape.get(axis).and_then(Dim::as_known);
        known.ok_or_else(|| Refusal::because(format!("the size of axis {axis} depends on the input")))
    }

    /// A size as an argument: the number where it is known, else a value.
    pub(crate) fn size(&mut self, value: ValueId, axis: usize) -> Lowered<Int> {
        match self.ty(value)?.shape.get(axis).and_then(Dim::as_known) {
            Some(known) => Ok(Int::Literal(known)),
            None => self.emit_int(Op::SymSize { a: value, dim: axis as i32 }),
        }
    }

    pub(crate) fn sizes(&mut self, value: ValueId) -> Lowered<Vec<Int>> {
        (0..self.rank(value)?).map(|axis| self.size(value, axis)).collect()
    }

    /// An axis from the front.
    pub(crate) fn axis(&self, value: ValueId, dim: i64) -> Lowered<usize> {
        axis_of(dim, self.rank(value)?)
    }

    pub(crate) fn cast(&mut self, value: ValueId, dtype: DType) -> Lowered<ValueId> {
        check_dtype(dtype)?;
        match self.dtype(value)? == dtype {
            true => Ok(value),
            false => self.emit(Op::AsType { x: value, scalar_type: dtype }),
        }
    }

    pub(crate) fn reshape(&mut self, x: ValueId, shape: Vec<Int>) -> Lowered<ValueId> {
        self.emit(Op::Reshape { x, shape })
    }

    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Lowered<ValueId> {
        if perm.iter().enumerate().all(|(at, &axis)| at == axis) {
            return Ok(x);
        }
        self.emit(Op::Transpose { x, perm: perm.iter().map(|&axis| axis as i32).collect() })
    }

    /// A rank that an operator needs at least; files may say otherwise.
    pub(crate) fn at_least(&self, x: ValueId, least: usize) -> Lowered<usize> {
        match self.rank(x)? {
            rank if rank >= least => Ok(rank),
            rank => Err(Refusal::because(format!("a tensor of rank {rank} where {least} is the least"))),
        }
    }

    /// The last two axes swapped.
    pub(crate) fn swapped(&mut self, x: ValueId) -> Lowered<ValueId> {
        let rank = self.at_least(x, 2)?;
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 1, rank - 2);
        self.transpose(x, &perm)
    }

    /// A weight in another order of axes: done now where its data is known.
    pub(crate) fn transposed_weight(&mut self, x: ValueId, perm: &[usize], suffix: &str) -> Lowered<ValueId> {
        let Some(name) = self.constant_names.get(&x).cloned() else { return self.transpose(x, perm) };
        let made = format!("{name}_{suffix}");
        let tensor = self.constants.get(&name).and_then(|tensor| permuted(tensor, perm));
        match tensor {
            Some(tensor) => self.constant(&made, tensor),
            None => self.transpose(x, perm),
        }
    }

    /// Data of a value that is known now.
    pub(crate) fn data_of(&self, value: ValueId) -> Option<&HostTensor> {
        self.constants.get(self.constant_names.get(&value)?)
    }

    /// The name of the constant that a value is.
    pub(crate) fn name_of(&self, value: ValueId) -> Option<&str> {
        self.constant_names.get(&value).map(String::as_str)
    }

    /// A constant of that name; the same name is the same constant.
    pub(crate) fn constant(&mut self, name: &str, tensor: HostTensor) -> Lowered<ValueId> {
        if let Some(&value) = self.constant_values.get(name) {
            return Ok(value);
        }
        check_dtype(tensor.dtype())?;
        let value = self.builder.graph_mut().add_constant(name, type_of(&tensor));
        self.constants.add(name, tensor);
        self.constant_values.insert(name.to_owned(), value);
        self.constant_names.insert(value, name.to_owned());
        Ok(value)
    }

    /// A number as a tensor of no dims.
    pub(crate) fn number(&mut self, value: f64, dtype: DType) -> Lowered<ValueId> {
        check_dtype(dtype)?;
        self.constant(&format!("_scalar_{dtype}_{value:?}"), scalar(dtype, value, None))
    }

    pub(crate) fn whole_number(&mut self, value: i64, dtype: DType) -> Lowered<ValueId> {
        check_dtype(dtype)?;
        if dtype.is_float() {
            return self.number(value as f64, dtype);
        }
        self.constant(&format!("_scalar_{dtype}_{value}"), scalar(dtype, value as f64, Some(value)))
    }

    pub(crate) fn scalar_tensor(&mut self, value: Scalar, dtype: DType) -> Lowered<ValueId> {
        match value {
            Scalar::Float(value) => self.number(value, dtype),
            Scalar::Int(value) => self.whole_number(value, dtype),
            Scalar::Bool(value) => self.whole_number(i64::from(value), dtype),
            Scalar::Value(value) => {
                self.emit(Op::Full { shape: Vec::new(), v: FloatArg::Value(value), scalar_type: dtype })
            }
        }
    }

    /// `a op b` of integers, computed now where both are known.
    pub(crate) fn add_ints(&mut self, a: Int, b: Int) -> Lowered<Int> {
        match (a, b) {
            (IntArg::Literal(a), IntArg::Literal(b)) => {
                a.checked_add(b).map(Int::Literal).ok_or_else(|| Refusal::because("a sum overflows"))
            }
            (a, IntArg::Literal(0)) => Ok(a),
            (IntArg::Literal(0), b) => Ok(b),
            (a, b) => self.emit_int(Op::AddInt { a, b }),
        }
    }

    pub(crate) fn subtract_ints(&mut self, a: Int, b: Int) -> Lowered<Int> {
        match (a, b) {
            (IntArg::Literal(a), IntArg::Literal(b)) => {
                a.checked_sub(b).map(Int::Literal).ok_or_else(|| Refusal::because("a difference overflows"))
            }
            (a, IntArg::Literal(0)) => Ok(a),
            (a, b) => self.emit_int(Op::SubtractInt { a, b }),
        }
    }

    pub(crate) fn multiply_ints(&mut self, a: Int, b: Int) -> Lowered<Int> {
        match (a, b) {
            (IntArg::Literal(a), IntArg::Literal(b)) => {
                a.checked_mul(b).map(Int::Literal).ok_or_else(|| Refusal::because("a product overflows"))
            }
            (a, IntArg::Literal(1)) => Ok(a),
            (IntArg::Literal(1), b) => Ok(b),
            (a, b) => self.emit_int(Op::MultiplyInt { a, b }),
        }
    }
}
