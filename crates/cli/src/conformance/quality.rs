//! What `--precision fast` costs: the outputs of every step of a case beside those of `exact`, on the same inputs.

use super::case::Case;
use super::judge::{self, Numbers};
use super::run::{self, Manner};
use super::set::Set;
use crate::tensors::read_safetensors;
use pteron_runtime::{Options, Precision, SessionOptions, Value};

/// How far the floats of a case's outputs are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quality {
    /// The largest difference of any element, as a share of its output's largest magnitude.
    pub(crate) largest: f64,
    /// The mean difference, as a share of the mean magnitude.
    pub(crate) mean: f64,
    /// Greedy tokens that both picked from their logits, and how many of them are the same.
    pub(crate) tokens: usize,
    pub(crate) equal: usize,
}

/// Sums over all outputs of a case.
#[derive(Default)]
struct Sums {
    difference: f64,
    magnitude: f64,
}

/// Runs a case's program in both precisions.
pub(crate) fn compare(set: &Set, name: &str, manner: &Manner) -> Result<Quality, String> {
    let case = Case::parse(&set.read(name, "case.json")?)?;
    let tensors = read_safetensors(&set.read(name, "io.safetensors")?)
        .map_err(|problem| format!("io.safetensors: {problem}"))?;
    let session = |precision| {
        let options = Options { precision, ..manner.options.clone() };
        let program = run::load(set, name, &case, &Manner { options, ..manner.clone() })?;
        let options = SessionOptions { cache: case.cache()?, ..SessionOptions::default() };
        program.session_with(&options).map_err(|error| error.to_string())
    };
    let (mut exact, mut fast) = (session(Precision::Exact)?, session(Precision::Fast)?);
    let (mut quality, mut sums) = (Quality::default(), Sums::default());
    for (number, step) in case.steps.iter().enumerate() {
        let exact = run::run_step(&mut exact, number, step, &tensors)?;
        let fast = run::run_step(&mut fast, number, step, &tensors)?;
        for (fast, exact) in fast.iter().zip(&exact) {
            judge::same_type(fast, exact)?;
            quality.add(fast, exact, &mut sums)?;
        }
        if case.greedy.get(number).is_some_and(Option::is_some) {
            let picked = |outputs: &[Value]| judge::greedy(outputs.first().ok_or("there are no logits")?);
            quality.tokens += 1;
            quality.equal += usize::from(picked(&fast)? == picked(&exact)?);
        }
    }
    quality.mean = if sums.magnitude == 0.0 { 0.0 } else { sums.difference / sums.magnitude };
    Ok(quality)
}

impl Quality {
    /// Takes one output in; those that are no floats have no error.
    fn add(&mut self, fast: &Value, exact: &Value, sums: &mut Sums) -> Result<(), String> {
        let (Value::Tensor(fast), Value::Tensor(exact)) = (fast, exact) else { return Ok(()) };
        let exact = Numbers::of(exact)?;
        let largest = exact.largest();
        let (Numbers::Floats(fast), Numbers::Floats(exact)) = (Numbers::of(fast)?, exact) else {
            return Ok(());
        };
        for (fast, exact) in fast.into_iter().zip(exact).filter(|(_, exact)| exact.is_finite()) {
            let difference = (fast - exact).abs();
            sums.difference += difference;
            sums.magnitude += exact.abs();
            // What is not a number, where `exact` has one, is as far off as can be.
            let share = if difference == 0.0 { 0.0 } else { difference / largest };
            self.largest = if share.is_nan() { f64::INFINITY } else { self.largest.max(share) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_tensor::HostTensor;

    #[test]
    fn errors_are_shares_of_the_output() {
        let tensor = |numbers: &[f32]| Value::Tensor(HostTensor::from_slice(vec![3], numbers).unwrap());
        let (mut quality, mut sums) = (Quality::default(), Sums::default());
        let masked = f32::NEG_INFINITY;
        quality.add(&tensor(&[1.0, -7.0, masked]), &tensor(&[2.0, -8.0, masked]), &mut sums).unwrap();
        assert_eq!(quality.largest, 1.0 / 8.0);
        assert_eq!((sums.difference, sums.magnitude), (2.0, 10.0));
        quality.add(&tensor(&[f32::NAN, 0.0, 0.0]), &tensor(&[1.0, 0.0, 0.0]), &mut sums).unwrap();
        assert_eq!(quality.largest, f64::INFINITY);
    }
}
