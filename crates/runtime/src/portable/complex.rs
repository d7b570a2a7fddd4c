//! Complex numbers: spectra of sound, as programs make them of samples and turn them into energies. They stay inside a
//! program: made by a Fourier transform, moved about like other elements, and read as magnitudes or as pairs.
//!
//! A number is carried as an element of eight bytes, the real part and the imaginary one in f32, so that no dtype, graph or
//! backend has to know of it: which values of a program are complex is declared there, and whoever loads it asks [`find`] for
//! the operator that has a meaning for them. Transforms are computed in f64 and rounded once.

use super::walk::{around_axis, axis};
use super::{Call, Operator, PortableError, Results, invalid, one, shape, whole};
use pteron_tensor::{Bytes, DType, HostTensor};
use rustfft::num_complex::Complex;
use rustfft::{FftDirection, FftPlanner};

/// What a complex number is carried as.
pub(crate) const CARRIER: DType = DType::U64;

/// What an operator does with complex numbers.
struct Row {
    /// As a program writes it.
    name: &'static str,
    /// Whether its first input is complex, and whether its result is.
    takes: bool,
    gives: bool,
    /// Under a name of its own, so that nobody takes it for the one of real numbers.
    operator: Operator,
}

static TABLE: [Row; 5] = [
    Row {
        name: "aten::_fft_r2c.out",
        takes: false,
        gives: true,
        operator: whole("aten::_fft_r2c.out", 4, spectrum),
    },
    Row {
        name: "aten::_fft_c2r.out",
        takes: true,
        gives: false,
        operator: whole("aten::_fft_c2r.out", 4, signal),
    },
    Row {
        name: "aten::view_as_real_copy.out",
        takes: true,
        gives: false,
        operator: whole("aten::view_as_real_copy.out", 1, pairs),
    },
    Row {
        name: "aten::abs.out",
        takes: true,
        gives: false,
        operator: whole("aten::abs.out of complex numbers", 1, magnitudes),
    },
    Row {
        name: "aten::_conj_physical.out",
        takes: true,
        gives: true,
        operator: whole("aten::_conj_physical.out of complex numbers", 1, conjugates),
    },
];

/// More points than a transform of sound has: tables of one are made before anything is computed.
const MOST_POINTS: usize = 1 << 20;

/// Whether an operator of that name has a meaning for complex numbers.
pub(super) fn knows(name: &str) -> bool {
    TABLE.iter().any(|row| row.name == name)
}

/// The operator of that name whose first input and whose result are complex or not; those that only move elements move these too.
pub(super) fn find(name: &str, takes: bool, gives: bool) -> Option<&'static Operator> {
    let row = TABLE.iter().find(|row| row.name == name && (row.takes, row.gives) == (takes, gives));
    // A copy takes a second tensor, which may be real.
    let moves = || shape::TABLE.iter().find(|row| row.name == name && !name.starts_with("aten::copy"));
    row.map(|row| &row.operator).or_else(|| if takes && gives { moves() } else { None })
}

/// The numbers that a tensor carries.
fn numbers(x: &HostTensor) -> Result<&[[f32; 2]], PortableError> {
    match x.dtype() {
        CARRIER => Ok(bytemuck::cast_slice(x.bytes())),
        other => invalid(format!("complex numbers are needed, not {other}")),
    }
}

/// A tensor that carries numbers.
fn carried(shape: Vec<usize>, numbers: &[[f32; 2]]) -> Results {
    one(HostTensor::new(CARRIER, shape, Bytes::copy_of(bytemuck::cast_slice(numbers))))
}

/// The length of each number.
fn magnitudes(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let lengths = numbers(x)?.iter().map(|&[re, im]| f64::from(re).hypot(f64::from(im)) as f32);
    one(HostTensor::from_slice(x.shape().to_vec(), &lengths.collect::<Vec<_>>()))
}

/// Each number with its imaginary part turned round.
fn conjugates(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let turned: Vec<[f32; 2]> = numbers(x)?.iter().map(|&[re, im]| [re, -im]).collect();
    carried(x.shape().to_vec(), &turned)
}

/// Numbers as pairs along a last axis of their own.
fn pairs(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let parts: &[f32] = bytemuck::cast_slice(numbers(x)?);
    let mut shape = x.shape().to_vec();
    shape.push(2);
    one(HostTensor::from_slice(shape, parts))
}

/// Real samples to their spectrum, of which the last axis may keep only the half that says it all.
fn spectrum(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let axes = axes(call, x)?;
    let last = axes[axes.len() - 1];
    let samples = x.as_slice::<f32>()?;
    let mut field = Field {
        shape: x.shape().to_vec(),
        values: samples.iter().map(|&sample| Complex::new(f64::from(sample), 0.0)).collect(),
    };
    let mut kept = field.shape.clone();
    if call.bool(3)? {
        kept[last] = kept[last] / 2 + 1;
    }
    call.admit(&kept)?;
    let scale = scale(call.int(2)?, axes.iter().map(|&axis| field.shape[axis]))?;
    for &axis in axes.iter().rev() {
        field.transform(call, axis, FftDirection::Forward)?;
        if axis == last {
            field.keep(last, kept[last]);
        }
    }
    field.give(kept, scale)
}

