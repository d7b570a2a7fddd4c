//! Values as Python has them: what a template's names stand for.
//!
//! Lists and dictionaries are shared and never change, as the sandbox demands; what can change (namespaces, scopes)
//! lives in the interpreter and is named by number, so that no value can hold itself.

use super::budget::{Budget, Fault};
use super::text::Text;
use indexmap::IndexMap;
use serde_json::Value as Json;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// A value of a template.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Undefined(Rc<Undefined>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Text),
    /// A text that `safe` or `escape` gave: what is added to it gets escaped.
    Markup(Text),
    List(Rc<Items>),
    Tuple(Rc<Items>),
    Dict(Rc<Dict>),
    /// What `dict.keys()`, `.values()` and `.items()` give.
    View(&'static str, Rc<Items>),
    Range(Range),
    /// Something that can be walked through once.
    Generator(Rc<Generator>),
    Namespace(usize),
    Macro(usize),
    Loop(Rc<Loop>),
    Cycler(usize),
    Joiner(usize),
    /// A function of the environment.
    Function(&'static str),
    /// A method and the value it was taken from.
    Method(Rc<(Value, Arc<str>)>),
}

/// What stands where nothing was found, and why.
#[derive(Debug)]
pub(super) struct Undefined {
    pub(super) message: String,
}

/// Values in order, with how deep they nest.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) values: Vec<Value>,
    depth: usize,
}

#[derive(Debug)]
pub(super) struct Dict {
    pub(super) entries: IndexMap<Key, (Value, Value)>,
    depth: usize,
}

#[derive(Debug)]
pub(super) struct Generator {
    pub(super) values: RefCell<std::vec::IntoIter<Value>>,
    depth: usize,
}

/// What a dictionary finds an entry by; equal where Python's values are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    None,
    Int(i128),
    /// The bits of a float that is no integer.
    Float(u64),
    Str(Arc<str>),
    Tuple(Vec<Key>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: i128,
    pub(super) step: i128,
    pub(super) length: usize,
    pub(super) stop: i128,
}

/// What `loop` stands for inside a loop.
#[derive(Debug)]
pub(super) struct Loop {
    /// Number of the loop, under which the interpreter keeps what `changed` saw.
    pub(super) id: usize,
    pub(super) items: Rc<Items>,
    pub(super) index: Cell<usize>,
    pub(super) depth: usize,
    /// For recursive loops: which one, and where it was begun.
    pub(super) recursive: Option<(usize, usize)>,
}

/// Deeper values could not be dropped or printed without wearing out the stack.
const MAX_DEPTH: usize = 100;
/// Who speaks, in the families of models that there are. Some templates make a special token of the name; any other name
/// is the caller's text.
const ROLES: [&str; 10] = [
    "system",
    "developer",
    "user",
    "assistant",
    "model",
    "tool",
    "function",
    "ipython",
    "observation",
    "environment",
];
/// What a value costs beside its contents.
const VALUE_BYTES: usize = size_of::<Value>();

impl Value {
    /// A text of the template itself.
    pub(super) fn str(text: &str) -> Value {
        Value::Str(Text::own(text))
    }

    /// Nothing, for a reason that has no part of the template's values in it; [`Budget::undefined`] pays for others.
    pub(super) fn undefined(message: impl Into<String>) -> Value {
        Value::Undefined(Rc::new(Undefined { message: message.into() }))
    }

    /// The same value, a marked text without its mark.
    pub(super) fn plain(&self) -> Value {
        match self {
            Value::Markup(text) => Value::Str(text.clone()),
            other => other.clone(),
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    /// Python's name of the type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::Markup(_) => "Markup",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::View(name, _) => name,
            Value::Range(_) => "range",
            Value::Generator(_) => "generator",
            Value::Namespace(_) => "Namespace",
            Value::Macro(_) => "Macro",
            Value::Loop(_) => "LoopContext",
            Value::Cycler(_) => "Cycler",
            Value::Joiner(_) => "Joiner",
            Value::Function(_) => "function",
            Value::Method(_) => "method",
        }
    }

    /// What `if` makes of it.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Str(text) | Value::Markup(text) => !text.is_empty(),
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => !items.values.is_empty(),
            Value::Dict(dict) => !dict.entries.is_empty(),
            Value::Range(range) => range.length > 0,
            Value::Loop(state) => !state.items.values.is_empty(),
            _ => true,
        }
    }

    fn depth(&self) -> usize {
        match self {
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => items.depth,
            Value::Dict(dict) => dict.depth,
            Value::Generator(generator) => generator.depth,
            Value::Loop(state) => state.items.depth + 1,
            Value::Method(method) => method.0.depth() + 1,
            _ => 0,
        }
    }

    /// The number, where it is one; `True` is 1.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Bool(value) => Some(i128::from(*value)),
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The number as a float, where it is one.
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            _ => self.as_int().map(|value| value as f64),
        }
    }

    pub(super) fn as_str(&self) -> Option<&Text> {
        match self {
            Value::Str(text) | Value::Markup(text) => Some(text),
            _ => None,
        }
    }
}

impl Range {
    pub(super) fn at(self, index: usize) -> Value {
        Value::Int(self.start + self.step * index as i128)
    }
}

