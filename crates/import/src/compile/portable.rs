//! Operators outside a delegate: calls of ExecuTorch's portable kernels, which write to tensors that they are given.

use super::kernels::{Row, TABLE};
use super::values::Values;
use crate::lower::LowerError;
use crate::pt2::argument::{Argument, MemoryFormat, OptionalTensor, OrName, SymInt};
use crate::pt2::schema::Node;
use pteron_format::assemble::ValueIndex;
use pteron_tensor::HostTensor;

/// Portable kernels have no linear layer, but what it is made of.
const LINEAR: &str = "torch.ops.aten.linear.default";

/// The kernel that computes a node, as `aten::add.out`.
pub(super) fn kernel_of(node: &Node) -> Option<String> {
    if node.target == LINEAR {
        return Some("aten::addmm.out".to_owned());
    }
    symbolic(node)
        .map(|(name, overload)| join(name, overload))
        .or_else(|| row(node).map(|row| join(row.1, row.2)))
}

fn join(name: &str, overload: &str) -> String {
    if overload.is_empty() { name.to_owned() } else { format!("{name}.{overload}") }
}

fn row(node: &Node) -> Option<&'static Row> {
    let operator = node.target.strip_prefix("torch.ops.")?;
    TABLE.iter().find(|row| row.0 == operator)
}

/// Arithmetic of the program's own integers.
fn symbolic(node: &Node) -> Option<(&'static str, &'static str)> {
    Some(match node.target.as_str() {
        "torch.ops.aten.sym_size.int" => ("aten::sym_size", "int"),
        "torch.ops.aten.sym_numel.default" => ("aten::sym_numel", ""),
        "torch.ops.aten.item.default" | "torch.ops.aten._local_scalar_dense.default" => {
            ("aten::_local_scalar_dense", "")
        }
        "_operator.add" => ("executorch_prim::add", "Scalar"),
        "_operator.sub" => ("executorch_prim::sub", "Scalar"),
        "_operator.mul" => ("executorch_prim::mul", "Scalar"),
        "_operator.floordiv" => ("executorch_prim::floordiv", "Scalar"),
        "_operator.mod" => ("executorch_prim::mod", "Scalar"),
        "_operator.neg" => ("executorch_prim::neg", "Scalar"),
        "torch.sym_max" => ("executorch_prim::sym_max", "Scalar"),
        "torch.sym_min" => ("executorch_prim::sym_min", "Scalar"),
        _ => return None,
    })
}

/// What a kernel's parameter takes, where the argument alone does not tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameter {
    Any,
    /// A tensor, also where a number is given.
    Tensor,
    /// A list of tensors, some of which may be left out.
    OptionalTensors,
}

/// Adds the call of a node's kernel.
pub(super) fn call(node: &Node, values: &mut Values<'_, '_>) -> Result<(), LowerError> {
    let mut arguments = Vec::new();
    if let Some((name, overload)) = symbolic(node) {
        for input in &node.inputs {
            arguments.push(argument(node, values, &input.arg, Parameter::Any)?);
        }
        for result in node.gives() {
            arguments.push(values.of(result)?);
        }
        values.method.kernel(name, overload, &arguments);
        return Ok(());
    }
    if node.target == LINEAR {
        return linear(node, values);
    }
    let Some((_, name, overload, parameters, results)) = row(node) else {
        return Err(LowerError::node(node, "no portable kernel computes it"));
    };
    for parameter in parameters.split(' ') {
        let (name, default) = match parameter.split_once('=') {
            Some((name, default)) => (name, Some(default)),
            None => (parameter, None),
        };
        let (name, kind) = match (name.strip_prefix('%'), name.strip_prefix('?')) {
            (Some(name), _) => (name, Parameter::Tensor),
            (_, Some(name)) => (name, Parameter::OptionalTensors),
            _ => (name, Parameter::Any),
        };
        let given = node.inputs.iter().find(|input| input.name == name);
        arguments.push(match (given, default) {
            // Layouts are plain everywhere: what a memory format asks for is the default.
            (Some(input), _) if !matches!(input.arg, Argument::MemoryFormat(MemoryFormat::Preserve)) => {
                argument(node, values, &input.arg, kind)?
            }
            (_, Some(default)) => default_value(values, default),
            (_, None) => return Err(LowerError::node(node, format!("argument `{name}` is missing"))),
        });
    }
    let mut outs = Vec::new();
    for name in node.gives() {
        outs.push(values.of(name)?);
    }
    match results {
        0 => outs = vec![values.method.tensors(&outs)],
        count if *count != outs.len() => {
            return Err(LowerError::node(
                node,
                format!("its kernel writes {count} tensors, not {}", outs.len()),
            ));
        }
        _ => {}
    }
    arguments.extend(&outs);
    // What a kernel returns follows once more, several tensors as a list.
    arguments.push(match *outs {
        [only] => only,
        _ => values.method.tensors(&outs),
    });
    values.method.kernel(name, overload, &arguments);
    Ok(())
}

