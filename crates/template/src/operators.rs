//! Arithmetic and comparison, by Python's rules.

use super::ast::{Comparison, Operator};
use super::budget::Fault;
use super::interpreter::Interpreter;
use super::methods::marked;
use super::text::{Text, Written};
use super::value::{Items, Value};
use std::cmp::Ordering;

impl Interpreter<'_> {
    pub(super) fn negate(&mut self, value: &Value) -> Result<Value, Fault> {
        match (value, value.as_int()) {
            (Value::Float(value), _) => Ok(Value::Float(-value)),
            (_, Some(value)) => number(value.checked_neg()),
            _ => unary("-", value),
        }
    }

    pub(super) fn positive(&mut self, value: &Value) -> Result<Value, Fault> {
        match (value, value.as_int()) {
            (Value::Float(value), _) => Ok(Value::Float(*value)),
            (_, Some(value)) => Ok(Value::Int(value)),
            _ => unary("+", value),
        }
    }

    pub(super) fn arithmetic(
        &mut self,
        operator: Operator,
        left: &Value,
        right: &Value,
    ) -> Result<Value, Fault> {
        if let Value::Undefined(undefined) = left {
            return Fault::evaluation(undefined.message.clone());
        }
        // A string takes whatever comes to be formatted, also what is undefined.
        if let (Operator::Remainder, Value::Str(pattern)) = (operator, left) {
            return self.percent_format(&pattern.clone(), right);
        }
        if let Value::Undefined(undefined) = right {
            return Fault::evaluation(undefined.message.clone());
        }
        if let (Operator::Add, Some(one), Some(other)) = (operator, left.as_str(), right.as_str())
            && (matches!(left, Value::Markup(_)) || matches!(right, Value::Markup(_)))
        {
            let escaped = |value: &Value, text: &Text| match value {
                Value::Markup(_) => text.clone(),
                _ => Text::like(escape(text), &[text]),
            };
            self.budget.repeat(one.cost() + other.cost(), 5)?;
            let joined = [escaped(left, one), escaped(right, other)];
            return self.joined_text(&joined, &Text::own("")).map(marked);
        }
        let (left, right) = (&left.plain(), &right.plain());
        match (operator, left, right) {
            (Operator::Add, Value::Str(left), Value::Str(right)) => {
                self.joined_text(&[left.clone(), right.clone()], &Text::own(""))
            }
            (Operator::Add, Value::List(left), Value::List(right)) => {
                let values = self.joined(left, right)?;
                self.budget.list(values)
            }
            (Operator::Add, Value::Tuple(left), Value::Tuple(right)) => {
                let values = self.joined(left, right)?;
                self.budget.tuple(values)
            }
            (Operator::Multiply, Value::Str(text), count) | (Operator::Multiply, count, Value::Str(text))
                if count.as_int().is_some() =>
            {
                let count = times(count);
                self.budget.repeat(text.cost().max(1), count)?;
                let mut repeated = Written::default();
                (0..count).for_each(|_| repeated.push(text));
                self.budget.text(repeated.finish())
            }
            (Operator::Multiply, Value::List(items), count)
            | (Operator::Multiply, count, Value::List(items))
                if count.as_int().is_some() =>
            {
                let count = times(count);
                self.budget.repeat(items.values.len() * size_of::<Value>(), count)?;
                let repeated = std::iter::repeat_n(&items.values, count).flatten().cloned().collect();
                self.budget.list(repeated)
            }
            _ => match (left.as_int(), right.as_int(), left.as_float(), right.as_float()) {
                (Some(left), Some(right), _, _) => integers(operator, left, right),
                (_, _, Some(left), Some(right)) => floats(operator, left, right),
                _ => Fault::evaluation(format!(
                    "unsupported operand type(s) for {}: '{}' and '{}'",
                    symbol(operator),
                    left.type_name(),
                    right.type_name()
                )),
            },
        }
    }

    fn joined(&mut self, left: &Items, right: &Items) -> Result<Vec<Value>, Fault> {
        self.budget.repeat(left.values.len() + right.values.len(), size_of::<Value>())?;
        Ok([left.values.as_slice(), right.values.as_slice()].concat())
    }

    pub(super) fn compare(
        &mut self,
        comparison: Comparison,
        left: &Value,
        right: &Value,
    ) -> Result<bool, Fault> {
        let (left, right) = (&left.plain(), &right.plain());
        match comparison {
            Comparison::Equal => self.equal(left, right),
            Comparison::NotEqual => self.equal(left, right).map(|equal| !equal),
            Comparison::In => self.contains(right, left),
            Comparison::NotIn => self.contains(right, left).map(|found| !found),
            Comparison::Less => self.order(left, right).map(|order| order == Some(Ordering::Less)),
            Comparison::Greater => self.order(left, right).map(|order| order == Some(Ordering::Greater)),
            Comparison::LessOrEqual => {
                self.order(left, right).map(|order| matches!(order, Some(Ordering::Less | Ordering::Equal)))
            }
            Comparison::GreaterOrEqual => self
                .order(left, right)
                .map(|order| matches!(order, Some(Ordering::Greater | Ordering::Equal))),
        }
    }

    pub(super) fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, Fault> {
        self.budget.steps(1)?;
        let (left, right) = (&left.plain(), &right.plain());
        if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
            return Ok(left == right);
        }
        if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
            return Ok(left == right);
        }
        match (left, right) {
            (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => Ok(true),
            (Value::Str(left), Value::Str(right)) => {
                self.budget.scan(left.len().min(right.len()))?;
                Ok(**left == **right)
            }
            (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
                if left.values.len() != right.values.len() {
                    return Ok(false);
                }
                for (left, right) in left.values.iter().zip(&right.values) {
                    if !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Dict(left), Value::Dict(right)) => {
                if left.entries.len() != right.entries.len() {
                    return Ok(false);
                }
                for (key, (_, value)) in &left.entries {
                    match right.entries.get(key) {
                        Some((_, other)) if self.equal(value, other)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            (Value::Range(left), Value::Range(right)) => Ok(left.length == right.length
                && (left.length == 0
                    || left.start == right.start && (left.length == 1 || left.step == right.step))),
            (Value::Namespace(left), Value::Namespace(right)) | (Value::Macro(left), Value::Macro(right)) => {
                Ok(left == right)
            }
            (Value::Function(left), Value::Function(right)) => Ok(left == right),
            _ => Ok(false),
        }
    }

    /// Which comes first; none where a number is no number.
    pub(super) fn order(&mut self, left: &Value, right: &Value) -> Result<Option<Ordering>, Fault> {
        self.budget.steps(1)?;
        if let (Some(left), Some(right)) = (left.as_int(), right.as_int()) {
            return Ok(Some(left.cmp(&right)));
        }
        if let (Some(left), Some(right)) = (left.as_float(), right.as_float()) {
            return Ok(left.partial_cmp(&right));
        }
        match (left, right) {
            (Value::Undefined(undefined), _) | (_, Value::Undefined(undefined)) => {
                Fault::evaluation(undefined.message.clone())
            }
            (Value::Str(left), Value::Str(right)) => {
                self.budget.scan(left.len().min(right.len()))?;
                // UTF-8 keeps the order of code points.
                Ok(Some(left.cmp(right)))
            }
            (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
                for (one, other) in left.values.iter().zip(&right.values) {
                    if !self.equal(one, other)? {
                        return self.order(one, other);
                    }
                }
                Ok(Some(left.values.len().cmp(&right.values.len())))
            }
            _ => Fault::evaluation(format!(
                "'<' not supported between instances of '{}' and '{}'",
                left.type_name(),
                right.type_name()
            )),
        }
    }

    /// `item in container`.
    pub(super) fn contains(&mut self, container: &Value, item: &Value) -> Result<bool, Fault> {
        match (container, item) {
            (Value::Str(text), Value::Str(part)) => {
                self.budget.search(text.len(), part.len())?;
                Ok(text.contains(&**part))
            }
            (Value::Str(_), other) => Fault::evaluation(format!(
                "'in <string>' requires string as left operand, not {}",
                other.type_name()
            )),
            (Value::Dict(dict), item) => Ok(dict.entries.contains_key(&self.budget.key(item)?)),
            (Value::Range(range), item) => match item.as_int() {
                Some(item) => {
                    let offset = item.checked_sub(range.start);
                    let at = offset.and_then(|offset| offset.checked_div(range.step));
                    let Some((offset, at)) = offset.zip(at) else { return Ok(false) };
                    Ok(offset % range.step == 0 && (0..range.length as i128).contains(&at))
                }
                None => Ok(false),
            },
            _ => {
                let items = match self.walk(container) {
                    Err(Fault::Evaluation(_)) => {
                        let kind = container.type_name();
                        return Fault::evaluation(format!("argument of type '{kind}' is not iterable"));
                    }
                    items => items?,
                };
                for candidate in &items.values {
                    if self.equal(candidate, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

/// The characters that HTML gives a meaning, spelled so that it does not.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn unary(operator: &str, value: &Value) -> Result<Value, Fault> {
    match value {
        Value::Undefined(undefined) => Fault::evaluation(undefined.message.clone()),
        other => Fault::evaluation(format!("bad operand type for unary {operator}: '{}'", other.type_name())),
    }
}

/// How often something is repeated: a negative count is none.
fn times(count: &Value) -> usize {
    usize::try_from(count.as_int().unwrap_or(0).max(0)).unwrap_or(usize::MAX)
}

fn number(value: Option<i128>) -> Result<Value, Fault> {
    value.map(Value::Int).ok_or(Fault::Limit { what: "bits in a number", limit: 127 })
}

fn integers(operator: Operator, left: i128, right: i128) -> Result<Value, Fault> {
    let by_zero = || Fault::evaluation("division by zero");
    match operator {
        Operator::Add => number(left.checked_add(right)),
        Operator::Subtract => number(left.checked_sub(right)),
        Operator::Multiply => number(left.checked_mul(right)),
        Operator::Divide if right == 0 => by_zero(),
        Operator::Divide => Ok(Value::Float(left as f64 / right as f64)),
        Operator::FloorDivide | Operator::Remainder if right == 0 => by_zero(),
        // Python rounds towards negative infinity, and a remainder has the sign of the divisor.
        Operator::FloorDivide => {
            let quotient = left.checked_div(right);
            let rounds_down = left.checked_rem(right).unwrap_or(0) != 0 && ((left < 0) != (right < 0));
            number(quotient.map(|quotient| quotient - i128::from(rounds_down)))
        }
        Operator::Remainder => {
            let rest = left.checked_rem(right).unwrap_or(0);
            Ok(Value::Int(if rest != 0 && ((rest < 0) != (right < 0)) { rest + right } else { rest }))
        }
        Operator::Power if right < 0 && left == 0 => {
            Fault::evaluation("0.0 cannot be raised to a negative power")
        }
        Operator::Power if right < 0 => Ok(Value::Float((left as f64).powf(right as f64))),
        Operator::Power => {
            number(u32::try_from(right).ok().and_then(|exponent| left.checked_pow(exponent)).or(
                // Powers of these stay small, whatever the exponent.
                match left {
                    0 | 1 => Some(left),
                    -1 => Some(if right % 2 == 0 { 1 } else { -1 }),
                    _ => None,
                },
            ))
        }
    }
}

fn floats(operator: Operator, left: f64, right: f64) -> Result<Value, Fault> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder);
    if divides && right == 0.0 {
        return Fault::evaluation("float division by zero");
    }
    // The remainder has the sign of the divisor.
    let remainder = || {
        let rest = left % right;
        if rest != 0.0 && ((rest < 0.0) != (right < 0.0)) { rest + right } else { rest }
    };
    Ok(Value::Float(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::FloorDivide => ((left - remainder()) / right).round(),
        Operator::Remainder => remainder(),
        Operator::Power => left.powf(right),
    }))
}

fn symbol(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Remainder => "%",
        Operator::Power => "**",
    }
}
