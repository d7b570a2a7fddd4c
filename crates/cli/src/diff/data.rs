//! Differences between bytes that have names: weights inside a program and in files beside it.

use super::Differences;
use pteron_format::ptd::Ptd;
use pteron_format::pte::Pte;
use std::collections::BTreeSet;

/// Named data of two programs, by key.
pub(super) fn compare_named(first: &Pte, second: &Pte, found: &mut Differences) {
    let keys = |pte: &Pte| pte.program.named_data.iter().map(|named| named.key.to_string()).collect();
    for key in common_keys("named data", keys(first), keys(second), found) {
        let (one, other) = (first.named(&key), second.named(&key));
        compare_bytes(&format!("named data `{key}`"), one.as_deref(), other.as_deref(), found);
    }
}

/// External data, by key.
pub(super) fn compare_external(first: &Ptd, second: &Ptd, found: &mut Differences) {
    let keys = |ptd: &Ptd| ptd.keys().map(str::to_owned).collect();
    found.compare("version", &first.tables.version, &second.tables.version, ToString::to_string);
    for key in common_keys("data", keys(first), keys(second), found) {
        let (Some(one), Some(other)) = (first.named(&key), second.named(&key)) else { continue };
        found.compare(format!("layout of `{key}`"), &one.layout, &other.layout, |layout| match layout {
            Some(layout) => format!("{} {:?}", dtype(layout.scalar_type), &*layout.sizes),
            None => "bytes".into(),
        });
        compare_bytes(&format!("data `{key}`"), Some(&one.bytes), Some(&other.bytes), found);
    }
}

/// The name of an element type, or its number where our tensors have none.
pub(super) fn dtype(scalar: pteron_format::pte::ScalarType) -> String {
    scalar.dtype().map_or_else(|| format!("type {}", scalar.code()), |dtype| dtype.name().to_owned())
}

/// Reports the keys that only one side has; gives those of both.
fn common_keys(
    what: &str,
    first: BTreeSet<String>,
    second: BTreeSet<String>,
    found: &mut Differences,
) -> Vec<String> {
    for key in first.difference(&second) {
        found.note(format!("{what} `{key}`: only in the first"));
    }
    for key in second.difference(&first) {
        found.note(format!("{what} `{key}`: only in the second"));
    }
    first.intersection(&second).cloned().collect()
}

/// Compares content; what a reader can use is how much differs and from where.
pub(super) fn compare_bytes(
    place: &str,
    first: Option<&[u8]>,
    second: Option<&[u8]>,
    found: &mut Differences,
) {
    match (first, second) {
        (None, None) => {}
        (Some(one), Some(other)) if one == other => {}
        (Some(one), Some(other)) if one.len() != other.len() => {
            found.add(place, &[format!("{} bytes", one.len())], &[format!("{} bytes", other.len())]);
        }
        (Some(one), Some(other)) => {
            let differs = || one.iter().zip(other).enumerate().filter(|(_, (a, b))| a != b);
            let from = differs().next().map_or(0, |(at, _)| at);
            found.note(format!(
                "{place}: {} of {} bytes differ, from byte {from} on",
                differs().count(),
                one.len()
            ));
        }
        (one, other) => {
            let side = |bytes: Option<&[u8]>| match bytes {
                Some(bytes) => format!("{} bytes", bytes.len()),
                None => "nothing stored".into(),
            };
            found.add(place, &[side(one)], &[side(other)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_apart_by_length_count_and_place() {
        let mut found = Differences::default();
        compare_bytes("same", Some(b"ab"), Some(b"ab"), &mut found);
        compare_bytes("neither", None, None, &mut found);
        compare_bytes("some", Some(b"abcd"), Some(b"axcy"), &mut found);
        compare_bytes("length", Some(b"a"), Some(b""), &mut found);
        compare_bytes("one", None, Some(b""), &mut found);
        let lines = [
            "some: 2 of 4 bytes differ, from byte 1 on",
            "length",
            "  - 1 bytes",
            "  + 0 bytes",
            "one",
            "  - nothing stored",
            "  + 0 bytes",
        ];
        assert_eq!(found.lines(), lines);
    }
}
