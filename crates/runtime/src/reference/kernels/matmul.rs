//! Matrix products: Addmm and GatherMm, and the machinery that the quantised products share with them.
//!
//! A product is a list of picks: which matrix of the left operand meets which one of the right. Picks of the
//! same right matrix are computed together, so that each weight is read (or dequantised) once however many
//! rows meet it, and only a block of its rows is ever held as floats.

use super::offsets::Offsets;
use super::{Computed, KernelError, Operands, floats};
use pteron_ir::ValueId;
use pteron_tensor::HostTensor;
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) fn addmm(
    operands: &Operands<'_>,
    mat1: ValueId,
    mat2: ValueId,
    bias: Option<ValueId>,
    alpha: f32,
    beta: f32,
) -> Computed {
    let (a, b) = (operands.tensor(mat1)?, operands.tensor(mat2)?);
    let out = operands.out();
    let weights = Dense::new(b);
    let picks = picks(None, None, left(a).batch, weights.batch)?;
    let mut product = multiply(a, &weights, &picks)?;
    if let Some(bias) = operands.maybe(bias)? {
        product.iter_mut().for_each(|value| *value *= alpha);
        // As in PyTorch, a beta of 0 means that the bias is not looked at: NaN in it does not spread.
        if beta != 0.0 {
            let values = floats::all(bias)?;
            let mut offsets = Offsets::broadcast(bias.shape(), &out.shape);
            product.iter_mut().for_each(|sum| *sum += beta * values[offsets.next_one()]);
        }
    }
    floats::rounded(out, &product)
}

/// `sorted_indices` is a promise to implementations that profit from it; the result does not depend on it.
pub(super) fn gather_mm(
    operands: &Operands<'_>,
    a: ValueId,
    b: ValueId,
    lhs_indices: Option<ValueId>,
    rhs_indices: Option<ValueId>,
) -> Computed {
    let (a, b) = (operands.tensor(a)?, operands.tensor(b)?);
    let (lhs, rhs) = (operands.maybe(lhs_indices)?, operands.maybe(rhs_indices)?);
    let weights = Dense::new(b);
    let picks = picks(lhs, rhs, left(a).batch, weights.batch)?;
    floats::rounded(operands.out(), &multiply(a, &weights, &picks)?)
}

/// Matrices on the right-hand side of a product, dense or quantised.
pub(super) trait Matrices {
    /// Columns of one matrix.
    fn columns(&self) -> usize;
    /// Adds the product of `rows` with matrix `index` to `out`; both are whole rows.
    fn multiply(&self, index: usize, rows: &[f32], out: &mut [f32]) -> Result<(), KernelError>;
}

/// Which left matrix meets which right one, in the order of the results.
pub(super) type Picks = Vec<(usize, usize)>;

/// The picks that index tensors name: both broadcast against each other, and a missing one names every matrix
/// of its operand in turn, in the shape of the operand's batch axes. Both missing is the plain product.
pub(super) fn picks(
    lhs: Option<&HostTensor>,
    rhs: Option<&HostTensor>,
    lhs_batch: &[usize],
    rhs_batch: &[usize],
) -> Result<Picks, KernelError> {
    let shape_of = |indices: Option<&HostTensor>, batch: &[usize]| {
        indices.map_or_else(|| batch.to_vec(), |indices| indices.shape().to_vec())
    };
    let (lhs_shape, rhs_shape) = (shape_of(lhs, lhs_batch), shape_of(rhs, rhs_batch));
    let shape = broadcast_shape(&lhs_shape, &rhs_shape);
    let (lhs, rhs) = (picked(lhs, lhs_batch)?, picked(rhs, rhs_batch)?);
    let (mut l, mut r) = (Offsets::broadcast(&lhs_shape, &shape), Offsets::broadcast(&rhs_shape, &shape));
    let pairs = 0..shape.iter().product();
    Ok(pairs.map(|_: usize| (lhs[l.next_one()], rhs[r.next_one()])).collect())
}

fn picked(indices: Option<&HostTensor>, batch: &[usize]) -> Result<Vec<usize>, KernelError> {
    let count = batch.iter().product();
    let Some(indices) = indices else { return Ok((0..count).collect()) };
    let check = |index: i64| match usize::try_from(index) {
        Ok(at) if at < count => Ok(at),
        _ => Err(KernelError::Index { index, size: count }),
    };
    floats::indices(indices)?.into_iter().map(check).collect()
}

/// The products of all picks, one after another.
pub(super) fn multiply(
    a: &HostTensor,
    weights: &impl Matrices,
    picks: &Picks,
) -> Result<Vec<f32>, KernelError> {
    let Left { rows, inner, .. } = left(a);
    let (taken, given) = (rows * inner, rows * weights.columns());
    let a = floats::all(a)?;
    let mut out = vec![0.0; picks.len() * given];
    let mut uses: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, &(l, r)) in picks.iter().enumerate() {
        uses.entry(r).or_default().push((l, at));
    }
    for (index, uses) in uses {
        let gathered: Vec<f32> = uses.iter().flat_map(|&(l, _)| &a[l * taken..][..taken]).copied().collect();
        let mut products = vec![0.0; uses.len() * given];
        weights.multiply(index, &gathered, &mut products)?;
        for ((_, at), product) in uses.iter().zip(products.chunks_exact(given.max(1))) {
            out[at * given..][..given].copy_from_slice(product);
        }
    }
    Ok(out)
}

