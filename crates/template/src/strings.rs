//! Methods of strings. Positions count characters, as in Python.

use super::budget::Fault;
use super::call::{Given, integer, required, text};
use super::interpreter::Interpreter;
use super::lexer::is_space;
use super::print::is_printable;
use super::text::{Text, Written};
use super::value::Value;

impl Interpreter<'_> {
    pub(super) fn string_method(&mut self, string: &Text, name: &str, given: Given) -> Result<Value, Fault> {
        self.budget.search(string.len(), given.text_bytes())?;
        match name {
            "upper" => self.changed_case(string, given, name, |text| text.to_uppercase()),
            "lower" | "casefold" => self.changed_case(string, given, name, |text| text.to_lowercase()),
            "capitalize" => self.changed_case(string, given, name, capitalize),
            "title" => self.changed_case(string, given, name, title),
            "swapcase" => self.changed_case(string, given, name, |text| {
                text.chars()
                    .map(|c| {
                        if c.is_uppercase() {
                            c.to_lowercase().to_string()
                        } else {
                            c.to_uppercase().to_string()
                        }
                    })
                    .collect()
            }),
            "strip" | "lstrip" | "rstrip" => {
                let [characters] = given.bind(name, ["chars"])?;
                let characters = optional_text(characters, "chars")?;
                let stripped = self.stripped(string, characters.as_deref(), name)?;
                self.budget.text(string.part(stripped))
            }
            "removeprefix" | "removesuffix" => {
                let [affix] = given.bind(name, ["affix"])?;
                let affix = text(required(affix, name, "affix")?, "the affix")?;
                let rest = if name == "removeprefix" {
                    string.strip_prefix(&*affix)
                } else {
                    string.strip_suffix(&*affix)
                };
                self.budget.text(rest.map_or_else(|| string.clone(), |rest| string.part(rest)))
            }
            "startswith" | "endswith" => self.starts_or_ends(string, name, given),
            "find" | "rfind" | "index" | "rindex" => {
                let at = self.find(string, name, given)?;
                if at.is_none() && name.ends_with("index") {
                    return Fault::evaluation("substring not found");
                }
                Ok(Value::Int(at.map_or(-1, |at| at as i128)))
            }
            "count" => {
                let [part, start, end] = given.bind(name, ["sub", "start", "end"])?;
                let part = text(required(part, name, "sub")?, "what is counted")?;
                let (_, within) = window(string, start, end)?;
                let count =
                    if part.is_empty() { within.chars().count() + 1 } else { within.matches(&*part).count() };
                Ok(Value::Int(count as i128))
            }
            "replace" => {
                let [old, new, count] = given.bind(name, ["old", "new", "count"])?;
                let old = text(required(old, name, "old")?, "what is replaced")?;
                let new = text(required(new, name, "new")?, "what replaces")?;
                let count = integer(count, -1, "the count")?;
                self.replaced(string, &old, &new, count)
            }
            "split" | "rsplit" => self.split(string, name, given),
            "splitlines" => {
                let [keep] = given.bind(name, ["keepends"])?;
                let keep = keep.is_some_and(|keep| keep.is_true());
                let lines =
                    split_lines(string, keep).into_iter().map(|line| self.budget.text(string.part(line)));
                let lines = lines.collect::<Result<_, _>>()?;
                self.budget.list(lines)
            }
            "partition" | "rpartition" => {
                let [separator] = given.bind(name, ["sep"])?;
                let separator = text(required(separator, name, "sep")?, "the separator")?;
                if separator.is_empty() {
                    return Fault::evaluation("empty separator");
                }
                let parts = if name == "partition" {
                    string.split_once(&*separator)
                } else {
                    string.rsplit_once(&*separator)
                };
                let nothing = || Text::own("");
                let parts = match parts {
                    Some((before, after)) => {
                        let middle = &string[before.len()..before.len() + separator.len()];
                        [string.part(before), string.part(middle), string.part(after)]
                    }
                    None if name == "partition" => [string.clone(), nothing(), nothing()],
                    None => [nothing(), nothing(), string.clone()],
                };
                let parts = parts.into_iter().map(|part| self.budget.text(part)).collect::<Result<_, _>>()?;
                self.budget.tuple(parts)
            }
            "join" => {
                let [items] = given.bind(name, ["iterable"])?;
                let items = self.walk(&required(items, name, "iterable")?)?;
                let texts = items.values.iter().map(|item| text(item.clone(), "an item of join"));
                let texts = texts.collect::<Result<Vec<_>, _>>()?;
                self.joined_text(&texts, string)
            }
            "center" | "ljust" | "rjust" => {
                let [width, fill] = given.bind(name, ["width", "fillchar"])?;
                let width = integer(width, 0, "the width")?;
                let fill = text(fill.unwrap_or_else(|| Value::str(" ")), "the fill character")?;
                if fill.chars().take(2).count() != 1 {
                    return Fault::evaluation("the fill character must be exactly one character long");
                }
                let align = match name {
                    "center" => Align::Center,
                    "ljust" => Align::Left,
                    _ => Align::Right,
                };
                self.padded(string, width, &fill, align)
            }
            "zfill" => {
                let [width] = given.bind(name, ["width"])?;
                let width = integer(width, 0, "the width")?;
                let (sign, digits) = string.split_at(usize::from(string.starts_with(['+', '-'])));
                let width = width.saturating_sub(sign.len() as i128);
                let digits = self.padded(&string.part(digits), width, &Text::own("0"), Align::Right)?;
                let digits = self.str(&digits)?;
                self.joined_text(&[string.part(sign), digits], &Text::own(""))
            }
            "expandtabs" => {
                let [size] = given.bind(name, ["tabsize"])?;
                let size = usize::try_from(integer(size, 8, "the tab size")?.max(0)).unwrap_or(usize::MAX);
                self.budget.repeat(string.matches('\t').count(), size)?;
                self.budget.text(Text::like(expand_tabs(string, size), &[string]))
            }
            "format" => self.brace_format(string, given),
            "format_map" => {
                let [mapping] = given.bind(name, ["mapping"])?;
                let Some(Value::Dict(dict)) = mapping else {
                    return Fault::evaluation("format_map() needs a mapping");
                };
                let named = dict
                    .entries
                    .values()
                    .filter_map(|(key, value)| Some((key.as_str()?.shared().clone(), value.clone())));
                let given = Given { positional: Vec::new(), named: named.collect() };
                self.brace_format(string, given)
            }
            _ => {
                given.none(name)?;
                Ok(Value::Bool(is_kind(string, name)))
            }
        }
    }

    fn changed_case(
        &mut self,
        string: &Text,
        given: Given,
        name: &str,
        change: impl Fn(&str) -> String,
    ) -> Result<Value, Fault> {
        given.none(name)?;
        // A character may become three.
        self.budget.bytes(string.len())?;
        self.budget.text(Text::like(change(string), &[string]))
    }

    pub(super) fn replaced(
        &mut self,
        string: &Text,
        old: &str,
        new: &Text,
        count: i128,
    ) -> Result<Value, Fault> {
        let limit = usize::try_from(count).unwrap_or(usize::MAX);
        let found = if old.is_empty() { string.chars().count() + 1 } else { string.matches(old).count() };
        self.budget.search(string.len(), old.len())?;
        self.budget.repeat(new.cost() + size_of::<Text>(), found.min(limit))?;
        self.budget.bytes(string.cost())?;
        let mut written = Written::default();
        let mut done = 0;
        for (at, _) in string.match_indices(old).take(limit) {
            written.push_range(string, done..at);
            written.push(new);
            done = at + old.len();
        }
        written.push_range(string, done..string.len());
        self.budget.text(written.finish())
    }

    pub(super) fn joined_text(&mut self, texts: &[Text], separator: &Text) -> Result<Value, Fault> {
        self.budget.repeat(separator.cost(), texts.len())?;
        self.budget.bytes(texts.iter().map(Text::cost).sum())?;
        let mut written = Written::default();
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                written.push(separator);
            }
            written.push(text);
        }
        self.budget.text(written.finish())
    }

    /// Takes characters off one end or both: those that are given, or white space.
    pub(super) fn stripped<'s>(
        &mut self,
        string: &'s str,
        characters: Option<&str>,
        name: &str,
    ) -> Result<&'s str, Fault> {
        // Each character that is looked at is looked for among all that are given.
        let mut goes = |c: char| match characters {
            None => Ok(is_space(c)),
            Some(characters) => self.budget.scan(characters.len()).map(|()| characters.contains(c)),
        };
        let (mut start, mut end) = (0, string.len());
        if name != "rstrip" {
            while let Some(c) = string[start..end].chars().next()
                && goes(c)?
            {
                start += c.len_utf8();
            }
        }
        if name != "lstrip" {
            while let Some(c) = string[start..end].chars().next_back()
                && goes(c)?
            {
                end -= c.len_utf8();
            }
        }
        Ok(&string[start..end])
    }

    /// Fills up to a width.
    pub(super) fn padded(
        &mut self,
        string: &Text,
        width: i128,
        fill: &Text,
        align: Align,
    ) -> Result<Value, Fault> {
        let length = string.chars().count();
        let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
        let missing = width.saturating_sub(length);
        self.budget.repeat(fill.cost(), missing)?;
        let before = match align {
            Align::Left => 0,
            Align::Right => missing,
            // Python puts the odd one in front where the width is odd too.
            Align::Center => missing / 2 + (missing & width & 1),
        };
        let mut written = Written::default();
        (0..before).for_each(|_| written.push(fill));
        written.push(string);
        (before..missing).for_each(|_| written.push(fill));
        self.budget.text(written.finish())
    }

    fn starts_or_ends(&mut self, string: &str, name: &str, given: Given) -> Result<Value, Fault> {
        let [affix, start, end] = given.bind(name, ["affix", "start", "end"])?;
        let (_, within) = window(string, start, end)?;
        let fits = |affix: &str| {
            if name == "startswith" { within.starts_with(affix) } else { within.ends_with(affix) }
        };
        match required(affix, name, "affix")? {
            Value::Str(affix) => Ok(Value::Bool(fits(&affix))),
            Value::Tuple(affixes) => {
                let texts = affixes.values.iter().map(|affix| text(affix.clone(), "an affix"));
                let texts = texts.collect::<Result<Vec<_>, _>>()?;
                for affix in &texts {
                    self.budget.scan(affix.len().min(within.len()))?;
                    if fits(affix) {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            other => Fault::evaluation(format!(
                "{name} needs a string or a tuple of strings, not {}",
                other.type_name()
            )),
        }
    }

    fn find(&mut self, string: &str, name: &str, given: Given) -> Result<Option<usize>, Fault> {
        let [part, start, end] = given.bind(name, ["sub", "start", "end"])?;
        let part = text(required(part, name, "sub")?, "what is looked for")?;
        let (skipped, within) = window(string, start, end)?;
        let at = if name.starts_with('r') { within.rfind(&*part) } else { within.find(&*part) };
        Ok(at.map(|at| skipped + within[..at].chars().count()))
    }

    fn split(&mut self, string: &Text, name: &str, given: Given) -> Result<Value, Fault> {
        let [separator, limit] = given.bind(name, ["sep", "maxsplit"])?;
        let limit = usize::try_from(integer(limit, -1, "maxsplit")?).unwrap_or(usize::MAX);
        let from_end = name == "rsplit";
        let parts: Vec<&str> = match separator {
            None | Some(Value::None) => split_space(string, limit, from_end),
            Some(separator) => {
                let separator = text(separator, "the separator")?;
                if separator.is_empty() {
                    return Fault::evaluation("empty separator");
                }
                let count = limit.saturating_add(1);
                if from_end {
                    let mut parts: Vec<&str> = string.rsplitn(count, &*separator).collect();
                    parts.reverse();
                    parts
                } else {
                    string.splitn(count, &*separator).collect()
                }
            }
        };
        let parts = parts.into_iter().map(|part| self.budget.text(string.part(part)));
        let parts = parts.collect::<Result<_, _>>()?;
        self.budget.list(parts)
    }
}

/// Where text stands in a wider field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
    Center,
}

fn optional_text(value: Option<Value>, what: &str) -> Result<Option<Text>, Fault> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => text(value, what).map(Some),
    }
}

