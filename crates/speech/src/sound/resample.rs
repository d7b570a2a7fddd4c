//! From any rate to any other: a sinc under a Kaiser window, its values for every phase in a table.
//!
//! The pass band reaches to 0.88 of the lower rate's half, where the stop band begins nothing louder than -90 dB is left of
//! a tone (the test measures both). A sample of the output lies at the same time as in the input. The same samples give the
//! same result to the last bit, however they are cut into blocks.

use std::f64::consts::PI;

/// Zero crossings of the sinc on each side, at the lower rate.
const CROSSINGS: f64 = 48.0;
/// The window's shape: side lobes of -90 dB.
const KAISER_BETA: f64 = 8.96;
/// Where the sinc is cut, as a share of the lower rate's half: the transition ends at 1.
const CUTOFF: f64 = 0.94;
/// Phases of a table at most; ratios with more take the two nearest, whose mean differs by less than -100 dB.
const MOST_PHASES: u64 = 1024;

/// A stream of samples at one rate on its way to another.
#[derive(Clone, Debug)]
pub struct Resampler {
    /// Input samples between two of the output: `step / phases`.
    step: u64,
    phases: u64,
    /// Input samples on each side that an output sample is made of.
    half: usize,
    /// `2 * half` weights a row; one more row than phases where rows are mixed.
    table: Vec<f32>,
    rows: u64,
    /// The inputs that are still needed; the first is number `first - half + 1`.
    history: Vec<f32>,
    first: u64,
    /// The time of the next output in units of `1 / phases` inputs.
    next: u64,
    given: u64,
}

impl Resampler {
    /// From a rate to a rate; both are at least 1.
    pub fn new(from: u32, to: u32) -> Resampler {
        let (from, to) = (u64::from(from.max(1)), u64::from(to.max(1)));
        let common = gcd(from, to);
        let (step, phases) = (from / common, to / common);
        let mut resampler = Resampler {
            step,
            phases,
            half: 0,
            table: Vec::new(),
            rows: 0,
            history: Vec::new(),
            first: 0,
            next: 0,
            given: 0,
        };
        if step != phases {
            resampler.fill(from as f64, to as f64);
        }
        resampler
    }

    fn fill(&mut self, from: f64, to: f64) {
        let narrow = (to / from).min(1.0);
        let width = CROSSINGS / narrow;
        self.half = width.ceil() as usize;
        self.rows = self.phases.min(MOST_PHASES);
        let (half, cut) = (self.half as f64, CUTOFF * narrow);
        for row in 0..=self.rows {
            let phase = row as f64 / self.rows as f64;
            let weight = |tap: usize| {
                let distance = phase + half - 1.0 - tap as f64;
                let x = PI * cut * distance;
                let sinc = if x.abs() < 1e-9 { 1.0 } else { x.sin() / x };
                let edge = 1.0 - (distance / width).powi(2);
                if edge < 0.0 { 0.0 } else { sinc * bessel(KAISER_BETA * edge.sqrt()) }
            };
            let weights: Vec<f64> = (0..2 * self.half).map(weight).collect();
            // What does not change passes as it is.
            let sum: f64 = weights.iter().sum();
            self.table.extend(weights.iter().map(|weight| (weight / sum) as f32));
        }
        self.history = vec![0.0; self.half - 1];
    }

