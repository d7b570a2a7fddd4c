//! One method as it runs: values with where they come from, and instructions whose arguments are sorted into
//! what is read and what is written.

use super::tensors::{Place, TensorPlan};
use crate::backend::GraphId;
use crate::portable::{self, Operator, Outs};
use crate::{Error, Result, Value};
use pteron_format::pte::{self, EValue, ExecutionPlan};
use pteron_ir::Module;
use std::sync::Arc;

/// A method ready to run.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: String,
    /// What each value is when a run begins.
    pub(crate) values: Vec<ValuePlan>,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) chains: Vec<Vec<Instruction>>,
    /// Places that hold a buffer of the session, with its number.
    pub(crate) buffers: Vec<(Place, usize)>,
}

/// What a value is when a run begins.
#[derive(Debug)]
pub(crate) enum ValuePlan {
    /// A number, a text, a list of numbers, or nothing.
    Value(Value),
    /// A tensor.
    Tensor(TensorPlan),
    /// A list of integers that are values themselves.
    Ints(Vec<usize>),
    /// A list of tensors that are values themselves, some absent.
    Tensors(Vec<Option<usize>>),
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Instruction {
    /// Calls a portable operator.
    Kernel { operator: &'static Operator, inputs: Vec<usize>, outs: Vec<usize> },
    /// Runs a delegate.
    Delegate { number: usize, graph: GraphId, inputs: Vec<usize>, outputs: Vec<usize> },
    /// Copies a value.
    Move { from: usize, to: usize },
    /// Goes to another instruction of the chain unless all of a value is true.
    JumpFalse { condition: usize, to: usize },
    /// Drops a tensor.
    Free { value: usize },
}

/// What reading a method needs to know of its surroundings.
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) plan: &'a ExecutionPlan,
    /// By number of the delegate.
    pub(super) delegates: &'a [(GraphId, Arc<Module>)],
}

