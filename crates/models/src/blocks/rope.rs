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

impl Llama3Scaling {
    fn apply(&self, frequency: f32) -> f32 {
        let original = self.original_context as f32;
        let (low, high) = (self.low_frequency_factor, self.high_frequency_factor);
        let wavelength = 2.0 * std::f32::consts::PI / frequency;
        if wavelength < original / high {
            frequency
        } else if wavelength > original / low {
            frequency / self.factor
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            frequency * ((1.0 - smooth) / self.factor + smooth)
        }
    }
}

/// How a family changes the frequencies `theta^(-2i/d)` of a head.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// Positions are divided by a factor.
    Linear(f32),
    /// Long wavelengths are stretched as Llama 3 does it.
    Llama3(Llama3Scaling),
    /// Only this part of the pairs turns, and pairs span the whole head: Gemma 4's full layers.
    Proportional(f32),
    /// Each frequency is divided by its own number, as GGUF files store it.
    Divisors(Vec<f32>),
}

impl Rope {
    /// Rotary positions of heads of that size.
    pub fn new(head_dim: usize, theta: f32, scaling: &RopeScaling) -> Result<Rope, ModelError> {
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(ModelError::configuration(format!("heads of {head_dim} features cannot turn")));
        }
        let frequency = |pair: usize| 1.0 / theta.powf(2.0 * pair as f32 / head_dim as f32);
        let pairs = 0..head_dim / 2;
        let base = |scale| Rope { dims: head_dim, frequencies: Frequencies::Base(theta), scale };
        let (kind, periods): (_, Vec<f32>) = match scaling {
            RopeScaling::None => return Ok(base(1.0)),
            RopeScaling::Linear(factor) => return Ok(base(1.0 / factor)),
            RopeScaling::Llama3(scaling) => {
                ("llama3", pairs.map(|pair| 1.0 / scaling.apply(frequency(pair))).collect())
            }
            RopeScaling::Proportional(factor) => {
                // In f64, as the configuration's own arithmetic has it: the product is cut to a whole number.
                let turning = (f64::from(*factor) * head_dim as f64).div_euclid(2.0) as usize;
                // A pair that does not turn has an endless period.
                let period = |pair| if pair < turning { 1.0 / frequency(pair) } else { f32::INFINITY };
                ("proportional", pairs.map(period).collect())
            }
            RopeScaling::Divisors(divisors) if divisors.len() == head_dim / 2 => {
                ("divided", pairs.zip(divisors).map(|(pair, divisor)| divisor / frequency(pair)).collect())
            }
            RopeScaling::Divisors(divisors) => {
                let found = divisors.len();
                let problem = format!("{found} divisors for the {} pairs of a head", head_dim / 2);
                return Err(ModelError::configuration(problem));
            }
        };
        let key = format!("rope.{kind}.{head_dim}.{theta}");
        Ok(Rope { dims: head_dim, frequencies: Frequencies::Periods(key, periods), scale: 1.0 })
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
