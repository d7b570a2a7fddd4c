//! Operators whose results are not to be foreseen: every call draws anew, as ExecuTorch's do.

use super::lanes;
use super::{Call, Operator, Results, one, whole};
use std::collections::hash_map::RandomState;
use std::f64::consts::TAU;
use std::hash::{BuildHasher, Hasher};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::rand.out", 1, |call| draw(call, Numbers::even)),
    whole("aten::randn.out", 1, |call| draw(call, Numbers::normal)),
];

/// A stream of numbers (SplitMix64) from a seed that the standard library draws for its hash tables.
struct Numbers(u64);

impl Numbers {
    fn new() -> Numbers {
        Numbers(RandomState::new().build_hasher().finish())
    }

    /// From 0 to below 1, in steps that f32 holds: a rounding up to 1 cannot happen.
    fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 40) as f64 / f64::from(1u32 << 24)
    }

    /// Around 0 with a variance of 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (length, angle) = (1.0 - self.even(), self.even());
        (-2.0 * length.ln()).sqrt() * (TAU * angle).cos()
    }
}

fn draw(call: &Call<'_>, next: fn(&mut Numbers) -> f64) -> Results {
    let shape = call.sizes(0)?;
    call.admit(&shape)?;
    let (count, mut numbers) = (shape.iter().product::<usize>(), Numbers::new());
    one(lanes::from_floats(call.out_dtype(), shape, (0..count).map(|_| next(&mut numbers))))
}

#[cfg(test)]
mod tests {
    use super::super::lanes::floats;
    use super::super::tests::{f, list, run};

    #[test]
    fn every_call_draws_numbers_of_its_distribution() {
        let shape = f(&[64, 64], &[0.0; 4096]);
        for (name, mean, variance) in [("aten::rand.out", 0.5, 1.0 / 12.0), ("aten::randn.out", 0.0, 1.0f64)]
        {
            let draw = || floats(&run(name, &[list(&[64, 64])], std::slice::from_ref(&shape)).unwrap()[0]);
            let (numbers, others) = (draw(), draw());
            assert_ne!(numbers, others, "{name}");
            let count = numbers.len() as f64;
            let found = numbers.iter().sum::<f64>() / count;
            let spread = numbers.iter().map(|x| (x - found) * (x - found)).sum::<f64>() / count;
            // Ten standard errors: it does not happen by chance.
            assert!((found - mean).abs() < 0.16 * variance.sqrt(), "{name}: {found}");
            assert!((spread / variance - 1.0).abs() < 0.25, "{name}: {spread}");
        }
    }
}
