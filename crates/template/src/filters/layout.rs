//! Filters that lay texts out: lines of a width, values as Python's `pprint` shows them, sizes of files.

use crate::budget::Fault;
use crate::call::{Given, integer, text};
use crate::interpreter::Interpreter;
use crate::lexer::is_space;
use crate::strings::split_lines;
use crate::text::{Text, Written};
use crate::value::Value;

/// Columns of `pprint`.
const PRETTY_WIDTH: usize = 80;

impl Interpreter<'_> {
    pub(super) fn layout_filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        match name {
            "wordwrap" => self.word_wrap(value, given),
            "pprint" => {
                given.none(name)?;
                let mut out = Written::default();
                let value = self.with_sorted_keys(value)?;
                self.pretty(&value, Place { indent: 0, allowance: 0, level: 0 }, &mut out)?;
                self.budget.text(out.finish())
            }
            _ => {
                let [binary] = given.bind(name, ["binary"])?;
                self.budget.bytes(value.as_str().map_or(0, |text| text.len()))?;
                let Some(bytes) = super::numbers::to_float(value) else {
                    return Fault::evaluation(format!("'{}' is no size", value.type_name()));
                };
                let size = file_size(bytes, binary.is_some_and(|binary| binary.is_true()));
                self.budget.text(Text::own(size))
            }
        }
    }

    fn word_wrap(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [width, break_words, between, break_hyphens] =
            given.bind("wordwrap", ["width", "break_long_words", "wrapstring", "break_on_hyphens"])?;
        let is_true = |flag: Option<Value>| flag.is_none_or(|flag| flag.is_true());
        let width = usize::try_from(integer(width, 79, "the width")?.max(0)).unwrap_or(usize::MAX);
        let between = match between {
            None | Some(Value::None) => Text::own("\n"),
            Some(between) => text(between, "wrapstring")?,
        };
        let wrap = Wrap { width, break_words: is_true(break_words), break_hyphens: is_true(break_hyphens) };
        let string = self.str(value)?;
        // A line may hold as little as one character.
        self.budget.repeat(string.len(), 2 * size_of::<char>() + between.len())?;
        let mut lines = Vec::new();
        for line in split_lines(&string, false) {
            if width == 0 {
                return Fault::evaluation("invalid width 0 (must be > 0)");
            }
            lines.push(wrap.lines(line).join(&between));
        }
        self.budget.text(Text::like(lines.join(&between), &[&string, &between]))
    }

    /// A value as `pprint` shows it, keys in order already: on one line where that fits, else an item a line.
    fn pretty(&mut self, value: &Value, place: Place, out: &mut Written) -> Result<(), Fault> {
        self.deeper(|interpreter| {
            let whole = interpreter.repr(value)?;
            let room = PRETTY_WIDTH.saturating_sub(place.indent + place.allowance);
            if whole.chars().count() <= room {
                out.push(&whole);
                return Ok(());
            }
            let place = Place { level: place.level + 1, ..place };
            match value {
                Value::Dict(dict) => {
                    let entries: Vec<_> = dict.entries.values().collect();
                    out.push_own("{");
                    for (at, (key, value)) in entries.iter().enumerate() {
                        let key = interpreter.repr(key)?;
                        interpreter.budget.bytes(key.len() + place.indent + 8)?;
                        out.push_own(&place.separator(at));
                        out.push(&key);
                        out.push_own(": ");
                        let inner = place.item(at, entries.len(), 1);
                        let indent = inner.indent + key.chars().count() + 2;
                        interpreter.pretty(value, Place { indent, ..inner }, out)?;
                    }
                    out.push_own("}");
                }
                Value::List(items) => interpreter.pretty_items(("[", "]"), &items.values, place, out)?,
                Value::Tuple(items) if items.values.len() == 1 => {
                    interpreter.pretty_items(("(", ",)"), &items.values, place, out)?;
                }
                Value::Tuple(items) => interpreter.pretty_items(("(", ")"), &items.values, place, out)?,
                Value::Str(text) => interpreter.pretty_text(text, place, out)?,
                _ => out.push(&whole),
            }
            Ok(())
        })
    }

    fn pretty_items(
        &mut self,
        (open, close): (&str, &str),
        items: &[Value],
        place: Place,
        out: &mut Written,
    ) -> Result<(), Fault> {
        out.push_own(open);
        for (at, item) in items.iter().enumerate() {
            self.budget.bytes(place.indent + 8)?;
            out.push_own(&place.separator(at));
            self.pretty(item, place.item(at, items.len(), close.len()), out)?;
        }
        out.push_own(close);
        Ok(())
    }

    /// A long text in several pieces, which Python reads as one.
    fn pretty_text(&mut self, text: &Text, place: Place, out: &mut Written) -> Result<(), Fault> {
        let alone = place.level == 1;
        let (indent, allowance) = (place.indent + usize::from(alone), place.allowance + usize::from(alone));
        let width = PRETTY_WIDTH.saturating_sub(indent);
        let last_width = width.saturating_sub(allowance);
        let lines = split_lines(text, true);
        let mut pieces = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            let is_last = number + 1 == lines.len();
            let shown = |part: &str| Value::Str(Text::like(part, &[text]));
            let whole = self.repr(&shown(line))?;
            if whole.chars().count() <= if is_last { last_width } else { width } {
                pieces.push(whole);
                continue;
            }
            let words = words(line);
            // Each word is shown once alone and once behind those before it.
            self.budget.repeat(line.len(), 2 + PRETTY_WIDTH)?;
            let mut current = String::new();
            for (at, word) in words.iter().enumerate() {
                let longer = [current.as_str(), word].concat();
                let room = if is_last && at + 1 == words.len() { last_width } else { width };
                if self.repr(&shown(&longer))?.chars().count() <= room {
                    current = longer;
                    continue;
                }
                if !current.is_empty() {
                    pieces.push(self.repr(&shown(&current))?);
                }
                current = (*word).to_owned();
            }
            if !current.is_empty() {
                pieces.push(self.repr(&shown(&current))?);
            }
        }
        let brackets = if alone && pieces.len() > 1 { ("(", ")") } else { ("", "") };
        self.budget.repeat(indent + 1, pieces.len())?;
        out.push_own(brackets.0);
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                out.push_own(&format!("\n{}", " ".repeat(indent)));
            }
            out.push(piece);
        }
        out.push_own(brackets.1);
        Ok(())
    }

    /// The same with the entries of dictionaries in order of their keys, at every depth.
    fn with_sorted_keys(&mut self, value: &Value) -> Result<Value, Fault> {
        self.deeper(|interpreter| match value {
            Value::Dict(_) => {
                let pairs = interpreter.pairs(value)?;
                let by_key = Value::Int(0);
                let sorted = interpreter.sorted(pairs, Some(&by_key), true, false)?;
                let mut entries = Vec::with_capacity(sorted.len());
                for pair in sorted {
                    let pair = interpreter.walk(&pair)?;
                    if let [key, value] = pair.values.as_slice() {
                        entries.push((key.clone(), interpreter.with_sorted_keys(value)?));
                    }
                }
                interpreter.budget.dict(entries)
            }
            Value::List(items) | Value::Tuple(items) => {
                let inner = items.values.iter().map(|item| interpreter.with_sorted_keys(item));
                let inner = inner.collect::<Result<Vec<_>, _>>()?;
                match value {
                    Value::List(_) => interpreter.budget.list(inner),
                    _ => interpreter.budget.tuple(inner),
                }
            }
            other => Ok(other.clone()),
        })
    }
}

