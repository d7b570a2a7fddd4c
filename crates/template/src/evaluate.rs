//! Expressions to values.

use super::ast::{Arguments, Expression, Step};
use super::budget::Fault;
use super::call::Given;
use super::interpreter::Interpreter;
use super::text::Text;
use super::value::Value;

/// The functions that every template can call.
const FUNCTIONS: [&str; 7] =
    ["range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"];

impl<'t> Interpreter<'t> {
    pub(super) fn evaluate(&mut self, expression: &'t Expression) -> Result<Value, Fault> {
        self.deeper(|interpreter| interpreter.evaluate_here(expression))
    }

    fn evaluate_here(&mut self, expression: &'t Expression) -> Result<Value, Fault> {
        match expression {
            Expression::None => Ok(Value::None),
            Expression::Bool(value) => Ok(Value::Bool(*value)),
            Expression::Int(value) => Ok(Value::Int(*value)),
            Expression::Float(value) => Ok(Value::Float(*value)),
            Expression::Str(text) => Ok(Value::Str(Text::own(text.clone()))),
            Expression::Name(name) => self.name(name),
            Expression::List(items) => {
                let values = self.evaluate_all(items)?;
                self.budget.list(values)
            }
            Expression::Tuple(items) => {
                let values = self.evaluate_all(items)?;
                self.budget.tuple(values)
            }
            Expression::Dict(entries) => {
                let entries =
                    entries.iter().map(|(key, value)| Ok((self.evaluate(key)?, self.evaluate(value)?)));
                let entries = entries.collect::<Result<_, Fault>>()?;
                self.budget.dict(entries)
            }
            Expression::Chain(base, steps) => {
                let value = self.evaluate(base)?;
                self.apply_steps(value, steps)
            }
            Expression::Negative(operand) => {
                let value = self.evaluate(operand)?;
                self.negate(&value)
            }
            Expression::Positive(operand) => {
                let value = self.evaluate(operand)?;
                self.positive(&value)
            }
            Expression::Not(operand) => Ok(Value::Bool(!self.evaluate(operand)?.is_true())),
            Expression::Arithmetic(first, rest) => {
                let mut value = self.evaluate(first)?;
                for (operator, operand) in rest {
                    let operand = self.evaluate(operand)?;
                    value = self.arithmetic(*operator, &value, &operand)?;
                }
                Ok(value)
            }
            Expression::Concatenate(operands) => {
                let values = self.evaluate_all(operands)?;
                let texts = values.iter().map(|value| self.str(value)).collect::<Result<Vec<_>, _>>()?;
                self.joined_text(&texts, &Text::own(""))
            }
            Expression::Compare(first, rest) => {
                let mut left = self.evaluate(first)?;
                for (comparison, operand) in rest {
                    let right = self.evaluate(operand)?;
                    if !self.compare(*comparison, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expression::And(operands) => self.first_that(operands, false),
            Expression::Or(operands) => self.first_that(operands, true),
            Expression::Conditional { condition, then, otherwise } => {
                if self.evaluate(condition)?.is_true() {
                    return self.evaluate(then);
                }
                match otherwise {
                    Some(otherwise) => self.evaluate(otherwise),
                    None => Ok(Value::undefined(
                        "the inline if-expression evaluated to false and no else section was defined",
                    )),
                }
            }
        }
    }

    fn evaluate_all(&mut self, expressions: &'t [Expression]) -> Result<Vec<Value>, Fault> {
        expressions.iter().map(|expression| self.evaluate(expression)).collect()
    }

    /// The first operand that is true or false as asked, else the last; the others after it are not evaluated.
    fn first_that(&mut self, operands: &'t [Expression], is_true: bool) -> Result<Value, Fault> {
        let mut value = Value::None;
        for operand in operands {
            value = self.evaluate(operand)?;
            if value.is_true() == is_true {
                break;
            }
        }
        Ok(value)
    }

    fn name(&mut self, name: &str) -> Result<Value, Fault> {
        if let Some(value) = self.look_up(name)? {
            return Ok(value);
        }
        let function = FUNCTIONS.into_iter().find(|function| *function == name);
        Ok(function.map_or_else(|| Value::undefined(format!("'{name}' is undefined")), Value::Function))
    }

    pub(super) fn apply_steps(&mut self, mut value: Value, steps: &'t [Step]) -> Result<Value, Fault> {
        for step in steps {
            self.budget.steps(1)?;
            value = match step {
                Step::Attribute(name) => self.attribute(&value, name)?,
                Step::Item(index) => {
                    let index = self.evaluate(index)?;
                    self.item(&value, &index)?
                }
                Step::Slice(parts) => {
                    let mut bounds = [const { None }; 3];
                    for (bound, part) in bounds.iter_mut().zip(parts.iter()) {
                        *bound = part.as_ref().map(|part| self.evaluate(part)).transpose()?;
                    }
                    self.slice(&value, bounds)?
                }
                Step::Call(arguments) => {
                    let given = self.arguments(arguments)?;
                    self.call(&value, given)?
                }
                Step::Filter(name, arguments) => {
                    let given = self.arguments(arguments)?;
                    self.filter(name, &value, given)?
                }
                Step::Test { name, arguments, negated } => {
                    let given = self.arguments(arguments)?;
                    Value::Bool(self.test(name, &value, given)? != *negated)
                }
            };
        }
        Ok(value)
    }

    /// `{% call f(x) %}`: the call gets the block as `caller`.
    pub(super) fn evaluate_call_block(
        &mut self,
        call: &'t Expression,
        caller: Value,
    ) -> Result<Value, Fault> {
        // The parser lets nothing else through.
        let Expression::Chain(base, steps) = call else { return Fault::evaluation("`call` needs a call") };
        let Some((Step::Call(arguments), before)) = steps.split_last() else {
            return Fault::evaluation("`call` needs a call");
        };
        let base = self.evaluate(base)?;
        let function = self.apply_steps(base, before)?;
        let mut given = self.arguments(arguments)?;
        given.named.push(("caller".into(), caller));
        self.call(&function, given)
    }

    fn arguments(&mut self, arguments: &'t Arguments) -> Result<Given, Fault> {
        let mut positional = self.evaluate_all(&arguments.positional)?;
        let named = arguments.named.iter().map(|(name, value)| Ok((name.clone(), self.evaluate(value)?)));
        let mut named = named.collect::<Result<Vec<_>, Fault>>()?;
        if let Some(list) = &arguments.list {
            let list = self.evaluate(list)?;
            let items = self.walk(&list)?;
            self.budget.bytes(items.values.len() * size_of::<Value>())?;
            positional.extend(items.values.iter().cloned());
        }
        if let Some(dict) = &arguments.dict {
            let Value::Dict(dict) = self.evaluate(dict)? else {
                return Fault::evaluation("what follows ** must be a mapping");
            };
            self.budget.bytes(dict.entries.len() * 2 * size_of::<Value>())?;
            for (key, value) in dict.entries.values() {
                let Value::Str(key) = key else { return Fault::evaluation("keywords must be strings") };
                named.push((key.shared().clone(), value.clone()));
            }
        }
        Ok(Given { positional, named })
    }
}
