//! Tests: what stands behind an `is`.

use super::ast::Comparison;
use super::budget::Fault;
use super::call::{Given, required};
use super::interpreter::Interpreter;
use super::value::Value;

/// All tests.
const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

impl Interpreter<'_> {
    pub(super) fn test(&mut self, name: &str, value: &Value, given: Given) -> Result<bool, Fault> {
        let is_marked = matches!(value, Value::Markup(_));
        let (value, given) = (&value.plain(), given.plain());
        let comparison = match name {
            "==" | "eq" | "equalto" => Some(Comparison::Equal),
            "!=" | "ne" => Some(Comparison::NotEqual),
            "<" | "lt" | "lessthan" => Some(Comparison::Less),
            "<=" | "le" => Some(Comparison::LessOrEqual),
            ">" | "gt" | "greaterthan" => Some(Comparison::Greater),
            ">=" | "ge" => Some(Comparison::GreaterOrEqual),
            "in" => Some(Comparison::In),
            _ => None,
        };
        if let Some(comparison) = comparison {
            let [other] = given.bind(name, ["other"])?;
            return self.compare(comparison, value, &required(other, name, "other")?);
        }
        match name {
            "divisibleby" => {
                let [divisor] = given.bind(name, ["num"])?;
                let divisor = required(divisor, name, "num")?;
                let rest = self.arithmetic(super::ast::Operator::Remainder, value, &divisor)?;
                return Ok(!rest.is_true());
            }
            "sameas" => {
                let [other] = given.bind(name, ["other"])?;
                let other = required(other, name, "other")?;
                // One object: for values that cannot change, the same kind and equal.
                return Ok(value.type_name() == other.type_name() && self.equal(value, &other)?);
            }
            _ => given.none(name)?,
        }
        Ok(match name {
            "defined" => !value.is_undefined(),
            "undefined" => value.is_undefined(),
            "none" => matches!(value, Value::None),
            "boolean" => matches!(value, Value::Bool(_)),
            "true" => matches!(value, Value::Bool(true)),
            "false" => matches!(value, Value::Bool(false)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            "number" => matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_)),
            "string" => matches!(value, Value::Str(_)),
            "mapping" => matches!(value, Value::Dict(_)),
            "sequence" => matches!(
                value,
                Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Range(_)
            ),
            "iterable" => matches!(
                value,
                Value::Undefined(_)
                    | Value::Str(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Dict(_)
                    | Value::View(..)
                    | Value::Range(_)
                    | Value::Generator(_)
                    | Value::Loop(_)
            ),
            "callable" => matches!(
                value,
                Value::Macro(_)
                    | Value::Function(_)
                    | Value::Method(_)
                    | Value::Joiner(_)
                    | Value::Loop(_)
                    | Value::Undefined(_)
            ),
            "odd" | "even" => {
                let rest = self.arithmetic(super::ast::Operator::Remainder, value, &Value::Int(2))?;
                rest.is_true() == (name == "odd")
            }
            "lower" => {
                let text = self.str(value)?;
                self.budget.scan(text.len())?;
                text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
            }
            "upper" => {
                let text = self.str(value)?;
                self.budget.scan(text.len())?;
                text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
            }
            "escaped" => is_marked,
            "filter" => value.as_str().is_some_and(|name| super::filters::NAMES.contains(&&**name)),
            "test" => value.as_str().is_some_and(|name| NAMES.contains(&&**name)),
            other => return Fault::evaluation(format!("No test named '{other}'.")),
        })
    }
}