/// A left operand as matrices; a vector is one row.
pub(super) struct Left<'a> {
    pub(super) batch: &'a [usize],
    rows: usize,
    inner: usize,
}

pub(super) fn left(a: &HostTensor) -> Left<'_> {
    match a.shape() {
        [batch @ .., rows, inner] => Left { batch, rows: *rows, inner: *inner },
        [inner] => Left { batch: &[], rows: 1, inner: *inner },
        [] => Left { batch: &[], rows: 1, inner: 1 },
    }
}

/// A right operand that is not quantised; a vector is one column.
struct Dense<'a> {
    tensor: &'a HostTensor,
    batch: &'a [usize],
    inner: usize,
    columns: usize,
}

impl Dense<'_> {
    fn new(tensor: &HostTensor) -> Dense<'_> {
        match tensor.shape() {
            [batch @ .., inner, columns] => Dense { tensor, batch, inner: *inner, columns: *columns },
            [inner] => Dense { tensor, batch: &[], inner: *inner, columns: 1 },
            [] => Dense { tensor, batch: &[], inner: 1, columns: 1 },
        }
    }
}

impl Matrices for Dense<'_> {
    fn columns(&self) -> usize {
        self.columns
    }

    fn multiply(&self, index: usize, rows: &[f32], out: &mut [f32]) -> Result<(), KernelError> {
        let first = index * self.inner * self.columns;
        by_inner_rows(rows, out, (self.inner, self.columns), |inner, buffer| {
            floats::load(self.tensor, first + inner.start * self.columns, buffer)
        })
    }
}

/// Rows of a matrix that are held as floats at a time.
const BLOCK: usize = 64;

