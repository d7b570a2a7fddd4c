//! Weights that torchao quantised, flattened into safetensors: `_weight_qdata`, `_weight_scale` and
//! `_weight_zero_point` of a module, with the class of the tensor in the file's metadata.

use pteron_models::WeightError;
use pteron_tensor::DType;
use safetensors::tensor::Dtype;
use serde_json::Value;

use super::safetensors::Tensors;
use super::weights::{float_dtype, widen};
use super::whole::{Data, Layout, Matrix, Zero};

/// The matrix of that name, if torchao wrote it; an error where its parts do not fit or its class is not read.
pub(super) fn find(
    tensors: &Tensors,
    name: &str,
    shape: &[usize],
    saved_by_transformers: bool,
) -> Result<Option<Matrix>, WeightError> {
    let Some(module) = name.strip_suffix(".weight") else { return Ok(None) };
    let data_name = format!("{module}._weight_qdata");
    let Some(data) = tensors.get(&data_name) else { return Ok(None) };
    let problem = |problem: String| WeightError::Read { name: name.to_owned(), problem };
    let description =
        tensors.metadata.get(name).ok_or_else(|| problem("the file does not say its class".into()))?;
    let description: Value = serde_json::from_str(description).map_err(|error| problem(error.to_string()))?;
    let class = description.get("_type").and_then(Value::as_str).unwrap_or("none");
    let attributes = description.get("_data").unwrap_or(&Value::Null);
    let &[rows, columns] = shape else {
        return Err(problem("a quantised weight that is no matrix".into()));
    };
    let (layout, zero, transposed) = match class {
        "Int8Tensor" => (Layout::Bytes { bits: 8 }, Zero::Subtracted, false),
        "IntxUnpackedToInt8Tensor" => {
            let bits = target_bits(attributes)
                .ok_or_else(|| problem("its target type is not int1 to int8".into()))?;
            (Layout::Bytes { bits }, Zero::Subtracted, false)
        }
        // torchao's own kernels take signed halves and add the zero point; ExecuTorch's packer stores unsigned ones
        // and subtracts it. Only the former's folders come with torchao's block in config.json.
        "Int4Tensor" if saved_by_transformers => (Layout::Nibbles { signed: true }, Zero::Added, true),
        "Int4Tensor" => (Layout::Nibbles { signed: false }, Zero::Subtracted, true),
        other => {
            return Err(problem(format!(
                "weights of class {other} are not read; Int8Tensor, IntxUnpackedToInt8Tensor and Int4Tensor are"
            )));
        }
    };
    if tensors.get(&format!("{module}._weight_act_pre_scale")).is_some() {
        return Err(problem("its activations are scaled before the product, which is not supported".into()));
    }
    let wanted = match layout {
        Layout::Bytes { .. } => (Dtype::I8, vec![rows, columns]),
        Layout::Nibbles { .. } => (Dtype::U8, vec![rows, columns.div_ceil(2)]),
    };
    if (data.dtype, &data.shape) != (wanted.0, &wanted.1) {
        return Err(problem(format!(
            "its data are {} {:?}, not {} {:?}",
            data.dtype, data.shape, wanted.0, wanted.1
        )));
    }
    let block = block(attributes, rows, columns)
        .ok_or_else(|| problem(format!("its block does not divide {rows} by {columns}")))?;
    let mut matrix = Matrix {
        name: name.to_owned(),
        data: Data::File(data_name, data.clone()),
        layout,
        rows,
        columns,
        block,
        scales: vec![],
        scale_dtype: DType::F32,
        zeros: vec![],
        zero,
        transposed,
        blocks_of_columns: vec![],
    };
    let (scales, dtype) =
        parameters(&matrix, tensors, module, "scale")?.ok_or_else(|| problem("it has no scale".into()))?;
    matrix.scale_dtype = dtype;
    matrix.scales = scales;
    if let Some((zeros, _)) = parameters(&matrix, tensors, module, "zero_point")?
        && (zero == Zero::Added
            || layout == Layout::Nibbles { signed: false }
            || zeros.iter().any(|&zero| zero != 0.0))
    {
        matrix.zeros = zeros;
    }
    Ok(Some(matrix))
}

/// A number a block, widened, with the type it is stored in.
fn parameters(
    matrix: &Matrix,
    tensors: &Tensors,
    module: &str,
    which: &str,
) -> Result<Option<(Vec<f32>, DType)>, WeightError> {
    let name = format!("{module}._weight_{which}");
    let Some(stored) = tensors.get(&name) else { return Ok(None) };
    let blocks = (matrix.rows / matrix.block.0) * (matrix.columns / matrix.block.1);
    let found: usize = stored.shape.iter().product();
    let problem = |problem: String| WeightError::Read { name: name.clone(), problem };
    if found != blocks {
        return Err(problem(format!("{found} numbers for {blocks} blocks")));
    }
    let bytes = tensors.read_all(&name, stored)?;
    let numbers = widen(stored.dtype, &bytes).ok_or_else(|| problem(format!("it is {}", stored.dtype)))?;
    Ok(Some((numbers, float_dtype(stored.dtype).unwrap_or(DType::F32))))
}

/// Bits of `target_dtype`, such as `{"_type": "torch.dtype", "_data": "int4"}`.
fn target_bits(attributes: &Value) -> Option<u32> {
    let name = attributes.get("target_dtype")?.get("_data")?.as_str()?;
    name.strip_prefix("int")?.parse().ok().filter(|bits| (1..=8).contains(bits))
}

/// `block_size`; missing means a scale a row.
fn block(attributes: &Value, rows: usize, columns: usize) -> Option<(usize, usize)> {
    let sizes = match attributes.get("block_size") {
        None | Some(Value::Null) => return Some((1, columns)),
        Some(sizes) => sizes.as_array()?,
    };
    let [down, across] = sizes.as_slice() else { return None };
    let (down, across) = (usize::try_from(down.as_u64()?).ok()?, usize::try_from(across.as_u64()?).ok()?);
    let divides = down > 0 && across > 0 && rows.is_multiple_of(down) && columns.is_multiple_of(across);
    divides.then_some((down, across))
}
