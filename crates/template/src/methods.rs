//! Methods of Python's types, as far as they change nothing.

use super::budget::Fault;
use super::call::{Given, integer, required};
use super::interpreter::Interpreter;
use super::value::Value;

/// Methods of strings; [`strings`](super::strings) does the work.
const OF_STRINGS: [&str; 43] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
];
const OF_DICTS: [&str; 5] = ["get", "items", "keys", "values", "copy"];
const OF_LISTS: [&str; 3] = ["index", "count", "copy"];
/// What the immutable sandbox keeps away from.
const CHANGES_DICTS: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];
const CHANGES_LISTS: [&str; 8] = ["append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"];

/// Whether a value has a method of this name.
pub(super) fn knows(value: &Value, name: &str) -> bool {
    match value {
        Value::Str(_) | Value::Markup(_) => OF_STRINGS.contains(&name) || name == "zfill",
        Value::Dict(_) => OF_DICTS.contains(&name),
        Value::List(_) => OF_LISTS.contains(&name),
        Value::Tuple(_) => name == "index" || name == "count",
        Value::Float(_) | Value::Int(_) => name == "is_integer",
        Value::Cycler(_) => name == "next" || name == "reset",
        Value::Loop(_) => name == "cycle" || name == "changed",
        Value::Function("dict") => name == "fromkeys",
        _ => false,
    }
}

/// Whether a method of this name would change the value.
pub(super) fn changes(value: &Value, name: &str) -> bool {
    match value {
        Value::Dict(_) => CHANGES_DICTS.contains(&name),
        Value::List(_) => CHANGES_LISTS.contains(&name),
        _ => false,
    }
}

impl Interpreter<'_> {
    pub(super) fn call_method(&mut self, value: &Value, name: &str, given: Given) -> Result<Value, Fault> {
        match value {
            Value::Str(text) => self.string_method(&text.clone(), name, given),
            Value::Markup(text) => {
                let result = self.string_method(&text.clone(), name, given)?;
                Ok(marked(result))
            }
            Value::Dict(_) => self.dict_method(value, name, given),
            Value::List(_) | Value::Tuple(_) => self.list_method(value, name, given),
            Value::Float(value) => given.none(name).map(|()| Value::Bool(value.fract() == 0.0)),
            Value::Int(_) => given.none(name).map(|()| Value::Bool(true)),
            Value::Cycler(id) => {
                given.none(name)?;
                let (items, asked) = &mut self.cyclers[*id];
                let current = items.values.get(*asked % items.values.len().max(1)).cloned();
                match name {
                    "reset" => {
                        *asked = 0;
                        Ok(Value::None)
                    }
                    _ => {
                        *asked += 1;
                        Ok(current.unwrap_or(Value::None))
                    }
                }
            }
            Value::Loop(state) if name == "cycle" => {
                let items = given.positional;
                if items.is_empty() {
                    return Fault::evaluation("no items for cycling given");
                }
                Ok(items[state.index.get() % items.len()].clone())
            }
            Value::Loop(state) => {
                let now = self.budget.tuple(given.positional)?;
                let same = match self.changed.get(&state.id).cloned() {
                    Some(before) => self.equal(&before, &now)?,
                    None => false,
                };
                self.changed.insert(state.id, now);
                Ok(Value::Bool(!same))
            }
            Value::Function(_) => {
                let [keys, value] = given.bind("fromkeys", ["iterable", "value"])?;
                let keys = self.walk(&required(keys, "fromkeys", "iterable")?)?;
                let value = value.unwrap_or(Value::None);
                self.budget.repeat(keys.values.len(), 2 * size_of::<Value>())?;
                self.budget.dict(keys.values.iter().map(|key| (key.clone(), value.clone())).collect())
            }
            other => Fault::evaluation(format!("'{}' object has no method '{name}'", other.type_name())),
        }
    }

    fn dict_method(&mut self, value: &Value, name: &str, given: Given) -> Result<Value, Fault> {
        let Value::Dict(dict) = value else { return Fault::evaluation("not a dict") };
        match name {
            "get" => {
                let [key, default] = given.bind("get", ["key", "default"])?;
                let key = self.budget.key(&required(key, "get", "key")?)?;
                let found = dict.entries.get(&key).map(|(_, value)| value.clone());
                Ok(found.or(default).unwrap_or(Value::None))
            }
            "copy" => given.none("copy").map(|()| value.clone()),
            "keys" => {
                given.none(name)?;
                let keys = dict.entries.values().map(|(key, _)| key.clone()).collect();
                Ok(Value::View("dict_keys", self.budget.items(keys)?))
            }
            "values" => {
                given.none(name)?;
                let values = dict.entries.values().map(|(_, value)| value.clone()).collect();
                Ok(Value::View("dict_values", self.budget.items(values)?))
            }
            _ => {
                given.none(name)?;
                let pairs = self.pairs(value)?;
                Ok(Value::View("dict_items", self.budget.items(pairs)?))
            }
        }
    }

    /// The entries of a dictionary as pairs.
    pub(super) fn pairs(&mut self, value: &Value) -> Result<Vec<Value>, Fault> {
        let Value::Dict(dict) = value else {
            return Fault::evaluation(format!("'{}' object has no items", value.type_name()));
        };
        let pairs =
            dict.entries.values().map(|(key, value)| self.budget.tuple(vec![key.clone(), value.clone()]));
        pairs.collect()
    }

    fn list_method(&mut self, value: &Value, name: &str, given: Given) -> Result<Value, Fault> {
        if name == "copy" {
            return given.none("copy").map(|()| value.clone());
        }
        let [item, start, stop] = given.bind(name, ["value", "start", "stop"])?;
        let item = required(item, name, "value")?;
        let items = self.walk(value)?;
        let length = items.values.len() as i128;
        let bound = |value: Option<Value>, default: i128| {
            let bound = integer(value, default, "a bound")?;
            Ok::<i128, Fault>(if bound < 0 { bound.saturating_add(length).max(0) } else { bound })
        };
        let (start, stop) = (bound(start, 0)?, bound(stop, length)?);
        let mut count = 0;
        for (at, candidate) in items.values.iter().enumerate() {
            let inside = name == "count" || (start..stop).contains(&(at as i128));
            if inside && self.equal(candidate, &item)? {
                if name == "index" {
                    return Ok(Value::Int(at as i128));
                }
                count += 1;
            }
        }
        if name == "index" {
            Fault::evaluation("the value is not in the list")
        } else {
            Ok(Value::Int(count))
        }
    }
}

/// A text that came from a marked one keeps the mark.
pub(super) fn marked(value: Value) -> Value {
    match value {
        Value::Str(text) => Value::Markup(text),
        other => other,
    }
}
