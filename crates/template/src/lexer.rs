//! Source to tokens: what is text, what is a tag, and which white space a tag swallows.
//!
//! The rules are those of jinja2 with `trim_blocks` and `lstrip_blocks`: a tag that stands alone on its line leaves
//! no trace of that line.

use super::error::TemplateError;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Text between tags.
    Text(String),
    /// `{{`.
    PrintBegin,
    /// `}}`.
    PrintEnd,
    /// `{%`.
    TagBegin,
    /// `%}`.
    TagEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    /// An operator or a bracket.
    Op(&'static str),
    /// The end of the source.
    End,
}

/// A token and the line it starts on.
#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    pub(super) line: usize,
}

/// The longer first, so that the first that fits is right.
const OPERATORS: [&str; 25] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",",
];

/// All tokens of a source, the last of them [`Token::End`].
pub(super) fn tokenize(source: &str) -> Result<Vec<Lexeme>, TemplateError> {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    // One newline at the end of a template is the editor's, not the author's.
    if source.ends_with('\n') {
        source.pop();
    }
    let mut lexer = Lexer { source: &source, at: 0, line: 1, line_starts: true, lexemes: Vec::new() };
    while lexer.at < source.len() {
        lexer.text_and_tag()?;
    }
    lexer.push(Token::End);
    Ok(lexer.lexemes)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    /// Whether what was read last ended with a newline.
    line_starts: bool,
    lexemes: Vec<Lexeme>,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn push(&mut self, token: Token) {
        self.lexemes.push(Lexeme { token, line: self.line });
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, TemplateError> {
        Err(TemplateError::Syntax { line: self.line, message: message.into() })
    }

    /// Moves on by so many bytes.
    fn advance(&mut self, bytes: usize) {
        let passed = &self.source[self.at..self.at + bytes];
        self.line += passed.matches('\n').count();
        if !passed.is_empty() {
            self.line_starts = passed.ends_with('\n');
        }
        self.at += bytes;
    }

    /// Text up to the next tag, and that tag.
    fn text_and_tag(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let opens = |index: &usize| matches!(rest.as_bytes().get(index + 1), Some(b'{' | b'%' | b'#'));
        let Some(start) = rest.match_indices('{').map(|(index, _)| index).find(opens) else {
            self.push(Token::Text(rest.to_owned()));
            self.advance(rest.len());
            return Ok(());
        };
        let kind = rest.as_bytes()[start + 1];
        let sign = rest.as_bytes().get(start + 2).copied().filter(|sign| b"-+".contains(sign));
        self.text(&rest[..start], sign, kind != b'{');
        self.advance(start);
        if kind == b'%'
            && let Some(length) = raw_begin(self.rest())
        {
            self.advance(length);
            return self.raw();
        }
        self.push(if kind == b'{' { Token::PrintBegin } else { Token::TagBegin });
        self.advance(2 + usize::from(sign.is_some()));
        match kind {
            b'#' => {
                self.lexemes.pop();
                self.comment()
            }
            b'{' => self.expression(Token::PrintEnd, |rest| {
                if let Some(after) = rest.strip_prefix("-}}") {
                    return Some(3 + leading_space(after));
                }
                rest.starts_with("}}").then_some(2)
            }),
            _ => self.expression(Token::TagEnd, tag_end),
        }
    }

    /// Text in front of a tag, less the white space that the tag swallows.
    fn text(&mut self, text: &str, sign: Option<u8>, swallows_indent: bool) {
        let kept = match sign {
            Some(b'-') => text.trim_end_matches(is_space),
            None if swallows_indent => {
                let line = text.rfind('\n').map_or(0, |newline| newline + 1);
                let alone = (line > 0 || self.line_starts) && text[line..].chars().all(is_space);
                if alone { &text[..line] } else { text }
            }
            _ => text,
        };
        if !kept.is_empty() {
            self.push(Token::Text(kept.to_owned()));
        }
    }

    fn comment(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let Some(end) = rest.find("#}") else { return self.error("this comment has no end") };
        let after = &rest[end + 2..];
        let swallowed = match rest[..end].bytes().next_back() {
            Some(b'-') => leading_space(after),
            Some(b'+') => 0,
            _ => usize::from(after.starts_with('\n')),
        };
        self.advance(end + 2 + swallowed);
        Ok(())
    }

    /// What stands between `{% raw %}` and `{% endraw %}`.
    fn raw(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let ends = rest.match_indices("{%").find_map(|(start, _)| {
            let sign = rest.as_bytes().get(start + 2).copied().filter(|sign| b"-+".contains(sign));
            let inner = start + 2 + usize::from(sign.is_some());
            let word = inner + leading_space(&rest[inner..]);
            let after = word + "endraw".len();
            let end = after + leading_space(rest[word..].strip_prefix("endraw")?);
            Some((start, sign, end + tag_end(&rest[end..])?))
        });
        let Some((start, sign, end)) = ends else { return self.error("`raw` has no `endraw`") };
        self.text(&rest[..start], sign, true);
        self.advance(end);
        Ok(())
    }

    /// Tokens up to the end of a tag, which `end` measures.
    fn expression(
        &mut self,
        closing: Token,
        end: impl Fn(&str) -> Option<usize>,
    ) -> Result<(), TemplateError> {
        let mut brackets: Vec<&'static str> = Vec::new();
        loop {
            let rest = self.rest();
            if brackets.is_empty()
                && let Some(length) = end(rest)
            {
                self.push(closing);
                self.advance(length);
                return Ok(());
            }
            let Some(first) = rest.chars().next() else { return Ok(()) };
            let (token, length) = if is_space(first) {
                self.advance(leading_space(rest));
                continue;
            } else if first.is_ascii_digit() {
                let after_dot = self.source[..self.at].ends_with('.');
                self.number(rest, after_dot)?
            } else if first.is_alphabetic() || first == '_' {
                let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                (Token::Name(rest[..length].to_owned()), length)
            } else if first == '\'' || first == '"' {
                let Some(length) = string_length(rest, first) else {
                    return self.error("this string has no end");
                };
                (Token::Str(self.unescape(&rest[1..length - 1])?), length)
            } else if let Some(&op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) {
                self.balance(op, &mut brackets)?;
                (Token::Op(op), op.len())
            } else {
                return self.error(format!("unexpected `{first}`"));
            };
            self.push(token);
            self.advance(length);
        }
    }

    fn balance(&self, op: &str, brackets: &mut Vec<&'static str>) -> Result<(), TemplateError> {
        match op {
            "(" => brackets.push(")"),
            "[" => brackets.push("]"),
            "{" => brackets.push("}"),
            ")" | "]" | "}" => match brackets.pop() {
                None => return self.error(format!("unexpected `{op}`")),
                Some(expected) if expected != op => {
                    return self.error(format!("unexpected `{op}`, expected `{expected}`"));
                }
                Some(_) => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn number(&self, rest: &str, after_dot: bool) -> Result<(Token, usize), TemplateError> {
        let digits = |text: &str| {
            let length = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
            text[..length].trim_end_matches('_').len()
        };
        let bytes = rest.as_bytes();
        if let (b'0', Some(mark)) = (bytes[0], bytes.get(1)) {
            let radix = match mark.to_ascii_lowercase() {
                b'x' => 16,
                b'o' => 8,
                b'b' => 2,
                _ => 10,
            };
            if radix != 10 {
                let length =
                    2 + rest[2..].find(|c: char| !c.is_digit(radix) && c != '_').unwrap_or(rest.len() - 2);
                return match i128::from_str_radix(&rest[2..length].replace('_', ""), radix) {
                    Ok(value) => Ok((Token::Int(value), length)),
                    Err(_) => self.error("this number cannot be read"),
                };
            }
        }
        let mut length = digits(rest);
        let mut is_float = false;
        if !after_dot {
            let fraction = rest[length..].strip_prefix('.').map_or(0, digits);
            if fraction > 0 {
                (length, is_float) = (length + 1 + fraction, true);
            }
            if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
                let sign = usize::from(exponent.starts_with(['+', '-']));
                let exponent = digits(&exponent[sign..]);
                if exponent > 0 {
                    (length, is_float) = (length + 1 + sign + exponent, true);
                }
            }
        }
        let text = rest[..length].replace('_', "");
        let token =
            if is_float { text.parse().ok().map(Token::Float) } else { text.parse().ok().map(Token::Int) };
        token.map_or_else(|| self.error("this number is too large"), |token| Ok((token, length)))
    }

    /// The meaning of a string literal: Python's escapes.
    fn unescape(&self, text: &str) -> Result<String, TemplateError> {
        let mut result = String::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            if c != '\\' {
                result.push(c);
                continue;
            }
            let Some(escape) = rest.next() else {
                return self.error("a string ends in the middle of an escape");
            };
            let hexadecimal = match escape {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            if hexadecimal > 0 {
                let digits: String = rest.clone().take(hexadecimal).collect();
                rest.nth(hexadecimal - 1);
                let code =
                    (digits.len() == hexadecimal).then(|| u32::from_str_radix(&digits, 16).ok()).flatten();
                match code.and_then(char::from_u32) {
                    Some(c) => result.push(c),
                    None => return self.error(format!("`\\{escape}{digits}` is no character")),
                }
                continue;
            }
            match escape {
                '\n' => {}
                'n' => result.push('\n'),
                't' => result.push('\t'),
                'r' => result.push('\r'),
                'a' => result.push('\u{7}'),
                'b' => result.push('\u{8}'),
                'f' => result.push('\u{c}'),
                'v' => result.push('\u{b}'),
                '\\' | '\'' | '"' => result.push(escape),
                '0'..='7' => {
                    let mut code = escape.to_digit(8).unwrap_or(0);
                    for _ in 0..2 {
                        let Some(digit) = rest.clone().next().and_then(|c| c.to_digit(8)) else { break };
                        rest.next();
                        code = code * 8 + digit;
                    }
                    result.extend(char::from_u32(code));
                }
                other => result.extend(['\\', other]),
            }
        }
        Ok(result)
    }
}

/// White space as Python's `str.isspace` and `\s` have it.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn leading_space(text: &str) -> usize {
    text.find(|c| !is_space(c)).unwrap_or(text.len())
}

/// Length of the end of a `{% ... %}` tag with what it swallows.
fn tag_end(rest: &str) -> Option<usize> {
    if let Some(after) = rest.strip_prefix("-%}") {
        return Some(3 + leading_space(after));
    }
    if rest.starts_with("+%}") {
        return Some(3);
    }
    rest.strip_prefix("%}").map(|after| 2 + usize::from(after.starts_with('\n')))
}

/// Length of `{% raw %}` with what it swallows.
fn raw_begin(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    let word = inner.trim_start_matches(is_space).strip_prefix("raw")?.trim_start_matches(is_space);
    let swallowed = match word.strip_prefix("-%}") {
        Some(after) => 3 + leading_space(after),
        None => word.strip_prefix("%}").map(|_| 2)?,
    };
    Some(rest.len() - word.len() + swallowed)
}

/// Length of a string literal with its quotes.
fn string_length(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(index + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Token, tokenize};

    /// The text between tags, and a mark for every tag.
    fn outline(source: &str) -> String {
        let tokens = tokenize(source).unwrap();
        let shown = |token: &Token| match token {
            Token::Text(text) => text.clone(),
            Token::TagBegin => "<".into(),
            Token::TagEnd => ">".into(),
            Token::PrintBegin => "(".into(),
            Token::PrintEnd => ")".into(),
            _ => String::new(),
        };
        tokens.iter().map(|lexeme| shown(&lexeme.token)).collect()
    }

    #[test]
    fn tags_swallow_the_white_space_that_jinja_says() {
        let cases = [
            ("a\n  {% if x %}\n  b\n  {% endif %}\nc\n", "a\n<>  b\n<>c"),
            ("a {% if x %} b", "a <> b"),
            ("a \n {%- if x -%} \n b", "a<>b"),
            ("  {%+ if x +%}\nb", "  <>\nb"),
            ("  {{ x }}\n", "  ()"),
            ("a {{- x -}} \n b", "a()b"),
            ("a\n  {# note #}\nb", "a\nb"),
            ("a {#- note -#} b", "ab"),
            ("{% raw %}{{ x }}{% endraw %}!", "{{ x }}!"),
            ("a\n  {%- raw -%}  {% x %}  {%- endraw -%}  b", "a{% x %}b"),
            ("{{ {'a': {}} }}", "()"),
            ("\r\na\rb\r\n\r\n", "\na\nb\n"),
            ("{% if x %}\n{% if y %}\n  {% if z %}", "<><><>"),
            ("a { b } % #", "a { b } % #"),
        ];
        for (source, expected) in cases {
            assert_eq!(outline(source), expected, "{source:?}");
        }
    }

    #[test]
    fn literals_mean_what_python_means() {
        let token = |source: &str| tokenize(&format!("{{{{ {source} }}}}")).unwrap()[1].token.clone();
        assert_eq!(token(r#"'a\n\x41\u00e9\'"\q'"#), Token::Str("a\nA\u{e9}'\"\\q".into()));
        assert_eq!(token("1_000"), Token::Int(1000));
        assert_eq!(token("0xff"), Token::Int(255));
        assert_eq!(token("1.5e3"), Token::Float(1500.0));
        assert_eq!(token("2e1"), Token::Float(20.0));
        assert!(tokenize("{{ 'a }}").is_err());
        assert!(tokenize("{{ a ] }}").is_err());
        assert!(tokenize("{# a").is_err());
        assert!(tokenize("{{ ! }}").is_err());
    }
}
