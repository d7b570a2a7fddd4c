//! The edge of a payload: arguments by position, inputs first. Codes become numbers where they enter, and codes again
//! where they leave.

use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Op, Output, TensorType, Type, ValueId};
use pteron_tensor::DType;

use super::Lifter;
use crate::Result;
use crate::draft::{Argument, Held, Part, Step, Stop, problem};
use crate::xnnpack::tables::{Datatype, NO_ID, Quantization, TensorValue, Value};

/// Bit of an output.
const OUTPUT: u32 = 2;

impl Lifter<'_> {
    /// By position: the value that an argument is.
    fn externs(&self) -> Vec<Option<usize>> {
        let graph = &self.payload.graph;
        let mut externs = vec![None; graph.num_externs as usize];
        for (at, value) in graph.xvalues.iter().enumerate() {
            if let Some(tensor) = value.tensor()
                && tensor.external_id != NO_ID
                && let Some(place) = externs.get_mut(tensor.external_id as usize)
            {
                *place = Some(at);
            }
        }
        externs
    }

    fn is_output(&self, at: Option<usize>) -> bool {
        let tensor = at.and_then(|at| self.payload.graph.xvalues[at].tensor());
        tensor.is_some_and(|tensor| tensor.flags & OUTPUT != 0)
    }

    pub(super) fn inputs(&mut self, arguments: &[Argument]) {
        let externs = self.externs();
        let first = externs.iter().position(|at| self.is_output(*at)).unwrap_or(externs.len());
        for (number, at) in externs.iter().enumerate() {
            let path = |at: usize| format!("XNNGraph.xvalues[{at}]");
            match (number < first, at) {
                (true, Some(at)) => {
                    if let Err(stop) = self.input(*at, arguments.get(number)) {
                        // Nothing at the boundary comes near a limit.
                        let _ = self.stopped(stop, || path(*at));
                        self.held[*at] = Held::Spoilt;
                    }
                }
                // An argument that no node reads has no value.
                (true, None) => self.unread(arguments.get(number)),
                (false, at) if self.is_output(*at) => {}
                (false, at) => {
                    let stop = Stop::Problem(format!("argument {number} is no output, but follows one"));
                    let _ = self.stopped(stop, || at.map_or_else(|| "XNNGraph.num_externs".into(), path));
                }
            }
        }
    }

    fn unread(&mut self, argument: Option<&Argument>) {
        let graph = self.main.graph_mut();
        let ty = match argument {
            Some(Argument { dtype: Some(dtype), sizes, is_dynamic }) => {
                let shape = sizes.iter().map(|&size| match is_dynamic {
                    true => graph.symbols.fresh_size(Some(size)),
                    false => Dim::known(size),
                });
                Type::Tensor(TensorType { dtype: *dtype, shape: shape.collect() })
            }
            _ => Type::Int(graph.symbols.fresh_int()),
        };
        graph.add_input("", ty);
    }

    fn input(&mut self, at: usize, argument: Option<&Argument>) -> Step<()> {
        let value = &self.payload.graph.xvalues[at];
        let Some(tensor) = value.tensor() else { return problem("it has no tensor") };
        let dtype = stored_dtype(tensor.datatype)?;
        let graph = self.main.graph_mut();
        let is_dynamic = argument.is_some_and(|argument| argument.is_dynamic);
        let shape = tensor.dims.iter().map(|&size| match is_dynamic && size > 1 {
            // Which dims vary is said nowhere; one of at most 1 is 1, or there is nothing to compute.
            true => graph.symbols.fresh_size(Some(size.into())),
            false => Dim::known(size.into()),
        });
        let shape: Vec<Dim> = shape.collect();
        let given = argument.and_then(|argument| argument.dtype).unwrap_or(dtype);
        // One number has no dims in the program, and one here.
        let other =
            argument.filter(|argument| argument.dtype.is_some() && argument.sizes.len() != shape.len());
        let mut entered = match other {
            Some(argument) => {
                let shape = argument.sizes.iter().map(|&size| Dim::known(size)).collect();
                graph.add_input("", Type::Tensor(TensorType { dtype: given, shape }))
            }
            None => graph.add_input("", Type::Tensor(TensorType { dtype: given, shape })),
        };
        if other.is_some() {
            let shape = tensor.dims.iter().map(|&size| IntArg::Literal(size.into())).collect();
            entered = self.emit(Op::Reshape { x: entered, shape })?;
        }
        let entered = self.cast(entered, dtype)?;
        let numbers = self.decoded(value, tensor, entered)?;
        self.held[at] = Held::Value(numbers);
        Ok(())
    }

    /// The numbers of an input's codes.
    fn decoded(&mut self, value: &Value, tensor: &TensorValue, x: ValueId) -> Step<ValueId> {
        match value.quantization() {
            None if tensor.dq_datatype == Datatype::Qint8 => self.rounded_rows(x, 1),
            None if tensor.dq_datatype != Datatype::Invalid => {
                problem(format!("no input is quantised to {}", tensor.dq_datatype.name()))
            }
            None => Ok(x),
            Some(Quantization::PerTensor(grid)) => self.decode(Part::Main, x, grid.scale, grid.zero_point),
            Some(_) => problem(format!("no argument is {}", tensor.datatype.name())),
        }
    }

    pub(super) fn outputs(&mut self, arguments: &[Argument]) -> Result<()> {
        for (number, at) in self.externs().into_iter().enumerate() {
            let Some(at) = at.filter(|at| self.is_output(Some(*at))) else { continue };
            if let Err(stop) = self.output(at, arguments.get(number)) {
                self.stopped(stop, || format!("XNNGraph.xvalues[{at}]"))?;
            }
        }
        Ok(())
    }

    fn output(&mut self, at: usize, argument: Option<&Argument>) -> Step<()> {
        let value = &self.payload.graph.xvalues[at];
        let Some(tensor) = value.tensor() else { return problem("it has no tensor") };
        let mut left = match self.held[at] {
            Held::Value(value) => value,
            Held::Spoilt => return Err(Stop::Spoilt),
            Held::Nothing => return problem("it is an output, but nothing sets it"),
        };
        match value.quantization() {
            None => {}
            Some(Quantization::PerTensor(grid)) => {
                left = self.encode(left, grid.scale, grid.zero_point)?;
                left = self.cast(left, stored_dtype(tensor.datatype)?)?;
            }
            Some(_) => return problem(format!("no argument is {}", tensor.datatype.name())),
        }
        if let Some(dtype) = argument.and_then(|argument| argument.dtype) {
            // Indices are 32 bits wide here, and 64 in the program.
            left = self.cast(left, dtype)?;
        }
        if let Some(argument) = argument.filter(|argument| argument.dtype.is_some())
            && argument.sizes.len() != self.rank(left)?
        {
            let shape = argument.sizes.iter().map(|&size| IntArg::Literal(size)).collect();
            left = self.emit(Op::Reshape { x: left, shape })?;
        }
        let ty = Type::Tensor(self.ty(Part::Main, left)?.clone());
        self.main.graph_mut().outputs.push(Output { name: String::new(), value: left, ty });
        Ok(())
    }
}

/// The dtype of a tensor's elements as they lie in memory.
pub(super) fn stored_dtype(datatype: Datatype) -> Step<DType> {
    Ok(match datatype {
        Datatype::Fp32 | Datatype::Pfp32 => DType::F32,
        Datatype::Fp16 => DType::F16,
        Datatype::Bf16 => DType::BF16,
        Datatype::Int32 | Datatype::Qint32 | Datatype::Qcint32 => DType::I32,
        Datatype::Qint8 | Datatype::Qcint8 => DType::I8,
        Datatype::Quint8 => DType::U8,
        other => return problem(format!("{} is nothing that lies in memory as a tensor", other.name())),
    })
}
