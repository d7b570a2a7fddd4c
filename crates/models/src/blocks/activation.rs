//! What the gate of a feed-forward network goes through, by the names that `config.json` has for it.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use crate::{ModelError, Net};

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its tanh form.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// The same, from -10 to 10.
    ClippedGelu,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// What is above zero.
    Relu,
    /// The same, up to 6.
    Relu6,
    /// What is above zero, and a hundredth of what is below.
    LeakyRelu,
    /// The square of what is above zero.
    SquaredRelu,
    /// `x * relu6(x + 3) / 6`.
    HardSwish,
    /// `x * tanh(softplus(x))`.
    Mish,
    /// The root of softplus.
    SqrtSoftplus,
    /// A normal distribution's share below `x`, near the square of what is above zero.
    Laplace,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// Nothing.
    Linear,
    /// A square above zero, an exponential below, both beside a line, by weights of the layer's own (xIELU).
    Xielu,
}

/// The mean of [`Activation::Laplace`].
#[expect(clippy::approx_constant, reason = "published models have the rounded number")]
const LAPLACE_MEAN: f32 = 0.707_107;

/// Its standard deviation.
const LAPLACE_DEVIATION: f32 = 0.282_095;

/// Names of published files. Those that are missing (`prelu`, `xielu`) have weights of their own; the second is a matter of
/// the network that has it (`mlp.rs`).
const NAMES: [(&str, Activation); 22] = [
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("gelu_10", Activation::ClippedGelu),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::SquaredRelu),
    ("relu6", Activation::Relu6),
    ("leaky_relu", Activation::LeakyRelu),
    ("hardswish", Activation::HardSwish),
    ("mish", Activation::Mish),
    ("sqrtsoftplus", Activation::SqrtSoftplus),
    ("laplace", Activation::Laplace),
    ("sigmoid", Activation::Sigmoid),
    ("tanh", Activation::Tanh),
    ("linear", Activation::Linear),
];

impl Activation {
    /// All names that are known.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Activation> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// Applies it. Those that are made of several ops and are one in PyTorch work in f32, and round once as that does.
    pub fn apply(self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        match self {
            Activation::Silu => net.op(Op::Silu { x }),
            Activation::GeluTanh => net.op(Op::Gelu { x, approximate: "tanh".to_owned() }),
            Activation::Gelu => net.op(Op::Gelu { x, approximate: "none".to_owned() }),
            Activation::ClippedGelu => {
                let gelu = Activation::Gelu.apply(net, x)?;
                clip(net, gelu, -10.0, 10.0)
            }
            Activation::QuickGelu => {
                let gate = net.scaled(x, 1.702)?;
                let gate = net.op(Op::Sigmoid { x: gate })?;
                net.multiply(x, gate)
            }
            Activation::Relu => {
                let zero = number(net, x, 0.0);
                net.op(Op::Maximum { a: x, b: zero })
            }
            Activation::Relu6 => clip(net, x, 0.0, 6.0),
            Activation::LeakyRelu => in_f32(net, x, |net, x| {
                let small = net.scaled(x, 0.01)?;
                net.op(Op::Maximum { a: x, b: small })
            }),
            Activation::SquaredRelu => {
                let above = Activation::Relu.apply(net, x)?;
                net.multiply(above, above)
            }
            Activation::HardSwish => in_f32(net, x, |net, x| {
                let three = number(net, x, 3.0);
                let shifted = net.add(x, three)?;
                let gate = clip(net, shifted, 0.0, 6.0)?;
                let product = net.multiply(x, gate)?;
                net.scaled(product, 1.0 / 6.0)
            }),
            Activation::Mish => in_f32(net, x, |net, x| {
                let plus = softplus(net, x)?;
                let gate = net.op(Op::Tanh { x: plus })?;
                net.multiply(x, gate)
            }),
            Activation::SqrtSoftplus => in_f32(net, x, |net, x| {
                let plus = softplus(net, x)?;
                net.op(Op::Sqrt { x: plus })
            }),
            Activation::Laplace => in_f32(net, x, |net, x| {
                let mean = number(net, x, LAPLACE_MEAN);
                let distance = net.op(Op::Subtract { a: x, b: mean })?;
                let width = number(net, x, LAPLACE_DEVIATION * std::f32::consts::SQRT_2);
                let distance = net.op(Op::Divide { a: distance, b: width })?;
                let erf = net.op(Op::Erf { x: distance })?;
                let one = number(net, x, 1.0);
                let twice = net.add(erf, one)?;
                net.scaled(twice, 0.5)
            }),
            Activation::Sigmoid => net.op(Op::Sigmoid { x }),
            Activation::Tanh => net.op(Op::Tanh { x }),
            Activation::Linear => Ok(x),
            Activation::Xielu => Err(ModelError::configuration("xielu outside of a feed-forward network")),
        }
    }
}

/// A number in the dtype of `x`.
fn number(net: &mut Net, x: ValueId, number: f32) -> ValueId {
    let dtype = net.dtype(x).unwrap_or(DType::F32);
    net.scalar(number, dtype)
}

fn clip(net: &mut Net, x: ValueId, least: f32, most: f32) -> Result<ValueId, ModelError> {
    let (least, most) = (number(net, x, least), number(net, x, most));
    net.op(Op::Clip { x, a_min: Some(least), a_max: Some(most) })
}

/// `log(1 + exp(x))`, at any size of `x`.
fn softplus(net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
    let zero = number(net, x, 0.0);
    net.op(Op::LogAddExp { a: x, b: zero })
}

/// What `function` makes of `x` in f32, rounded to the dtype of `x`.
fn in_f32(
    net: &mut Net,
    x: ValueId,
    function: impl FnOnce(&mut Net, ValueId) -> Result<ValueId, ModelError>,
) -> Result<ValueId, ModelError> {
    let dtype = net.dtype(x).unwrap_or(DType::F32);
    let wide = net.cast(x, DType::F32)?;
    let result = function(net, wide)?;
    net.cast(result, dtype)
}
