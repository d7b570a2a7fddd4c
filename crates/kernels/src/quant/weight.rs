//! A quantised weight, checked against its sizes once and brought into the one form that all kernels read: an
//! element (a number by its code), a scale for each group, and a bias for each group or none.

use super::LinearError;
use super::error::expect_length;
use super::memory::Memory;
use half::{bf16, f16};
use pteron_tensor::quant::{Mode, Scheme, packed};
use pteron_tensor::{Bytes, DType};
#[cfg(target_arch = "x86_64")]
use {super::woven::Woven, std::sync::Arc};

/// The parts of a quantised weight, as a file has them.
#[derive(Clone, Debug)]
pub struct QuantParts {
    /// Packed codes: `matrices * n` rows of `k` codes.
    pub codes: Bytes,
    /// One scale a group: floats in the affine mode, one byte each in the others.
    pub scales: Bytes,
    /// Dtype of the scales; `U8` in the modes other than affine.
    pub scale_dtype: DType,
    /// What is added to scaled codes.
    pub biases: Biases,
    /// What the codes stand for.
    pub scheme: Scheme,
    /// Number of matrices: more than one where rows choose among experts.
    pub matrices: usize,
    /// Rows of a matrix, which are its outputs.
    pub n: usize,
    /// Values of a row, which are its inputs.
    pub k: usize,
}

/// What is added to scaled codes.
#[derive(Clone, Debug)]
pub enum Biases {
    /// Nothing, in the modes other than affine.
    None,
    /// A float for each group, with their dtype.
    Each(Bytes, DType),
    /// The scale times minus half the number of codes: codes count from the middle.
    Centre,
}

/// What a code stands for before it is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Elements {
    /// The code itself.
    Unsigned,
    /// Twice the e2m1 number, which is a whole number; the stored scales are halved.
    DoubledE2M1,
    /// The e4m3fn number.
    E4M3,
}

/// The float that scales and biases are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stored {
    F32,
    F16,
    BF16,
}

impl Stored {
    fn of(what: &'static str, dtype: DType) -> Result<Stored, LinearError> {
        match dtype {
            DType::F32 => Ok(Stored::F32),
            DType::F16 => Ok(Stored::F16),
            DType::BF16 => Ok(Stored::BF16),
            _ => Err(LinearError::DType { what, dtype }),
        }
    }

    pub(super) fn size(self) -> usize {
        if self == Stored::F32 { 4 } else { 2 }
    }

    /// The float at an index of its bytes.
    pub(super) fn get(self, bytes: &[u8], index: usize) -> f32 {
        let at = &bytes[index * self.size()..];
        match self {
            Stored::F32 => f32::from_le_bytes([at[0], at[1], at[2], at[3]]),
            Stored::F16 => f16::from_le_bytes([at[0], at[1]]).to_f32(),
            Stored::BF16 => bf16::from_le_bytes([at[0], at[1]]).to_f32(),
        }
    }
}

/// [`Stored`] as a type, so that a kernel is compiled for it: a type that scales and biases are stored as.
pub(super) trait StoredAs: Copy {
    /// Which one.
    const STORED: Stored;
    /// Its bytes.
    const SIZE: usize;
}

/// [`Stored::F32`] as a type.
#[derive(Clone, Copy)]
pub(super) struct AsF32;
/// [`Stored::F16`] as a type.
#[derive(Clone, Copy)]
pub(super) struct AsF16;
/// [`Stored::BF16`] as a type.
#[derive(Clone, Copy)]
pub(super) struct AsBf16;

impl StoredAs for AsF32 {
    const STORED: Stored = Stored::F32;
    const SIZE: usize = 4;
}
impl StoredAs for AsF16 {
    const STORED: Stored = Stored::F16;
    const SIZE: usize = 2;
}
impl StoredAs for AsBf16 {
    const STORED: Stored = Stored::BF16;
    const SIZE: usize = 2;
}

/// A quantised weight whose parts belong together.
#[derive(Clone, Debug)]
pub struct QuantWeight {
    pub(super) codes: Bytes,
    pub(super) scales: Bytes,
    /// Those that are no multiple of the scales.
    pub(super) biases: Option<Bytes>,
    /// What biases are times their scale, where that is the same for all groups: codes counted from the middle.
    pub(super) centre: Option<f32>,
    pub(super) stored: Stored,
    pub(super) elements: Elements,
    pub(super) scheme: Scheme,
    pub(super) matrices: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    derived: usize,
    /// A copy by panels, where one was made.
    #[cfg(target_arch = "x86_64")]
    pub(super) woven: Option<Arc<Woven>>,
}

