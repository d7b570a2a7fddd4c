//! Weights in floats of few bits that no packing of programs has: 8-bit floats with scales of blocks, rows or all, and the four-bit
//! numbers of bitsandbytes. They are read as the floats that they stand for.

use std::ops::Range;

use pteron_models::WeightError;
use pteron_tensor::quant::codes::e4m3fn;
use safetensors::tensor::Dtype;
use serde_json::Value;

use super::safetensors::{Stored, Tensors};
use super::weights::{float_dtype, widen};

/// What stands behind the name of a weight of bitsandbytes.
pub(super) const SUFFIXES: [&str; 6] = [
    ".absmax",
    ".quant_map",
    ".nested_absmax",
    ".nested_quant_map",
    ".quant_state.bitsandbytes__nf4",
    ".quant_state.bitsandbytes__fp4",
];
/// Larger than any description of a tensor.
const LARGEST_STATE: u64 = 1 << 16;

/// A matrix in the files.
pub(super) struct Matrix {
    name: String,
    stored: Stored,
    shape: Vec<usize>,
    kind: Kind,
}

enum Kind {
    /// A byte each, with a scale for so many rows and columns.
    Bytes { scales: Vec<f32>, block: (usize, usize) },
    /// Two a byte, the upper half first: a number of a table, times the largest of its block.
    Halves { table: Vec<f32>, largest: Vec<f32>, block: usize },
}

impl Matrix {
    /// The matrix of that name, if it is stored so; an error where its parts do not fit.
    pub(super) fn find(
        tensors: &Tensors,
        name: &str,
        shape: &[usize],
        block: (usize, usize),
    ) -> Result<Option<Matrix>, WeightError> {
        let Some(stored) = tensors.get(name) else { return Ok(None) };
        let problem = |problem: String| WeightError::Read { name: name.to_owned(), problem };
        let kind = match stored.dtype {
            Dtype::F8_E4M3 => {
                if stored.shape != shape {
                    let (found, wanted) = (stored.shape.clone(), shape.to_vec());
                    return Err(WeightError::Shape { name: name.to_owned(), found, wanted });
                }
                let names = [format!("{name}_scale_inv"), format!("{name}_scale")];
                let scale = names.iter().find(|name| tensors.get(name).is_some());
                let scale = scale.ok_or_else(|| problem("its 8-bit floats have no scale".into()))?;
                let (scales, sizes) = floats(tensors, scale)?;
                let (rows, columns) =
                    (shape.first().copied().unwrap_or(1), shape.last().copied().unwrap_or(1));
                let block = match scales.len() {
                    1 => (rows.max(1), columns.max(1)),
                    of if of == rows && sizes.last().is_none_or(|&last| last == 1 || sizes.len() == 1) => {
                        (1, columns.max(1))
                    }
                    of if sizes == [rows.div_ceil(block.0), columns.div_ceil(block.1)] && of > 0 => block,
                    _ => {
                        return Err(problem(format!(
                            "its scales are {sizes:?}, which {rows} by {columns} in blocks of {} by {} has not",
                            block.0, block.1
                        )));
                    }
                };
                if shape.len() != 2 {
                    return Err(problem("8-bit floats that are no matrix".into()));
                }
                Kind::Bytes { scales, block }
            }
            Dtype::U8 if tensors.get(&format!("{name}.absmax")).is_some() => {
                halves(tensors, name, stored, shape)?
            }
            _ => return Ok(None),
        };
        Ok(Some(Matrix { name: name.to_owned(), stored: stored.clone(), shape: shape.to_vec(), kind }))
    }

    /// Whether it is one of that shape.
    pub(super) fn has_shape(&self, shape: &[usize]) -> bool {
        self.shape == shape
    }

    /// Some elements as floats.
    pub(super) fn floats(
        &self,
        tensors: &Tensors,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), WeightError> {
        match &self.kind {
            Kind::Bytes { scales, block } => {
                let mut bytes = vec![0; elements.len()];
                tensors.read(&self.name, &self.stored, elements.start as u64, &mut bytes)?;
                let columns = self.shape.last().copied().unwrap_or(1).max(1);
                let across = columns.div_ceil(block.1);
                for ((element, byte), out) in elements.zip(bytes).zip(out) {
                    let (row, column) = (element / columns, element % columns);
                    *out = e4m3fn(byte) * scales[row / block.0 * across + column / block.1];
                }
            }
            Kind::Halves { table, largest, block } => {
                let first = elements.start / 2;
                let mut bytes = vec![0; elements.end.div_ceil(2) - first];
                tensors.read(&self.name, &self.stored, first as u64, &mut bytes)?;
                for (element, out) in elements.zip(out) {
                    let byte = bytes[element / 2 - first];
                    let code = if element.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
                    *out = table[usize::from(code)] * largest[element / block];
                }
            }
        }
        Ok(())
    }
}

