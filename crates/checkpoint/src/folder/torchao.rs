//! Weights that torchao quantised, flattened into safetensors: `_weight_qdata`, `_weight_scale` and
//! `_weight_zero_point` of a module, with the class of the tensor in the file's metadata. Whole numbers with a scale a
//! block map into affine packings without loss; a block that no packing has is unpacked to floats.

use std::io::{self, Write};
use std::ops::Range;

use pteron_models::{Packing, Part, WeightError, encode};
use pteron_tensor::DType;
use pteron_tensor::quant::packed;
use safetensors::tensor::Dtype;
use serde_json::Value;

use super::safetensors::{Stored, Tensors};
use super::weights::{float_dtype, widen};

/// A matrix in the files.
pub(super) struct Matrix {
    name: String,
    data: (String, Stored),
    layout: Layout,
    rows: usize,
    columns: usize,
    /// Rows and columns that share a scale.
    block: (usize, usize),
    scales: Vec<f32>,
    scale_dtype: DType,
    /// One a block; empty where all are zero.
    zeros: Vec<f32>,
    zero: Zero,
    /// Scales and zeros lie `[blocks of a row, rows]`.
    transposed: bool,
}

/// How whole numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// One a byte, signed, of so many bits.
    Bytes { bits: u32 },
    /// Two a byte, the low half first.
    Nibbles { signed: bool },
}

/// What a zero point does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zero {
    /// `(q - zero) * scale`.
    Subtracted,
    /// `q * scale + zero`.
    Added,
}

