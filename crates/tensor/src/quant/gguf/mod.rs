//! GGUF's block formats: a row is a sequence of blocks, each with its own scales, and a block gives a fixed
//! number of values. A further format is one more entry in [`BlockFormat`] and one function from block to
//! codes.
//!
//! Every quantised block is groups of unsigned codes that stand for `code * scale + bias`, so one function a format
//! serves both those who want numbers and those who keep the codes. Scales are short (an f16 times a few bits), so
//! nothing is rounded on the way but the last sum, exactly where the format's own arithmetic rounds.

mod blocks;
mod grids;
mod looked_up;

use super::{QuantError, expect_length};
use half::{bf16, f16};

/// Values of a K-quant's super-block.
const SUPER: usize = 256;

/// How a row of GGUF data is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)] // ggml's own names, where `Q40` would mislead
pub enum BlockFormat {
    /// One f32.
    F32,
    /// One f16.
    F16,
    /// One bf16.
    BF16,
    /// 4 bits around 8, groups of 32.
    Q4_0,
    /// 4 bits with a minimum, groups of 32.
    Q4_1,
    /// 5 bits around 16, groups of 32.
    Q5_0,
    /// 5 bits with a minimum, groups of 32.
    Q5_1,
    /// 8 bits with a sign, groups of 32.
    Q8_0,
    /// 2 bits, sixteen groups of 16 with 4-bit scales and minima.
    Q2K,
    /// 3 bits around 4, sixteen groups of 16 with 6-bit scales.
    Q3K,
    /// 4 bits, eight groups of 32 with 6-bit scales and minima.
    Q4K,
    /// 5 bits, the same groups.
    Q5K,
    /// 6 bits, sixteen groups of 16 with 8-bit scales.
    Q6K,
    /// Five digits of -1, 0 and 1 a byte.
    TQ1_0,
    /// Four of them a byte, 2 bits each.
    TQ2_0,
    /// Sixteen levels that lie closer around zero, groups of 32.
    IQ4_NL,
    /// The same, eight groups of 32 with 6-bit scales.
    IQ4_XS,
    /// Eight values a byte from a list of 256, signs with an even number of minuses.
    IQ2_XXS,
    /// Eight values by 9 bits from a list of 512, groups of 16.
    IQ2_XS,
    /// Eight values by 10 bits from a list of 1024 and a byte of signs, groups of 16.
    IQ2_S,
    /// Four values a byte from a list of 256, signs with an even number of minuses.
    IQ3_XXS,
    /// Four values by 9 bits from a list of 512 and signs, groups of 32.
    IQ3_S,
    /// Eight values of -1, 0 and 1 by 11 bits from a list of 2048, moved by an eighth, groups of 32.
    IQ1_S,
    /// The same with a direction for every eight values, groups of 16.
    IQ1_M,
    /// 4-bit floats, groups of 32 with a power of two.
    MXFP4,
    /// 4-bit floats, groups of 16 with an 8-bit float.
    NVFP4,
    /// A sign a value, groups of 128.
    Q1_0,
    /// 2 bits around 1, groups of 64.
    Q2_0,
}

/// What a format's blocks are as groups of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Bits of a code, which may be more than the file spends on a value.
    pub bits: u32,
    /// Values that share a scale.
    pub group: usize,
    /// Whether biases follow from scales: the code in the middle, `2^(bits - 1)`, stands for zero.
    pub is_centred: bool,
    /// Whether scales and biases are f16 numbers; else they need f32.
    pub has_half_scales: bool,
}

/// Where the groups of a row go; each part has as many places as the row has values or groups.
#[derive(Debug)]
pub struct GroupsMut<'a> {
    /// A code a value.
    pub codes: &'a mut [u8],
    /// A scale a group.
    pub scales: &'a mut [f32],
    /// A bias a group.
    pub biases: &'a mut [f32],
}

