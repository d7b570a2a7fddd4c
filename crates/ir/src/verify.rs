//! The verifier: whether a graph means anything. It reports every error that it finds, each with the node or
//! line in text form, and is run on every pass's output in debug builds and tests.
//!
//! Types are judged by the ops' own rules: a stored size disagrees with the inferred one only where the two are
//! provably different, because what cannot be decided is checked when the numbers are known.

use crate::dim::{Dim, Symbol, SymbolInfo, Symbols, Verdict};
use crate::graph::{Block, Buffer, Constant, Graph, Input, Module, Node, Output, Place, Type, ValueId};
use crate::rules::{RuleError, infer};
use crate::text::Printer;
use std::collections::{HashMap, HashSet};

/// One thing that is wrong with a graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{fault}, in `{line}`{}", show_place(.place))]
pub struct VerifyError {
    /// What is wrong.
    pub fault: Fault,
    /// The node or declaration in text form.
    pub line: String,
    /// Where the node stood in its payload.
    pub place: Option<Place>,
}

fn show_place(place: &Option<Place>) -> String {
    place.map(|place| format!(" (chain {} #{})", place.chain, place.index)).unwrap_or_default()
}

/// What can be wrong with a graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Fault {
    #[error("%{} is not in the table of values", .0.0)]
    NoSuchValue(ValueId),
    #[error("symbol #{} is not in the table of symbols", .0.0)]
    NoSuchSymbol(Symbol),
    #[error("%{} is defined twice", .0.0)]
    DefinedTwice(ValueId),
    #[error("%{} is used, but nothing defines it", .0.0)]
    NeverDefined(ValueId),
    #[error("%{} is used before it is defined", .0.0)]
    DefinedLater(ValueId),
    #[error("%{} is used outside the block that defines it", .0.0)]
    OutOfScope(ValueId),
    #[error("%{} is not {want}", .value.0)]
    OperandKind { value: ValueId, want: &'static str },
    #[error(transparent)]
    Rule(RuleError),
    #[error("{found} results are listed where the op gives {given}")]
    ResultCount { found: usize, given: usize },
    #[error("%{} is declared {declared}, but the op gives {given}", .value.0)]
    ResultType { value: ValueId, declared: String, given: String },
    #[error("declared {declared}, but %{} is {given}", .value.0)]
    DeclaredType { value: ValueId, declared: String, given: String },
    #[error("a size is negative")]
    NegativeSize,
    #[error("constants and buffers are tensors")]
    NotATensor,
    #[error("the {what} {name:?} is declared twice")]
    RepeatedName { what: &'static str, name: String },
    #[error("no number is in this range")]
    EmptyRange,
    #[error("the block of a graph has no parameters and yields nothing")]
    OuterBlock,
    #[error("nothing can feed an input at load time")]
    InitInput,
    #[error("main declares this constant {0}")]
    InitType(String),
}

/// Whether a graph is sound; if not, all that is wrong with it.
pub fn verify(graph: &Graph) -> Result<(), Vec<VerifyError>> {
    let mut verifier = Verifier::new(graph);
    verifier.graph();
    if verifier.errors.is_empty() { Ok(()) } else { Err(verifier.errors) }
}

/// Whether a module is sound: both graphs, and what the one makes for the other.
pub fn verify_module(module: &Module) -> Result<(), Vec<VerifyError>> {
    let mut errors = verify(&module.main).err().unwrap_or_default();
    if let Some(init) = &module.init {
        let mut verifier = Verifier::new(init);
        verifier.graph();
        verifier.init_for(&module.main);
        errors.extend(verifier.errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// What an error is about.
#[derive(Clone, Copy)]
enum Site<'g> {
    Graph,
    Symbol(Symbol, &'g SymbolInfo),
    Value(ValueId),
    Input(&'g Input),
    Constant(&'g Constant),
    Buffer(&'g Buffer),
    Node(&'g Node),
    Output(&'g Output),
}

/// What is known of a value at a point of the walk.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Not,
    Visible,
    /// The block that defined it has ended.
    Gone,
}

/// What happens to a value on its way from where it is made to where it is declared.
#[derive(Clone, Copy, PartialEq)]
enum Conversion {
    None,
    /// A graph's outputs are converted to the dtypes that the file declares.
    OfElements,
}

struct Verifier<'g> {
    graph: &'g Graph,
    printer: Printer<'g>,
    /// The graph's symbols, and those that rules make while they are tried.
    symbols: Symbols,
    seen: Vec<Seen>,
    /// Values that something defines somewhere.
    defined: Vec<bool>,
    /// Types that name unknown symbols cannot be reasoned about.
    types_are_sound: bool,
    errors: Vec<VerifyError>,
}

impl<'g> Verifier<'g> {
    fn new(graph: &'g Graph) -> Verifier<'g> {
        let mut defined = vec![false; graph.values.len()];
        graph.for_each_definition(|value| {
            if let Some(defined) = defined.get_mut(value.0 as usize) {
                *defined = true;
            }
        });
        Verifier {
            graph,
            printer: Printer::new(graph),
            symbols: graph.symbols.clone(),
            seen: vec![Seen::Not; graph.values.len()],
            defined,
            types_are_sound: true,
            errors: Vec::new(),
        }
    }

    fn graph(&mut self) {
        let graph = self.graph;
        self.tables();
        self.header();
        if !graph.body.params.is_empty() || !graph.body.results.is_empty() {
            self.report(Fault::OuterBlock, Site::Graph);
        }
        graph.body.nodes.iter().for_each(|node| self.node(node));
        for buffer in &graph.buffers {
            if let Some(declared) = graph.ty(buffer.value) {
                self.declared(buffer.update, declared, Conversion::None, Site::Buffer(buffer));
            }
        }
        for output in &graph.outputs {
            self.declared(output.value, &output.ty, Conversion::OfElements, Site::Output(output));
        }
    }

    /// Ranges that hold a number, types that use known symbols, sizes that can be.
    fn tables(&mut self) {
        let graph = self.graph;
        for (symbol, info) in graph.symbols.iter() {
            if info.max.is_some_and(|max| max < info.min) {
                self.report(Fault::EmptyRange, Site::Symbol(symbol, info));
            }
        }
        for (index, info) in graph.values.iter().enumerate() {
            self.sound_type(&info.ty, Site::Value(ValueId(index as u32)));
        }
        for output in &graph.outputs {
            self.sound_type(&output.ty, Site::Output(output));
        }
    }

    fn sound_type(&mut self, ty: &Type, site: Site<'g>) {
        let (dims, is_shape) = match ty {
            Type::Tensor(tensor) => (tensor.shape.as_slice(), true),
            Type::Int(dim) => (std::slice::from_ref(dim), false),
            Type::Float | Type::Bool => return,
        };
        for dim in dims {
            let unknown = dim.parts().1.iter().find(|(symbol, _)| self.graph.symbols.get(*symbol).is_none());
            if let Some(&(symbol, _)) = unknown {
                self.types_are_sound = false;
                self.report(Fault::NoSuchSymbol(symbol), site);
            } else if is_shape && self.symbols.at_most(&Dim::known(0), dim) == Verdict::No {
                self.report(Fault::NegativeSize, site);
            }
        }
    }

    /// Defines what the graph is given, under names that are not taken.
    fn header(&mut self) {
        let graph = self.graph;
        for input in &graph.inputs {
            self.define(input.value, Site::Input(input));
        }
        let constants = graph.constants.iter();
        let constants = constants.map(|one| ("constant", one.value, &one.name, Site::Constant(one)));
        let buffers = graph.buffers.iter().map(|one| ("buffer", one.value, &one.name, Site::Buffer(one)));
        let mut names = HashSet::new();
        for (what, value, name, site) in constants.chain(buffers) {
            self.define(value, site);
            if !matches!(graph.ty(value), None | Some(Type::Tensor(_))) {
                self.report(Fault::NotATensor, site);
            }
            if !names.insert((what, name)) {
                self.report(Fault::RepeatedName { what, name: name.clone() }, site);
            }
        }
    }

    fn node(&mut self, node: &'g Node) {
        let errors_before = self.errors.len();
        let site = Site::Node(node);
        node.for_each_operand(|value| {
            self.use_value(value, site);
        });
        self.operand_kinds(node);
        node.for_each_block(|block| self.block(block, site));
        // A rule says little of operands that are already wrong.
        if self.errors.len() == errors_before && self.types_are_sound {
            self.result_types(node);
        }
        node.results.iter().for_each(|&result| self.define(result, site));
    }

    /// A nested block; what it defines is gone when it ends.
    fn block(&mut self, block: &'g Block, site: Site<'g>) {
        block.params.iter().for_each(|&param| self.define(param, site));
        block.nodes.iter().for_each(|node| self.node(node));
        for &result in &block.results {
            self.use_value(result, site);
        }
        let inner = block.nodes.iter().flat_map(|node| &node.results);
        for value in block.params.iter().chain(inner) {
            if let Some(seen) = self.seen.get_mut(value.0 as usize) {
                *seen = Seen::Gone;
            }
        }
    }

    /// Tensors where the catalogue says tensor, scalars where it says scalar: rules check only what the types of
    /// the results depend on.
    fn operand_kinds(&mut self, node: &'g Node) {
        let graph = self.graph;
        let mut wrong = Vec::new();
        node.op.for_each_tensor(|value| {
            if !matches!(graph.ty(value), None | Some(Type::Tensor(_))) {
                wrong.push((value, "a tensor"));
            }
        });
        node.op.for_each_scalar(|value| {
            if matches!(graph.ty(value), Some(Type::Tensor(_))) {
                wrong.push((value, "a scalar"));
            }
        });
        for (value, want) in wrong {
            self.report(Fault::OperandKind { value, want }, Site::Node(node));
        }
    }

    fn result_types(&mut self, node: &'g Node) {
        let site = Site::Node(node);
        let given = match infer(&node.op, &self.graph.values, &mut self.symbols) {
            Ok(types) => types,
            Err(error) => return self.report(Fault::Rule(error), site),
        };
        if given.len() != node.results.len() {
            return self.report(Fault::ResultCount { found: node.results.len(), given: given.len() }, site);
        }
        for (&value, given) in node.results.iter().zip(&given) {
            let Some(declared) = self.graph.ty(value) else { continue };
            if !self.agree(declared, given, Conversion::None) {
                let (declared, given) = (self.show(declared), self.show(given));
                self.report(Fault::ResultType { value, declared, given }, site);
            }
        }
    }

    /// A value that leaves the graph as something that is declared.
    fn declared(&mut self, value: ValueId, declared: &Type, conversion: Conversion, site: Site<'g>) {
        if self.use_value(value, site)
            && let Some(given) = self.graph.ty(value)
            && !self.agree(declared, given, conversion)
        {
            let (declared, given) = (self.show(declared), self.show(given));
            self.report(Fault::DeclaredType { value, declared, given }, site);
        }
    }

    /// Init's outputs are constants of `main`, under names of their own and with the types that it declares.
    fn init_for(&mut self, main: &Graph) {
        let init = self.graph;
        for input in &init.inputs {
            self.report(Fault::InitInput, Site::Input(input));
        }
        let constants = main.constants.iter().map(|constant| (constant.name.as_str(), constant.value));
        let constants: HashMap<&str, ValueId> = constants.collect();
        let mut names = HashSet::new();
        for output in &init.outputs {
            let site = Site::Output(output);
            if !names.insert(&output.name) {
                self.report(Fault::RepeatedName { what: "constant", name: output.name.clone() }, site);
            }
            let declared = constants.get(output.name.as_str()).and_then(|&value| main.ty(value));
            if let Some(declared) = declared.filter(|declared| !may_be_same_constant(declared, &output.ty)) {
                self.report(Fault::InitType(Printer::new(main).ty(declared).to_string()), site);
            }
        }
    }

    /// Whether two types can be the same when the numbers are known.
    fn agree(&self, a: &Type, b: &Type, conversion: Conversion) -> bool {
        let may_equal = |a: &Dim, b: &Dim| !self.types_are_sound || self.symbols.equal(a, b) != Verdict::No;
        match (a, b) {
            (Type::Tensor(a), Type::Tensor(b)) => {
                (a.dtype == b.dtype || conversion == Conversion::OfElements)
                    && a.shape.len() == b.shape.len()
                    && a.shape.iter().zip(&b.shape).all(|(a, b)| may_equal(a, b))
            }
            (Type::Int(a), Type::Int(b)) => may_equal(a, b),
            (Type::Float, Type::Float) | (Type::Bool, Type::Bool) => true,
            _ => false,
        }
    }

    fn define(&mut self, value: ValueId, site: Site<'g>) {
        match self.seen.get_mut(value.0 as usize) {
            None => self.report(Fault::NoSuchValue(value), site),
            Some(seen @ Seen::Not) => *seen = Seen::Visible,
            Some(_) => self.report(Fault::DefinedTwice(value), site),
        }
    }

    /// Whether a value may be used here.
    fn use_value(&mut self, value: ValueId, site: Site<'g>) -> bool {
        let at = value.0 as usize;
        let fault = match self.seen.get(at) {
            Some(Seen::Visible) => return true,
            None => Fault::NoSuchValue(value),
            Some(Seen::Gone) => Fault::OutOfScope(value),
            Some(Seen::Not) if self.defined[at] => Fault::DefinedLater(value),
            Some(Seen::Not) => Fault::NeverDefined(value),
        };
        self.report(fault, site);
        false
    }

    fn show(&self, ty: &Type) -> String {
        self.printer.ty(ty).to_string()
    }

    fn report(&mut self, fault: Fault, site: Site<'g>) {
        let printer = &self.printer;
        let line = match site {
            Site::Graph => format!("graph {:?}", self.graph.name),
            Site::Symbol(symbol, info) => printer.symbol(symbol, info).to_string(),
            Site::Value(value) => printer.value(value).to_string(),
            Site::Input(input) => printer.input(input).to_string(),
            Site::Constant(constant) => printer.constant(constant).to_string(),
            Site::Buffer(buffer) => printer.buffer(buffer).to_string(),
            Site::Node(node) => printer.node(node).to_string(),
            Site::Output(output) => printer.output(output).to_string(),
        };
        let place = if let Site::Node(node) = site { node.place } else { None };
        self.errors.push(VerifyError { fault, line, place });
    }
}

/// Whether what init makes can be the constant that main declares. The two graphs have symbols of their own, so
/// only known sizes can be compared.
fn may_be_same_constant(declared: &Type, made: &Type) -> bool {
    let same = |(a, b): (&Dim, &Dim)| a.as_known().zip(b.as_known()).is_none_or(|(a, b)| a == b);
    match (declared, made) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            a.dtype == b.dtype && a.shape.len() == b.shape.len() && a.shape.iter().zip(&b.shape).all(same)
        }
        _ => false,
    }
}
