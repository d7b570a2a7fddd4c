//! Which elements of stored tensors a weight is made of, where files keep several weights in one tensor, one weight in
//! several, or a matrix on its side.

use std::io::{self, Write};
use std::ops::Range;

use pteron_models::architectures::{Place, Rows};
use pteron_models::{Packing, Part};

/// A weight in pieces of what is stored.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// Parts, such as experts, and whether each has a tensor.
    parts: usize,
    apart: bool,
    /// Rows of a part that are meant.
    rows: usize,
    /// Features of a row, where it is a matrix.
    columns: Option<usize>,
    /// Values of a feature along one to three axes, where it has several: the taps of a convolution.
    taps: Vec<usize>,
    /// Which rows those are.
    of: Option<Rows>,
    transposed: bool,
}

/// Elements of one tensor that follow each other in a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) part: usize,
    /// The first in the tensor.
    pub(super) start: usize,
    pub(super) len: usize,
    /// From one to the next.
    pub(super) step: usize,
}

impl Pieces {
    /// Those of a weight of that shape; nothing where it does not divide into its parts.
    pub(super) fn new(place: &Place, shape: &[usize]) -> Option<Pieces> {
        let is_plain = place.parts <= 1 && place.rows.is_none() && !place.transposed;
        let (all, columns, taps) = match shape {
            [] => (1, None, &[][..]),
            [size] => (*size, None, &[][..]),
            [rows, columns] => (*rows, Some(*columns), &[][..]),
            [rows, features, taps @ ..] if is_plain && taps.len() <= 3 => {
                let columns = taps.iter().try_fold(*features, |all, &along| all.checked_mul(along))?;
                (*rows, Some(columns), taps)
            }
            _ => return None,
        };
        // What is a vector for each part is a matrix of all of them.
        let (all, columns) = match columns {
            Some(columns)
                if place.parts > 1 && all == place.parts && !place.transposed && !place.is_apart() =>
            {
                (all * columns, None)
            }
            columns => (all, columns),
        };
        let parts = place.parts.max(1);
        if !all.is_multiple_of(parts) {
            return None;
        }
        let (rows, of) = (all / parts, place.rows);
        let fits = |of: Rows| of.run > 0 && rows.is_multiple_of(of.run);
        if !of.is_none_or(fits) {
            return None;
        }
        let (apart, transposed, taps) = (place.is_apart(), place.transposed, taps.to_vec());
        Some(Pieces { parts, apart, rows, columns, taps, of, transposed })
    }

    /// Rows that a part has in the files.
    fn stored_rows(&self) -> usize {
        self.of.map_or(self.rows, |of| of.of)
    }

    /// The shape of a tensor in the files.
    pub(super) fn stored_shape(&self) -> Vec<usize> {
        let rows = self.stored_rows();
        let mut shape = match (self.columns, self.transposed) {
            (None, _) => vec![rows],
            (Some(columns), false) => vec![rows, columns / self.taps.iter().product::<usize>().max(1)],
            (Some(columns), true) => vec![columns, rows],
        };
        shape.extend(&self.taps);
        if self.parts > 1 && !self.apart {
            shape.insert(0, self.parts);
        }
        shape
    }

    /// Elements of a part's tensor that belong to it.
    pub(super) fn whole_of(&self, part: usize) -> Range<usize> {
        let size = self.stored_rows() * self.columns.unwrap_or(1);
        let start = if self.apart { 0 } else { part * size };
        start..start + size
    }

    /// A row of the files.
    fn stored_row(&self, row: usize) -> usize {
        self.of.map_or(row, |of| of.first + row / of.run * of.stride + row % of.run)
    }

    /// Rows from one on that lie together in the files.
    fn together(&self, row: usize) -> usize {
        let rest = self.rows - row;
        self.of.map_or(rest, |of| if of.stride == of.run { rest } else { of.run - row % of.run })
    }

    /// The longest piece from an element of the weight on, of at most so many.
    pub(super) fn at(&self, element: usize, most: usize) -> Piece {
        let columns = self.columns.unwrap_or(1);
        let (row, column) = (element / columns, element % columns);
        let (part, row) = (row / self.rows.max(1), row % self.rows.max(1));
        let whole = self.whole_of(part);
        let stored = self.stored_row(row);
        match self.transposed && self.columns.is_some() {
            true => {
                let step = self.stored_rows();
                let len = most.min(columns - column);
                // One row of the files has nothing to step over.
                Piece { part, start: whole.start + column * step + stored, len, step }
            }
            false => {
                let len = most.min(self.together(row) * columns - column);
                Piece { part, start: whole.start + stored * columns + column, len, step: 1 }
            }
        }
    }

    /// Whether rows of packed tensors are taken as they come.
    fn takes_all(&self) -> bool {
        self.of.is_none()
    }

    fn takes(&self, stored: usize) -> bool {
        let Some(of) = self.of else { return true };
        let within = stored % of.of;
        within
            .checked_sub(of.first)
            .is_some_and(|at| at % of.stride < of.run && at / of.stride * of.run + at % of.stride < self.rows)
    }
}

/// Passes on the rows of a packed tensor that are meant.
pub(super) struct Selected<'a> {
    out: &'a mut dyn Write,
    pieces: Pieces,
    /// Bytes of a row of this part; nothing where all bytes pass.
    row_bytes: Option<usize>,
    /// Bytes seen.
    seen: usize,
}

