//! The gated feed-forward network.

use pteron_ir::ValueId;

use super::{Activation, bias, linear, matrix};
use crate::{ModelError, Net};

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
