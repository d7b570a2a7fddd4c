//! How long a model stays that nobody uses, and moments as clients read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a model stays that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// Until the memory is needed.
    Forever,
    /// So long; nothing drops it at once.
    For(Duration),
}

impl KeepAlive {
    /// So many; below 0 for good, and so is more than a clock has.
    pub(crate) fn of_seconds(seconds: f64) -> KeepAlive {
        Duration::try_from_secs_f64(seconds).map_or(KeepAlive::Forever, KeepAlive::For)
    }

    /// A time as people write it: `5m`, `1h30m`, `300`, `-1`; `None` where it is none.
    pub fn parse(text: &str) -> Option<KeepAlive> {
        let (negative, mut rest) = match text.trim().strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        if let Ok(seconds) = rest.parse::<f64>() {
            let seconds = if negative { -seconds } else { seconds };
            return (!seconds.is_nan()).then(|| KeepAlive::of_seconds(seconds));
        }
        let mut seconds = 0.0;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let number: f64 = rest[..digits].parse().ok()?;
            let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
            seconds += number
                * match &rest[digits..unit] {
                    "ns" => 1e-9,
                    "us" => 1e-6,
                    "ms" => 1e-3,
                    "s" => 1.0,
                    "m" => 60.0,
                    "h" => 3600.0,
                    _ => return None,
                };
            rest = &rest[unit..];
        }
        Some(KeepAlive::of_seconds(if negative { -seconds } else { seconds }))
    }
}

/// Now, as a date.
pub(crate) fn now() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(time.as_secs(), time.subsec_nanos())
}

/// A moment since 1970 as `2026-11-18T03:04:05.000000006Z`.
pub(crate) fn date(seconds: u64, nanoseconds: u32) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Eras of 400 years, which begin on the first of March.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = (if month < 10 { month + 3 } else { month - 9 }, year + era * 400);
    let year = if month <= 2 { year + 1 } else { year };
    let (hours, minutes, seconds) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{nanoseconds:09}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        assert_eq!(date(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(date(951_782_400, 5), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(date(1_794_970_999, 0), "2026-11-18T03:03:19.000000000Z");
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let seconds = |seconds| Some(KeepAlive::For(Duration::from_secs_f64(seconds)));
        let cases = [
            ("5m", seconds(300.0)),
            ("1h30m", seconds(5400.0)),
            ("1.5s", seconds(1.5)),
            ("250ms", seconds(0.25)),
            ("300", seconds(300.0)),
            ("0", seconds(0.0)),
            ("-1", Some(KeepAlive::Forever)),
            ("-1m", Some(KeepAlive::Forever)),
            ("1e300", Some(KeepAlive::Forever)),
        ];
        for (text, wanted) in cases {
            assert_eq!(KeepAlive::parse(text), wanted, "{text}");
        }
        for text in ["", "m", "5x", "5m5", "-", "nan", "1.2.3s", "5 m"] {
            assert_eq!(KeepAlive::parse(text), None, "{text}");
        }
    }
}
