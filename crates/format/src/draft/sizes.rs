//! Integers of a graph: sizes, and what is computed of them; literals where they are known.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa, Type, ValueId};

use super::{Draft, Int, Part, Step, problem};

impl Draft<'_> {
    /// A size, as a literal where it is known.
    pub(crate) fn size(&mut self, x: ValueId, axis: usize) -> Step<Int> {
        let dim = self.ty(Part::Main, x)?.shape.get(axis);
        match dim.map(pteron_ir::Dim::as_known) {
            Some(Some(size)) => Ok(IntArg::Literal(size)),
            Some(None) => self.emit(Op::SymSize { a: x, dim: axis as i32 }).map(IntArg::Value),
            None => problem(format!("there is no axis {axis}")),
        }
    }

    pub(crate) fn sizes(&mut self, x: ValueId) -> Step<Vec<Int>> {
        (0..self.rank(x)?).map(|axis| self.size(x, axis)).collect()
    }

    pub(crate) fn times(&mut self, a: Int, b: Int) -> Step<Int> {
        match (a, b) {
            (IntArg::Literal(a), IntArg::Literal(b)) => match a.checked_mul(b) {
                Some(product) => Ok(IntArg::Literal(product)),
                None => problem("sizes that overflow"),
            },
            (a, b) => self.integer(Op::MultiplyInt { a, b }),
        }
    }

    pub(crate) fn plus(&mut self, a: Int, b: Int) -> Step<Int> {
        match (a, b) {
            (IntArg::Literal(a), IntArg::Literal(b)) => Ok(IntArg::Literal(a.saturating_add(b))),
            (a, b) => self.integer(Op::AddInt { a, b }),
        }
    }

    /// The quotient, rounded down.
    pub(crate) fn divided(&mut self, a: Int, b: i64) -> Step<Int> {
        match a {
            _ if b == 0 => problem("an integer divided by zero"),
            IntArg::Literal(a) => Ok(IntArg::Literal(a.wrapping_div_euclid(b))),
            a => self.integer(Op::FloorDivideInt { a, b: IntArg::Literal(b) }),
        }
    }

    /// An op's integer, as a literal where its rule knows it.
    pub(crate) fn integer(&mut self, op: Op<Ssa>) -> Step<Int> {
        let value = self.emit(op)?;
        match self.main.graph().ty(value) {
            Some(Type::Int(dim)) => Ok(dim.as_known().map_or(IntArg::Value(value), IntArg::Literal)),
            _ => problem("an integer is wanted"),
        }
    }
}
