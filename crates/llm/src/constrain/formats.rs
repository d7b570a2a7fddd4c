//! Formats of strings that the grammar engine takes too widely: days that no calendar has, the second 60, fractions of any
//! length. Schemas that name them get exact patterns instead.

use serde_json::{Map, Value, json};

/// 0001 to 9999.
const YEAR: &str = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
/// Those of them that have a 29th of February.
const LEAP_YEAR: &str = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
/// Days of every year.
const DAY: &str = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
/// With an offset, as RFC 3339 wants it.
const TIME: &str =
    "(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}(?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// Keywords whose values are data, not schemas.
pub(super) const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// The pattern of all strings that have a format, where it is one of those.
fn pattern(format: &str) -> Option<String> {
    let date = format!("(?:{YEAR}-{DAY}|{LEAP_YEAR}-02-29)");
    match format {
        "date" => Some(format!("^{date}$")),
        "date-time" => Some(format!("^{date}T{TIME}$")),
        "time" => Some(format!("^{TIME}$")),
        _ => None,
    }
}

/// Puts patterns in the place of those formats, wherever a schema has them.
pub(super) fn make_exact(schema: &mut Value) {
    match schema {
        Value::Object(schema) => {
            if let Some(pattern) = schema.get("format").and_then(Value::as_str).and_then(pattern) {
                schema.remove("format");
                require(schema, &pattern);
            }
            let parts = schema.iter_mut().filter(|(key, _)| !DATA.contains(&key.as_str()));
            parts.for_each(|(_, part)| make_exact(part));
        }
        Value::Array(parts) => parts.iter_mut().for_each(make_exact),
        _ => {}
    }
}

/// Adds a pattern to those that a schema has.
fn require(schema: &mut Map<String, Value>, pattern: &str) {
    if !schema.contains_key("pattern") {
        schema.insert("pattern".to_owned(), json!(pattern));
        return;
    }
    let all = schema.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(json!({ "pattern": pattern }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fancy_regex::Regex;

    #[test]
    fn only_days_of_the_calendar_match() {
        let date = Regex::new(&pattern("date").unwrap()).unwrap();
        for good in
            ["0001-01-01", "2024-02-29", "2000-02-29", "0004-02-29", "9999-12-31", "1990-10-10", "2023-02-28"]
        {
            assert!(date.is_match(good).unwrap(), "{good}");
        }
        for bad in [
            "2023-02-29",
            "1900-02-29",
            "0000-01-01",
            "0000-02-29",
            "2024-04-31",
            "2024-13-01",
            "2024-00-10",
            "2024-1-01",
        ] {
            assert!(!date.is_match(bad).unwrap(), "{bad}");
        }
        let both = Regex::new(&pattern("date-time").unwrap()).unwrap();
        assert!(both.is_match("2024-02-29T23:59:59.25+02:00").unwrap());
        assert!(!both.is_match("2024-02-29T23:59:60Z").unwrap());
        assert!(!both.is_match("2024-02-29T24:00:00Z").unwrap());
    }

    #[test]
    fn schemas_are_changed_and_data_is_not() {
        let mut schema = json!({
            "properties": {
                "day": {"type": "string", "format": "date"},
                "both": {"format": "time", "pattern": "Z$"},
                "mail": {"format": "email"},
                "fixed": {"const": {"format": "date"}},
            },
        });
        make_exact(&mut schema);
        let parts = &schema["properties"];
        assert_eq!(parts["day"], json!({"type": "string", "pattern": pattern("date")}));
        assert_eq!(parts["both"], json!({"pattern": "Z$", "allOf": [{"pattern": pattern("time")}]}));
        assert_eq!(parts["mail"], json!({"format": "email"}));
        assert_eq!(parts["fixed"], json!({"const": {"format": "date"}}));
    }
}