impl BlockFormat {
    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            BlockFormat::F32 => 4,
            BlockFormat::F16 | BlockFormat::BF16 => 2,
            BlockFormat::Q4_0 => 18,
            BlockFormat::Q4_1 => 20,
            BlockFormat::Q5_0 => 22,
            BlockFormat::Q5_1 => 24,
            BlockFormat::Q8_0 => 34,
            BlockFormat::Q2K => 84,
            BlockFormat::Q3K => 110,
            BlockFormat::Q4K => 144,
            BlockFormat::Q5K => 176,
            BlockFormat::Q6K => 210,
            BlockFormat::TQ1_0 => 54,
            BlockFormat::TQ2_0 => 66,
            BlockFormat::IQ4_NL => 18,
            BlockFormat::IQ4_XS => 136,
            BlockFormat::IQ2_XXS => 66,
            BlockFormat::IQ2_XS => 74,
            BlockFormat::IQ2_S => 82,
            BlockFormat::IQ3_XXS => 98,
            BlockFormat::IQ3_S => 110,
            BlockFormat::IQ1_S => 50,
            BlockFormat::IQ1_M => 56,
            BlockFormat::MXFP4 => 17,
            BlockFormat::NVFP4 => 36,
            BlockFormat::Q1_0 | BlockFormat::Q2_0 => 18,
        }
    }

    /// Values of a block.
    pub fn block_len(self) -> usize {
        match self {
            BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16 => 1,
            BlockFormat::Q4_0
            | BlockFormat::Q4_1
            | BlockFormat::Q5_0
            | BlockFormat::Q5_1
            | BlockFormat::Q8_0
            | BlockFormat::IQ4_NL
            | BlockFormat::MXFP4 => 32,
            BlockFormat::NVFP4 | BlockFormat::Q2_0 => 64,
            BlockFormat::Q1_0 => 128,
            _ => SUPER,
        }
    }

    /// What its blocks are as groups of codes; nothing for plain floats.
    pub fn groups(self) -> Option<Groups> {
        let (bits, group, is_centred, has_half_scales) = match self {
            BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16 => return None,
            BlockFormat::Q4_0 => (4, 32, true, true),
            BlockFormat::Q4_1 => (4, 32, false, true),
            BlockFormat::Q5_0 => (5, 32, true, true),
            BlockFormat::Q5_1 => (5, 32, false, true),
            BlockFormat::Q8_0 => (8, 32, true, true),
            BlockFormat::Q2K => (2, 16, false, false),
            BlockFormat::Q3K => (3, 16, true, false),
            BlockFormat::Q4K => (4, 32, false, false),
            BlockFormat::Q5K => (5, 32, false, false),
            BlockFormat::Q6K => (6, 16, true, false),
            BlockFormat::TQ1_0 | BlockFormat::TQ2_0 => (2, 128, false, true),
            // Levels that are no even steps, in as many bits as the steps between them take.
            BlockFormat::IQ4_NL => (8, 32, true, true),
            BlockFormat::IQ4_XS | BlockFormat::IQ2_XXS | BlockFormat::IQ3_XXS => (8, 32, true, false),
            BlockFormat::IQ2_XS | BlockFormat::IQ2_S => (8, 16, true, false),
            BlockFormat::IQ3_S | BlockFormat::IQ1_S | BlockFormat::MXFP4 => (5, 32, true, false),
            BlockFormat::IQ1_M | BlockFormat::NVFP4 => (5, 16, true, false),
            BlockFormat::Q1_0 => (2, 128, false, false),
            BlockFormat::Q2_0 => (2, 64, false, true),
        };
        Some(Groups { bits, group, is_centred, has_half_scales })
    }

    /// Bytes of a row of `len` values, which must be whole blocks.
    pub fn row_bytes(self, len: usize) -> Result<usize, QuantError> {
        if !len.is_multiple_of(self.block_len()) {
            return Err(QuantError::Row { len, what: format!("blocks of {}", self.block_len()) });
        }
        Ok(len / self.block_len() * self.block_bytes())
    }

    /// Takes a row of quantised blocks apart, without loss.
    pub fn split(self, row: &[u8], into: &mut GroupsMut<'_>) -> Result<(), QuantError> {
        let len = into.codes.len();
        expect_length("bytes", row.len(), self.row_bytes(len)?)?;
        let group = self.groups().map_or(len.max(1), |groups| groups.group);
        expect_length("scales", into.scales.len(), len / group)?;
        expect_length("biases", into.biases.len(), len / group)?;
        let groups = self.block_len() / group;
        for (i, block) in row.chunks_exact(self.block_bytes()).enumerate() {
            blocks::split(
                self,
                block,
                GroupsMut {
                    codes: &mut into.codes[i * self.block_len()..][..self.block_len()],
                    scales: &mut into.scales[i * groups..][..groups],
                    biases: &mut into.biases[i * groups..][..groups],
                },
            );
        }
        Ok(())
    }

    /// Takes a row of MXFP4 apart as MLX has it: a 4-bit float a value, and the byte of a power of two a group.
    pub fn split_floats(row: &[u8], codes: &mut [u8], powers: &mut [u8]) -> Result<(), QuantError> {
        let format = BlockFormat::MXFP4;
        expect_length("bytes", row.len(), format.row_bytes(codes.len())?)?;
        expect_length("powers", powers.len(), codes.len() / format.block_len())?;
        let blocks = row.chunks_exact(format.block_bytes()).zip(codes.chunks_exact_mut(format.block_len()));
        for ((block, codes), power) in blocks.zip(powers) {
            *power = block[0];
            blocks::nibbles(&block[1..], codes);
        }
        Ok(())
    }

    /// Writes the numbers of one row.
    pub fn dequantise(self, row: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
        expect_length("bytes", row.len(), self.row_bytes(out.len())?)?;
        let Some(Groups { group, .. }) = self.groups() else {
            self.widen(row, out);
            return Ok(());
        };
        let (mut codes, mut scales, mut biases) = ([0; SUPER], [0.0; SUPER / 16], [0.0; SUPER / 16]);
        let (len, count) = (self.block_len(), self.block_len() / group);
        for (block, out) in row.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(len)) {
            let codes = &mut codes[..len];
            let (scales, biases) = (&mut scales[..count], &mut biases[..count]);
            blocks::split(self, block, GroupsMut { codes, scales, biases });
            let groups = codes.chunks_exact(group).zip(out.chunks_exact_mut(group));
            for ((codes, out), (scale, bias)) in groups.zip(scales.iter().zip(&*biases)) {
                for (out, &code) in out.iter_mut().zip(codes.iter()) {
                    *out = f32::from(code) * scale + bias;
                }
            }
        }
        Ok(())
    }

    fn widen(self, row: &[u8], out: &mut [f32]) {
        for (bytes, out) in row.chunks_exact(self.block_bytes()).zip(out) {
            *out = match (self, bytes) {
                (BlockFormat::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
                (BlockFormat::BF16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
                (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
                _ => f32::NAN,
            };
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
    fn small_blocks_follow_the_element_formula() {
        let formats = [
            (BlockFormat::Q4_0, 2, 8.0, 0.0),
            (BlockFormat::Q4_1, 4, 0.0, 1.5),
            (BlockFormat::Q5_0, 6, 16.0, 0.0),
            (BlockFormat::Q5_1, 8, 0.0, 1.5),
        ];
        for (format, nibbles, zero, minimum) in formats {
            let has_minimum = minimum != 0.0;
            let block = arbitrary(format, if has_minimum { &[0, 2] } else { &[0] });
            for (p, &got) in decoded(format, &block).iter().enumerate() {
                let byte = block[nibbles + p % 16];
                let mut code = if p < 16 { byte % 16 } else { byte / 16 };
                if nibbles > 4 && block[nibbles - 4 + p / 8] & (1 << (p % 8)) != 0 {
                    code += 16;
                }
                assert_eq!(got, 0.5 * (f32::from(code) - zero) + minimum, "{format:?} value {p}");
            }
        }
        let block = arbitrary(BlockFormat::Q8_0, &[0]);
        for (p, &got) in decoded(BlockFormat::Q8_0, &block).iter().enumerate() {
            assert_eq!(got, 0.5 * f32::from(block[2 + p] as i8), "Q8_0 value {p}");
        }
    }

    #[test]
    fn q2_and_q3_blocks_follow_the_element_formula() {
        let (two, three) = (arbitrary(BlockFormat::Q2K, &[80, 82]), arbitrary(BlockFormat::Q3K, &[108]));
        for (p, &got) in decoded(BlockFormat::Q2K, &two).iter().enumerate() {
            let code = two[16 + p / 128 * 32 + p % 32] >> (p % 128 / 32 * 2) & 3;
            let scale = two[p / 16];
            let want = 0.5 * f32::from(scale % 16) * f32::from(code) - 1.5 * f32::from(scale / 16);
            assert_eq!(got, want, "Q2_K value {p}");
        }
        for (p, &got) in decoded(BlockFormat::Q3K, &three).iter().enumerate() {
            let low = three[32 + p / 128 * 32 + p % 32] >> (p % 128 / 32 * 2) & 3;
            let code = if three[p % 32] & (1 << (p / 32)) == 0 { low as i8 - 4 } else { low as i8 };
            let scales = &three[96..108];
            let g = p / 16;
            let nibble = if g < 8 { scales[g] % 16 } else { scales[g - 8] / 16 };
            let scale = (nibble + (scales[8 + g % 4] >> (g / 4 * 2)) % 4 * 16) as i8 - 32;
            assert_eq!(got, 0.5 * f32::from(scale) * f32::from(code), "Q3_K value {p}");
        }
    }

    #[test]
    fn floats_are_widened() {
        for (format, bytes, want) in [
            (BlockFormat::F32, 1.25f32.to_le_bytes().to_vec(), 1.25),
            (BlockFormat::F16, f16::from_f32(-0.5).to_le_bytes().to_vec(), -0.5),
            (BlockFormat::BF16, bf16::from_f32(3.0).to_le_bytes().to_vec(), 3.0),
        ] {
            assert_eq!(decoded(format, &bytes), [want]);
        }
    }

    #[test]
    fn rows_that_are_not_whole_blocks_are_refused() {
        assert!(BlockFormat::Q4K.dequantise(&[0; 144], &mut [0.0; 255]).is_err());
        assert!(BlockFormat::Q6K.dequantise(&[0; 209], &mut [0.0; 256]).is_err());
        BlockFormat::Q5K.dequantise(&[], &mut []).unwrap();
    }
}