/// A spectrum whose last axis has the half that says it all, to the real samples that it is of.
fn signal(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let axes = axes(call, x)?;
    let last = axes[axes.len() - 1];
    let points = super::call::as_size(call.int(3)?)?;
    if points == 0 || x.shape()[last] != points / 2 + 1 {
        let given = x.shape()[last];
        return invalid(format!("{given} numbers of a spectrum do not say {points} samples"));
    }
    let mut shape = x.shape().to_vec();
    shape[last] = points;
    call.admit(&shape)?;
    let scale = scale(call.int(2)?, axes.iter().map(|&axis| shape[axis]))?;
    let numbers = numbers(x)?;
    let mut field = Field {
        shape: x.shape().to_vec(),
        values: numbers.iter().map(|&[re, im]| Complex::new(f64::from(re), f64::from(im))).collect(),
    };
    for &axis in axes.iter().filter(|&&axis| axis != last) {
        field.transform(call, axis, FftDirection::Inverse)?;
    }
    field.mirror(last, points);
    field.transform(call, last, FftDirection::Inverse)?;
    let samples: Vec<f32> = field.values.iter().map(|value| (value.re * scale) as f32).collect();
    one(HostTensor::from_slice(shape, &samples))
}

/// The axes of a transform, each once; the last of the list is the one that is real on its other side.
fn axes(call: &Call<'_>, x: &HostTensor) -> Result<Vec<usize>, PortableError> {
    let axes = call.ints(1)?.into_iter().map(|at| axis(at, x.rank())).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if x.rank() == 0 || axes.is_empty() || sorted.len() != axes.len() {
        return invalid("a transform is along one or more axes, each named once");
    }
    match sorted.iter().map(|&axis| x.shape()[axis]).find(|points| !(1..=MOST_POINTS).contains(points)) {
        Some(points) => invalid(format!("a transform of {points} points")),
        None => Ok(axes),
    }
}

/// What PyTorch's three kinds of norm multiply by.
fn scale(norm: i64, sizes: impl Iterator<Item = usize>) -> Result<f64, PortableError> {
    let points: f64 = sizes.map(|size| size as f64).product();
    match norm {
        0 => Ok(1.0),
        1 => Ok(points.sqrt().recip()),
        2 => Ok(points.recip()),
        other => invalid(format!("a transform knows no norm {other}")),
    }
}

/// Complex numbers on their way through transforms.
struct Field {
    shape: Vec<usize>,
    values: Vec<Complex<f64>>,
}

impl Field {
    /// Transforms every line along an axis.
    fn transform(&mut self, call: &Call<'_>, axis: usize, way: FftDirection) -> Result<(), PortableError> {
        if self.values.is_empty() {
            return Ok(());
        }
        let (outer, points, inner) = around_axis(&self.shape, axis);
        // Twice per bit of its length each number is multiplied and added.
        call.charge(&[self.values.len(), 2 * (points.ilog2() as usize + 1)])?;
        let plan = FftPlanner::new().plan_fft(points, way);
        let mut line = vec![Complex::default(); points];
        let mut scratch = vec![Complex::default(); plan.get_inplace_scratch_len()];
        for block in 0..outer {
            for lane in 0..inner {
                let from = block * points * inner + lane;
                for (slot, at) in line.iter_mut().zip((from..).step_by(inner)) {
                    *slot = self.values[at];
                }
                plan.process_with_scratch(&mut line, &mut scratch);
                for (&value, at) in line.iter().zip((from..).step_by(inner)) {
                    self.values[at] = value;
                }
            }
        }
        Ok(())
    }

    /// Leaves the first numbers of an axis.
    fn keep(&mut self, axis: usize, count: usize) {
        let (_, points, inner) = around_axis(&self.shape, axis);
        let mut at = 0;
        self.values.retain(|_| {
            at += 1;
            (at - 1) / inner % points < count
        });
        self.shape[axis] = count;
    }

    /// Makes an axis whole of which the half is there: behind it the same numbers come back, turned round.
    fn mirror(&mut self, axis: usize, points: usize) {
        let (outer, half, inner) = around_axis(&self.shape, axis);
        self.shape[axis] = points;
        if self.values.is_empty() {
            return;
        }
        let mut values = Vec::with_capacity(outer * points * inner);
        for block in self.values.chunks_exact(half * inner) {
            values.extend_from_slice(block);
            for back in half..points {
                let line = &block[(points - back) * inner..][..inner];
                values.extend(line.iter().map(|value| value.conj()));
            }
        }
        self.values = values;
    }

    fn give(self, shape: Vec<usize>, scale: f64) -> Results {
        let parts = self.values.iter().map(|value| [(value.re * scale) as f32, (value.im * scale) as f32]);
        carried(shape, &parts.collect::<Vec<_>>())
    }
}