impl Matrix {
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
        let description: Value =
            serde_json::from_str(description).map_err(|error| problem(error.to_string()))?;
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
            return Err(problem(
                "its activations are scaled before the product, which is not supported".into(),
            ));
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
            data: (data_name, data.clone()),
            layout,
            rows,
            columns,
            block,
            scales: vec![],
            scale_dtype: DType::F32,
            zeros: vec![],
            zero,
            transposed,
        };
        let (scales, dtype) =
            matrix.parameters(tensors, module, "scale")?.ok_or_else(|| problem("it has no scale".into()))?;
        matrix.scale_dtype = dtype;
        matrix.scales = scales;
        if let Some((zeros, _)) = matrix.parameters(tensors, module, "zero_point")?
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
        &self,
        tensors: &Tensors,
        module: &str,
        which: &str,
    ) -> Result<Option<(Vec<f32>, DType)>, WeightError> {
        let name = format!("{module}._weight_{which}");
        let Some(stored) = tensors.get(&name) else { return Ok(None) };
        let blocks = (self.rows / self.block.0) * (self.columns / self.block.1);
        let found: usize = stored.shape.iter().product();
        let problem = |problem: String| WeightError::Read { name: name.clone(), problem };
        if found != blocks {
            return Err(problem(format!("{found} numbers for {blocks} blocks")));
        }
        let bytes = tensors.read_all(&name, stored)?;
        let numbers =
            widen(stored.dtype, &bytes).ok_or_else(|| problem(format!("it is {}", stored.dtype)))?;
        Ok(Some((numbers, float_dtype(stored.dtype).unwrap_or(DType::F32))))
    }

    /// Whether it is a matrix of that shape.
    pub(super) fn has_shape(&self, shape: &[usize]) -> bool {
        shape == [self.rows, self.columns]
    }

    /// The packing that holds the matrix without loss; `None` where there is none.
    pub(super) fn packing(&self) -> Option<Packing> {
        let (bits, _) = self.codes_of();
        let group = [128, 64, 32, 16].into_iter().find(|group| self.block.1.is_multiple_of(*group))?;
        let centred = self.zeros.is_empty() && matches!(self.layout, Layout::Bytes { .. });
        let scales = if centred { self.scale_dtype } else { DType::F32 };
        let packing = Packing::affine(bits, group, !centred, scales).ok()?;
        packing.check(self.columns).is_ok().then_some(packing)
    }

    /// Bits of a code, and what is added to a number to get its code.
    fn codes_of(&self) -> (u32, i32) {
        match self.layout {
            Layout::Bytes { bits } => {
                let bits = match bits {
                    1 => 2,
                    7 => 8,
                    bits => bits,
                };
                (bits, 1 << (bits - 1))
            }
            Layout::Nibbles { signed } => (4, if signed { 8 } else { 0 }),
        }
    }

    /// Where the numbers of a block lie.
    fn parameter(&self, row: usize, column: usize) -> usize {
        let (row, column) = (row / self.block.0, column / self.block.1);
        match self.transposed {
            true => column * (self.rows / self.block.0) + row,
            false => row * (self.columns / self.block.1) + column,
        }
    }

    /// What is added to `number * scale`.
    fn offset(&self, parameter: usize) -> f32 {
        match (self.zeros.get(parameter), self.zero) {
            (None, _) => 0.0,
            (Some(zero), Zero::Added) => *zero,
            (Some(zero), Zero::Subtracted) => -zero * self.scales[parameter],
        }
    }

    /// The whole numbers of a row.
    fn row(
        &self,
        tensors: &Tensors,
        row: usize,
        bytes: &mut Vec<u8>,
        numbers: &mut Vec<i32>,
    ) -> Result<(), WeightError> {
        let width = match self.layout {
            Layout::Bytes { .. } => self.columns,
            Layout::Nibbles { .. } => self.columns.div_ceil(2),
        };
        bytes.resize(width, 0);
        tensors.read(&self.data.0, &self.data.1, (row * width) as u64, bytes)?;
        numbers.clear();
        match self.layout {
            Layout::Bytes { bits } => {
                numbers.extend(bytes.iter().map(|&byte| i32::from(byte as i8)));
                let half = 1 << (bits - 1);
                if numbers.iter().any(|number| !(-half..half).contains(number)) {
                    let problem = format!("row {row} holds a number that {bits} bits cannot");
                    return Err(WeightError::Read { name: self.name.clone(), problem });
                }
            }
            Layout::Nibbles { signed } => {
                let halves = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).take(self.columns);
                numbers.extend(halves.map(|half| match signed {
                    true => i32::from((half << 4) as i8 >> 4),
                    false => i32::from(half),
                }));
            }
        }
        Ok(())
    }

    /// Some elements as floats.
    pub(super) fn floats(
        &self,
        tensors: &Tensors,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), WeightError> {
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        let mut at = elements.start;
        let mut out = out.iter_mut();
        while at < elements.end {
            let row = at / self.columns;
            let columns = at % self.columns..self.columns.min(elements.end - row * self.columns);
            self.row(tensors, row, &mut bytes, &mut numbers)?;
            for (column, out) in columns.clone().zip(&mut out) {
                let parameter = self.parameter(row, column);
                *out = numbers[column] as f32 * self.scales[parameter] + self.offset(parameter);
            }
            at = row * self.columns + columns.end;
        }
        Ok(())
    }

    /// Writes a part of the packing.
    pub(super) fn write(
        &self,
        tensors: &Tensors,
        packing: Packing,
        part: Part,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match part {
            Part::Codes => self.write_codes(tensors, packing, out),
            Part::Scales | Part::Biases => {
                let group = packing.scheme().group();
                let (_, shift) = self.codes_of();
                let mut line = Vec::new();
                for row in 0..self.rows {
                    line.clear();
                    for column in (0..self.columns).step_by(group) {
                        let parameter = self.parameter(row, column);
                        let scale = self.scales[parameter];
                        let number = match part {
                            Part::Scales => scale,
                            _ => self.offset(parameter) - shift as f32 * scale,
                        };
                        encode(&[number], packing.scale_dtype(), &mut line);
                    }
                    out.write_all(&line)?;
                }
                Ok(())
            }
            Part::TensorScale => Ok(()),
        }
    }

    fn write_codes(&self, tensors: &Tensors, packing: Packing, out: &mut dyn Write) -> io::Result<()> {
        let (bits, shift) = self.codes_of();
        debug_assert_eq!(bits, packing.scheme().bits());
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for row in 0..self.rows {
            self.row(tensors, row, &mut bytes, &mut numbers).map_err(io::Error::other)?;
            let codes: Vec<u8> = numbers.iter().map(|number| (number + shift) as u8).collect();
            let words = packed::pack(&codes, bits).map_err(io::Error::other)?;
            let line: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            out.write_all(&line)?;
        }
        Ok(())
    }
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
