//! Codes, scales and biases of a panel, lane by lane. Done once for all rows of activations, so that plain loops
//! are quick enough.

use super::super::Product;
use super::Panel;
use crate::quant::layout::{E2M1_OFFSET, Numbers};
use crate::quant::weight::{Elements, element};
use std::ops::Range;

/// Whether something is to be added for every group: biases, or what makes up for codes that are larger than
/// what they stand for.
pub(super) fn has_biases(product: &Product<'_>) -> bool {
    product.weight.has_biases() || matches!(product.layout.lanes.numbers, Numbers::Int8Shifted { .. })
}

/// Unpacks some rows of the weight, at most one a lane; the lanes that are left repeat the last one.
pub(super) fn panel(product: &Product<'_>, first_row: usize, rows: Range<usize>, to: &mut Panel) {
    let weight = product.weight;
    let lanes = product.layout.lanes.lanes;
    let row_bytes = weight.row_bytes();
    let codes: &[u8] = &weight.codes;
    let e2m1: [u8; 16] = std::array::from_fn(|code| {
        (element(Elements::DoubledE2M1, code as u8) as i32 + i32::from(E2M1_OFFSET)) as u8
    });
    for lane in 0..lanes {
        let row = first_row + (rows.start + lane).min(rows.end - 1);
        let from = &codes[row * row_bytes..][..row_bytes];
        let codes = to.codes[lane..].iter_mut().step_by(lanes);
        match (weight.scheme.bits(), weight.elements) {
            (4, Elements::Unsigned) => nibbles(from, codes, |four| four),
            (4, _) => nibbles(from, codes, |four| four.map(|code| e2m1[usize::from(code)])),
            (8, _) => from.as_chunks().0.iter().zip(codes).for_each(|(four, to)| *to = *four),
            (width, _) => others(width as usize, from, codes),
        }
        for group in 0..weight.groups() {
            let (scale, bias) = weight.scale_and_bias(row, group);
            let at = group * lanes + lane;
            to.scales[at] = scale;
            if let Some(to) = to.biases.get_mut(at) {
                *to = match product.layout.lanes.numbers {
                    Numbers::Int8Shifted { by } => -f32::from(by) * scale,
                    Numbers::Int8 | Numbers::F32 => bias,
                };
            }
        }
    }
}

/// Eight nibbles a time: the even ones, then the odd ones, as activations lie.
#[inline(always)]
fn nibbles<'a>(
    from: &[u8],
    mut to: impl Iterator<Item = &'a mut [u8; 4]>,
    number: impl Fn([u8; 4]) -> [u8; 4],
) {
    for &four in from.as_chunks::<4>().0 {
        let both = u32::from_le_bytes(four);
        for half in [both, both >> 4] {
            if let Some(to) = to.next() {
                *to = number((half & 0x0f0f_0f0f).to_le_bytes());
            }
        }
    }
}

/// Codes of another width, eight of which are as many bytes as one has bits.
fn others<'a>(width: usize, from: &[u8], mut to: impl Iterator<Item = &'a mut [u8; 4]>) {
    let mask = (1u64 << width) - 1;
    for eight in from.chunks_exact(width) {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(eight);
        let packed = u64::from_le_bytes(bytes);
        for half in 0..2 {
            if let Some(to) = to.next() {
                *to = std::array::from_fn(|i| (packed >> ((4 * half + i) * width) & mask) as u8);
            }
        }
    }
}
