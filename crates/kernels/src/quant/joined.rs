//! Several products with quantised weights in one parallel region: threads meet once for all of them, and a small matrix
//! does not leave one waiting for the other.

use super::LinearError;
use super::dot::{Pick, Product};
use super::error::expect_length;
use super::linear::{QuantLinear, Shares};
use super::rows::RowsMut;
use crate::pool::Pool;
use std::ops::Range;

/// The most products of one region.
pub const MOST_JOINED: usize = 8;

/// One of several products: a weight, activations in the form that it wants, and where the product goes.
#[derive(Debug)]
pub struct Joined<'a> {
    /// The weight.
    pub linear: &'a QuantLinear,
    /// What [`QuantLinear::prepare_input`] made for it.
    pub prepared: &'a [u8],
    /// As many rows as were prepared.
    pub out: RowsMut<'a>,
}

impl<'a> Joined<'a> {
    /// The product as tasks compute it, checked; `None` where so many rows are multiplied by matrix tiles, which cut
    /// their work otherwise.
    fn product(&mut self) -> Result<Option<Product<'a>>, LinearError> {
        self.linear.check(self.prepared, &self.out)?;
        Ok((!self.linear.uses_tiles(self.out.rows()))
            .then(|| self.linear.product(self.prepared, &mut self.out)))
    }

    fn columns(&self) -> usize {
        self.linear.weight().n()
    }
}

/// Runs several products, at most [`MOST_JOINED`] of them, side by side.
pub fn run_joined<'a>(pool: &Pool, parts: impl IntoIterator<Item = Joined<'a>>) -> Result<(), LinearError> {
    let mut products: [Option<(Product<'a>, Range<usize>, usize)>; MOST_JOINED] =
        [const { None }; MOST_JOINED];
    let (mut count, mut columns, mut least) = (0, 0, 1);
    for mut part in parts {
        let Some(product) = part.product()? else {
            part.linear.run(pool, part.prepared, part.out)?;
            continue;
        };
        if count == MOST_JOINED {
            return Err(LinearError::Length { what: "joined products", got: count + 1, want: MOST_JOINED });
        }
        // Where columns of a matrix begin, tasks may begin.
        let place = columns..columns + part.columns();
        columns = place.end.next_multiple_of(Shares::STEP);
        least = least.max(part.linear.least_share(part.out.rows()));
        products[count] = Some((product, place, part.out.rows()));
        count += 1;
    }
    let shares = Shares::new(columns, pool.threads(), least);
    pool.run(shares.count(), &|task| {
        let share = shares.get(task);
        for (product, place, rows) in products.iter().flatten() {
            let (from, to) = (share.start.max(place.start), share.end.min(place.end));
            if from < to {
                let own = from - place.start..to - place.start;
                // SAFETY: rows and columns exist (`Joined::product` checked), and each task has its own columns.
                unsafe { product.compute(0, own, &|row| Pick { input: row, output: row }, *rows) };
            }
        }
    });
    Ok(())
}

/// Runs two products of the same size, and `finish` for columns that both have: with all of them at the end where
/// matrix tiles are used, else by the task that has just computed them.
pub fn run_paired<'a>(
    pool: &Pool,
    [mut first, mut second]: [Joined<'a>; 2],
    finish: &(dyn Fn(Option<Range<usize>>) + Sync),
) -> Result<(), LinearError> {
    expect_length("columns of the second product", second.columns(), first.columns())?;
    expect_length("rows of the second product", second.out.rows(), first.out.rows())?;
    let rows = first.out.rows();
    let (Some(a), Some(b)) = (first.product()?, second.product()?) else {
        run_joined(pool, [first, second])?;
        finish(None);
        return Ok(());
    };
    // A task has the same columns of both.
    let least = first.linear.least_share(2 * rows);
    let shares = Shares::new(first.columns(), pool.threads(), least);
    pool.run(shares.count(), &|task| {
        let columns = shares.get(task);
        for product in [&a, &b] {
            // SAFETY: rows and columns exist (`Joined::product` checked), and each task has its own columns.
            unsafe { product.compute(0, columns.clone(), &|row| Pick { input: row, output: row }, rows) };
        }
        finish(Some(columns));
    });
    Ok(())
}
