//! Weight-only quantisation: matrices of linear layers and embeddings that the program stores as floats are packed, and
//! their products and lookups become the ops that read packed weights.

use crate::lower::Constants;
use pteron_ir::op::IndexArg;
use pteron_ir::{Graph, Node, Op, ValueId};
use pteron_models::{PackedMatrix, PackingError, Quantization};
use pteron_passes::{Remarks, Site, rewrite::rewrite};
use pteron_tensor::DType;
use std::collections::HashMap;

/// The stage's name.
pub(super) const STAGE: &str = "quantize";

/// A packed matrix in the graph.
#[derive(Clone, Copy)]
struct Packed {
    codes: ValueId,
    scales: ValueId,
    biases: Option<ValueId>,
    factor: Option<ValueId>,
    group_size: i32,
    bits: i32,
    mode: &'static str,
}

/// Packs what the quantisation names. A matrix whose rows do not divide into groups stays as it is, and a remark says
/// so.
pub(super) fn quantize(
    graph: &mut Graph,
    constants: &mut Constants,
    quantization: &Quantization,
    remarks: &mut Remarks,
) -> Result<(), PackingError> {
    let mut packed: HashMap<(ValueId, DType), Option<Packed>> = HashMap::new();
    let mut failed = None;
    rewrite(graph, constants, remarks, &mut |site, node| {
        let (weight, dtype) = use_of(site, node)?;
        let found = match packed.get(&(weight, dtype)) {
            Some(found) => *found,
            None => {
                let made = match pack(site, weight, dtype, quantization) {
                    Ok(made) => made,
                    // A small head among large layers is no reason to give up.
                    Err(error @ PackingError::Row { .. }) => site.left(STAGE, node, error.to_string()),
                    Err(error) => {
                        failed.get_or_insert(error);
                        None
                    }
                };
                packed.insert((weight, dtype), made);
                made
            }
        };
        let value = match node.op {
            Op::Addmm { mat1, bias, .. } => product(site, mat1, found?, bias, dtype)?,
            Op::Take { index: IndexArg::Tensor(index), .. } => rows(site, found?, index, dtype)?,
            _ => return None,
        };
        site.took(STAGE, node, 1);
        Some(vec![value])
    });
    failed.map_or(Ok(()), Err)
}

/// The stored matrix that a node multiplies by or looks rows up in, and the dtype of what comes out.
fn use_of(site: &Site<'_>, node: &Node) -> Option<(ValueId, DType)> {
    let weight = match node.op {
        Op::Addmm { mat2, alpha: 1.0, beta: 1.0, .. } => match site.definition(mat2)? {
            Op::Transpose { x, perm } if perm.as_slice() == [1, 0] => *x,
            _ => return None,
        },
        Op::Take { x, index: IndexArg::Tensor(_), axis: 0 } => x,
        _ => return None,
    };
    let data = site.data(weight)?;
    let dtype = site.tensor(*node.results.first()?)?.dtype;
    let is_float = matches!(data.dtype(), DType::F32 | DType::F16 | DType::BF16);
    (is_float && data.rank() == 2 && !data.is_empty() && dtype == data.dtype()).then_some((weight, dtype))
}

fn pack(
    site: &mut Site<'_>,
    weight: ValueId,
    dtype: DType,
    quantization: &Quantization,
) -> Result<Option<Packed>, PackingError> {
    let (Some(name), Some(data)) = (site.constant_name(weight), site.data(weight)) else { return Ok(None) };
    let name = name.to_owned();
    let Some(matrix) = quantization.pack(&name, data, dtype)? else { return Ok(None) };
    let PackedMatrix { scheme, codes, scales, biases, tensor_scale, .. } = matrix;
    Ok(Some(Packed {
        codes: site.add_constant(&name, "packed", codes),
        scales: site.add_constant(&name, "scales", scales),
        biases: biases.map(|biases| site.add_constant(&name, "biases", biases)),
        factor: tensor_scale.map(|factor| site.add_constant(&name, "tensor_scale", factor)),
        group_size: scheme.group() as i32,
        bits: scheme.bits() as i32,
        mode: scheme.mode().name(),
    }))
}

fn product(
    site: &mut Site<'_>,
    x: ValueId,
    w: Packed,
    bias: Option<ValueId>,
    dtype: DType,
) -> Option<ValueId> {
    let Packed { codes, scales, biases, factor, group_size, bits, mode } = w;
    let mut value = site.append(Op::QuantizedMatmul {
        x,
        w: codes,
        scales,
        biases,
        group_size,
        bits,
        mode: mode.to_owned(),
        transpose: true,
    })?;
    if let Some(factor) = factor {
        value = site.append(Op::Multiply { a: value, b: factor })?;
    }
    if let Some(bias) = bias {
        value = site.append(Op::Add { a: value, b: bias })?;
    }
    match site.tensor(value)?.dtype == dtype {
        true => Some(value),
        false => site.append(Op::AsType { x: value, scalar_type: dtype }),
    }
}

fn rows(site: &mut Site<'_>, w: Packed, index: ValueId, dtype: DType) -> Option<ValueId> {
    let Packed { codes, scales, biases, factor, group_size, bits, mode } = w;
    let take = |site: &mut Site<'_>, x| site.append(Op::Take { x, index: IndexArg::Tensor(index), axis: 0 });
    let (w, scales) = (take(site, codes)?, take(site, scales)?);
    let biases = match biases {
        Some(biases) => Some(take(site, biases)?),
        None => None,
    };
    let value = site.append(Op::Dequantize {
        w,
        scales,
        biases,
        group_size,
        bits,
        mode: mode.to_owned(),
        global_scale: None,
        dtype: Some(dtype),
    })?;
    match factor {
        Some(factor) => site.append(Op::Multiply { a: value, b: factor }),
        None => Some(value),
    }
}
