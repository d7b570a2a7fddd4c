//! Convolutions of every kind on the device against the reference backend: one to three axes, plain and transposed, dense, grouped and
//! depthwise, of every pair of float dtypes, over strided operands, with sizes on either side of tiles.

use crate::packed::{agrees, devices, operands, tensor};
use crate::{device, differential::run_graph};
use pteron_gpu::Features;
use pteron_ir::{Op, Ssa, ValueId, parse_graph};
use pteron_tensor::DType;
use pteron_vulkan::VulkanOptions;

const X: ValueId = ValueId(0);
const W: ValueId = ValueId(1);

/// Input, kernel, stride, padding, dilation and output padding of an axis.
type Line = [i32; 6];

/// Batch, input channels, output channels and groups.
type Channels = [usize; 4];

fn plain(lines: &[Line], groups: i32) -> Op<Ssa> {
    match *lines {
        [[_, _, stride, padding, dilation, _]] => {
            Op::Conv1D { x: X, w: W, stride, padding, dilation, groups }
        }
        [h, w] => Op::Conv2D {
            x: X,
            w: W,
            stride_h: h[2],
            stride_w: w[2],
            padding_h: h[3],
            padding_w: w[3],
            dilation_h: h[4],
            dilation_w: w[4],
            groups,
        },
        [d, h, w] => Op::Conv3D {
            x: X,
            w: W,
            stride_d: d[2],
            stride_h: h[2],
            stride_w: w[2],
            padding_d: d[3],
            padding_h: h[3],
            padding_w: w[3],
            dilation_d: d[4],
            dilation_h: h[4],
            dilation_w: w[4],
            groups,
        },
        _ => unreachable!("one to three axes"),
    }
}

fn transposed(lines: &[Line], groups: i32) -> Op<Ssa> {
    match *lines {
        [[_, _, stride, padding, dilation, output_padding]] => {
            Op::ConvTranspose1D { x: X, w: W, stride, padding, dilation, output_padding, groups }
        }
        [h, w] => Op::ConvTranspose2D {
            x: X,
            w: W,
            stride_h: h[2],
            stride_w: w[2],
            padding_h: h[3],
            padding_w: w[3],
            dilation_h: h[4],
            dilation_w: w[4],
            output_padding_h: h[5],
            output_padding_w: w[5],
            groups,
        },
        [d, h, w] => Op::ConvTranspose3D {
            x: X,
            w: W,
            stride_d: d[2],
            stride_h: h[2],
            stride_w: w[2],
            padding_d: d[3],
            padding_h: h[3],
            padding_w: w[3],
            dilation_d: d[4],
            dilation_h: h[4],
            dilation_w: w[4],
            output_padding_d: d[5],
            output_padding_h: h[5],
            output_padding_w: w[5],
            groups,
        },
        _ => unreachable!("one to three axes"),
    }
}

/// Lines, channels.
fn cases() -> Vec<(Vec<Line>, Channels)> {
    vec![
        // As of Whisper: three taps, a border, then every second position.
        (vec![[50, 3, 1, 1, 1, 0]], [2, 20, 33, 1]),
        (vec![[50, 3, 2, 1, 1, 0]], [1, 32, 64, 1]),
        // Depthwise, causal, dilated; and with two filters a channel.
        (vec![[19, 4, 1, 3, 1, 0]], [2, 7, 7, 7]),
        (vec![[31, 9, 1, 8, 2, 0]], [1, 6, 12, 6]),
        // Images: a first layer, one by one, groups, dilation.
        (vec![[17, 3, 2, 1, 1, 0], [14, 3, 2, 1, 1, 0]], [2, 3, 16, 1]),
        (vec![[7, 1, 1, 0, 1, 0], [6, 1, 1, 0, 1, 0]], [2, 40, 70, 1]),
        (vec![[9, 3, 1, 2, 2, 0], [8, 2, 3, 0, 1, 0]], [1, 12, 18, 2]),
        (vec![[12, 3, 1, 1, 1, 0], [12, 3, 1, 1, 1, 0]], [1, 10, 10, 10]),
        // As large tiles have it, with ends beside them.
        (vec![[40, 3, 1, 1, 1, 0], [37, 3, 1, 1, 1, 0]], [2, 5, 65, 1]),
        (vec![[4, 2, 1, 1, 1, 0], [5, 3, 2, 0, 1, 0], [6, 2, 1, 1, 2, 0]], [2, 4, 9, 1]),
        (vec![[3, 3, 1, 1, 1, 0], [4, 1, 1, 0, 1, 0], [5, 3, 1, 1, 1, 0]], [1, 6, 6, 3]),
        // One position, one channel, one filter.
        (vec![[1, 1, 1, 0, 1, 0]], [1, 1, 1, 1]),
        (vec![[5, 3, 7, 1, 1, 0]], [1, 2, 3, 1]),
        // Nothing but a border.
        (vec![[0, 2, 1, 2, 1, 0]], [1, 3, 8, 1]),
    ]
}

fn transposed_cases() -> Vec<(Vec<Line>, Channels)> {
    vec![
        (vec![[13, 4, 2, 1, 1, 0]], [2, 20, 33, 1]),
        (vec![[9, 3, 3, 0, 2, 2]], [1, 8, 12, 4]),
        // A stride beyond the kernel leaves positions that meet nothing.
        (vec![[5, 1, 3, 0, 1, 2]], [1, 3, 5, 1]),
        (vec![[6, 3, 2, 1, 1, 1], [5, 2, 2, 0, 1, 0]], [2, 6, 10, 1]),
        (vec![[6, 3, 2, 1, 1, 1], [5, 3, 1, 1, 2, 0]], [1, 6, 6, 6]),
        (vec![[3, 2, 2, 0, 1, 1], [4, 3, 1, 2, 1, 0], [3, 2, 2, 1, 1, 0]], [1, 4, 18, 2]),
    ]
}