impl QuantWeight {
    /// Checks that the parts have the sizes that they ask of each other.
    pub fn new(parts: QuantParts) -> Result<QuantWeight, LinearError> {
        let QuantParts { codes, scales, scale_dtype, biases, scheme, matrices, n, k } = parts;
        let (bits, group) = (scheme.bits() as usize, scheme.group());
        if !k.is_multiple_of(group) {
            return Err(LinearError::Length {
                what: "values of a row",
                got: k,
                want: k.next_multiple_of(group),
            });
        }
        let words = packed::words(k, scheme.bits()).map_err(|_| LinearError::Length {
            what: "bits of a row",
            got: k.saturating_mul(bits),
            want: 32,
        })?;
        let rows = matrices.saturating_mul(n);
        expect_length("bytes of codes", codes.len(), rows.saturating_mul(words).saturating_mul(4))?;
        let groups = rows.saturating_mul(k / group);
        let floats = |what, dtype, bytes: &Bytes| -> Result<Stored, LinearError> {
            let stored = Stored::of(what, dtype)?;
            expect_length(what, bytes.len(), groups.saturating_mul(stored.size()))?;
            Ok(stored)
        };
        let elements = match scheme.mode() {
            Mode::Affine => Elements::Unsigned,
            Mode::MxFp4 | Mode::NvFp4 => Elements::DoubledE2M1,
            Mode::MxFp8 => Elements::E4M3,
        };
        let (scales, biases, stored, derived) = match (elements, biases) {
            (Elements::Unsigned, Biases::Centre) => {
                let stored = floats("scales", scale_dtype, &scales)?;
                (scales, None, stored, 0)
            }
            (Elements::Unsigned, Biases::Each(biases, bias_dtype)) => {
                let of_scales = floats("scales", scale_dtype, &scales)?;
                let of_biases = floats("biases", bias_dtype, &biases)?;
                if of_scales == of_biases {
                    (scales, Some(biases), of_scales, 0)
                } else {
                    let (scales, biases) = (widened(of_scales, &scales), widened(of_biases, &biases));
                    let derived = scales.len() + biases.len();
                    (scales, Some(biases), Stored::F32, derived)
                }
            }
            (Elements::Unsigned, Biases::None) => {
                return Err(LinearError::Length { what: "biases", got: 0, want: groups });
            }
            (_, Biases::None) => {
                if scale_dtype != DType::U8 {
                    return Err(LinearError::DType { what: "scales", dtype: scale_dtype });
                }
                expect_length("scales", scales.len(), groups)?;
                let scales = small_scales(scheme, elements, &scales);
                let derived = scales.len();
                (scales, None, Stored::BF16, derived)
            }
            (_, Biases::Each(..) | Biases::Centre) => {
                return Err(LinearError::Length { what: "biases", got: groups, want: 0 });
            }
        };
        let (biases, centre) = match biases {
            None if elements == Elements::Unsigned => (None, Some(centre_of(scheme))),
            Some(biases) if are_centred(stored, scheme, &scales, &biases) => (None, Some(centre_of(scheme))),
            biases => (biases, None),
        };
        Ok(QuantWeight {
            codes,
            scales,
            biases,
            centre,
            stored,
            elements,
            scheme,
            matrices,
            n,
            k,
            derived,
            #[cfg(target_arch = "x86_64")]
            woven: None,
        })
    }

    /// Copies all parts into memory of their own, as far as there is some.
    pub(super) fn bring_near(&mut self) {
        for part in [&mut self.codes, &mut self.scales].into_iter().chain(&mut self.biases) {
            if let Some(near) = Memory::copy_of(part) {
                self.derived += near.len();
                *part = near;
            }
        }
    }