    /// Takes samples, and appends what can be made of them.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        self.given += samples.len() as u64;
        if self.half == 0 {
            out.extend_from_slice(samples);
            return;
        }
        self.history.extend_from_slice(samples);
        self.make(out, u64::MAX);
    }

    /// The end of the stream: what is left, as many samples in all as the input is long.
    pub fn finish(&mut self, out: &mut Vec<f32>) {
        if self.half == 0 {
            return;
        }
        self.history.extend(std::iter::repeat_n(0.0, self.half));
        self.make(out, self.given.saturating_mul(self.phases));
    }

    /// Makes outputs up to a time, as far as there are inputs for them.
    fn make(&mut self, out: &mut Vec<f32>, end: u64) {
        let taps = 2 * self.half;
        while self.next < end {
            let (base, phase) = (self.next / self.phases, self.next % self.phases);
            let start = (base - self.first) as usize;
            let Some(inputs) = self.history.get(start..start + taps) else { break };
            let row = |row: u64| &self.table[row as usize * taps..][..taps];
            out.push(if self.rows == self.phases {
                dot(inputs, row(phase))
            } else {
                let at = phase as f64 * self.rows as f64 / self.phases as f64;
                let (low, share) = (at as u64, at.fract() as f32);
                let (a, b) = (dot(inputs, row(low)), dot(inputs, row(low + 1)));
                a + (b - a) * share
            });
            self.next += self.step;
        }
        // Kept until there is a good deal of it, so that little is moved.
        let used = (self.next / self.phases).saturating_sub(self.first) as usize;
        let used = used.min(self.history.len());
        if used > 4 * taps {
            self.history.drain(..used);
            self.first += used as u64;
        }
    }
}

/// A product of two rows, in eight sums that the compiler can keep in a vector.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// The modified Bessel function of order 0, by its series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..64 {
        term *= (x / (2.0 * f64::from(n))).powi(2);
        sum += term;
    }
    sum
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hertz: f64, seconds: f64) -> Vec<f32> {
        let samples = (f64::from(rate) * seconds) as usize;
        (0..samples).map(|n| (2.0 * PI * hertz * n as f64 / f64::from(rate)).sin() as f32).collect()
    }

    fn resampled(from: u32, to: u32, samples: &[f32], block: usize) -> Vec<f32> {
        let (mut resampler, mut out) = (Resampler::new(from, to), Vec::new());
        samples.chunks(block).for_each(|block| resampler.push(block, &mut out));
        resampler.finish(&mut out);
        out
    }

    const RATES: [u32; 9] = [8_000, 11_025, 22_050, 24_000, 44_100, 48_000, 96_000, 192_000, 44_101];

    #[test]
    fn a_tone_keeps_its_height_and_its_time() {
        for rate in RATES {
            let hertz = 0.4 * f64::from(rate.min(16_000));
            let out = resampled(rate, 16_000, &tone(rate, hertz, 1.0), 1000);
            let wanted = tone(16_000, hertz, 1.0);
            assert_eq!(out.len(), 16_000, "{rate}");
            let inside = 200..15_800;
            let worst = out[inside.clone()].iter().zip(&wanted[inside]).map(|(a, b)| (a - b).abs());
            let worst = worst.fold(0.0, f32::max);
            assert!(worst < 2e-4, "{rate}: {worst}");
        }
    }

    #[test]
    fn a_tone_above_half_the_rate_is_gone() {
        for rate in [22_050, 44_100, 48_000, 192_000, 44_101] {
            for hertz in [8_000.0, 9_000.0, 10_500.0] {
                let out = resampled(rate, 16_000, &tone(rate, hertz, 0.5), 4096);
                let loudest = out[400..out.len() - 400].iter().fold(0f32, |most, x| most.max(x.abs()));
                assert!(loudest < 4e-5, "{hertz} Hz at {rate}: {loudest}");
            }
        }
    }

    #[test]
    fn blocks_make_no_difference() {
        for rate in [8_000, 44_100, 44_101, 16_000] {
            let samples = tone(rate, 440.0, 0.3);
            let whole = resampled(rate, 16_000, &samples, samples.len());
            for block in [1, 7, 997] {
                assert_eq!(resampled(rate, 16_000, &samples, block), whole, "{rate} by {block}");
            }
        }
    }

    #[test]
    fn odd_rates_and_nothing_at_all_are_resampled() {
        for (from, to) in [(1, 16_000), (3, 16_000), (1_048_575, 16_000), (16_000, 16_000)] {
            assert!(resampled(from, to, &[], 1).is_empty());
            let out = resampled(from, to, &[0.5; 100], 9);
            assert_eq!(out.len() as u64, (100 * u64::from(to)).div_ceil(u64::from(from)), "{from}");
            assert!(out.iter().all(|sample| sample.is_finite()), "{from}");
        }
    }
}
