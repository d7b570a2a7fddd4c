//! One function a format: a block as groups of codes with their scales and biases. Blocks have their format's length.

use super::{BlockFormat, GroupsMut, looked_up};
use half::f16;

pub(super) fn split(format: BlockFormat, block: &[u8], out: GroupsMut<'_>) {
    match format {
        // Plain floats have no codes.
        BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16 => {}
        BlockFormat::Q4_0 => q4(block, 2, centred(block, 8.0), out),
        BlockFormat::Q4_1 => q4(block, 4, (half_at(block, 0), half_at(block, 2)), out),
        BlockFormat::Q5_0 => q5(block, 2, centred(block, 16.0), out),
        BlockFormat::Q5_1 => q5(block, 4, (half_at(block, 0), half_at(block, 2)), out),
        BlockFormat::Q8_0 => q8_0(block, out),
        BlockFormat::Q2K => q2_k(block, out),
        BlockFormat::Q3K => q3_k(block, out),
        BlockFormat::Q4K => q4_k(block, out),
        BlockFormat::Q5K => q5_k(block, out),
        BlockFormat::Q6K => q6_k(block, out),
        BlockFormat::TQ1_0 => tq1_0(block, out),
        BlockFormat::TQ2_0 => tq2_0(block, out),
        BlockFormat::Q1_0 => q1_0(block, out),
        BlockFormat::Q2_0 => q2_0(block, out),
        BlockFormat::IQ4_NL => looked_up::iq4_nl(block, out),
        BlockFormat::IQ4_XS => looked_up::iq4_xs(block, out),
        BlockFormat::IQ2_XXS => looked_up::iq2_xxs(block, out),
        BlockFormat::IQ2_XS => looked_up::iq2_xs(block, out),
        BlockFormat::IQ2_S => looked_up::iq2_s(block, out),
        BlockFormat::IQ3_XXS => looked_up::iq3_xxs(block, out),
        BlockFormat::IQ3_S => looked_up::iq3_s(block, out),
        BlockFormat::IQ1_S => looked_up::iq1_s(block, out),
        BlockFormat::IQ1_M => looked_up::iq1_m(block, out),
        BlockFormat::MXFP4 => looked_up::mxfp4(block, out),
        BlockFormat::NVFP4 => looked_up::nvfp4(block, out),
    }
}

pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The scale at the front of a block, and the bias with which the code `zero` stands for 0.
fn centred(block: &[u8], zero: f32) -> (f32, f32) {
    let scale = half_at(block, 0);
    (scale, -zero * scale)
}

pub(super) fn set(out: &mut GroupsMut<'_>, group: usize, (scale, bias): (f32, f32)) {
    out.scales[group] = scale;
    out.biases[group] = bias;
}

/// Sixteen bytes at `at`.
fn q4(block: &[u8], at: usize, scale: (f32, f32), mut out: GroupsMut<'_>) {
    set(&mut out, 0, scale);
    nibbles(&block[at..], out.codes);
}

/// Low nibbles are the first half of the codes, high nibbles the second.
pub(super) fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(codes.len() / 2);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// Four bytes of fifth bits at `at`, in the order of values, then nibbles as in [`q4`].
fn q5(block: &[u8], at: usize, scale: (f32, f32), mut out: GroupsMut<'_>) {
    let fifth = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let GroupsMut { codes, scales, biases } = &mut out;
    q4(block, at + 4, scale, GroupsMut { codes, scales, biases });
    for (j, code) in out.codes.iter_mut().enumerate() {
        *code |= ((fifth >> j & 1) as u8) << 4;
    }
}

/// A scale and 32 numbers with a sign, which become codes around 128.
fn q8_0(block: &[u8], mut out: GroupsMut<'_>) {
    set(&mut out, 0, centred(block, 128.0));
    for (byte, code) in block[2..].iter().zip(out.codes) {
        *code = byte ^ 0x80;
    }
}

/// Where the 2-bit part of group `g` of sixteen lies among 64 bytes: its first byte and its shift. Two halves of 128
/// values; in a half, 32 bytes hold four rows of 32, one above the other.
fn pairs_of(g: usize) -> (usize, usize) {
    (g / 8 * 32 + g % 2 * 16, g % 8 / 2 * 2)
}

/// 16 bytes of 4-bit scales and minima, 64 of pairs, f16 scale, f16 scale of minima.
fn q2_k(block: &[u8], mut out: GroupsMut<'_>) {
    let (scale, minimum) = (half_at(block, 80), half_at(block, 82));
    for g in 0..16 {
        let (s, m) = (block[g] & 15, block[g] >> 4);
        set(&mut out, g, (scale * f32::from(s), -(minimum * f32::from(m))));
        let (first, shift) = pairs_of(g);
        for (code, byte) in out.codes[g * 16..][..16].iter_mut().zip(&block[16 + first..]) {
            *code = byte >> shift & 3;
        }
    }
}

