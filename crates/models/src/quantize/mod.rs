//! Packing of weights: which scheme, with which scales; which weights get which (`rules`); the quantisers themselves
//! (`groups`, `hqq`, over rows in `rows`; `matrix` for one that is at hand), and what they cost (`report`).

mod groups;
mod held;
mod hqq;
mod matrix;
mod report;
mod rows;
mod rules;

use std::fmt;
use std::str::FromStr;

use pteron_tensor::DType;
use pteron_tensor::quant::{Mode, QuantError, Scheme, packed};

use crate::Part;

pub use matrix::PackedMatrix;
pub(crate) use report::Reports;
pub use report::{Deviation, Handling, WeightReport};
pub(crate) use rows::{Packed, Task, quantise};
pub(crate) use rules::{Made, Plan};
pub use rules::{Method, Quantization, Rule};

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
    /// A rule that says nothing.
    #[error(
        "{0:?} is no rule; one is PATTERN=SCHEME or PATTERN=SCHEME/GROUP, such as *.mlp.*=4w/64 or lm_head=none"
    )]
    Rule(String),
    /// HQQ chooses zero points, which float schemes have not.
    #[error("{0} has no zero points for HQQ to choose; take min-max for it")]
    NoZeroPoints(Packing),
    /// A packed weight whose groups cannot be cut without loss.
    #[error(
        "it is packed {held}, and groups of {held_group} cannot be regrouped to {wanted}: only to what divides them"
    )]
    Regroup {
        /// How it is packed.
        held: Packing,
        /// Values of its groups.
        held_group: usize,
        /// Values of the groups asked for.
        wanted: usize,
    },
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
    /// Its numbers cannot be had.
    #[error("{0}")]
    Matrix(String),
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
    /// Whole numbers of so many bits with float scales, and biases where there are zero points.
    pub fn affine(
        bits: u32,
        group: usize,
        zero_points: bool,
        scales: DType,
    ) -> Result<Packing, PackingError> {
        if !matches!(group, 16 | 32 | 64 | 128) {
            return Err(PackingError::Group(group));
        }
        Ok(Packing { scheme: Scheme::new(Mode::Affine, bits as i32, group as i32)?, zero_points, scales })
    }

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

    /// Whether every runtime of the format multiplies by it: MLX has no products with whole numbers in groups of 16.
    pub fn is_portable(&self) -> bool {
        self.scheme.mode() != Mode::Affine || self.scheme.group() != 16
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

impl Packing {
    /// The name that it parses from, without group and scales.
    pub fn name(&self) -> String {
        match self.scheme.mode() {
            Mode::Affine => format!("{}w", self.scheme.bits()),
            mode => mode.to_string(),
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        write!(f, " in groups of {}", self.scheme.group())?;
        if self.zero_points { f.write_str(" with zero points") } else { Ok(()) }
    }
}
