//! Rotary positions: frequencies as each family scales them, applied by position tensor.

use pteron_ir::op::OffsetArg;
use pteron_ir::{Op, ValueId};

use crate::{ModelError, Net};

/// Rotary positions of one kind of layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    dims: usize,
    frequencies: Frequencies,
    scale: f32,
}

#[derive(Clone, Debug, PartialEq)]
enum Frequencies {
    /// Powers of a base.
    Base(f32),
    /// One period a pair, under a key.
    Periods(String, Vec<f32>),
}

/// How Llama 3.1 and later stretch long wavelengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// By how much long wavelengths grow.
    pub factor: f32,
    /// Wavelengths above `original / low` grow whole.
    pub low_frequency_factor: f32,
    /// Wavelengths below `original / high` stay.
    pub high_frequency_factor: f32,
    /// The context of the first training.
    pub original_context: usize,
}

impl Rope {
    /// All features of a head, by powers of a base.
    pub fn plain(head_dim: usize, theta: f32) -> Rope {
        Rope { dims: head_dim, frequencies: Frequencies::Base(theta), scale: 1.0 }
    }

    /// The same with positions divided by a factor.
    pub fn linear(head_dim: usize, theta: f32, factor: f32) -> Rope {
        Rope { scale: 1.0 / factor, ..Rope::plain(head_dim, theta) }
    }

    /// Long wavelengths stretched as Llama 3 does it.
    pub fn llama3(head_dim: usize, theta: f32, scaling: Llama3Scaling) -> Rope {
        let original = scaling.original_context as f32;
        let (low, high) = (scaling.low_frequency_factor, scaling.high_frequency_factor);
        let period = |pair: usize| {
            let frequency = frequency(theta, pair, head_dim);
            let wavelength = 2.0 * std::f32::consts::PI / frequency;
            let scaled = if wavelength < original / high {
                frequency
            } else if wavelength > original / low {
                frequency / scaling.factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                frequency * ((1.0 - smooth) / scaling.factor + smooth)
            };
            1.0 / scaled
        };
        let periods = (0..head_dim / 2).map(period).collect();
        Rope {
            dims: head_dim,
            frequencies: Frequencies::Periods("rope.periods".to_owned(), periods),
            scale: 1.0,
        }
    }

    /// Only the first part of the pairs turns, and pairs span the whole head: Gemma 4's full layers. A pair that does
    /// not turn has an endless period.
    pub fn proportional(head_dim: usize, theta: f32, factor: f32) -> Rope {
        // In f64, as the configuration's own arithmetic has it: the product is cut to a whole number.
        let turning = (f64::from(factor) * head_dim as f64).div_euclid(2.0) as usize;
        let period =
            |pair| if pair < turning { 1.0 / frequency(theta, pair, head_dim) } else { f32::INFINITY };
        let periods = (0..head_dim / 2).map(period).collect();
        let key = "rope.full.periods".to_owned();
        Rope { dims: head_dim, frequencies: Frequencies::Periods(key, periods), scale: 1.0 }
    }

    /// Turns `x`, `[1, heads, T, head_dim]`.
    pub fn apply(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        let (base, freqs) = match &self.frequencies {
            Frequencies::Base(base) => (*base, None),
            Frequencies::Periods(key, periods) => (0.0, Some(net.vector(key, periods))),
        };
        let offset = OffsetArg::Tensor(net.input_pos());
        let (dims, scale) = (self.dims as i32, self.scale);
        net.op(Op::Rope { x, dims, offset, freqs, traditional: false, base, scale })
    }
}

fn frequency(theta: f32, pair: usize, head_dim: usize) -> f32 {
    1.0 / theta.powf(2.0 * pair as f32 / head_dim as f32)
}
