//! Values as text: Python's `str` and `repr`.

use super::budget::Fault;
use super::interpreter::Interpreter;
use super::text::{Text, Written};
use super::value::Value;
use std::fmt::Write;

impl Interpreter<'_> {
    /// `str(value)`.
    pub(super) fn str(&mut self, value: &Value) -> Result<Text, Fault> {
        match value {
            Value::Str(text) | Value::Markup(text) => Ok(text.clone()),
            Value::Undefined(_) => Ok(Text::own("")),
            other => self.repr(other),
        }
    }

    /// `repr(value)`.
    pub(super) fn repr(&mut self, value: &Value) -> Result<Text, Fault> {
        let mut text = Written::default();
        self.write_repr(value, &mut text)?;
        Ok(text.finish())
    }

    fn write_repr(&mut self, value: &Value, out: &mut Written) -> Result<(), Fault> {
        self.budget.bytes(8)?;
        match value {
            Value::Undefined(_) => out.push_own("Undefined"),
            Value::None => out.push_own("None"),
            Value::Bool(true) => out.push_own("True"),
            Value::Bool(false) => out.push_own("False"),
            Value::Int(value) => out.push_own(&value.to_string()),
            Value::Float(value) => out.push_own(&float_repr(*value)),
            Value::Str(text) => {
                self.budget.bytes(text.len() + size_of::<Text>())?;
                write_quoted(text, out);
            }
            Value::Markup(text) => {
                self.budget.bytes(text.len() + size_of::<Text>())?;
                out.push_own("Markup(");
                write_quoted(text, out);
                out.push_own(")");
            }
            Value::List(items) => self.write_items("[", &items.values, "]", out)?,
            Value::Tuple(items) if items.values.len() == 1 => {
                self.write_items("(", &items.values, ",)", out)?
            }
            Value::Tuple(items) => self.write_items("(", &items.values, ")", out)?,
            Value::View(name, items) => {
                out.push_own(name);
                self.write_items("([", &items.values, "])", out)?;
            }
            Value::Dict(dict) => {
                out.push_own("{");
                for (index, (key, value)) in dict.entries.values().enumerate() {
                    if index > 0 {
                        out.push_own(", ");
                    }
                    self.write_repr(key, out)?;
                    out.push_own(": ");
                    self.write_repr(value, out)?;
                }
                out.push_own("}");
            }
            Value::Range(range) if range.step == 1 => {
                out.push_own(&format!("range({}, {})", range.start, range.stop))
            }
            Value::Range(range) => {
                out.push_own(&format!("range({}, {}, {})", range.start, range.stop, range.step));
            }
            Value::Loop(state) => {
                out.push_own(&format!(
                    "<LoopContext {}/{}>",
                    state.index.get() + 1,
                    state.items.values.len()
                ));
            }
            // Python shows addresses or whole namespaces here; no template means to print that.
            other => out.push_own(&format!("<{}>", other.type_name())),
        }
        Ok(())
    }

    fn write_items(
        &mut self,
        open: &str,
        items: &[Value],
        close: &str,
        out: &mut Written,
    ) -> Result<(), Fault> {
        out.push_own(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_own(", ");
            }
            self.write_repr(item, out)?;
        }
        out.push_own(close);
        Ok(())
    }
}

/// The shortest digits that give the float back, in Python's layout.
pub(super) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A string in Python's quotes: single ones, unless only those occur in it.
fn write_quoted(text: &Text, out: &mut Written) {
    let from = out.len();
    out.push_own(&quoted(text));
    out.shows(text, from);
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// Whether Python's `repr` shows a character as it is: nothing of the categories of controls, formats, private use
/// and white space other than the plain space.
pub(super) fn is_printable(c: char) -> bool {
    match c {
        ' ' => true,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' => false,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' => false,
        '\u{e0001}' | '\u{e0020}'..='\u{e007f}' | '\u{f0000}'..='\u{10ffff}' => false,
        c => !c.is_control() && !c.is_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use super::{float_repr, quoted};

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (4.5, "4.5"),
            (4.0, "4.0"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(float_repr(value), text);
        }
    }

    #[test]
    fn strings_are_quoted_as_in_python() {
        let cases = [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("it's \"x\"", "'it\\'s \"x\"'"),
            ("\n\u{0}\u{200b}\u{e9}", "'\\n\\x00\\u200b\u{e9}'"),
        ];
        for (text, wanted) in cases {
            assert_eq!(quoted(text), wanted);
        }
    }
}
