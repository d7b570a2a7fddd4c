//! Blocks whose values come from lists: levels that lie closer around zero, 4-bit floats, and the lists of four or eight
//! values that [`super::grids`] holds. A value is a small whole number times the group's scale, so that a code around the middle holds
//! it without loss.

use super::GroupsMut;
use super::blocks::{half_at, nibbles, set};
use super::grids;
use half::f16;

/// The levels of IQ4_NL and IQ4_XS.
const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers that the codes of 4-bit floats stand for.
const FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The codes around which 5 and 8 bits lie.
const MIDDLE_OF_5: i8 = 16;
const MIDDLE_OF_8: i8 = -128;

/// The scale of a group, and the bias with which the code in the middle stands for 0.
fn centred(out: &mut GroupsMut<'_>, group: usize, scale: f32, middle: i8) {
    set(out, group, (scale, -f32::from(middle.cast_unsigned()) * scale));
}

/// Whole numbers as codes around the middle.
fn around(middle: i8, value: i8) -> u8 {
    value.wrapping_add(middle).cast_unsigned()
}

/// The levels of nibbles.
fn levels(bytes: &[u8], codes: &mut [u8], levels: &[i8; 16], middle: i8) {
    nibbles(bytes, codes);
    codes.iter_mut().for_each(|code| *code = around(middle, levels[usize::from(*code)]));
}

fn half_word(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// f16 scale, 16 bytes of nibbles.
pub(super) fn iq4_nl(block: &[u8], mut out: GroupsMut<'_>) {
    centred(&mut out, 0, half_at(block, 0), MIDDLE_OF_8);
    levels(&block[2..18], out.codes, &LEVELS, MIDDLE_OF_8);
}

/// f16 scale, 16 bits of upper pairs and 4 bytes of lower nibbles of eight scales around 32, 128 bytes of nibbles.
pub(super) fn iq4_xs(block: &[u8], mut out: GroupsMut<'_>) {
    let (scale, high) = (half_at(block, 0), half_word(block, 2));
    for g in 0..8 {
        let low = block[4 + g / 2] >> (g % 2 * 4) & 15;
        let own = (high >> (2 * g) & 3) as u8;
        centred(&mut out, g, scale * (f32::from(low | own << 4) - 32.0), MIDDLE_OF_8);
        levels(&block[8 + 16 * g..][..16], &mut out.codes[32 * g..][..32], &LEVELS, MIDDLE_OF_8);
    }
}

/// A power of two as a byte, 16 bytes of nibbles.
pub(super) fn mxfp4(block: &[u8], mut out: GroupsMut<'_>) {
    // Half of the power, since the numbers are twice what they stand for.
    let bits = match block[0] {
        small @ 0..2 => 0x0020_0000 << small,
        exponent => u32::from(exponent - 1) << 23,
    };
    centred(&mut out, 0, f32::from_bits(bits), MIDDLE_OF_5);
    levels(&block[1..17], out.codes, &FLOATS, MIDDLE_OF_5);
}

/// Four 8-bit floats without a sign, then 8 bytes of nibbles a group.
pub(super) fn nvfp4(block: &[u8], mut out: GroupsMut<'_>) {
    for g in 0..4 {
        let (exponent, mantissa) = (block[g] >> 3 & 15, f32::from(block[g] & 7));
        // Half of what the byte stands for, since the numbers are twice theirs.
        let scale = match (block[g], exponent) {
            // What would be no number is nothing.
            (0x7f, _) => 0.0,
            (_, 0) => mantissa / 1024.0,
            _ => (1.0 + mantissa / 8.0) * f32::from_bits(u32::from(exponent + 127 - 8) << 23),
        };
        centred(&mut out, g, scale, MIDDLE_OF_5);
        levels(&block[4 + 8 * g..][..8], &mut out.codes[16 * g..][..16], &FLOATS, MIDDLE_OF_5);
    }
}

/// Eight signs in 7 bits: the last one makes the number of minuses even.
fn eight_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() & 1) as u8) << 7
}

/// Magnitudes with their signs, as codes around the middle of 8 or 5 bits.
fn signed(codes: &mut [u8], magnitudes: impl Iterator<Item = i8>, signs: u8, middle: i8) {
    for (at, (code, magnitude)) in codes.iter_mut().zip(magnitudes).enumerate() {
        *code = around(middle, if signs >> at & 1 == 0 { magnitude } else { -magnitude });
    }
}

/// f16 scale; for each 32 values four places in the list, then four times 7 bits of signs and 4 bits of scale.
pub(super) fn iq2_xxs(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 0);
    for g in 0..8 {
        let places = &block[2 + 8 * g..][..4];
        let rest = word(block, 6 + 8 * g);
        centred(&mut out, g, scale * (0.5 + (rest >> 28) as f32) * 0.25, MIDDLE_OF_8);
        for (i, &place) in places.iter().enumerate() {
            let codes = &mut out.codes[32 * g + 8 * i..][..8];
            signed(codes, grids::IQ2_XXS.eight(place.into()), eight_signs(rest >> (7 * i)), MIDDLE_OF_8);
        }
    }
}

