//! What packing did to each weight: collected while they are written, for whoever asks afterwards.

use std::sync::{Mutex, PoisonError};

use super::Packing;

/// What became of one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightReport {
    /// Its name.
    pub name: String,
    /// Its elements.
    pub elements: u64,
    /// Bytes that the source has it in, where that is known.
    pub bytes_before: Option<u64>,
    /// Bytes that the program has it in.
    pub bytes_after: u64,
    /// What was done.
    pub handling: Handling,
}

/// What was done to a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handling {
    /// Its packed codes were taken as they are, or regrouped without loss.
    Kept(Packing),
    /// It was packed, and lost something.
    Quantised(Packing, Deviation),
}

/// How far numbers are from those that they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// The root of the mean square of errors, by that of the numbers.
    pub relative_rms: f64,
    /// The largest error.
    pub largest: f32,
}

/// Reports in the making.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Vec<WeightReport>>);

impl Reports {
    /// Adds one, or replaces that of the same name: a program may be written twice.
    pub(crate) fn add(&self, report: WeightReport) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match reports.iter_mut().find(|known| known.name == report.name) {
            Some(known) => *known = report,
            None => reports.push(report),
        }
    }

    /// Those so far, in the order in which weights were written.
    pub(crate) fn all(&self) -> Vec<WeightReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sums of errors, added up in the order of rows so that any number of threads gives the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    squared_errors: f64,
    squares: f64,
    largest: f32,
}

impl Errors {
    pub(super) fn add(&mut self, wanted: f32, got: f32) {
        let error = wanted - got;
        self.squared_errors += f64::from(error) * f64::from(error);
        self.squares += f64::from(wanted) * f64::from(wanted);
        self.largest = self.largest.max(error.abs());
    }

    pub(super) fn join(&mut self, other: Errors) {
        self.squared_errors += other.squared_errors;
        self.squares += other.squares;
        self.largest = self.largest.max(other.largest);
    }

    pub(super) fn deviation(self) -> Deviation {
        let relative_rms = if self.squares > 0.0 { (self.squared_errors / self.squares).sqrt() } else { 0.0 };
        Deviation { relative_rms, largest: self.largest }
    }
}