fn check(lines: &[Line], channels: Channels, dtypes: [DType; 2], is_transposed: bool) {
    let [batch, inputs, outputs, groups] = channels;
    let size = |number: usize| lines.iter().map(move |line| line[number] as usize);
    let x: Vec<usize> = [batch].into_iter().chain(size(0)).chain([inputs]).collect();
    let w: Vec<usize> = [outputs].into_iter().chain(size(1)).chain([inputs / groups]).collect();
    let given = operands([tensor(dtypes[0], &x, 1), tensor(dtypes[1], &w, 2)]);
    let op = if is_transposed { transposed } else { plain }(lines, groups as i32);
    for backend in devices() {
        let what = format!("{lines:?} {channels:?} {dtypes:?} transposed {is_transposed}");
        agrees(&op, &given, backend.as_ref(), &what);
    }
}

const PAIRS: [[DType; 2]; 4] = [
    [DType::F32, DType::F32],
    [DType::F16, DType::F16],
    [DType::BF16, DType::BF16],
    [DType::F32, DType::BF16],
];

#[test]
fn convolutions_of_every_kind_agree_with_the_reference_backend() {
    for (lines, channels) in cases() {
        PAIRS.into_iter().for_each(|dtypes| check(&lines, channels, dtypes, false));
    }
}

#[test]
fn transposed_convolutions_agree_with_the_reference_backend() {
    for (lines, channels) in transposed_cases() {
        PAIRS.into_iter().for_each(|dtypes| check(&lines, channels, dtypes, true));
    }
}

/// Operands as layouts leave them: channels first, turned round, every second position; more groups than a row of a grid has.
#[test]
fn convolutions_read_through_strides() {
    let text = r#"
graph "forward"
  input %0 "x": f16[2, 6, 30]
  input %1 "w": f16[10, 3, 6]
{
  %2: f16[2, 30, 6] = transpose(x=%0, perm=[0, 2, 1])
  %3: f16[2, 30, 6] = flip(x=%2, axes=[1])
  %4: f16[2, 15, 6] = slice(x=%3, axis=1, start=0, stop=30, step=2)
  %5: f16[2, 15, 10] = conv1d(x=%4, w=%1, padding=1)
  %6: f16[10, 3, 6] = flip(x=%1, axes=[1])
  %7: f16[2, 15, 10] = conv1d(x=%4, w=%6, padding=1)
  %8: f16[2, 15, 10] = subtract(a=%5, b=%7)
}
output %8 "out": f16[2, 15, 10]
"#;
    let inputs = [tensor(DType::F16, &[2, 6, 30], 1).into(), tensor(DType::F16, &[10, 3, 6], 2).into()];
    let wide = r#"
graph "forward"
  input %0 "x": f32[1, 1200000, 1]
  input %1 "w": f32[8, 1, 1]
{
  %2: f32[1, 1200000, 8] = conv1d(x=%0, w=%1)
  %3: f32[1, 1, 8] = sum(x=%2, axes=[1], keepdims=true)
}
output %3 "out": f32[1, 1, 8]
"#;
    let many = [tensor(DType::F32, &[1, 1_200_000, 1], 3).into(), tensor(DType::F32, &[8, 1, 1], 4).into()];
    let reference = pteron_runtime::reference::Reference::default();
    for backend in devices() {
        for (text, inputs, share) in [(text, &inputs, 4e-3), (wide, &many, 1e-3)] {
            let run = |backend: &dyn pteron_runtime::backend::Backend| {
                let outputs = run_graph(parse_graph(text).unwrap(), inputs, backend).unwrap();
                let out = outputs[0].to_tensor().unwrap().unwrap();
                let out = pteron_runtime::reference::cast(&out, DType::F32).unwrap();
                out.as_slice::<f32>().unwrap().to_vec()
            };
            let (got, want) = (run(backend.as_ref()), run(&reference));
            let most = want.iter().fold(1f32, |most, x| most.max(x.abs()));
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!((got - want).abs() <= share * most, "element {at} is {got}, not {want}");
            }
        }
    }
}

/// Halves of which a row is no whole number of words are floats first, twice as many bytes.
#[test]
fn what_no_kernel_could_see_between_two_is_an_error() {
    let features = Features { max_binding: 1 << 20, ..Features::LEAST };
    let options = VulkanOptions { at_most: Some(features), ..VulkanOptions::default() };
    let Some(backend) = device::open_with(&options) else { return };
    let run = |count: usize| {
        let text = format!(
            r#"
graph "forward"
  input %0 "x": f16[1, {count}, 1]
  input %1 "w": f16[9, 1, 1]
{{
  %2: f16[1, {count}, 9] = conv1d(x=%0, w=%1)
}}
output %2 "out": f16[1, {count}, 9]
"#
        );
        let inputs = [tensor(DType::F16, &[1, count, 1], 1).into(), tensor(DType::F16, &[9, 1, 1], 2).into()];
        run_graph(parse_graph(&text).unwrap(), &inputs, backend.as_ref()).map(drop)
    };
    run(20_000).unwrap();
    let error = run(50_000).unwrap_err().to_string();
    assert!(error.contains("between the kernels of an op"), "{error}");
}
