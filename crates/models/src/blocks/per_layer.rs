//! Embeddings that every layer gets anew (Gemma 3n, Gemma 4): what a token says to all layers by a table of their own, what its embedding
//! says to them by one matrix, and how a layer lets its share in.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};

use super::{Activation, Norm, NormKind, embed, linear, matrix};
use crate::net::literal;
use crate::{ModelError, Net};

/// Sizes of such embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerLayerInputs {
    /// Token ids that have a row.
    pub vocab_size: usize,
    /// Features a layer.
    pub size: usize,
}

/// Those of one model.
#[derive(Clone, Copy, Debug)]
pub struct PerLayer {
    /// Their sizes.
    pub sizes: PerLayerInputs,
    /// Layers.
    pub layers: usize,
    /// Features of the residual stream.
    pub hidden: usize,
    /// What norms add to the mean square.
    pub eps: f32,
    /// What gates go through.
    pub activation: Activation,
}

impl PerLayer {
    fn norm(&self, name: String, size: usize) -> Norm {
        Norm { name, size, eps: self.eps, kind: NormKind::Rms }
    }

    /// What so many tokens say by themselves to all layers, `[1, count, layers, size]`.
    pub fn said(
        &self,
        net: &mut Net,
        tokens: ValueId,
        count: IntArg<ValueId>,
    ) -> Result<ValueId, ModelError> {
        let PerLayerInputs { vocab_size, size } = self.sizes;
        let name = "model.embed_tokens_per_layer.weight";
        let table = matrix(net, name, vocab_size, self.layers * size)?;
        let rows = embed(net, table, tokens)?;
        let rows = net.scaled(rows, (size as f32).sqrt())?;
        let shape = vec![literal(1), count, literal(self.layers), literal(size)];
        net.op(Op::Reshape { x: rows, shape })
    }

    /// The inputs of all layers, `[1, T, layers, size]`: what a token says by itself, and what its embedding says.
    pub fn inputs(&self, net: &mut Net, x: ValueId, said: ValueId) -> Result<ValueId, ModelError> {
        let (layers, size) = (self.layers, self.sizes.size);
        let name = "model.per_layer_model_projection.weight";
        let projection = matrix(net, name, layers * size, self.hidden)?;
        let projected = linear(net, x, projection, None)?;
        let projected = net.scaled(projected, (self.hidden as f32).powf(-0.5))?;
        let projected = net.split_tokens(projected, &[layers, size])?;
        let name = "model.per_layer_projection_norm.weight".to_owned();
        let projected = self.norm(name, size).apply(net, projected)?;
        let both = net.add(projected, said)?;
        net.scaled(both, 0.5f32.sqrt())
    }

    /// What a layer's input adds, let in by what `x` says.
    pub fn let_in(
        &self,
        net: &mut Net,
        x: ValueId,
        prefix: &str,
        input: ValueId,
    ) -> Result<ValueId, ModelError> {
        let (hidden, size) = (self.hidden, self.sizes.size);
        let gate = matrix(net, &format!("{prefix}.per_layer_input_gate.weight"), size, hidden)?;
        let projection = matrix(net, &format!("{prefix}.per_layer_projection.weight"), hidden, size)?;
        let gate = linear(net, x, gate, None)?;
        let gate = self.activation.apply(net, gate)?;
        let gated = net.multiply(gate, input)?;
        let mixed = linear(net, gated, projection, None)?;
        let name = format!("{prefix}.post_per_layer_input_norm.weight");
        self.norm(name, hidden).apply(net, mixed)
    }
}
