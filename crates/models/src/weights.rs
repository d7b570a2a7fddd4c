//! Where weights come from, and how each is stored in the file.
//!
//! A source answers by name, lazily: what it holds under a name is asked while the graph is built, the numbers are
//! fetched when the file is written. It may hold floats, or rows that are packed already and are taken as they are.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pteron_tensor::{Bytes, DType};

use crate::quantize::{Packed, Packing, quantise};

/// Names, forms and numbers of weights. Names are those of the published checkpoints.
pub trait WeightSource: Send + Sync {
    /// How the weight of that name and shape is held; an error where it is missing or has another shape.
    fn form(&self, name: &str, shape: &[usize]) -> Result<Form, WeightError>;

    /// Some elements of a weight that is held as floats, counted row-major.
    fn floats(
        &self,
        name: &str,
        shape: &[usize],
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), WeightError>;

    /// One part of a weight that is held packed, written as the file stores it.
    fn packed(
        &self,
        name: &str,
        shape: &[usize],
        packing: Packing,
        part: Part,
        out: &mut dyn Write,
    ) -> io::Result<()>;
}

/// How a source holds a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// As floats.
    Floats,
    /// In packed rows.
    Packed(Packing),
}

/// One of the tensors that a packed weight is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The codes, rows of 32-bit words.
    Codes,
    /// A scale a group.
    Scales,
    /// A bias a group, where the packing has zero points.
    Biases,
    /// One factor for the whole tensor, where the packing has one.
    TensorScale,
}

/// Why a weight cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// The source has no such weight.
    #[error("{name}: the checkpoint has no such tensor")]
    Missing {
        /// The weight.
        name: String,
    },
    /// The source has it in another shape.
    #[error("{name}: the checkpoint has shape {found:?}, the configuration asks for {wanted:?}")]
    Shape {
        /// The weight.
        name: String,
        /// What the source has.
        found: Vec<usize>,
        /// What the configuration says.
        wanted: Vec<usize>,
    },
    /// It cannot be read.
    #[error("{name}: {problem}")]
    Read {
        /// The weight.
        name: String,
        /// Why not.
        problem: String,
    },
}

/// A constant of the graph and how its bytes are made.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) key: String,
    pub(crate) bytes: u64,
    pub(crate) recipe: Recipe,
}

/// How the bytes of a constant are made.
#[derive(Clone, Debug)]
pub(crate) enum Recipe {
    /// They are here.
    Literal(Bytes),
    /// Floats of the source, with `plus` added, in a dtype.
    Floats { name: String, shape: Vec<usize>, dtype: DType, plus: f32 },
    /// A part of a weight that the source holds packed.
    Packed { name: String, shape: Vec<usize>, packing: Packing, part: Part },
    /// A part of a weight that is packed here.
    Quantised { name: String, shape: Vec<usize>, packing: Packing, part: Part },
}

/// Makes the bytes of constants. Keeps the last weight that it packed, because its parts are written one after another.
pub(crate) struct Writer {
    source: Arc<dyn WeightSource>,
    last: Mutex<Option<(String, Packed)>>,
}

/// Floats converted at a time.
const CHUNK: usize = 1 << 16;

impl Writer {
    pub(crate) fn new(source: Arc<dyn WeightSource>) -> Writer {
        Writer { source, last: Mutex::new(None) }
    }

    pub(crate) fn write(&self, recipe: &Recipe, out: &mut dyn Write) -> io::Result<()> {
        match recipe {
            Recipe::Literal(bytes) => out.write_all(bytes),
            Recipe::Floats { name, shape, dtype, plus } => {
                let count: usize = shape.iter().product();
                let mut floats = vec![0.0; count.min(CHUNK)];
                let mut bytes = Vec::with_capacity(floats.len() * dtype.size());
                for start in (0..count).step_by(CHUNK) {
                    let part = &mut floats[..CHUNK.min(count - start)];
                    self.source
                        .floats(name, shape, start..start + part.len(), part)
                        .map_err(io::Error::other)?;
                    part.iter_mut().for_each(|value| *value += plus);
                    bytes.clear();
                    encode(part, *dtype, &mut bytes);
                    out.write_all(&bytes)?;
                }
                Ok(())
            }
            Recipe::Packed { name, shape, packing, part } => {
                self.source.packed(name, shape, *packing, *part, out)
            }
            Recipe::Quantised { name, shape, packing, part } => {
                // A panic elsewhere leaves at worst a whole packed weight here, which is as good as none.
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                let packed = match last.take() {
                    Some((packed_name, packed)) if packed_name == *name => packed,
                    _ => quantise(self.source.as_ref(), name, shape, *packing)?,
                };
                let written = out.write_all(packed.part(*part));
                *last = Some((name.clone(), packed));
                written
            }
        }
    }
}

/// Floats in a dtype, appended.
pub(crate) fn encode(values: &[f32], dtype: DType, out: &mut Vec<u8>) {
    match dtype {
        DType::F16 => out.extend(values.iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes())),
        DType::BF16 => out.extend(values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes())),
        _ => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
    }
}

/// A float rounded to a dtype.
pub(crate) fn rounded(value: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_f32(value).to_f32(),
        DType::BF16 => half::bf16::from_f32(value).to_f32(),
        _ => value,
    }
}