/// The part between two positions, and how many characters stand before it.
fn window(string: &str, start: Option<Value>, end: Option<Value>) -> Result<(usize, &str), Fault> {
    let none = |value: &Option<Value>| matches!(value, None | Some(Value::None));
    if none(&start) && none(&end) {
        return Ok((0, string));
    }
    let length = string.chars().count() as i128;
    let bound = |value: Option<Value>, default: i128| {
        let bound = if none(&value) { default } else { integer(value, default, "a bound")? };
        let bound = if bound < 0 { bound.saturating_add(length).max(0) } else { bound.min(length) };
        Ok::<usize, Fault>(bound as usize)
    };
    let (start, end) = (bound(start, 0)?, bound(end, length)?);
    let offset = |at: usize| string.char_indices().nth(at).map_or(string.len(), |(offset, _)| offset);
    Ok((start, if start < end { &string[offset(start)..offset(end)] } else { "" }))
}

/// Words between white space; once `limit` cuts are made, the rest in one piece.
fn split_space(string: &str, limit: usize, from_end: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = string;
    loop {
        rest = if from_end { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
        if rest.is_empty() {
            break;
        }
        if parts.len() == limit {
            parts.push(rest);
            break;
        }
        let word;
        (rest, word) = if from_end {
            let space = rest.char_indices().rev().find(|(_, c)| is_space(*c));
            rest.split_at(space.map_or(0, |(at, c)| at + c.len_utf8()))
        } else {
            let (word, rest) = rest.split_at(rest.find(is_space).unwrap_or(rest.len()));
            (rest, word)
        };
        parts.push(word);
    }
    if from_end {
        parts.reverse();
    }
    parts
}

pub(super) fn split_lines(string: &str, keep_ends: bool) -> Vec<&str> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = string;
    while !rest.is_empty() {
        let end = rest.find(ends).unwrap_or(rest.len());
        let break_length = if rest[end..].starts_with("\r\n") {
            2
        } else {
            rest[end..].chars().next().map_or(0, char::len_utf8)
        };
        lines.push(&rest[..if keep_ends { end + break_length } else { end }]);
        rest = &rest[end + break_length..];
    }
    lines
}