fn floats(tensors: &Tensors, name: &str) -> Result<(Vec<f32>, Vec<usize>), WeightError> {
    let stored = tensors.get(name).ok_or_else(|| WeightError::Missing { name: name.to_owned() })?;
    let problem = |problem: String| WeightError::Read { name: name.to_owned(), problem };
    float_dtype(stored.dtype).ok_or_else(|| problem(format!("it is {}", stored.dtype)))?;
    let bytes = tensors.read_all(name, stored)?;
    Ok((widen(stored.dtype, &bytes).unwrap_or_default(), stored.shape.clone()))
}

/// Four bits each, as bitsandbytes describes them in a tensor of text.
fn halves(tensors: &Tensors, name: &str, stored: &Stored, shape: &[usize]) -> Result<Kind, WeightError> {
    let problem = |problem: String| WeightError::Read { name: name.to_owned(), problem };
    let state = SUFFIXES[4..].iter().map(|suffix| format!("{name}{suffix}"));
    let state = state.into_iter().find(|state| tensors.get(state).is_some());
    let state = state.ok_or_else(|| problem("its quant_state is missing".into()))?;
    let text = tensors.get(&state).filter(|text| text.len() <= LARGEST_STATE);
    let text = text.ok_or_else(|| problem("its quant_state is too large".into()))?;
    let text: Value = serde_json::from_slice(&tensors.read_all(&state, text)?)
        .map_err(|error| problem(format!("its quant_state: {error}")))?;
    let size = |key: &str| text.get(key).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
    let block = size("blocksize").filter(|&size| size > 0);
    let block = block.ok_or_else(|| problem("its quant_state has no blocksize".into()))?;
    let told: Option<Vec<usize>> = text
        .get("shape")
        .and_then(Value::as_array)
        .map(|sizes| sizes.iter().filter_map(|size| usize::try_from(size.as_u64()?).ok()).collect());
    if told.as_deref() != Some(shape) {
        let found = told.unwrap_or_default();
        return Err(WeightError::Shape { name: name.to_owned(), found, wanted: shape.to_vec() });
    }
    let count: usize = shape.iter().product();
    if stored.len() != count.div_ceil(2) as u64 {
        return Err(problem(format!("{} bytes for {count} numbers of four bits", stored.len())));
    }
    let (table, _) = floats(tensors, &format!("{name}.quant_map"))?;
    if table.len() != 16 {
        return Err(problem(format!("its quant_map has {} numbers, not 16", table.len())));
    }
    let blocks = count.div_ceil(block);
    let largest_name = format!("{name}.absmax");
    let largest = match tensors.get(&largest_name) {
        Some(bytes) if bytes.dtype == Dtype::U8 => {
            // The largest numbers are rounded once more, in blocks of their own around their mean.
            let (numbers, _) = floats(tensors, &format!("{name}.nested_quant_map"))?;
            let (outer, _) = floats(tensors, &format!("{name}.nested_absmax"))?;
            let of = size("nested_blocksize").filter(|&size| size > 0).unwrap_or(256);
            let mean = text.get("nested_offset").and_then(Value::as_f64).unwrap_or(0.0) as f32;
            let codes = tensors.read_all(&largest_name, bytes)?;
            if numbers.len() != 256 || outer.len() != codes.len().div_ceil(of) {
                return Err(problem("the parts of its absmax do not fit each other".into()));
            }
            codes
                .iter()
                .enumerate()
                .map(|(at, &code)| numbers[usize::from(code)] * outer[at / of] + mean)
                .collect()
        }
        _ => floats(tensors, &largest_name)?.0,
    };
    if largest.len() != blocks {
        return Err(problem(format!("{} numbers in its absmax for {blocks} blocks", largest.len())));
    }
    Ok(Kind::Halves { table, largest, block })
}
