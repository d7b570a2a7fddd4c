//! Host numbers: integers of a run that are there before anything is submitted to a device. They come from the sizes and
//! integers among the inputs, from single elements of inputs (positions), and from each other. All others are read from what
//! the run computes.

use crate::types::Types;
use pteron_ir::op::IntArg;
use pteron_ir::{Graph, Op, Ssa, Type, TypeSource, ValueId};

/// Where an integer of a run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The sizes of the inputs decide it.
    Known(i64),
    /// It is the input of this number.
    Input(usize),
    /// It is the only element of the input of this number.
    Element(usize),
    /// It is computed from other host numbers.
    Computed,
    /// A run computes it, or decides whether it is computed at all.
    Data,
}

/// What is done with two integers; nothing where the result does not fit.
pub type Arithmetic = fn(i64, i64) -> Option<i64>;

/// The operands of integer arithmetic and what it does with them.
pub fn arithmetic(op: &Op<Ssa>) -> Option<([IntArg<ValueId>; 2], Arithmetic)> {
    Some(match *op {
        Op::AddInt { a, b } => ([a, b], |a, b| narrow(a.checked_add(b)?)),
        Op::SubtractInt { a, b } => ([a, b], |a, b| narrow(a.checked_sub(b)?)),
        Op::MultiplyInt { a, b } => ([a, b], |a, b| narrow(a.checked_mul(b)?)),
        Op::FloorDivideInt { a, b } => ([a, b], |a, b| narrow(floor_divide(a, b)?)),
        Op::ModInt { a, b } => ([a, b], |a, b| narrow(a.checked_sub(floor_divide(a, b)?.checked_mul(b)?)?)),
        _ => return None,
    })
}

/// On the wire integers have 32 bits.
fn narrow(number: i64) -> Option<i64> {
    i32::try_from(number).is_ok().then_some(number)
}

