//! Symbolic sizes: sympy's constructor text (`Mul(Integer(2), Symbol('s77', positive=True, integer=True))`)
//! as a tree, its bounds, and its [`Dim`] where it is affine.
//!
//! Text flows in, a tree of bounded depth flows out. The functions are a closed list: what torch puts into
//! shapes.

use super::error::clip;
use pteron_ir::dim::{Dim, Symbol};
use std::fmt;

/// How deep expressions may nest. Those of real models need five; the parser recurses, so this is a bound on
/// stack.
pub const MAX_DEPTH: u32 = 64;

/// An integer, float or truth value that may depend on symbols.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A whole number.
    Int(i64),
    /// Numerator and denominator.
    Rational(i64, i64),
    /// A float.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// A symbol by name: `s<n>` is the size of an input, `u<n>` a number known only when the program runs.
    Symbol(String),
    /// A function of others.
    Call(Function, Vec<Expr>),
}

macro_rules! functions {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// What torch builds expressions of, by sympy's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // the names are sympy's and torch's own
        pub enum Function { $($variant),* }

        impl Function {
            /// The function of that name.
            pub fn from_name(name: &str) -> Option<Function> {
                match name { $($name => Some(Function::$variant),)* _ => None }
            }

            /// Its name in the file.
            pub fn name(self) -> &'static str {
                match self { $(Function::$variant => $name),* }
            }
        }
    };
}

functions! {
    Add = "Add", Mul = "Mul", Pow = "Pow", Max = "Max", Min = "Min", Abs = "Abs",
    FloorDiv = "FloorDiv", CleanDiv = "CleanDiv", CeilDiv = "CeilDiv", ModularIndexing = "ModularIndexing",
    Mod = "Mod", PythonMod = "PythonMod", PowByNatural = "PowByNatural", FloatPow = "FloatPow",
    FloatTrueDiv = "FloatTrueDiv", IntTrueDiv = "IntTrueDiv", LShift = "LShift", RShift = "RShift",
    ToFloat = "ToFloat", TruncToInt = "TruncToInt", TruncToFloat = "TruncToFloat", FloorToInt = "FloorToInt",
    CeilToInt = "CeilToInt", RoundToInt = "RoundToInt", RoundDecimal = "RoundDecimal", Identity = "Identity",
    Floor = "floor", Ceiling = "ceiling", Where = "Where", Sqrt = "OpaqueUnaryFn_sqrt",
    BitwiseAnd = "BitwiseFn_bitwise_and", BitwiseOr = "BitwiseFn_bitwise_or", BitwiseXor = "BitwiseFn_bitwise_xor",
    Equality = "Equality", Unequality = "Unequality", GreaterThan = "GreaterThan", LessThan = "LessThan",
    StrictGreaterThan = "StrictGreaterThan", StrictLessThan = "StrictLessThan", And = "And", Or = "Or", Not = "Not",
}

/// The least and the largest value, where there is one.
pub type Interval = (Option<i64>, Option<i64>);

impl Expr {
    /// Parses sympy's constructor text; the error says what is wrong and at which byte.
    pub fn parse(text: &str) -> Result<Expr, String> {
        let mut parser = Parser { text, at: 0 };
        let expr = parser.expr(0)?;
        match parser.peek() {
            None => Ok(expr),
            Some(_) => Err(parser.error("text after the end")),
        }
    }

