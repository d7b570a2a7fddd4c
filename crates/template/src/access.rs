//! What is inside a value: attributes, items, slices, and walking through it.

use super::budget::Fault;
use super::interpreter::Interpreter;
use super::methods;
use super::text::{Text, Written};
use super::value::{Items, Loop, Value};
use std::rc::Rc;
use std::sync::Arc;

impl Interpreter<'_> {
    /// `value.name`: Python's attribute first, then the item of that name, as jinja2 has it.
    pub(super) fn attribute(&mut self, value: &Value, name: &Arc<str>) -> Result<Value, Fault> {
        if let Value::Undefined(undefined) = value {
            return Fault::evaluation(undefined.message.clone());
        }
        if let Some(found) = self.python_attribute(value, name)? {
            return Ok(found);
        }
        if let Value::Dict(dict) = value
            && let Some((_, item)) = dict.entries.get(&self.budget.key(&Value::Str(Text::own(name.clone())))?)
        {
            return Ok(item.clone());
        }
        self.budget.undefined(format!("'{}' has no attribute '{name}'", object_name(value)))
    }

    fn python_attribute(&mut self, value: &Value, name: &Arc<str>) -> Result<Option<Value>, Fault> {
        self.budget.scan(name.len())?;
        if name.starts_with("__") || methods::changes(value, name) {
            let kind = value.type_name();
            let message = format!("access to attribute '{name}' of '{kind}' object is unsafe.");
            return self.budget.undefined(message).map(Some);
        }
        if methods::knows(value, name) {
            return self.budget.method(value, name).map(Some);
        }
        Ok(match value {
            Value::Namespace(id) => self.namespaces[*id].get(name).cloned(),
            Value::Loop(state) => loop_attribute(state, name),
            Value::Cycler(id) if &**name == "current" => {
                let (items, asked) = &self.cyclers[*id];
                items.values.get(asked % items.values.len().max(1)).cloned()
            }
            Value::Macro(id) if &**name == "name" => {
                Some(Value::Str(Text::own(self.macros[*id].definition.name.clone())))
            }
            _ => None,
        })
    }

    /// `value[index]`: the item first, then Python's attribute of that name.
    pub(super) fn item(&mut self, value: &Value, index: &Value) -> Result<Value, Fault> {
        let (value, index) = (&value.plain(), &index.plain());
        let found = match (value, index.as_int()) {
            (Value::Undefined(undefined), _) => return Fault::evaluation(undefined.message.clone()),
            (Value::Dict(dict), _) => {
                // What cannot be a key is in no dictionary.
                let key = match self.budget.key(index) {
                    Err(Fault::Evaluation(_)) => None,
                    key => Some(key?),
                };
                key.and_then(|key| dict.entries.get(&key)).map(|(_, item)| item.clone())
            }
            (Value::List(items) | Value::Tuple(items), Some(index)) => {
                position(index, items.values.len()).and_then(|at| items.values.get(at)).cloned()
            }
            (Value::Range(range), Some(index)) => position(index, range.length).map(|at| range.at(at)),
            (Value::Str(text), Some(index)) => {
                self.budget.scan(text.len())?;
                let at = position(index, text.chars().count());
                let found = at.and_then(|at| text.char_indices().nth(at));
                found.map(|(at, c)| Value::Str(text.part(&text[at..at + c.len_utf8()])))
            }
            _ => None,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        if let Value::Str(name) = index {
            return match self.python_attribute(value, name.shared())? {
                Some(found) => Ok(found),
                None => self.budget.undefined(format!("'{}' has no attribute '{name}'", object_name(value))),
            };
        }
        let index = self.repr(index)?;
        self.budget.undefined(format!("{} has no element {index}", object_name(value)))
    }

    /// `value[start:stop:step]`.
    pub(super) fn slice(&mut self, value: &Value, bounds: [Option<Value>; 3]) -> Result<Value, Fault> {
        let mut numbers = [None; 3];
        for (number, bound) in numbers.iter_mut().zip(&bounds) {
            *number = match bound {
                None | Some(Value::None) => None,
                Some(bound) => match bound.as_int() {
                    Some(number) => Some(number),
                    None => return Fault::evaluation("slice indices must be integers or None"),
                },
            };
        }
        let [start, stop, step] = numbers;
        let step = step.unwrap_or(1);
        if step == 0 {
            return Fault::evaluation("slice step cannot be zero");
        }
        let chosen = |length: usize| indices(start, stop, step, length);
        match value {
            Value::Undefined(undefined) => Fault::evaluation(undefined.message.clone()),
            Value::Str(text) | Value::Markup(text) => {
                self.budget.bytes(text.len())?;
                let characters: Vec<(usize, char)> = text.char_indices().collect();
                self.budget.repeat(characters.len(), 2 * size_of::<(usize, char)>())?;
                let mut chosen_text = Written::default();
                for &(at, c) in chosen(characters.len()).filter_map(|at| characters.get(at)) {
                    chosen_text.push_range(text, at..at + c.len_utf8());
                }
                self.budget.text(chosen_text.finish())
            }
            Value::List(items) | Value::Tuple(items) => {
                self.budget.bytes(items.values.len() * size_of::<Value>())?;
                let kept: Vec<Value> =
                    chosen(items.values.len()).filter_map(|at| items.values.get(at).cloned()).collect();
                if matches!(value, Value::List(_)) { self.budget.list(kept) } else { self.budget.tuple(kept) }
            }
            Value::Range(range) => {
                self.budget.bytes(range.length * size_of::<Value>())?;
                let kept = chosen(range.length).map(|at| range.at(at)).collect();
                self.budget.list(kept)
            }
            other => Ok(Value::undefined(format!("{} cannot be sliced", object_name(other)))),
        }
    }

    /// All items of a value, in order. A generator is empty afterwards.
    pub(super) fn walk(&mut self, value: &Value) -> Result<Rc<Items>, Fault> {
        match value {
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => Ok(items.clone()),
            Value::Undefined(_) => self.budget.items(Vec::new()),
            Value::Dict(dict) => {
                let keys = dict.entries.values().map(|(key, _)| key.clone()).collect();
                self.budget.items(keys)
            }
            Value::Str(text) | Value::Markup(text) => {
                self.budget.repeat(text.len(), 2 * size_of::<Value>())?;
                let part = |(at, c): (usize, char)| Value::Str(text.part(&text[at..at + c.len_utf8()]));
                let characters = text.char_indices().map(part).collect();
                self.budget.items(characters)
            }
            Value::Range(range) => {
                self.budget.repeat(range.length, size_of::<Value>())?;
                let values = (0..range.length).map(|at| range.at(at)).collect();
                self.budget.items(values)
            }
            Value::Generator(generator) => {
                let values = generator.values.borrow_mut().by_ref().collect();
                self.budget.items(values)
            }
            other => Fault::evaluation(format!("'{}' object is not iterable", other.type_name())),
        }
    }

    /// `len(value)`.
    pub(super) fn length(&mut self, value: &Value) -> Result<usize, Fault> {
        match value {
            Value::Undefined(_) => Ok(0),
            Value::Str(text) | Value::Markup(text) => {
                self.budget.scan(text.len())?;
                Ok(text.chars().count())
            }
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => Ok(items.values.len()),
            Value::Dict(dict) => Ok(dict.entries.len()),
            Value::Range(range) => Ok(range.length),
            Value::Loop(state) => Ok(state.items.values.len()),
            other => Fault::evaluation(format!("object of type '{}' has no len()", other.type_name())),
        }
    }
}