fn floor_divide(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// Integers that give none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{a} and {b} give no integer of 32 bits for %{}", result.0)]
pub struct NumberError {
    /// What should have been computed.
    pub result: ValueId,
    /// The first operand.
    pub a: i64,
    /// The second operand.
    pub b: i64,
}

/// The integers of a graph, by where they come from.
#[derive(Clone, Debug)]
pub struct HostNumbers {
    /// By value; what is no integer has none.
    origins: Vec<Option<Origin>>,
    /// What is computed, in order.
    program: Vec<(ValueId, [IntArg<ValueId>; 2], Arithmetic)>,
}

impl HostNumbers {
    /// Sorts the integers of a graph. Those that are made inside of blocks are data.
    pub fn of(graph: &Graph, types: &Types) -> HostNumbers {
        let integer = |value: ValueId| matches!(types.type_of(value), Some(Type::Int(_)));
        let mut origins = vec![None; graph.values.len()];
        for (value, origin) in origins.iter_mut().enumerate() {
            let value = ValueId(value as u32);
            *origin = integer(value).then(|| types.known_int(value).map_or(Origin::Data, Origin::Known));
        }
        let input = |value: ValueId| graph.inputs.iter().position(|input| input.value == value);
        for (index, input) in graph.inputs.iter().enumerate().filter(|(_, input)| integer(input.value)) {
            origins[input.value.0 as usize] = Some(Origin::Input(index));
        }
        let mut numbers = HostNumbers { origins, program: Vec::new() };
        for node in &graph.body.nodes {
            let &[result] = node.results.as_slice() else { continue };
            if numbers.origin(result) != Some(Origin::Data) {
                continue;
            }
            let origin = match (&node.op, arithmetic(&node.op)) {
                (Op::ItemInt { x }, _) => input(*x).map(Origin::Element),
                (_, Some((operands, apply))) if operands.iter().all(|operand| numbers.is_there(operand)) => {
                    numbers.program.push((result, operands, apply));
                    Some(Origin::Computed)
                }
                _ => None,
            };
            if origin.is_some() {
                numbers.origins[result.0 as usize] = origin;
            }
        }
        numbers
    }

    /// Where a value comes from; `None` where it is no integer.
    pub fn origin(&self, value: ValueId) -> Option<Origin> {
        self.origins.get(value.0 as usize).copied().flatten()
    }

    /// All values that are there before a run, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ValueId, Origin)> {
        let all = self.origins.iter().enumerate();
        all.filter_map(|(value, origin)| Some((ValueId(value as u32), (*origin)?)))
            .filter(|(_, origin)| *origin != Origin::Data)
    }

    fn is_there(&self, operand: &IntArg<ValueId>) -> bool {
        match operand {
            IntArg::Literal(_) => true,
            IntArg::Value(value) => !matches!(self.origin(*value), None | Some(Origin::Data)),
        }
    }

    /// Computes what is computed from the others, which `numbers` has by value.
    pub fn compute(&self, numbers: &mut [i64]) -> Result<(), NumberError> {
        for &(result, operands, apply) in &self.program {
            let [a, b] = operands.map(|operand| match operand {
                IntArg::Literal(number) => number,
                IntArg::Value(value) => numbers[value.0 as usize],
            });
            numbers[result.0 as usize] = apply(a, b).ok_or(NumberError { result, a, b })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_ir::{Builder, TensorType};
    use pteron_tensor::DType;

    #[test]
    fn numbers_of_the_call_are_computed_before_the_run_and_those_of_data_are_not() {
        let mut graph = Graph::default();
        let tokens = graph.add_input("tokens", Type::Tensor(TensorType::known(DType::I32, &[3])));
        let start = graph.symbols.fresh_int();
        let start = graph.add_input("start", Type::Int(start));
        let position = graph.add_input("position", Type::Tensor(TensorType::known(DType::I32, &[1])));
        let mut builder = Builder::new(graph);
        let mut one = |op| builder.append(op, None).unwrap()[0];
        let count = one(Op::SymSize { a: tokens, dim: 0 });
        let add = |a: ValueId, b: ValueId| Op::AddInt { a: IntArg::Value(a), b: IntArg::Value(b) };
        let stop = one(add(start, count));
        let item = one(Op::ItemInt { x: position });
        let modulo = one(Op::ModInt { a: IntArg::Value(item), b: IntArg::Literal(4) });
        let sum = one(Op::Add { a: position, b: position });
        let read = one(Op::ItemInt { x: sum });
        let late = one(add(read, stop));
        let graph = builder.finish();
        let types = Types::of(&graph, &[Some(&[3]), None, Some(&[1])]);
        let numbers = HostNumbers::of(&graph, &types);
        let origins = [count, start, stop, item, modulo, read, late, sum].map(|value| numbers.origin(value));
        use Origin::{Computed, Data, Element, Input, Known};
        let expected = [Known(3), Input(1), Computed, Element(2), Computed, Data, Data].map(Some);
        assert_eq!(origins[..7], expected);
        assert_eq!(origins[7], None);
        let mut at = vec![0; graph.values.len()];
        (at[count.0 as usize], at[start.0 as usize], at[item.0 as usize]) = (3, 39, -1);
        numbers.compute(&mut at).unwrap();
        assert_eq!((at[stop.0 as usize], at[modulo.0 as usize]), (42, 3));
        at[start.0 as usize] = i64::from(i32::MAX);
        let error = NumberError { result: stop, a: i64::from(i32::MAX), b: 3 };
        assert_eq!(numbers.compute(&mut at), Err(error));
        assert_eq!(numbers.iter().count(), 5);
    }

    #[test]
    fn division_goes_down_and_by_zero_gives_nothing() {
        let of = |op: Op<Ssa>| arithmetic(&op).unwrap().1;
        let (a, b) = (IntArg::Literal(0), IntArg::Literal(0));
        let (divide, modulo) = (of(Op::FloorDivideInt { a, b }), of(Op::ModInt { a, b }));
        let cases = [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, 3, 2, 0)];
        for (a, b, quotient, rest) in cases {
            assert_eq!((divide(a, b), modulo(a, b)), (Some(quotient), Some(rest)), "{a} by {b}");
        }
        assert_eq!((divide(1, 0), modulo(1, 0)), (None, None));
        assert_eq!(of(Op::MultiplyInt { a, b })(1 << 20, 1 << 20), None);
    }
}