    /// Whether there is a copy by panels.
    pub(super) fn is_woven(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.woven.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Outputs of a matrix.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Inputs of a matrix.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of matrices.
    pub fn matrices(&self) -> usize {
        self.matrices
    }

    /// What the codes stand for.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Bytes that one product reads of one matrix: codes, scales and biases.
    pub fn matrix_bytes(&self) -> usize {
        let biases = self.biases.as_ref().map_or(0, |biases| biases.len());
        (self.codes.len() + self.scales.len() + biases) / self.matrices.max(1)
    }

    /// Bytes that had to be made beside those of the file: scales of the small-float modes as bf16, and a woven copy.
    pub fn derived_bytes(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        let woven = self.woven.as_ref().map_or(0, |woven| woven.bytes());
        #[cfg(not(target_arch = "x86_64"))]
        let woven = 0;
        self.derived + woven
    }

    /// Groups of a row.
    pub(super) fn groups(&self) -> usize {
        self.k / self.scheme.group()
    }

    /// Bytes of the codes of a row.
    pub(super) fn row_bytes(&self) -> usize {
        self.k * self.scheme.bits() as usize / 8
    }

    /// Rows of all matrices.
    pub(super) fn rows(&self) -> usize {
        self.matrices * self.n
    }

    /// Scale and bias of a group of a row, counted over all matrices.
    pub(super) fn scale_and_bias(&self, row: usize, group: usize) -> (f32, f32) {
        let index = row * self.groups() + group;
        let scale = self.stored.get(&self.scales, index);
        let bias = match (&self.biases, self.centre) {
            (Some(biases), _) => self.stored.get(biases, index),
            (None, Some(centre)) => centre * scale,
            (None, None) => 0.0,
        };
        (scale, bias)
    }

    /// Whether something is added to scaled codes.
    pub(super) fn has_biases(&self) -> bool {
        self.biases.is_some() || self.centre.is_some()
    }

    /// The numbers that the codes stand for, before they are scaled.
    pub(super) fn element_table(&self) -> [f32; 256] {
        std::array::from_fn(|code| element(self.elements, code as u8))
    }
}

/// What biases are times their scale where codes count from the middle.
fn centre_of(scheme: Scheme) -> f32 {
    -((1u32 << (scheme.bits() - 1)) as f32)
}

/// Whether biases are those of codes that count from the middle.
fn are_centred(stored: Stored, scheme: Scheme, scales: &[u8], biases: &[u8]) -> bool {
    let centre = centre_of(scheme);
    // A power of two: the product is exact in every float that holds the scale and does not overflow.
    match stored {
        Stored::F32 => are_multiples(scales, biases, centre, f32::from_le_bytes),
        Stored::F16 => are_multiples(scales, biases, centre, |at| f16::from_le_bytes(at).to_f32()),
        Stored::BF16 => are_multiples(scales, biases, centre, |at| bf16::from_le_bytes(at).to_f32()),
    }
}

/// Whether every bias is its scale times a factor. All weights of a model are looked at when it is loaded, so
/// that this must be quick: a part at a time, without a way out of the middle, is a loop over vectors.
fn are_multiples<const SIZE: usize>(
    scales: &[u8],
    biases: &[u8],
    factor: f32,
    float: impl Fn([u8; SIZE]) -> f32,
) -> bool {
    const PART: usize = 1024;
    let (scales, biases) = (scales.as_chunks::<SIZE>().0, biases.as_chunks::<SIZE>().0);
    scales.chunks(PART).zip(biases.chunks(PART)).all(|(scales, biases)| {
        let is_multiple = |(&scale, &bias)| float(bias) == factor * float(scale);
        scales.iter().zip(biases).map(is_multiple).fold(true, |all, one| all & one)
    })
}

/// What a code stands for before it is scaled.
pub(super) fn element(elements: Elements, code: u8) -> f32 {
    match elements {
        Elements::Unsigned => f32::from(code),
        Elements::DoubledE2M1 => 2.0 * pteron_tensor::quant::codes::e2m1(code),
        Elements::E4M3 => pteron_tensor::quant::codes::e4m3fn(code),
    }
}

/// Byte scales as bf16, which holds every e8m0 and e4m3fn number and half of it exactly: kernels then know
/// three kinds of scales, not five.
fn small_scales(scheme: Scheme, elements: Elements, bytes: &[u8]) -> Bytes {
    let factor = if elements == Elements::DoubledE2M1 { 0.5 } else { 1.0 };
    let table: [[u8; 2]; 256] =
        std::array::from_fn(|byte| bf16::from_f32(factor * scheme.scale(byte as u8)).to_le_bytes());
    let mut scales = Bytes::zeroed(bytes.len() * 2);
    for (scale, &byte) in scales.make_mut().chunks_exact_mut(2).zip(bytes) {
        scale.copy_from_slice(&table[usize::from(byte)]);
    }
    scales
}

fn widened(stored: Stored, bytes: &[u8]) -> Bytes {
    let count = bytes.len() / stored.size();
    let mut wide = Bytes::zeroed(count * 4);
    for (index, to) in wide.make_mut().chunks_exact_mut(4).enumerate() {
        to.copy_from_slice(&stored.get(bytes, index).to_le_bytes());
    }
    wide
}
