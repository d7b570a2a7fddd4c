//! How prepared activations lie. Vector kernels sum along a row of the weight in lanes; a lane takes
//! `per_lane` neighbouring values, so that one multiplication by a vector of scales serves several groups.
//! Activations are stored in the order in which the kernel meets the codes.

use super::{LinearError, Precision};
use crate::path::Path;
use crate::quant::QuantWeight;
use crate::quant::weight::Elements;
#[cfg(target_arch = "x86_64")]
use crate::quant::weight::element;
use pteron_tensor::DType;

/// Values that share a scale of quantised activations.
pub(super) const INPUT_GROUP: usize = 32;

/// Alignment of prepared activations and of each row in them.
pub(super) const ALIGNMENT: usize = 64;

/// The form of prepared activations. Linears whose layouts are equal can share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputLayout {
    pub(super) k: usize,
    pub(super) group: usize,
    pub(super) dtype: DType,
    pub(super) lanes: LaneLayout,
    pub(super) tiles: Option<TileLayout>,
}

/// The form for kernels that sum in lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneLayout {
    /// Lanes of a vector of f32.
    pub(super) lanes: usize,
    /// Neighbouring values that a lane takes of a block: 8 where codes are split into low and high nibbles,
    /// else 4.
    pub(super) per_lane: usize,
    pub(super) numbers: Numbers,
}

/// What activations are in the form for lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Numbers {
    /// Signed bytes with a scale a lane.
    Int8,
    /// As [`Numbers::Int8`], and with what each lane's sum starts from, because the codes are larger than
    /// what they stand for by so much: [`E2M1_OFFSET`], or the middle from which they are counted.
    Int8Shifted {
        by: u8,
    },
    F32,
}

/// What makes doubled e2m1 numbers unsigned.
pub(super) const E2M1_OFFSET: u8 = 12;

/// Doubled e2m1 numbers by their codes, made unsigned. A constant once it is inlined.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn e2m1_codes() -> [u8; 16] {
    std::array::from_fn(|code| {
        (element(Elements::DoubledE2M1, code as u8) as i32 + i32::from(E2M1_OFFSET)) as u8
    })
}

/// The form for matrix tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TileLayout {
    /// Least number of rows for which tiles are used.
    pub(super) from_rows: usize,
    /// Numbers of bf16 whose sum is the activation: 1, or as many as make it exact.
    pub(super) terms: usize,
    /// Whether sums of groups are wanted.
    pub(super) sums: bool,
    /// Even values of 64 first, then odd ones, as nibbles come; else in their order.
    pub(super) nibbles: bool,
}

impl LaneLayout {
    /// Values of a block.
    pub(super) fn block(self) -> usize {
        self.lanes * self.per_lane
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(self) -> usize {
        match self.numbers {
            Numbers::Int8 => self.block() + 4 * self.lanes,
            Numbers::Int8Shifted { .. } => self.block() + 8 * self.lanes,
            Numbers::F32 => 4 * self.block(),
        }
    }
}

/// Whether the path's kernels begin sums of centred codes where that saves reading biases; the others read
/// them as multiples of the scales.
fn starts_from_centre(path: Path) -> bool {
    matches!(path, Path::Avx2 | Path::AvxVnni | Path::Avx512Bw | Path::Avx512 | Path::Amx)
}

impl InputLayout {
    /// The dtype of activations before they are prepared.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Chooses the layout for a weight.
    pub(super) fn new(
        weight: &QuantWeight,
        dtype: DType,
        path: Path,
        precision: Precision,
    ) -> Result<InputLayout, LinearError> {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(LinearError::DType { what: "input", dtype });
        }
        let group = weight.scheme.group();
        if !group.is_power_of_two() || group < 16 {
            return Err(LinearError::Length { what: "values of a group", got: group, want: 32 });
        }
        let nibbles = weight.scheme.bits() == 4;
        let numbers = match (precision, weight.elements) {
            // e4m3 numbers span too much for 8-bit integers.
            (Precision::Exact, _) | (_, Elements::E4M3) => Numbers::F32,
            (Precision::Fast, Elements::DoubledE2M1) => Numbers::Int8Shifted { by: E2M1_OFFSET },
            (Precision::Fast, Elements::Unsigned) => match weight.centre {
                Some(centre) if starts_from_centre(path) => Numbers::Int8Shifted { by: -centre as u8 },
                _ => Numbers::Int8,
            },
        };
        let lanes = match path {
            Path::Scalar => LaneLayout { lanes: 8, per_lane: 4, numbers },
            Path::Avx2 | Path::AvxVnni => {
                LaneLayout { lanes: 8, per_lane: if nibbles { 8 } else { 4 }, numbers }
            }
            Path::Avx512Bw | Path::Avx512 | Path::Amx => {
                LaneLayout { lanes: 16, per_lane: if nibbles { 8 } else { 4 }, numbers }
            }
            Path::Neon | Path::NeonDotprod | Path::NeonI8mm => {
                LaneLayout { lanes: 4, per_lane: if nibbles { 8 } else { 4 }, numbers }
            }
        };
        Ok(InputLayout {
            k: weight.k,
            group,
            dtype,
            lanes,
            tiles: TileLayout::new(weight, dtype, path, precision),
        })
    }

    /// The tile form, where so many rows use it.
    pub(super) fn tiles_for(&self, rows: usize) -> Option<TileLayout> {
        self.tiles.filter(|tiles| rows >= tiles.from_rows)
    }

    /// Bytes of a prepared row in the form for lanes: the blocks, then the sums.
    pub(super) fn lane_row_bytes(&self) -> usize {
        self.lane_sums_at() + (4 * self.k / self.summed()).next_multiple_of(ALIGNMENT)
    }

    /// Values that a sum in the form for lanes is of: a group's, or of shifted activations those that have one scale of
    /// the weight and one of their own.
    pub(super) fn summed(&self) -> usize {
        match self.lanes.numbers {
            Numbers::Int8Shifted { .. } => self.group.min(INPUT_GROUP),
            _ => self.group,
        }
    }

    /// What sums are multiplied with: those of shifted activations are what the shift takes away from products.
    pub(super) fn sum_factor(&self) -> f32 {
        match self.lanes.numbers {
            Numbers::Int8Shifted { by } => -f32::from(by),
            _ => 1.0,
        }
    }

    /// Where the sums start in a prepared row.
    pub(super) fn lane_sums_at(&self) -> usize {
        (self.k.div_ceil(self.lanes.block()) * self.lanes.block_bytes()).next_multiple_of(ALIGNMENT)
    }
}

impl TileLayout {
    fn new(weight: &QuantWeight, dtype: DType, path: Path, precision: Precision) -> Option<TileLayout> {
        let terms = match (precision, dtype) {
            (Precision::Fast, _) | (_, DType::BF16) => 1,
            (_, DType::F16) => 2,
            _ => 3,
        };
        let exact = precision == Precision::Exact;
        (path == Path::Amx && weight.k > 0 && weight.k.is_multiple_of(32)).then_some(TileLayout {
            // By measurement: fewer rows are quicker in lanes or panels.
            from_rows: if exact { 17 } else { 37 },
            terms,
            sums: exact && weight.has_biases(),
            nibbles: weight.scheme.bits() == 4 && !exact,
        })
    }
}
