//! Repeated measurements: the median, and how far the others lie from it.

use serde::Serialize;

/// Several runs of the same thing, in units a second.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    /// The median.
    pub(crate) median: f64,
    /// The slowest.
    pub(crate) low: f64,
    /// The fastest.
    pub(crate) high: f64,
    /// All, in order of time.
    pub(crate) all: Vec<f64>,
}

impl Figures {
    /// Of at least one run.
    pub(crate) fn of(all: Vec<f64>) -> Option<Figures> {
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len().is_multiple_of(2) {
            true => (sorted[middle - 1] + sorted[middle]) / 2.0,
            false => sorted[middle],
        };
        Some(Figures { median, low, high, all })
    }

    /// `123.4 (120.1 to 125.0)`.
    pub(crate) fn show(&self) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(number);
        if self.all.len() == 1 { median } else { format!("{median} ({low} to {high})") }
    }
}

/// Three digits that count.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A time as people say it.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        value if value >= 1.0 => format!("{value:.2} s"),
        value if value >= 1e-3 => format!("{:.1} ms", value * 1e3),
        value => format!("{:.1} us", value * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_slowest_and_fastest() {
        let figures = Figures::of(vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((figures.median, figures.low, figures.high), (2.5, 1.0, 10.0));
        assert_eq!(figures.show(), "2.50 (1.00 to 10.0)");
        assert_eq!(Figures::of(vec![7.0]).unwrap().show(), "7.00");
        assert!(Figures::of(vec![]).is_none());
    }
}