/// The 4-bit scale of a group of 16: two to a byte.
fn sixteenth(scales: &[u8], scale: f32, group: usize) -> f32 {
    scale * (0.5 + f32::from(scales[group / 2] >> (group % 2 * 4) & 15)) * 0.25
}

/// f16 scale; for each 8 values a place of 9 bits and 7 bits of signs; 4-bit scales of 16 values.
pub(super) fn iq2_xs(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 0);
    for g in 0..16 {
        centred(&mut out, g, sixteenth(&block[66..], scale, g), MIDDLE_OF_8);
    }
    for (i, codes) in out.codes.chunks_exact_mut(8).enumerate() {
        let both = half_word(block, 2 + 2 * i);
        signed(codes, grids::IQ2_XS.eight((both & 511).into()), eight_signs((both >> 9).into()), MIDDLE_OF_8);
    }
}

/// f16 scale, 32 bytes of places, 32 of signs, 8 of the places' upper pairs, 8 of 4-bit scales of 16 values.
pub(super) fn iq2_s(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 0);
    for g in 0..16 {
        centred(&mut out, g, sixteenth(&block[74..], scale, g), MIDDLE_OF_8);
    }
    for (i, codes) in out.codes.chunks_exact_mut(8).enumerate() {
        let upper = usize::from(block[66 + i / 4] >> (i % 4 * 2) & 3);
        let place = usize::from(block[2 + i]) | upper << 8;
        signed(codes, grids::IQ2_S.eight(place), block[34 + i], MIDDLE_OF_8);
    }
}

/// f16 scale, 64 places of four values; for each 32 values four times 7 bits of signs and 4 bits of scale.
pub(super) fn iq3_xxs(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 0);
    for g in 0..8 {
        let rest = word(block, 66 + 4 * g);
        centred(&mut out, g, scale * (0.5 + (rest >> 28) as f32) * 0.5, MIDDLE_OF_8);
        for i in 0..4 {
            let places = &block[2 + 8 * g + 2 * i..][..2];
            let eight = places.iter().flat_map(|&place| grids::IQ3_XXS.four(place.into()));
            let codes = &mut out.codes[32 * g + 8 * i..][..8];
            signed(codes, eight, eight_signs(rest >> (7 * i)), MIDDLE_OF_8);
        }
    }
}

/// f16 scale, 64 bytes of places of four values, 8 of their ninth bits, 32 of signs, 4 of 4-bit scales of 32 values.
pub(super) fn iq3_s(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 0);
    for g in 0..8 {
        let own = block[106 + g / 2] >> (g % 2 * 4) & 15;
        centred(&mut out, g, scale * f32::from(1 + 2 * own), MIDDLE_OF_5);
    }
    for (i, codes) in out.codes.chunks_exact_mut(8).enumerate() {
        let eight = (2 * i..2 * i + 2).flat_map(|at| {
            let ninth = usize::from(block[66 + at / 8] >> (at % 8) & 1);
            grids::IQ3_S.four(usize::from(block[2 + at]) | ninth << 8)
        });
        signed(codes, eight, block[74 + i], MIDDLE_OF_5);
    }
}

/// Values of -1, 0 and 1 that are all moved by an eighth, in eighths.
fn moved(codes: &mut [u8], place: usize, down: bool) {
    let by = if down { -1 } else { 1 };
    for (code, value) in codes.iter_mut().zip(grids::IQ1_S.eight(place)) {
        *code = around(MIDDLE_OF_5, 8 * value + by);
    }
}

/// f16 scale, 32 bytes of places; for each 32 values four times 3 upper bits of places, 3 bits of scale, and a direction.
pub(super) fn iq1_s(block: &[u8], mut out: GroupsMut<'_>) {
    let scale = half_at(block, 0);
    for g in 0..8 {
        let rest = half_word(block, 34 + 2 * g);
        centred(&mut out, g, scale * f32::from(2 * (rest >> 12 & 7) + 1) / 8.0, MIDDLE_OF_5);
        for i in 0..4 {
            let upper = usize::from(rest >> (3 * i) & 7);
            let place = usize::from(block[2 + 4 * g + i]) | upper << 8;
            moved(&mut out.codes[32 * g + 8 * i..][..8], place, rest >> 15 != 0);
        }
    }
}

/// 32 bytes of places, 16 of their upper bits with a direction each, four words of four 3-bit scales of 16 values, whose upper
/// nibbles are an f16 scale.
pub(super) fn iq1_m(block: &[u8], mut out: GroupsMut<'_>) {
    let words = [0, 1, 2, 3].map(|i| half_word(block, 48 + 2 * i));
    let scale = words.iter().enumerate().fold(0, |scale, (i, word)| scale | word >> 12 << (4 * i));
    let scale = f16::from_bits(scale).to_f32();
    for g in 0..16 {
        let own = words[g / 4] >> (g % 4 * 3) & 7;
        centred(&mut out, g, scale * f32::from(2 * own + 1) / 8.0, MIDDLE_OF_5);
    }
    for (i, codes) in out.codes.chunks_exact_mut(8).enumerate() {
        let rest = block[32 + i / 2] >> (i % 2 * 4);
        moved(codes, usize::from(block[i]) | usize::from(rest & 7) << 8, rest & 8 != 0);
    }
}