fn expand_tabs(string: &str, size: usize) -> String {
    let mut result = String::new();
    let mut column = 0;
    for c in string.chars() {
        match c {
            '\t' if size > 0 => {
                let gap = size - column % size;
                result.extend(std::iter::repeat_n(' ', gap));
                column += gap;
            }
            '\t' => {}
            '\n' | '\r' => {
                result.push(c);
                column = 0;
            }
            c => {
                result.push(c);
                column += 1;
            }
        }
    }
    result
}

pub(super) fn capitalize(string: &str) -> String {
    let mut characters = string.chars();
    let first = characters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    first + &characters.as_str().to_lowercase()
}

/// Capitals at the start of each run of letters.
fn title(string: &str) -> String {
    let mut after_letter = false;
    let mut result = String::new();
    for c in string.chars() {
        if after_letter {
            result.extend(c.to_lowercase());
        } else {
            result.extend(c.to_uppercase());
        }
        after_letter = c.is_alphabetic();
    }
    result
}

/// The `is...` methods.
fn is_kind(string: &str, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !string.is_empty() && string.chars().all(test);
    let decimal = |c: char| c.is_ascii_digit() || is_decimal(c);
    match name {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => string.is_ascii(),
        "isdecimal" => !string.is_empty() && string.chars().all(decimal),
        "isdigit" => {
            let superscript = |c: char| matches!(c, '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{2070}'..='\u{2079}' | '\u{2080}'..='\u{2089}');
            !string.is_empty() && string.chars().all(|c| decimal(c) || superscript(c))
        }
        "isnumeric" => all(char::is_numeric),
        "isidentifier" => {
            let starts = |c: char| c.is_alphabetic() || c == '_';
            string.starts_with(starts) && string.chars().all(|c| c.is_alphanumeric() || c == '_')
        }
        "islower" => string.chars().any(char::is_lowercase) && !string.chars().any(char::is_uppercase),
        "isupper" => string.chars().any(char::is_uppercase) && !string.chars().any(char::is_lowercase),
        "isprintable" => string.chars().all(is_printable),
        "isspace" => all(is_space),
        _ => string.chars().any(char::is_alphabetic) && title(string) == string,
    }
}

/// Digits of other scripts: blocks of ten, each of which starts at one of these.
fn is_decimal(c: char) -> bool {
    const ZEROS: [u32; 20] = [
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50, 0xed0,
        0xf20, 0x1040, 0x17e0, 0x1810, 0xff10, 0x1d7ce,
    ];
    ZEROS.iter().any(|&zero| (zero..zero + 10).contains(&u32::from(c)))
}
