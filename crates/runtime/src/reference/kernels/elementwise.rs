//! Kernels that compute each element of the result from the elements at the same place of their operands. What
//! an op computes stands in its arm of [`super::compute`] or in `functions`; here is how it reaches the elements.

use super::lanes::{BLOCK, Lane, Reader, Writer};
use super::{Computed, KernelError, Operands, ResultType, functions};
use pteron_ir::ValueId;
use pteron_tensor::{DType, HostTensor, promote};
use std::cmp::Ordering;

/// A function that only floats have; integers are converted first.
pub(super) fn float(operands: &Operands<'_>, x: ValueId, f: impl Fn(f64) -> f64) -> Computed {
    let out = operands.out();
    map(out, out.dtype, operands.tensor(x)?, f)
}

/// A function that floats and integers have, each in its own way.
pub(super) fn number(
    operands: &Operands<'_>,
    x: ValueId,
    float: impl Fn(f64) -> f64,
    int: impl Fn(i128) -> i128,
) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    if out.dtype.is_float() { map(out, out.dtype, x, float) } else { map(out, out.dtype, x, int) }
}

/// Rounding of any kind: integers are what they are.
pub(super) fn rounding(operands: &mut Operands<'_>, x: ValueId, f: impl Fn(f64) -> f64) -> Computed {
    if operands.out().dtype.is_float() { float(operands, x, f) } else { operands.take(x) }
}

pub(super) fn truth(operands: &Operands<'_>, x: ValueId, f: impl Fn(bool) -> bool) -> Computed {
    map(operands.out(), DType::Bool, operands.tensor(x)?, f)
}

/// All bits turned; of bools, not: turning all bits of a byte would keep it true.
pub(super) fn invert(operands: &Operands<'_>, x: ValueId) -> Computed {
    match operands.out().dtype {
        DType::Bool => truth(operands, x, |x| !x),
        dtype => map(operands.out(), dtype, operands.tensor(x)?, |x: i128| !x),
    }
}

pub(super) fn round(operands: &Operands<'_>, x: ValueId, decimals: i32) -> Computed {
    let round = functions::Round::new(decimals, operands.out().dtype);
    number(operands, x, |x| round.float(x), |x| round.int(x))
}

/// A function of two floats; integers are converted first.
pub(super) fn float2(
    operands: &Operands<'_>,
    a: ValueId,
    b: ValueId,
    f: impl Fn(f64, f64) -> f64,
) -> Computed {
    let out = operands.out();
    zip(out, out.dtype, operands.tensor(a)?, operands.tensor(b)?, f)
}

/// A function of two floats or two integers.
pub(super) fn number2(
    operands: &Operands<'_>,
    a: ValueId,
    b: ValueId,
    float: impl Fn(f64, f64) -> f64,
    int: impl Fn(i128, i128) -> i128,
) -> Computed {
    let (a, b, out) = (operands.tensor(a)?, operands.tensor(b)?, operands.out());
    if out.dtype.is_float() { zip(out, out.dtype, a, b, float) } else { zip(out, out.dtype, a, b, int) }
}

/// A function of two integers' bits.
pub(super) fn bits2(
    operands: &Operands<'_>,
    a: ValueId,
    b: ValueId,
    f: impl Fn(i128, i128) -> i128,
) -> Computed {
    let out = operands.out();
    zip(out, out.dtype, operands.tensor(a)?, operands.tensor(b)?, f)
}

pub(super) fn truth2(
    operands: &Operands<'_>,
    a: ValueId,
    b: ValueId,
    f: impl Fn(bool, bool) -> bool,
) -> Computed {
    zip(operands.out(), DType::Bool, operands.tensor(a)?, operands.tensor(b)?, f)
}

/// Compares after promotion. With a NaN there is no order.
pub(super) fn compare(
    operands: &Operands<'_>,
    a: ValueId,
    b: ValueId,
    f: impl Fn(Option<Ordering>) -> bool,
) -> Computed {
    let (a, b, out) = (operands.tensor(a)?, operands.tensor(b)?, operands.out());
    let dtype = promote(a.dtype(), b.dtype());
    if dtype.is_float() {
        zip(out, dtype, a, b, |x: f64, y: f64| f(x.partial_cmp(&y)))
    } else {
        zip(out, dtype, a, b, |x: i128, y: i128| f(x.partial_cmp(&y)))
    }
}

pub(super) fn choose(operands: &Operands<'_>, condition: ValueId, x: ValueId, y: ValueId) -> Computed {
    let (condition, x, y) = (operands.tensor(condition)?, operands.tensor(x)?, operands.tensor(y)?);
    let out = operands.out();
    if out.dtype.is_float() {
        choose_lanes::<f64>(out, condition, x, y)
    } else {
        choose_lanes::<i128>(out, condition, x, y)
    }
}

