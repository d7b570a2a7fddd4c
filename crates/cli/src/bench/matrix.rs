//! What the matrix unit could do at best: products of tiles that are in its registers already, on all threads.

#[cfg(target_arch = "x86_64")]
use std::time::{Duration, Instant};

/// Long enough that starting threads does not count.
#[cfg(target_arch = "x86_64")]
const LEAST: Duration = Duration::from_millis(200);

/// Products between two looks at the clock.
#[cfg(target_arch = "x86_64")]
const ROUNDS: u64 = 10_000;

/// What tiles hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Bytes, summed in 32 bits.
    Int8,
    /// bf16, summed in f32.
    Bf16,
}

impl Elements {
    /// Multiply-adds of one product of tiles: 16 rows by 16 columns by the elements of 64 bytes.
    #[cfg(target_arch = "x86_64")]
    fn multiply_adds(self) -> u64 {
        match self {
            Elements::Int8 => 16 * 16 * 64,
            Elements::Bf16 => 16 * 16 * 32,
        }
    }
}

/// Multiply-adds a second of so many threads; `None` on a machine without a matrix unit.
pub(crate) fn peak(threads: usize, elements: Elements) -> Option<f64> {
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads.max(1)).map(|_| scope.spawn(move || one_thread(elements))).collect();
        workers.into_iter().map(|worker| worker.join().ok().flatten()).sum()
    })
}

#[cfg(target_arch = "x86_64")]
fn one_thread(elements: Elements) -> Option<f64> {
    let tiles = pteron_kernels::amx::Configured::new()?;
    // Four sums that do not wait for each other.
    tiles.zero::<0>();
    tiles.zero::<1>();
    tiles.zero::<2>();
    tiles.zero::<3>();
    tiles.zero::<4>();
    tiles.zero::<5>();
    tiles.zero::<6>();
    tiles.zero::<7>();
    let start = Instant::now();
    let mut products = 0;
    while start.elapsed() < LEAST {
        for _ in 0..ROUNDS {
            match elements {
                Elements::Int8 => {
                    tiles.multiply_u8_i8::<0, 4, 6>();
                    tiles.multiply_u8_i8::<1, 4, 7>();
                    tiles.multiply_u8_i8::<2, 5, 6>();
                    tiles.multiply_u8_i8::<3, 5, 7>();
                }
                Elements::Bf16 => {
                    tiles.multiply_bf16::<0, 4, 6>();
                    tiles.multiply_bf16::<1, 4, 7>();
                    tiles.multiply_bf16::<2, 5, 6>();
                    tiles.multiply_bf16::<3, 5, 7>();
                }
            }
        }
        products += 4 * ROUNDS;
    }
    Some((products * elements.multiply_adds()) as f64 / start.elapsed().as_secs_f64())
}

#[cfg(not(target_arch = "x86_64"))]
fn one_thread(_: Elements) -> Option<f64> {
    None
}
