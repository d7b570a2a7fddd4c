//! A quantised weight bound to a path and a precision.

use super::dot::{Pick, Product, least_rows_of_panels};
use super::error::{expect_at_least, expect_length};
use super::layout::{ALIGNMENT, InputLayout};
use super::prepare;
use super::rows::{Rows, RowsMut};
#[cfg(target_arch = "x86_64")]
use super::tiles;
use super::weight::QuantWeight;
#[cfg(target_arch = "x86_64")]
use super::woven::Woven;
use super::{LinearError, Precision};
use crate::path::Path;
use crate::pool::Pool;
use pteron_tensor::DType;
use std::ops::Range;
#[cfg(target_arch = "x86_64")]
use std::sync::Arc;

/// Least bytes of the weight that are worth a task of their own.
const TASK_BYTES: usize = 32 << 10;

/// Least rows of the weight that are worth a task of their own where it is multiplied in panels.
const TASK_PANEL_ROWS: usize = 64;

/// `x @ w^T` for a quantised `w`, by the kernels of one path.
#[derive(Clone, Debug)]
pub struct QuantLinear {
    weight: QuantWeight,
    path: Path,
    precision: Precision,
    layout: InputLayout,
    invariant: bool,
}

impl QuantLinear {
    /// Binds a weight to a path, a precision and the dtype of its activations.
    pub fn new(
        weight: QuantWeight,
        input: DType,
        path: Path,
        precision: Precision,
    ) -> Result<QuantLinear, LinearError> {
        let path = path.check()?;
        let layout = InputLayout::new(&weight, input, path, precision)?;
        Ok(QuantLinear { weight, path, precision, layout, invariant: false })
    }

    /// Takes the weight into memory of its own, in huge pages: a weight of four bits in the order in which vectors multiply it,
    /// where the path has kernels for that, which multiply every number of rows faster, and each as it is alone; another one
    /// as it is. Where there is no memory for it, all stays as it was.
    #[must_use]
    pub fn arranged(mut self) -> QuantLinear {
        #[cfg(target_arch = "x86_64")]
        if least_rows_of_panels(&self.weight, &self.layout, self.path).is_some()
            && let Some(woven) = Woven::new(&self.weight, self.layout.lanes.lanes)
        {
            self.weight.woven = Some(Arc::new(woven));
            return self;
        }
        self.weight.bring_near();
        self
    }

    /// Whether products read bytes that the weight was made of, although it was arranged: matrix tiles do.
    pub fn reads_files(&self) -> bool {
        self.layout.tiles.is_some() && self.weight.is_woven()
    }

    /// Keeps to kernels that give each row what it gives alone, to the last bit, however many are multiplied together:
    /// answers then do not change with what else is computed beside them. Many rows take longer so.
    #[must_use]
    pub fn invariant(mut self) -> QuantLinear {
        self.invariant = true;
        self.layout.tiles = None;
        self
    }

    /// Whether it was made to keep to those kernels.
    pub fn is_invariant(&self) -> bool {
        self.invariant
    }

    /// Whether each of so many rows gives what it gives alone, to the last bit. Matrix tiles and panels, which are for many
    /// rows, add up in another order, and tiles round activations otherwise.
    pub fn is_invariant_for(&self, rows: usize) -> bool {
        let panels = least_rows_of_panels(&self.weight, &self.layout, self.path);
        self.invariant || !self.uses_tiles(rows) && panels.is_none_or(|least| least == 1 || rows < least)
    }

    /// The weight.
    pub fn weight(&self) -> &QuantWeight {
        &self.weight
    }

    /// The path that it runs on.
    pub fn path(&self) -> Path {
        self.path
    }

    /// How far activations are rounded.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes held beside those of the file.
    pub fn packed_bytes(&self) -> usize {
        self.weight.derived_bytes()
    }

    /// The form of prepared activations; linears with equal layouts can share them.
    pub fn input_layout(&self) -> InputLayout {
        self.layout
    }

    /// Bytes of prepared activations for any number of rows up to this one; their memory must start at a
    /// multiple of 64.
    pub fn input_bytes(&self, rows_max: usize) -> usize {
        let lanes = match self.layout.tiles {
            Some(tiles) => rows_max.min(tiles.from_rows - 1),
            None => rows_max,
        };
        let lanes = lanes * self.layout.lane_row_bytes();
        match self.layout.tiles_for(rows_max) {
            #[cfg(target_arch = "x86_64")]
            Some(tiles) => lanes.max(tiles::input_bytes(&self.layout, tiles, rows_max)),
            _ => lanes,
        }
    }