/// How jinja2 speaks of a value in its messages.
fn object_name(value: &Value) -> String {
    match value {
        Value::None => "None".into(),
        other => format!("{} object", other.type_name()),
    }
}

/// An index from the front, or from the back where it is negative.
fn position(index: i128, length: usize) -> Option<usize> {
    let length = length as i128;
    let at = if index < 0 { index.checked_add(length)? } else { index };
    (0..length).contains(&at).then_some(at as usize)
}

/// The positions that a slice takes, in its order.
fn indices(
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
    length: usize,
) -> impl Iterator<Item = usize> {
    let length = length as i128;
    // A step downwards may stop before the first item, one upwards after the last.
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |bound: Option<i128>, default: i128| match bound {
        None => default,
        Some(bound) if bound < 0 => bound.saturating_add(length).clamp(low, high),
        Some(bound) => bound.clamp(low, high),
    };
    let (start, stop) = if step > 0 {
        (clamp(start, 0), clamp(stop, length))
    } else {
        (clamp(start, length - 1), clamp(stop, -1))
    };
    let goes_on = move |at: &i128| if step > 0 { *at < stop } else { *at > stop };
    std::iter::successors(Some(start), move |at| at.checked_add(step))
        .take_while(goes_on)
        .map(|at| at as usize)
}

fn loop_attribute(state: &Loop, name: &str) -> Option<Value> {
    let (index, length) = (state.index.get(), state.items.values.len());
    let number = |value: usize| Some(Value::Int(value as i128));
    let neighbour = |at: Option<usize>, message: &str| {
        let item = at.and_then(|at| state.items.values.get(at)).cloned();
        Some(item.unwrap_or_else(|| Value::undefined(message)))
    };
    match name {
        "index" => number(index + 1),
        "index0" => number(index),
        "revindex" => number(length - index),
        "revindex0" => number(length - index - 1),
        "first" => Some(Value::Bool(index == 0)),
        "last" => Some(Value::Bool(index + 1 == length)),
        "length" => number(length),
        "depth" => number(state.depth + 1),
        "depth0" => number(state.depth),
        "previtem" => neighbour(index.checked_sub(1), "there is no previous item"),
        "nextitem" => neighbour(Some(index + 1), "there is no next item"),
        _ => None,
    }
}
