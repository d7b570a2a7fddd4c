//! A moment on the wall clock, and `strftime`.

use std::fmt::Write;
use web_time::{SystemTime, UNIX_EPOCH};

/// Date and time of day without a time zone, as Python's naive `datetime`. The default is the start of 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    year: i64,
    month: u32,
    day: u32,
    /// Seconds since midnight.
    second_of_day: u32,
}

impl Default for LocalTime {
    fn default() -> LocalTime {
        LocalTime::from_unix(0)
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl LocalTime {
    /// What the clocks at the prime meridian show now.
    pub fn utc_now() -> LocalTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LocalTime::from_unix(since.as_secs().min(i64::MAX as u64) as i64)
    }

    /// The time so many seconds after the start of 1970. For local time, add the zone's offset first.
    pub fn from_unix(seconds: i64) -> LocalTime {
        // Days of the proleptic Gregorian calendar, in eras of 400 years that begin on the 1st of March.
        let days = seconds.div_euclid(86_400) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        LocalTime {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u32,
            day: day as u32,
            second_of_day: seconds.rem_euclid(86_400) as u32,
        }
    }

    /// Reads `2026-01-02T03:04:05`; a fraction of a second is passed over.
    pub fn parse(text: &str) -> Option<LocalTime> {
        let (date, time) = text.split_once(['T', ' '])?;
        let mut date = date.split('-').map(|part| part.parse::<u32>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let mut time = time.split('.').next()?.split(':').map(|part| part.parse::<u32>().ok());
        let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
        let fits = year <= 9999 && (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
        if !fits || day == 0 || day > days_in(i64::from(year), month) {
            return None;
        }
        Some(LocalTime {
            year: i64::from(year),
            month,
            day,
            second_of_day: hour * 3600 + minute * 60 + second,
        })
    }

    pub(super) fn second_of_day(self) -> usize {
        self.second_of_day as usize
    }

    fn day_of_year(self) -> u32 {
        (1..self.month).map(|month| days_in(self.year, month)).sum::<u32>() + self.day
    }

    /// 0 for Sunday.
    fn weekday(self) -> u32 {
        let before = self.year - 1;
        let days = before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        (days + i64::from(self.day_of_year())).rem_euclid(7) as u32
    }

    /// Week and year by ISO 8601: a week belongs to the year that has its Thursday.
    fn iso_week(self) -> (i64, u32) {
        let monday_based = (self.weekday() + 6) % 7;
        let week = (i64::from(self.day_of_year()) - i64::from(monday_based) + 9) / 7;
        let weeks_in = |year: i64| {
            let first = LocalTime { year, month: 1, day: 1, second_of_day: 0 }.weekday();
            if first == 4 || (first == 3 && is_leap(year)) { 53 } else { 52 }
        };
        if week < 1 {
            (self.year - 1, weeks_in(self.year - 1))
        } else if week > i64::from(weeks_in(self.year)) {
            (self.year + 1, 1)
        } else {
            (self.year, week as u32)
        }
    }

    /// The time in words, by the conversions of C's `strftime` in the C locale. What is no conversion stays as it is.
    pub(super) fn format(self, pattern: &str) -> String {
        let mut text = String::new();
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let mut flag = None;
            let mut conversion = rest.next();
            if let Some(mark @ ('-' | '_' | '0')) = conversion {
                flag = Some(mark);
                conversion = rest.next();
            }
            match conversion {
                Some(conversion) => self.convert(conversion, flag, &mut text),
                None => {
                    text.push('%');
                    text.extend(flag);
                }
            }
        }
        text
    }

    fn convert(self, conversion: char, flag: Option<char>, text: &mut String) {
        let (hour, minute, second) =
            (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60);
        let twelve = if hour % 12 == 0 { 12 } else { hour % 12 };
        let weekday = self.weekday();
        let monday_based = (weekday + 6) % 7;
        let day_name = DAYS[weekday as usize % 7];
        let month_name = MONTHS[(self.month as usize + 11) % 12];
        // A number with its width and what fills it up, unless a flag says otherwise.
        let mut number = |value: i64, width: usize, fill: char| {
            let _ = match flag.unwrap_or(fill) {
                '-' => write!(text, "{value}"),
                '_' => write!(text, "{value:width$}"),
                _ => write!(text, "{value:0width$}"),
            };
        };
        match conversion {
            'Y' => number(self.year, 1, '-'),
            'C' => number(self.year / 100, 2, '0'),
            'y' => number(self.year % 100, 2, '0'),
            'G' => number(self.iso_week().0, 1, '-'),
            'g' => number(self.iso_week().0 % 100, 2, '0'),
            'm' => number(self.month.into(), 2, '0'),
            'd' => number(self.day.into(), 2, '0'),
            'e' => number(self.day.into(), 2, '_'),
            'j' => number(self.day_of_year().into(), 3, '0'),
            'H' => number(hour.into(), 2, '0'),
            'k' => number(hour.into(), 2, '_'),
            'I' => number(twelve.into(), 2, '0'),
            'l' => number(twelve.into(), 2, '_'),
            'M' => number(minute.into(), 2, '0'),
            'S' => number(second.into(), 2, '0'),
            'w' => number(weekday.into(), 1, '-'),
            'u' => number(i64::from(monday_based) + 1, 1, '-'),
            'U' => number(((self.day_of_year() + 6 - weekday) / 7).into(), 2, '0'),
            'W' => number(((self.day_of_year() + 6 - monday_based) / 7).into(), 2, '0'),
            'V' => number(self.iso_week().1.into(), 2, '0'),
            'A' => *text += day_name,
            'a' => *text += &day_name[..3],
            'B' => *text += month_name,
            'b' | 'h' => *text += &month_name[..3],
            'p' => *text += if hour < 12 { "AM" } else { "PM" },
            'P' => *text += if hour < 12 { "am" } else { "pm" },
            'f' => *text += "000000",
            'D' | 'x' => *text += &self.format("%m/%d/%y"),
            'F' => *text += &self.format("%Y-%m-%d"),
            'R' => *text += &self.format("%H:%M"),
            'T' | 'X' => *text += &self.format("%H:%M:%S"),
            'r' => *text += &self.format("%I:%M:%S %p"),
            'c' => *text += &self.format("%a %b %e %H:%M:%S %Y"),
            'n' => text.push('\n'),
            't' => text.push('\t'),
            '%' => text.push('%'),
            // A time without a zone has neither name nor offset.
            'Z' | 'z' => {}
            other => {
                text.push('%');
                text.extend(flag);
                text.push(other);
            }
        }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::LocalTime;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let format = |text: &str, pattern| LocalTime::parse(text).unwrap().format(pattern);
        let full = "%A %d %B %Y, %H:%M:%S, %j %U %W %G-W%V-%u %y %I%p";
        // By Python's own strftime.
        let cases = [
            ("2026-01-02T03:04:05", "Friday 02 January 2026, 03:04:05, 002 00 00 2026-W01-5 26 03AM"),
            ("2024-02-29T12:00:00", "Thursday 29 February 2024, 12:00:00, 060 08 09 2024-W09-4 24 12PM"),
            ("2021-01-03T23:59:59", "Sunday 03 January 2021, 23:59:59, 003 01 00 2020-W53-7 21 11PM"),
            ("2018-12-31T00:00:00", "Monday 31 December 2018, 00:00:00, 365 52 53 2019-W01-1 18 12AM"),
        ];
        for (time, text) in cases {
            assert_eq!(format(time, full), text);
        }
        assert_eq!(format("2026-01-02T03:04:05", "%-d.%-m.%e%%%b%Q%"), "2.1. 2%Jan%Q%");
        assert_eq!(
            format("2026-01-02T03:04:05", "%c|%D|%T|%F"),
            "Fri Jan  2 03:04:05 2026|01/02/26|03:04:05|2026-01-02"
        );
    }

    #[test]
    fn seconds_count_from_1970() {
        assert_eq!(LocalTime::from_unix(0), LocalTime::parse("1970-01-01T00:00:00").unwrap());
        assert_eq!(LocalTime::from_unix(951_782_400), LocalTime::parse("2000-02-29T00:00:00").unwrap());
        assert_eq!(LocalTime::from_unix(-1), LocalTime::parse("1969-12-31T23:59:59").unwrap());
        assert_eq!(LocalTime::parse("2026-02-29T00:00:00"), None);
        assert_eq!(LocalTime::parse("now"), None);
    }
}
