//! Rotary positions, applied by position tensor.

mod scaling;
#[cfg(test)]
mod tests;

pub use scaling::{Llama3Scaling, LongScaling, RopeScaling, YarnScaling};

use pteron_ir::op::OffsetArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use crate::net::literal;
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
    name: String,
    /// Features of a head that turn, the first ones.
    dims: usize,
    /// Features of a head.
    head_dim: usize,
    frequencies: Frequencies,
    scale: f32,
    /// What scaling multiplies what turns of queries and keys by.
    attention_factor: f32,
    /// Whether pairs are neighbours, and not halves of what turns.
    interleaved: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Frequencies {
    /// Powers of a base.
    Base(f32),
    /// One period a pair, under a key.
    Periods(String, Vec<f32>),
    /// Some while a text is short, others beyond.
    ByLength(ByLength),
}

/// Periods of which the end of a text tells which are meant: that of the text which is being read, where the runner has
/// said it ([`Net::text_length`]), and the input's own beyond. What is in a cache by then stays as it was turned, as the
/// reference has it.
#[derive(Clone, Debug, PartialEq)]
struct ByLength {
    name: String,
    /// Positions up to which a text is short.
    border: usize,
    short: Vec<f32>,
    long: Vec<f32>,
}

impl ByLength {
    /// Those that are meant, the same value for all layers.
    fn chosen(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        if let Some(&known) = net.periods.get(&self.name) {
            return Ok(known);
        }
        if net.has_each_position() {
            let problem =
                "longrope asks how long the text is, and tokens of several texts have no length in common";
            return Err(ModelError::configuration(problem));
        }
        let length = net.int_tensor(net.length())?;
        let start = net.input_pos()?;
        let end = net.add(start, length)?;
        let said = net.text_length(self.border);
        let end = net.op(Op::Maximum { a: end, b: said })?;
        let border = net.scalar(self.border as f32, DType::I64);
        let is_long = net.op(Op::Greater { a: end, b: border })?;
        let long = net.vector(&format!("{}.long_periods", self.name), &self.long);
        let short = net.vector(&format!("{}.short_periods", self.name), &self.short);
        let chosen = net.op(Op::Where { condition: is_long, x: long, y: short })?;
        net.periods.insert(self.name.clone(), chosen);
        Ok(chosen)
    }
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
        let rope = |frequencies, scale| Rope {
            name: name.to_owned(),
            dims: head_dim,
            head_dim,
            frequencies,
            scale,
            attention_factor,
            interleaved: false,
        };
        let base = |scale| rope(Frequencies::Base(*theta), scale);
        let frequency = |pair: usize| 1.0 / theta.powf(2.0 * pair as f32 / head_dim as f32);
        let frequencies: Vec<f32> = (0..head_dim / 2).map(frequency).collect();
        let scaled = match scaling {
            RopeScaling::None => return Ok(base(1.0)),
            RopeScaling::Linear(factor) => return Ok(base(1.0 / factor)),
            RopeScaling::Llama3(scaling) => scaling.apply(&frequencies),
            RopeScaling::Yarn(scaling) => scaling.apply(*theta, &frequencies),
            RopeScaling::Long(scaling) if context > scaling.original_context => {
                let by_length = ByLength {
                    name: name.to_owned(),
                    border: scaling.original_context,
                    short: periods(&divided(&frequencies, &scaling.short)?)?,
                    long: periods(&divided(&frequencies, &scaling.long)?)?,
                };
                return Ok(rope(Frequencies::ByLength(by_length), 1.0));
            }
            RopeScaling::Long(scaling) => divided(&frequencies, &scaling.short)?,
            RopeScaling::Divisors(divisors) => divided(&frequencies, divisors)?,
            RopeScaling::Proportional { part, factor } => {
                // Cut to a whole number of pairs.
                let turning = (part * head_dim as f64).div_euclid(2.0) as usize;
                let still = frequencies.len().saturating_sub(turning);
                let turning = frequencies.iter().take(turning).map(|frequency| frequency / factor);
                turning.chain(std::iter::repeat_n(0.0, still)).collect()
            }
        };
        Ok(rope(Frequencies::Periods(format!("{name}.periods"), periods(&scaled)?), 1.0))
    }

    /// The same as the beginning of heads of that size: what is behind it does not turn.
    pub fn within(self, head_dim: usize) -> Rope {
        Rope { head_dim, ..self }
    }

    /// The same with neighbours as pairs.
    pub fn interleaved(self, interleaved: bool) -> Rope {
        Rope { interleaved, ..self }
    }

    /// The same the other way round: by negative angles.
    pub fn backwards(self, backwards: bool) -> Rope {
        let scale = if backwards { -self.scale } else { self.scale };
        Rope { scale, ..self }
    }

    /// What scores are multiplied by beside the layer's own scale: queries and keys have the factor each. Where only a part
    /// of a head turns, that part alone has it, and is multiplied by itself.
    pub fn score_factor(&self) -> f32 {
        if self.is_partial() { 1.0 } else { self.attention_factor * self.attention_factor }
    }

    /// Turns what is a part of a head by itself: the factor is its own, and no matter of the scores.
    pub fn apply_to_part(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        let x = if self.attention_factor == 1.0 { x } else { net.scaled(x, self.attention_factor)? };
        self.apply(net, x)
    }

    fn is_partial(&self) -> bool {
        self.dims < self.head_dim
    }

    /// Turns `x`, `[1, heads, T, head_dim]`.
    pub fn apply(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        if net.axes().is_some() {
            let [cos, sin] = self.along_axes(net)?;
            return turned_by(net, x, self.dims, cos, sin);
        }
        let mut x = x;
        if self.is_partial() && self.attention_factor != 1.0 {
            let factors: Vec<f32> = (0..self.head_dim)
                .map(|feature| if feature < self.dims { self.attention_factor } else { 1.0 })
                .collect();
            let factors = net.vector(&format!("{}.factors", self.name), &factors);
            let dtype = net.dtype(x).unwrap_or(DType::F32);
            let factors = net.cast(factors, dtype)?;
            x = net.multiply(x, factors)?;
        }
        let (base, freqs) = match &self.frequencies {
            Frequencies::Base(base) => (*base, None),
            Frequencies::Periods(key, periods) => (0.0, Some(net.vector(key, periods))),
            Frequencies::ByLength(by_length) => (0.0, Some(by_length.chosen(net)?)),
        };
        // A tensor, also where a number is given: what turns by it is then the same at every position.
        let offset = OffsetArg::Tensor(net.turning_position()?);
        let (dims, scale) = (self.dims as i32, self.scale);
        let traditional = self.interleaved;
        if !net.has_each_position() {
            return net.op(Op::Rope { x, dims, offset, freqs, traditional, base, scale });
        }
        // A batch row for each token, since each row has an offset.
        let x = net.op(Op::Transpose { x, perm: vec![2, 1, 0, 3] })?;
        let x = net.op(Op::Rope { x, dims, offset, freqs, traditional, base, scale })?;
        net.op(Op::Transpose { x, perm: vec![2, 1, 0, 3] })
    }
}

