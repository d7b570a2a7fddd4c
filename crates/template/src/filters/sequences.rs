//! Filters over things that can be walked through.

use crate::budget::Fault;
use crate::call::{Given, integer, required};
use crate::interpreter::Interpreter;
use crate::text::{Text, Written};
use crate::value::Value;
use std::cmp::Ordering;

impl Interpreter<'_> {
    pub(super) fn sequence_filter(
        &mut self,
        name: &str,
        value: &Value,
        given: Given,
    ) -> Result<Value, Fault> {
        match name {
            "length" | "count" => {
                given.none(name)?;
                self.length(value).map(|length| Value::Int(length as i128))
            }
            "list" => {
                given.none(name)?;
                let items = self.walk(value)?;
                self.budget.bytes(items.values.len())?;
                Ok(Value::List(items))
            }
            "first" => {
                given.none(name)?;
                if let Value::Generator(generator) = value {
                    let first = generator.values.borrow_mut().next();
                    return Ok(first.unwrap_or_else(no_first));
                }
                Ok(self.walk(value)?.values.first().cloned().unwrap_or_else(no_first))
            }
            "last" => {
                given.none(name)?;
                if matches!(value, Value::Generator(_)) {
                    return Fault::evaluation("'generator' object is not reversible");
                }
                let last = self.walk(value)?.values.last().cloned();
                Ok(last.unwrap_or_else(|| Value::undefined("No last item, sequence was empty.")))
            }
            "reverse" => {
                given.none(name)?;
                if let Value::Str(text) = value {
                    self.budget.bytes(text.len())?;
                    let mut reversed = Written::default();
                    for (at, c) in text.char_indices().rev() {
                        reversed.push_range(text, at..at + c.len_utf8());
                    }
                    return self.budget.text(reversed.finish());
                }
                let reversed = self.walk(value)?.values.iter().rev().cloned().collect();
                self.budget.generator(reversed)
            }
            "items" => {
                given.none(name)?;
                let pairs = if value.is_undefined() { Vec::new() } else { self.pairs(value)? };
                self.budget.generator(pairs)
            }
            "join" => {
                let [separator, attribute] = given.bind(name, ["d", "attribute"])?;
                let separator = separator.map(|separator| self.str(&separator)).transpose()?;
                let items = self.walk(value)?;
                let mut texts = Vec::with_capacity(items.values.len());
                for item in &items.values {
                    let item = self.by_attribute(item, attribute.as_ref())?;
                    texts.push(self.str(&item)?);
                }
                self.joined_text(&texts, &separator.unwrap_or_else(|| Text::own("")))
            }
            "sort" => {
                let [reverse, case_sensitive, attribute] =
                    given.bind(name, ["reverse", "case_sensitive", "attribute"])?;
                let items = self.walk(value)?.values.clone();
                let sorted =
                    self.sorted(items, attribute.as_ref(), is_true(case_sensitive), is_true(reverse))?;
                self.budget.list(sorted)
            }
            "dictsort" => {
                let [case_sensitive, by, reverse] = given.bind(name, ["case_sensitive", "by", "reverse"])?;
                let position = match by.as_ref().and_then(Value::as_str).map(|by| &**by) {
                    None | Some("key") => 0,
                    Some("value") => 1,
                    Some(_) => return Fault::evaluation("You can only sort by either \"key\" or \"value\""),
                };
                let pairs = self.pairs(value)?;
                let position = Some(Value::Int(position));
                let sorted =
                    self.sorted(pairs, position.as_ref(), is_true(case_sensitive), is_true(reverse))?;
                self.budget.list(sorted)
            }
            "unique" => {
                let [case_sensitive, attribute] = given.bind(name, ["case_sensitive", "attribute"])?;
                let case_sensitive = is_true(case_sensitive);
                let mut seen = std::collections::HashSet::new();
                let mut kept = Vec::new();
                for item in &self.walk(value)?.values {
                    let key = self.sort_key(item, attribute.as_ref(), case_sensitive)?;
                    if seen.insert(self.budget.key(&key)?) {
                        kept.push(item.clone());
                    }
                }
                self.budget.generator(kept)
            }
            "min" | "max" => {
                let [case_sensitive, attribute] = given.bind(name, ["case_sensitive", "attribute"])?;
                let case_sensitive = is_true(case_sensitive);
                let mut best: Option<(Value, Value)> = None;
                for item in &self.walk(value)?.values {
                    let key = self.sort_key(item, attribute.as_ref(), case_sensitive)?;
                    let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
                    let better = match &best {
                        Some((old, _)) => self.order(&key, old)? == Some(wanted),
                        None => true,
                    };
                    if better {
                        best = Some((key, item.clone()));
                    }
                }
                Ok(best.map_or_else(
                    || Value::undefined("No aggregated item, sequence was empty."),
                    |(_, item)| item,
                ))
            }
            "sum" => {
                let [attribute, start] = given.bind(name, ["attribute", "start"])?;
                let mut sum = start.unwrap_or(Value::Int(0));
                for item in &self.walk(value)?.values {
                    let item = self.by_attribute(item, attribute.as_ref())?;
                    sum = self.arithmetic(crate::ast::Operator::Add, &sum, &item)?;
                }
                Ok(sum)
            }
            "groupby" => self.group_by(value, given),
            "batch" | "slice" => self.parts(name, value, given),
            "map" => self.map(value, given),
            _ => self.select(name, value, given),
        }
    }

    /// What an attribute path such as `function.name` or `0` finds in an item; missing parts are undefined.
    fn by_attribute(&mut self, item: &Value, path: Option<&Value>) -> Result<Value, Fault> {
        let mut value = item.clone();
        match path {
            None | Some(Value::None) => {}
            Some(Value::Str(path)) => {
                for part in path.split('.') {
                    let index = match part.parse::<i128>() {
                        Ok(number) => Value::Int(number),
                        Err(_) => Value::str(part),
                    };
                    value = self.item(&value, &index)?;
                }
            }
            Some(index) => value = self.item(&value, index)?,
        }
        Ok(value)
    }

    fn sort_key(
        &mut self,
        item: &Value,
        attribute: Option<&Value>,
        case_sensitive: bool,
    ) -> Result<Value, Fault> {
        match self.by_attribute(item, attribute)? {
            Value::Str(text) if !case_sensitive => {
                self.budget.bytes(text.len())?;
                self.budget.text(Text::like(text.to_lowercase(), &[&text]))
            }
            other => Ok(other),
        }
    }

    pub(super) fn sorted(
        &mut self,
        items: Vec<Value>,
        attribute: Option<&Value>,
        case_sensitive: bool,
        reverse: bool,
    ) -> Result<Vec<Value>, Fault> {
        self.budget.repeat(items.len(), 4 * size_of::<Value>())?;
        let mut keyed = Vec::with_capacity(items.len());
        for item in items {
            // Several attributes, with commas between, are compared one after the other.
            let key = match attribute {
                Some(Value::Str(paths)) if paths.contains(',') => {
                    let keys = paths
                        .split(',')
                        .map(|path| self.sort_key(&item, Some(&Value::str(path)), case_sensitive));
                    let keys = keys.collect::<Result<_, _>>()?;
                    self.budget.tuple(keys)?
                }
                _ => self.sort_key(&item, attribute, case_sensitive)?,
            };
            keyed.push((key, item));
        }
        let mut fault = None;
        keyed.sort_by(|(left, _), (right, _)| {
            if fault.is_some() {
                return Ordering::Equal;
            }
            let order = self.order(left, right).unwrap_or_else(|error| {
                fault = Some(error);
                None
            });
            let order = order.unwrap_or(Ordering::Equal);
            if reverse { order.reverse() } else { order }
        });
        fault.map_or_else(|| Ok(keyed.into_iter().map(|(_, item)| item).collect()), Err)
    }

    /// One of the items. Whichever it is would do, and the same conversation at the same time gives the same text.
    pub(super) fn some_item(&mut self, value: &Value) -> Result<Value, Fault> {
        let items = self.walk(value)?;
        let item =
            self.now.second_of_day().checked_rem(items.values.len()).map(|at| items.values[at].clone());
        Ok(item.unwrap_or_else(|| Value::undefined("No random item, sequence was empty.")))
    }

    fn group_by(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [attribute, default, case_sensitive] =
            given.bind("groupby", ["attribute", "default", "case_sensitive"])?;
        let attribute = required(attribute, "groupby", "attribute")?;
        let case_sensitive = is_true(case_sensitive);
        let items = self.walk(value)?.values.clone();
        let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
        for item in self.sorted(items, Some(&attribute), case_sensitive, false)? {
            let mut shown = self.by_attribute(&item, Some(&attribute))?;
            if let (true, Some(default)) = (shown.is_undefined(), &default) {
                shown = default.clone();
            }
            let key = self.sort_key(&shown, None, case_sensitive)?;
            match groups.last_mut() {
                Some((last, _, members)) if self.equal(last, &key)? => members.push(item),
                _ => groups.push((key, shown, vec![item])),
            }
        }
        let groups = groups.into_iter().map(|(_, shown, members)| {
            let members = self.budget.list(members)?;
            self.budget.tuple(vec![shown, members])
        });
        let groups = groups.collect::<Result<_, _>>()?;
        self.budget.list(groups)
    }

    fn parts(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        let [count, fill] = given.bind(name, ["count", "fill_with"])?;
        let count = usize::try_from(integer(count, 0, "the count")?).unwrap_or(0);
        if count == 0 {
            return Fault::evaluation(format!("{name} needs a count of 1 or more"));
        }
        let fill = fill.filter(|fill| !matches!(fill, Value::None));
        let items = self.walk(value)?;
        let items = &items.values;
        let mut parts = Vec::new();
        if name == "batch" {
            for chunk in items.chunks(count) {
                let mut chunk = chunk.to_vec();
                if let Some(fill) = &fill {
                    self.budget.repeat(count - chunk.len(), size_of::<Value>())?;
                    chunk.resize(count, fill.clone());
                }
                parts.push(self.budget.list(chunk)?);
            }
        } else {
            self.budget.repeat(count, 4 * size_of::<Value>())?;
            let (each, longer) = (items.len() / count, items.len() % count);
            for part in 0..count {
                let start = part * each + part.min(longer);
                let mut chunk = items[start..start + each + usize::from(part < longer)].to_vec();
                chunk.extend(fill.clone().filter(|_| part >= longer && longer > 0));
                parts.push(self.budget.list(chunk)?);
            }
        }
        self.budget.generator(parts)
    }

    fn map(&mut self, value: &Value, mut given: Given) -> Result<Value, Fault> {
        // What is false counts as empty, also where it cannot be walked through; `select` does the same.
        let items = if value.is_true() { self.walk(value)? } else { self.budget.items(Vec::new())? };
        let mut mapped = Vec::with_capacity(items.values.len());
        if given.positional.is_empty() {
            let [attribute, default] = given.bind("map", ["attribute", "default"])?;
            let attribute = required(attribute, "map", "attribute")?;
            for item in &items.values {
                let found = self.by_attribute(item, Some(&attribute))?;
                mapped.push(match &default {
                    Some(default) if found.is_undefined() => default.clone(),
                    _ => found,
                });
            }
        } else {
            let filter = self.str(&given.positional.remove(0))?;
            for item in &items.values {
                mapped.push(self.filter(&filter, item, given.clone())?);
            }
        }
        self.budget.generator(mapped)
    }

    /// `select`, `reject` and their forms that look at an attribute.
    fn select(&mut self, name: &str, value: &Value, mut given: Given) -> Result<Value, Fault> {
        let attribute = match name.ends_with("attr") {
            true if given.positional.is_empty() => {
                return Fault::evaluation(format!("{name} needs an attribute"));
            }
            true => Some(given.positional.remove(0)),
            false => None,
        };
        let test: Option<Text> = match given.positional.is_empty() {
            true => None,
            false => Some(self.str(&given.positional.remove(0))?),
        };
        let wanted = name.starts_with("select");
        let mut kept = Vec::new();
        let items = if value.is_true() { self.walk(value)? } else { self.budget.items(Vec::new())? };
        for item in &items.values {
            let looked_at = self.by_attribute(item, attribute.as_ref())?;
            let holds = match &test {
                Some(test) => self.test(test, &looked_at, given.clone())?,
                None => looked_at.is_true(),
            };
            if holds == wanted {
                kept.push(item.clone());
            }
        }
        self.budget.generator(kept)
    }
}

fn is_true(flag: Option<Value>) -> bool {
    flag.is_some_and(|flag| flag.is_true())
}

fn no_first() -> Value {
    Value::undefined("No first item, sequence was empty.")
}
