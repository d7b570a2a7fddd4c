//! Calls as Gemma writes them: `call:name{key:value,...}`, where texts stand between quotes of its own, so that nothing in
//! them has to be escaped.

use super::ToolCall;
use serde_json::{Map, Number, Value};

/// Quotes of Gemma 4.
pub(super) const QUOTE: &str = "<|\"|>";
/// Quotes of its smaller kin.
pub(super) const ESCAPE: &str = "<escape>";

/// Deeper than any arguments are.
const DEEPEST: usize = 32;

/// The call in what stands between the marks.
pub(super) fn call(body: &str, quote: &'static str) -> Option<Vec<ToolCall>> {
    let body = body.trim().strip_prefix("call:")?;
    let (name, rest) = body.split_at(body.find('{')?);
    let mut reader = Arguments { rest, quote };
    let arguments = reader.value(0)?;
    let whole = reader.rest.trim().is_empty() && !name.trim().is_empty();
    whole.then(|| vec![ToolCall { name: name.trim().to_owned(), arguments: arguments.to_string() }])
}

struct Arguments<'t> {
    rest: &'t str,
    quote: &'static str,
}

impl<'t> Arguments<'t> {
    fn takes(&mut self, word: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// What stands between two quotes, the first of which has been read.
    fn quoted(&mut self) -> Option<&'t str> {
        let (text, rest) = self.rest.split_once(self.quote)?;
        self.rest = rest;
        Some(text)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        if self.takes(self.quote) {
            return self.quoted().map(Value::from);
        }
        if self.takes("{") {
            return self.object(depth);
        }
        if self.takes("[") {
            return self.list(depth);
        }
        let end = self.rest.find([',', '}', ']']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(plain(word.trim()))
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut object = Map::new();
        while !self.takes("}") {
            let key = match self.takes(self.quote) {
                true => self.quoted()?,
                false => {
                    let (key, rest) = self.rest.split_at(self.rest.find(':')?);
                    self.rest = rest;
                    key
                }
            };
            if !self.takes(":") {
                return None;
            }
            let value = self.value(depth + 1)?;
            object.insert(key.trim().to_owned(), value);
            if !self.takes(",") && !self.rest.trim_start().starts_with('}') {
                return None;
            }
        }
        Some(Value::Object(object))
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        while !self.takes("]") {
            items.push(self.value(depth + 1)?);
            if !self.takes(",") && !self.rest.trim_start().starts_with(']') {
                return None;
            }
        }
        Some(Value::Array(items))
    }
}

/// A word without quotes: a number, a truth, nothing, or itself.
fn plain(word: &str) -> Value {
    match word {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" | "none" | "None" => Value::Null,
        _ => match (word.parse::<i64>(), word.parse::<f64>().ok().and_then(Number::from_f64)) {
            (Ok(whole), _) => whole.into(),
            (_, Some(number)) if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                Value::Number(number)
            }
            _ => word.into(),
        },
    }
}
