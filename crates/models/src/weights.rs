//! Where weights come from, and how each is stored in the file.
//!
//! A source answers by name, lazily: what it holds under a name is asked while the graph is built, the numbers are
//! fetched when the file is written. It may hold floats, or rows that are packed already and are taken as they are.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pteron_tensor::{Bytes, DType};

use crate::quantize::{Handling, Made, Packed, Packing, Plan, Reports, Task, WeightReport, quantise};

/// A weight as an architecture asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its name in published checkpoints.
    pub name: &'a str,
    /// The shape that the configuration gives it.
    pub shape: &'a [usize],
}

impl<'a> Wanted<'a> {
    /// The weight of that name and shape.
    pub fn new(name: &'a str, shape: &'a [usize]) -> Wanted<'a> {
        Wanted { name, shape }
    }

    /// Numbers that it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Forms and numbers of weights by name.
pub trait WeightSource: Send + Sync {
    /// How a weight is held; an error where it is missing or has another shape.
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError>;

    /// Some elements of a weight that is held as floats, counted row-major; as many as `out` has places, and all of them
    /// there.
    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError>;

    /// One part of a weight that is held packed, written as the file stores it.
    fn packed(
        &self,
        wanted: Wanted<'_>,
        packing: Packing,
        part: Part,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let _ = (packing, part, out);
        Err(io::Error::other(format!("{}: it is not packed", wanted.name)))
    }

    /// The elements of a weight from `start` on that fill `out`; an error where there are not so many.
    fn floats(&self, wanted: Wanted<'_>, start: usize, out: &mut [f32]) -> Result<(), WeightError> {
        match start.checked_add(out.len()) {
            Some(end) if end <= wanted.elements() => self.read(wanted, start..end, out),
            _ => Err(WeightError::Read {
                name: wanted.name.to_owned(),
                problem: format!("{} elements from {start} on are not all there", out.len()),
            }),
        }
    }

    /// Names, as the source has them, of what it holds beyond those weights, in order; nothing where it cannot tell.
    fn beyond(&self, weights: &HashSet<String>) -> Vec<String> {
        let _ = weights;
        Vec::new()
    }

    /// Bytes that the source stores the weight in, where it can tell.
    fn stored_bytes(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }
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
    /// A part of a packed matrix.
    Packed { name: String, shape: [usize; 2], plan: Plan, part: Part },
}

/// Makes the bytes of constants. Keeps the last weight that it packed, because its parts are written one after another.
pub(crate) struct Writer {
    source: Arc<dyn WeightSource>,
    last: Mutex<Option<(String, Packed)>>,
    reports: Arc<Reports>,
}

/// Floats converted at a time.
const CHUNK: usize = 1 << 16;

impl Writer {
    pub(crate) fn new(source: Arc<dyn WeightSource>, reports: Arc<Reports>) -> Writer {
        Writer { source, last: Mutex::new(None), reports }
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
                    let wanted = Wanted::new(name, shape);
                    self.source.floats(wanted, start, part).map_err(io::Error::other)?;
                    part.iter_mut().for_each(|value| *value += plus);
                    bytes.clear();
                    encode(part, *dtype, &mut bytes);
                    out.write_all(&bytes)?;
                }
                Ok(())
            }
            Recipe::Packed { name, shape, plan, part } => self.packed(name, *shape, *plan, *part, out),
        }
    }

    fn packed(
        &self,
        name: &str,
        shape: [usize; 2],
        Plan { packing, made }: Plan,
        part: Part,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match made {
            Made::Held => {
                self.source.packed(Wanted::new(name, &shape), packing, part, out)?;
                self.kept(name, shape, packing);
                Ok(())
            }
            Made::Regrouped(held) => {
                let times = match part {
                    Part::Scales | Part::Biases => held.scheme().group() / packing.scheme().group(),
                    Part::Codes | Part::TensorScale => 1,
                };
                let mut repeated = Repeated { out, size: held.scale_dtype().size(), times, begun: vec![] };
                self.source.packed(Wanted::new(name, &shape), held, part, &mut repeated)?;
                self.kept(name, shape, packing);
                Ok(())
            }
            Made::Quantised(from, method) => {
                // A panic elsewhere leaves at worst a whole packed weight here, which is as good as none.
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                let packed = match last.take() {
                    Some((packed_name, packed)) if packed_name == name => packed,
                    _ => {
                        let source = self.source.as_ref();
                        let (packed, deviation) =
                            quantise(&Task { source, name, shape, from, packing, method })?;
                        self.report(name, shape, packed.bytes(), Handling::Quantised(packing, deviation));
                        packed
                    }
                };
                let written = out.write_all(packed.part(part));
                *last = Some((name.to_owned(), packed));
                written
            }
        }
    }

    fn kept(&self, name: &str, shape: [usize; 2], packing: Packing) {
        let bytes = |part| {
            let (dtype, sizes) = packing.part(shape[0], shape[1], part)?;
            Some(sizes.iter().product::<usize>() as u64 * dtype.size() as u64)
        };
        let parts = [Part::Codes, Part::Scales, Part::Biases, Part::TensorScale];
        self.report(name, shape, parts.into_iter().filter_map(bytes).sum(), Handling::Kept(packing));
    }

    fn report(&self, name: &str, shape: [usize; 2], bytes_after: u64, handling: Handling) {
        self.reports.add(WeightReport {
            name: name.to_owned(),
            elements: shape.iter().product::<usize>() as u64,
            bytes_before: self.source.stored_bytes(name),
            bytes_after,
            handling,
        });
    }
}

/// Passes elements on, each several times.
struct Repeated<'a> {
    out: &'a mut dyn Write,
    /// Bytes of an element.
    size: usize,
    times: usize,
    /// The beginning of an element whose end has not come yet.
    begun: Vec<u8>,
}

impl Write for Repeated<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.times == 1 {
            return self.out.write(bytes);
        }
        self.begun.extend(bytes);
        let whole = self.begun.len() / self.size * self.size;
        let mut repeated = Vec::with_capacity(whole * self.times);
        for element in self.begun[..whole].chunks(self.size) {
            (0..self.times).for_each(|_| repeated.extend(element));
        }
        self.out.write_all(&repeated)?;
        self.begun.drain(..whole);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Floats in a dtype (f32, f16 or bf16), appended as files have them.
pub fn encode(values: &[f32], dtype: DType, out: &mut Vec<u8>) {
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
