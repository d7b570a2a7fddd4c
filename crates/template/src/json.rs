//! `tojson` as `transformers` sets it up: Python's `json.dumps`, without escapes for HTML.

use super::budget::Fault;
use super::call::Given;
use super::interpreter::Interpreter;
use super::print::float_repr;
use super::text::{Text, Written};
use super::value::Value;
use std::fmt::Write;

/// How JSON is laid out.
struct Layout {
    ascii: bool,
    /// What one level of indent is; without, everything stands on one line.
    indent: Option<Text>,
    between_items: Text,
    after_key: Text,
    sorted: bool,
}

impl Interpreter<'_> {
    pub(super) fn json_text(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [ascii, indent, separators, sorted] =
            given.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
        let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
        let indent: Option<Text> = match indent {
            None | Some(Value::None) => None,
            Some(Value::Str(indent)) => Some(indent),
            Some(other) => match other.as_int() {
                Some(count) => {
                    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
                    self.budget.bytes(count)?;
                    Some(Text::own(" ".repeat(count)))
                }
                None => return Fault::evaluation("the indent of tojson must be a number or a string"),
            },
        };
        let (between_items, after_key) = match separators {
            None | Some(Value::None) => {
                (Text::own(if indent.is_some() { "," } else { ", " }), Text::own(": "))
            }
            Some(pair) => {
                let pair = self.walk(&pair)?;
                let [Value::Str(items), Value::Str(key)] = pair.values.as_slice() else {
                    return Fault::evaluation("the separators of tojson must be two strings");
                };
                (items.clone(), key.clone())
            }
        };
        let layout =
            Layout { ascii: is_true(ascii), indent, between_items, after_key, sorted: is_true(sorted) };
        let mut out = Written::default();
        self.write_json(value, &layout, 0, &mut out)?;
        self.budget.text(out.finish())
    }

    fn write_json(
        &mut self,
        value: &Value,
        layout: &Layout,
        level: usize,
        out: &mut Written,
    ) -> Result<(), Fault> {
        self.budget.bytes(8)?;
        match value {
            Value::None => out.push_own("null"),
            Value::Bool(value) => out.push_own(if *value { "true" } else { "false" }),
            Value::Int(value) => out.push_own(&value.to_string()),
            Value::Float(value) => out.push_own(&json_float(*value)),
            Value::Str(text) | Value::Markup(text) => self.write_json_text(text, layout, out)?,
            Value::List(items) | Value::Tuple(items) => {
                let items: Vec<(Option<Text>, &Value)> =
                    items.values.iter().map(|item| (None, item)).collect();
                self.write_json_items(("[", "]"), &items, layout, level, out)?;
            }
            Value::Dict(dict) => {
                self.budget.repeat(dict.entries.len(), 2 * size_of::<Value>())?;
                let mut entries = Vec::with_capacity(dict.entries.len());
                for (key, value) in dict.entries.values() {
                    let key: Text = match key {
                        Value::Str(key) | Value::Markup(key) => key.clone(),
                        Value::None => Text::own("null"),
                        Value::Bool(key) => Text::own(key.to_string()),
                        Value::Int(key) => Text::own(key.to_string()),
                        Value::Float(key) => Text::own(json_float(*key)),
                        other => {
                            let kind = other.type_name();
                            return Fault::evaluation(format!(
                                "keys must be str, int, float, bool or None, not {kind}"
                            ));
                        }
                    };
                    entries.push((Some(key), value));
                }
                if layout.sorted {
                    entries.sort_by(|(left, _), (right, _)| left.as_deref().cmp(&right.as_deref()));
                }
                self.write_json_items(("{", "}"), &entries, layout, level, out)?;
            }
            other => {
                let kind = other.type_name();
                return Fault::evaluation(format!("Object of type {kind} is not JSON serializable"));
            }
        }
        Ok(())
    }

    fn write_json_items(
        &mut self,
        (open, close): (&str, &str),
        items: &[(Option<Text>, &Value)],
        layout: &Layout,
        level: usize,
        out: &mut Written,
    ) -> Result<(), Fault> {
        out.push_own(open);
        for (index, (key, value)) in items.iter().enumerate() {
            if index > 0 {
                self.budget.bytes(layout.between_items.cost())?;
                out.push(&layout.between_items);
            }
            self.write_json_line(layout, level + 1, out)?;
            if let Some(key) = key {
                self.write_json_text(key, layout, out)?;
                self.budget.bytes(layout.after_key.cost())?;
                out.push(&layout.after_key);
            }
            self.write_json(value, layout, level + 1, out)?;
        }
        if !items.is_empty() {
            self.write_json_line(layout, level, out)?;
        }
        out.push_own(close);
        Ok(())
    }

    /// A new line with its indent, where there is one.
    fn write_json_line(&mut self, layout: &Layout, level: usize, out: &mut Written) -> Result<(), Fault> {
        if let Some(indent) = &layout.indent {
            self.budget.repeat(indent.cost(), level)?;
            out.push_own("\n");
            (0..level).for_each(|_| out.push(indent));
        }
        Ok(())
    }

    fn write_json_text(&mut self, text: &Text, layout: &Layout, written: &mut Written) -> Result<(), Fault> {
        // An escape takes up to six bytes for one.
        self.budget.bytes(text.len() + 2 + size_of::<Text>())?;
        let mut out = String::from('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (layout.ascii && !(' '..='~').contains(&c)) => {
                    self.budget.bytes(12)?;
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
        let from = written.len();
        written.push_own(&out);
        written.shows(text, from);
        Ok(())
    }
}

fn json_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else {
        float_repr(value)
    }
}
