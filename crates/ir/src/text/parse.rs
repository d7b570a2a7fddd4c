//! Reads graphs in the text form. Nothing here knows an op: names and fields come from the catalogue. What is
//! wrong with the meaning (an undefined value, a wrong type) is left to the verifier, so that a text can hold a
//! graph that is broken on purpose.

use super::cursor::{Cursor, Parsed};
use super::error::{ParseError, Problem, shorten};
use super::fields;
use super::lexer::{Spot, Token};
use super::print::body_name;
use super::types::TypeParser;
use super::{MAX_BYTES, MAX_DEPTH, MAX_ITEMS};
use crate::graph::{
    Block, Buffer, Constant, Graph, Input, Module, Node, Output, Ssa, Type, ValueId, ValueInfo,
};
use crate::op::{Field, FieldKind, Op, OpKind, OpSpec};
use std::collections::{BTreeMap, HashMap};

/// The graph that a text describes.
pub fn parse_graph(text: &str) -> Result<Graph, ParseError> {
    let mut cursor = begin(text)?;
    let graph = GraphParser::new(&mut cursor).graph()?;
    end(&cursor)?;
    Ok(graph)
}

/// The module that a text describes: an init graph, where there is one, and the main graph.
pub fn parse_module(text: &str) -> Result<Module, ParseError> {
    let mut cursor = begin(text)?;
    let init = match cursor.eat_word("init")? {
        true => Some(GraphParser::new(&mut cursor).graph()?),
        false => None,
    };
    let main = GraphParser::new(&mut cursor).graph()?;
    end(&cursor)?;
    Ok(Module { init, main })
}

fn begin(text: &str) -> Parsed<Cursor<'_>> {
    if text.len() > MAX_BYTES {
        let problem = Problem::TooMany { what: "bytes of text", limit: MAX_BYTES };
        return Err(ParseError { line: 1, column: 1, problem });
    }
    Cursor::new(text)
}

fn end(cursor: &Cursor<'_>) -> Parsed<()> {
    match cursor.peek() {
        Token::End => Ok(()),
        _ => cursor.unexpected("the end of the text"),
    }
}

/// One graph while it is read.
struct GraphParser<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    types_of: TypeParser,
    /// Types by value: a map, so that a wild number cannot make the table huge.
    types: BTreeMap<ValueId, Type>,
    /// Where each value that has no type yet was used first.
    uses: HashMap<ValueId, Spot>,
    nodes: usize,
    depth: usize,
}

impl<'c, 'a> GraphParser<'c, 'a> {
    fn new(cursor: &'c mut Cursor<'a>) -> GraphParser<'c, 'a> {
        GraphParser {
            cursor,
            types_of: TypeParser::default(),
            types: BTreeMap::new(),
            uses: HashMap::new(),
            nodes: 0,
            depth: 0,
        }
    }

    fn graph(mut self) -> Parsed<Graph> {
        if !self.cursor.eat_word("graph")? {
            return self.cursor.unexpected("`graph`");
        }
        let mut graph = Graph { name: self.cursor.string()?, ..Graph::default() };
        self.header(&mut graph)?;
        graph.body = self.block()?;
        while self.cursor.eat_word("output")? {
            let (value, name) = (self.used_value()?, self.cursor.string()?);
            self.cursor.expect(":")?;
            graph.outputs.push(Output { name, value, ty: self.types_of.ty(self.cursor)? });
        }
        graph.values = self.value_table()?;
        graph.symbols = self.types_of.symbols;
        Ok(graph)
    }

    /// What stands between the graph's name and its nodes.
    fn header(&mut self, graph: &mut Graph) -> Parsed<()> {
        loop {
            match *self.cursor.peek() {
                Token::Word("symbol") => {
                    self.cursor.take()?;
                    self.types_of.declare(self.cursor)?;
                }
                Token::Word("input") => {
                    let (value, name) = self.argument()?;
                    graph.inputs.push(Input { name, value });
                }
                Token::Word("constant") => {
                    let (value, name) = self.argument()?;
                    graph.constants.push(Constant { name, value });
                }
                Token::Word("buffer") => {
                    let (value, name) = self.argument()?;
                    let update = if self.cursor.eat("->")? { self.used_value()? } else { value };
                    graph.buffers.push(Buffer { name, value, update });
                }
                Token::Word("value") => {
                    self.cursor.take()?;
                    self.definition()?;
                }
                Token::Mark("{" | "(") => return Ok(()),
                _ => {
                    return self.cursor.unexpected("`symbol`, `input`, `constant`, `buffer`, `value` or `{`");
                }
            }
        }
    }

    /// `input %0 "tokens": i64[1, T]`, with the word still ahead.
    fn argument(&mut self) -> Parsed<(ValueId, String)> {
        self.cursor.take()?;
        let spot = self.cursor.spot();
        let value = self.cursor.value()?;
        let name = self.cursor.string()?;
        self.cursor.expect(":")?;
        let ty = self.types_of.ty(self.cursor)?;
        self.define(value, ty, spot)?;
        Ok((value, name))
    }

    /// `%5: f32[1, T, 4]`
    fn definition(&mut self) -> Parsed<ValueId> {
        let spot = self.cursor.spot();
        let value = self.cursor.value()?;
        self.cursor.expect(":")?;
        let ty = self.types_of.ty(self.cursor)?;
        self.define(value, ty, spot)?;
        Ok(value)
    }

    fn define(&mut self, value: ValueId, ty: Type, spot: Spot) -> Parsed<()> {
        match self.types.get(&value) {
            Some(known) if *known == ty => return Ok(()),
            Some(_) => return Err(spot.error(Problem::TwoTypes(value))),
            None => {}
        }
        if self.types.len() >= MAX_ITEMS {
            return Err(spot.error(Problem::TooMany { what: "values", limit: MAX_ITEMS }));
        }
        self.uses.remove(&value);
        self.types.insert(value, ty);
        Ok(())
    }

