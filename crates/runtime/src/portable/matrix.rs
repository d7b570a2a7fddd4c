//! Products of matrices, summed in f64 (floats) or wrapping i64 (integers).

use super::call::as_float;
use super::lanes::{self, Lanes};
use super::promote::promote;
use super::walk::{Walk, broadcast_shape, row_major};
use super::{Call, Operator, PortableError, Results, invalid, one, whole};
use pteron_tensor::{HostTensor, Scalar};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::mm.out", 2, |call| one(Ok(product(call, call.tensor(0)?, call.tensor(1)?)?))),
    whole("aten::bmm.out", 2, |call| one(Ok(product(call, call.tensor(0)?, call.tensor(1)?)?))),
    whole("aten::matmul.out", 2, |call| one(Ok(product(call, call.tensor(0)?, call.tensor(1)?)?))),
    whole("aten::mv.out", 2, |call| one(Ok(product(call, call.tensor(0)?, call.tensor(1)?)?))),
    whole("aten::dot.out", 2, |call| one(Ok(product(call, call.tensor(0)?, call.tensor(1)?)?))),
    whole("aten::outer.out", 2, outer),
    whole("aten::linear.out", 3, linear),
    whole("aten::addmm.out", 5, |call| add_product(call, product(call, call.tensor(1)?, call.tensor(2)?)?)),
    whole("aten::baddbmm.out", 5, |call| add_product(call, product(call, call.tensor(1)?, call.tensor(2)?)?)),
    whole("aten::_cdist_forward.out", 4, |call| distances(call, call.tensor(0)?, call.tensor(1)?)),
    whole("aten::_pdist_forward.out", 2, own_distances),
    whole("aten::addmv.out", 5, |call| add_product(call, product(call, call.tensor(1)?, call.tensor(2)?)?)),
];

/// NumPy's matmul: rank 1 operands gain an axis that the result loses again.
fn product(call: &Call<'_>, a: &HostTensor, b: &HostTensor) -> Result<HostTensor, PortableError> {
    if a.rank() == 0 || b.rank() == 0 {
        return invalid("a number is no matrix");
    }
    let dtype = promote(a.dtype(), b.dtype());
    let left = if a.rank() == 1 { a.clone().reshaped(vec![1, a.len()])? } else { a.clone() };
    let right = if b.rank() == 1 { b.clone().reshaped(vec![b.len(), 1])? } else { b.clone() };
    let (&[ref a_batch @ .., m, k], &[ref b_batch @ .., k2, n]) = (left.shape(), right.shape()) else {
        return invalid("a matrix has at least two axes");
    };
    if k != k2 {
        return invalid(format!("{:?} and {:?} differ where they should meet", a.shape(), b.shape()));
    }
    let batch = broadcast_shape(a_batch, b_batch)?;
    call.charge(&batch)?;
    let starts = |own: &[usize], size: usize| -> Vec<usize> {
        Walk::broadcast(own, &batch).map(|number| number * size).collect()
    };
    let starts: Vec<(usize, usize)> =
        starts(a_batch, m * k).into_iter().zip(starts(b_batch, k * n)).collect();
    let mut shape = batch.clone();
    if a.rank() > 1 {
        shape.push(m);
    }
    if b.rank() > 1 {
        shape.push(n);
    }
    call.admit(&shape)?;
    call.charge(&[starts.len(), m, k, n])?;
    let values = match (lanes::lanes(&left), lanes::lanes(&right)) {
        (Lanes::Int(a), Lanes::Int(b)) => Lanes::Int(multiply(&a, &b, &starts, (m, k, n), 0, |sum, a, b| {
            sum.wrapping_add(a.wrapping_mul(b))
        })),
        (a, b) => {
            let (a, b) = (a.into_floats(), b.into_floats());
            Lanes::Float(multiply(&a, &b, &starts, (m, k, n), 0.0, |sum, a, b| sum + a * b))
        }
    };
    Ok(lanes::from_lanes(dtype, shape, values)?)
}

fn multiply<T: Copy>(
    a: &[T],
    b: &[T],
    starts: &[(usize, usize)],
    (m, k, n): (usize, usize, usize),
    zero: T,
    add: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let mut out = vec![zero; starts.len() * m * n];
    for (number, &(a_start, b_start)) in starts.iter().enumerate() {
        for row in 0..m {
            let line = &mut out[(number * m + row) * n..][..n];
            for inner in 0..k {
                let factor = a[a_start + row * k + inner];
                for (slot, &other) in line.iter_mut().zip(&b[b_start + inner * n..][..n]) {
                    *slot = add(*slot, factor, other);
                }
            }
        }
    }
    out
}

fn outer(call: &Call<'_>) -> Results {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (column, row) = (a.clone().reshaped(vec![a.len(), 1])?, b.clone().reshaped(vec![1, b.len()])?);
    one(Ok(product(call, &column, &row)?))
}

