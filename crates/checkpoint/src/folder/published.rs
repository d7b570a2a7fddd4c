//! Weights in whole numbers as others publish them: GPTQ, AWQ and compressed-tensors. Names and shapes of the tensors are theirs;
//! what they mean is a matrix of whole numbers with a scale, and perhaps a zero, for some columns of a row.

use pteron_models::WeightError;
use pteron_tensor::DType;
use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::safetensors::{Stored, Tensors};
use super::weights::{float_dtype, widen};
use super::whole::{Data, Layout, Matrix, Zero};

/// What is in place of `weight` in the names of a matrix's tensors.
pub(super) const PARTS: [&str; 11] = [
    "qweight",
    "qzeros",
    "g_idx",
    "weight_packed",
    "weight_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "weight_scale_inv",
    // How activations would be rounded, which is left to programs.
    "input_scale",
    "input_zero_point",
];

/// What the configuration says of them.
pub(super) struct Settings {
    method: Method,
    bits: Option<u32>,
    /// Rows and columns that share a scale of 8-bit floats.
    block: Option<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Its second form stores zeros as they are, its first one less.
    Gptq {
        stores_zeros_less_one: bool,
    },
    Awq,
    CompressedTensors,
    /// 8-bit floats, and what else is found by its names.
    ByNames,
}

/// The output whose code stands at each place of a word of AWQ's.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

impl Settings {
    /// Those of a method that is read.
    pub(super) fn new(method: &str, block: &Map<String, Value>) -> Option<Settings> {
        let bits = |block: &Map<String, Value>, key: &str| {
            block.get(key).and_then(Value::as_u64).and_then(|bits| u32::try_from(bits).ok())
        };
        let size = |size: &Value| size.as_u64().and_then(|size| usize::try_from(size).ok());
        let (method, bits) = match method {
            "gptq" => {
                let form = block.get("checkpoint_format").and_then(Value::as_str);
                (Method::Gptq { stores_zeros_less_one: form != Some("gptq_v2") }, bits(block, "bits"))
            }
            "awq" => (Method::Awq, bits(block, "bits").or_else(|| bits(block, "w_bit"))),
            "compressed-tensors" => {
                let groups = block.get("config_groups").and_then(Value::as_object);
                let all: Vec<Option<u32>> = groups
                    .into_iter()
                    .flat_map(Map::values)
                    .map(|group| bits(group.get("weights")?.as_object()?, "num_bits"))
                    .collect();
                // Where groups differ, the sizes of each tensor tell.
                let same = all
                    .first()
                    .copied()
                    .flatten()
                    .filter(|first| all.iter().all(|bits| *bits == Some(*first)));
                (Method::CompressedTensors, same)
            }
            "fp8" | "fbgemm_fp8" | "bitsandbytes" => (Method::ByNames, None),
            _ => return None,
        };
        let sizes = block.get("weight_block_size").and_then(Value::as_array);
        let block = sizes.and_then(|sizes| match sizes.as_slice() {
            [rows, columns] => Some((size(rows)?, size(columns)?)),
            _ => None,
        });
        Some(Settings { method, bits, block })
    }

    /// Rows and columns that share a scale of 8-bit floats, where nothing else says.
    pub(super) fn block(&self) -> (usize, usize) {
        self.block.filter(|&(rows, columns)| rows > 0 && columns > 0).unwrap_or((128, 128))
    }

    /// The matrix of that name, if it is one of whole numbers; an error where its parts do not fit.
    pub(super) fn find(
        &self,
        tensors: &Tensors,
        name: &str,
        shape: &[usize],
    ) -> Result<Option<Matrix>, WeightError> {
        let (Some(module), &[rows, columns]) = (name.strip_suffix(".weight"), shape) else { return Ok(None) };
        let parts = Parts { tensors, name, module, rows, columns };
        match self.method {
            Method::Gptq { stores_zeros_less_one } => {
                parts.of_columns(self.bits, Some(stores_zeros_less_one))
            }
            Method::Awq => parts.of_columns(self.bits, None),
            Method::CompressedTensors => parts.of_rows(self.bits),
            Method::ByNames => Ok(None),
        }
    }
}

/// The tensors of a matrix.
struct Parts<'t> {
    tensors: &'t Tensors,
    name: &'t str,
    module: &'t str,
    rows: usize,
    columns: usize,
}

