//! Convolutions of one, two and three axes, plain and transposed, by one loop: for every output position the
//! input values under the kernel are collected (zero where there are none), and each output channel is a sum of
//! products with them. The two kinds differ only in which input a kernel tap meets.

use super::matmul::dot;
use super::{Computed, KernelError, Operands, ResultType, floats};
use pteron_ir::ValueId;
use pteron_tensor::HostTensor;

/// Stride, padding and dilation of one axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    stride: usize,
    padding: usize,
    dilation: usize,
}

/// Which way the kernel is laid over the input.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Direction {
    /// Output `o` and tap `t` meet input `o * stride + t * dilation - padding`.
    Plain,
    /// Input `i` and tap `t` meet output `i * stride + t * dilation - padding`; output padding only lengthens
    /// the end, so it shows in the result's shape alone.
    Transposed,
}

/// Settings of all axes, from the op's fields.
pub(super) fn axes<const N: usize>(stride: [i32; N], padding: [i32; N], dilation: [i32; N]) -> [Axis; N] {
    // The type rule has refused negative ones.
    let size = |value: i32| usize::try_from(value).unwrap_or(0);
    std::array::from_fn(|axis| Axis {
        stride: size(stride[axis]),
        padding: size(padding[axis]),
        dilation: size(dilation[axis]),
    })
}

pub(super) fn conv(
    operands: &Operands<'_>,
    x: ValueId,
    w: ValueId,
    axes: &[Axis],
    groups: i32,
    direction: Direction,
) -> Computed {
    let (x, w) = (operands.tensor(x)?, operands.tensor(w)?);
    let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| KernelError::Invalid("no groups".into()))?;
    convolve(x, w, axes, groups, direction, operands.out())
}

fn convolve(
    x: &HostTensor,
    w: &HostTensor,
    axes: &[Axis],
    groups: usize,
    direction: Direction,
    ty: &ResultType,
) -> Computed {
    let spatial = 1..1 + axes.len();
    let (input, kernel, output) =
        (&x.shape()[spatial.clone()], &w.shape()[spatial.clone()], &ty.shape[spatial]);
    let (channels, depth) = (x.shape()[axes.len() + 1], w.shape()[axes.len() + 1]);
    let filters = w.shape()[0] / groups;
    let (positions, taps) = (output.iter().product::<usize>(), kernel.iter().product::<usize>());
    let (x, w) = (floats::all(x)?, floats::all(w)?);
    let mut out = vec![0.0; ty.shape.iter().product()];
    let image = input.iter().product::<usize>() * channels;
    let mut patch = vec![0.0; taps * depth];
    let mut sources = vec![None; taps];
    for position in 0..positions {
        meet(position, axes, direction, (input, kernel, output), &mut sources);
        for batch in 0..ty.shape[0] {
            for group in 0..groups {
                for (patch, source) in patch.chunks_exact_mut(depth.max(1)).zip(&sources) {
                    match source {
                        Some(at) => {
                            let first = batch * image + at * channels + group * depth;
                            patch.copy_from_slice(&x[first..first + depth]);
                        }
                        None => patch.fill(0.0),
                    }
                }
                let first = (batch * positions + position) * groups + group;
                let out = &mut out[first * filters..][..filters];
                for (filter, out) in out.iter_mut().enumerate() {
                    let filter = group * filters + filter;
                    *out = dot(&patch, &w[filter * patch.len()..][..patch.len()]);
                }
            }
        }
    }
    floats::rounded(ty, &out)
}

