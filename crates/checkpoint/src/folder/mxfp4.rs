//! Experts as gpt-oss is published: `_blocks` of sixteen bytes with two codes each, the lower half first, and `_scales`, a power
//! of two for each block. That is mxfp4 as programs have it, byte for byte; outputs are rows, whatever the floats have.

use pteron_models::{Packing, Part, WeightError};
use safetensors::tensor::Dtype;

use super::safetensors::{Stored, Tensors};

/// What stands behind the name of a weight.
pub(super) const SUFFIXES: [&str; 2] = ["_blocks", "_scales"];
/// Values of a block, and bytes.
const BLOCK: (usize, usize) = (32, 16);

/// A stack of matrices in the files.
pub(super) struct Matrix<'t> {
    blocks: (String, &'t Stored),
    scales: (String, &'t Stored),
    pub(super) packing: Packing,
}

impl<'t> Matrix<'t> {
    /// Whether a weight is stored so.
    pub(super) fn is_there(tensors: &Tensors, name: &str) -> bool {
        tensors.get(&format!("{name}{}", SUFFIXES[0])).is_some()
    }

    /// The matrices of that name, if they are stored so; an error where their parts do not fit.
    pub(super) fn find(
        tensors: &'t Tensors,
        name: &str,
        shape: &[usize],
    ) -> Result<Option<Matrix<'t>>, WeightError> {
        let [blocks_name, scales_name] = SUFFIXES.map(|suffix| format!("{name}{suffix}"));
        let Some(blocks) = tensors.get(&blocks_name) else { return Ok(None) };
        let scales =
            tensors.get(&scales_name).ok_or_else(|| WeightError::Missing { name: scales_name.clone() })?;
        let [lead @ .., columns] = shape else { return Err(WeightError::Missing { name: name.to_owned() }) };
        let sizes = |behind: &[usize]| [lead, behind].concat();
        let groups = columns / BLOCK.0;
        let parts =
            [(&blocks_name, blocks, sizes(&[groups, BLOCK.1])), (&scales_name, scales, sizes(&[groups]))];
        for (name, stored, wanted) in parts {
            if stored.dtype != Dtype::U8 {
                let problem = format!("it is stored as {}, where mxfp4 has bytes", stored.dtype);
                return Err(WeightError::Read { name: name.clone(), problem });
            }
            if stored.shape != wanted || !columns.is_multiple_of(BLOCK.0) {
                return Err(WeightError::Shape { name: name.clone(), found: stored.shape.clone(), wanted });
            }
        }
        let packing = "mxfp4".parse::<Packing>();
        let packing = packing
            .map_err(|error| WeightError::Read { name: name.to_owned(), problem: error.to_string() })?;
        Ok(Some(Matrix { blocks: (blocks_name, blocks), scales: (scales_name, scales), packing }))
    }

    /// Writes a part as the file has it.
    pub(super) fn write(
        &self,
        tensors: &Tensors,
        part: Part,
        out: &mut dyn std::io::Write,
    ) -> std::io::Result<()> {
        match part {
            Part::Codes => tensors.copy(&self.blocks.0, self.blocks.1, out),
            Part::Scales => tensors.copy(&self.scales.0, self.scales.1, out),
            Part::Biases | Part::TensorScale => Ok(()),
        }
    }
}