impl Source<'_> {
    pub(super) fn error(&self, place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Program {
            file: self.file.to_owned(),
            place: format!("method `{}`, {}", &*self.plan.name, place.into()),
            problem: problem.into(),
        }
    }

    fn index(&self, place: &str, index: i32) -> Result<usize> {
        let found = usize::try_from(index).ok().filter(|&index| index < self.plan.values.len());
        found.ok_or_else(|| self.error(place, format!("there is no value {index}")))
    }

    fn indices(&self, place: &str, indices: &[i32]) -> Result<Vec<usize>> {
        indices.iter().map(|&index| self.index(place, index)).collect()
    }

    /// The method with its tensors as `tensor` plans them.
    pub(super) fn method(
        &self,
        mut tensor: impl FnMut(usize, &pte::Tensor) -> Result<TensorPlan>,
    ) -> Result<Method> {
        let mut values = Vec::with_capacity(self.plan.values.len());
        for (number, value) in self.plan.values.iter().enumerate() {
            let place = format!("value {number}");
            values.push(match value {
                EValue::Null => ValuePlan::Value(Value::None),
                EValue::Int(value) => ValuePlan::Value(Value::Int(*value)),
                EValue::Bool(value) => ValuePlan::Value(Value::Bool(*value)),
                EValue::Double(value) => ValuePlan::Value(Value::Float(*value)),
                EValue::String(text) => ValuePlan::Value(Value::Str(text.to_string())),
                EValue::DoubleList(items) => ValuePlan::Value(Value::Floats(items.to_vec())),
                EValue::BoolList(items) => ValuePlan::Value(Value::Bools(items.to_vec())),
                EValue::IntList(items) => {
                    let items =
                        items.iter().map(|&item| self.index(&place, i32::try_from(item).unwrap_or(-1)));
                    ValuePlan::Ints(items.collect::<Result<_>>()?)
                }
                EValue::TensorList(items) => {
                    ValuePlan::Tensors(self.indices(&place, items)?.into_iter().map(Some).collect())
                }
                EValue::OptionalTensorList(items) => {
                    let items = items.iter().map(|&item| match item {
                        -1 => Ok(None),
                        _ => self.index(&place, item).map(Some),
                    });
                    ValuePlan::Tensors(items.collect::<Result<_>>()?)
                }
                EValue::Tensor(table) => ValuePlan::Tensor(tensor(number, table)?),
            });
        }
        let chains = self.plan.chains.iter().enumerate().map(|(chain, table)| {
            let length = table.instructions.len();
            let steps = table.instructions.iter().enumerate();
            steps.map(|(index, step)| self.instruction(&values, chain, index, step, length)).collect()
        });
        let chains = chains.collect::<Result<Vec<Vec<Instruction>>>>()?;
        for (what, sides) in [("inputs", &self.plan.inputs), ("outputs", &self.plan.outputs)] {
            if self.indices(what, sides)?.iter().any(|&value| is_complex(&values, value)) {
                return Err(self.error(what, COMPLEX_OUTSIDE));
            }
        }
        Ok(Method {
            name: self.plan.name.to_string(),
            inputs: self.indices("inputs", &self.plan.inputs)?,
            outputs: self.indices("outputs", &self.plan.outputs)?,
            chains,
            values,
            buffers: Vec::new(),
        })
    }

    fn instruction(
        &self,
        values: &[ValuePlan],
        chain: usize,
        index: usize,
        step: &pte::Instruction,
        length: usize,
    ) -> Result<Instruction> {
        let place = show_place(chain, index);
        let instruction = match step {
            pte::Instruction::Kernel(call) => self.kernel(values, &place, call)?,
            pte::Instruction::Delegate(call) => self.delegate(&place, call)?,
            pte::Instruction::Move(call) => Instruction::Move {
                from: self.index(&place, call.move_from)?,
                to: self.index(&place, call.move_to)?,
            },
            pte::Instruction::JumpFalse(call) => {
                let to = usize::try_from(call.destination_instruction).ok().filter(|&to| to <= length);
                let to = to.ok_or_else(|| self.error(&place, "jumps out of its chain"))?;
                Instruction::JumpFalse { condition: self.index(&place, call.cond_value_index)?, to }
            }
            pte::Instruction::Free(call) => {
                Instruction::Free { value: self.index(&place, call.value_index)? }
            }
        };
        let mut constant = None;
        instruction.for_each_written(|value| {
            if let ValuePlan::Tensor(TensorPlan { constant: Some(_), .. }) = values[value] {
                constant = Some(value);
            }
        });
        let is_strange = match &instruction {
            Instruction::Kernel { .. } | Instruction::Free { .. } => false,
            Instruction::Move { from, to } => is_complex(values, *from) != is_complex(values, *to),
            Instruction::Delegate { inputs, outputs, .. } => {
                inputs.iter().chain(outputs).any(|&value| is_complex(values, value))
            }
            Instruction::JumpFalse { condition, .. } => is_complex(values, *condition),
        };
        if is_strange {
            return Err(self.error(place, COMPLEX_OUTSIDE));
        }
        match constant {
            Some(value) => Err(self.error(place, format!("writes to value {value}, which is a constant"))),
            None => Ok(instruction),
        }
    }

    fn kernel(&self, values: &[ValuePlan], place: &str, call: &pte::KernelCall) -> Result<Instruction> {
        let table = usize::try_from(call.op_index).ok().and_then(|index| self.plan.operators.get(index));
        let table =
            table.ok_or_else(|| self.error(place, format!("there is no operator {}", call.op_index)))?;
        let name = operator_name(table);
        let mut inputs = self.indices(place, &call.args)?;
        let complex: Vec<bool> = inputs.iter().map(|&value| is_complex(values, value)).collect();
        let (takes, others) =
            complex.split_first().map_or((false, &complex[..]), |(takes, rest)| (*takes, rest));
        let gives = others.contains(&true);
        let operator =
            portable::find_for(&name, takes, gives).ok_or_else(|| match portable::knows_operator(&name) {
                true => self.error(
                    place,
                    format!("`{name}` has no meaning for numbers that are complex there, or are not"),
                ),
                false => Error::UnknownOperator {
                    file: self.file.to_owned(),
                    method: self.plan.name.to_string(),
                    operator: name.clone(),
                },
            })?;
        let separate = match operator.outs {
            Outs::Tensors(count) => count,
            Outs::List | Outs::Number | Outs::Inputs(_) => 1,
            Outs::First | Outs::Grown => 0,
        };
        // What is returned follows once more, unless the operator returns nothing.
        let needed = operator.inputs + separate;
        if inputs.len() != needed && inputs.len() != needed + 1 {
            let problem = format!("`{name}` has {} arguments; {needed} are needed", inputs.len());
            return Err(self.error(place, problem));
        }
        inputs.truncate(needed);
        let outs = match operator.outs {
            Outs::First | Outs::Grown => vec![inputs[0]],
            Outs::List => {
                let list = inputs.pop().unwrap_or_default();
                let ValuePlan::Tensors(items) = &values[list] else {
                    return Err(
                        self.error(place, format!("`{name}` writes to value {list}, which is no list"))
                    );
                };
                items.iter().flatten().copied().collect()
            }
            Outs::Inputs(places) => {
                let own = places.iter().filter_map(|&place| inputs.get(place).copied());
                let own: Vec<usize> = own.collect();
                own.into_iter().chain(inputs.split_off(operator.inputs)).collect()
            }
            Outs::Tensors(_) | Outs::Number => inputs.split_off(operator.inputs),
        };
        let tensors = operator.outs != Outs::Number;
        if let Some(out) = outs.iter().find(|&&out| tensors && !matches!(values[out], ValuePlan::Tensor(_))) {
            return Err(self.error(place, format!("`{name}` writes to value {out}, which is no tensor")));
        }
        Ok(Instruction::Kernel { operator, inputs, outs })
    }

    fn delegate(&self, place: &str, call: &pte::DelegateCall) -> Result<Instruction> {
        let number = usize::try_from(call.delegate_index).ok();
        let found = number.and_then(|number| Some((number, self.delegates.get(number)?)));
        let (number, (graph, module)) = found
            .ok_or_else(|| self.error(place, format!("there is no delegate {}", call.delegate_index)))?;
        let mut inputs = self.indices(place, &call.args)?;
        let (takes, gives) = (module.main.inputs.len(), module.main.outputs.len());
        if inputs.len() != takes + gives {
            let problem = format!(
                "delegate {number} is called with {} arguments; its payload takes {takes} and gives {gives}",
                inputs.len()
            );
            return Err(self.error(place, problem));
        }
        let outputs = inputs.split_off(takes);
        Ok(Instruction::Delegate { number, graph: *graph, inputs, outputs })
    }
}

