//! GGUF's block formats: a row is a sequence of blocks, each with its own scales, and a block gives a fixed
//! number of values. A further format is one more entry in [`BlockFormat`] and one function from block to
//! values.

use super::{QuantError, expect_length};
use half::f16;

/// Values of a K-quant's super-block.
const SUPER: usize = 256;

/// How a row of GGUF data is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFormat {
    /// 4 bits, eight groups of 32 with 6-bit scales and minima.
    Q4K,
    /// 5 bits, the same groups.
    Q5K,
    /// 6 bits, sixteen groups of 16 with 8-bit scales.
    Q6K,
}

impl BlockFormat {
    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            BlockFormat::Q4K => 144,
            BlockFormat::Q5K => 176,
            BlockFormat::Q6K => 210,
        }
    }

    /// Values of a block.
    pub fn block_len(self) -> usize {
        SUPER
    }

    /// Bytes of a row of `len` values, which must be whole blocks.
    pub fn row_bytes(self, len: usize) -> Result<usize, QuantError> {
        if !len.is_multiple_of(self.block_len()) {
            return Err(QuantError::Row { len, what: format!("blocks of {}", self.block_len()) });
        }
        Ok(len / self.block_len() * self.block_bytes())
    }

    /// Writes the numbers of one row.
    pub fn dequantise(self, row: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
        expect_length("bytes", row.len(), self.row_bytes(out.len())?)?;
        let blocks = row.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_len()));
        for (block, out) in blocks {
            match self {
                BlockFormat::Q4K => q4_k(block, out),
                BlockFormat::Q5K => q5_k(block, out),
                BlockFormat::Q6K => q6_k(block, out),
            }
        }
        Ok(())
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The 6-bit scale and minimum of group `g` of eight: the first four groups have a byte each, whose upper two
/// bits belong to the last four groups; the lower four bits of those follow as nibbles.
fn scale_and_minimum(packed: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        (packed[g] & 63, packed[g + 4] & 63)
    } else {
        (packed[g + 4] & 15 | packed[g - 4] >> 6 << 4, packed[g + 4] >> 4 | packed[g] >> 6 << 4)
    }
}

/// f16 scale, f16 minimum scale, 12 bytes of group scales, 128 bytes of nibbles: each 32 bytes hold one group
/// in their low and the next one in their high nibbles.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (g, out) in out.chunks_exact_mut(32).enumerate() {
        let (s, m) = scale_and_minimum(&block[4..16], g);
        let (s, m) = (scale * f32::from(s), minimum * f32::from(m));
        let shift = 4 * (g % 2);
        for (out, byte) in out.iter_mut().zip(&block[16 + g / 2 * 32..][..32]) {
            *out = s * f32::from(byte >> shift & 15) - m;
        }
    }
}

/// Q4_K with 32 bytes of fifth bits before the nibbles: bit `g` of byte `j` belongs to value `j` of group `g`.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    let fifth = &block[16..48];
    for (g, out) in out.chunks_exact_mut(32).enumerate() {
        let (s, m) = scale_and_minimum(&block[4..16], g);
        let (s, m) = (scale * f32::from(s), minimum * f32::from(m));
        let shift = 4 * (g % 2);
        for ((out, byte), fifth) in out.iter_mut().zip(&block[48 + g / 2 * 32..][..32]).zip(fifth) {
            *out = s * f32::from(byte >> shift & 15 | (fifth >> g & 1) << 4) - m;
        }
    }
}

/// 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, one f16 scale. Two halves of 128 values; in a
/// half, row `r` of four takes its nibbles from 32 of 64 bytes (low ones first, then high) and its pairs from
/// bits `2 * r`.
fn q6_k(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 208);
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let (half, r, first) = (group / 8, group / 2 % 4, group % 2 * 16);
        let low = &block[64 * half + 32 * (r % 2) + first..][..16];
        let high = &block[128 + 32 * half + first..][..16];
        let (low_shift, high_shift) = (4 * (r / 2), 2 * r);
        let scale = scale * f32::from(block[192 + group].cast_signed());
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            let code = low >> low_shift & 15 | (high >> high_shift & 3) << 4;
            *out = scale * (f32::from(code) - 32.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(format: BlockFormat, block: &[u8]) -> Vec<f32> {
        let mut out = vec![0.0; format.block_len()];
        format.dequantise(block, &mut out).unwrap();
        out
    }

    /// Bytes of a plain generator, with sane f16 scales where the format has them.
    fn arbitrary(format: BlockFormat, halves: &[usize]) -> Vec<u8> {
        let mut state = 12345u32;
        let mut block: Vec<u8> = (0..format.block_bytes())
            .map(|_| {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                (state >> 24) as u8
            })
            .collect();
        for (i, &at) in halves.iter().enumerate() {
            block[at..at + 2].copy_from_slice(&f16::from_f32(0.5 + i as f32).to_le_bytes());
        }
        block
    }

    /// The element-wise formula of the format: value at `p`, written the other way round than the decoder.
    #[test]
    fn q4_and_q5_blocks_follow_the_element_formula() {
        for (format, nibbles) in [(BlockFormat::Q4K, 16), (BlockFormat::Q5K, 48)] {
            let block = arbitrary(format, &[0, 2]);
            for (p, &got) in decoded(format, &block).iter().enumerate() {
                let (chunk, within) = (p / 64, p % 64);
                let byte = block[nibbles + 32 * chunk + within % 32];
                let mut code = if within < 32 { byte & 15 } else { byte >> 4 };
                if format == BlockFormat::Q5K && block[16 + p % 32] & (1 << (p / 32)) != 0 {
                    code += 16;
                }
                let scales = &block[4..16];
                let g = p / 32;
                let (s, m) = match g {
                    0..=3 => (scales[g] % 64, scales[g + 4] % 64),
                    _ => (
                        scales[g + 4] % 16 + scales[g - 4] / 64 * 16,
                        scales[g + 4] / 16 + scales[g] / 64 * 16,
                    ),
                };
                let want = 0.5 * f32::from(s) * f32::from(code) - 1.5 * f32::from(m);
                assert_eq!(got, want, "{format:?} value {p}");
            }
        }
    }

    #[test]
    fn q6_blocks_follow_the_element_formula() {
        let block = arbitrary(BlockFormat::Q6K, &[208]);
        for (p, &got) in decoded(BlockFormat::Q6K, &block).iter().enumerate() {
            let (half, within) = (p / 128, p % 128);
            let (quarter, l) = (within / 32, within % 32);
            let (low, high) = (&block[64 * half..], block[128 + 32 * half + l]);
            let code = match quarter {
                0 => low[l] & 15 | (high & 0x03) << 4,
                1 => low[l + 32] & 15 | (high & 0x0c) << 2,
                2 => low[l] >> 4 | high & 0x30,
                _ => low[l + 32] >> 4 | (high & 0xc0) >> 2,
            };
            let scale = block[192 + 8 * half + 2 * quarter + l / 16] as i8;
            assert_eq!(got, 0.5 * f32::from(scale) * (f32::from(code) - 32.0), "value {p}");
        }
    }

    #[test]
    fn rows_that_are_not_whole_blocks_are_refused() {
        assert!(BlockFormat::Q4K.dequantise(&[0; 144], &mut [0.0; 255]).is_err());
        assert!(BlockFormat::Q6K.dequantise(&[0; 209], &mut [0.0; 256]).is_err());
        BlockFormat::Q5K.dequantise(&[], &mut []).unwrap();
    }
}