impl Parts<'_> {
    fn problem(&self, problem: String) -> WeightError {
        WeightError::Read { name: self.name.to_owned(), problem }
    }

    fn get(&self, part: &str) -> Option<&Stored> {
        self.tensors.get(&format!("{}.{part}", self.module))
    }

    /// The bytes of a part, which has that type and that shape.
    fn bytes(&self, part: &str, dtype: Dtype, shape: &[usize]) -> Result<Vec<u8>, WeightError> {
        let name = format!("{}.{part}", self.module);
        let stored = self.tensors.get(&name).ok_or_else(|| WeightError::Missing { name: name.clone() })?;
        if (stored.dtype, stored.shape.as_slice()) != (dtype, shape) {
            return Err(self.problem(format!(
                "its {part} is {} {:?}, where {} by {} has {dtype} {shape:?}",
                stored.dtype, stored.shape, self.rows, self.columns
            )));
        }
        self.tensors.read_all(&name, stored)
    }

    fn words(&self, part: &str, shape: &[usize]) -> Result<Vec<u32>, WeightError> {
        let bytes = self.bytes(part, Dtype::I32, shape)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Floats of a part and their type; the shape is for the caller to judge.
    fn floats(&self, part: &str) -> Result<(Vec<f32>, DType, Vec<usize>), WeightError> {
        let name = format!("{}.{part}", self.module);
        let stored = self.tensors.get(&name).ok_or_else(|| WeightError::Missing { name: name.clone() })?;
        let dtype = float_dtype(stored.dtype)
            .ok_or_else(|| self.problem(format!("its {part} is {}", stored.dtype)))?;
        let bytes = self.tensors.read_all(&name, stored)?;
        let floats = widen(stored.dtype, &bytes).unwrap_or_default();
        Ok((floats, dtype, stored.shape.clone()))
    }

    /// Codes in a word of a row: 2, 4 or 8 bits.
    fn per_word(&self, bits: u32) -> Result<usize, WeightError> {
        match bits {
            2 | 4 | 8 => Ok(32 / bits as usize),
            _ => Err(self.problem(format!("{bits} bits are not read; 2, 4 and 8 are"))),
        }
    }

    /// The group of each column where a list names it; nothing where neighbours share one.
    fn order(&self, part: &str, group: usize, groups: usize) -> Result<Vec<usize>, WeightError> {
        if self.get(part).is_none() {
            return Ok(Vec::new());
        }
        let order: Vec<usize> =
            self.words(part, &[self.columns])?.iter().map(|&word| word as usize).collect();
        if let Some(wrong) = order.iter().find(|&&of| of >= groups) {
            return Err(self.problem(format!("its {part} names group {wrong} of {groups}")));
        }
        let plain = order.iter().enumerate().all(|(column, &of)| of == column / group);
        Ok(if plain { Vec::new() } else { order })
    }

    /// As GPTQ and AWQ have it: inputs are rows, outputs columns. AWQ packs outputs and stores zeros as they are.
    fn of_columns(&self, bits: Option<u32>, gptq: Option<bool>) -> Result<Option<Matrix>, WeightError> {
        if self.get("qweight").is_none() {
            return Ok(None);
        }
        let (rows, columns) = (self.rows, self.columns);
        let bits = bits.ok_or_else(|| self.problem("the configuration does not say its bits".into()))?;
        match (gptq, bits) {
            (Some(_), 2 | 3 | 4 | 8) | (None, 4) => {}
            (Some(_), _) => return Err(self.problem(format!("{bits} bits are not read; 2, 3, 4 and 8 are"))),
            (None, _) => return Err(self.problem(format!("AWQ with {bits} bits is not read; 4 are"))),
        }
        let (scales, scale_dtype, scale_shape) = self.floats("scales")?;
        let groups = scale_shape.first().copied().unwrap_or(0);
        if scale_shape != [groups, rows] || groups == 0 || !columns.is_multiple_of(groups) {
            let problem = format!(
                "its scales are {scale_shape:?}, where {rows} by {columns} has a row of {rows} for each group"
            );
            return Err(self.problem(problem));
        }
        let (mask, half) = ((1u32 << bits) - 1, 1i32 << (bits - 1));
        let words_of = |codes: usize| (codes * bits as usize).div_ceil(32);
        // A code of a list of words; one of three bits may begin in a word and end in the next.
        let code = |at: usize, word: &dyn Fn(usize) -> u32| {
            let (first, shift) = (at * bits as usize / 32, at * bits as usize % 32);
            let behind = if shift + bits as usize > 32 { word(first + 1) } else { 0 };
            ((u64::from(behind) << 32 | u64::from(word(first))) >> shift) as u32 & mask
        };
        // The place of an output among those of a list.
        let place = |output: usize| match gptq {
            Some(_) => output,
            None => output - output % 8 + AWQ_ORDER.iter().position(|&of| of == output % 8).unwrap_or(0),
        };
        let of_outputs = words_of(rows.next_multiple_of(if gptq.is_some() { 1 } else { 8 }));
        let words = match gptq {
            Some(_) => self.words("qweight", &[words_of(columns), rows])?,
            None => self.words("qweight", &[columns, of_outputs])?,
        };
        let mut numbers = vec![0i8; rows * columns];
        for (column, row) in (0..columns).flat_map(|column| (0..rows).map(move |row| (column, row))) {
            let code = match gptq {
                Some(_) => code(column, &|at| words[at * rows + row]),
                None => code(place(row), &|at| words[column * of_outputs + at]),
            };
            numbers[row * columns + column] = (code as i32 - half) as i8;
        }
        let words = self.words("qzeros", &[groups, of_outputs])?;
        let less = u32::from(gptq == Some(true));
        let zeros = (0..groups * rows).map(|at| {
            let code = code(place(at % rows), &|word| words[at / rows * of_outputs + word]);
            (((code + less) & mask) as i32 - half) as f32
        });
        let zeros: Vec<f32> = zeros.collect();
        let group = columns / groups;
        Ok(Some(Matrix {
            name: self.name.to_owned(),
            data: Data::Memory(numbers),
            layout: Layout::Bytes { bits },
            rows,
            columns,
            block: (1, group),
            scales,
            scale_dtype,
            zeros: if zeros.iter().all(|&zero| zero == 0.0) { Vec::new() } else { zeros },
            zero: Zero::Subtracted,
            transposed: true,
            blocks_of_columns: self.order("g_idx", group, groups)?,
        }))
    }

    /// As compressed-tensors has it: words or bytes along a row.
    fn of_rows(&self, bits: Option<u32>) -> Result<Option<Matrix>, WeightError> {
        let (rows, columns) = (self.rows, self.columns);
        let is_bytes = self.get("weight").is_some_and(|stored| stored.dtype == Dtype::I8);
        let (data, bits) = match self.get("weight_packed") {
            Some(stored) => {
                let width = stored.shape.last().copied().unwrap_or(0);
                let told = (width * 32).checked_div(columns).and_then(|bits| u32::try_from(bits).ok());
                let bits = bits
                    .filter(|&bits| (columns * bits as usize).div_ceil(32) == width)
                    .or(told)
                    .ok_or_else(|| self.problem("its bits cannot be told".into()))?;
                let per_word = self.per_word(bits)?;
                let words = self.words("weight_packed", &[rows, columns.div_ceil(per_word)])?;
                let of_row = columns.div_ceil(per_word);
                let number = |at: usize| {
                    let word = words[at / columns * of_row + at % columns / per_word];
                    let code = (word >> (bits as usize * (at % columns % per_word))) & ((1 << bits) - 1);
                    (code as i32 - (1 << (bits - 1))) as i8
                };
                (Data::Memory((0..rows * columns).map(number).collect()), bits)
            }
            None if is_bytes => {
                self.bytes("weight", Dtype::I8, &[rows, columns])?;
                let stored = self.tensors.get(self.name).cloned();
                let stored = stored.ok_or_else(|| WeightError::Missing { name: self.name.to_owned() })?;
                (Data::File(self.name.to_owned(), stored), 8)
            }
            None => return Ok(None),
        };
        let (scales, scale_dtype, scale_shape) = self.floats("weight_scale")?;
        let blocks = scales.len();
        let (block, groups) = match scale_shape.as_slice() {
            _ if blocks == 1 => ((rows, columns), 1),
            [of, groups] if *of == rows && *groups > 0 && columns.is_multiple_of(*groups) => {
                ((1, columns / groups), *groups)
            }
            [of] if *of == rows => ((1, columns), 1),
            _ => {
                return Err(self.problem(format!(
                    "its weight_scale is {scale_shape:?}, which {rows} by {columns} has not"
                )));
            }
        };
        let zeros = self.zeros_of_rows(bits, blocks, groups)?;
        Ok(Some(Matrix {
            name: self.name.to_owned(),
            data,
            layout: Layout::Bytes { bits },
            rows,
            columns,
            block,
            scales,
            scale_dtype,
            zeros: if zeros.iter().all(|&zero| zero == 0.0) { Vec::new() } else { zeros },
            zero: Zero::Subtracted,
            transposed: false,
            blocks_of_columns: self.order("weight_g_idx", block.1, groups)?,
        }))
    }

    /// Zeros of rows and groups: bytes, or codes in words down the rows.
    fn zeros_of_rows(&self, bits: u32, blocks: usize, groups: usize) -> Result<Vec<f32>, WeightError> {
        let Some(stored) = self.get("weight_zero_point") else { return Ok(Vec::new()) };
        if stored.dtype != Dtype::I32 {
            let bytes = self.bytes("weight_zero_point", Dtype::I8, &stored.shape.clone())?;
            if bytes.len() != blocks {
                return Err(self.problem(format!("{} zeros for {blocks} scales", bytes.len())));
            }
            return Ok(bytes.iter().map(|&byte| f32::from(byte as i8)).collect());
        }
        let per_word = self.per_word(bits)?;
        let words = self.words("weight_zero_point", &[self.rows.div_ceil(per_word), groups])?;
        let zero = |at: usize| {
            let (row, group) = (at / groups, at % groups);
            let word = words[row / per_word * groups + group];
            let code = (word >> (bits as usize * (row % per_word))) & ((1 << bits) - 1);
            (code as i32 - (1 << (bits - 1))) as f32
        };
        Ok((0..self.rows * groups).map(zero).collect())
    }
}
