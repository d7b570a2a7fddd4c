//! Weights as MLX's converters write them: `weight` in packed words, `scales`, and `biases` where the mode has them.
//! They are taken as they are; `config.json` has the settings, by module where they differ.

use pteron_models::{Packing, Part, WeightError};
use pteron_tensor::DType;
use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::safetensors::{Stored, Tensors};

/// The `quantization` block.
pub(super) struct Settings {
    block: Map<String, Value>,
}

impl Settings {
    pub(super) fn new(block: Map<String, Value>) -> Settings {
        Settings { block }
    }

    /// A key of the module's own settings, or else of the block.
    fn get(&self, module: &str, key: &str) -> Option<&Value> {
        self.block.get(module).and_then(|own| own.get(key)).or_else(|| self.block.get(key))
    }

    /// How a module is packed whose files have `scales` of that type.
    fn packing(&self, module: &str, scales: DType) -> Result<Packing, String> {
        let mode = self.get(module, "mode").and_then(Value::as_str).unwrap_or("affine");
        let number = |key: &str| {
            let value = self.get(module, key).and_then(Value::as_u64);
            value.ok_or_else(|| format!("`quantization` does not say its {key}"))
        };
        let (bits, group) = (number("bits")?, number("group_size")?);
        let packing = match mode {
            "affine" => Packing::affine(bits as u32, group as usize, true, scales),
            "mxfp4" | "mxfp8" | "nvfp4" => mode.parse::<Packing>(),
            other => {
                return Err(format!("the mode `{other}` is not known; affine, mxfp4, mxfp8 and nvfp4 are"));
            }
        };
        let packing = packing.map_err(|error| error.to_string())?;
        let scheme = packing.scheme();
        if (u64::from(scheme.bits()), scheme.group() as u64) != (bits, group) {
            return Err(format!(
                "{mode} has {} bits in groups of {}, not {bits} in {group}",
                scheme.bits(),
                scheme.group()
            ));
        }
        Ok(packing)
    }
}

/// A matrix in the files.
pub(super) struct Matrix<'t> {
    module: String,
    codes: &'t Stored,
    scales: &'t Stored,
    biases: Option<&'t Stored>,
    pub(super) packing: Packing,
}

impl<'t> Matrix<'t> {
    /// The matrix of that name, if it is packed; an error where its parts do not fit.
    pub(super) fn find(
        tensors: &'t Tensors,
        settings: &Settings,
        name: &str,
        shape: &[usize],
    ) -> Result<Option<Matrix<'t>>, WeightError> {
        let Some(module) = name.strip_suffix(".weight") else { return Ok(None) };
        let Some(scales) = tensors.get(&format!("{module}.scales")) else { return Ok(None) };
        let problem = |problem: String| WeightError::Read { name: name.to_owned(), problem };
        let codes = tensors.get(name).ok_or_else(|| WeightError::Missing { name: name.to_owned() })?;
        let biases = tensors.get(&format!("{module}.biases"));
        let scale_dtype = match scales.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::U8 => DType::U8,
            other => return Err(problem(format!("its scales are {other}"))),
        };
        let packing = settings.packing(module, scale_dtype).map_err(problem)?;
        let &[rows, columns] = shape else { return Err(problem("a packed weight that is no matrix".into())) };
        let part = |part: Part, stored: Option<&Stored>| {
            let wanted = packing.part(rows, columns, part);
            let found = stored.map(|stored| (stored.dtype, stored.shape.clone()));
            let wanted = wanted.map(|(dtype, shape)| (file_dtype(dtype), shape));
            match (found, wanted) {
                (Some(found), Some((Some(dtype), shape))) if found == (dtype, shape.clone()) => Ok(()),
                (None, None) => Ok(()),
                (found, wanted) => {
                    let shown = |sizes: Option<Vec<usize>>| {
                        sizes.map_or("none".to_owned(), |sizes| format!("{sizes:?}"))
                    };
                    Err(problem(format!(
                        "its {part:?} are {}, where {packing} of {rows} by {columns} has {}",
                        shown(found.map(|(_, sizes)| sizes)),
                        shown(wanted.map(|(_, sizes)| sizes)),
                    )))
                }
            }
        };
        packing.check(columns).map_err(|error| problem(error.to_string()))?;
        part(Part::Codes, Some(codes))?;
        part(Part::Scales, Some(scales))?;
        part(Part::Biases, biases)?;
        Ok(Some(Matrix { module: module.to_owned(), codes, scales, biases, packing }))
    }

    /// Writes a part as the file has it.
    pub(super) fn write(
        &self,
        tensors: &Tensors,
        part: Part,
        out: &mut dyn std::io::Write,
    ) -> std::io::Result<()> {
        let module = &self.module;
        match (part, self.biases) {
            (Part::Codes, _) => tensors.copy(&format!("{module}.weight"), self.codes, out),
            (Part::Scales, _) => tensors.copy(&format!("{module}.scales"), self.scales, out),
            (Part::Biases, Some(biases)) => tensors.copy(&format!("{module}.biases"), biases, out),
            (Part::Biases, None) => Ok(()),
            // MLX's nvfp4 has no factor over the tensor.
            (Part::TensorScale, _) => {
                let mut one = Vec::new();
                if let Some((dtype, _)) = self.packing.part(1, self.packing.scheme().group(), part) {
                    pteron_models::encode(&[1.0], dtype, &mut one);
                }
                out.write_all(&one)
            }
        }
    }
}

fn file_dtype(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::U8 => Dtype::U8,
        DType::U32 => Dtype::U32,
        _ => return None,
    })
}
