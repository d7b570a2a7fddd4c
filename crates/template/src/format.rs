//! Texts with places to fill: `'%s' % x` and `'{}'.format(x)`.

use super::budget::Fault;
use super::call::Given;
use super::interpreter::Interpreter;
use super::print::float_repr;
use super::strings::Align;
use super::text::{Text, Written};
use super::value::Value;

impl Interpreter<'_> {
    /// `pattern % values`.
    pub(super) fn percent_format(&mut self, pattern: &Text, values: &Value) -> Result<Value, Fault> {
        self.budget.scan(pattern.len())?;
        let mut positional = match values {
            Value::Tuple(items) => items.values.clone(),
            other => vec![other.clone()],
        }
        .into_iter();
        let mut out = Written::default();
        let mut rest: &str = pattern;
        while let Some(at) = rest.find('%') {
            self.append(&mut out, &pattern.part(&rest[..at]))?;
            rest = &rest[at + 1..];
            let mut named = None;
            if let Some(inner) = rest.strip_prefix('(') {
                let Some((name, after)) = inner.split_once(')') else {
                    return Fault::evaluation("incomplete format key");
                };
                named = Some(self.item(values, &Value::str(name))?);
                rest = after;
            }
            let flags = rest.len() - rest.trim_start_matches(['-', '0', '+', ' ', '#']).len();
            let (flags, after) = rest.split_at(flags);
            let (width, after) = leading_number(after);
            let (precision, after) = match after.strip_prefix('.') {
                Some(after) => {
                    let (precision, after) = leading_number(after);
                    (Some(precision.unwrap_or(0)), after)
                }
                None => (None, after),
            };
            let Some(kind) = after.chars().next() else { return Fault::evaluation("incomplete format") };
            rest = &after[kind.len_utf8()..];
            if kind == '%' {
                out.push_own("%");
                continue;
            }
            let value = match named.or_else(|| positional.next()) {
                Some(value) => value,
                None => return Fault::evaluation("not enough arguments for format string"),
            };
            let mut spec = Spec { kind, precision, width: width.unwrap_or(0), ..Spec::default() };
            spec.plus = flags.contains('+');
            spec.space = flags.contains(' ');
            spec.alternate = flags.contains('#');
            spec.align = Some(if flags.contains('-') { Align::Left } else { Align::Right });
            spec.zero = flags.contains('0') && !flags.contains('-');
            let text = self.formatted(&value, &spec)?;
            self.append(&mut out, &text)?;
        }
        self.append(&mut out, &pattern.part(rest))?;
        if matches!(values, Value::Tuple(_)) && positional.next().is_some() {
            return Fault::evaluation("not all arguments converted during string formatting");
        }
        self.budget.text(out.finish())
    }

    /// `pattern.format(...)`, its fields looked up as the sandbox allows.
    pub(super) fn brace_format(&mut self, pattern: &Text, given: Given) -> Result<Value, Fault> {
        self.budget.scan(pattern.len())?;
        let mut out = Written::default();
        let mut rest: &str = pattern;
        let mut automatic = 0;
        while let Some(at) = rest.find(['{', '}']) {
            self.append(&mut out, &pattern.part(&rest[..at]))?;
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                out.push_own(brace);
                rest = after;
                continue;
            }
            let end = rest.find('}').filter(|_| brace == "{");
            let Some(end) = end else { return Fault::evaluation("single brace in a format string") };
            let field = &rest[..end];
            rest = &rest[end + 1..];
            if field.contains('{') {
                return Fault::evaluation("nested format fields are not supported");
            }
            let (field, spec) = field.split_once(':').unwrap_or((field, ""));
            let (field, conversion) = field.split_once('!').unwrap_or((field, ""));
            let value = self.format_field(field, &given, &mut automatic)?;
            let value = match conversion {
                "" => value,
                "r" | "a" => {
                    let text = self.repr(&value)?;
                    self.budget.text(text)?
                }
                "s" => Value::Str(self.str(&value)?),
                other => return Fault::evaluation(format!("unknown conversion '{other}'")),
            };
            let text = self.formatted(&value, &Spec::parse(spec, &value)?)?;
            self.append(&mut out, &text)?;
        }
        self.append(&mut out, &pattern.part(rest))?;
        self.budget.text(out.finish())
    }

    fn append(&mut self, out: &mut Written, text: &Text) -> Result<(), Fault> {
        self.budget.bytes(text.cost())?;
        out.push(text);
        Ok(())
    }

    /// The value that `0.name[key]` stands for.
    fn format_field(&mut self, field: &str, given: &Given, automatic: &mut usize) -> Result<Value, Fault> {
        let end = field.find(['.', '[']).unwrap_or(field.len());
        let (first, mut path) = field.split_at(end);
        let found = match first.parse::<usize>() {
            Ok(index) => given.positional.get(index),
            Err(_) if first.is_empty() => {
                *automatic += 1;
                given.positional.get(*automatic - 1)
            }
            Err(_) => given.named.iter().find(|(name, _)| **name == *first).map(|(_, value)| value),
        };
        let Some(mut value) = found.cloned() else {
            return Fault::evaluation(format!("the format string asks for '{first}', which is not given"));
        };
        while !path.is_empty() {
            if let Some(after) = path.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = self.attribute(&value, &after[..end].into())?;
                path = &after[end..];
            } else {
                let Some((key, after)) = path[1..].split_once(']') else {
                    return Fault::evaluation("a format field has an open bracket");
                };
                let key = key.parse().map_or_else(|_| Value::str(key), Value::Int);
                value = self.item(&value, &key)?;
                path = after;
            }
            if let Value::Undefined(undefined) = &value {
                return Fault::evaluation(undefined.message.clone());
            }
        }
        Ok(value)
    }

    fn formatted(&mut self, value: &Value, spec: &Spec) -> Result<Text, Fault> {
        // Digits behind the point are made before they are counted.
        self.budget.bytes(spec.precision.unwrap_or(0))?;
        let mismatch =
            || Fault::evaluation(format!("'{}' does not fit format '{}'", value.type_name(), spec.kind));
        let number = value.as_float();
        let is_number = number.is_some();
        let body: String = match spec.kind {
            's' | 'r' | 'a' => return self.laid_out(value, spec),
            SHORTEST => number.map(float_repr).unwrap_or_default(),
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'b' | 'c' => {
                let Some(number) = value.as_int().or_else(|| number.map(|number| number as i128)) else {
                    return mismatch();
                };
                let (magnitude, sign) = (number.unsigned_abs(), if number < 0 { "-" } else { "" });
                let digits = match spec.kind {
                    'x' => format!("{magnitude:x}"),
                    'X' => format!("{magnitude:X}"),
                    'o' => format!("{magnitude:o}"),
                    'b' => format!("{magnitude:b}"),
                    'c' => u32::try_from(number)
                        .ok()
                        .and_then(char::from_u32)
                        .map(String::from)
                        .unwrap_or_default(),
                    _ => magnitude.to_string(),
                };
                let prefix = match (spec.alternate, spec.kind) {
                    (true, 'x' | 'X') => "0x",
                    (true, 'o') => "0o",
                    (true, 'b') => "0b",
                    _ => "",
                };
                [sign, prefix, &spec.grouped(&digits)].concat()
            }
            'f' | 'F' | '%' => {
                let Some(number) = number else { return mismatch() };
                let number = if spec.kind == '%' { number * 100.0 } else { number };
                let text = format!("{number:.*}", spec.precision.unwrap_or(6).min(400));
                let (whole, fraction) = text
                    .split_once('.')
                    .map_or((text.as_str(), ""), |(whole, _)| (whole, &text[whole.len()..]));
                let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
                [sign, &spec.grouped(whole), fraction, if spec.kind == '%' { "%" } else { "" }].concat()
            }
            'e' | 'E' => {
                let Some(number) = number else { return mismatch() };
                let text = format!("{number:.*e}", spec.precision.unwrap_or(6).min(400));
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let exponent: i32 = exponent.parse().unwrap_or(0);
                let sign = if exponent < 0 { '-' } else { '+' };
                let text = format!("{digits}e{sign}{:02}", exponent.abs());
                if spec.kind == 'E' { text.to_uppercase() } else { text }
            }
            'g' | 'G' => {
                let Some(number) = number else { return mismatch() };
                general(number, spec.precision.unwrap_or(6).clamp(1, 400))
            }
            other => return Fault::evaluation(format!("unknown format code '{other}'")),
        };
        let signed = match (is_number && !body.starts_with('-'), spec.plus, spec.space) {
            (true, true, _) => format!("+{body}"),
            (true, false, true) => format!(" {body}"),
            _ => body,
        };
        let default = if is_number { Align::Right } else { Align::Left };
        let width = spec.width as i128;
        let padded = if spec.zero && is_number {
            let (sign, digits) = signed.split_at(usize::from(signed.starts_with(['-', '+', ' '])));
            let width = width - sign.len() as i128;
            let digits = self.padded(&Text::own(digits), width, &Text::own("0"), Align::Right)?;
            let digits = self.str(&digits)?;
            self.joined_text(&[Text::own(sign), digits], &Text::own(""))?
        } else {
            let fill = Text::own(spec.fill.to_string());
            self.padded(&Text::own(signed), width, &fill, spec.align.unwrap_or(default))?
        };
        self.str(&padded)
    }

    /// What is no number: cut to its precision, filled up to its width.
    fn laid_out(&mut self, value: &Value, spec: &Spec) -> Result<Text, Fault> {
        let text = if spec.kind == 's' { self.str(value)? } else { self.repr(value)? };
        let end =
            spec.precision.filter(|_| spec.kind == 's').and_then(|limit| text.char_indices().nth(limit));
        let text = end.map_or_else(|| text.clone(), |(end, _)| text.part(&text[..end]));
        let fill = Text::own(spec.fill.to_string());
        let padded = self.padded(&text, spec.width as i128, &fill, spec.align.unwrap_or(Align::Left))?;
        self.str(&padded)
    }
}

