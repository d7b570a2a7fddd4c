//! Writes graphs, and single nodes and types for errors, in the text form. Printing never fails: a graph that is
//! broken (a value or symbol that is not in its table) prints too, since that is when one wants to see it.

use super::ANY_INT;
use super::fields::{shown, write_quoted};
use super::lexer::is_one_word;
use crate::dim::{Dim, Symbol, SymbolInfo};
use crate::graph::{Block, Buffer, Constant, Graph, Input, Module, Node, Output, Type, ValueId};
use crate::op::{FieldRef, FieldSpec};
use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

/// Prints parts of one graph with the names of its symbols.
#[derive(Debug)]
pub struct Printer<'g> {
    graph: &'g Graph,
    /// For each symbol, whether its name alone stands for it.
    named: Vec<bool>,
}

/// What prints by calling a function.
struct Shown<F>(F);

impl<F: Fn(&mut Formatter<'_>) -> fmt::Result> Display for Shown<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Printer::new(self).write_graph(f)
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(init) = &self.init {
            writeln!(f, "init {init}")?;
        }
        write!(f, "{}", self.main)
    }
}

impl<'g> Printer<'g> {
    /// A printer for parts of that graph.
    pub fn new(graph: &'g Graph) -> Printer<'g> {
        let mut taken = HashSet::new();
        let named = graph.symbols.iter().map(|(_, info)| is_one_word(&info.name) && taken.insert(&info.name));
        Printer { graph, named: named.collect() }
    }

    /// A node on one line; bodies are shown as `{...}`.
    pub fn node<'a>(&'a self, node: &'a Node) -> impl Display + 'a {
        Shown(move |f: &mut Formatter<'_>| self.write_node(f, node, None))
    }

    /// A type.
    pub fn ty<'a>(&'a self, ty: &'a Type) -> impl Display + 'a {
        Shown(move |f: &mut Formatter<'_>| self.write_type(f, ty))
    }

    /// A value with its type.
    pub fn value(&self, value: ValueId) -> impl Display {
        Shown(move |f: &mut Formatter<'_>| self.write_definition(f, value))
    }

    pub(crate) fn symbol<'a>(&'a self, symbol: Symbol, info: &'a SymbolInfo) -> impl Display + 'a {
        Shown(move |f: &mut Formatter<'_>| self.write_symbol(f, symbol, info))
    }

    pub(crate) fn input<'a>(&'a self, input: &'a Input) -> impl Display + 'a {
        self.named("input", input.value, &input.name, self.graph.ty(input.value))
    }

    pub(crate) fn constant<'a>(&'a self, constant: &'a Constant) -> impl Display + 'a {
        self.named("constant", constant.value, &constant.name, self.graph.ty(constant.value))
    }

    pub(crate) fn buffer<'a>(&'a self, buffer: &'a Buffer) -> impl Display + 'a {
        let named = self.named("buffer", buffer.value, &buffer.name, self.graph.ty(buffer.value));
        Shown(move |f: &mut Formatter<'_>| match buffer.update == buffer.value {
            true => write!(f, "{named}"),
            false => write!(f, "{named} -> %{}", buffer.update.0),
        })
    }

    pub(crate) fn output<'a>(&'a self, output: &'a Output) -> impl Display + 'a {
        self.named("output", output.value, &output.name, Some(&output.ty))
    }

    /// `input %0 "tokens": i64[1, T]`
    fn named<'a>(
        &'a self,
        role: &'static str,
        value: ValueId,
        name: &'a str,
        ty: Option<&'a Type>,
    ) -> impl Display + 'a {
        Shown(move |f: &mut Formatter<'_>| {
            write!(f, "{role} %{} ", value.0)?;
            write_quoted(f, name)?;
            self.write_annotation(f, ty)
        })
    }

    fn write_graph(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let graph = self.graph;
        f.write_str("graph ")?;
        write_quoted(f, &graph.name)?;
        f.write_str("\n")?;
        for (symbol, info) in graph.symbols.iter() {
            writeln!(f, "  {}", self.symbol(symbol, info))?;
        }
        for input in &graph.inputs {
            writeln!(f, "  {}", self.input(input))?;
        }
        for constant in &graph.constants {
            writeln!(f, "  {}", self.constant(constant))?;
        }
        for buffer in &graph.buffers {
            writeln!(f, "  {}", self.buffer(buffer))?;
        }
        for value in undefined_values(graph) {
            writeln!(f, "  value {}", self.value(value))?;
        }
        self.write_block(f, &graph.body, 0)?;
        f.write_str("\n")?;
        for output in &graph.outputs {
            writeln!(f, "{}", self.output(output))?;
        }
        Ok(())
    }

    fn write_symbol(&self, f: &mut Formatter<'_>, symbol: Symbol, info: &SymbolInfo) -> fmt::Result {
        f.write_str("symbol ")?;
        self.write_symbol_name(f, symbol)?;
        if !self.is_named(symbol) {
            f.write_str(" ")?;
            write_quoted(f, &info.name)?;
        }
        match (info.min, info.max) {
            (min, Some(max)) if (min, max) == ANY_INT => f.write_str(" in i32"),
            (min, Some(max)) => write!(f, " in {min}..={max}"),
            (min, None) => write!(f, " in {min}.."),
        }
    }

    fn is_named(&self, symbol: Symbol) -> bool {
        self.named.get(symbol.0 as usize).copied().unwrap_or(false)
    }

    fn write_symbol_name(&self, f: &mut Formatter<'_>, symbol: Symbol) -> fmt::Result {
        match self.graph.symbols.get(symbol) {
            Some(info) if self.is_named(symbol) => f.write_str(&info.name),
            _ => write!(f, "#{}", symbol.0),
        }
    }

    /// `%5: f32[1, T, 4]`
    fn write_definition(&self, f: &mut Formatter<'_>, value: ValueId) -> fmt::Result {
        write!(f, "%{}", value.0)?;
        self.write_annotation(f, self.graph.ty(value))
    }

    fn write_annotation(&self, f: &mut Formatter<'_>, ty: Option<&Type>) -> fmt::Result {
        f.write_str(": ")?;
        match ty {
            Some(ty) => self.write_type(f, ty),
            None => f.write_str("?"),
        }
    }

    fn write_type(&self, f: &mut Formatter<'_>, ty: &Type) -> fmt::Result {
        match ty {
            Type::Tensor(tensor) => {
                write!(f, "{}[", tensor.dtype.name())?;
                for (axis, dim) in tensor.shape.iter().enumerate() {
                    f.write_str(if axis == 0 { "" } else { ", " })?;
                    self.write_dim(f, dim)?;
                }
                f.write_str("]")
            }
            Type::Int(dim) => {
                f.write_str("int(")?;
                self.write_dim(f, dim)?;
                f.write_str(")")
            }
            Type::Float => f.write_str("float"),
            Type::Bool => f.write_str("bool"),
        }
    }

    fn write_dim(&self, f: &mut Formatter<'_>, dim: &Dim) -> fmt::Result {
        let (constant, terms) = dim.parts();
        for (index, &(symbol, factor)) in terms.iter().enumerate() {
            f.write_str(if factor < 0 {
                "-"
            } else if index == 0 {
                ""
            } else {
                "+"
            })?;
            if factor.unsigned_abs() != 1 {
                write!(f, "{}*", factor.unsigned_abs())?;
            }
            self.write_symbol_name(f, symbol)?;
        }
        match (terms, constant) {
            ([], constant) => write!(f, "{constant}"),
            (_, 0) => Ok(()),
            (_, constant) => write!(f, "{constant:+}"),
        }
    }

    /// `(%5: f32[4], %6: f32[2]) `, where a block has parameters.
    fn write_params(&self, f: &mut Formatter<'_>, block: &Block) -> fmt::Result {
        for (index, &param) in block.params.iter().enumerate() {
            f.write_str(if index == 0 { "(" } else { ", " })?;
            self.write_definition(f, param)?;
        }
        f.write_str(if block.params.is_empty() { "" } else { ") " })
    }

    /// Parameters, and nodes in braces, the opening one where the line stands.
    fn write_block(&self, f: &mut Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
        self.write_params(f, block)?;
        if block.nodes.is_empty() && block.results.is_empty() {
            return f.write_str("{}");
        }
        f.write_str("{\n")?;
        let indent = 2 * (depth + 1);
        for node in &block.nodes {
            write!(f, "{:indent$}", "")?;
            self.write_node(f, node, Some(depth + 1))?;
            if let Some(place) = node.place {
                write!(f, "  ; chain {} #{}", place.chain, place.index)?;
            }
            f.write_str("\n")?;
        }
        for (index, result) in block.results.iter().enumerate() {
            match index {
                0 => write!(f, "{:indent$}yield %{}", "", result.0)?,
                _ => write!(f, ", %{}", result.0)?,
            }
        }
        f.write_str(if block.results.is_empty() { "" } else { "\n" })?;
        write!(f, "{:depth$}}}", "", depth = 2 * depth)
    }

    /// `%5: f32[4] = add(a=%1, b=%2)`; bodies are written out where their depth is given.
    fn write_node(&self, f: &mut Formatter<'_>, node: &Node, depth: Option<usize>) -> fmt::Result {
        for (index, &result) in node.results.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            self.write_definition(f, result)?;
        }
        f.write_str(if node.results.is_empty() { "" } else { " = " })?;
        write!(f, "{}(", node.op.spec().text)?;
        let mut fields = Vec::new();
        let mut bodies = Vec::new();
        node.op.for_each_field(|spec, field| match field {
            FieldRef::Body(block) => bodies.push((spec, block)),
            field => fields.extend(shown(spec, field).map(|value| (spec, value))),
        });
        for (index, (spec, value)) in fields.iter().enumerate() {
            write!(f, "{}{}={value}", if index == 0 { "" } else { ", " }, spec.name)?;
        }
        f.write_str(")")?;
        for (spec, block) in bodies {
            write!(f, " {} ", body_name(spec))?;
            match depth {
                Some(depth) => self.write_block(f, block, depth)?,
                None => {
                    self.write_params(f, block)?;
                    f.write_str("{...}")?;
                }
            }
        }
        Ok(())
    }
}

