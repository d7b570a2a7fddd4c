//! The gated feed-forward network.

use pteron_ir::{Op, ValueId};

use super::{linear, matrix};
use crate::{ModelError, Net};

/// What the gate goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its tanh form.
    GeluTanh,
}

impl Activation {
    /// Applies it.
    pub fn apply(self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        match self {
            Activation::Silu => net.op(Op::Silu { x }),
            Activation::GeluTanh => net.op(Op::Gelu { x, approximate: "tanh".to_owned() }),
        }
    }
}

/// `down(activation(gate(x)) * up(x))`, with weights under `name`.
pub fn gated_mlp(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    inner: usize,
    activation: Activation,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let gate = matrix(net, &format!("{name}.gate_proj.weight"), inner, hidden)?;
    let up = matrix(net, &format!("{name}.up_proj.weight"), inner, hidden)?;
    let down = matrix(net, &format!("{name}.down_proj.weight"), hidden, inner)?;
    let gate = linear(net, x, gate, None)?;
    let gate = activation.apply(net, gate)?;
    let up = linear(net, x, up, None)?;
    let inner = net.multiply(gate, up)?;
    linear(net, inner, down, None)
}
