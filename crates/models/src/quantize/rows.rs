//! A whole matrix packed, rows shared out among threads. A row's bytes depend on nothing but the row and the factor of
//! the tensor, so any number of threads gives the same file.

use std::io;
use std::ops::Range;

use pteron_tensor::quant::{Mode, codes, packed};

use super::groups::{self, Group, by_range};
use super::held::{Held, Scratch};
use super::hqq::by_fit;
use super::report::{Deviation, Errors};
use super::{Method, Packing};
use crate::parallel::{over_rows, threads_for};
use crate::weights::{Part, encode, rounded};
use crate::{Form, Wanted, WeightSource};

/// Values packed at a time.
const BLOCK: usize = 1 << 22;

/// A matrix to be packed.
pub(crate) struct Task<'a> {
    pub(crate) source: &'a dyn WeightSource,
    pub(crate) name: &'a str,
    pub(crate) shape: [usize; 2],
    pub(crate) from: Form,
    pub(crate) packing: Packing,
    pub(crate) method: Method,
}

/// A packed weight.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Packed {
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    tensor_scale: Vec<u8>,
}

impl Packed {
    pub(crate) fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::Codes => &self.codes,
            Part::Scales => &self.scales,
            Part::Biases => &self.biases,
            Part::TensorScale => &self.tensor_scale,
        }
    }

    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        [&self.codes, &self.scales, &self.biases, &self.tensor_scale]
            .iter()
            .map(|part| part.len() as u64)
            .sum()
    }

    fn append(&mut self, mut rows: Packed) {
        self.codes.append(&mut rows.codes);
        self.scales.append(&mut rows.scales);
        self.biases.append(&mut rows.biases);
    }
}

/// Packs a matrix, on as many threads as the machine has and the matrix is worth.
pub(crate) fn quantise(task: &Task<'_>) -> io::Result<(Packed, Deviation)> {
    quantise_on(task, threads_for(task.shape.iter().product()))
}

fn quantise_on(task: &Task<'_>, threads: usize) -> io::Result<(Packed, Deviation)> {
    let matrix = Rows::new(task)?;
    let tensor_scale = match task.packing.has_tensor_scale() {
        false => 1.0,
        true => {
            let largest = over_rows(task.shape[0], threads, |range| matrix.largest(range))?;
            let largest = largest.into_iter().fold(0.0f32, f32::max);
            // The largest group scale becomes the largest number that a scale can hold.
            rounded((largest / (codes::e2m1(7) * 448.0)).max(f32::MIN_POSITIVE), task.packing.scales)
        }
    };
    let mut whole = Packed::default();
    if task.packing.has_tensor_scale() {
        encode(&[tensor_scale], task.packing.scales, &mut whole.tensor_scale);
    }
    let mut errors = Errors::default();
    // Block by block, so that the packed rows are there once and not once more in parts.
    let [rows, columns] = task.shape;
    let step = (BLOCK / columns.max(1)).max(threads);
    for start in (0..rows).step_by(step) {
        let pack = |range: Range<usize>| matrix.pack(start + range.start..start + range.end, tensor_scale);
        for (part, row_errors) in over_rows(step.min(rows - start), threads, pack)? {
            whole.append(part);
            row_errors.into_iter().for_each(|row| errors.join(row));
        }
    }
    Ok((whole, errors.deviation()))
}

/// The rows of a matrix as floats, wherever they come from.
struct Rows<'a> {
    task: &'a Task<'a>,
    held: Option<Held>,
}

impl<'a> Rows<'a> {
    fn new(task: &'a Task<'a>) -> io::Result<Rows<'a>> {
        let held = match task.from {
            Form::Floats => None,
            Form::Packed(packing) => Some(Held::read(task.source, task.name, task.shape, packing)?),
        };
        Ok(Rows { task, held })
    }

    fn read(&self, at: usize, scratch: &mut Scratch, row: &mut [f32]) -> io::Result<()> {
        let columns = self.task.shape[1];
        match &self.held {
            Some(held) => held.row(at, scratch, row),
            None => {
                let wanted = Wanted::new(self.task.name, &self.task.shape);
                self.task.source.floats(wanted, at * columns, row).map_err(io::Error::other)
            }
        }
    }

    /// The largest magnitude of those rows.
    fn largest(&self, range: Range<usize>) -> io::Result<f32> {
        let (mut row, mut scratch) = (vec![0.0f32; self.task.shape[1]], Scratch::default());
        let mut largest = 0.0f32;
        for at in range {
            self.read(at, &mut scratch, &mut row)?;
            largest = row.iter().fold(largest, |largest, value| largest.max(value.abs()));
        }
        Ok(largest)
    }

    /// Those rows packed, and the errors of each.
    fn pack(&self, range: Range<usize>, tensor_scale: f32) -> io::Result<(Packed, Vec<Errors>)> {
        let Task { packing, method, shape: [_, columns], .. } = *self.task;
        let scheme = packing.scheme();
        let (mut row, mut scratch) = (vec![0.0f32; columns], Scratch::default());
        let mut codes = vec![0u8; columns];
        let mut out = Packed::default();
        let mut errors = Vec::with_capacity(range.len());
        for at in range {
            self.read(at, &mut scratch, &mut row)?;
            let mut row_errors = Errors::default();
            for (values, codes) in row.chunks(scheme.group()).zip(codes.chunks_mut(scheme.group())) {
                let group = match method {
                    Method::Hqq if packing.zero_points() => by_fit(values, codes, packing),
                    _ => by_range(values, codes, packing, tensor_scale),
                };
                out.put(group, packing);
                for (&wanted, &code) in values.iter().zip(&*codes) {
                    row_errors.add(wanted, groups::value(code, group, scheme.mode()));
                }
            }
            let words = packed::pack(&codes, scheme.bits()).map_err(io::Error::other)?;
            out.codes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            errors.push(row_errors);
        }
        Ok((out, errors))
    }
}

