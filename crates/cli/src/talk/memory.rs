//! Sizes as people write them on the command line.

/// A number of bytes as people write it: `800M`, `2G`, `1.5GiB`, `1073741824`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write it as 800M or 1.5G");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * scale as f64;
    if bytes.is_finite() && bytes >= 1.0 { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("1024", 1024),
            ("2k", 2048),
            ("1.5M", 3 << 19),
            ("2GiB", 2 << 30),
            ("3 gb", 3 << 30),
            ("1t", 1 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "1e9", "nan", "0", "2X", "1.2.3M"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