/// A linear layer over rows: its weight turned, then a product with or without a bias.
fn linear(node: &Node, values: &mut Values<'_, '_>) -> Result<(), LowerError> {
    let given = |name: &str| {
        let found = node.inputs.iter().find(|input| input.name == name).map(|input| &input.arg);
        match found {
            Some(Argument::Tensor(tensor)) => Some(tensor.name.as_str()),
            _ => None,
        }
    };
    let results = node.gives();
    let (Some(x), Some(weight), &[out]) = (given("input"), given("weight"), results.as_slice()) else {
        return Err(LowerError::node(node, "an input, a weight and a result are needed"));
    };
    let sizes = |name: &str| values.functional.tensors.get(name).map(|meta| meta.sizes.as_slice());
    let (Some([_, _]), Some([SymInt::Int(rows), SymInt::Int(columns)])) = (sizes(x), sizes(weight)) else {
        let problem =
            "outside a delegate only matrices are multiplied; reshape the input to rows before the layer";
        return Err(LowerError::node(node, problem));
    };
    let Some(meta) = values.functional.tensors.get(weight) else {
        return Err(LowerError::node(node, "nothing is recorded of its weight"));
    };
    let mut spec = values.spec(weight, meta)?;
    spec.sizes = [columns, rows].iter().map(|&&size| u64::try_from(size).unwrap_or(0)).collect();
    let turned = values.method.tensor(&spec);
    let (x, weight, out) = (values.of(x)?, values.of(weight)?, values.of(out)?);
    let order = values.method.ints(&[1, 0]);
    values.method.kernel("aten::permute_copy", "out", &[weight, order, turned, turned]);
    match given("bias") {
        Some(bias) => {
            let bias = values.of(bias)?;
            let (beta, alpha) = (values.method.int(1), values.method.int(1));
            values.method.kernel("aten::addmm", "out", &[bias, x, turned, beta, alpha, out, out]);
        }
        None => values.method.kernel("aten::mm", "out", &[x, turned, out, out]),
    }
    Ok(())
}

