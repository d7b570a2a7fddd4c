//! Filters that give texts.

use crate::budget::Fault;
use crate::call::name_value;
use crate::call::{Given, integer, required, text};
use crate::interpreter::Interpreter;
use crate::lexer::is_space;
use crate::strings::{Align, capitalize};
use crate::text::{Text, Written};
use crate::value::Value;

impl Interpreter<'_> {
    pub(super) fn text_filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        match name {
            "string" => {
                given.none(name)?;
                let text = self.str(value)?;
                self.budget.text(text)
            }
            "upper" | "lower" | "capitalize" | "title" => {
                given.none(name)?;
                let string = self.str(value)?;
                self.budget.repeat(string.len(), 2)?;
                let changed = match name {
                    "upper" => string.to_uppercase(),
                    "lower" => string.to_lowercase(),
                    "capitalize" => capitalize(&string),
                    _ => title_words(&string),
                };
                self.budget.text(Text::like(changed, &[&string]))
            }
            "trim" => {
                let [characters] = given.bind(name, ["chars"])?;
                let characters = match characters {
                    None | Some(Value::None) => None,
                    Some(characters) => Some(text(characters, "chars")?),
                };
                let string = self.str(value)?;
                self.budget.scan(string.len())?;
                let stripped = self.stripped(&string, characters.as_deref(), "strip")?;
                self.budget.text(string.part(stripped))
            }
            "replace" => {
                let [old, new, count] = given.bind(name, ["old", "new", "count"])?;
                let old = self.str(&required(old, name, "old")?)?;
                let new = self.str(&required(new, name, "new")?)?;
                let count = if matches!(count, None | Some(Value::None)) {
                    -1
                } else {
                    integer(count, -1, "the count")?
                };
                let string = self.str(value)?;
                self.replaced(&string, &old, &new, count)
            }
            "indent" => self.indent(value, given),
            "center" => {
                let [width] = given.bind(name, ["width"])?;
                let width = integer(width, 80, "the width")?;
                let string = self.str(value)?;
                self.padded(&string, width, &Text::own(" "), Align::Center)
            }
            "format" => {
                if !given.named.is_empty() && !given.positional.is_empty() {
                    return Fault::evaluation(
                        "can't handle positional and keyword arguments at the same time",
                    );
                }
                let pattern = self.str(value)?;
                let values = if given.named.is_empty() {
                    self.budget.tuple(given.positional)?
                } else {
                    let named =
                        given.named.into_iter().map(|(name, value)| (name_value(name), value)).collect();
                    self.budget.dict(named)?
                };
                self.percent_format(&pattern, &values)
            }
            "truncate" => self.truncate(value, given),
            "wordcount" => {
                given.none(name)?;
                let string = self.str(value)?;
                self.budget.scan(string.len())?;
                let word = |c: char| c.is_alphanumeric() || c == '_';
                let starts = |(before, c): (Option<char>, char)| word(c) && !before.is_some_and(word);
                let before = std::iter::once(None).chain(string.chars().map(Some));
                Ok(Value::Int(before.zip(string.chars()).filter(|pair| starts(*pair)).count() as i128))
            }
            other => Fault::evaluation(format!("No filter named '{other}'")),
        }
    }

    fn indent(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [width, first, blank] = given.bind("indent", ["width", "first", "blank"])?;
        let is_true = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
        let indent: Text = match width {
            Some(Value::Str(indent)) => indent,
            other => {
                let width = usize::try_from(integer(other, 4, "the width")?.max(0)).unwrap_or(usize::MAX);
                self.budget.bytes(width)?;
                Text::own(" ".repeat(width))
            }
        };
        let (first, blank) = (is_true(first), is_true(blank));
        let string = self.str(value)?;
        self.budget.repeat(indent.cost(), string.matches('\n').count() + 1)?;
        self.budget.bytes(string.cost())?;
        let mut result = Written::default();
        for (index, line) in string.split('\n').enumerate() {
            if index > 0 {
                result.push_own("\n");
            }
            let indented = if index == 0 { first } else { blank || !line.is_empty() };
            if indented {
                result.push(&indent);
            }
            result.push(&string.part(line));
        }
        self.budget.text(result.finish())
    }

    fn truncate(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [length, kill_words, end, leeway] =
            given.bind("truncate", ["length", "killwords", "end", "leeway"])?;
        let length = usize::try_from(integer(length, 255, "the length")?).unwrap_or(0);
        let leeway = usize::try_from(integer(leeway, 5, "the leeway")?).unwrap_or(0);
        let end = text(end.unwrap_or_else(|| Value::str("...")), "the end")?;
        let string = self.str(value)?;
        self.budget.bytes(string.len())?;
        if string.chars().count() <= length.saturating_add(leeway) {
            return self.budget.text(string);
        }
        let room = length.saturating_sub(end.chars().count());
        let kept = string.char_indices().nth(room).map_or(&*string, |(at, _)| &string[..at]);
        let kept = match kill_words.is_some_and(|flag| flag.is_true()) {
            true => kept,
            false => kept.rsplit_once(' ').map_or(kept, |(words, _)| words),
        };
        self.joined_text(&[string.part(kept), end], &Text::own(""))
    }
}

/// Capitals at the start of each word; words end at white space, hyphens and brackets.
fn title_words(string: &str) -> String {
    let separates = |c: char| is_space(c) || "-({[<".contains(c);
    let mut starts = true;
    let mut result = String::new();
    for c in string.chars() {
        if starts {
            result.extend(c.to_uppercase());
        } else {
            result.extend(c.to_lowercase());
        }
        starts = separates(c);
    }
    result
}