/// The type of a float that is laid out with as many digits as it needs; no format spells it.
const SHORTEST: char = '\0';

/// How one value is laid out.
#[derive(Debug)]
struct Spec {
    kind: char,
    fill: char,
    align: Option<Align>,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    comma: Option<char>,
    precision: Option<usize>,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            kind: 's',
            fill: ' ',
            align: None,
            plus: false,
            space: false,
            alternate: false,
            zero: false,
            width: 0,
            comma: None,
            precision: None,
        }
    }
}

impl Spec {
    /// What follows the colon in a field of `format`; without a type, the value's own says how it is laid out.
    fn parse(text: &str, value: &Value) -> Result<Spec, Fault> {
        let align = |c: char| match c {
            '<' => Some(Align::Left),
            '>' => Some(Align::Right),
            '^' => Some(Align::Center),
            _ => None,
        };
        let mut spec = Spec::default();
        let mut rest = text;
        let mut characters = rest.chars();
        match (characters.next(), characters.next()) {
            (Some(fill), Some(mark)) if align(mark).is_some() => {
                spec.fill = fill;
                spec.align = align(mark);
                rest = characters.as_str();
            }
            (Some(mark), _) if align(mark).is_some() => {
                spec.align = align(mark);
                rest = &rest[1..];
            }
            _ => {}
        }
        let mut flag = |mark: char| {
            let after = rest.strip_prefix(mark);
            rest = after.unwrap_or(rest);
            after.is_some()
        };
        spec.plus = flag('+');
        flag('-');
        spec.space = flag(' ');
        spec.alternate = flag('#');
        spec.zero = flag('0') && spec.align.is_none();
        let (width, after) = leading_number(rest);
        spec.width = width.unwrap_or(0);
        rest = after;
        if let Some(after) = rest.strip_prefix([',', '_']) {
            spec.comma = rest.chars().next();
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = leading_number(after);
            spec.precision = precision;
            rest = after;
        }
        let mut kind = rest.chars();
        match (kind.next(), kind.next()) {
            (None, _) => {
                spec.kind = match value {
                    Value::Int(_) => 'd',
                    Value::Bool(_) if !text.is_empty() => 'd',
                    Value::Float(_) if spec.precision.is_some() => 'g',
                    Value::Float(_) => SHORTEST,
                    _ => 's',
                }
            }
            (Some(kind), None) => spec.kind = kind,
            _ => return Fault::evaluation(format!("'{text}' is no format")),
        }
        Ok(spec)
    }

    /// Thousands apart, where that was asked for.
    fn grouped(&self, digits: &str) -> String {
        let Some(comma) = self.comma else { return digits.to_owned() };
        let mut result = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                result.push(comma);
            }
            result.push(digit);
        }
        result
    }
}

/// A number at the start, at most as large as any text may be, and what follows it.
fn leading_number(text: &str) -> (Option<usize>, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = (end > 0).then(|| text[..end].parse().unwrap_or(usize::MAX));
    (number, &text[end..])
}

/// `%g`: so many digits, without zeros at the end.
fn general(number: f64, digits: usize) -> String {
    if !number.is_finite() || number == 0.0 {
        return float_repr(number).trim_end_matches(".0").to_owned();
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trim(&format!("{number:.decimals$}"))
}