fn argument(
    node: &Node,
    values: &mut Values<'_, '_>,
    argument: &Argument,
    parameter: Parameter,
) -> Result<ValueIndex, LowerError> {
    let is_tensor = parameter == Parameter::Tensor;
    Ok(match argument {
        Argument::None(_) | Argument::OptionalTensor(OptionalTensor::None(_)) => values.method.null(),
        Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor)) => {
            values.of(&tensor.name)?
        }
        Argument::Tensors(tensors) => {
            let items =
                tensors.iter().map(|tensor| values.of(&tensor.name)).collect::<Result<Vec<_>, _>>()?;
            match parameter {
                // A file says `tensors` where none is left out; kernels still ask for a list that may have gaps.
                Parameter::OptionalTensors => {
                    let items: Vec<_> = items.into_iter().map(Some).collect();
                    values.method.optional_tensors(&items)
                }
                _ => values.method.tensors(&items),
            }
        }
        Argument::OptionalTensors(tensors) => {
            let items = tensors.iter().map(|tensor| match tensor {
                OptionalTensor::Tensor(tensor) => values.of(&tensor.name).map(Some),
                OptionalTensor::None(_) => Ok(None),
            });
            let items = items.collect::<Result<Vec<_>, _>>()?;
            values.method.optional_tensors(&items)
        }
        // A number in a tensor's place is a tensor of no dims, of the kind that torch takes it for.
        Argument::Int(value) | Argument::SymInt(OrName::Plain(value)) if is_tensor => {
            constant(values, HostTensor::from_slice(Vec::new(), &[*value]).ok(), node)?
        }
        Argument::Float(value) if is_tensor => {
            constant(values, HostTensor::from_slice(Vec::new(), &[value.0 as f32]).ok(), node)?
        }
        Argument::Bool(value) if is_tensor => {
            constant(values, HostTensor::from_bools(Vec::new(), &[*value]).ok(), node)?
        }
        Argument::Int(value) | Argument::SymInt(OrName::Plain(value)) => values.method.int(*value),
        Argument::SymInt(OrName::Name(name)) => values.of(name)?,
        Argument::Ints(items) => values.method.ints(items),
        Argument::SymInts(items) => {
            let mut indices = Vec::new();
            for item in items {
                indices.push(match item {
                    OrName::Name(name) => values.of(name)?,
                    OrName::Plain(value) => values.method.int(*value),
                });
            }
            values.method.int_values(&indices)
        }
        Argument::Float(value) | Argument::SymFloat(OrName::Plain(value)) => values.method.double(value.0),
        Argument::Bool(value) | Argument::SymBool(OrName::Plain(value)) => values.method.bool(*value),
        Argument::Text(text) => values.method.string(text),
        Argument::ScalarType(scalar) => match scalar.dtype() {
            Some(dtype) => values.method.int(i64::from(dtype.code())),
            None => return Err(LowerError::node(node, format!("no kernel takes {}", scalar.name()))),
        },
        Argument::MemoryFormat(format) => values.method.int(match format {
            MemoryFormat::Contiguous => 0,
            MemoryFormat::Preserve => 1,
            MemoryFormat::ChannelsLast => 2,
            MemoryFormat::ChannelsLast3d => 3,
        }),
        _ => return Err(LowerError::node(node, "a portable kernel takes no argument of that kind")),
    })
}

fn constant(
    values: &mut Values<'_, '_>,
    tensor: Option<HostTensor>,
    node: &Node,
) -> Result<ValueIndex, LowerError> {
    match tensor {
        Some(tensor) => Ok(values.constant(&tensor)),
        None => Err(LowerError::node(node, "a number that is no tensor")),
    }
}

fn default_value(values: &mut Values<'_, '_>, text: &str) -> ValueIndex {
    match text {
        "none" => values.method.null(),
        "true" => values.method.bool(true),
        "false" => values.method.bool(false),
        _ if text.starts_with('[') => {
            let items = text.trim_matches(['[', ']']).split(' ').filter_map(|item| item.parse().ok());
            let items: Vec<i64> = items.collect();
            values.method.ints(&items)
        }
        _ if text.starts_with('\'') => values.method.string(text.trim_matches('\'')),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(value), _) => values.method.int(value),
            (_, Ok(value)) => values.method.double(value),
            _ => values.method.null(),
        },
    }
}

/// Writes a tensor into another at the end of a run.
pub(super) fn copy_into(values: &mut Values<'_, '_>, to: ValueIndex, from: ValueIndex) {
    let not_blocking = values.method.bool(false);
    values.method.kernel("aten::copy_", "", &[to, from, not_blocking, to]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_one_row_and_every_default_can_be_read() {
        let mut seen = std::collections::HashSet::new();
        for (operator, kernel, _, parameters, _) in TABLE {
            assert!(seen.insert(operator), "{operator} is in two rows");
            assert!(kernel.contains("::"), "{kernel}");
            assert!(
                parameters.split(' ').all(|parameter| !parameter.is_empty()),
                "{operator}: {parameters:?}"
            );
        }
    }
}
