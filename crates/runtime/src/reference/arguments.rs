//! What a graph may be called with, for every backend.

use crate::{Error, Result, Value};
use pteron_ir::{Graph, Type};
use pteron_tensor::{DType, Scalar};

/// Refuses inputs that are not as the graph wants them: exact dtypes, known sizes and numbers equal, no size above its
/// bound.
/// Least sizes are not held to: exporters overstate them.
pub fn check_arguments(graph: &Graph, inputs: &[Value]) -> Result<()> {
    if inputs.len() != graph.inputs.len() {
        return Err(Error::InputCount {
            method: graph.name.clone(),
            wanted: graph.inputs.len(),
            given: inputs.len(),
        });
    }
    for (index, (input, value)) in graph.inputs.iter().zip(inputs).enumerate() {
        let wanted = match graph.ty(input.value) {
            Some(ty) => unfit(graph, ty, value),
            None => Some("a defined value".into()),
        };
        if let Some(wanted) = wanted {
            let (method, name) = (graph.name.clone(), input.name.clone());
            return Err(Error::Input { method, index, name, wanted, given: value.describe() });
        }
    }
    Ok(())
}

/// What is wanted instead of a value; `None` where it fits.
fn unfit(graph: &Graph, ty: &Type, value: &Value) -> Option<String> {
    let wanted = |fits: bool, text: &str| (!fits).then(|| text.to_owned());
    match ty {
        Type::Tensor(ty) => {
            let fits = tensor_type(value).is_some_and(|(dtype, shape)| {
                dtype == ty.dtype
                    && shape.len() == ty.shape.len()
                    && shape.iter().zip(&ty.shape).all(|(&size, dim)| match dim.as_known() {
                        Some(known) => known == size as i64,
                        None => graph.symbols.upper(dim).is_none_or(|most| size as i64 <= most),
                    })
            });
            (!fits).then(|| {
                let dims: Vec<String> = ty.shape.iter().map(|dim| graph.symbols.show(dim)).collect();
                format!("{} [{}]", ty.dtype, dims.join(", "))
            })
        }
        // What the graph knows of a number has decided sizes.
        Type::Int(dim) if dim.as_known().is_some() => {
            let fits = value.as_int() == dim.as_known();
            (!fits).then(|| format!("the number {}", graph.symbols.show(dim)))
        }
        // On the wire integers have 32 bits.
        Type::Int(_) => {
            let fits = value.as_int().is_some_and(|number| i32::try_from(number).is_ok());
            wanted(fits, "an integer of 32 bits")
        }
        Type::Float => wanted(matches!(value.as_scalar(), Some(Scalar::Float(_))), "a float"),
        Type::Bool => wanted(matches!(value.as_scalar(), Some(Scalar::Bool(_))), "a truth value"),
    }
}

/// Dtype and dims of a tensor, wherever it is.
fn tensor_type(value: &Value) -> Option<(DType, &[usize])> {
    match value {
        Value::Tensor(tensor) => Some((tensor.dtype(), tensor.shape())),
        Value::Device(tensor) => Some((tensor.dtype(), tensor.shape())),
        _ => None,
    }
}
