//! Forms with files in them (`multipart/form-data`), taken apart: a body that is here as a whole flows in, named parts of it
//! flow out.

use crate::error::ApiError;

/// More parts than any form of ours has.
const MOST_PARTS: usize = 64;
/// Bytes of the lines before a part.
const LONGEST_HEAD: usize = 16 << 10;

/// A part of a form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part<'b> {
    pub(crate) name: String,
    pub(crate) content: &'b [u8],
}

/// The boundary that a content type names; `None` where it is no form.
pub(crate) fn boundary(kind: &str) -> Option<String> {
    let (form, parameters) = kind.split_once(';')?;
    if !form.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parameter(parameters, "boundary")?;
    (1..=70).contains(&value.len()).then_some(value)
}

/// The parts of a form.
pub(crate) fn parts<'b>(body: &'b [u8], boundary: &str) -> Result<Vec<Part<'b>>, ApiError> {
    let wrong = |what: &str| ApiError::invalid(format!("the form is broken: {what}"));
    let line = format!("--{boundary}");
    let mut rest = match find(body, line.as_bytes()) {
        // Something may stand before the first of them, which nobody reads.
        Some(at) if at == 0 || body[..at].ends_with(b"\n") => &body[at + line.len()..],
        _ => return Err(wrong("its boundary is not in it")),
    };
    let between = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        if parts.len() == MOST_PARTS {
            return Err(wrong("it has too many parts"));
        }
        rest = rest.strip_prefix(b"\r\n").ok_or_else(|| wrong("a boundary does not end its line"))?;
        let head = find(&rest[..rest.len().min(LONGEST_HEAD)], b"\r\n\r\n");
        let head = head.ok_or_else(|| wrong("a part has no head"))?;
        let name = name_of(&rest[..head]).ok_or_else(|| wrong("a part has no name"))?;
        rest = &rest[head + 4..];
        let end = find(rest, between.as_bytes()).ok_or_else(|| wrong("it has no end"))?;
        parts.push(Part { name, content: &rest[..end] });
        rest = &rest[end + between.len()..];
    }
    Ok(parts)
}

/// What a part is called.
fn name_of(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let (kind, parameters) = value.split_once(';')?;
        let is_form = name.trim().eq_ignore_ascii_case("content-disposition")
            && kind.trim().eq_ignore_ascii_case("form-data");
        if is_form { parameter(parameters, "name") } else { None }
    })
}

/// The value of `name=value` or `name="value"` among others. Semicolons inside of quotes belong to them.
fn parameter(mut text: &str, wanted: &str) -> Option<String> {
    loop {
        let (name, rest) = text.split_once('=')?;
        let name = name.trim().trim_start_matches(';').trim();
        let (value, behind) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(';').unwrap_or((rest, "")),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value.trim().to_owned());
        }
        text = behind;
    }
}

/// Where one text stands in another.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(at) = text.get(from..)?.iter().position(|&byte| byte == first) {
        if text[from + at..].starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_its_parts() {
        let kind = "multipart/form-data; charset=utf-8; boundary=\"a b\"";
        assert_eq!(boundary(kind).as_deref(), Some("a b"));
        let body = b"before\r\n--a b\r\nContent-Disposition: form-data; filename=\"x; name=y.wav\"; name=\"file\"\r\n\
                     Content-Type: audio/wav\r\n\r\n\r\n--a\0b\r\n\r\n--a b\r\nContent-Disposition: form-data; name=model\r\n\
                     \r\n\r\n--a b--\r\nbehind";
        let parts = parts(body, "a b").unwrap();
        let wanted = [("file", &b"\r\n--a\0b\r\n"[..]), ("model", b"")];
        let wanted = wanted.map(|(name, content)| Part { name: name.to_owned(), content });
        assert_eq!(parts, wanted);
    }

    #[test]
    fn what_is_no_form_is_told() {
        for kind in ["", "multipart/form-data", "text/plain; boundary=a", "multipart/form-data; boundary="] {
            assert_eq!(boundary(kind), None, "{kind}");
        }
        let head = "Content-Disposition: form-data; name=a";
        let cases = [
            String::new(),
            "--b".to_owned(),
            "--b\r\n".to_owned(),
            format!("x--b\r\n{head}\r\n\r\n\r\n--b--"),
            format!("--b\r\n{head}\r\n\r\n"),
            format!("--b\r\n{head}\r\n\r\nx\r\n--bx"),
            "--b\r\nContent-Disposition: form-data\r\n\r\n\r\n--b--".to_owned(),
            format!("--b{}", format!("\r\n{head}\r\n\r\n\r\n--b").repeat(65)) + "--",
            format!("--b\r\nx: {}\r\n\r\n\r\n--b--", "y".repeat(20_000)),
        ];
        for case in cases {
            assert!(parts(case.as_bytes(), "b").is_err(), "{}", &case[..case.len().min(60)]);
        }
    }
}
