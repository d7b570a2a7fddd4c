//! GGUF's k-quants as affine codes: bytes of super-blocks flow in, one code an element with a scale and an offset a
//! group flow out. `value = code * scale + offset`, exactly, in f32.

use super::error::{Lowered, Refusal};
use half::f16;

/// A matrix of codes.
pub(super) struct Codes {
    /// One an element, row-major.
    pub(super) codes: Vec<u8>,
    /// One a group.
    pub(super) scales: Vec<f32>,
    /// One a group.
    pub(super) offsets: Vec<f32>,
    pub(super) bits: u32,
    pub(super) group: usize,
}

const SUPER_BLOCK: usize = 256;
/// Bytes of a super-block's twelve packed scales and minima.
const PACKED_SCALES: usize = 12;

/// Reads rows of super-blocks of a format by its name in ggml.
pub(super) fn read(format: &str, raw: &[u8]) -> Lowered<Codes> {
    let (bits, group, bytes) = match format {
        "q4_k" => (4, 32, 144),
        "q5_k" => (5, 32, 176),
        "q6_k" => (6, 16, 210),
        other => return Err(Refusal::because(format!("GGUF blocks of type {other:?}"))),
    };
    if !raw.len().is_multiple_of(bytes) {
        return Err(Refusal::because(format!("{} bytes are no whole blocks of {format}", raw.len())));
    }
    let blocks = raw.len() / bytes;
    let mut all = Codes {
        codes: Vec::with_capacity(blocks * SUPER_BLOCK),
        scales: Vec::with_capacity(blocks * SUPER_BLOCK / group),
        offsets: Vec::with_capacity(blocks * SUPER_BLOCK / group),
        bits,
        group,
    };
    for block in raw.chunks_exact(bytes) {
        match bits {
            6 => six_bits(block, &mut all),
            _ => four_or_five_bits(block, bits, &mut all),
        }
    }
    Ok(all.merged())
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The 6-bit scale and minimum of one of eight groups.
fn scale_and_minimum(packed: &[u8], group: usize) -> (u8, u8) {
    match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => (
            packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
            packed[group + 4] >> 4 | packed[group] >> 6 << 4,
        ),
    }
}

/// d, dmin, scales, for five bits 32 bytes of high bits, then 128 bytes of nibbles.
fn four_or_five_bits(block: &[u8], bits: u32, all: &mut Codes) {
    let (d, minimum) = (half_at(block, 0), half_at(block, 2));
    let (packed, rest) = block[4..].split_at(PACKED_SCALES);
    let (high, low) = if bits == 5 { rest.split_at(32) } else { (&[][..], rest) };
    for group in 0..8 {
        let (scale, least) = scale_and_minimum(packed, group);
        all.scales.push(d * f32::from(scale));
        all.offsets.push(-minimum * f32::from(least));
        for (at, byte) in low[group / 2 * 32..][..32].iter().enumerate() {
            let nibble = if group % 2 == 0 { byte & 15 } else { byte >> 4 };
            let top = high.get(at).map_or(0, |byte| (byte >> group & 1) << 4);
            all.codes.push(nibble | top);
        }
    }
}

/// 128 bytes of low nibbles, 64 of high pairs, sixteen signed scales, d. Codes are offset by 32.
fn six_bits(block: &[u8], all: &mut Codes) {
    let d = half_at(block, 208);
    for half in 0..2 {
        let (low, high) = (&block[half * 64..][..64], &block[128 + half * 32..][..32]);
        for quarter in 0..4 {
            for at in 0..32 {
                let byte = low[quarter % 2 * 32 + at];
                let nibble = if quarter < 2 { byte & 15 } else { byte >> 4 };
                all.codes.push(nibble | (high[at] >> (2 * quarter) & 3) << 4);
            }
        }
    }
    for scale in &block[192..208] {
        let scale = d * f32::from(*scale as i8);
        all.scales.push(scale);
        all.offsets.push(-32.0 * scale);
    }
}

impl Codes {
    /// Groups of 16 as groups of 32 where all neighbours agree: matrix products take no smaller ones.
    fn merged(mut self) -> Codes {
        let agree =
            |values: &[f32]| values.chunks_exact(2).all(|pair| pair[0].to_bits() == pair[1].to_bits());
        if self.group == 16 && agree(&self.scales) && agree(&self.offsets) {
            self.group = 32;
            self.scales = self.scales.into_iter().step_by(2).collect();
            self.offsets = self.offsets.into_iter().step_by(2).collect();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_tensor::quant::BlockFormat;

    #[test]
    fn codes_stand_for_the_numbers_of_the_blocks() {
        let formats = [("q4_k", BlockFormat::Q4K), ("q5_k", BlockFormat::Q5K), ("q6_k", BlockFormat::Q6K)];
        for (name, format) in formats {
            let mut state = 7u32;
            let mut raw: Vec<u8> = (0..format.block_bytes() * 3)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            // Scales of any bits may be infinite; these are not.
            for block in raw.chunks_exact_mut(format.block_bytes()) {
                let at = if name == "q6_k" { 208 } else { 0 };
                block[at..at + 2].copy_from_slice(&f16::from_f32(0.37).to_le_bytes());
                if name != "q6_k" {
                    block[2..4].copy_from_slice(&f16::from_f32(-1.5).to_le_bytes());
                }
            }
            let mut want = vec![0.0; SUPER_BLOCK * 3];
            format.dequantise(&raw, &mut want).unwrap();
            let codes = read(name, &raw).unwrap();
            for (at, want) in want.iter().enumerate() {
                let group = at / codes.group;
                let got = f32::from(codes.codes[at]) * codes.scales[group] + codes.offsets[group];
                assert!((got - want).abs() <= 1e-4 * want.abs().max(1.0), "{name} {at}: {got} {want}");
            }
        }
    }
}
