//! The edge of a payload: arguments by position, inputs first, outputs last. Integers enter as such, or as tensors of one.

use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Op, Output, TensorType, Type, ValueId};

use super::arguments::int_tensor;
use super::{Held, Lifter};
use crate::Result;
use crate::draft::{Argument, Step, Stop, problem};
use crate::vulkan::tables::Value;

impl Lifter<'_> {
    pub(super) fn inputs(&mut self, arguments: &[Argument]) -> Result<()> {
        let graph = &self.payload.graph;
        let (inputs, outputs) = (&graph.input_ids, graph.output_ids.len());
        for (number, &id) in inputs.iter().enumerate() {
            if let Err(stop) = self.input(id as usize, arguments.get(number)) {
                self.stopped(stop, || format!("VkGraph.input_ids[{number}]"))?;
                self.held[id as usize] = Held::Spoilt;
            }
        }
        // Arguments that no operator reads are not listed.
        let unread = arguments.len().saturating_sub(inputs.len() + outputs);
        for argument in arguments.iter().skip(inputs.len()).take(unread) {
            self.enter(Some(argument), None);
        }
        Ok(())
    }

    /// A new input of the graph, of the sizes that the program says, or else of those that the payload says.
    fn enter(&mut self, argument: Option<&Argument>, declared: Option<(TensorType, bool)>) -> ValueId {
        let graph = self.main.graph_mut();
        let ty = match (declared, argument) {
            (Some((ty, false)), _) => Type::Tensor(ty),
            (_, Some(Argument { dtype: Some(dtype), sizes, is_dynamic })) => {
                // Which dims vary is said nowhere; one of at most 1 is 1, or there is nothing to compute.
                let shape = sizes.iter().map(|&size| match *is_dynamic && size > 1 {
                    true => graph.symbols.fresh_size(Some(size)),
                    false => Dim::known(size),
                });
                Type::Tensor(TensorType { dtype: *dtype, shape: shape.collect() })
            }
            (Some((ty, _)), None) => Type::Tensor(ty),
            _ => Type::Int(graph.symbols.fresh_int()),
        };
        graph.add_input("", ty)
    }

    fn input(&mut self, id: usize, argument: Option<&Argument>) -> Step<()> {
        let given = argument.filter(|argument| argument.dtype.is_some());
        let held = match &self.payload.graph.values[id] {
            Value::Tensor(tensor) if tensor.constant_id >= 0 => {
                return problem("it is an argument and a constant");
            }
            Value::Tensor(tensor) => {
                let dtype = tensor.datatype.dtype();
                let shape: Vec<usize> = tensor.dims.iter().map(|&size| size as usize).collect();
                let ty = TensorType::known(given.and_then(|given| given.dtype).unwrap_or(dtype), &shape);
                let mut entered = self.enter(given, Some((ty, given.is_some())));
                if self.rank(entered)? != shape.len() {
                    let shape = shape.iter().map(|&size| IntArg::Literal(size as i64)).collect();
                    entered = self.emit(Op::Reshape { x: entered, shape })?;
                }
                Held::Tensor(self.cast(entered, dtype)?)
            }
            Value::SymInt(_) => {
                let entered = self.enter(argument, None);
                Held::Int(match given {
                    Some(_) => self.integer(Op::ItemInt { x: entered })?,
                    None => IntArg::Value(entered),
                })
            }
            other => return problem(format!("value {id} is {}, which is no argument", other.kind())),
        };
        match self.held[id] {
            Held::Nothing => self.held[id] = held,
            _ => return problem(format!("value {id} is two arguments")),
        }
        Ok(())
    }

    pub(super) fn outputs(&mut self, arguments: &[Argument]) -> Result<()> {
        let outputs = &self.payload.graph.output_ids;
        let first = arguments.len().saturating_sub(outputs.len());
        for (number, &id) in outputs.iter().enumerate() {
            let argument = arguments.get(first + number).filter(|argument| argument.dtype.is_some());
            if let Err(stop) = self.output(id, argument) {
                self.stopped(stop, || format!("VkGraph.output_ids[{number}]"))?;
            }
        }
        Ok(())
    }

    fn output(&mut self, id: u32, argument: Option<&Argument>) -> Step<()> {
        let value = match (&self.payload.graph.values[id as usize], self.held[id as usize]) {
            (_, Held::Spoilt) => return Err(Stop::Spoilt),
            (Value::Tensor(_), _) => self.tensor_by_id(id as i32)?,
            (_, Held::Int(int)) => match (int, argument) {
                (IntArg::Value(value), None) => value,
                (int, Some(Argument { dtype: Some(dtype), .. })) => int_tensor(self, int, *dtype)?,
                _ => return problem("a number that is known before is no output"),
            },
            (other, _) => return problem(format!("value {id} is {}, and nothing sets it", other.kind())),
        };
        let Some(argument) = argument else { return self.leave(value) };
        let mut left = value;
        if let Some(dtype) = argument.dtype {
            // What is 32 bits wide here may be 64 in the program.
            left = self.cast(left, dtype)?;
        }
        if argument.sizes.len() != self.rank(left)? {
            let shape = argument.sizes.iter().map(|&size| IntArg::Literal(size)).collect();
            left = self.emit(Op::Reshape { x: left, shape })?;
        }
        self.leave(left)
    }

    fn leave(&mut self, value: ValueId) -> Step<()> {
        let graph = self.main.graph_mut();
        let Some(ty) = graph.ty(value).cloned() else { return problem("an output without a type") };
        graph.outputs.push(Output { name: String::new(), value, ty });
        Ok(())
    }
}
