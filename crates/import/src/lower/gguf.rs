//! GGUF's blocks as affine codes: rows of blocks flow in, one code an element with a scale and an offset a group flow
//! out. `value = code * scale + offset`, exactly, in f32.

use super::error::{Lowered, Refusal};
use pteron_tensor::quant::{BlockFormat, GroupsMut};

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

/// Formats by their names in ggml, in lower case.
const FORMATS: [(&str, BlockFormat); 10] = [
    ("q4_0", BlockFormat::Q4_0),
    ("q4_1", BlockFormat::Q4_1),
    ("q5_0", BlockFormat::Q5_0),
    ("q5_1", BlockFormat::Q5_1),
    ("q8_0", BlockFormat::Q8_0),
    ("q2_k", BlockFormat::Q2K),
    ("q3_k", BlockFormat::Q3K),
    ("q4_k", BlockFormat::Q4K),
    ("q5_k", BlockFormat::Q5K),
    ("q6_k", BlockFormat::Q6K),
];

/// Reads rows of blocks of a format by its name in ggml.
pub(super) fn read(name: &str, raw: &[u8]) -> Lowered<Codes> {
    let format = FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| *format);
    let Some((format, groups)) = format.and_then(|format| Some((format, format.groups()?))) else {
        return Err(Refusal::because(format!("GGUF blocks of type {name:?}")));
    };
    let len = raw.len() / format.block_bytes() * format.block_len();
    let count = len / groups.group;
    let mut all = Codes {
        codes: vec![0; len],
        scales: vec![0.0; count],
        offsets: vec![0.0; count],
        bits: groups.bits,
        group: groups.group,
    };
    let mut parts = GroupsMut { codes: &mut all.codes, scales: &mut all.scales, biases: &mut all.offsets };
    format.split(raw, &mut parts).map_err(|error| Refusal::because(format!("{name}: {error}")))?;
    Ok(all.merged())
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
    use half::f16;

    #[test]
    fn groups_of_sixteen_are_merged_where_neighbours_agree() {
        let mut block = [0u8; 210];
        block[208..].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[192..208].fill(3);
        assert_eq!(read("q6_k", &block).unwrap().group, 32);
        block[193] = 4;
        let apart = read("q6_k", &block).unwrap();
        assert_eq!((apart.group, apart.bits, apart.scales.len()), (16, 6, 16));
        assert_eq!((apart.scales[1], apart.offsets[1]), (2.0, -64.0));
    }

    #[test]
    fn half_a_block_and_unknown_formats_are_refused() {
        assert!(read("q6_k", &[0; 209]).is_err());
        assert!(read("iq2_xs", &[0; 74]).is_err());
    }
}
