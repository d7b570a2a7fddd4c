//! Packing of weights: which scheme, with which scales, and the plain quantiser that takes the range of each group.

use std::fmt;
use std::io;
use std::str::FromStr;

use pteron_tensor::DType;
use pteron_tensor::quant::{Mode, QuantError, Scheme, codes, packed};

use crate::WeightSource;
use crate::weights::{Part, encode, rounded};

/// How a matrix is stored in few bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packing {
    scheme: Scheme,
    zero_points: bool,
    scales: DType,
}

/// Why a matrix cannot be packed so.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum PackingError {
    /// No scheme is called that.
    #[error("{0:?} is no quantisation; there are 2w, 3w, 4w, 5w, 6w, 8w, mxfp4, nvfp4 and mxfp8")]
    Unknown(String),
    /// The scheme does not exist.
    #[error(transparent)]
    Scheme(#[from] QuantError),
    /// Products exist only for some groups.
    #[error("no matrix product takes groups of {0}; 32, 64 and 128 are there")]
    Group(usize),
    /// Rows do not divide into groups.
    #[error("rows of {columns} values do not divide into groups of {group}; choose another group size")]
    Row {
        /// Values in a row.
        columns: usize,
        /// Values in a group.
        group: usize,
    },
}

impl FromStr for Packing {
    type Err = PackingError;

    fn from_str(name: &str) -> Result<Packing, PackingError> {
        let (mode, bits, group) = match name {
            "mxfp4" => (Mode::MxFp4, 4, 32),
            "nvfp4" => (Mode::NvFp4, 4, 16),
            "mxfp8" => (Mode::MxFp8, 8, 32),
            "2w" | "3w" | "4w" | "5w" | "6w" | "8w" => {
                (Mode::Affine, i32::from(name.as_bytes()[0] - b'0'), 32)
            }
            _ => return Err(PackingError::Unknown(name.to_owned())),
        };
        Ok(Packing { scheme: Scheme::new(mode, bits, group)?, zero_points: false, scales: DType::BF16 })
    }
}

impl Packing {
    /// The same with groups of another size, where the scheme leaves a choice.
    pub fn with_group(self, group: usize) -> Result<Packing, PackingError> {
        if self.scheme.mode() == Mode::Affine && !matches!(group, 32 | 64 | 128) {
            return Err(PackingError::Group(group));
        }
        let scheme = Scheme::new(self.scheme.mode(), self.scheme.bits() as i32, group as i32)?;
        Ok(Packing { scheme, ..self })
    }

    /// The same with a bias stored for each group, where the scheme can have one. Without, biases follow from scales
    /// and are made when the program is loaded.
    pub fn with_zero_points(self, zero_points: bool) -> Packing {
        Packing { zero_points: zero_points && self.scheme.mode() == Mode::Affine, ..self }
    }

    /// The same with scales of another float type; float modes have their own.
    pub fn with_scales(self, scales: DType) -> Packing {
        Packing { scales, ..self }
    }

    /// Mode, width and group.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Whether a bias is stored for each group.
    pub fn zero_points(&self) -> bool {
        self.zero_points
    }

    /// Whether codes stand for `(code - half) * scale`.
    pub fn is_centred(&self) -> bool {
        self.scheme.mode() == Mode::Affine && !self.zero_points
    }

    /// Whether one factor goes over the whole tensor.
    pub fn has_tensor_scale(&self) -> bool {
        self.scheme.mode() == Mode::NvFp4
    }

    /// The type of group scales as stored.
    pub fn scale_dtype(&self) -> DType {
        if self.scheme.mode() == Mode::Affine { self.scales } else { DType::U8 }
    }

    /// The code that stands for zero where biases are not stored.
    pub(crate) fn half(&self) -> f32 {
        (1u32 << (self.scheme.bits() - 1)) as f32
    }

    /// An error unless rows of that length can be packed.
    pub fn check(&self, columns: usize) -> Result<(), PackingError> {
        let group = self.scheme.group();
        if !columns.is_multiple_of(group) {
            return Err(PackingError::Row { columns, group });
        }
        packed::words(columns, self.scheme.bits())?;
        Ok(())
    }

