//! Matrices of whole numbers with a scale a block, whoever wrote them. They map into affine packings without loss; a block that
//! no packing has is unpacked to floats.

use std::io::{self, Write};
use std::ops::Range;

use pteron_models::{Packing, Part, WeightError, encode};
use pteron_tensor::DType;
use pteron_tensor::quant::packed;

use super::safetensors::{Stored, Tensors};

/// A matrix of whole numbers.
pub(super) struct Matrix {
    pub(super) name: String,
    pub(super) data: Data,
    pub(super) layout: Layout,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Rows and columns that share a scale.
    pub(super) block: (usize, usize),
    pub(super) scales: Vec<f32>,
    pub(super) scale_dtype: DType,
    /// One a block; empty where all are zero.
    pub(super) zeros: Vec<f32>,
    pub(super) zero: Zero,
    /// Scales and zeros lie `[blocks of a row, rows]`.
    pub(super) transposed: bool,
    /// The block of each column, where blocks are no neighbours; else empty.
    pub(super) blocks_of_columns: Vec<usize>,
}

/// Where the numbers are.
pub(super) enum Data {
    /// In a tensor of the files, row by row.
    File(String, Stored),
    /// Here, row by row: those that the files have in another order.
    Memory(Vec<i8>),
}

/// How whole numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One a byte, signed, of so many bits.
    Bytes { bits: u32 },
    /// Two a byte, the low half first.
    Nibbles { signed: bool },
}

/// What a zero point does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    /// `(q - zero) * scale`.
    Subtracted,
    /// `q * scale + zero`.
    Added,
}

impl Matrix {
    /// Whether it is a matrix of that shape.
    pub(super) fn has_shape(&self, shape: &[usize]) -> bool {
        shape == [self.rows, self.columns]
    }

    /// The packing that holds the matrix without loss; `None` where there is none.
    pub(super) fn packing(&self) -> Option<Packing> {
        if !self.blocks_of_columns.is_empty() {
            return None;
        }
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
        let column = self.blocks_of_columns.get(column).copied().unwrap_or(column / self.block.1);
        let row = row / self.block.0;
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
        numbers.clear();
        let (data_name, stored) = match &self.data {
            Data::File(name, stored) => (name, stored),
            Data::Memory(all) => {
                let all = all.iter().skip(row * self.columns).take(self.columns);
                numbers.extend(all.map(|&number| i32::from(number)));
                return Ok(());
            }
        };
        let width = match self.layout {
            Layout::Bytes { .. } => self.columns,
            Layout::Nibbles { .. } => self.columns.div_ceil(2),
        };
        bytes.resize(width, 0);
        tensors.read(data_name, stored, (row * width) as u64, bytes)?;
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
