//! Any bytes as an MLX payload: an error, or tables that encode to bytes which decode to the same tables.

use pteron_format::Limits;
use pteron_format::payload::Payload;

/// One input.
pub fn run(data: &[u8]) {
    let limits = Limits::untrusted();
    let Ok(payload) = Payload::decode(data, &limits) else { return };
    // What cannot be encoded again says so; what was encoded must decode to the same.
    let Ok(encoded) = payload.encode() else { return };
    let again = Payload::decode(&encoded, &limits).expect("what was encoded decodes");
    // NaN differs from itself, so the comparison is of what would be printed.
    assert_eq!(format!("{again:?}"), format!("{payload:?}"));
}
