//! Methods of programs, and what goes into them and comes out of them.

use half::{bf16, f16};
use pteron_runtime::{ArgumentKind, MethodInfo, Session, Value};
use pteron_tensor::{DType, HostTensor};

use crate::{Result, SpeechError};

/// The most elements along one side of what a published model takes or gives.
const MOST_SIZE: usize = 1 << 20;

/// A method and the state that it runs over.
pub(crate) struct Part {
    pub(crate) session: Session,
    pub(crate) method: String,
}

impl Part {
    pub(crate) fn info(&self) -> Result<&MethodInfo> {
        Ok(self.session.program().method(&self.method)?)
    }

    pub(crate) fn run(&mut self, inputs: &[Value]) -> Result<Vec<Value>> {
        Ok(self.session.run(&self.method, inputs)?)
    }
}

/// How a call is told where its rows are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// By a number.
    Number,
    /// By a tensor with the position of the first.
    First,
    /// By a tensor with the positions of all.
    Each,
}

impl Position {
    /// What a method takes as that input.
    pub(crate) fn of(method: &MethodInfo, at: usize) -> Result<Position> {
        match method.inputs.get(at).map(|input| &input.kind) {
            Some(ArgumentKind::Int) => Ok(Position::Number),
            Some(ArgumentKind::Tensor { dims, .. }) if dims.iter().all(|bound| bound.max == Some(1)) => {
                Ok(Position::First)
            }
            Some(ArgumentKind::Tensor { .. }) => Ok(Position::Each),
            _ => Err(SpeechError::Model(format!("`{}` takes no position", method.name))),
        }
    }

    /// The input of a call with so many rows from a position on.
    pub(crate) fn value(self, start: usize, count: usize) -> Result<Value> {
        let first = start as i64;
        Ok(match self {
            Position::Number => Value::Int(first),
            Position::First => HostTensor::from_slice(vec![1], &[first]).map_err(wrong)?.into(),
            Position::Each => {
                let all: Vec<i64> = (first..first + count as i64).collect();
                HostTensor::from_slice(vec![count], &all).map_err(wrong)?.into()
            }
        })
    }
}

/// What a method takes, or what it gives.
pub(crate) enum Side {
    Input(usize),
    Output(usize),
}

/// Type and largest sizes of a tensor that a method takes or gives.
pub(crate) fn dims(method: &MethodInfo, side: Side) -> Result<(DType, Vec<usize>)> {
    let argument = match side {
        Side::Input(at) => method.inputs.get(at),
        Side::Output(at) => method.outputs.get(at),
    };
    match argument.map(|argument| &argument.kind) {
        Some(ArgumentKind::Tensor { dtype, dims }) => {
            let dims: Vec<usize> = dims.iter().map(|bound| bound.max.unwrap_or(0)).collect();
            match dims.iter().all(|&size| size <= MOST_SIZE) {
                true => Ok((*dtype, dims)),
                false => Err(unlike("a method has", &dims)),
            }
        }
        _ => Err(SpeechError::Model(format!("`{}` has other inputs or outputs than tensors", method.name))),
    }
}

/// Floats as a tensor of the type that a program takes.
pub(crate) fn tensor(shape: Vec<usize>, values: &[f32], dtype: DType) -> Result<HostTensor> {
    let made = match dtype {
        DType::F32 => HostTensor::from_slice(shape, values),
        DType::F16 => {
            HostTensor::from_slice(shape, &values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>())
        }
        DType::BF16 => {
            HostTensor::from_slice(shape, &values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())
        }
        other => return Err(SpeechError::Model(format!("a method takes numbers of {other}"))),
    };
    made.map_err(wrong)
}

/// The elements of a tensor from one on, in place of what `out` holds.
pub(crate) fn floats(tensor: &HostTensor, from: usize, out: &mut Vec<f32>) -> Result<()> {
    out.clear();
    match tensor.dtype() {
        DType::F32 => out.extend_from_slice(&tensor.as_slice::<f32>().map_err(wrong)?[from..]),
        DType::F16 => {
            out.extend(tensor.as_slice::<f16>().map_err(wrong)?[from..].iter().map(|x| x.to_f32()));
        }
        DType::BF16 => {
            out.extend(tensor.as_slice::<bf16>().map_err(wrong)?[from..].iter().map(|x| x.to_f32()));
        }
        other => return Err(SpeechError::Model(format!("a method gives numbers of {other}"))),
    }
    Ok(())
}

pub(crate) fn unlike(what: &str, dims: &[usize]) -> SpeechError {
    SpeechError::Model(format!("{what} {dims:?}, which is not what a model of this kind does"))
}

pub(crate) fn wrong(error: impl std::fmt::Display) -> SpeechError {
    SpeechError::Model(error.to_string())
}
