//! From an XNNPACK payload to a graph.
//!
//! Values that hold codes become values that hold the numbers which the codes stand for: rounding to the codes' grid is a
//! few plain ops behind whoever writes the value, and reading it is nothing. So every op computes with floats, whatever
//! the file quantised, and all backends run it. Weights of products stay packed where the catalogue has their layout.
//! Flows in: a [`Payload`] and what the program knows of the call's arguments. Flows out: a [`Module`], and where the bytes of its
//! constants are. Of what is wrong with a payload, all is said at once; what depends on a node that is wrong is passed over.

mod boundary;
mod constants;
mod linear;
mod nodes;
mod quantize;
mod windows;

use std::collections::HashMap;

use indexmap::IndexMap;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{
    Builder, Dim, Graph, Module, Op, Place as NodePlace, Ssa, SymbolInfo, TensorType, Type, ValueId,
};
use pteron_tensor::DType;

use super::node::Node;
use super::tables::{Datatype, Value};
use super::{Constant, Payload};
use crate::{FormatError, Limits, Place, Result};

/// What a program says of an argument that it calls a delegate with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Argument {
    /// The element type, if it is a tensor of one that tensors can have.
    pub dtype: Option<DType>,
    /// Its sizes, or their upper bounds.
    pub sizes: Vec<i64>,
    /// Whether the sizes are upper bounds.
    pub is_dynamic: bool,
}

/// A payload as graphs.
#[derive(Clone, Debug)]
pub struct Lifted {
    /// The graphs.
    pub module: Module,
    /// Where the bytes of the graphs' constants are, by the names that they have there.
    pub data: IndexMap<String, Constant>,
}

/// The graphs that a payload stands for; `name` is the method or delegate they are for, `arguments` those of its call.
pub fn lift(payload: &Payload, name: &str, arguments: &[Argument], limits: &Limits) -> Result<Lifted> {
    payload.check(limits)?;
    let mut lifter = Lifter::new(payload, name, limits);
    lifter.inputs(arguments);
    for (index, node) in payload.graph.xnodes.iter().enumerate() {
        lifter.place = Some(NodePlace { chain: 0, index: index as u32 });
        if let Err(stop) = lifter.node(node) {
            lifter.stopped(stop, || format!("XNNGraph.xnodes[{index}] ({})", node.kind.name()))?;
            node.kind.outputs().into_iter().for_each(|id| lifter.spoil(id));
        }
    }
    lifter.outputs(arguments)?;
    FormatError::gathered(std::mem::take(&mut lifter.problems))?;
    Ok(lifter.finish())
}

/// Why a node became nothing.
enum Stop {
    /// It reads what another node should have given, which has been complained about.
    Spoilt,
    /// It means nothing, or nothing that is known here.
    Problem(String),
    /// The graph would exceed a limit: nothing more is lifted.
    Limit(FormatError),
}

type Step<T> = std::result::Result<T, Stop>;

fn problem<T>(text: impl Into<String>) -> Step<T> {
    Err(Stop::Problem(text.into()))
}

/// What a value of the payload is so far.
#[derive(Clone, Copy)]
enum Held {
    Nothing,
    Spoilt,
    Value(ValueId),
}

/// An integer argument of a node.
type Int = IntArg<ValueId>;

/// Which of the two graphs a node goes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    /// Runs once.
    Init,
    /// Runs at each call.
    Main,
}

struct Lifter<'p> {
    payload: &'p Payload,
    limits: &'p Limits,
    main: Builder,
    init: Builder,
    /// By id: the place among the payload's values.
    index: HashMap<u32, usize>,
    /// By place.
    held: Vec<Held>,
    /// Numbers that nodes read as tensors without dims, each made once.
    numbers: HashMap<(Part, u64, DType), ValueId>,
    /// Names of stored constants by index, type and shape.
    names: HashMap<(u32, DType, Vec<usize>), String>,
    /// Constants of either graph by name.
    constants: HashMap<(Part, String), ValueId>,
    data: IndexMap<String, Constant>,
    place: Option<NodePlace>,
    /// Bytes that types may still take: shapes can grow with every node, whatever the file's size.
    type_bytes: u64,
    problems: Vec<FormatError>,
}

