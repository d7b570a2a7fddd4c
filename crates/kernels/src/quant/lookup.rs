//! Rows of a quantised weight as floats: embedding lookup and whole matrices.

use super::LinearError;
use super::error::expect_length;
use super::rows::{RowsMut, Sink};
use super::weight::QuantWeight;
use crate::pool::Pool;

/// Values that are worth a task of their own.
const TASK_VALUES: usize = 16 << 10;

/// Values that are unpacked at a time; whole words of every width.
const BLOCK: usize = 256;

impl QuantWeight {
    /// Writes the numbers of the rows with these indices, which count over all matrices. An index outside is
    /// an error, and then nothing is written.
    pub fn gather(&self, pool: &Pool, rows: &[usize], out: RowsMut<'_>) -> Result<(), LinearError> {
        if let Some(&row) = rows.iter().find(|&&row| row >= self.rows()) {
            return Err(LinearError::Index { what: "row", index: row as i64, count: self.rows() });
        }
        self.rows_as_floats(pool, rows.len(), &|i| rows[i], 1.0, out)
    }

    /// Writes the numbers of all rows of all matrices, times `factor`.
    pub fn dequantise(&self, pool: &Pool, factor: f32, out: RowsMut<'_>) -> Result<(), LinearError> {
        self.rows_as_floats(pool, self.rows(), &|i| i, factor, out)
    }

    fn rows_as_floats(
        &self,
        pool: &Pool,
        count: usize,
        row: &(dyn Fn(usize) -> usize + Sync),
        factor: f32,
        mut out: RowsMut<'_>,
    ) -> Result<(), LinearError> {
        expect_length("rows of the output", out.rows(), count)?;
        expect_length("columns of the output", out.columns(), self.k)?;
        let sink = out.sink();
        let table = self.element_table();
        let per_task = TASK_VALUES.div_ceil(self.k.max(1));
        pool.run(count.div_ceil(per_task), &|task| {
            for i in task * per_task..count.min((task + 1) * per_task) {
                self.row_as_floats(row(i), &table, factor, sink, i);
            }
        });
        Ok(())
    }

    fn row_as_floats(&self, row: usize, table: &[f32; 256], factor: f32, sink: Sink, to: usize) {
        let (bits, group) = (self.scheme.bits() as usize, self.scheme.group());
        let codes = &self.codes[row * self.row_bytes()..][..self.row_bytes()];
        let mut values = [0.0f32; BLOCK];
        for first in (0..self.k).step_by(BLOCK) {
            let values = &mut values[..BLOCK.min(self.k - first)];
            let codes = &codes[first * bits / 8..];
            unpack(codes, bits, table, values);
            let mut at = 0;
            while at < values.len() {
                let in_group = (first + at) / group;
                let len = (group - (first + at) % group).min(values.len() - at);
                let (scale, bias) = self.scale_and_bias(row, in_group);
                let values = &mut values[at..at + len];
                if self.has_biases() {
                    values.iter_mut().for_each(|value| *value = (*value * scale + bias) * factor);
                } else {
                    // Adding a bias of zero would lose the sign of a zero.
                    values.iter_mut().for_each(|value| *value = *value * scale * factor);
                }
                at += len;
            }
            // SAFETY: the output has this row and these columns (checked at the edge), and each row is one
            // task's.
            unsafe { sink.write(to, first, values) };
        }
    }
}

/// What the codes stand for; the width as a constant lets the compiler unroll the common ones.
fn unpack(codes: &[u8], bits: usize, table: &[f32; 256], values: &mut [f32]) {
    match bits {
        4 => {
            for (values, &byte) in values.chunks_exact_mut(2).zip(codes) {
                values[0] = table[usize::from(byte & 15)];
                values[1] = table[usize::from(byte >> 4)];
            }
        }
        8 => values.iter_mut().zip(codes).for_each(|(value, &code)| *value = table[usize::from(code)]),
        _ => {
            let mask = (1usize << bits) - 1;
            for (j, value) in values.iter_mut().enumerate() {
                let (byte, shift) = (j * bits / 8, j * bits % 8);
                let high = codes.get(byte + 1).copied().unwrap_or(0);
                let window = usize::from(u16::from_le_bytes([codes[byte], high]));
                *value = table[window >> shift & mask];
            }
        }
    }
}