/// Why complex numbers cannot be where they are.
const COMPLEX_OUTSIDE: &str =
    "complex numbers stay among the operators of a program: no delegate, input or output has them";

/// Whether a value is a complex tensor, or a list with one.
fn is_complex(values: &[ValuePlan], value: usize) -> bool {
    let alone = |value: usize| matches!(values.get(value), Some(ValuePlan::Tensor(plan)) if plan.is_complex);
    match values.get(value) {
        Some(ValuePlan::Tensors(items)) => items.iter().flatten().any(|&item| alone(item)),
        _ => alone(value),
    }
}

impl Instruction {
    /// Visits the values that it writes.
    pub(crate) fn for_each_written(&self, mut visit: impl FnMut(usize)) {
        match self {
            Instruction::Kernel { outs, .. } => outs.iter().copied().for_each(visit),
            Instruction::Delegate { outputs, .. } => outputs.iter().copied().for_each(visit),
            Instruction::Move { to, .. } => visit(*to),
            Instruction::JumpFalse { .. } | Instruction::Free { .. } => {}
        }
    }

    /// Visits the values that it reads, lists as lists.
    pub(crate) fn for_each_read(&self, mut visit: impl FnMut(usize)) {
        match self {
            // What is grown is read only where the same run has written it.
            Instruction::Kernel { operator, inputs, .. } if operator.outs == Outs::Grown => {
                inputs.iter().skip(1).copied().for_each(visit);
            }
            Instruction::Kernel { inputs, .. } | Instruction::Delegate { inputs, .. } => {
                inputs.iter().copied().for_each(visit);
            }
            Instruction::Move { from, .. } => visit(*from),
            Instruction::JumpFalse { condition, .. } => visit(*condition),
            Instruction::Free { .. } => {}
        }
    }

    /// What it calls, for errors.
    pub(crate) fn describe(&self) -> String {
        match self {
            Instruction::Kernel { operator, .. } => operator.name.to_owned(),
            Instruction::Delegate { number, .. } => format!("delegate {number}"),
            Instruction::Move { .. } => "move".to_owned(),
            Instruction::JumpFalse { .. } => "jump".to_owned(),
            Instruction::Free { .. } => "free".to_owned(),
        }
    }
}

/// `aten::add.out`; without an overload, the name alone.
pub(super) fn operator_name(operator: &pte::Operator) -> String {
    match &*operator.overload {
        "" => operator.name.to_string(),
        overload => format!("{}.{overload}", &*operator.name),
    }
}

/// Where an instruction stands.
pub(crate) fn show_place(chain: usize, index: usize) -> String {
    match chain {
        0 => format!("instruction {index}"),
        _ => format!("chain {chain}, instruction {index}"),
    }
}