    /// Brings activations into the form that [`QuantLinear::run`] wants. What it writes may be used by all
    /// linears with an equal layout.
    pub fn prepare_input(&self, pool: &Pool, x: Rows<'_>, prepared: &mut [u8]) -> Result<(), LinearError> {
        expect_length("columns of the input", x.columns(), self.weight.k)?;
        if x.dtype() != self.layout.dtype {
            return Err(LinearError::DType { what: "input", dtype: x.dtype() });
        }
        self.check_prepared(x.rows(), prepared)?;
        match self.layout.tiles_for(x.rows()) {
            #[cfg(target_arch = "x86_64")]
            Some(tiles) => tiles::prepare(&self.layout, tiles, pool, &x, prepared),
            _ => prepare::lane_rows(&self.layout, self.path, pool, &x, prepared),
        }
        Ok(())
    }

    /// Writes `x @ w^T` for the first matrix, with as many prepared rows as the output has.
    pub fn run(&self, pool: &Pool, prepared: &[u8], mut out: RowsMut<'_>) -> Result<(), LinearError> {
        let rows = out.rows();
        self.check(prepared, &out)?;
        #[cfg(target_arch = "x86_64")]
        if let Some(tiles) = self.layout.tiles_for(rows) {
            let job = tiles::Job {
                weight: &self.weight,
                layout: &self.layout,
                tiles,
                prepared,
                rows,
                out: out.sink(),
            };
            tiles::run(&job, self.precision, pool);
            return Ok(());
        }
        let product = self.product(prepared, &mut out);
        let shares = self.shares(pool, rows);
        pool.run(shares.count(), &|task| {
            let columns = shares.get(task);
            // SAFETY: rows, columns and matrix exist (checked above), and each task has its own columns.
            unsafe { product.compute(0, columns, &|row| Pick { input: row, output: row }, rows) };
        });
        Ok(())
    }

    /// As [`QuantLinear::run`] where each output row picks an input row and a matrix. Rows that pick the same matrix share its
    /// reading. The input must have been prepared by [`QuantLinear::prepare_picked_input`].
    pub fn run_picked(
        &self,
        pool: &Pool,
        input_rows: usize,
        prepared: &[u8],
        picked: Picked<'_>,
        mut out: RowsMut<'_>,
    ) -> Result<(), LinearError> {
        let Picked { inputs, matrices, order } = picked;
        self.check_lanes(input_rows, prepared)?;
        expect_length("columns of the output", out.columns(), self.weight.n)?;
        for len in [inputs.len(), matrices.len(), order.len()] {
            expect_length("picks", len, out.rows())?;
        }
        let check = |what, picks: &[usize], count| match picks.iter().find(|&&pick| pick >= count) {
            Some(&pick) => Err(LinearError::Index { what, index: pick as i64, count }),
            None => Ok(()),
        };
        check("input row", inputs, input_rows)?;
        check("matrix", matrices, self.weight.matrices)?;
        order.iter_mut().zip(0..).for_each(|(place, row)| *place = row);
        order.sort_unstable_by_key(|&row| (matrices[row], row));
        let alike = || order.chunk_by(|&a, &b| matrices[a] == matrices[b]);
        let shares = self.shares(pool, alike().map(<[usize]>::len).max().unwrap_or(1));
        let product = self.product(prepared, &mut out);
        pool.run(shares.count(), &|task| {
            let columns = shares.get(task);
            for rows in alike() {
                let pick = |row: usize| Pick { input: inputs[rows[row]], output: rows[row] };
                // SAFETY: rows, columns and matrices exist (checked above), and each task has its own
                // columns.
                unsafe { product.compute(matrices[rows[0]], columns.clone(), &pick, rows.len()) };
            }
        });
        Ok(())
    }

    /// As [`QuantLinear::prepare_input`], for [`QuantLinear::run_picked`].
    pub fn prepare_picked_input(
        &self,
        pool: &Pool,
        x: Rows<'_>,
        prepared: &mut [u8],
    ) -> Result<(), LinearError> {
        expect_length("columns of the input", x.columns(), self.weight.k)?;
        if x.dtype() != self.layout.dtype {
            return Err(LinearError::DType { what: "input", dtype: x.dtype() });
        }
        self.check_lanes(x.rows(), prepared)?;
        prepare::lane_rows(&self.layout, self.path, pool, &x, prepared);
        Ok(())
    }

    /// Bytes of prepared activations of so many rows for [`QuantLinear::run_picked`].
    pub fn picked_input_bytes(&self, rows: usize) -> usize {
        rows * self.layout.lane_row_bytes()
    }

    /// Whether a product into these rows has all that it needs.
    pub(super) fn check(&self, prepared: &[u8], out: &RowsMut<'_>) -> Result<(), LinearError> {
        self.check_prepared(out.rows(), prepared)?;
        expect_length("columns of the output", out.columns(), self.weight.n)?;
        expect_at_least("matrices", self.weight.matrices, 1)
    }

    /// Whether so many rows are multiplied by matrix tiles.
    pub(super) fn uses_tiles(&self, rows: usize) -> bool {
        self.layout.tiles_for(rows).is_some()
    }

