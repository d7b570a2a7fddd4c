//! The activations that gate a product.

use super::Op;
use crate::graph::{Ssa, ValueId};

/// What is done to the gate before it is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `silu(x)`.
    Silu,
    /// `x * sigmoid(x)` as two ops: in 16 bits it is rounded twice.
    SigmoidProduct,
    /// `gelu(x)` by the error function.
    Gelu,
    /// `gelu(x)` by the tanh form.
    GeluTanh,
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 4] =
        [Activation::Silu, Activation::SigmoidProduct, Activation::Gelu, Activation::GeluTanh];

    /// The name in an op's field.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Silu => "silu",
            Activation::SigmoidProduct => "sigmoid_product",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_tanh",
        }
    }

    /// The activation of that name.
    pub fn from_name(name: &str) -> Option<Activation> {
        Activation::ALL.into_iter().find(|activation| activation.name() == name)
    }

    /// The activation that one op is, and of what.
    pub fn of(op: &Op<Ssa>) -> Option<(Activation, ValueId)> {
        match op {
            Op::Silu { x } => Some((Activation::Silu, *x)),
            Op::Gelu { x, approximate } if approximate == "tanh" => Some((Activation::GeluTanh, *x)),
            Op::Gelu { x, .. } => Some((Activation::Gelu, *x)),
            _ => None,
        }
    }
}
