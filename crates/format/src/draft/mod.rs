//! Graphs while a payload of another delegate is lifted into them: the one of every call and the one that runs once, their
//! constants, and the small steps that all payloads share.
//!
//! Ops flow in one by one, held to limits; [`Lifted`] flows out. What nodes of a payload mean is not known here.

mod constants;
mod sizes;
mod windows;

pub(crate) use constants::literals;
pub(crate) use windows::{Resize, Windows};

use std::collections::HashMap;

use indexmap::IndexMap;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{
    Builder, Dim, Graph, Module, Op, Place as NodePlace, Ssa, SymbolInfo, TensorType, Type, ValueId,
};
use pteron_tensor::{Bytes, DType};

use crate::{FormatError, Limits, Place, Result};

/// Where the bytes of a constant are.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// In the payload.
    Inline(Bytes),
    /// Under a key of named data.
    Named(String),
}

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

/// Why a node became nothing.
pub(crate) enum Stop {
    /// It reads what another node should have given, which has been complained about.
    Spoilt,
    /// It means nothing, or nothing that is known here.
    Problem(String),
    /// The graph would exceed a limit: nothing more is lifted.
    Limit(FormatError),
}

pub(crate) type Step<T> = std::result::Result<T, Stop>;

pub(crate) fn problem<T>(text: impl Into<String>) -> Step<T> {
    Err(Stop::Problem(text.into()))
}

/// A number of a file as ops have it.
pub(crate) fn small<N: TryInto<i32> + std::fmt::Display + Copy>(what: &str, number: N) -> Step<i32> {
    number.try_into().or_else(|_| problem(format!("{what} of {number}")))
}

/// What is wrong with the sizes of a tensor: programs hold none that a signed number of 32 bits does not, and nothing could
/// be written with them.
pub(crate) fn size_problem(sizes: impl IntoIterator<Item = i64>) -> Option<String> {
    let too_large = sizes.into_iter().find(|&size| i32::try_from(size).is_err());
    too_large.map(|size| format!("a size of {size} is more than a program can hold"))
}

/// What a value of a payload is so far.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Held {
    Nothing,
    Spoilt,
    Value(ValueId),
}

/// An integer argument of a node.
pub(crate) type Int = IntArg<ValueId>;

/// Which of the two graphs a node goes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// Runs once.
    Init,
    /// Runs at each call.
    Main,
}

/// The graphs of one payload.
pub(crate) struct Draft<'p> {
    pub(crate) limits: &'p Limits,
    pub(crate) main: Builder,
    pub(crate) init: Builder,
    /// The node of the payload that is being lifted.
    pub(crate) place: Option<NodePlace>,
    /// The list of nodes, as errors call it.
    path: &'static str,
    /// Numbers that nodes read as tensors without dims, each made once.
    numbers: HashMap<(Part, u64, DType), ValueId>,
    /// Names of stored constants by index, type and shape.
    names: HashMap<(u32, DType, Vec<usize>), String>,
    /// Constants of either graph by name.
    constants: HashMap<(Part, String), ValueId>,
    data: IndexMap<String, Constant>,
    /// Bytes that types may still take: shapes can grow with every node, whatever the file's size.
    type_bytes: u64,
    problems: Vec<FormatError>,
}