    fn used_value(&mut self) -> Parsed<ValueId> {
        let spot = self.cursor.spot();
        let value = self.cursor.value()?;
        self.note_use(value, spot)?;
        Ok(value)
    }

    fn note_use(&mut self, value: ValueId, spot: Spot) -> Parsed<()> {
        if !self.types.contains_key(&value) {
            if self.uses.len() >= MAX_ITEMS {
                return Err(spot.error(Problem::TooMany { what: "values", limit: MAX_ITEMS }));
            }
            self.uses.entry(value).or_insert(spot);
        }
        Ok(())
    }

    /// `{ nodes }`, with `(params)` before it and `yield results` at its end where it has them.
    fn block(&mut self) -> Parsed<Block> {
        let spot = self.cursor.spot();
        if self.depth >= MAX_DEPTH {
            return Err(spot.error(Problem::TooMany { what: "levels of blocks", limit: MAX_DEPTH }));
        }
        self.depth += 1;
        let mut block = Block::default();
        if self.cursor.eat("(")? {
            while !self.cursor.eat(")")? {
                block.params.push(self.definition()?);
                if !self.cursor.eat(",")? {
                    self.cursor.expect(")")?;
                    break;
                }
            }
        }
        self.cursor.expect("{")?;
        while !self.cursor.eat("}")? {
            if self.cursor.eat_word("yield")? {
                block.results.push(self.used_value()?);
                while self.cursor.eat(",")? {
                    block.results.push(self.used_value()?);
                }
                self.cursor.expect("}")?;
                break;
            }
            block.nodes.push(self.node()?);
        }
        self.depth -= 1;
        Ok(block)
    }

    /// `%5: f32[4] = add(a=%1, b=%2)`
    fn node(&mut self) -> Parsed<Node> {
        self.nodes += 1;
        if self.nodes > MAX_ITEMS {
            return Err(self.cursor.spot().error(Problem::TooMany { what: "nodes", limit: MAX_ITEMS }));
        }
        let mut results = Vec::new();
        if matches!(self.cursor.peek(), Token::Value(_)) {
            results.push(self.definition()?);
            while self.cursor.eat(",")? {
                results.push(self.definition()?);
            }
            self.cursor.expect("=")?;
        }
        let spot = self.cursor.spot();
        let word = self.cursor.word("an op, `yield` or `}`")?;
        let Some(kind) = OpKind::from_text(word) else {
            return Err(spot.error(Problem::UnknownOp(shorten(word))));
        };
        let spec = kind.spec();
        let mut fields = self.fields(spec)?;
        for (field, slot) in spec.fields.iter().zip(&mut fields) {
            if field.kind == FieldKind::Body && self.cursor.eat_word(body_name(field))? {
                *slot = Some(Field::Body(self.block()?));
            }
        }
        let fields = spec.fields.iter().zip(fields).map(|(field, written)| {
            let missing = Problem::MissingField { op: spec.text, field: body_name(field) };
            written.or_else(|| fields::left_out(field)).ok_or_else(|| spot.error(missing))
        });
        let op = Op::from_fields(kind, fields.collect::<Parsed<Vec<_>>>()?)
            .map_err(|field| spot.error(Problem::MissingField { op: spec.text, field }))?;
        let mut used = Vec::new();
        op.for_each_tensor(|value| used.push(value));
        op.for_each_scalar(|value| used.push(value));
        used.into_iter().try_for_each(|value| self.note_use(value, spot))?;
        Ok(Node { op, results, place: None })
    }

    /// `(a=%1, axis=0)`: the fields that are written, in the catalogue's order.
    fn fields(&mut self, spec: &'static OpSpec) -> Parsed<Vec<Option<Field<Ssa>>>> {
        let mut fields: Vec<Option<Field<Ssa>>> = vec![None; spec.fields.len()];
        self.cursor.list("(", ")", |cursor| {
            let spot = cursor.spot();
            let name = cursor.word("the name of a field")?;
            let is_written = |kind| !matches!(kind, FieldKind::Body | FieldKind::LoopSlots);
            let at = spec.fields.iter().position(|field| field.name == name && is_written(field.kind));
            let Some((field, slot)) = at.map(|at| (&spec.fields[at], &mut fields[at])) else {
                let known = spec.fields.iter().filter(|field| is_written(field.kind)).map(|field| field.name);
                let known = known.collect::<Vec<_>>().join(", ");
                return Err(spot.error(Problem::UnknownField { op: spec.text, field: shorten(name), known }));
            };
            if slot.is_some() {
                return Err(spot.error(Problem::RepeatedField(field.name)));
            }
            cursor.expect("=")?;
            *slot = Some(fields::parse(field.kind, cursor)?);
            Ok(())
        })?;
        Ok(fields)
    }

    /// The types by number, which must leave no gap.
    fn value_table(&mut self) -> Parsed<Vec<ValueInfo>> {
        let here = self.cursor.spot();
        let untyped = self.uses.iter().min_by_key(|(_, spot)| (spot.line, spot.column));
        if let Some((&value, spot)) = untyped {
            return Err(spot.error(Problem::NoType(value)));
        }
        let count = self.types.len();
        if let Some((&value, _)) = self.types.last_key_value().filter(|(value, _)| value.0 as usize >= count)
        {
            return Err(here.error(Problem::Gap { value, count }));
        }
        Ok(std::mem::take(&mut self.types).into_values().map(|ty| ValueInfo { ty }).collect())
    }
}
