//! Filters that give numbers.

use crate::budget::Fault;
use crate::call::{Given, integer};
use crate::interpreter::Interpreter;
use crate::value::Value;

impl Interpreter<'_> {
    pub(super) fn number_filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        if let (Value::Undefined(undefined), "abs" | "round") = (value, name) {
            return Fault::evaluation(undefined.message.clone());
        }
        if let Value::Str(text) = value {
            self.budget.bytes(text.len())?;
        }
        match name {
            "abs" => {
                given.none(name)?;
                match (value, value.as_int()) {
                    (Value::Float(value), _) => Ok(Value::Float(value.abs())),
                    (_, Some(value)) => Ok(Value::Int(value.saturating_abs())),
                    _ => Fault::evaluation(format!("bad operand type for abs(): '{}'", value.type_name())),
                }
            }
            "int" => {
                let [default, base] = given.bind(name, ["default", "base"])?;
                let base = u32::try_from(integer(base, 10, "the base")?).unwrap_or(0);
                if !(2..=36).contains(&base) {
                    return Fault::evaluation("the base of int must be between 2 and 36");
                }
                if let Value::Undefined(undefined) = value {
                    return Fault::evaluation(undefined.message.clone());
                }
                Ok(to_int(value, base).map_or_else(|| default.unwrap_or(Value::Int(0)), Value::Int))
            }
            "float" => {
                let [default] = given.bind(name, ["default"])?;
                if let Value::Undefined(undefined) = value {
                    return Fault::evaluation(undefined.message.clone());
                }
                Ok(to_float(value).map_or_else(|| default.unwrap_or(Value::Float(0.0)), Value::Float))
            }
            _ => {
                let [precision, method] = given.bind(name, ["precision", "method"])?;
                let precision = integer(precision, 0, "the precision")?.clamp(-300, 300) as i32;
                let method = method.unwrap_or_else(|| Value::str("common"));
                let Some(number) = value.as_float() else {
                    return Fault::evaluation(format!("'{}' cannot be rounded", value.type_name()));
                };
                let scale = 10f64.powi(precision);
                let rounded = match method.as_str().map(|method| &**method) {
                    // Python rounds the exact value half to even; whole numbers stay what they are.
                    Some("common") => match value.as_int() {
                        Some(whole) if precision >= 0 => return Ok(Value::Int(whole)),
                        _ if (0..=17).contains(&precision) => {
                            format!("{number:.*}", precision as usize).parse().unwrap_or(number)
                        }
                        _ => (number * scale).round_ties_even() / scale,
                    },
                    Some("ceil") => (number * scale).ceil() / scale,
                    Some("floor") => (number * scale).floor() / scale,
                    _ => return Fault::evaluation("method must be common, ceil or floor"),
                };
                Ok(Value::Float(rounded))
            }
        }
    }
}

fn to_int(value: &Value, base: u32) -> Option<i128> {
    match value {
        Value::Float(value) => float_to_int(*value),
        Value::Str(text) => {
            let digits = text.trim().replace('_', "").to_lowercase();
            let prefix = match base {
                16 => "0x",
                8 => "0o",
                2 => "0b",
                _ => "",
            };
            let digits = digits.strip_prefix(prefix).unwrap_or(&digits);
            let parsed = i128::from_str_radix(digits, base).ok();
            parsed.or_else(|| parse_float(text).and_then(float_to_int))
        }
        other => other.as_int(),
    }
}

/// `float(value)`, where Python has one.
pub(super) fn to_float(value: &Value) -> Option<f64> {
    match value {
        Value::Str(text) => parse_float(text),
        other => other.as_float(),
    }
}

fn float_to_int(value: f64) -> Option<i128> {
    (value.is_finite() && value.abs() < 1e38).then_some(value.trunc() as i128)
}

fn parse_float(text: &str) -> Option<f64> {
    text.trim().replace('_', "").parse().ok()
}
