//! What tests share: numbers that look random but are the same in every run, and the paths of this machine.

use crate::path::Path;

/// A small generator of numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }

    /// From -1 to 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// Runs a test on every path; one line tells of each path that this machine lacks.
#[allow(clippy::print_stderr)]
pub(crate) fn on_every_path(mut test: impl FnMut(Path)) {
    for path in Path::ALL {
        if path.is_available() {
            test(path);
        } else {
            eprintln!("not run: this machine lacks {path}");
        }
    }
}

/// A size of a test: the first, or the second under Miri, which interprets every step. What is smaller there is of the
/// same kinds.
pub(crate) const fn sized<T: Copy>(full: T, under_miri: T) -> T {
    if cfg!(miri) { under_miri } else { full }
}

/// Row-major strides.
pub(crate) fn dense(sizes: &[usize]) -> Vec<isize> {
    let mut strides = vec![0; sizes.len()];
    crate::view::row_major(sizes, &mut strides);
    strides
}

/// Asserts that two lists agree within a relative and an absolute difference; NaN agrees with NaN.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f64], relative: f64, absolute: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (&got, &want)) in got.iter().zip(want).enumerate() {
        let same = f64::from(got) == want || (got.is_nan() && want.is_nan());
        let near = (f64::from(got) - want).abs() <= relative * want.abs() + absolute;
        assert!(same || near, "{what}: element {at} is {got}, not {want}");
    }
}
