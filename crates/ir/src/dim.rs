//! Symbolic dims: affine expressions over symbols with bounds, and the one place that decides whether two of
//! them are equal.
//!
//! What is not affine (a product of two symbols, a clamped slice) is given a fresh symbol by the rule that met
//! it, so nothing here ever grows beyond a short sum.

use std::fmt::{self, Write as _};

/// A symbol of one graph: an index into its [`Symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(pub u32);

/// Name and bounds of a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolInfo {
    /// As the text form writes it.
    pub name: String,
    /// The least value that the source declares. Exporters declare 2 where a run may give 1, so a minimum
    /// above zero is kept for writing and never used to decide anything.
    pub min: i64,
    /// The largest value, where there is one. This bound is real and is enforced.
    pub max: Option<i64>,
}

/// The symbols of one graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols(Vec<SymbolInfo>);

/// What is known of a statement about symbolic numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds for every value of the symbols.
    Yes,
    /// It holds for no value of the symbols.
    No,
    /// It depends; to be checked when the numbers are known.
    Unknown,
}

impl Symbols {
    /// Adds a symbol; an empty name is replaced by a made-up one.
    pub fn add(&mut self, name: &str, min: i64, max: Option<i64>) -> Symbol {
        let symbol = Symbol(self.0.len() as u32);
        let name = if name.is_empty() { format!("s{}", symbol.0) } else { name.to_owned() };
        self.0.push(SymbolInfo { name, min, max });
        symbol
    }

    /// A size of which nothing but an upper bound is known.
    pub fn fresh_size(&mut self, max: Option<i64>) -> Dim {
        Dim::symbol(self.add("", 0, max))
    }

    /// A whole number of which nothing is known.
    pub fn fresh_int(&mut self) -> Dim {
        Dim::symbol(self.add("", i64::from(i32::MIN), Some(i64::from(i32::MAX))))
    }

    /// Name and bounds of a symbol of this table.
    pub fn get(&self, symbol: Symbol) -> Option<&SymbolInfo> {
        self.0.get(symbol.0 as usize)
    }

    /// All symbols in order.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, &SymbolInfo)> {
        self.0.iter().enumerate().map(|(index, info)| (Symbol(index as u32), info))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The least value an expression can take, if it is bounded below.
    pub fn lower(&self, dim: &Dim) -> Option<i64> {
        self.extreme(dim, false)
    }

    /// The largest value an expression can take, if it is bounded above.
    pub fn upper(&self, dim: &Dim) -> Option<i64> {
        self.extreme(dim, true)
    }

    fn extreme(&self, dim: &Dim, upper: bool) -> Option<i64> {
        dim.terms.iter().try_fold(dim.constant, |sum, &(symbol, factor)| {
            let info = self.get(symbol)?;
            let bound = if (factor > 0) == upper { info.max? } else { info.min.min(0) };
            sum.checked_add(bound.checked_mul(factor)?)
        })
    }

    /// Whether two expressions are equal.
    pub fn equal(&self, a: &Dim, b: &Dim) -> Verdict {
        match a.sub(b) {
            Some(difference) if difference == Dim::known(0) => Verdict::Yes,
            Some(difference) if difference.terms.is_empty() => Verdict::No,
            Some(difference) => {
                let apart = self.lower(&difference).is_some_and(|low| low > 0)
                    || self.upper(&difference).is_some_and(|high| high < 0);
                if apart { Verdict::No } else { Verdict::Unknown }
            }
            None => Verdict::Unknown,
        }
    }

    /// Whether `a <= b`.
    pub fn at_most(&self, a: &Dim, b: &Dim) -> Verdict {
        let Some(slack) = b.sub(a) else { return Verdict::Unknown };
        if self.lower(&slack).is_some_and(|low| low >= 0) {
            Verdict::Yes
        } else if self.upper(&slack).is_some_and(|high| high < 0) {
            Verdict::No
        } else {
            Verdict::Unknown
        }
    }

    /// An expression as text, with the names of this table.
    pub fn show(&self, dim: &Dim) -> String {
        let mut text = String::new();
        for &(symbol, factor) in &dim.terms {
            let name = self.get(symbol).map_or("?", |info| info.name.as_str());
            let sign = if factor < 0 {
                "-"
            } else if text.is_empty() {
                ""
            } else {
                "+"
            };
            let _ = match factor.unsigned_abs() {
                1 => write!(text, "{sign}{name}"),
                size => write!(text, "{sign}{size}*{name}"),
            };
        }
        if text.is_empty() {
            return dim.constant.to_string();
        }
        if dim.constant != 0 {
            let _ = write!(text, "{:+}", dim.constant);
        }
        text
    }
}

/// An affine expression over symbols: a size, a position, an integer value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Dim {
    constant: i64,
    /// By symbol, factors never zero.
    terms: Vec<(Symbol, i64)>,
}

