//! Rotary positions, applied by position tensor.

mod scaling;
#[cfg(test)]
mod tests;

pub use scaling::{Llama3Scaling, LongScaling, RopeScaling, YarnScaling};

use pteron_ir::op::OffsetArg;
use pteron_ir::{Op, ValueId};

use crate::{ModelError, Net};

/// What a configuration says of rotary positions.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSettings {
    /// The base of the frequencies.
    pub theta: f32,
    /// How they are changed.
    pub scaling: RopeScaling,
}

impl RopeSettings {
    /// Powers of a base.
    pub const fn plain(theta: f32) -> RopeSettings {
        RopeSettings { theta, scaling: RopeScaling::None }
    }
}

/// Rotary positions of one kind of layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    dims: usize,
    frequencies: Frequencies,
    scale: f32,
    /// What scaling multiplies queries and keys by.
    attention_factor: f32,
}

#[derive(Clone, Debug, PartialEq)]
enum Frequencies {
    /// Powers of a base.
    Base(f32),
    /// One period a pair, under a key.
    Periods(String, Vec<f32>),
}

impl Rope {
    /// Rotary positions of heads of that size in a context of that many positions. The name tells them from others of the
    /// model.
    pub fn new(
        name: &str,
        head_dim: usize,
        settings: &RopeSettings,
        context: usize,
    ) -> Result<Rope, ModelError> {
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(ModelError::configuration(format!("heads of {head_dim} features cannot turn")));
        }
        let RopeSettings { theta, scaling } = settings;
        let attention_factor = scaling.attention_factor();
        let base =
            |scale| Rope { dims: head_dim, frequencies: Frequencies::Base(*theta), scale, attention_factor };
        let frequency = |pair: usize| 1.0 / theta.powf(2.0 * pair as f32 / head_dim as f32);
        let frequencies: Vec<f32> = (0..head_dim / 2).map(frequency).collect();
        let scaled = match scaling {
            RopeScaling::None => return Ok(base(1.0)),
            RopeScaling::Linear(factor) => return Ok(base(1.0 / factor)),
            RopeScaling::Llama3(scaling) => scaling.apply(&frequencies),
            RopeScaling::Yarn(scaling) => scaling.apply(*theta, &frequencies),
            RopeScaling::Long(scaling) => divided(&frequencies, scaling.divisors(context))?,
            RopeScaling::Divisors(divisors) => divided(&frequencies, divisors)?,
            RopeScaling::Proportional { part, factor } => {
                // Cut to a whole number of pairs.
                let turning = (part * head_dim as f64).div_euclid(2.0) as usize;
                let still = frequencies.len().saturating_sub(turning);
                let turning = frequencies.iter().take(turning).map(|frequency| frequency / factor);
                turning.chain(std::iter::repeat_n(0.0, still)).collect()
            }
        };
        if scaled.iter().any(|frequency| !frequency.is_finite()) {
            return Err(ModelError::configuration("its rope parameters give no frequencies"));
        }
        // A pair that does not turn has an endless period.
        let periods = scaled.iter().map(|frequency| frequency.recip()).collect();
        let frequencies = Frequencies::Periods(format!("{name}.periods"), periods);
        Ok(Rope { dims: head_dim, frequencies, scale: 1.0, attention_factor })
    }

    /// What scores are multiplied by beside the layer's own scale: queries and keys have the factor each.
    pub fn score_factor(&self) -> f32 {
        self.attention_factor * self.attention_factor
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

/// Each frequency divided by its own number.
fn divided(frequencies: &[f32], divisors: &[f32]) -> Result<Vec<f32>, ModelError> {
    if divisors.len() != frequencies.len() {
        let (found, wanted) = (divisors.len(), frequencies.len());
        let problem = format!("rope has {found} divisors for the {wanted} pairs of a head");
        return Err(ModelError::configuration(problem));
    }
    Ok(frequencies.iter().zip(divisors).map(|(frequency, divisor)| frequency / divisor).collect())
}