/// Where `pprint` stands.
#[derive(Clone, Copy)]
struct Place {
    /// Columns to the left.
    indent: usize,
    /// Columns that what follows needs on the last line.
    allowance: usize,
    level: usize,
}

impl Place {
    /// What stands before an item of a list that begins here.
    fn separator(self, at: usize) -> String {
        if at == 0 { String::new() } else { format!(",\n{}", " ".repeat(self.indent + 1)) }
    }

    /// The place of an item; `close` columns end the list.
    fn item(self, at: usize, count: usize, close: usize) -> Place {
        let allowance = if at + 1 == count { self.allowance + close } else { 1 };
        Place { indent: self.indent + 1, allowance, level: self.level }
    }
}

/// Words, each with the white space behind it.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let word = rest.find(is_space).unwrap_or(rest.len());
        let space = rest[word..].find(|c| !is_space(c)).unwrap_or(rest.len() - word);
        let (first, others) = rest.split_at(word + space);
        words.push(first);
        rest = others;
    }
    words
}

/// As Python's `textwrap` breaks lines.
struct Wrap {
    width: usize,
    break_words: bool,
    break_hyphens: bool,
}

impl Wrap {
    fn lines(&self, paragraph: &str) -> Vec<String> {
        let text: Vec<char> = paragraph.chars().collect();
        let mut chunks = self.chunks(&text);
        chunks.reverse();
        let mut lines: Vec<String> = Vec::new();
        let is_blank = |chunk: &[char]| chunk.iter().all(|&c| is_space(c));
        while let Some(&first) = chunks.last() {
            if is_blank(first) && !lines.is_empty() {
                chunks.pop();
            }
            let mut line: Vec<&[char]> = Vec::new();
            let mut length = 0;
            while let Some(chunk) = chunks.pop_if(|chunk| length + chunk.len() <= self.width) {
                length += chunk.len();
                line.push(chunk);
            }
            if let Some(long) = chunks.pop_if(|chunk| chunk.len() > self.width) {
                match (self.break_words, line.is_empty()) {
                    (true, _) => {
                        let (now, later) = long.split_at(self.end_of(long, self.width - length));
                        line.push(now);
                        chunks.push(later);
                    }
                    (false, true) => line.push(long),
                    (false, false) => chunks.push(long),
                }
            }
            if line.last().is_some_and(|chunk| is_blank(chunk)) {
                line.pop();
            }
            if !line.is_empty() {
                lines.push(line.concat().into_iter().collect());
            }
        }
        lines
    }

