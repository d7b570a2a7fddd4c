//! Random weights of any shape, the same for the same seed and name, whatever part is asked for first. So that speed
//! can be worked on before there are real ones.

use std::io::{self, Write};
use std::ops::Range;

use pteron_tensor::quant::Mode;

use crate::weights::encode;
use crate::{Form, Packing, Part, Wanted, WeightError, WeightSource};

/// Random weights. Matrices keep the size of what passes through them; norms are near 1.
#[derive(Clone, Copy, Debug)]
pub struct RandomWeights {
    seed: u64,
    packing: Option<Packing>,
}

impl RandomWeights {
    /// Floats.
    pub fn new(seed: u64) -> RandomWeights {
        RandomWeights { seed, packing: None }
    }

    /// Matrices that are packed from the start: random codes cost no quantiser.
    pub fn packed(seed: u64, packing: Packing) -> RandomWeights {
        RandomWeights { seed, packing: Some(packing) }
    }

    fn stream(&self, name: &str, part: u64) -> Stream {
        // FNV-1a: stable over versions and platforms, as files made from it are.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Stream { key: mix(hash ^ mix(self.seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))) }
    }
}

/// Numbers by position.
struct Stream {
    key: u64,
}

impl Stream {
    fn word(&self, at: u64) -> u64 {
        mix(self.key.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// From -1 to 1.
    fn unit(&self, at: u64) -> f32 {
        (self.word(at) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The largest magnitude of a matrix whose product has the size of its input.
fn spread(columns: usize) -> f32 {
    (3.0 / columns as f32).sqrt()
}

impl WeightSource for RandomWeights {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        Ok(match (self.packing, wanted.shape) {
            (Some(packing), [_, _]) => Form::Packed(packing),
            _ => Form::Floats,
        })
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let Wanted { name, shape } = wanted;
        let (centre, spread) = match shape {
            [_, columns] => (0.0, spread(*columns)),
            _ if name.ends_with("bias") => (0.0, 0.1),
            _ => (1.0, 0.1),
        };
        let stream = self.stream(name, 0);
        for (out, at) in out.iter_mut().zip(elements) {
            *out = centre + spread * stream.unit(at as u64);
        }
        Ok(())
    }

    fn packed(
        &self,
        wanted: Wanted<'_>,
        packing: Packing,
        part: Part,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Wanted { name, shape } = wanted;
        let [rows, columns] = shape else { return Err(io::Error::other(format!("{name}: not a matrix"))) };
        let Some((dtype, sizes)) = packing.part(*rows, *columns, part) else { return Ok(()) };
        let count: usize = sizes.iter().product();
        let stream = self.stream(name, 1 + part as u64);
        let size = spread(*columns);
        let mut bytes = Vec::new();
        for start in (0..count).step_by(CHUNK) {
            let chunk = start..count.min(start + CHUNK);
            bytes.clear();
            match part {
                Part::Codes => codes(&stream, chunk, packing, &mut bytes),
                Part::Scales => chunk.for_each(|at| scale(stream.unit(at as u64), size, packing, &mut bytes)),
                Part::Biases => chunk.for_each(|at| {
                    encode(&[-size * (1.0 + 0.1 * stream.unit(at as u64))], dtype, &mut bytes);
                }),
                Part::TensorScale => encode(&[size / (6.0 * 448.0)], dtype, &mut bytes),
            }
            out.write_all(&bytes)?;
        }
        Ok(())
    }
}

/// Elements made at a time.
const CHUNK: usize = 1 << 16;

/// Words of random codes, two to a random number.
fn codes(stream: &Stream, words: Range<usize>, packing: Packing, out: &mut Vec<u8>) {
    for at in words {
        let word = (stream.word(at as u64 / 2) >> (at as u64 % 2 * 32)) as u32;
        // The codes 0x7f and 0xff of 8-bit floats are no numbers.
        let word = if packing.scheme().mode() == Mode::MxFp8 { word & 0xf7f7_f7f7 } else { word };
        out.extend(word.to_le_bytes());
    }
}

/// A scale with which random codes spread as far as `size`, give or take a tenth.
fn scale(random: f32, size: f32, packing: Packing, out: &mut Vec<u8>) {
    let around = size * (1.0 + 0.1 * random);
    match packing.scheme().mode() {
        Mode::Affine if packing.zero_points() => {
            encode(&[around / (packing.half() - 0.5)], packing.scale_dtype(), out);
        }
        Mode::Affine => encode(&[around / packing.half()], packing.scale_dtype(), out),
        Mode::MxFp4 => out.push((127.0 + (size / 4.0).log2().round()) as u8),
        Mode::MxFp8 => out.push((127.0 + (size / 128.0).log2().round()) as u8),
        // Near 448, since the factor of the tensor does the rest.
        Mode::NvFp4 => out.push(0x78 + (random.abs() * 6.0) as u8),
    }
}