impl<'p> Lifter<'p> {
    fn new(payload: &'p Payload, name: &str, limits: &'p Limits) -> Lifter<'p> {
        let values = &payload.graph.xvalues;
        let index =
            values.iter().enumerate().filter_map(|(at, value)| Some((value.tensor()?.id_out, at))).collect();
        let builder = |name: String| Builder::new(Graph { name, ..Graph::default() });
        Lifter {
            payload,
            limits,
            main: builder(name.to_owned()),
            init: builder(format!("{name}.init")),
            index,
            held: vec![Held::Nothing; values.len()],
            numbers: HashMap::new(),
            names: HashMap::new(),
            constants: HashMap::new(),
            data: IndexMap::new(),
            place: None,
            type_bytes: limits.decoded_bytes,
            problems: Vec::new(),
        }
    }

    fn finish(self) -> Lifted {
        let (init, main) = (self.init.finish(), self.main.finish());
        let init = (!init.outputs.is_empty()).then_some(init);
        Lifted { module: Module { init, main }, data: self.data }
    }

    /// Notes what is wrong; only a limit ends the lift.
    fn stopped(&mut self, stop: Stop, path: impl FnOnce() -> String) -> Result<()> {
        match stop {
            Stop::Spoilt => {}
            Stop::Problem(text) => self.problems.push(FormatError::table(path(), text)),
            Stop::Limit(error) => return Err(error),
        }
        Ok(())
    }

    fn at(&self, id: u32) -> Step<usize> {
        self.index.get(&id).copied().ok_or_else(|| Stop::Problem(format!("there is no value {id}")))
    }

    fn declared(&self, id: u32) -> Step<&'p Value> {
        Ok(&self.payload.graph.xvalues[self.at(id)?])
    }

    fn datatype(&self, id: u32) -> Step<Datatype> {
        Ok(self.declared(id)?.tensor().map_or(Datatype::Invalid, |tensor| tensor.datatype))
    }

    fn spoil(&mut self, id: u32) {
        if let Ok(at) = self.at(id) {
            self.held[at] = Held::Spoilt;
        }
    }

    /// What a value holds, as numbers.
    fn value(&mut self, id: u32) -> Step<ValueId> {
        let at = self.at(id)?;
        match self.held[at] {
            Held::Value(value) => Ok(value),
            Held::Spoilt => Err(Stop::Spoilt),
            Held::Nothing => match self.payload.graph.xvalues[at].tensor() {
                Some(tensor) if tensor.constant_buffer_idx != 0 => {
                    let value = self.constant(at)?;
                    self.held[at] = Held::Value(value);
                    Ok(value)
                }
                _ => problem(format!("it reads value {id}, which nothing has set before")),
            },
        }
    }

    fn set(&mut self, id: u32, value: ValueId) -> Step<()> {
        let at = self.at(id)?;
        let constant = self.payload.graph.xvalues[at].tensor().map_or(0, |tensor| tensor.constant_buffer_idx);
        match self.held[at] {
            Held::Nothing if constant == 0 => {
                self.held[at] = Held::Value(value);
                Ok(())
            }
            Held::Nothing => problem(format!("it writes value {id}, which is a constant")),
            _ => problem(format!("it writes value {id}, which is set already")),
        }
    }

    /// Writes the result of a node: within its bounds, in the type and on the grid that the value has.
    fn give(&mut self, node: &Node, id: u32, value: ValueId) -> Step<()> {
        let value = self.bounded(node, value)?;
        let value = self.rounded(id, value)?;
        self.set(id, value)
    }

    /// The same for ops that only move elements: what they read is on its grid already, and stays there where the
    /// grids are the same.
    fn pass(&mut self, node: &Node, from: &[u32], id: u32, value: ValueId) -> Step<()> {
        let value = self.bounded(node, value)?;
        let to = self.declared(id)?;
        let mut same = to.quantization().is_some();
        for &from in from {
            let from = self.declared(from)?;
            same &= from.quantization() == to.quantization()
                && from.tensor().map(|tensor| tensor.datatype) == to.tensor().map(|tensor| tensor.datatype);
        }
        let value = if same { value } else { self.rounded(id, value)? };
        self.set(id, value)
    }

    fn bounded(&mut self, node: &Node, x: ValueId) -> Step<ValueId> {
        let Some(bounds) = &node.output_min_max else { return Ok(x) };
        let dtype = self.dtype(x)?;
        let mut bound = |bound: f32| match bound.is_finite() {
            true => self.number(bound.into(), dtype).map(Some),
            false => Ok(None),
        };
        match (bound(bounds.output_min)?, bound(bounds.output_max)?) {
            (None, None) => Ok(x),
            (a_min, a_max) => self.emit(Op::Clip { x, a_min, a_max }),
        }
    }

    fn emit(&mut self, op: Op<Ssa>) -> Step<ValueId> {
        self.append(Part::Main, op)
    }

    fn append(&mut self, part: Part, op: Op<Ssa>) -> Step<ValueId> {
        let builder = match part {
            Part::Init => &mut self.init,
            Part::Main => &mut self.main,
        };
        let symbols = builder.graph().symbols.len();
        let values = match builder.append(op, self.place) {
            Ok(values) => values,
            Err(error) => return problem(error.to_string()),
        };
        let symbols = builder.graph().symbols.len() - symbols;
        let mut bytes = symbols * size_of::<SymbolInfo>();
        let mut rank = 0;
        for &value in &values {
            if let Some(Type::Tensor(ty)) = builder.graph().ty(value) {
                rank = rank.max(ty.shape.len());
                bytes +=
                    ty.shape.iter().map(|dim| size_of::<Dim>() + size_of_val(dim.parts().1)).sum::<usize>();
            }
            bytes += size_of::<Type>();
        }
        let limit = |limit, found, allowed| {
            let place = Place::at("XNNGraph.xnodes");
            Stop::Limit(FormatError::Limit { place, limit, found, allowed })
        };
        if rank > self.limits.rank {
            return Err(limit("rank", rank as u64, self.limits.rank as u64));
        }
        let allowed = self.limits.decoded_bytes;
        let left = self.type_bytes.checked_sub(bytes as u64);
        self.type_bytes = left.ok_or_else(|| limit("decoded_bytes", allowed.saturating_add(1), allowed))?;
        match values.first() {
            Some(&value) => Ok(value),
            None => problem("an op gave nothing"),
        }
    }

    fn ty(&self, part: Part, value: ValueId) -> Step<&TensorType> {
        let graph = match part {
            Part::Init => self.init.graph(),
            Part::Main => self.main.graph(),
        };
        match graph.ty(value) {
            Some(Type::Tensor(ty)) => Ok(ty),
            _ => problem("it reads what is no tensor"),
        }
    }

    fn dtype(&self, value: ValueId) -> Step<DType> {
        Ok(self.ty(Part::Main, value)?.dtype)
    }

    fn rank(&self, value: ValueId) -> Step<usize> {
        Ok(self.ty(Part::Main, value)?.shape.len())
    }

    fn of_rank(&self, value: ValueId, wanted: usize) -> Step<()> {
        match self.rank(value)? {
            rank if rank == wanted => Ok(()),
            rank => problem(format!("it takes tensors of {wanted} dims, not of {rank}")),
        }
    }

    /// A number as a tensor without dims.
    fn number(&mut self, number: f64, dtype: DType) -> Step<ValueId> {
        self.number_in(Part::Main, number, dtype)
    }

    fn number_in(&mut self, part: Part, number: f64, dtype: DType) -> Step<ValueId> {
        let key = (part, number.to_bits(), dtype);
        if let Some(&value) = self.numbers.get(&key) {
            return Ok(value);
        }
        let full = Op::Full { shape: Vec::new(), v: FloatArg::Literal(number), scalar_type: dtype };
        let value = self.append(part, full)?;
        self.numbers.insert(key, value);
        Ok(value)
    }

    fn cast(&mut self, x: ValueId, dtype: DType) -> Step<ValueId> {
        match self.dtype(x)? == dtype {
            true => Ok(x),
            false => self.emit(Op::AsType { x, scalar_type: dtype }),
        }
    }
}

/// A count of the wire as ops have it.
fn small(what: &str, number: u32) -> Step<i32> {
    i32::try_from(number).or_else(|_| problem(format!("{what} of {number}")))
}
