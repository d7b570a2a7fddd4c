//! Blocks of GGUF's formats, held to the bit to what the package `gguf` reads from them (`conformance/make_gguf_blocks.py`).

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_tensor::quant::BlockFormat::{self, *};
use pteron_tensor::quant::GroupsMut;

const DATA: &[u8] = include_bytes!("data/gguf_blocks.bin");
const BLOCKS: usize = 4;
const FORMATS: [BlockFormat; 23] = [
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, TQ1_0, TQ2_0, IQ4_NL, IQ4_XS, IQ2_XXS, IQ2_XS,
    IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M, MXFP4, NVFP4,
];

/// Each format with its blocks and their numbers.
fn cases() -> impl Iterator<Item = (BlockFormat, &'static [u8], Vec<f32>)> {
    let mut rest = DATA;
    let cases = FORMATS.map(|format| {
        let (blocks, behind) = rest.split_at(BLOCKS * format.block_bytes());
        let (numbers, behind) = behind.split_at(BLOCKS * format.block_len() * 4);
        rest = behind;
        (format, blocks, numbers.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
    });
    assert!(rest.is_empty());
    cases.into_iter()
}

#[test]
fn every_number_is_the_packages() {
    for (format, blocks, wanted) in cases() {
        let mut numbers = vec![0.0; wanted.len()];
        format.dequantise(blocks, &mut numbers).unwrap();
        for (at, (number, wanted)) in numbers.iter().zip(&wanted).enumerate() {
            assert!(number == wanted, "{format:?}, value {at}: {number}, not {wanted}");
        }
    }
}

#[test]
fn codes_fit_into_their_bits_and_the_middle_is_zero() {
    for (format, blocks, wanted) in cases() {
        let groups = format.groups().unwrap();
        let mut codes = vec![0; wanted.len()];
        let count = wanted.len() / groups.group;
        let (mut scales, mut biases) = (vec![0.0; count], vec![0.0; count]);
        format
            .split(blocks, &mut GroupsMut { codes: &mut codes, scales: &mut scales, biases: &mut biases })
            .unwrap();
        assert!(codes.iter().all(|&code| u32::from(code) < 1 << groups.bits), "{format:?}");
        if groups.is_centred {
            let middle = (1 << (groups.bits - 1)) as f32;
            assert!(scales.iter().zip(&biases).all(|(scale, bias)| middle * scale == -bias), "{format:?}");
        }
        if groups.has_half_scales {
            let held = |number: &f32| half::f16::from_f32(*number).to_f32() == *number;
            assert!(scales.iter().all(held), "{format:?}");
        }
    }
}

#[test]
fn a_sign_or_two_bits_a_value() {
    let scale = half::f16::from_f32(0.75).to_le_bytes();
    let block: Vec<u8> = scale.into_iter().chain((0..16).map(|i| i * 37)).collect();
    let mut signs = [0.0; 128];
    Q1_0.dequantise(&block, &mut signs).unwrap();
    let mut pairs = [0.0; 64];
    Q2_0.dequantise(&block, &mut pairs).unwrap();
    for (at, sign) in signs.into_iter().enumerate() {
        assert_eq!(sign, if block[2 + at / 8] >> (at % 8) & 1 == 1 { 0.75 } else { -0.75 });
    }
    for (at, pair) in pairs.into_iter().enumerate() {
        assert_eq!(pair, 0.75 * (f32::from(block[2 + at / 4] >> (2 * (at % 4)) & 3) - 1.0));
    }
}