    /// Calls `visit` with the name of every symbol.
    pub fn symbols<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        match self {
            Expr::Symbol(name) => visit(name),
            Expr::Call(_, operands) => operands.iter().for_each(|operand| operand.symbols(visit)),
            _ => {}
        }
    }

    /// The same as an affine expression over a graph's symbols; `None` if it is not affine or a symbol is
    /// unknown.
    pub fn to_dim(&self, symbol: &impl Fn(&str) -> Option<Symbol>) -> Option<Dim> {
        let dims = |operands: &[Expr]| -> Option<Vec<Dim>> {
            operands.iter().map(|operand| operand.to_dim(symbol)).collect()
        };
        match self {
            Expr::Int(value) => Some(Dim::known(*value)),
            Expr::Symbol(name) => symbol(name).map(Dim::symbol),
            Expr::Call(Function::Add, operands) => {
                dims(operands)?.iter().try_fold(Dim::known(0), |sum, dim| sum.add(dim))
            }
            Expr::Call(Function::Mul, operands) => {
                dims(operands)?.iter().try_fold(Dim::known(1), |product, dim| product.mul(dim))
            }
            Expr::Call(Function::Identity, operands) => match &dims(operands)?[..] {
                [dim] => Some(dim.clone()),
                _ => None,
            },
            Expr::Call(Function::FloorDiv | Function::CleanDiv, operands) => match &dims(operands)?[..] {
                [dim, divisor] => dim.divide_exactly(divisor.as_known()?),
                _ => None,
            },
            _ => None,
        }
    }

    /// What values it can take when every symbol stays inside its own bounds.
    pub fn interval(&self, of: &impl Fn(&str) -> Interval) -> Interval {
        match self {
            Expr::Int(value) => (Some(*value), Some(*value)),
            Expr::Symbol(name) => of(name),
            Expr::Call(function, operands) => {
                let parts: Vec<Interval> = operands.iter().map(|operand| operand.interval(of)).collect();
                combine(*function, &parts)
            }
            _ => (None, None),
        }
    }
}

fn combine(function: Function, parts: &[Interval]) -> Interval {
    let fold = |start: i64, step: fn(Interval, Interval) -> Interval| {
        parts.iter().fold((Some(start), Some(start)), |sum, part| step(sum, *part))
    };
    match (function, parts) {
        (Function::Add, _) => {
            fold(0, |a, b| (both(a.0, b.0, i64::checked_add), both(a.1, b.1, i64::checked_add)))
        }
        (Function::Mul, _) => fold(1, times),
        (Function::Identity, [part]) => *part,
        (Function::Max, [first, rest @ ..]) => {
            rest.iter().fold(*first, |a, b| (a.0.max(b.0), both(a.1, b.1, |x, y| Some(x.max(y)))))
        }
        (Function::Min, [first, rest @ ..]) => rest.iter().fold(*first, |a, b| {
            let upper = [a.1, b.1].into_iter().flatten().min();
            (both(a.0, b.0, |x, y| Some(x.min(y))), upper)
        }),
        (Function::FloorDiv | Function::CleanDiv, [(low, high), (Some(by), Some(same))])
            if by == same && *by > 0 =>
        {
            (low.map(|low| low.div_euclid(*by)), high.map(|high| high.div_euclid(*by)))
        }
        (Function::Mod | Function::PythonMod, [_, (Some(by), Some(same))]) if by == same && *by > 0 => {
            (Some(0), Some(by - 1))
        }
        _ => (None, None),
    }
}

fn both(a: Option<i64>, b: Option<i64>, of: impl Fn(i64, i64) -> Option<i64>) -> Option<i64> {
    of(a?, b?)
}

/// Products of bounds; exact for finite ones and for two that are not negative, otherwise nothing is claimed.
fn times(a: Interval, b: Interval) -> Interval {
    if let (Some(al), Some(ah), Some(bl), Some(bh)) = (a.0, a.1, b.0, b.1) {
        let corners = [al.checked_mul(bl), al.checked_mul(bh), ah.checked_mul(bl), ah.checked_mul(bh)];
        if corners.iter().all(Option::is_some) {
            return (corners.iter().copied().flatten().min(), corners.iter().copied().flatten().max());
        }
    }
    match (a.0, b.0) {
        (Some(x), Some(y)) if x >= 0 && y >= 0 => (x.checked_mul(y), both(a.1, b.1, i64::checked_mul)),
        _ => (None, None),
    }
}