impl Rope {
    /// Cosines and sines of rows with positions along several axes, `[T, dims]` in f32.
    fn along_axes(&self, net: &mut Net) -> Result<[ValueId; 2], ModelError> {
        let Some((positions, axes)) = net.axes().cloned() else {
            return Err(ModelError::configuration("rows without positions"));
        };
        let pairs = self.dims / 2;
        if self.is_partial() || self.interleaved || axes.len() != pairs {
            let problem = format!("{pairs} pairs of a head, and axes for {} of them", axes.len());
            return Err(ModelError::configuration(problem));
        }
        let frequencies: Vec<f32> = match &self.frequencies {
            Frequencies::Base(base) => {
                (0..pairs).map(|pair| base.powf(-2.0 * pair as f32 / self.dims as f32) * self.scale).collect()
            }
            Frequencies::Periods(_, periods) => periods.iter().map(|period| self.scale / period).collect(),
            Frequencies::ByLength(_) => {
                return Err(ModelError::configuration("positions along axes whose periods change by length"));
            }
        };
        let angles = net.once(&format!("{}.angles", self.name), |net| {
            let mut sum = None;
            for number in 0..=axes.iter().copied().max().unwrap_or(0) {
                let along = net.pick(positions, number as i64, 0)?;
                let along = net.cast(along, DType::F32)?;
                let along = net.op(Op::ExpandDims { x: along, axis: 1 })?;
                // A pair turns by one axis: by all others not at all.
                let own =
                    axes.iter().zip(&frequencies).map(|(&axis, &by)| if axis == number { by } else { 0.0 });
                let own =
                    net.vector(&format!("{}.frequencies.{number}", self.name), &own.collect::<Vec<f32>>());
                let part = net.multiply(along, own)?;
                sum = Some(match sum {
                    Some(sum) => net.add(sum, part)?,
                    None => part,
                });
            }
            let half = sum.ok_or_else(|| ModelError::configuration("rows turn by no axis"))?;
            net.op(Op::Concatenate { tensors: vec![half, half], axis: 1 })
        })?;
        let cos = net.once(&format!("{}.cosines", self.name), |net| net.op(Op::Cos { x: angles }))?;
        let sin = net.once(&format!("{}.sines", self.name), |net| net.op(Op::Sin { x: angles }))?;
        Ok([cos, sin])
    }
}

/// `[1, heads, T, dims]`, halves of which are pairs, turned by cosines and sines `[T, dims]`, in f32.
pub(crate) fn turned_by(
    net: &mut Net,
    x: ValueId,
    dims: usize,
    cos: ValueId,
    sin: ValueId,
) -> Result<ValueId, ModelError> {
    let dtype = net.dtype(x).unwrap_or(DType::F32);
    let x = net.cast(x, DType::F32)?;
    let half = |net: &mut Net, from: usize| {
        let (start, stop) = (literal(from), literal(from + dims / 2));
        net.op(Op::Slice { x, axis: literal(3), start, stop, step: 1 })
    };
    let (first, second) = (half(net, 0)?, half(net, dims / 2)?);
    let second = net.op(Op::Neg { x: second })?;
    let across = net.op(Op::Concatenate { tensors: vec![second, first], axis: 3 })?;
    let (along, across) = (net.multiply(x, cos)?, net.multiply(across, sin)?);
    let turned = net.add(along, across)?;
    net.cast(turned, dtype)
}

/// Periods of frequencies; a pair that does not turn has an endless one.
fn periods(frequencies: &[f32]) -> Result<Vec<f32>, ModelError> {
    if frequencies.iter().any(|frequency| !frequency.is_finite()) {
        return Err(ModelError::configuration("its rope parameters give no frequencies"));
    }
    Ok(frequencies.iter().map(|frequency| frequency.recip()).collect())
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