/// The word before a body: the schema's `then_chain_idx` is `then` here.
pub(super) fn body_name(spec: &FieldSpec) -> &'static str {
    spec.name.strip_suffix("_chain_idx").unwrap_or(spec.name)
}

/// Values of the table that no input, constant, buffer, node or block defines; rewrites leave such behind.
fn undefined_values(graph: &Graph) -> impl Iterator<Item = ValueId> {
    let mut defined = vec![false; graph.values.len()];
    graph.for_each_definition(|value| {
        if let Some(defined) = defined.get_mut(value.0 as usize) {
            *defined = true;
        }
    });
    let undefined = defined.into_iter().enumerate().filter(|(_, defined)| !defined);
    undefined.map(|(index, _)| ValueId(index as u32))
}

impl Graph {
    /// Visits every value where it is defined: by an input, constant, buffer, block or node.
    pub(crate) fn for_each_definition(&self, mut visit: impl FnMut(ValueId)) {
        self.inputs.iter().for_each(|input| visit(input.value));
        self.constants.iter().for_each(|constant| visit(constant.value));
        self.buffers.iter().for_each(|buffer| visit(buffer.value));
        self.body.params.iter().copied().for_each(&mut visit);
        self.for_each_node(|node, _| {
            node.results.iter().copied().for_each(&mut visit);
            node.for_each_block(|block| block.params.iter().copied().for_each(&mut visit));
        });
    }
}