fn choose_lanes<L: Lane>(
    out: &ResultType,
    condition: &HostTensor,
    x: &HostTensor,
    y: &HostTensor,
) -> Computed {
    let mut condition = Reader::operand(condition, &out.shape, DType::Bool);
    let mut readers = [x, y].map(|tensor| Reader::operand(tensor, &out.shape, out.dtype));
    let (mut conditions, mut lanes) = ([false; BLOCK], [[L::default(); BLOCK]; 2]);
    blocks(out, |writer, count| {
        condition.fill(&mut conditions[..count])?;
        for (reader, lanes) in readers.iter_mut().zip(&mut lanes) {
            reader.fill(&mut lanes[..count])?;
        }
        let [chosen, others] = &mut lanes;
        for ((&condition, chosen), &other) in conditions.iter().zip(chosen.iter_mut()).zip(others.iter()) {
            *chosen = if condition { *chosen } else { other };
        }
        writer.put(&chosen[..count])
    })
}

/// The lower bound first, so that where the bounds cross the upper one wins.
pub(super) fn clip(
    operands: &Operands<'_>,
    x: ValueId,
    low: Option<ValueId>,
    high: Option<ValueId>,
) -> Computed {
    let (x, low, high) = (operands.tensor(x)?, operands.maybe(low)?, operands.maybe(high)?);
    let out = operands.out();
    if out.dtype.is_float() {
        clip_lanes::<f64>(out, x, low, high)
    } else {
        clip_lanes::<i128>(out, x, low, high)
    }
}

fn clip_lanes<L: Lane + PartialOrd>(
    out: &ResultType,
    x: &HostTensor,
    low: Option<&HostTensor>,
    high: Option<&HostTensor>,
) -> Computed {
    let operand = |tensor| Reader::operand(tensor, &out.shape, out.dtype);
    let (mut x, mut low, mut high) = (operand(x), low.map(operand), high.map(operand));
    let (mut lanes, mut bounds) = ([L::default(); BLOCK], [L::default(); BLOCK]);
    blocks(out, |writer, count| {
        x.fill(&mut lanes[..count])?;
        for (bound, limit) in
            [(&mut low, functions::maximum as fn(L, L) -> L), (&mut high, functions::minimum)]
        {
            let Some(bound) = bound else { continue };
            bound.fill(&mut bounds[..count])?;
            for (lane, &bound) in lanes.iter_mut().zip(&bounds[..count]) {
                *lane = limit(*lane, bound);
            }
        }
        writer.put(&lanes[..count])
    })
}

/// One operand, converted to `dtype` first.
fn map<L: Lane, M: Lane>(out: &ResultType, dtype: DType, x: &HostTensor, f: impl Fn(L) -> M) -> Computed {
    let mut reader = Reader::operand(x, &out.shape, dtype);
    let (mut xs, mut results) = ([L::default(); BLOCK], [M::default(); BLOCK]);
    blocks(out, |writer, count| {
        reader.fill(&mut xs[..count])?;
        for (result, &x) in results[..count].iter_mut().zip(&xs) {
            *result = f(x);
        }
        writer.put(&results[..count])
    })
}

/// Two operands, broadcast to the result and converted to `dtype` first.
fn zip<L: Lane, M: Lane>(
    out: &ResultType,
    dtype: DType,
    a: &HostTensor,
    b: &HostTensor,
    f: impl Fn(L, L) -> M,
) -> Computed {
    let (mut a, mut b) = (Reader::operand(a, &out.shape, dtype), Reader::operand(b, &out.shape, dtype));
    let (mut xs, mut ys, mut results) = ([L::default(); BLOCK], [L::default(); BLOCK], [M::default(); BLOCK]);
    blocks(out, |writer, count| {
        a.fill(&mut xs[..count])?;
        b.fill(&mut ys[..count])?;
        for ((result, &x), &y) in results[..count].iter_mut().zip(&xs).zip(&ys) {
            *result = f(x, y);
        }
        writer.put(&results[..count])
    })
}

/// Writes a result block by block; `block` is told how many elements the next one has.
fn blocks(
    out: &ResultType,
    mut block: impl FnMut(&mut Writer, usize) -> Result<(), KernelError>,
) -> Computed {
    let mut writer = Writer::new(out)?;
    while writer.left() > 0 {
        let count = writer.left().min(BLOCK);
        block(&mut writer, count)?;
    }
    Ok(writer.finish())
}