impl Dim {
    /// A plain number.
    pub const fn known(value: i64) -> Dim {
        Dim { constant: value, terms: Vec::new() }
    }

    /// One symbol.
    pub fn symbol(symbol: Symbol) -> Dim {
        Dim { constant: 0, terms: vec![(symbol, 1)] }
    }

    /// The number, if no symbol is left in it.
    pub fn as_known(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The symbol, if the expression is nothing else.
    pub fn as_symbol(&self) -> Option<Symbol> {
        match (self.constant, self.terms.as_slice()) {
            (0, &[(symbol, 1)]) => Some(symbol),
            _ => None,
        }
    }

    /// The constant part and the terms, by symbol.
    pub fn parts(&self) -> (i64, &[(Symbol, i64)]) {
        (self.constant, &self.terms)
    }

    /// The sum; `None` on overflow.
    pub fn add(&self, other: &Dim) -> Option<Dim> {
        let mut terms = self.terms.clone();
        for &(symbol, factor) in &other.terms {
            match terms.binary_search_by_key(&symbol, |term| term.0) {
                Ok(at) => {
                    terms[at].1 = terms[at].1.checked_add(factor)?;
                    if terms[at].1 == 0 {
                        terms.remove(at);
                    }
                }
                Err(at) => terms.insert(at, (symbol, factor)),
            }
        }
        Some(Dim { constant: self.constant.checked_add(other.constant)?, terms })
    }

    /// The difference; `None` on overflow.
    pub fn sub(&self, other: &Dim) -> Option<Dim> {
        self.add(&other.scale(-1)?)
    }

    /// A multiple; `None` on overflow.
    pub fn scale(&self, factor: i64) -> Option<Dim> {
        if factor == 0 {
            return Some(Dim::known(0));
        }
        let terms = self.terms.iter().map(|&(symbol, by)| Some((symbol, by.checked_mul(factor)?)));
        Some(Dim { constant: self.constant.checked_mul(factor)?, terms: terms.collect::<Option<_>>()? })
    }

    /// The product, where it is affine; `None` on overflow too.
    pub fn mul(&self, other: &Dim) -> Option<Dim> {
        match (self.as_known(), other.as_known()) {
            (Some(factor), _) => other.scale(factor),
            (_, Some(factor)) => self.scale(factor),
            _ => None,
        }
    }

    /// The quotient, where the divisor divides every part.
    pub fn divide_exactly(&self, divisor: i64) -> Option<Dim> {
        let part = |value: i64| (value.checked_rem(divisor)? == 0).then(|| value.checked_div(divisor))?;
        let terms = self.terms.iter().map(|&(symbol, by)| Some((symbol, part(by)?)));
        Some(Dim { constant: part(self.constant)?, terms: terms.collect::<Option<_>>()? })
    }

    /// The value when every symbol has one; `None` when one is missing or the sum overflows.
    pub fn evaluate(&self, value_of: impl Fn(Symbol) -> Option<i64>) -> Option<i64> {
        self.terms.iter().try_fold(self.constant, |sum, &(symbol, factor)| {
            sum.checked_add(value_of(symbol)?.checked_mul(factor)?)
        })
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::known(value)
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (symbol, factor) in &self.terms {
            write!(f, "{factor}*#{}+", symbol.0)?;
        }
        write!(f, "{}", self.constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_is_decided_where_bounds_allow() {
        let mut symbols = Symbols::default();
        let t = Dim::symbol(symbols.add("T", 2, Some(64)));
        let n = Dim::symbol(symbols.add("n", 0, None));
        let t_plus = t.add(&Dim::known(100)).unwrap();
        assert_eq!(symbols.equal(&t, &t), Verdict::Yes);
        assert_eq!(symbols.equal(&t, &n), Verdict::Unknown);
        assert_eq!(symbols.equal(&t_plus, &t), Verdict::No);
        assert_eq!(symbols.equal(&t_plus, &Dim::known(40)), Verdict::No);
        // A declared minimum of 2 decides nothing: decode steps feed 1.
        assert_eq!(symbols.equal(&t, &Dim::known(1)), Verdict::Unknown);
        assert_eq!(symbols.at_most(&t, &Dim::known(64)), Verdict::Yes);
        assert_eq!(symbols.show(&t_plus.sub(&n.scale(3).unwrap()).unwrap()), "T-3*n+100");
    }

    #[test]
    fn arithmetic_overflows_to_none() {
        assert_eq!(Dim::known(i64::MAX).add(&Dim::known(1)), None);
        assert_eq!(Dim::known(i64::MIN).scale(-1), None);
        assert_eq!(Dim::known(7).divide_exactly(0), None);
        assert_eq!(Dim::known(8).divide_exactly(4), Some(Dim::known(2)));
    }
}