/// `out += rows @ matrix` for a matrix of `inner` rows, of which `load` gives any range. Several matrix rows
/// pass over an output row together, which saves most of its loads and stores.
pub(super) fn by_inner_rows(
    rows: &[f32],
    out: &mut [f32],
    (inner, columns): (usize, usize),
    mut load: impl FnMut(Range<usize>, &mut [f32]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    if inner == 0 || columns == 0 {
        return Ok(());
    }
    let mut block = vec![0.0; BLOCK.min(inner) * columns];
    for start in (0..inner).step_by(BLOCK) {
        let range = start..inner.min(start + BLOCK);
        let block = &mut block[..range.len() * columns];
        load(range.clone(), block)?;
        for (row, out) in rows.chunks_exact(inner).zip(out.chunks_exact_mut(columns)) {
            let row = &row[range.clone()];
            for (factors, block) in row.chunks(4).zip(block.chunks(4 * columns)) {
                add_rows(factors, block, out);
            }
        }
    }
    Ok(())
}

/// Adds up to four rows, each times its factor.
fn add_rows(factors: &[f32], rows: &[f32], out: &mut [f32]) {
    let columns = out.len();
    if let &[f0, f1, f2, f3] = factors {
        let (r0, rest) = rows.split_at(columns);
        let (r1, rest) = rest.split_at(columns);
        let (r2, r3) = rest.split_at(columns);
        for ((((out, r0), r1), r2), r3) in out.iter_mut().zip(r0).zip(r1).zip(r2).zip(r3) {
            *out += (f0 * r0 + f1 * r1) + (f2 * r2 + f3 * r3);
        }
        return;
    }
    for (factor, row) in factors.iter().zip(rows.chunks_exact(columns)) {
        out.iter_mut().zip(row).for_each(|(out, value)| *out += factor * value);
    }
}

/// `out += rows @ matrix^T` for a matrix of which `load` gives one row, which is one output column.
pub(super) fn by_column(
    rows: &[f32],
    out: &mut [f32],
    (inner, columns): (usize, usize),
    mut load: impl FnMut(usize, &mut [f32]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    if columns == 0 {
        return Ok(());
    }
    let mut weight = vec![0.0; inner];
    for column in 0..columns {
        load(column, &mut weight)?;
        if inner > 0 {
            for (row, out) in rows.chunks_exact(inner).zip(out.chunks_exact_mut(columns)) {
                out[column] += dot(row, &weight);
            }
        }
    }
    Ok(())
}

/// Sum of products. Sixteen running sums let the compiler use vectors, and lose less than one long sum.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (a, b) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The shape to which two shapes broadcast, which the type rule has already found to exist.
fn broadcast_shape(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let dim =
        |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank).map(|axis| if dim(a, axis) == 1 { dim(b, axis) } else { dim(a, axis) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::trial::{as_f64, assert_close, f32s, random, run, v};
    use super::*;
    use pteron_tensor::DType;

    /// One product of [m, k] and [k, n] matrices that begin at given elements.
    fn product(a: &[f64], b: &[f64], (m, k, n): (usize, usize, usize)) -> Vec<f64> {
        let element = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum();
        (0..m * n).map(element).collect()
    }

    #[test]
    fn vectors_and_batches_follow_numpy() {
        let cases: [(&[usize], &[usize], &[usize]); 6] = [
            (&[3, 70], &[70, 5], &[3, 5]),
            (&[70], &[70, 5], &[5]),
            (&[3, 70], &[70], &[3]),
            (&[4], &[4], &[]),
            (&[2, 1, 3, 4], &[5, 4, 6], &[2, 5, 3, 6]),
            (&[2, 3, 0], &[0, 2], &[2, 3, 2]),
        ];
        for (a_shape, b_shape, shape) in cases {
            let (a, b) = (random(1, a_shape), random(2, b_shape));
            let got = run(&[&a, &b], &[(DType::F32, shape)], |operands| {
                addmm(operands, v(0), v(1), None, 2.0, 1.0) // without a bias, alpha is not looked at
            });
            let (m, k) =
                (if a_shape.len() > 1 { a_shape[a_shape.len() - 2] } else { 1 }, *a_shape.last().unwrap());
            let n = if b_shape.len() > 1 { *b_shape.last().unwrap() } else { 1 };
            let pairs: Vec<(usize, usize)> = match a_shape.len() {
                4 => (0..10).map(|i| (i / 5, i % 5)).collect(),
                3 => (0..2).map(|i| (i, 0)).collect(),
                _ => vec![(0, 0)],
            };
            let (a, b) = (as_f64(&a), as_f64(&b));
            let want: Vec<f64> = pairs
                .iter()
                .flat_map(|(l, r)| product(&a[l * m * k..], &b[r * k * n..], (m, k, n)))
                .collect();
            assert_close(got, &want);
        }
    }

    #[test]
    fn a_bias_is_broadcast_and_ignored_when_beta_is_0() {
        let (a, b) = (random(1, &[2, 3]), random(2, &[3, 2]));
        let bias = f32s(&[2], &[10.0, f32::NAN]);
        let plain = product(&as_f64(&a), &as_f64(&b), (2, 3, 2));
        let with = |beta| {
            run(&[&a, &b, &bias], &[(DType::F32, &[2, 2])], |operands| {
                addmm(operands, v(0), v(1), Some(v(2)), 2.0, beta)
            })
        };
        assert_close(with(0.0), &plain.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        let want: Vec<f64> =
            plain.iter().zip([5.0, f64::NAN, 5.0, f64::NAN]).map(|(x, bias)| 2.0 * x + bias).collect();
        assert_close(with(0.5), &want);
    }

    #[test]
    fn sums_of_16_bit_numbers_run_in_f32() {
        let ones = HostTensor::from_slice(vec![1, 4096], &[half::bf16::ONE; 4096]).unwrap();
        let column = ones.clone().reshaped(vec![4096, 1]).unwrap();
        let got = run(&[&ones, &column], &[(DType::BF16, &[1, 1])], |operands| {
            addmm(operands, v(0), v(1), None, 1.0, 1.0)
        });
        assert_close(got, &[4096.0]);
    }

    #[test]
    fn picks_broadcast_and_repeat() {
        let (a, b) = (random(1, &[3, 1, 4]), random(2, &[2, 4, 5]));
        let lhs = HostTensor::from_slice(vec![3, 1], &[2u32, 0, 0]).unwrap();
        let rhs = HostTensor::from_slice(vec![2], &[1i64, 0]).unwrap();
        let got = run(&[&a, &b, &lhs, &rhs], &[(DType::F32, &[3, 2, 1, 5])], |operands| {
            gather_mm(operands, v(0), v(1), Some(v(2)), Some(v(3)))
        });
        let (a64, b64) = (as_f64(&a), as_f64(&b));
        let pairs = [(2, 1), (2, 0), (0, 1), (0, 0), (0, 1), (0, 0)];
        let want: Vec<f64> =
            pairs.iter().flat_map(|(l, r)| product(&a64[l * 4..], &b64[r * 20..], (1, 4, 5))).collect();
        assert_close(got, &want);
        // Without left picks, every left matrix in turn.
        let rhs = HostTensor::from_slice(vec![3], &[1i32, 0, 1]).unwrap();
        let got = run(&[&a, &b, &rhs], &[(DType::F32, &[3, 1, 5])], |operands| {
            gather_mm(operands, v(0), v(1), None, Some(v(2)))
        });
        let pairs = [(0, 1), (1, 0), (2, 1)];
        let want: Vec<f64> =
            pairs.iter().flat_map(|(l, r)| product(&a64[l * 4..], &b64[r * 20..], (1, 4, 5))).collect();
        assert_close(got, &want);
    }

    #[test]
    fn picks_outside_are_errors() {
        for index in [2i64, -1] {
            let (a, b) = (random(1, &[1, 1, 4]), random(2, &[2, 4, 5]));
            let rhs = HostTensor::from_slice(vec![1], &[index]).unwrap();
            let got = run(&[&a, &b, &rhs], &[(DType::F32, &[1, 1, 5])], |operands| {
                gather_mm(operands, v(0), v(1), None, Some(v(2)))
            });
            assert!(matches!(got, Err(KernelError::Index { size: 2, .. })), "{index}");
        }
    }
}
