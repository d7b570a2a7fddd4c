//! Convolution over any number of axes, plain and transposed, with groups.

use super::call::as_size;
use super::lanes;
use super::walk::row_major;
use super::{Call, Operator, PortableError, Results, invalid, one, whole};

pub(super) const TABLE: &[Operator] = &[whole("aten::convolution.out", 9, convolution)];

/// One spatial axis.
#[derive(Clone, Copy)]
struct Axis {
    input: usize,
    kernel: usize,
    output: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
}

impl Axis {
    /// Where kernel element `tap` at `place` lands on the other side: from an output to an input position when
    /// plain, from an input to an output position when transposed.
    fn land(self, place: usize, tap: usize, size: usize) -> Option<usize> {
        (place * self.stride + tap * self.dilation).checked_sub(self.pad).filter(|&at| at < size)
    }
}

/// A list with one number for all axes or one each.
fn per_axis(values: Vec<i64>, axes: usize, absent: usize) -> Result<Vec<usize>, PortableError> {
    match values[..] {
        [] => Ok(vec![absent; axes]),
        [value] => Ok(vec![as_size(value)?; axes]),
        _ if values.len() == axes => values.into_iter().map(as_size).collect(),
        _ => invalid(format!("{values:?} for {axes} axes")),
    }
}

fn convolution(call: &Call<'_>) -> Results {
    let (x, weight, bias) = (call.tensor(0)?, call.tensor(1)?, call.maybe_tensor(2)?);
    let (transposed, groups) = (call.bool(6)?, as_size(call.int(8)?)?);
    let (&[batch, channels, ref spatial @ ..], &[first, second, ref kernel @ ..]) =
        (x.shape(), weight.shape())
    else {
        return invalid(format!("{:?} convolved with {:?}", x.shape(), weight.shape()));
    };
    // A transposed weight is [in, out / groups, ...], a plain one [out, in / groups, ...].
    let (inputs, outputs) = if transposed { (first, second * groups) } else { (second * groups, first) };
    if spatial.len() != kernel.len()
        || groups == 0
        || inputs != channels
        || outputs % groups != 0
        || channels % groups != 0
    {
        return invalid(format!("{:?} convolved with {:?} in {groups} groups", x.shape(), weight.shape()));
    }
    let count = spatial.len();
    let (strides, pads) = (per_axis(call.ints(3)?, count, 1)?, per_axis(call.ints(4)?, count, 0)?);
    let (dilations, extra) = (per_axis(call.ints(5)?, count, 1)?, per_axis(call.ints(7)?, count, 0)?);
    let axes = (0..count).map(|at| {
        let (input, kernel, stride, pad, dilation) = (spatial[at], kernel[at], strides[at], pads[at], dilations[at]);
        output_size(input, kernel, stride, pad, dilation, transposed.then_some(extra[at]))
            .map(|output| Axis { input, kernel, output, stride, pad, dilation })
            .ok_or_else(|| {
                PortableError::Invalid(format!(
                    "a kernel of {kernel} by {stride} with pad {pad} and dilation {dilation} over {input} elements"
                ))
            })
    });
    let axes = axes.collect::<Result<Vec<Axis>, _>>()?;
    let mut shape = vec![batch, outputs];
    shape.extend(axes.iter().map(|axis| axis.output));
    call.admit(&shape)?;
    let (in_group, out_group) = (channels / groups, outputs / groups);
    call.charge(&[&shape[..], kernel, &[in_group]].concat())?;
    let bias = bias.map(lanes::floats);
    if bias.as_ref().is_some_and(|bias| bias.len() != outputs) {
        return invalid(format!("a bias that has not {outputs} elements"));
    }
    let size: usize = axes.iter().map(|axis| axis.output).product();
    let mut out = vec![0.0; batch * outputs * size];
    if let Some(bias) = &bias {
        for (row, chunk) in out.chunks_mut(size.max(1)).enumerate() {
            chunk.fill(bias[row % outputs]);
        }
    }
    let (values, taps) = (lanes::floats(x), lanes::floats(weight));
    let (in_size, kernel_size): (usize, usize) = (spatial.iter().product(), kernel.iter().product());
    // The places that meet are the same for every image and channel, so they are found once, outermost.
    for_each_link(&axes, transposed, |into, of, by| {
        for image in 0..batch {
            for output in 0..outputs {
                let first = output / out_group * in_group;
                let sum: f64 = (first..first + in_group)
                    .map(|input| {
                        let tap = match transposed {
                            true => input * out_group + output % out_group,
                            false => output * in_group + input - first,
                        };
                        values[(image * channels + input) * in_size + of] * taps[tap * kernel_size + by]
                    })
                    .sum();
                out[(image * outputs + output) * size + into] += sum;
            }
        }
    });
    one(lanes::from_floats(call.out_dtype(), shape, out))
}

/// The output's size; `None` when the kernel does not fit or a number is out of range.
fn output_size(
    input: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
    transposed: Option<usize>,
) -> Option<usize> {
    let reach = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    let pads = pad.checked_mul(2)?;
    match transposed {
        Some(extra) => {
            let spread = input.checked_sub(1)?.checked_mul(stride)?;
            spread.checked_add(reach)?.checked_add(extra)?.checked_sub(pads)
        }
        None if stride == 0 => None,
        None => Some(input.checked_add(pads)?.checked_sub(reach)? / stride + 1),
    }
}

/// Visits all (output, input, kernel) element numbers that meet.
fn for_each_link(axes: &[Axis], transposed: bool, mut visit: impl FnMut(usize, usize, usize)) {
    let sizes = |pick: fn(&Axis) -> usize| axes.iter().map(pick).collect::<Vec<usize>>();
    let (inputs, kernels, outputs) = (sizes(|a| a.input), sizes(|a| a.kernel), sizes(|a| a.output));
    let (walked, landed) = if transposed { (&inputs, &outputs) } else { (&outputs, &inputs) };
    let strides = row_major(landed);
    let mut place = vec![0; axes.len()];
    for number in 0..walked.iter().product() {
        let mut tap = vec![0; axes.len()];
        for by in 0..kernels.iter().product() {
            let landing = axes.iter().enumerate().try_fold(0usize, |sum, (at, axis)| {
                Some(sum + axis.land(place[at], tap[at], landed[at])? * strides[at] as usize)
            });
            match landing {
                Some(landing) if transposed => visit(landing, number, by),
                Some(landing) => visit(number, landing, by),
                None => {}
            }
            advance(&mut tap, &kernels);
        }
        advance(&mut place, walked);
    }
}

/// The next place in row-major order.
fn advance(place: &mut [usize], sizes: &[usize]) {
    for (at, &size) in place.iter_mut().zip(sizes).rev() {
        *at += 1;
        if *at < size {
            return;
        }
        *at = 0;
    }
}