    /// What lanes compute; the output must stay borrowed while they do.
    pub(super) fn product<'a>(&'a self, prepared: &'a [u8], out: &mut RowsMut<'_>) -> Product<'a> {
        Product {
            weight: &self.weight,
            layout: &self.layout,
            path: self.path,
            x: prepared,
            out: out.sink(),
            invariant: self.invariant,
        }
    }

    /// The columns of the output as tasks.
    fn shares(&self, pool: &Pool, rows: usize) -> Shares {
        Shares::new(self.weight.n, pool.threads(), self.least_share(rows))
    }

    /// Columns that are worth a task of their own.
    pub(super) fn least_share(&self, rows: usize) -> usize {
        let least = TASK_BYTES.div_ceil((self.weight.row_bytes() * rows.max(1)).max(1));
        let panels = least_rows_of_panels(&self.weight, &self.layout, self.path);
        // A task with panels arranges activations for itself.
        if rows > 1 && panels.is_some_and(|from| rows >= from) && !self.invariant {
            least.max(TASK_PANEL_ROWS)
        } else {
            least
        }
    }

    fn check_prepared(&self, rows: usize, prepared: &[u8]) -> Result<(), LinearError> {
        match self.layout.tiles_for(rows) {
            #[cfg(target_arch = "x86_64")]
            Some(tiles) => check_memory(prepared, tiles::input_bytes(&self.layout, tiles, rows)),
            _ => self.check_lanes(rows, prepared),
        }
    }

    fn check_lanes(&self, rows: usize, prepared: &[u8]) -> Result<(), LinearError> {
        check_memory(prepared, rows.saturating_mul(self.layout.lane_row_bytes()))
    }
}

/// What the rows of an output pick.
#[derive(Debug)]
pub struct Picked<'a> {
    /// The input row of each.
    pub inputs: &'a [usize],
    /// The matrix of each.
    pub matrices: &'a [usize],
    /// Room for the order of work, as long as both.
    pub order: &'a mut [usize],
}

/// A range split so that threads finish together: one long part for each, then ever shorter ones for whoever is there. A part
/// is a stream of its own, whose beginning memory is slow to deliver, so that few are better; but a thread that is held up,
/// as by a neighbour on the machine, must not leave the others waiting with a long one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    len: usize,
    threads: usize,
    /// Length of the first part of each thread.
    long: usize,
    /// No part is shorter, apart from the last.
    least: usize,
}

impl Shares {
    /// Parts are multiples of this, apart from the last: what kernels write together.
    pub(super) const STEP: usize = 16;

    pub(super) fn new(len: usize, threads: usize, least: usize) -> Shares {
        let threads = threads.max(1);
        let mut shares = Shares { len, threads, long: 0, least };
        // A single thread waits for nobody.
        shares.long = if threads == 1 { len } else { shares.whole_steps(len.div_ceil(threads) * 5 / 8) };
        shares
    }

    /// How many parts there are.
    pub(super) fn count(self) -> usize {
        self.parts().count()
    }

    /// One part; they are few, so that going there takes no time.
    pub(super) fn get(self, part: usize) -> Range<usize> {
        self.parts().nth(part).unwrap_or(self.len..self.len)
    }

    fn parts(self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        (0..).map_while(move |part| {
            let left = self.len - start;
            let len = match part < self.threads {
                true => self.long,
                false => self.whole_steps(left / (2 * self.threads)),
            };
            let range = start..self.len.min(start + len);
            start = range.end;
            (left > 0).then_some(range)
        })
    }

    fn whole_steps(self, part: usize) -> usize {
        part.max(self.least).max(1).next_multiple_of(Shares::STEP)
    }
}

fn check_memory(prepared: &[u8], want: usize) -> Result<(), LinearError> {
    expect_at_least("bytes of prepared input", prepared.len(), want)?;
    if want > 0 && !(prepared.as_ptr() as usize).is_multiple_of(ALIGNMENT) {
        return Err(LinearError::Alignment { what: "prepared input", to: ALIGNMENT });
    }
    Ok(())
}

#[cfg(test)]
mod shares {
    use super::Shares;
    use crate::trial::sized;

    #[test]
    fn parts_cover_the_range_once() {
        let lengths = [0, 1, 15, 16, 17, 100, 576, 2048, 2049, 128_256];
        for &len in &lengths[..sized(10, 7)] {
            for threads in [1, 2, 3, 8, 64] {
                for least in [1, 24, 300] {
                    let shares = Shares::new(len, threads, least);
                    let mut next = 0;
                    for part in 0..shares.count() {
                        let range = shares.get(part);
                        assert_eq!(range.start, next, "{shares:?}");
                        assert!(range.end > next, "{shares:?}");
                        next = range.end;
                    }
                    assert_eq!(next, len, "{shares:?}");
                }
            }
        }
    }
}