impl Budget {
    /// A text, paid for.
    pub(super) fn text(&mut self, text: Text) -> Result<Value, Fault> {
        self.bytes(text.cost() + VALUE_BYTES)?;
        Ok(Value::Str(text))
    }

    /// Nothing, for a reason that may be as long as the template makes it.
    pub(super) fn undefined(&mut self, message: String) -> Result<Value, Fault> {
        self.bytes(message.len() + VALUE_BYTES)?;
        Ok(Value::undefined(message))
    }

    pub(super) fn items(&mut self, values: Vec<Value>) -> Result<Rc<Items>, Fault> {
        self.bytes((values.len() + 2) * VALUE_BYTES)?;
        let depth = self.deeper(values.iter().map(Value::depth).max())?;
        Ok(Rc::new(Items { values, depth }))
    }

    pub(super) fn list(&mut self, values: Vec<Value>) -> Result<Value, Fault> {
        self.items(values).map(Value::List)
    }

    pub(super) fn tuple(&mut self, values: Vec<Value>) -> Result<Value, Fault> {
        self.items(values).map(Value::Tuple)
    }

    pub(super) fn generator(&mut self, values: Vec<Value>) -> Result<Value, Fault> {
        let depth = self.deeper(values.iter().map(Value::depth).max())?;
        self.bytes((values.len() + 2) * VALUE_BYTES)?;
        Ok(Value::Generator(Rc::new(Generator { values: RefCell::new(values.into_iter()), depth })))
    }

    pub(super) fn dict(&mut self, entries: Vec<(Value, Value)>) -> Result<Value, Fault> {
        self.bytes((entries.len() + 2) * 5 * VALUE_BYTES)?;
        let depth = self.deeper(entries.iter().map(|(key, value)| key.depth().max(value.depth())).max())?;
        let mut map: IndexMap<Key, (Value, Value)> = IndexMap::with_capacity(entries.len());
        for (key, value) in entries {
            // An entry that comes again keeps its place and its first key, as in Python.
            match map.entry(self.key(&key)?) {
                indexmap::map::Entry::Occupied(mut old) => old.get_mut().1 = value,
                indexmap::map::Entry::Vacant(free) => drop(free.insert((key, value))),
            }
        }
        Ok(Value::Dict(Rc::new(Dict { entries: map, depth })))
    }

    pub(super) fn method(&mut self, value: &Value, name: &Arc<str>) -> Result<Value, Fault> {
        self.bytes(2 * VALUE_BYTES)?;
        self.deeper(Some(value.depth()))?;
        Ok(Value::Method(Rc::new((value.clone(), name.clone()))))
    }

    fn deeper(&self, inner: Option<usize>) -> Result<usize, Fault> {
        let depth = inner.map_or(1, |inner| inner + 1);
        if depth > MAX_DEPTH {
            return Err(Fault::Limit { what: "levels of nested values", limit: MAX_DEPTH as u64 });
        }
        Ok(depth)
    }

    /// What a dictionary finds this value by.
    pub(super) fn key(&mut self, value: &Value) -> Result<Key, Fault> {
        self.steps(1)?;
        Ok(match value {
            Value::None => Key::None,
            Value::Bool(value) => Key::Int(i128::from(*value)),
            Value::Int(value) => Key::Int(*value),
            Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e38 => Key::Int(*value as i128),
            Value::Float(value) => Key::Float(value.to_bits()),
            Value::Str(text) | Value::Markup(text) => {
                // It will be hashed.
                self.scan(text.len())?;
                Key::Str(text.shared().clone())
            }
            Value::Tuple(items) => {
                self.repeat(items.values.len(), size_of::<Key>())?;
                let keys = items.values.iter().map(|value| self.key(value));
                Key::Tuple(keys.collect::<Result<_, _>>()?)
            }
            other => return Fault::evaluation(format!("unhashable type: '{}'", other.type_name())),
        })
    }

    /// A value of the caller; `source` says what its texts are.
    pub(super) fn json(&mut self, json: &Json, source: fn(&str) -> Text) -> Result<Value, Fault> {
        self.steps(1)?;
        match json {
            Json::Null => Ok(Value::None),
            Json::Bool(value) => Ok(Value::Bool(*value)),
            Json::Number(number) => {
                let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
                Ok(integer.map_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN)), Value::Int))
            }
            Json::String(text) => self.text(source(text)),
            Json::Array(items) => {
                let values = items.iter().map(|item| self.json(item, source)).collect::<Result<_, _>>()?;
                self.list(values)
            }
            Json::Object(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| Ok((self.text(source(key))?, self.json(value, source)?)));
                let entries = entries.collect::<Result<_, Fault>>()?;
                self.dict(entries)
            }
        }
    }

    /// The messages of a conversation: texts of the caller, but for roles, of which templates build their marks.
    pub(super) fn messages(&mut self, messages: &[Json]) -> Result<Value, Fault> {
        let mut values = Vec::with_capacity(messages.len());
        for message in messages {
            let mut entries = Vec::new();
            for (key, value) in message.as_object().into_iter().flatten() {
                let known = key == "role" && value.as_str().is_some_and(|role| ROLES.contains(&role));
                let source: fn(&str) -> Text =
                    if known { |role| Text::own(role) } else { |text| Text::heard(text) };
                entries.push((self.text(Text::heard(key.as_str()))?, self.json(value, source)?));
            }
            values.push(self.dict(entries)?);
        }
        self.list(values)
    }
}