impl Packed {
    fn put(&mut self, group: Group, packing: Packing) {
        match packing.scheme().mode() {
            Mode::Affine => encode(&[group.scale], packing.scales, &mut self.scales),
            _ => self.scales.push(group.byte),
        }
        if packing.zero_points() {
            encode(&[group.bias], packing.scales, &mut self.biases);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RandomWeights;

    fn task<'a>(source: &'a RandomWeights, from: Form, scheme: &str, method: Method) -> Task<'a> {
        let packing: Packing = scheme.parse().unwrap();
        let packing = packing.with_zero_points(method == Method::Hqq);
        Task { source, name: "m.weight", shape: [37, 128], from, packing, method }
    }

    const SCHEMES: [&str; 9] = ["2w", "3w", "4w", "5w", "6w", "8w", "mxfp4", "nvfp4", "mxfp8"];

    #[test]
    fn any_number_of_threads_gives_the_same_bytes() {
        let source = RandomWeights::new(11);
        for scheme in SCHEMES {
            for method in [Method::MinMax, Method::Hqq] {
                let task = task(&source, Form::Floats, scheme, method);
                let one = quantise_on(&task, 1).unwrap();
                for threads in [2, 5, 64] {
                    assert_eq!(quantise_on(&task, threads).unwrap(), one, "{scheme} on {threads}");
                }
            }
        }
    }

    /// Bounds on the relative root-mean-square error for weights spread evenly over their range, as they are stated.
    const STATED: &str = include_str!("../../../../docs/quantization.md");

    #[test]
    fn errors_stay_below_the_bound_of_each_scheme() {
        let source = RandomWeights::new(5);
        for scheme in SCHEMES {
            let row = STATED.lines().find(|line| line.starts_with(&format!("| `{scheme}` |"))).unwrap();
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let packing: Packing = scheme.parse().unwrap();
            assert_eq!(cells[2], packing.scheme().group().to_string(), "{scheme}");
            let bound: f64 = cells[4].parse().unwrap();
            let (_, deviation) =
                quantise_on(&task(&source, Form::Floats, scheme, Method::MinMax), 2).unwrap();
            assert!(deviation.relative_rms <= bound, "{scheme}: {}", deviation.relative_rms);
            assert!(
                deviation.relative_rms > bound / 3.0,
                "{scheme}: {} makes {bound} idle",
                deviation.relative_rms
            );
        }
    }

    #[test]
    fn fitting_zero_points_is_never_worse_than_the_range() {
        let source = RandomWeights::new(8);
        for scheme in &SCHEMES[..6] {
            let fitted = task(&source, Form::Floats, scheme, Method::Hqq);
            let ranged = Task { method: Method::MinMax, ..task(&source, Form::Floats, scheme, Method::Hqq) };
            let mean = |task: &Task<'_>| quantise_on(task, 1).unwrap().1.relative_rms;
            assert!(mean(&fitted) <= mean(&ranged) * 1.02, "{scheme}: {} {}", mean(&fitted), mean(&ranged));
        }
    }

    #[test]
    fn packed_weights_are_packed_anew_from_what_they_stand_for() {
        for scheme in SCHEMES {
            let held: Packing = scheme.parse().unwrap();
            let source = RandomWeights::packed(3, held);
            // Eight bits hold what few bits stood for, but for the rounding of the new scales.
            let again = task(&source, Form::Packed(held), "8w", Method::MinMax);
            let (packed, deviation) = quantise_on(&again, 2).unwrap();
            assert_eq!(packed.codes.len(), 37 * 128);
            assert!(deviation.relative_rms < 0.012, "{scheme}: {}", deviation.relative_rms);
        }
    }
}
