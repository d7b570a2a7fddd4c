//! The gated feed-forward network.

use pteron_ir::{Op, ValueId};

use super::{bias, linear, matrix};
use crate::{ModelError, Net};

/// What the gate goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its tanh form.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// `x * sigmoid(1.702 x)`.
    QuickGelu,
    /// What is above zero.
    Relu,
    /// Its square.
    SquaredRelu,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// Applies it.
    pub fn apply(self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        match self {
            Activation::Silu => net.op(Op::Silu { x }),
            Activation::GeluTanh => net.op(Op::Gelu { x, approximate: "tanh".to_owned() }),
            Activation::Gelu => net.op(Op::Gelu { x, approximate: "none".to_owned() }),
            Activation::QuickGelu => {
                let gate = net.scaled(x, 1.702)?;
                let gate = net.op(Op::Sigmoid { x: gate })?;
                net.multiply(x, gate)
            }
            Activation::Relu => {
                let dtype = net.activations();
                let zero = net.scalar(0.0, dtype);
                net.op(Op::Maximum { a: x, b: zero })
            }
            Activation::SquaredRelu => {
                let above = Activation::Relu.apply(net, x)?;
                net.multiply(above, above)
            }
            Activation::Sigmoid => net.op(Op::Sigmoid { x }),
            Activation::Tanh => net.op(Op::Tanh { x }),
        }
    }
}

/// One layer's feed-forward network.
#[derive(Clone, Copy, Debug)]
pub struct Mlp<'a> {
    /// Prefix of its weights, such as `model.layers.0.mlp`.
    pub name: &'a str,
    /// Features of the residual stream.
    pub hidden: usize,
    /// Features inside.
    pub inner: usize,
    /// What the gate goes through.
    pub activation: Activation,
    /// Whether its matrices have biases.
    pub biases: bool,
}

impl Mlp<'_> {
    fn project(
        &self,
        net: &mut Net,
        x: ValueId,
        which: &str,
        rows: usize,
        columns: usize,
    ) -> Result<ValueId, ModelError> {
        let weight = matrix(net, &format!("{}.{which}.weight", self.name), rows, columns)?;
        let bias = match self.biases {
            true => Some(bias(net, &format!("{}.{which}.bias", self.name), rows)?),
            false => None,
        };
        linear(net, x, weight, bias)
    }
}

/// `down(activation(gate(x)) * up(x))`.
pub fn gated_mlp(net: &mut Net, x: ValueId, mlp: &Mlp<'_>) -> Result<ValueId, ModelError> {
    net.enter(mlp.name);
    let gate = mlp.project(net, x, "gate_proj", mlp.inner, mlp.hidden)?;
    let gate = mlp.activation.apply(net, gate)?;
    let up = mlp.project(net, x, "up_proj", mlp.inner, mlp.hidden)?;
    let inner = net.multiply(gate, up)?;
    mlp.project(net, inner, "down_proj", mlp.hidden, mlp.inner)
}
