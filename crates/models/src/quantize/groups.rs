//! The plain quantisers: one group of values to codes, by the range that they have.

use pteron_tensor::quant::{Mode, codes};

use super::Packing;
use crate::weights::rounded;

/// What a group is stored as beside its codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    /// As decoding uses it, rounded to what is stored.
    pub(super) scale: f32,
    /// Added to every value; 0 in the float modes.
    pub(super) bias: f32,
    /// The stored scale of the float modes.
    pub(super) byte: u8,
}

/// Codes of a group, by its range. `tensor_scale` is the factor over the whole tensor, or 1.
pub(super) fn by_range(values: &[f32], codes: &mut [u8], packing: Packing, tensor_scale: f32) -> Group {
    match packing.scheme().mode() {
        Mode::Affine if packing.zero_points() => with_zero_point(values, codes, packing),
        Mode::Affine => centred(values, codes, packing),
        mode => float_codes(values, codes, packing, mode, tensor_scale),
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()))
}

/// The number of codes there are.
pub(super) fn levels(packing: Packing) -> f32 {
    (1u32 << packing.scheme().bits()) as f32
}

fn with_zero_point(values: &[f32], codes: &mut [u8], packing: Packing) -> Group {
    let low = values.iter().copied().fold(f32::INFINITY, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = rounded((high - low) / (levels(packing) - 1.0), packing.scale_dtype());
    let bias = rounded(low, packing.scale_dtype());
    affine_codes(values, codes, scale, bias, packing);
    Group { scale, bias, byte: 0 }
}

/// The value of the largest magnitude takes the code 0, which reaches one step further than the others; its sign goes
/// into the scale.
fn centred(values: &[f32], codes: &mut [u8], packing: Packing) -> Group {
    let largest = largest(values);
    let extreme = values.iter().copied().find(|value| value.abs() == largest).unwrap_or(0.0);
    let scale = rounded(-extreme / packing.half(), packing.scale_dtype());
    let bias = -packing.half() * scale;
    affine_codes(values, codes, scale, bias, packing);
    Group { scale, bias, byte: 0 }
}

/// The nearest codes under a scale and a bias.
pub(super) fn affine_codes(values: &[f32], codes: &mut [u8], scale: f32, bias: f32, packing: Packing) {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let top = levels(packing) - 1.0;
    for (code, value) in codes.iter_mut().zip(values) {
        *code = ((value - bias) * inverse).round_ties_even().clamp(0.0, top) as u8;
    }
}

fn float_codes(values: &[f32], codes: &mut [u8], packing: Packing, mode: Mode, tensor_scale: f32) -> Group {
    let (limit, nearest): (f32, fn(f32) -> u8) = match mode {
        Mode::MxFp8 => (448.0, codes::e4m3fn_nearest),
        _ => (codes::e2m1(7), codes::e2m1_nearest),
    };
    let wanted = largest(values) / limit / tensor_scale;
    let byte = match mode {
        Mode::NvFp4 => codes::e4m3fn_nearest(wanted),
        _ => next_power_of_two(wanted),
    };
    let scale = packing.scheme().scale(byte) * tensor_scale;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    for (code, value) in codes.iter_mut().zip(values) {
        *code = nearest(value * inverse);
    }
    Group { scale, bias: 0.0, byte }
}

/// The e8m0 code of the next power of two, so that nothing saturates. By its bits: logarithms differ between machines.
fn next_power_of_two(value: f32) -> u8 {
    let bits = value.max(f32::MIN_POSITIVE).to_bits();
    let above = u32::from(bits & 0x7f_ffff != 0);
    ((bits >> 23) + above).min(254) as u8
}

/// The number that a code stands for.
pub(super) fn value(code: u8, group: Group, mode: Mode) -> f32 {
    match mode {
        Mode::Affine => f32::from(code) * group.scale + group.bias,
        Mode::MxFp8 => codes::e4m3fn(code) * group.scale,
        Mode::MxFp4 | Mode::NvFp4 => codes::e2m1(code) * group.scale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_stay_and_others_grow() {
        for (value, want) in [(1.0, 127), (1.0001, 128), (0.9, 127), (0.5, 126), (0.0, 1), (f32::MAX, 254)] {
            assert_eq!(next_power_of_two(value), want, "{value}");
        }
    }
}
