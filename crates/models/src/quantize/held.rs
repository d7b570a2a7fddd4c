//! A weight that comes packed, read whole so that its numbers can be packed anew.

use std::io;

use half::{bf16, f16};
use pteron_tensor::DType;
use pteron_tensor::quant::{Mode, packed};

use super::Packing;
use crate::{Part, Wanted, WeightSource};

/// The parts of a packed weight.
pub(super) struct Held {
    packing: Packing,
    columns: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    factor: f32,
}

/// What one row needs beside its result; kept from row to row.
#[derive(Default)]
pub(super) struct Scratch {
    words: Vec<u32>,
    codes: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl Held {
    pub(super) fn read(
        source: &dyn WeightSource,
        name: &str,
        [rows, columns]: [usize; 2],
        packing: Packing,
    ) -> io::Result<Held> {
        let read = |part: Part| -> io::Result<Vec<u8>> {
            let Some((dtype, sizes)) = packing.part(rows, columns, part) else { return Ok(vec![]) };
            let wanted = sizes.iter().product::<usize>() * dtype.size();
            let mut bytes = Vec::with_capacity(wanted);
            source.packed(Wanted::new(name, &[rows, columns]), packing, part, &mut bytes)?;
            match bytes.len() == wanted {
                true => Ok(bytes),
                false => {
                    Err(io::Error::other(format!("{name}: {} bytes where {wanted} are needed", bytes.len())))
                }
            }
        };
        let factor = read(Part::TensorScale)?;
        let factor = if factor.is_empty() { 1.0 } else { float_at(&factor, 0, packing.scales) };
        let (codes, scales, biases) = (read(Part::Codes)?, read(Part::Scales)?, read(Part::Biases)?);
        Ok(Held { packing, columns, codes, scales, biases, factor })
    }

    /// The numbers of a row.
    pub(super) fn row(&self, at: usize, scratch: &mut Scratch, out: &mut [f32]) -> io::Result<()> {
        let scheme = self.packing.scheme();
        let words = packed::words(self.columns, scheme.bits()).map_err(io::Error::other)?;
        let groups = self.columns / scheme.group();
        let row = self.codes.get(at * words * 4..(at + 1) * words * 4).unwrap_or_default();
        let (row, _) = row.as_chunks::<4>();
        scratch.words.clear();
        scratch.words.extend(row.iter().map(|bytes| u32::from_le_bytes(*bytes)));
        scratch.scales.clear();
        scratch.biases.clear();
        for group in at * groups..(at + 1) * groups {
            let scale = match scheme.mode() {
                Mode::Affine => float_at(&self.scales, group, self.packing.scales),
                _ => scheme.scale(self.scales[group]),
            };
            scratch.scales.push(scale);
            if self.packing.zero_points() {
                scratch.biases.push(float_at(&self.biases, group, self.packing.scales));
            } else if self.packing.is_centred() {
                scratch.biases.push(-self.packing.half() * scale);
            }
        }
        scheme
            .dequantise(&scratch.words, &scratch.scales, &scratch.biases, &mut scratch.codes, out)
            .map_err(io::Error::other)?;
        out.iter_mut().for_each(|value| *value *= self.factor);
        Ok(())
    }
}

/// A float of a dtype among its bytes.
fn float_at(bytes: &[u8], index: usize, dtype: DType) -> f32 {
    let at = &bytes[index * dtype.size()..];
    match dtype {
        DType::F16 => f16::from_le_bytes([at[0], at[1]]).to_f32(),
        DType::BF16 => bf16::from_le_bytes([at[0], at[1]]).to_f32(),
        _ => f32::from_le_bytes([at[0], at[1], at[2], at[3]]),
    }
}
