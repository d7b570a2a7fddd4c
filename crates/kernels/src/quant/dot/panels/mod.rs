//! Many rows of activations in bytes on machines without matrix tiles. A panel is as many rows of the weight as
//! a vector has lanes; its codes are unpacked once so that a vector holds four neighbouring values of every
//! row, and each four bytes of an activation, in all lanes, meet it in one dot product. Sums stay in the lanes
//! of their rows from the first value to the last, so that nothing is added across lanes.

mod avx2;
mod avx512;
mod unpack;

use super::{Pick, Product};
use crate::path::Path;
use crate::quant::layout::{INPUT_GROUP, Numbers};
use std::cell::RefCell;
use std::ops::Range;

/// Least rows of activations for which unpacking pays.
pub(super) const LEAST_ROWS: usize = 8;

/// Whether a product can be computed so: bytes, on a path that is written for it.
pub(super) fn serves(product: &Product<'_>) -> bool {
    product.layout.lanes.numbers != Numbers::F32
        && matches!(product.path, Path::Avx2 | Path::AvxVnni | Path::Avx512 | Path::Amx)
}

/// What a vector path does; all is inlined into functions that enable its instructions.
///
/// # Safety
/// Every method needs the path's instructions and readable memory where it reads.
trait Lanes: Copy {
    /// A sum of products in every lane.
    type Whole: Copy;
    /// A float in every lane.
    type Float: Copy;
    /// Lanes of a vector.
    const LANES: usize;

    unsafe fn no_sum(self) -> Self::Whole;
    unsafe fn zero(self) -> Self::Float;
    /// Adds to every lane the products of its four codes with the four bytes at `x`.
    unsafe fn add_four(self, sum: Self::Whole, codes: *const u8, x: *const u8) -> Self::Whole;
    /// As [`Lanes::add_four`] for two vectors of nibbles or e2m1 numbers.
    unsafe fn add_eight(self, sum: Self::Whole, codes: [*const u8; 2], x: [*const u8; 2]) -> Self::Whole;
    unsafe fn load(self, from: *const f32) -> Self::Float;
    /// `to + sum * scale * *x`.
    unsafe fn scaled(
        self,
        to: Self::Float,
        sum: Self::Whole,
        scale: Self::Float,
        x: *const f32,
    ) -> Self::Float;
    /// `to + factor * *x`.
    unsafe fn add_multiple(self, to: Self::Float, factor: Self::Float, x: *const f32) -> Self::Float;
    /// Writes the lanes; those that a vector does not have are left.
    unsafe fn store(self, values: Self::Float, to: *mut [f32; 16]);
}

/// Multiplies rows `columns` of a matrix with the picked rows of activations, which are bytes.
///
/// # Safety
/// As for [`Product::compute`]; the machine has what the product's path says.
pub(super) unsafe fn compute(
    product: &Product<'_>,
    matrix: usize,
    columns: Range<usize>,
    picks: &dyn Fn(usize) -> Pick,
    count: usize,
) {
    let wide = product.layout.lanes.lanes == 16;
    with_scratch(product, |panel| {
        for first in columns.clone().step_by(product.layout.lanes.lanes) {
            let rows = first..columns.end.min(first + product.layout.lanes.lanes);
            unpack::panel(product, matrix * product.weight.n, rows.clone(), panel);
            let work = Work { product, panel, columns: rows, picks, count };
            // SAFETY: the caller's promises.
            unsafe {
                match product.path {
                    Path::Avx512 | Path::Amx if wide => avx512::run(&work),
                    Path::AvxVnni => avx2::run_vnni(&work),
                    _ => avx2::run(&work),
                }
            }
        }
    });
}

/// An unpacked panel: codes four by four, then a scale and perhaps a bias for every group, all lane by lane.
#[derive(Default)]
struct Panel {
    codes: Vec<[u8; 4]>,
    scales: Vec<f32>,
    /// Biases, or what stands for them where codes are counted from the middle; empty where there are none.
    biases: Vec<f32>,
}