    /// Where a word that is longer than a line is cut: behind its last hyphen that has room, or where the room ends.
    fn end_of(&self, word: &[char], room: usize) -> usize {
        let hyphen = word[..room].iter().rposition(|&c| c == '-').filter(|_| self.break_hyphens);
        match hyphen {
            Some(at) if word[..at].iter().any(|&c| c != '-') => at + 1,
            _ => room,
        }
    }

    /// Pieces that stay together: white space, words, parts of words that end with a hyphen, dashes between words.
    fn chunks<'t>(&self, text: &'t [char]) -> Vec<&'t [char]> {
        let mut chunks = Vec::new();
        let mut start = 0;
        while start < text.len() {
            let end = self.chunk_end(text, start);
            chunks.push(&text[start..end]);
            start = end;
        }
        chunks
    }

    fn chunk_end(&self, text: &[char], start: usize) -> usize {
        let breaks = |c: char| matches!(c, '\t'..='\r' | ' ');
        let run = |from: usize, holds: &dyn Fn(char) -> bool| {
            text[from..].iter().position(|&c| !holds(c)).map_or(text.len(), |length| from + length)
        };
        if breaks(text[start]) {
            return run(start, &breaks);
        }
        if !self.break_hyphens {
            return run(start, &|c| !breaks(c));
        }
        let at = |index: usize| text.get(index).copied();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let is_letter = |c: Option<char>| is_word(c) && !c.is_some_and(char::is_numeric);
        // Two hyphens or more between words.
        let dash = |from: usize| {
            let before = from.checked_sub(1).and_then(at);
            let follows = is_word(before) || before.is_some_and(|c| "!\"'&.,?".contains(c));
            // Only behind a word, so that a long row of hyphens is walked through once.
            let end = if follows { run(from, &|c| c == '-') } else { from };
            (end >= from + 2 && is_word(at(end))).then_some(end)
        };
        if let Some(end) = dash(start) {
            return end;
        }
        for (end, &c) in text.iter().enumerate().skip(start + 1) {
            let back = |by: usize| end.checked_sub(by).and_then(at);
            let letters_before =
                is_letter(back(1)) && (is_letter(back(2)) || (back(2) == Some('-') && is_letter(back(3))));
            let letters_behind = is_letter(at(end + 1))
                && (is_letter(at(end + 2)) || (at(end + 2) == Some('-') && is_letter(at(end + 3))));
            if c == '-' && letters_before && letters_behind {
                return end + 1;
            }
            if breaks(c) || dash(end).is_some() {
                return end;
            }
        }
        text.len()
    }
}

/// Bytes in words.
fn file_size(bytes: f64, binary: bool) -> String {
    let (base, prefixes) = match binary {
        true => (1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]),
        false => (1000.0, ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]),
    };
    if bytes == 1.0 {
        return "1 Byte".to_owned();
    }
    if bytes < base {
        return format!("{} Bytes", bytes.trunc());
    }
    let fits = |&power: &usize| bytes < base.powi(power as i32 + 2);
    let power = (0..prefixes.len()).find(fits).unwrap_or(prefixes.len() - 1);
    format!("{:.1} {}", base * bytes / base.powi(power as i32 + 2), prefixes[power])
}