impl fmt::Display for Expr {
    /// As people write it: `2*s77 + 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, operands: &[Expr], by: &str| {
            for (index, operand) in operands.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { by })?;
                match operand {
                    Expr::Call(Function::Add, _) if by == "*" => write!(f, "({operand})")?,
                    _ => write!(f, "{operand}")?,
                }
            }
            Ok(())
        };
        match self {
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Rational(over, under) => write!(f, "{over}/{under}"),
            Expr::Float(value) => write!(f, "{value}"),
            Expr::Bool(value) => write!(f, "{value}"),
            Expr::Symbol(name) => f.write_str(name),
            Expr::Call(Function::Add, operands) => joined(f, operands, " + "),
            Expr::Call(Function::Mul, operands) => joined(f, operands, "*"),
            Expr::Call(function, operands) => {
                write!(f, "{}(", function.name())?;
                joined(f, operands, ", ")?;
                f.write_str(")")
            }
        }
    }
}

/// A reader of `Name(args, key=value)`.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, problem: &str) -> String {
        format!("expression `{}`, byte {}: {problem}", clip(self.text), self.at)
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest.bytes().next()
    }

    fn take(&mut self, wanted: u8) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        match self.take(wanted) {
            true => Ok(()),
            false => Err(self.error(&format!("expected `{}`", wanted as char))),
        }
    }

    fn while_in(&mut self, accepted: impl Fn(u8) -> bool) -> &'a str {
        self.peek();
        let rest = &self.text[self.at..];
        let end = rest.bytes().position(|byte| !accepted(byte)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn name(&mut self) -> Result<&'a str, String> {
        match self.while_in(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            "" => Err(self.error("expected a name")),
            name => Ok(name),
        }
    }

    fn integer(&mut self) -> Result<i64, String> {
        let digits = self.while_in(|byte| byte.is_ascii_digit() || byte == b'-');
        digits.parse().map_err(|_| self.error("expected a whole number of 64 bits"))
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        self.expect(b'\'')?;
        let text = self.while_in(|byte| byte != b'\'' && byte != b'\\');
        self.expect(b'\'')?;
        Ok(text)
    }

    fn expr(&mut self, depth: u32) -> Result<Expr, String> {
        if depth >= MAX_DEPTH {
            return Err(self.error(&format!("more than {MAX_DEPTH} levels deep")));
        }
        let start = self.at;
        let name = self.name()?;
        match name {
            "true" => return Ok(Expr::Bool(true)),
            "false" => return Ok(Expr::Bool(false)),
            _ => self.expect(b'(')?,
        }
        let expr = match name {
            "Integer" => Expr::Int(self.integer()?),
            "Symbol" => Expr::Symbol(self.quoted()?.to_owned()),
            "Float" => {
                let text = self.quoted()?;
                Expr::Float(text.parse().map_err(|_| self.error("expected a float"))?)
            }
            "Rational" => {
                let over = self.integer()?;
                self.expect(b',')?;
                Expr::Rational(over, self.integer()?)
            }
            _ => {
                let Some(function) = Function::from_name(name) else {
                    self.at = start;
                    return Err(self.error(&format!("unknown function `{}`", clip(name))));
                };
                return Ok(Expr::Call(function, self.operands(depth)?));
            }
        };
        // What follows are assumptions of sympy: `positive=True`, `precision=53`.
        while self.take(b',') {
            self.name()?;
            self.expect(b'=')?;
            self.name()?;
        }
        self.expect(b')')?;
        Ok(expr)
    }

    fn operands(&mut self, depth: u32) -> Result<Vec<Expr>, String> {
        let mut operands = Vec::new();
        while !self.take(b')') {
            if !operands.is_empty() {
                self.expect(b',')?;
            }
            let start = self.at;
            let is_keyword = self.name().is_ok() && self.take(b'=');
            if is_keyword {
                self.name()?;
                // `evaluate=False` and the like say nothing about the value; the list ends here.
                self.expect(b')')?;
                break;
            }
            self.at = start;
            operands.push(self.expr(depth + 1)?);
        }
        Ok(operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_ir::dim::Symbols;

    const S: &str = "Symbol('s77', positive=True, integer=True)";

    #[test]
    fn constructor_text_becomes_a_tree() {
        let cases = [
            (S.to_owned(), "s77"),
            (format!("Add(Mul(Integer(2), {S}), Integer(1))"), "2*s77 + 1"),
            (format!("Mul(Integer(-3), Add({S}, Symbol('u0', integer=True)))"), "-3*(s77 + u0)"),
            (
                format!("Mod(PythonMod({S}, Integer(4)), Max(Integer(1), {S}))"),
                "Mod(PythonMod(s77, 4), Max(1, s77))",
            ),
            (format!("GreaterThan({S}, Integer(0))"), "GreaterThan(s77, 0)"),
            ("Float('1.5', precision=53)".to_owned(), "1.5"),
            ("Mul(Rational(1, 2), ToFloat(Symbol('zuf0')))".to_owned(), "1/2*ToFloat(zuf0)"),
            (format!("Add({S}, Integer(1), evaluate=False)"), "s77 + 1"),
            ("true".to_owned(), "true"),
        ];
        for (text, shown) in cases {
            assert_eq!(Expr::parse(&text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        let deep = format!("{}Integer(1){}", "Abs(".repeat(100_000), ")".repeat(100_000));
        let cases = [
            ("", "expected a name"),
            ("Integer(99999999999999999999)", "64 bits"),
            ("Integer(1", "expected `)`"),
            ("Symbol(s0)", "expected `'`"),
            ("exec('1')", "unknown function `exec`"),
            ("Add(Integer(1) Integer(2))", "expected `,`"),
            ("Integer(1) 2", "after the end"),
            ("Symbol('s\u{e4}", "expected `'`"),
            (&deep, "levels deep"),
        ];
        for (text, problem) in cases {
            let error = Expr::parse(text).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn affine_expressions_become_dims() {
        let mut symbols = Symbols::default();
        let s77 = symbols.add("s77", 2, Some(8));
        let find = |name: &str| (name == "s77").then_some(s77);
        let cases = [
            (format!("Add(Mul(Integer(2), {S}), Integer(-1))"), Some("2*s77-1")),
            (format!("FloorDiv(Mul(Integer(4), {S}), Integer(2))"), Some("2*s77")),
            (format!("FloorDiv({S}, Integer(2))"), None),
            (format!("Mul({S}, {S})"), None),
            ("Symbol('u0')".to_owned(), None),
        ];
        for (text, want) in cases {
            let dim = Expr::parse(&text).unwrap().to_dim(&find);
            assert_eq!(dim.map(|dim| symbols.show(&dim)).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn bounds_follow_from_those_of_the_symbols() {
        let of = |name: &str| if name == "s77" { (Some(2), Some(9)) } else { (Some(0), None) };
        let cases = [
            (format!("Add(Mul(Integer(2), {S}), Integer(1))"), (Some(5), Some(19))),
            (format!("Mul(Integer(-1), {S})"), (Some(-9), Some(-2))),
            (format!("FloorDiv({S}, Integer(4))"), (Some(0), Some(2))),
            (format!("Mod({S}, Integer(4))"), (Some(0), Some(3))),
            (format!("Min({S}, Symbol('u0'))"), (Some(0), Some(9))),
            (format!("Max({S}, Symbol('u0'))"), (Some(2), None)),
            ("Mul(Integer(3), Symbol('u0'))".to_owned(), (Some(0), None)),
            (format!("Pow({S}, Integer(2))"), (None, None)),
        ];
        for (text, want) in cases {
            assert_eq!(Expr::parse(&text).unwrap().interval(&of), want, "{text}");
        }
    }
}
