//! Filters that know of HTML and of addresses on the web.

use crate::budget::Fault;
use crate::call::{Given, integer};
use crate::interpreter::Interpreter;
use crate::lexer::is_space;
use crate::operators::escape;
use crate::text::Text;
use crate::value::Value;
use fancy_regex::Regex;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::LazyLock;

/// Addresses that become links: with a scheme or `www.`, under a well-known domain, or of numbers.
static LINK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let named = r"(?:https?://|www\.)(?:[\w%-]+\.)*(?:[a-z]{2,63}|xn--[\w%]{2,59})";
    let known = r"(?:[\w%-]{2,63}\.)+(?:com|net|int|edu|gov|org|info|mil)";
    let numbers = r"https?://(?:\d{1,3}(?:\.\d{1,3}){3}|\[(?:[\da-f]{0,4}:){2}(?:[\da-f]{0,4}:?){1,6}\])";
    Regex::new(&format!(r"(?i)^(?:{named}|{known}|{numbers})(?::\d{{1,5}})?(?:[/?#]\S*)?$")).ok()
});

/// Addresses of mail.
static MAIL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\S+@\w[\w.-]*\.\w+$").ok());

/// Characters of a reference, as Python has it; what ends later is none.
const LONGEST_REFERENCE: usize = 33;

/// Named characters that texts are likely to have.
const NAMED: [(&str, &str); 6] =
    [("amp", "&"), ("lt", "<"), ("gt", ">"), ("quot", "\""), ("apos", "'"), ("nbsp", "\u{a0}")];

impl Interpreter<'_> {
    pub(super) fn markup_filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        match name {
            "striptags" => {
                given.none(name)?;
                let string = self.str(value)?;
                self.budget.repeat(string.len(), 3)?;
                self.budget.text(Text::like(strip_tags(&string), &[&string]))
            }
            "urlencode" => {
                given.none(name)?;
                self.url_encode(value)
            }
            "xmlattr" => self.attributes(value, given),
            _ => self.links(value, given),
        }
    }

    fn url_encode(&mut self, value: &Value) -> Result<Value, Fault> {
        let pairs = match value {
            Value::Dict(_) => self.pairs(value)?,
            Value::List(_) | Value::Tuple(_) | Value::View(..) | Value::Generator(_) => {
                self.walk(value)?.values.clone()
            }
            _ => {
                let string = self.str(value)?;
                self.budget.repeat(string.len(), 3)?;
                return self.budget.text(Text::like(quoted(&string, "/"), &[&string]));
            }
        };
        let mut query = Vec::new();
        for pair in pairs {
            let pair = self.walk(&pair)?;
            let [key, value] = pair.values.as_slice() else {
                return Fault::evaluation("urlencode needs pairs of key and value");
            };
            let (key, value) = (self.str(key)?, self.str(value)?);
            self.budget.repeat(key.len() + value.len() + 2, 3)?;
            let part = |text: &str| quoted(text, "").replace("%20", "+");
            query.push(format!("{}={}", part(&key), part(&value)));
        }
        // What addresses may hold spells no token.
        self.budget.text(Text::heard(query.join("&")))
    }

    /// The entries of a dictionary as attributes of an element.
    fn attributes(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [space] = given.bind("xmlattr", ["autospace"])?;
        let mut out = String::new();
        for pair in self.pairs(value)? {
            let pair = self.walk(&pair)?;
            let [key, value] = pair.values.as_slice() else { continue };
            if matches!(value, Value::None | Value::Undefined(_)) {
                continue;
            }
            let (name, text) = (self.str(key)?, self.str(&value.plain())?);
            if name.contains(|c: char| matches!(c, '\t'..='\r' | ' ' | '/' | '>' | '=')) {
                let shown = self.repr(key)?;
                return Fault::evaluation(format!("Invalid character in attribute name: {shown}"));
            }
            self.budget.repeat(name.len() + text.len() + 4, 5)?;
            let text = if matches!(value, Value::Markup(_)) { text.to_string() } else { escape(&text) };
            let _ = write!(out, " {}=\"{text}\"", escape(&name));
        }
        let out = if space.is_none_or(|space| space.is_true()) { &out } else { out.trim_start_matches(' ') };
        // Quotes and escapes of markup spell no token.
        self.budget.text(Text::heard(out))
    }

    /// Addresses in a text as links.
    fn links(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [limit, nofollow, target, rel, schemes] =
            given.bind("urlize", ["trim_url_limit", "nofollow", "target", "rel", "extra_schemes"])?;
        let given = |value: Option<Value>| value.filter(|value| !matches!(value, Value::None));
        let limit = given(limit).map(|limit| integer(Some(limit), 0, "trim_url_limit")).transpose()?;
        let rel = given(rel).map(|rel| self.str(&rel)).transpose()?;
        let rel = rel.as_deref().unwrap_or_default();
        let mut relations: BTreeSet<&str> = rel.split(is_space).filter(|word| !word.is_empty()).collect();
        relations.insert("noopener");
        if nofollow.is_some_and(|nofollow| nofollow.is_true()) {
            relations.insert("nofollow");
        }
        let relations: Vec<&str> = relations.into_iter().collect();
        let mut attributes = format!(" rel=\"{}\"", escape(&relations.join(" ")));
        if let Some(target) = given(target).filter(Value::is_true) {
            let _ = write!(attributes, " target=\"{}\"", escape(&self.str(&target)?));
        }
        let mut extra = Vec::new();
        if let Some(schemes) = given(schemes) {
            for scheme in &self.walk(&schemes)?.values {
                extra.push(self.str(scheme)?);
            }
        }
        let links = Links { limit, attributes, schemes: extra };
        let string = self.str(value)?;
        self.budget.repeat(string.len(), 5)?;
        let escaped = escape(&string);
        self.budget.repeat(escaped.len() + links.attributes.len() + 32, 3)?;
        let mut out = String::new();
        let mut rest = escaped.as_str();
        while !rest.is_empty() {
            let word = rest.find(is_space).unwrap_or(rest.len());
            if word > 0 {
                self.budget.bytes(word * 3 + links.attributes.len() + 32)?;
                self.budget.steps(links.schemes.len())?;
                links.word(&rest[..word], &mut out);
            }
            let space = rest[word..].find(|c| !is_space(c)).map_or(rest.len(), |length| word + length);
            out.push_str(&rest[word..space]);
            rest = &rest[space..];
        }
        self.budget.text(Text::heard(out))
    }
}