/// The input position that each tap meets at an output position, if there is one.
fn meet(
    position: usize,
    axes: &[Axis],
    direction: Direction,
    (input, kernel, output): (&[usize], &[usize], &[usize]),
    sources: &mut [Option<usize>],
) {
    for (tap, source) in sources.iter_mut().enumerate() {
        let (mut position, mut tap, mut stride) = (position, tap, 1);
        *source = Some(0);
        for axis in (0..axes.len()).rev() {
            let (o, t) = (position % output[axis], tap % kernel[axis]);
            (position, tap) = (position / output[axis], tap / kernel[axis]);
            let Axis { stride: step, padding, dilation } = axes[axis];
            let at = match direction {
                Direction::Plain => (o * step + t * dilation).checked_sub(padding),
                Direction::Transposed => {
                    (o + padding).checked_sub(t * dilation).filter(|at| at % step == 0).map(|at| at / step)
                }
            };
            let at = at.filter(|&at| at < input[axis]);
            *source = source.zip(at).map(|(sum, at)| sum + at * stride);
            stride *= input[axis];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{as_f64, assert_close, random, run, v};
    use super::*;
    use pteron_tensor::DType;

    /// Over one axis: input, kernel, output positions, then stride, padding, dilation.
    type Line = (usize, usize, usize, [i32; 3]);

    struct Case {
        direction: Direction,
        lines: Vec<Line>,
        /// Batch, input channels, output channels, groups.
        channels: [usize; 4],
    }

    /// The textbook formula: every input, every tap, added where it lands.
    fn scattered(case: &Case, x: &[f64], w: &[f64]) -> Vec<f64> {
        let Case { direction, lines, channels: [batch, inputs, outputs, groups] } = case;
        let size = |of: fn(&Line) -> usize| lines.iter().map(of).collect::<Vec<_>>();
        let (input, kernel, output) = (size(|l| l.0), size(|l| l.1), size(|l| l.2));
        let total = |shape: &[usize]| shape.iter().product::<usize>();
        let coordinates = |mut at: usize, shape: &[usize]| {
            let mut list: Vec<i64> = shape
                .iter()
                .rev()
                .map(|n| {
                    let i = at % n;
                    at /= n;
                    i as i64
                })
                .collect();
            list.reverse();
            list
        };
        let (depth, filters) = (inputs / groups, outputs / groups);
        let mut out = vec![0.0; batch * total(&output) * outputs];
        for i in 0..total(&input) {
            for t in 0..total(&kernel) {
                for o in 0..total(&output) {
                    let (i_at, t_at, o_at) =
                        (coordinates(i, &input), coordinates(t, &kernel), coordinates(o, &output));
                    let meets = (0..lines.len()).all(|axis| {
                        let [stride, padding, dilation] = lines[axis].3.map(i64::from);
                        let (from, to) = match direction {
                            Direction::Plain => (o_at[axis], i_at[axis]),
                            Direction::Transposed => (i_at[axis], o_at[axis]),
                        };
                        from * stride + t_at[axis] * dilation - padding == to
                    });
                    if !meets {
                        continue;
                    }
                    for n in 0..*batch {
                        for f in 0..*outputs {
                            for c in 0..depth {
                                let x = x[(n * total(&input) + i) * inputs + f / filters * depth + c];
                                let w = w[(f * total(&kernel) + t) * depth + c];
                                out[(n * total(&output) + o) * outputs + f] += x * w;
                            }
                        }
                    }
                }
            }
        }
        out
    }

    #[test]
    fn all_kinds_equal_the_textbook_formula() {
        use Direction::{Plain, Transposed};
        let cases = [
            Case { direction: Plain, lines: vec![(9, 3, 9, [1, 1, 1])], channels: [2, 4, 6, 1] },
            Case { direction: Plain, lines: vec![(9, 3, 3, [2, 0, 2])], channels: [1, 4, 6, 2] },
            Case {
                direction: Plain,
                lines: vec![(5, 2, 4, [1, 0, 1]), (6, 3, 4, [2, 2, 1])],
                channels: [1, 3, 3, 3],
            },
            Case {
                direction: Plain,
                lines: vec![(3, 2, 2, [1, 0, 1]), (4, 3, 4, [1, 1, 1]), (5, 2, 3, [2, 0, 1])],
                channels: [1, 2, 4, 1],
            },
            Case { direction: Transposed, lines: vec![(4, 3, 6, [1, 0, 1])], channels: [2, 4, 6, 1] },
            // Stride 2, padding 1, output padding 1: (4 - 1) * 2 + 3 - 2 + 1.
            Case { direction: Transposed, lines: vec![(4, 3, 8, [2, 1, 1])], channels: [1, 4, 2, 2] },
            Case {
                direction: Transposed,
                lines: vec![(3, 2, 6, [2, 0, 1]), (3, 3, 9, [2, 0, 2])],
                channels: [1, 2, 2, 2],
            },
            Case {
                direction: Transposed,
                lines: vec![(2, 2, 3, [1, 0, 1]), (3, 1, 3, [1, 0, 1]), (2, 3, 3, [2, 1, 1])],
                channels: [1, 3, 2, 1],
            },
            // A stride beyond the kernel leaves outputs that meet nothing.
            Case { direction: Transposed, lines: vec![(3, 1, 7, [3, 0, 1])], channels: [1, 1, 1, 1] },
        ];
        for (index, case) in cases.iter().enumerate() {
            let [batch, inputs, outputs, groups] = case.channels;
            let shape = |first: usize, of: fn(&Line) -> usize, last: usize| -> Vec<usize> {
                [first].into_iter().chain(case.lines.iter().map(of)).chain([last]).collect()
            };
            let x = random(index as u32, &shape(batch, |l| l.0, inputs));
            let w = random(99, &shape(outputs, |l| l.1, inputs / groups));
            let out = shape(batch, |l| l.2, outputs);
            let axes: Vec<Axis> = case.lines.iter().map(|l| axes([l.3[0]], [l.3[1]], [l.3[2]])[0]).collect();
            let got = run(&[&x, &w], &[(DType::F32, &out)], |operands| {
                conv(operands, v(0), v(1), &axes, groups as i32, case.direction)
            });
            assert_close(got, &scattered(case, &as_f64(&x), &as_f64(&w)));
        }
    }
}
