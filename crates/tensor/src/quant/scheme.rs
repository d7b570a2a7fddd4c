//! What the codes of MLX's quantised weights stand for: a mode, a width and a group size make a scheme, and a
//! scheme turns a packed row with its group scales into floats.

use super::{QuantError, codes, expect_length, packed};
use std::fmt;

/// How a code and its group's scale make a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `code * scale + bias`, code unsigned.
    Affine,
    /// e2m1 times an e8m0 scale.
    MxFp4,
    /// e2m1 times an e4m3fn scale.
    NvFp4,
    /// e4m3fn times an e8m0 scale.
    MxFp8,
}

impl Mode {
    /// The mode of that name in a payload.
    pub fn from_name(name: &str) -> Result<Mode, QuantError> {
        match name {
            "affine" => Ok(Mode::Affine),
            "mxfp4" => Ok(Mode::MxFp4),
            "nvfp4" => Ok(Mode::NvFp4),
            "mxfp8" => Ok(Mode::MxFp8),
            _ => Err(QuantError::Mode(name.to_owned())),
        }
    }

    /// The name in a payload.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Affine => "affine",
            Mode::MxFp4 => "mxfp4",
            Mode::NvFp4 => "nvfp4",
            Mode::MxFp8 => "mxfp8",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A mode with its width and group size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scheme {
    mode: Mode,
    bits: u32,
    group: usize,
}

impl Scheme {
    /// The scheme of those three, if there is one.
    pub fn new(mode: Mode, bits: i32, group: i32) -> Result<Scheme, QuantError> {
        let exists = match mode {
            // MLX dequantises any group that fits; which ones a matmul takes is that op's rule.
            Mode::Affine => matches!(bits, 2..=6 | 8) && group > 0,
            Mode::MxFp4 => (bits, group) == (4, 32),
            Mode::NvFp4 => (bits, group) == (4, 16),
            Mode::MxFp8 => (bits, group) == (8, 32),
        };
        if !exists {
            return Err(QuantError::Scheme { mode, bits, group });
        }
        Ok(Scheme { mode, bits: bits as u32, group: group as usize })
    }

    /// How codes make numbers.
    pub fn mode(self) -> Mode {
        self.mode
    }

    /// Bits of a code.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Values that share a scale.
    pub fn group(self) -> usize {
        self.group
    }

    /// Number of values in a row of so many words.
    pub fn row_len(self, words: usize) -> usize {
        packed::len(words, self.bits)
    }

    /// The scale that a stored byte stands for; affine scales are floats and not stored so.
    pub fn scale(self, byte: u8) -> f32 {
        match self.mode {
            Mode::NvFp4 => codes::e4m3fn(byte),
            Mode::Affine | Mode::MxFp4 | Mode::MxFp8 => codes::e8m0(byte),
        }
    }

    /// Writes the numbers of one row. `biases` is empty in the float modes. `scratch` saves an allocation a
    /// row: its content does not matter.
    pub fn dequantise(
        self,
        row: &[u32],
        scales: &[f32],
        biases: &[f32],
        scratch: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), QuantError> {
        if !out.len().is_multiple_of(self.group) {
            return Err(QuantError::Row { len: out.len(), what: format!("groups of {}", self.group) });
        }
        let groups = out.len() / self.group;
        expect_length("scales", scales.len(), groups)?;
        expect_length("biases", biases.len(), if self.mode == Mode::Affine { groups } else { 0 })?;
        scratch.resize(out.len(), 0);
        packed::unpack(row, self.bits, scratch)?;
        let groups = scratch.chunks_exact(self.group).zip(out.chunks_exact_mut(self.group)).zip(scales);
        match self.mode {
            Mode::Affine => {
                for (((codes, out), scale), bias) in groups.zip(biases) {
                    for (out, &code) in out.iter_mut().zip(codes) {
                        *out = f32::from(code) * scale + bias;
                    }
                }
            }
            Mode::MxFp4 | Mode::NvFp4 => decode(groups, codes::e2m1),
            Mode::MxFp8 => decode(groups, codes::e4m3fn),
        }
        Ok(())
    }
}

fn decode<'a>(groups: impl Iterator<Item = ((&'a [u8], &'a mut [f32]), &'a f32)>, element: fn(u8) -> f32) {
    for ((codes, out), scale) in groups {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = element(code) * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dequantised(
        scheme: Scheme,
        codes: &[u8],
        scales: &[f32],
        biases: &[f32],
    ) -> Result<Vec<f32>, QuantError> {
        let mut out = vec![0.0; codes.len()];
        let row = packed::pack(codes, scheme.bits())?;
        scheme.dequantise(&row, scales, biases, &mut Vec::new(), &mut out)?;
        Ok(out)
    }

    #[test]
    fn affine_rows_of_every_width_and_group() {
        for bits in [2, 3, 4, 5, 6, 8] {
            for group in [16, 32, 64, 128] {
                let scheme = Scheme::new(Mode::Affine, bits, group).unwrap();
                let codes: Vec<u8> = (0..256u32).map(|j| (j * 7 % (1 << bits)) as u8).collect();
                let groups = codes.len() / group as usize;
                let scales: Vec<f32> = (0..groups).map(|g| g as f32 * 0.25 - 1.0).collect();
                let biases: Vec<f32> = (0..groups).map(|g| 3.0 - g as f32).collect();
                let got = dequantised(scheme, &codes, &scales, &biases).unwrap();
                for (j, &value) in got.iter().enumerate() {
                    let g = j / group as usize;
                    assert_eq!(
                        value,
                        f32::from(codes[j]) * scales[g] + biases[g],
                        "{bits} bits, group {group}, {j}"
                    );
                }
            }
        }
    }

    #[test]
    fn float_modes_multiply_element_and_scale() {
        let fp4: Vec<u8> = (0..32).map(|j| j % 16).collect();
        let mx = Scheme::new(Mode::MxFp4, 4, 32).unwrap();
        let got = dequantised(mx, &fp4, &[mx.scale(129)], &[]).unwrap();
        assert_eq!((got[1], got[7], got[9], got[31]), (2.0, 24.0, -2.0, -24.0));
        let nv = Scheme::new(Mode::NvFp4, 4, 16).unwrap();
        let got = dequantised(nv, &fp4, &[nv.scale(0x38), nv.scale(0xb8)], &[]).unwrap();
        assert_eq!((got[3], got[19]), (1.5, -1.5));
        let mx8 = Scheme::new(Mode::MxFp8, 8, 32).unwrap();
        let got = dequantised(mx8, &[0x38; 32], &[mx8.scale(126)], &[]).unwrap();
        assert_eq!(got, [0.5; 32]);
    }

    #[test]
    fn schemes_and_rows_that_do_not_fit_are_refused() {
        for (mode, bits, group) in [
            (Mode::Affine, 7, 32),
            (Mode::Affine, 4, 0),
            (Mode::MxFp4, 4, 16),
            (Mode::NvFp4, 8, 16),
            (Mode::MxFp8, 4, 32),
        ] {
            assert!(Scheme::new(mode, bits, group).is_err(), "{mode} {bits} {group}");
        }
        assert!(Mode::from_name("int4").is_err());
        let scheme = Scheme::new(Mode::Affine, 4, 32).unwrap();
        assert!(dequantised(scheme, &[0; 64], &[1.0], &[0.0, 0.0]).is_err());
        assert!(dequantised(scheme, &[0; 64], &[1.0, 1.0], &[]).is_err());
        assert!(dequantised(scheme, &[0; 40], &[1.0], &[1.0]).is_err());
    }
}