/// How links are written.
struct Links {
    /// Characters of an address that are shown.
    limit: Option<i128>,
    attributes: String,
    /// Other beginnings of addresses.
    schemes: Vec<Text>,
}

impl Links {
    fn word(&self, word: &str, out: &mut String) {
        let (head, middle, tail) = parts(word);
        let holds = |pattern: &LazyLock<Option<Regex>>, text: &str| {
            pattern.as_ref().is_some_and(|pattern| pattern.is_match(text).unwrap_or(false))
        };
        let attributes = &self.attributes;
        out.push_str(head);
        let mail = middle.strip_prefix("mailto:").filter(|address| holds(&MAIL, address));
        let bare = || {
            let may_be = middle.contains('@') && !middle.contains(':');
            may_be && !middle.starts_with("www.") && !middle.starts_with('@') && holds(&MAIL, middle)
        };
        let _ = if holds(&LINK, middle) {
            let has_scheme = middle.starts_with("https://") || middle.starts_with("http://");
            let scheme = if has_scheme { "" } else { "https://" };
            write!(out, "<a href=\"{scheme}{middle}\"{attributes}>{}</a>", self.shown(middle))
        } else if let Some(address) = mail {
            write!(out, "<a href=\"{middle}\">{address}</a>")
        } else if bare() {
            write!(out, "<a href=\"mailto:{middle}\">{middle}</a>")
        } else if self.schemes.iter().any(|scheme| middle != &**scheme && middle.starts_with(&**scheme)) {
            write!(out, "<a href=\"{middle}\"{attributes}>{middle}</a>")
        } else {
            out.push_str(middle);
            Ok(())
        };
        out.push_str(tail);
    }

    fn shown(&self, address: &str) -> String {
        match self.limit.map(|limit| usize::try_from(limit).unwrap_or(0)) {
            Some(limit) if address.chars().count() > limit => {
                address.chars().take(limit).chain("...".chars()).collect()
            }
            _ => address.to_owned(),
        }
    }
}

/// A word without the brackets before it and the marks behind it; brackets that the word itself opens stay its own.
fn parts(word: &str) -> (&str, &str, &str) {
    let mut start = 0;
    while let Some(mark) = ["(", "<", "&lt;"].into_iter().find(|mark| word[start..].starts_with(mark)) {
        start += mark.len();
    }
    let mut end = word.len();
    let closing = [")", ">", ".", ",", "&gt;"];
    while let Some(mark) = closing.into_iter().find(|mark| word[start..end].ends_with(mark)) {
        end -= mark.len();
    }
    for (open, close) in [("(", ")"), ("<", ">"), ("&lt;", "&gt;")] {
        let opened = word[start..end].matches(open).count();
        if opened <= word[start..end].matches(close).count() {
            continue;
        }
        for _ in 0..opened.min(word[end..].matches(close).count()) {
            end += word[end..].find(close).map_or(0, |at| at + close.len());
        }
    }
    (&word[..start], &word[start..end], &word[end..])
}

/// Bytes that addresses may not have as `%XX`.
fn quoted(text: &str, safe: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || safe.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// A text without comments and tags, white space as single spaces, escapes undone.
fn strip_tags(string: &str) -> String {
    let without = |text: &str, open: &str, close: &str| {
        let mut result = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(open) {
            let Some(end) = rest[start..].find(close) else { break };
            result.push_str(&rest[..start]);
            rest = &rest[start + end + close.len()..];
        }
        result + rest
    };
    let plain = without(&without(string, "<!--", "-->"), "<", ">");
    unescaped(&plain.split(is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
}

/// A text with its character references read.
fn unescaped(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        result.push_str(before);
        let near = behind.char_indices().nth(LONGEST_REFERENCE).map_or(behind, |(end, _)| &behind[..end]);
        let read = near.find(';').and_then(|end| Some((character(&behind[..end])?, &behind[end + 1..])));
        match read {
            Some((read, after)) => {
                result.push_str(&read);
                rest = after;
            }
            None => {
                result.push('&');
                rest = behind;
            }
        }
    }
    result + rest
}

/// What a character reference stands for.
fn character(name: &str) -> Option<String> {
    let Some(number) = name.strip_prefix('#') else {
        return NAMED.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    char::from_u32(code.ok()?).map(String::from)
}