/// 32 bytes of third bits (bit `r` of byte `j` belongs to value `j` of row `r` of eight), 64 of pairs, 12 of 6-bit scales
/// around 32, f16 scale. Scales: low nibbles of 8 bytes, then their high nibbles; upper pairs from the last 4 bytes.
fn q3_k(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 108);
    let scales = &block[96..108];
    for g in 0..16 {
        let low = scales[g % 8] >> (g / 8 * 4) & 15;
        let high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
        let scale = scale * (f32::from(low | high << 4) - 32.0);
        set(&mut out, g, (scale, -4.0 * scale));
        let (first, shift) = pairs_of(g);
        let third = &block[g % 2 * 16..][..16];
        let codes = out.codes[g * 16..][..16].iter_mut();
        for ((code, byte), third) in codes.zip(&block[32 + first..]).zip(third) {
            *code = byte >> shift & 3 | (third >> (g / 2) & 1) << 2;
        }
    }
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
fn q4_k(block: &[u8], mut out: GroupsMut<'_>) {
    k_scales(block, &mut out);
    for (g, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        for (code, byte) in codes.iter_mut().zip(&block[16 + g / 2 * 32..]) {
            *code = byte >> (4 * (g % 2)) & 15;
        }
    }
}

/// Q4_K with 32 bytes of fifth bits before the nibbles: bit `g` of byte `j` belongs to value `j` of group `g`.
fn q5_k(block: &[u8], mut out: GroupsMut<'_>) {
    k_scales(block, &mut out);
    for (g, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        let nibbles = &block[48 + g / 2 * 32..];
        for ((code, byte), fifth) in codes.iter_mut().zip(nibbles).zip(&block[16..48]) {
            *code = byte >> (4 * (g % 2)) & 15 | (fifth >> g & 1) << 4;
        }
    }
}

/// Scales and biases of Q4_K and Q5_K.
fn k_scales(block: &[u8], out: &mut GroupsMut<'_>) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for g in 0..8 {
        let (s, m) = scale_and_minimum(&block[4..16], g);
        set(out, g, (scale * f32::from(s), -(minimum * f32::from(m))));
    }
}

/// 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, one f16 scale. Two halves of 128 values; in a
/// half, row `r` of four takes its nibbles from 32 of 64 bytes (low ones first, then high) and its pairs from
/// bits `2 * r`.
fn q6_k(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 208);
    for g in 0..16 {
        let scale = scale * f32::from(block[192 + g].cast_signed());
        set(&mut out, g, (scale, -32.0 * scale));
        let (half, r, first) = (g / 8, g / 2 % 4, g % 2 * 16);
        let low = &block[64 * half + 32 * (r % 2) + first..];
        let high = &block[128 + 32 * half + first..];
        for ((code, low), high) in out.codes[g * 16..][..16].iter_mut().zip(low).zip(high) {
            *code = low >> (4 * (r / 2)) & 15 | (high >> (2 * r) & 3) << 4;
        }
    }
}

/// Digits of -1, 0 and 1: a byte is a fraction of 256 whose digits to the base of 3 come out one after the other. 32 bytes hold
/// 5 rows of 32, 16 bytes 5 rows of 16, 4 bytes 4 rows of 4; f16 scale.
fn tq1_0(block: &[u8], mut out: GroupsMut<'_>) {
    ternary(half_at(block, 52), &mut out);
    let mut codes = out.codes.iter_mut();
    for (bytes, digits) in [(&block[..32], 5), (&block[32..48], 5), (&block[48..52], 4)] {
        for power in [1u8, 3, 9, 27, 81].into_iter().take(digits) {
            for (byte, code) in bytes.iter().zip(&mut codes) {
                *code = ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as u8;
            }
        }
    }
}

/// Two halves of 128 values, each 4 rows of 32 in pairs of bits, one above the other; f16 scale.
fn tq2_0(block: &[u8], mut out: GroupsMut<'_>) {
    ternary(half_at(block, 64), &mut out);
    for (row, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        for (code, byte) in codes.iter_mut().zip(&block[row / 4 * 32..]) {
            *code = byte >> (row % 4 * 2) & 3;
        }
    }
}

/// One scale for all, with which the code 1 stands for 0.
fn ternary(scale: f32, out: &mut GroupsMut<'_>) {
    out.scales.fill(scale);
    out.biases.fill(-scale);
}

/// f16 scale and pairs of bits, one behind the other.
fn q2_0(block: &[u8], mut out: GroupsMut<'_>) {
    ternary(half_at(block, 0), &mut out);
    for (at, code) in out.codes.iter_mut().enumerate() {
        *code = block[2 + at / 4] >> (at % 4 * 2) & 3;
    }
}

/// f16 scale and a bit a value: minus or plus.
fn q1_0(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 0);
    set(&mut out, 0, (2.0 * scale, -scale));
    for (at, code) in out.codes.iter_mut().enumerate() {
        *code = block[2 + at / 8] >> (at % 8) & 1;
    }
}
