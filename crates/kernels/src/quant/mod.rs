//! Products with quantised weights, read where they lie: packed words in rows, as MLX and ExecuTorch write
//! them.
//!
//! A [`QuantWeight`] is checked once; a [`QuantLinear`] binds it to a path and a precision. Activations are
//! brought into the form that the kernels want by [`QuantLinear::prepare_input`], once for all linears that
//! read them with an equal [`InputLayout`], and [`QuantLinear::run`] multiplies, or [`run_joined`] for several at
//! once. None of them allocates.

#[cfg(target_arch = "x86_64")]
mod bits;
mod dot;
mod error;
mod joined;
mod layout;
mod linear;
mod lookup;
mod memory;
mod prepare;
mod rows;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod weight;
#[cfg(target_arch = "x86_64")]
mod woven;

#[cfg(test)]
mod tests;

pub use error::LinearError;
pub use joined::{Joined, MOST_JOINED, run_joined, run_paired};
pub use layout::InputLayout;
pub use linear::{Picked, QuantLinear};
pub use rows::{Rows, RowsMut};
pub use weight::{Biases, QuantParts, QuantWeight};

/// How far activations may be rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Never narrower than the program's type; sums in f32.
    Exact,
    /// To 8 bits in groups of 32 with a scale each, or to bf16; weights may be rounded to bf16. Sums in i32
    /// or f32.
    Fast,
}