fn linear(call: &Call<'_>) -> Results {
    let (x, weight) = (call.tensor(0)?, call.tensor(1)?);
    let &[out, inner] = weight.shape() else { return invalid("a linear weight is a matrix") };
    let strides = row_major(weight.shape());
    let turned = Walk::new(&[inner, out], &[strides[1], strides[0]], 0);
    let turned = lanes::pick_elements(weight, vec![inner, out], turned)?;
    let y = product(call, x, &turned)?;
    match call.maybe_tensor(2)? {
        Some(bias) => sum(call, &y, 1.0, bias, 1.0),
        None => one(Ok(y)),
    }
}

/// `beta * self + alpha * product`.
fn add_product(call: &Call<'_>, product: HostTensor) -> Results {
    let scale = |index: usize| {
        Ok::<f64, PortableError>(as_float(call.maybe_scalar(index)?.unwrap_or(Scalar::Int(1))))
    };
    sum(call, &product, scale(4)?, call.tensor(0)?, scale(3)?)
}

fn sum(call: &Call<'_>, x: &HostTensor, alpha: f64, bias: &HostTensor, beta: f64) -> Results {
    let shape = broadcast_shape(x.shape(), bias.shape())?;
    call.admit(&shape)?;
    let places = Walk::broadcast(x.shape(), &shape).zip(Walk::broadcast(bias.shape(), &shape));
    // A beta of zero drops what is there, NaN included.
    one(match (lanes::lanes(x), lanes::lanes(bias)) {
        (Lanes::Int(x), Lanes::Int(y)) => {
            let (alpha, beta) = (alpha as i64, beta as i64);
            let value =
                |(i, j): (usize, usize)| alpha.wrapping_mul(x[i]).wrapping_add(beta.wrapping_mul(y[j]));
            lanes::from_ints(call.out_dtype(), shape, places.map(value))
        }
        (x, y) => {
            let (x, y) = (x.into_floats(), y.into_floats());
            let value = |(i, j): (usize, usize)| alpha * x[i] + if beta == 0.0 { 0.0 } else { beta * y[j] };
            lanes::from_floats(call.out_dtype(), shape, places.map(value))
        }
    })
}

/// The norm of a difference: of order 0, the number of elements that differ; of infinity, the largest.
fn distance(a: &[f64], b: &[f64], order: f64) -> f64 {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    match order {
        0.0 => apart.filter(|apart| *apart != 0.0).count() as f64,
        order if order.is_infinite() => apart.fold(0.0, f64::max),
        2.0 => apart.map(|apart| apart * apart).sum::<f64>().sqrt(),
        order => apart.map(|apart| apart.powf(order)).sum::<f64>().powf(1.0 / order),
    }
}

/// Distances of all rows of one matrix from all of another.
fn distances(call: &Call<'_>, a: &HostTensor, b: &HostTensor) -> Results {
    let (&[ref a_batch @ .., m, width], &[ref b_batch @ .., n, other]) = (a.shape(), b.shape()) else {
        return invalid("a matrix has at least two axes");
    };
    if width != other {
        return invalid(format!("{:?} and {:?} differ where they should meet", a.shape(), b.shape()));
    }
    let (batch, order) = (broadcast_shape(a_batch, b_batch)?, call.float(2)?);
    let shape = [&batch[..], &[m, n]].concat();
    call.admit(&shape)?;
    call.charge(&[&shape[..], &[width]].concat())?;
    let (x, y) = (lanes::floats(a), lanes::floats(b));
    let pairs = Walk::broadcast(a_batch, &batch).zip(Walk::broadcast(b_batch, &batch));
    let mut out = Vec::new();
    for (a_start, b_start) in pairs {
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let row = &x[(a_start * m + row) * width..][..width];
            out.push(distance(row, &y[(b_start * n + column) * width..][..width], order));
        }
    }
    one(lanes::from_floats(call.out_dtype(), shape, out))
}

/// Distances of the rows of a matrix from those behind them.
fn own_distances(call: &Call<'_>) -> Results {
    let (x, order) = (call.tensor(0)?, call.float(1)?);
    let &[rows, width] = x.shape() else { return invalid("distances are those of a matrix") };
    let count = rows * rows.saturating_sub(1) / 2;
    call.admit(&[count])?;
    call.charge(&[count, width])?;
    let x = lanes::floats(x);
    let row = |at: usize| &x[at * width..][..width];
    let pairs = (0..rows).flat_map(|a| (a + 1..rows).map(move |b| (a, b)));
    one(lanes::from_floats(
        call.out_dtype(),
        vec![count],
        pairs.map(|(a, b)| distance(row(a), row(b), order)),
    ))
}
