//! Calls: macros, the functions of the environment, methods.

use super::budget::Fault;
use super::interpreter::Interpreter;
use super::text::Text;
use super::value::{Range, Value};
use indexmap::IndexMap;
use std::sync::Arc;

/// The longest range that the sandbox lets pass.
const MAX_RANGE: usize = 100_000;

/// The values of a call's arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Arc<str>, Value)>,
}

impl Given {
    /// The same without marks on texts, for what is not written in the template itself.
    pub(super) fn plain(mut self) -> Given {
        let values = self.positional.iter_mut().chain(self.named.iter_mut().map(|(_, value)| value));
        values.for_each(|value| *value = value.plain());
        self
    }

    /// Bytes of the texts among the arguments: what is looked for in something takes time of its own.
    pub(super) fn text_bytes(&self) -> usize {
        let values = self.positional.iter().chain(self.named.iter().map(|(_, value)| value));
        values.filter_map(Value::as_str).map(|text| text.len()).sum()
    }

    /// The arguments in the order of a function's parameters.
    pub(super) fn bind<const N: usize>(
        self,
        function: &str,
        parameters: [&str; N],
    ) -> Result<[Option<Value>; N], Fault> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            let given = self.positional.len();
            return Fault::evaluation(format!("{function}() takes at most {N} arguments ({given} given)"));
        }
        for (slot, value) in bound.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            match parameters.iter().position(|parameter| **parameter == *name) {
                None => return Fault::evaluation(format!("{function}() has no argument '{name}'")),
                Some(index) if bound[index].is_some() => {
                    return Fault::evaluation(format!("{function}() got '{name}' twice"));
                }
                Some(index) => bound[index] = Some(value),
            }
        }
        Ok(bound)
    }

    /// For functions that take nothing.
    pub(super) fn none(self, function: &str) -> Result<(), Fault> {
        self.bind::<0>(function, []).map(|_| ())
    }
}

/// An argument that must be there.
pub(super) fn required(value: Option<Value>, function: &str, parameter: &str) -> Result<Value, Fault> {
    value.map_or_else(|| Fault::evaluation(format!("{function}() needs the argument '{parameter}'")), Ok)
}

/// An argument that must be an integer, with what it is when not given.
pub(super) fn integer(value: Option<Value>, default: i128, what: &str) -> Result<i128, Fault> {
    match value {
        None => Ok(default),
        Some(value) => value.as_int().map_or_else(
            || Fault::evaluation(format!("{what} must be an integer, not '{}'", value.type_name())),
            Ok,
        ),
    }
}

/// An argument that must be a string.
pub(super) fn text(value: Value, what: &str) -> Result<Text, Fault> {
    match value {
        Value::Str(text) => Ok(text),
        other => Fault::evaluation(format!("{what} must be a string, not '{}'", other.type_name())),
    }
}

/// The name of an argument as a value. It may have been a key of the caller's, so that it counts as heard; what a template
/// can spell as a name is no special token anyway.
pub(super) fn name_value(name: Arc<str>) -> Value {
    Value::Str(Text::heard(name))
}