/// Lends the thread's panel, whose memory is kept from call to call.
fn with_scratch(product: &Product<'_>, work: impl FnOnce(&mut Panel)) {
    thread_local! {
        static SCRATCH: RefCell<Panel> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(|panel| {
        let lanes = product.layout.lanes.lanes;
        panel.codes.resize(product.weight.k / 4 * lanes, [0; 4]);
        panel.scales.resize(product.weight.groups() * lanes, 0.0);
        let has_biases = unpack::has_biases(product);
        panel.biases.resize(if has_biases { product.weight.groups() * lanes } else { 0 }, 0.0);
        work(panel);
    });
}

/// A panel and the activations that it meets.
struct Work<'a> {
    product: &'a Product<'a>,
    panel: &'a Panel,
    columns: Range<usize>,
    picks: &'a dyn Fn(usize) -> Pick,
    count: usize,
}

impl Work<'_> {
    /// All rows of activations; inlined into every path's functions.
    #[inline(always)]
    unsafe fn rows<L: Lanes, const ROWS: usize>(&self, lanes: L) {
        // SAFETY: the caller's promises.
        unsafe {
            match self.product.layout.lanes.per_lane {
                8 => self.rows_of::<L, ROWS, true>(lanes),
                _ => self.rows_of::<L, ROWS, false>(lanes),
            }
        }
    }

    /// `NIBBLES`: a lane of activations has eight values, the even ones apart from the odd ones.
    #[inline(always)]
    unsafe fn rows_of<L: Lanes, const ROWS: usize, const NIBBLES: bool>(&self, lanes: L) {
        let mut row = 0;
        // SAFETY: the caller's promises.
        unsafe {
            while self.count - row >= ROWS {
                self.some_rows::<L, ROWS, NIBBLES>(lanes, row);
                row += ROWS;
            }
            while row < self.count {
                self.some_rows::<L, 1, NIBBLES>(lanes, row);
                row += 1;
            }
        }
    }

    #[inline(always)]
    unsafe fn some_rows<L: Lanes, const ROWS: usize, const NIBBLES: bool>(&self, lanes: L, first: usize) {
        let Product { weight, layout, x, out, .. } = self.product;
        let picks: [Pick; ROWS] = std::array::from_fn(|i| (self.picks)(first + i));
        let row_bytes = layout.lane_row_bytes();
        let per_lane = if NIBBLES { 8 } else { 4 };
        let block_bytes = layout.lanes.block_bytes();
        // A part has one scale of the weight and one of the activations.
        let part = weight.scheme.group().min(INPUT_GROUP);
        let steps = part / per_lane;
        let of_group = weight.scheme.group() / part;
        // SAFETY: the panel has the codes, scales and biases of the weight's rows in every lane; a prepared row
        // has blocks of `LANES` times `per_lane` values, and sums of groups behind them.
        unsafe {
            let inputs: [*const u8; ROWS] =
                std::array::from_fn(|i| x.as_ptr().add(picks[i].input * row_bytes));
            let codes = self.panel.codes.as_ptr().cast::<u8>();
            let vector = 4 * L::LANES;
            let mut sums = [lanes.zero(); ROWS];
            for index in 0..weight.k / part {
                let mut whole = [lanes.no_sum(); ROWS];
                let mut at = 0;
                for step in index * steps..(index + 1) * steps {
                    at = step / L::LANES * block_bytes + step % L::LANES * 4;
                    for (whole, input) in whole.iter_mut().zip(inputs) {
                        let x = input.add(at);
                        *whole = if NIBBLES {
                            let codes = codes.add(2 * step * vector);
                            lanes.add_eight(*whole, [codes, codes.add(vector)], [x, x.add(vector)])
                        } else {
                            lanes.add_four(*whole, codes.add(step * vector), x)
                        };
                    }
                }
                let scale = lanes.load(self.panel.scales.as_ptr().add(index / of_group * L::LANES));
                // Scales lie behind the block's bytes, one a lane.
                let scale_at = at + per_lane * L::LANES;
                for ((sum, whole), input) in sums.iter_mut().zip(whole).zip(inputs) {
                    *sum = lanes.scaled(*sum, whole, scale, input.add(scale_at).cast());
                }
            }
            for (group, bias) in self.panel.biases.chunks_exact(L::LANES).enumerate() {
                let bias = lanes.load(bias.as_ptr());
                for (sum, input) in sums.iter_mut().zip(inputs) {
                    let of_group = input.add(layout.lane_sums_at()).cast::<f32>().add(group);
                    *sum = lanes.add_multiple(*sum, bias, of_group);
                }
            }
            let mut values = [0.0; 16];
            for (pick, sum) in picks.iter().zip(sums) {
                lanes.store(sum, &raw mut values);
                out.write(pick.output, self.columns.start, &values[..self.columns.len()]);
            }
        }
    }
}