impl<'a> Selected<'a> {
    pub(super) fn new(out: &'a mut dyn Write, pieces: &Pieces, packing: Packing, part: Part) -> Selected<'a> {
        let bytes = packing.part(1, pieces.columns.unwrap_or(1), part);
        let bytes = bytes.map(|(dtype, sizes)| sizes.iter().product::<usize>() * dtype.size());
        let row_bytes = bytes.filter(|&bytes| bytes > 0 && part != Part::TensorScale && !pieces.takes_all());
        Selected { out, pieces: pieces.clone(), row_bytes, seen: 0 }
    }
}

impl Write for Selected<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(row_bytes) = self.row_bytes else { return self.out.write(bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (row, within) = (self.seen / row_bytes, self.seen % row_bytes);
            let (now, later) = rest.split_at(rest.len().min(row_bytes - within));
            if self.pieces.takes(row) {
                self.out.write_all(now)?;
            }
            self.seen += now.len();
            rest = later;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(parts: usize, rows: Option<Rows>, transposed: bool, tensor: &str) -> Place {
        Place { tensor: tensor.to_owned(), parts, rows, transposed }
    }

    /// The elements of a weight, by where they lie: part, and number in its tensor.
    fn elements(pieces: &Pieces, count: usize, most: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        while found.len() < count {
            let piece = pieces.at(found.len(), most.min(count - found.len()));
            assert!(piece.len > 0);
            found.extend((0..piece.len).map(|at| (piece.part, piece.start + at * piece.step)));
        }
        found
    }

    #[test]
    fn every_element_is_found_whatever_is_read_at_a_time() {
        let by_group = Rows { first: 2, run: 2, stride: 6, of: 12 };
        let turns = Rows { first: 1, run: 1, stride: 2, of: 6 };
        let cases = [
            (
                place(1, None, false, "a"),
                vec![4, 3],
                vec![4, 3],
                (0..12).map(|at| (0, at)).collect::<Vec<_>>(),
            ),
            // Rows 2, 3, 8 and 9 of twelve.
            (
                place(1, Some(by_group), false, "a"),
                vec![4, 2],
                vec![12, 2],
                [4, 5, 6, 7, 16, 17, 18, 19].map(|at| (0, at)).to_vec(),
            ),
            // On its side: rows are columns of `[2, 3]`.
            (
                place(1, None, true, "a"),
                vec![3, 2],
                vec![2, 3],
                [0, 3, 1, 4, 2, 5].map(|at| (0, at)).to_vec(),
            ),
            // Two parts in one tensor, on their side, every other row from the second on.
            (
                place(2, Some(turns), true, "a"),
                vec![6, 1],
                vec![2, 1, 6],
                vec![(0, 1), (0, 3), (0, 5), (1, 7), (1, 9), (1, 11)],
            ),
            // A vector for each of two parts, in one tensor: every other number.
            (
                place(2, Some(turns), false, "a"),
                vec![2, 3],
                vec![2, 6],
                [1, 3, 5, 7, 9, 11].map(|at| (at / 6, at)).to_vec(),
            ),
            // A convolution's taps.
            (place(1, None, false, "a"), vec![1, 2, 3], vec![1, 2, 3], (0..6).map(|at| (0, at)).collect()),
            // Along three axes.
            (
                place(1, None, false, "a"),
                vec![2, 1, 1, 2, 3],
                vec![2, 1, 1, 2, 3],
                (0..12).map(|at| (0, at)).collect(),
            ),
            // Two parts in tensors of their own.
            (place(2, None, false, "a.{}"), vec![2, 2], vec![1, 2], vec![(0, 0), (0, 1), (1, 0), (1, 1)]),
        ];
        for (place, shape, stored, wanted) in cases {
            let pieces = Pieces::new(&place, &shape).unwrap();
            assert_eq!(pieces.stored_shape(), stored, "{place:?}");
            for most in [1, 2, 5, 100] {
                assert_eq!(elements(&pieces, wanted.len(), most), wanted, "{place:?} by {most}");
            }
        }
    }

    #[test]
    fn shapes_that_do_not_divide_are_none() {
        assert!(Pieces::new(&place(2, None, false, "a"), &[3, 4]).is_none());
        let of = Rows { first: 0, run: 2, stride: 4, of: 8 };
        assert!(Pieces::new(&place(1, Some(of), false, "a"), &[3, 4]).is_none());
        assert!(Pieces::new(&place(3, None, false, "a"), &[3, 2, 3]).is_none());
        assert!(Pieces::new(&place(1, None, false, "a"), &[1, 1, 1, 1, 1, 1]).is_none());
        assert!(Pieces::new(&place(1, None, false, "a"), &[1, usize::MAX, 2, 1, 1]).is_none());
    }

    #[test]
    fn rows_of_packed_tensors_pass_if_they_are_meant() {
        let of = Rows { first: 2, run: 2, stride: 6, of: 12 };
        let pieces = Pieces::new(&place(1, Some(of), false, "a"), &[4, 64]).unwrap();
        let packing: Packing = "4w".parse().unwrap();
        // Eight words of eight codes a row, each with the number of its row.
        let stream: Vec<u8> = (0..12u8).flat_map(|row| [row; 32]).collect();
        for step in [1, 7, 32, 384] {
            let mut out = Vec::new();
            let mut selected = Selected::new(&mut out, &pieces, packing, Part::Codes);
            stream.chunks(step).for_each(|bytes| selected.write_all(bytes).unwrap());
            let wanted: Vec<u8> = [2u8, 3, 8, 9].into_iter().flat_map(|row| [row; 32]).collect();
            assert_eq!(out, wanted, "{step}");
        }
    }
}