impl Interpreter<'_> {
    pub(super) fn call(&mut self, function: &Value, given: Given) -> Result<Value, Fault> {
        self.deeper(|interpreter| match function {
            Value::Macro(id) => interpreter.call_macro(*id, given),
            Value::Function(name) => interpreter.call_function(name, given.plain()),
            Value::Method(method) => interpreter.call_method(&method.0, &method.1, given.plain()),
            Value::Loop(state) => {
                let [items] = given.bind("loop", ["iterable"])?;
                let Some((node, scope)) = state.recursive else {
                    return Fault::evaluation(
                        "the loop must have the 'recursive' marker to be called recursively",
                    );
                };
                let items = required(items, "loop", "iterable")?;
                let (node, depth, recursive) =
                    (interpreter.recursive_loops[node], state.depth + 1, state.recursive);
                interpreter.capture(|interpreter| {
                    interpreter
                        .scoped_in(scope, |interpreter| interpreter.run_loop(node, &items, depth, recursive))
                })
            }
            Value::Joiner(id) => {
                given.none("joiner")?;
                let (separator, used) = &mut interpreter.joiners[*id];
                let first = !std::mem::replace(used, true);
                Ok(if first { Value::str("") } else { Value::Str(separator.clone()) })
            }
            Value::Undefined(undefined) => Fault::evaluation(undefined.message.clone()),
            other => Fault::evaluation(format!("'{}' object is not callable", other.type_name())),
        })
    }

    fn call_macro(&mut self, id: usize, given: Given) -> Result<Value, Fault> {
        let called = self.macros[id];
        let definition = called.definition;
        let name = &definition.name;
        let mut positional = given.positional.into_iter();
        let mut named = given.named;
        self.capture(|interpreter| {
            interpreter.scoped_in(called.scope, |interpreter| {
                for (parameter, default) in &definition.parameters {
                    let by_name = named.iter().position(|(name, _)| name == parameter);
                    let value = match (positional.next(), by_name, default) {
                        (Some(_), Some(_), _) => {
                            return Fault::evaluation(format!("macro '{name}' got '{parameter}' twice"));
                        }
                        (Some(value), None, _) => value,
                        (None, Some(index), _) => named.remove(index).1,
                        (None, None, Some(default)) => interpreter.evaluate(default)?,
                        (None, None, None) => {
                            Value::undefined(format!("parameter '{parameter}' was not provided"))
                        }
                    };
                    interpreter.set(parameter, value)?;
                }
                let caller =
                    named.iter().position(|(name, _)| &**name == "caller").map(|at| named.remove(at).1);
                if definition.takes_caller {
                    let none = || Value::undefined("No caller defined");
                    interpreter.set(&"caller".into(), caller.unwrap_or_else(none))?;
                } else if caller.is_some() {
                    return Fault::evaluation(format!("macro '{name}' takes no caller"));
                }
                let rest: Vec<Value> = positional.collect();
                if definition.takes_varargs {
                    let rest = interpreter.budget.tuple(rest)?;
                    interpreter.set(&"varargs".into(), rest)?;
                } else if !rest.is_empty() {
                    let count = definition.parameters.len();
                    return Fault::evaluation(format!(
                        "macro '{name}' takes not more than {count} arguments"
                    ));
                }
                if definition.takes_kwargs {
                    let entries = named.into_iter().map(|(name, value)| (name_value(name), value)).collect();
                    let named = interpreter.budget.dict(entries)?;
                    interpreter.set(&"kwargs".into(), named)?;
                } else if let Some((unknown, _)) = named.first() {
                    return Fault::evaluation(format!("macro '{name}' takes no argument '{unknown}'"));
                }
                interpreter.run(&definition.body).map(|_| ())
            })
        })
    }

    fn call_function(&mut self, name: &str, given: Given) -> Result<Value, Fault> {
        match name {
            "raise_exception" => {
                let [message] = given.bind(name, ["message"])?;
                let message = required(message, name, "message")?;
                Err(Fault::Raised(self.str(&message)?.to_string()))
            }
            "strftime_now" => {
                let [format] = given.bind(name, ["format"])?;
                let format = text(required(format, name, "format")?, "the format of strftime_now")?;
                // The longest that two characters can become.
                self.budget.repeat(format.len(), 32)?;
                let now = self.now.format(&format);
                self.budget.text(Text::like(now, &[&format]))
            }
            "range" => self.range(given),
            "dict" => {
                let entries = self.mapping(given)?;
                self.budget.dict(entries)
            }
            "namespace" => {
                let mut attributes = IndexMap::new();
                let entries = self.mapping(given)?;
                self.budget.bytes((entries.len() + 2) * 4 * size_of::<Value>())?;
                for (key, value) in entries {
                    let key = text(key, "the name of a namespace's attribute")?;
                    self.budget.scan(key.len())?;
                    if key.starts_with('_') {
                        return Fault::evaluation(format!(
                            "a namespace takes no attribute `{key}` that starts with `_`"
                        ));
                    }
                    attributes.insert(key.shared().clone(), value);
                }
                self.namespaces.push(attributes);
                Ok(Value::Namespace(self.namespaces.len() - 1))
            }
            "cycler" => {
                if given.positional.is_empty() || !given.named.is_empty() {
                    return Fault::evaluation("cycler() needs at least one item");
                }
                let items = self.budget.items(given.positional)?;
                self.cyclers.push((items, 0));
                Ok(Value::Cycler(self.cyclers.len() - 1))
            }
            "joiner" => {
                let [separator] = given.bind(name, ["sep"])?;
                let separator =
                    text(separator.unwrap_or_else(|| Value::str(", ")), "the separator of a joiner")?;
                self.budget.bytes(64)?;
                self.joiners.push((separator, false));
                Ok(Value::Joiner(self.joiners.len() - 1))
            }
            other => Fault::evaluation(format!("'{other}' is undefined")),
        }
    }

    /// What `dict(...)` takes: a mapping or pairs, and names.
    fn mapping(&mut self, given: Given) -> Result<Vec<(Value, Value)>, Fault> {
        let mut entries = Vec::new();
        match given.positional.as_slice() {
            [] => {}
            [Value::Dict(dict)] => {
                self.budget.bytes(dict.entries.len() * 2 * size_of::<Value>())?;
                entries.extend(dict.entries.values().cloned());
            }
            [pairs] => {
                let pairs = self.walk(pairs)?;
                for pair in &pairs.values {
                    let pair = self.walk(pair)?;
                    let [key, value] = pair.values.as_slice() else {
                        return Fault::evaluation("dict() needs pairs of key and value");
                    };
                    entries.push((key.clone(), value.clone()));
                }
            }
            _ => return Fault::evaluation("dict() takes one mapping at most"),
        }
        entries.extend(given.named.into_iter().map(|(name, value)| (name_value(name), value)));
        Ok(entries)
    }

    fn range(&mut self, given: Given) -> Result<Value, Fault> {
        let numbers =
            given.positional.iter().map(|value| integer(Some(value.clone()), 0, "an argument of range"));
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        let (start, stop, step) = match *numbers.as_slice() {
            [stop] => (0, stop, 1),
            [start, stop] => (start, stop, 1),
            [start, stop, step] => (start, stop, step),
            _ => return Fault::evaluation("range() takes one to three integers"),
        };
        // Python's integers have no end; ranges near the end of ours are of no use to anybody.
        let small = |value: i128| value.unsigned_abs() < 1 << 100;
        if step == 0 || !given.named.is_empty() || ![start, stop, step].into_iter().all(small) {
            return Fault::evaluation("range() needs integers, the step not zero");
        }
        let span = if step > 0 { stop - start } else { start - stop };
        let length = if span <= 0 { 0 } else { (span - 1) / step.abs() + 1 };
        match usize::try_from(length) {
            Ok(length) if length <= MAX_RANGE => Ok(Value::Range(Range { start, step, length, stop })),
            _ => Err(Fault::Limit { what: "items in a range", limit: MAX_RANGE as u64 }),
        }
    }
}
