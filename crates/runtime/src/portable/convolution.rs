//! Convolution over any number of axes, plain and transposed, with groups; and what a gradient of its output says of what
//! went in.

use super::call::as_size;
use super::lanes;
use super::walk::row_major;
use super::{Call, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::HostTensor;
use std::ops::Range;

pub(super) const TABLE: &[Operator] = &[
    whole("aten::convolution.out", 9, convolution),
    Operator { outs: Outs::Tensors(3), ..whole("aten::convolution_backward.out", 11, backward) },
];

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

/// How an input, weights and an output lie to each other.
struct Geometry {
    batch: usize,
    inputs: usize,
    outputs: usize,
    groups: usize,
    is_transposed: bool,
    axes: Vec<Axis>,
}

impl Geometry {
    /// Of an input and weights that are convolved with strides, pads, dilations, whether transposed, extra ends and groups, which
    /// are a call's arguments from `first` on.
    fn new(
        call: &Call<'_>,
        x: &HostTensor,
        weight: &HostTensor,
        first: usize,
    ) -> Result<Geometry, PortableError> {
        let (is_transposed, groups) = (call.bool(first + 3)?, as_size(call.int(first + 5)?)?);
        let (&[batch, inputs, ref spatial @ ..], &[one, other, ref kernel @ ..]) =
            (x.shape(), weight.shape())
        else {
            return invalid(format!("{:?} convolved with {:?}", x.shape(), weight.shape()));
        };
        // A transposed weight is [in, out / groups, ...], a plain one [out, in / groups, ...].
        let grouped = other.checked_mul(groups);
        let (wanted, outputs) = if is_transposed { (Some(one), grouped) } else { (grouped, Some(one)) };
        let outputs = outputs.filter(|outputs| {
            spatial.len() == kernel.len()
                && groups != 0
                && wanted == Some(inputs)
                && outputs % groups == 0
                && inputs % groups == 0
        });
        let Some(outputs) = outputs else {
            return invalid(format!(
                "{:?} convolved with {:?} in {groups} groups",
                x.shape(),
                weight.shape()
            ));
        };
        let count = spatial.len();
        let strides = per_axis(call.ints(first)?, count, 1)?;
        let pads = per_axis(call.ints(first + 1)?, count, 0)?;
        let dilations = per_axis(call.ints(first + 2)?, count, 1)?;
        let extra = per_axis(call.ints(first + 4)?, count, 0)?;
        let axes = (0..count).map(|at| {
            let (input, kernel, stride, pad, dilation) = (spatial[at], kernel[at], strides[at], pads[at], dilations[at]);
            output_size(input, kernel, stride, pad, dilation, is_transposed.then_some(extra[at]))
                .map(|output| Axis { input, kernel, output, stride, pad, dilation })
                .ok_or_else(|| {
                    PortableError::Invalid(format!(
                        "a kernel of {kernel} by {stride} with pad {pad} and dilation {dilation} over {input} elements"
                    ))
                })
        });
        let axes = axes.collect::<Result<_, _>>()?;
        Ok(Geometry { batch, inputs, outputs, groups, is_transposed, axes })
    }

    fn output_shape(&self) -> Vec<usize> {
        [self.batch, self.outputs].into_iter().chain(self.axes.iter().map(|axis| axis.output)).collect()
    }

    /// Elements of a channel's input, its kernel and its output.
    fn plane_sizes(&self) -> [usize; 3] {
        let size = |pick: fn(&Axis) -> usize| self.axes.iter().map(pick).product();
        [size(|axis| axis.input), size(|axis| axis.kernel), size(|axis| axis.output)]
    }

    /// The input channels that an output channel is made of.
    fn seen_by(&self, output: usize) -> Range<usize> {
        let [in_group, out_group] = [self.inputs / self.groups, self.outputs / self.groups];
        let first = output / out_group * in_group;
        first..first + in_group
    }

    /// Which kernel lies between two channels.
    fn tap(&self, input: usize, output: usize) -> usize {
        let [in_group, out_group] = [self.inputs / self.groups, self.outputs / self.groups];
        match self.is_transposed {
            true => input * out_group + output % out_group,
            false => output * in_group + input % in_group,
        }
    }

    fn charge(&self, call: &Call<'_>) -> Result<(), PortableError> {
        let kernel = self.axes.iter().map(|axis| axis.kernel);
        let factors = self.output_shape().into_iter().chain(kernel).chain([self.inputs / self.groups]);
        call.charge(&factors.collect::<Vec<usize>>())
    }
}

fn convolution(call: &Call<'_>) -> Results {
    let (x, weight, bias) = (call.tensor(0)?, call.tensor(1)?, call.maybe_tensor(2)?);
    let geometry = Geometry::new(call, x, weight, 3)?;
    let (shape, outputs) = (geometry.output_shape(), geometry.outputs);
    call.admit(&shape)?;
    geometry.charge(call)?;
    let bias = bias.map(lanes::floats);
    if bias.as_ref().is_some_and(|bias| bias.len() != outputs) {
        return invalid(format!("a bias that has not {outputs} elements"));
    }
    let [in_size, kernel_size, size] = geometry.plane_sizes();
    let mut out = vec![0.0; geometry.batch * outputs * size];
    if let Some(bias) = &bias {
        for (row, chunk) in out.chunks_mut(size.max(1)).enumerate() {
            chunk.fill(bias[row % outputs]);
        }
    }
    let (values, taps) = (lanes::floats(x), lanes::floats(weight));
    // The places that meet are the same for every image and channel, so they are found once, outermost.
    for_each_link(&geometry.axes, geometry.is_transposed, |into, of, by| {
        for image in 0..geometry.batch {
            for output in 0..outputs {
                let product = |input: usize| {
                    let value = values[(image * geometry.inputs + input) * in_size + of];
                    value * taps[geometry.tap(input, output) * kernel_size + by]
                };
                out[(image * outputs + output) * size + into] +=
                    geometry.seen_by(output).map(product).sum::<f64>();
            }
        }
    });
    one(lanes::from_floats(call.out_dtype(), shape, out))
}

/// What an output's gradient says of the input, the weights and the bias; of those that the mask leaves out, zeros.
fn backward(call: &Call<'_>) -> Results {
    let (gradient, x, weight) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let geometry = Geometry::new(call, x, weight, 4)?;
    if gradient.shape() != geometry.output_shape() {
        return invalid(format!("a gradient of {:?} for {:?}", gradient.shape(), geometry.output_shape()));
    }
    let &[of_input, of_weight, of_bias] = call.bools(10)? else {
        return invalid("three gradients are to be masked");
    };
    geometry.charge(call)?;
    let [in_size, kernel_size, size] = geometry.plane_sizes();
    let [mut inputs, mut weights] = [(of_input, x.len()), (of_weight, weight.len())]
        .map(|(wanted, count)| vec![0.0; if wanted { count } else { 0 }]);
    let (given, values, taps) = (lanes::floats(gradient), lanes::floats(x), lanes::floats(weight));
    for_each_link(&geometry.axes, geometry.is_transposed, |of, into, by| {
        for image in 0..geometry.batch {
            for output in 0..geometry.outputs {
                let given = given[(image * geometry.outputs + output) * size + of];
                for input in geometry.seen_by(output) {
                    let place = (image * geometry.inputs + input) * in_size + into;
                    let tap = geometry.tap(input, output) * kernel_size + by;
                    if of_input {
                        inputs[place] += given * taps[tap];
                    }
                    if of_weight {
                        weights[tap] += given * values[place];
                    }
                }
            }
        }
    });
    let mut biases = vec![0.0; if of_bias { geometry.outputs } else { 0 }];
    if of_bias {
        for (number, plane) in given.chunks(size.max(1)).enumerate() {
            biases[number % geometry.outputs] += plane.iter().sum::<f64>();
        }
    }
    let results = [
        (of_input, x.shape().to_vec(), inputs),
        (of_weight, weight.shape().to_vec(), weights),
        (of_bias, vec![geometry.outputs], biases),
    ];
    let results = results.into_iter().zip(call.outs).map(|((wanted, shape, values), out)| {
        let tensor = match wanted {
            true => lanes::from_floats(out.dtype, shape, values)?,
            false => HostTensor::zeros(out.dtype, out.sizes.clone())?,
        };
        Ok(Value::Tensor(tensor))
    });
    results.collect()
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

#[cfg(test)]
mod tests {
    use super::super::tests::{check_close, f, list, run};
    use crate::Value;

    /// Measured with PyTorch 2.15.
    #[test]
    fn gradients_go_back_through_convolutions() {
        let ones = |count: usize| list(&vec![1; count]);
        let back =
            |given: &[Value; 3], settings: [Value; 3], transposed: bool, groups: i64, mask: [bool; 3]| {
                let [stride, pad, dilation] = settings;
                let rest =
                    [Value::Bool(transposed), list(&[0]), Value::Int(groups), Value::Bools(mask.to_vec())];
                [given.to_vec(), vec![Value::None, stride, pad, dilation], rest.to_vec()].concat()
            };
        let name = "aten::convolution_backward.out";
        let x: [f32; 18] =
            [1.0, 2.0, 3.0, 4.0, 5.0, -6.0, 7.0, 8.0, 9.0, 0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 1.0, 1.0, 1.0];
        let x = f(&[1, 2, 3, 3], &x);
        let kernels = [1.0, -1.0, 2.0, 0.0, 0.5, 3.0, -2.0, 1.0];

        let given = f(&[1, 2, 2, 2], &[1.0, -2.0, 3.0, 0.5, 2.0, 1.0, -1.0, 4.0]);
        let grouped = [given, x.clone(), f(&[2, 1, 2, 2], &kernels)];
        let of_x: [f32; 18] =
            [1.0, -3.0, 2.0, 5.0, -6.5, -0.5, 6.0, 1.0, 0.0, 1.0, 6.5, 3.0, -4.5, -1.0, 13.0, 2.0, -9.0, 4.0];
        let of_weight = [11.5, 8.0, 19.0, 45.5, -9.0, 15.0, 5.0, 2.0];
        let wanted = [f(&[1, 2, 3, 3], &of_x), f(&[2, 1, 2, 2], &of_weight), f(&[2], &[2.5, 6.0])];
        let plain = || [ones(2), list(&[0, 0]), ones(2)];
        check_close(name, &back(&grouped, plain(), false, 2, [true; 3]), &wanted);
        let only_weight = [f(&[1], &[0.0]), wanted[1].clone(), f(&[1], &[0.0])];
        check_close(name, &back(&grouped, plain(), false, 2, [false, true, false]), &only_weight);
        assert!(run(name, &back(&grouped, plain(), false, 3, [true; 3]), &wanted).is_err());
        let short = [f(&[1, 2, 2, 1], &[1.0; 4]), grouped[1].clone(), grouped[2].clone()];
        assert!(run(name, &back(&short, plain(), false, 2, [true; 3]), &wanted).is_err());

        let apart = [f(&[1, 1, 2, 2], &[1.0, -2.0, 3.0, 0.5]), x, f(&[1, 2, 2, 2], &kernels)];
        let mut of_x = [0.0; 18];
        (of_x[4], of_x[13]) = (-6.5, 14.25);
        let of_weight = [2.5, 15.0, -10.0, 5.0, -1.0, -6.0, 4.0, -2.0];
        let wanted = [f(&[1, 2, 3, 3], &of_x), f(&[1, 2, 2, 2], &of_weight), f(&[1], &[2.5])];
        check_close(
            name,
            &back(&apart, [list(&[2, 2]), ones(2), list(&[2, 2])], false, 1, [true; 3]),
            &wanted,
        );

        let turned = [
            f(&[1, 1, 5], &[-1.0, 0.0, 1.0, 2.0, 3.0]),
            f(&[1, 2, 2], &[1.0, 2.0, 3.0, -1.0]),
            f(&[2, 1, 3], &[1.0, -1.0, 2.0, 0.5, 3.0, -2.0]),
        ];
        let of_weight = f(&[2, 1, 3], &[1.0, 4.0, 7.0, -4.0, -2.0, 0.0]);
        let wanted = [f(&[1, 2, 2], &[1.0, 5.0, -2.5, 0.5]), of_weight, f(&[1], &[5.0])];
        check_close(name, &back(&turned, [list(&[2]), list(&[0]), ones(1)], true, 1, [true; 3]), &wanted);
    }
}