    /// Shape and dtype of a part of a matrix; nothing where the packing has no such part.
    pub fn part(&self, rows: usize, columns: usize, part: Part) -> Option<(DType, Vec<usize>)> {
        let groups = columns / self.scheme.group();
        match part {
            Part::Codes => Some((DType::U32, vec![rows, columns * self.scheme.bits() as usize / 32])),
            Part::Scales => Some((self.scale_dtype(), vec![rows, groups])),
            Part::Biases => self.zero_points.then(|| (self.scales, vec![rows, groups])),
            Part::TensorScale => self.has_tensor_scale().then(|| (self.scales, vec![])),
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme.mode() {
            Mode::Affine => write!(f, "{}w", self.scheme.bits())?,
            mode => write!(f, "{mode}")?,
        }
        write!(f, " in groups of {}", self.scheme.group())?;
        if self.zero_points { f.write_str(" with zero points") } else { Ok(()) }
    }
}

/// A packed weight.
pub(crate) struct Packed {
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    tensor_scale: Vec<u8>,
}

impl Packed {
    pub(crate) fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::Codes => &self.codes,
            Part::Scales => &self.scales,
            Part::Biases => &self.biases,
            Part::TensorScale => &self.tensor_scale,
        }
    }
}

/// Packs a weight of a source, row by row.
pub(crate) fn quantise(
    source: &dyn WeightSource,
    name: &str,
    shape: &[usize],
    packing: Packing,
) -> io::Result<Packed> {
    let [rows, columns] = shape else { return Err(io::Error::other(format!("{name}: not a matrix"))) };
    let mut row = vec![0.0f32; *columns];
    let read = |at: usize, row: &mut [f32]| {
        source.floats(name, shape, at * columns..(at + 1) * columns, row).map_err(io::Error::other)
    };
    let mut tensor_scale = 1.0;
    if packing.has_tensor_scale() {
        let mut largest = 0.0f32;
        for at in 0..*rows {
            read(at, &mut row)?;
            largest = row.iter().fold(largest, |largest, value| largest.max(value.abs()));
        }
        // The largest group scale becomes the largest number that a scale can hold.
        tensor_scale = rounded((largest / (codes::e2m1(7) * 448.0)).max(f32::MIN_POSITIVE), packing.scales);
    }
    let mut out = Packed { codes: vec![], scales: vec![], biases: vec![], tensor_scale: vec![] };
    if packing.has_tensor_scale() {
        encode(&[tensor_scale], packing.scales, &mut out.tensor_scale);
    }
    let mut row_codes = vec![0u8; *columns];
    for at in 0..*rows {
        read(at, &mut row)?;
        let groups = row.chunks(packing.scheme.group()).zip(row_codes.chunks_mut(packing.scheme.group()));
        for (values, codes) in groups {
            quantise_group(values, codes, packing, tensor_scale, &mut out);
        }
        let words = packed::pack(&row_codes, packing.scheme.bits()).map_err(io::Error::other)?;
        out.codes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    Ok(out)
}

fn quantise_group(values: &[f32], codes: &mut [u8], packing: Packing, tensor_scale: f32, out: &mut Packed) {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let levels = (1u32 << packing.scheme.bits()) as f32;
    match packing.scheme.mode() {
        Mode::Affine if packing.zero_points => {
            let low = values.iter().copied().fold(f32::INFINITY, f32::min);
            let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let scale = rounded((high - low) / (levels - 1.0), packing.scales);
            let bias = rounded(low, packing.scales);
            encode(&[scale], packing.scales, &mut out.scales);
            encode(&[bias], packing.scales, &mut out.biases);
            affine_codes(values, codes, scale, bias, levels);
        }
        Mode::Affine => {
            // The value of the largest magnitude takes the code 0, which reaches one step further than the others;
            // its sign goes into the scale.
            let extreme = values.iter().copied().find(|value| value.abs() == largest).unwrap_or(0.0);
            let scale = rounded(-extreme / packing.half(), packing.scales);
            encode(&[scale], packing.scales, &mut out.scales);
            affine_codes(values, codes, scale, -packing.half() * scale, levels);
        }
        mode => {
            let (limit, nearest): (f32, fn(f32) -> u8) = match mode {
                Mode::MxFp8 => (448.0, codes::e4m3fn_nearest),
                _ => (codes::e2m1(7), codes::e2m1_nearest),
            };
            let wanted = largest / limit / tensor_scale;
            let byte = match mode {
                Mode::NvFp4 => codes::e4m3fn_nearest(wanted),
                // The next power of two, so that nothing saturates.
                _ => (wanted.max(f32::MIN_POSITIVE).log2().ceil() as i32 + 127).clamp(0, 254) as u8,
            };
            out.scales.push(byte);
            let scale = packing.scheme.scale(byte) * tensor_scale;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            for (code, value) in codes.iter_mut().zip(values) {
                *code = nearest(value * inverse);
            }
        }
    }
}

fn affine_codes(values: &[f32], codes: &mut [u8], scale: f32, bias: f32, levels: f32) {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    for (code, value) in codes.iter_mut().zip(values) {
        *code = ((value - bias) * inverse).round_ties_even().clamp(0.0, levels - 1.0) as u8;
    }
}