impl<'p> Draft<'p> {
    pub(crate) fn new(name: &str, path: &'static str, limits: &'p Limits) -> Draft<'p> {
        let builder = |name: String| Builder::new(Graph { name, ..Graph::default() });
        Draft {
            limits,
            main: builder(name.to_owned()),
            init: builder(format!("{name}.init")),
            place: None,
            path,
            numbers: HashMap::new(),
            names: HashMap::new(),
            constants: HashMap::new(),
            data: IndexMap::new(),
            type_bytes: limits.decoded_bytes,
            problems: Vec::new(),
        }
    }

    /// The graphs, or all that was wrong.
    pub(crate) fn finish(self) -> Result<Lifted> {
        FormatError::gathered(self.problems)?;
        let (init, main) = (self.init.finish(), self.main.finish());
        let init = (!init.outputs.is_empty()).then_some(init);
        Ok(Lifted { module: Module { init, main }, data: self.data })
    }

    /// Notes what is wrong; only a limit ends the lift.
    pub(crate) fn stopped(&mut self, stop: Stop, path: impl FnOnce() -> String) -> Result<()> {
        match stop {
            Stop::Spoilt => {}
            Stop::Problem(text) => self.problems.push(FormatError::table(path(), text)),
            Stop::Limit(error) => return Err(error),
        }
        Ok(())
    }

    pub(crate) fn emit(&mut self, op: Op<Ssa>) -> Step<ValueId> {
        self.append(Part::Main, op)
    }

    pub(crate) fn append(&mut self, part: Part, op: Op<Ssa>) -> Step<ValueId> {
        match self.append_all(part, op)?.first() {
            Some(&value) => Ok(value),
            None => problem("an op gave nothing"),
        }
    }

    /// Every result of an op.
    pub(crate) fn append_all(&mut self, part: Part, op: Op<Ssa>) -> Step<Vec<ValueId>> {
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
                if let Some(text) = size_problem(ty.shape.iter().filter_map(Dim::as_known)) {
                    return problem(text);
                }
                rank = rank.max(ty.shape.len());
                bytes +=
                    ty.shape.iter().map(|dim| size_of::<Dim>() + size_of_val(dim.parts().1)).sum::<usize>();
            }
            bytes += size_of::<Type>();
        }
        let limit = |limit, found, allowed| {
            Stop::Limit(FormatError::Limit { place: Place::at(self.path), limit, found, allowed })
        };
        if rank > self.limits.rank {
            return Err(limit("rank", rank as u64, self.limits.rank as u64));
        }
        let allowed = self.limits.decoded_bytes;
        let left = self.type_bytes.checked_sub(bytes as u64);
        self.type_bytes = left.ok_or_else(|| limit("decoded_bytes", allowed.saturating_add(1), allowed))?;
        Ok(values)
    }

    pub(crate) fn ty(&self, part: Part, value: ValueId) -> Step<&TensorType> {
        let graph = match part {
            Part::Init => self.init.graph(),
            Part::Main => self.main.graph(),
        };
        match graph.ty(value) {
            Some(Type::Tensor(ty)) => Ok(ty),
            _ => problem("it reads what is no tensor"),
        }
    }

    pub(crate) fn dtype(&self, value: ValueId) -> Step<DType> {
        Ok(self.ty(Part::Main, value)?.dtype)
    }

    pub(crate) fn rank(&self, value: ValueId) -> Step<usize> {
        Ok(self.ty(Part::Main, value)?.shape.len())
    }

    pub(crate) fn of_rank(&self, value: ValueId, wanted: usize) -> Step<()> {
        match self.rank(value)? {
            rank if rank == wanted => Ok(()),
            rank => problem(format!("it takes tensors of {wanted} dims, not of {rank}")),
        }
    }

    /// A number as a tensor without dims.
    pub(crate) fn number(&mut self, number: f64, dtype: DType) -> Step<ValueId> {
        self.number_in(Part::Main, number, dtype)
    }

    /// A number in the element type of another tensor.
    pub(crate) fn number_like(&mut self, x: ValueId, number: f64) -> Step<ValueId> {
        let dtype = self.dtype(x)?;
        self.number(number, dtype)
    }

    pub(crate) fn number_in(&mut self, part: Part, number: f64, dtype: DType) -> Step<ValueId> {
        let key = (part, number.to_bits(), dtype);
        if let Some(&value) = self.numbers.get(&key) {
            return Ok(value);
        }
        let full = Op::Full { shape: Vec::new(), v: FloatArg::Literal(number), scalar_type: dtype };
        let value = self.append(part, full)?;
        self.numbers.insert(key, value);
        Ok(value)
    }

    pub(crate) fn cast(&mut self, x: ValueId, dtype: DType) -> Step<ValueId> {
        match self.dtype(x)? == dtype {
            true => Ok(x),
            false => self.emit(Op::AsType { x, scalar_type: dtype }),
        }
    }

    /// The last two axes swapped.
    pub(crate) fn swapped(&mut self, x: ValueId) -> Step<ValueId> {
        let rank = self.rank(x)?;
        let mut perm: Vec<i32> = (0..rank as i32).collect();
        let Some(place) = rank.checked_sub(2) else { return problem(format!("a matrix of {rank} dims")) };
        perm.swap(place, rank - 1);
        self.emit(Op::Transpose { x, perm })
    }

    /// The numbers of codes of one scale.
    pub(crate) fn decode(&mut self, part: Part, x: ValueId, scale: f32, zero_point: i32) -> Step<ValueId> {
        let mut steps = self.append(part, Op::AsType { x, scalar_type: DType::F32 })?;
        if zero_point != 0 {
            let zero = self.number_in(part, zero_point.into(), DType::F32)?;
            steps = self.append(part, Op::Subtract { a: steps, b: zero })?;
        }
        let scale = self.number_in(part, scale.into(), DType::F32)?;
        self.append(part, Op::Multiply { a: steps, b: scale })
    }
}
