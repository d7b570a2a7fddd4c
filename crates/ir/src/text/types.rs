//! Reads symbols, sizes and types: `symbol T in 2..=64`, `2*T+1`, `f32[1, T]`.

use super::cursor::{Cursor, Parsed};
use super::error::{Problem, shorten};
use super::lexer::Token;
use super::{ANY_INT, MAX_ITEMS};
use crate::dim::{Dim, Symbol, Symbols};
use crate::graph::{TensorType, Type};
use pteron_tensor::DType;
use std::collections::{BTreeMap, HashMap};

/// Reads types over the symbols that were declared so far.
#[derive(Debug, Default)]
pub(super) struct TypeParser {
    pub(super) symbols: Symbols,
    names: HashMap<String, Symbol>,
}

impl TypeParser {
    /// `T in 2..=64`, `s1 in 0..`, `n in i32`, `#3 "batch size" in 0..`
    pub(super) fn declare(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        let spot = cursor.spot();
        let symbol = Symbol(self.symbols.len() as u32);
        if self.symbols.len() >= MAX_ITEMS {
            return Err(spot.error(Problem::TooMany { what: "symbols", limit: MAX_ITEMS }));
        }
        let name = if cursor.eat("#")? {
            let found: u64 = cursor.integer("the number of a symbol")?;
            if found != u64::from(symbol.0) {
                return Err(spot.error(Problem::SymbolOutOfOrder { expected: self.symbols.len(), found }));
            }
            match cursor.peek() {
                // The symbol table would make up a name for it.
                Token::Str(name) if name.is_empty() => return cursor.unexpected("a name that is not empty"),
                _ => cursor.string()?,
            }
        } else {
            let name = cursor.word("the name of a symbol, or its number such as #3")?.to_owned();
            if self.names.insert(name.clone(), symbol).is_some() {
                return Err(spot.error(Problem::RepeatedSymbol(shorten(&name))));
            }
            name
        };
        if !cursor.eat_word("in")? {
            return cursor.unexpected("`in` and a range");
        }
        let (min, max) = range(cursor)?;
        self.symbols.add(&name, min, max);
        Ok(())
    }

    /// `f32[2, T]`, `int(T+1)`, `float`, `bool`
    pub(super) fn ty(&self, cursor: &mut Cursor<'_>) -> Parsed<Type> {
        let expected = "a type such as f32[2, T], int(T), float or bool";
        let Token::Word(word) = *cursor.peek() else { return cursor.unexpected(expected) };
        let dtype = DType::from_name(word);
        if dtype.is_none() && !matches!(word, "int" | "float") {
            return cursor.unexpected(expected);
        }
        cursor.take()?;
        match (word, dtype, cursor.peek()) {
            ("float", ..) => Ok(Type::Float),
            ("bool", _, token) if *token != Token::Mark("[") => Ok(Type::Bool),
            (_, Some(dtype), _) => {
                let shape = cursor.list("[", "]", |cursor| self.dim(cursor))?;
                Ok(Type::Tensor(TensorType { dtype, shape }))
            }
            _ => {
                cursor.expect("(")?;
                let dim = self.dim(cursor)?;
                cursor.expect(")")?;
                Ok(Type::Int(dim))
            }
        }
    }

    /// `T`, `2*n+1`, `64-T`, `7`
    fn dim(&self, cursor: &mut Cursor<'_>) -> Parsed<Dim> {
        let start = cursor.spot();
        let overflow = || {
            let text = "this expression".to_owned();
            start.error(Problem::OutOfRange { text, expected: "an expression over integers of 64 bits" })
        };
        let mut constant = 0i128;
        let mut terms = BTreeMap::<Symbol, i128>::new();
        let mut sign = if cursor.eat("-")? { -1 } else { 1 };
        loop {
            let mut factor: i128 = sign;
            let number = matches!(cursor.peek(), Token::Number(_));
            if number {
                // Unsigned, because the least integer is written as a minus and 2^63.
                factor *= i128::from(cursor.integer::<u64>("a number of 64 bits")?);
            }
            let sum = match number && !cursor.eat("*")? {
                true => &mut constant,
                false => terms.entry(self.symbol(cursor)?).or_default(),
            };
            *sum = sum.checked_add(factor).ok_or_else(overflow)?;
            sign = match cursor.peek() {
                Token::Mark("+") => 1,
                Token::Mark("-") => -1,
                _ => break,
            };
            cursor.take()?;
        }
        let terms = terms.into_iter().map(|(symbol, factor)| Some((symbol, i64::try_from(factor).ok()?)));
        let terms = terms.collect::<Option<Vec<_>>>().ok_or_else(overflow)?;
        let constant = i64::try_from(constant).map_err(|_| overflow())?;
        sum_of(&terms).and_then(|sum| sum.add(&Dim::known(constant))).ok_or_else(overflow)
    }

    fn symbol(&self, cursor: &mut Cursor<'_>) -> Parsed<Symbol> {
        let spot = cursor.spot();
        if cursor.eat("#")? {
            let number: u32 = cursor.integer("the number of a symbol")?;
            return match self.symbols.get(Symbol(number)) {
                Some(_) => Ok(Symbol(number)),
                None => Err(spot.error(Problem::UnknownSymbol(format!("#{number}")))),
            };
        }
        let name = cursor.word("a size: a number, a symbol, or a sum of them")?;
        self.names.get(name).copied().ok_or_else(|| spot.error(Problem::UnknownSymbol(shorten(name))))
    }
}

/// `2..=64`, `0..`, `i32`
fn range(cursor: &mut Cursor<'_>) -> Parsed<(i64, Option<i64>)> {
    if cursor.eat_word("i32")? {
        let (min, max) = ANY_INT;
        return Ok((min, Some(max)));
    }
    let min = cursor.integer("a range such as 0..=64, 0.. or i32")?;
    if cursor.eat("..=")? {
        return Ok((min, Some(cursor.integer("the upper end of a range")?)));
    }
    cursor.expect("..")?;
    Ok((min, None))
}

/// The sum of terms that are in order of their symbols, by halves: adding one after the other would copy a long
/// sum once a term.
fn sum_of(terms: &[(Symbol, i64)]) -> Option<Dim> {
    match terms {
        [] => Some(Dim::known(0)),
        [(symbol, factor)] => Dim::symbol(*symbol).scale(*factor),
        _ => {
            let (low, high) = terms.split_at(terms.len() / 2);
            sum_of(low)?.add(&sum_of(high)?)
        }
    }
}
