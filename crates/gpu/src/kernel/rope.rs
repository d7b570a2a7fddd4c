//! Rotary position embedding (rope): each thread turns the elements of one word.
//!
//! Parameters: elements, first word of the result, features, features that turn, positions, the offset, the scale, nothing, first
//! element of the periods and of the offsets, elements of a batch row, how many offsets; then sizes, first element and strides,
//! and without periods the radians that each pair turns by: no device is asked for powers that must be right to the last bit.

use super::source::{FIRST_PARAM, Lane, Source, float, locate, param, signed, words};
use pteron_tensor::DType;

/// Where radians by pair begin.
pub(crate) fn table(rank: u32) -> u32 {
    12 + rank + 1 + rank
}

pub(super) fn text(
    dtype: DType,
    freqs: Option<DType>,
    offsets: Option<DType>,
    traditional: bool,
    rank: u32,
) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", dtype);
    if let Some(dtype) = freqs {
        source.reads("periods", dtype);
    }
    if let Some(dtype) = offsets {
        source.reads_indices("offsets", dtype);
    }
    let (features, dims, positions) = (param(2), param(3), param(4));
    // Where the other element of a pair is, and the pair's number.
    let (pair, partner) = match traditional {
        true => ("f / 2u", "select(e + 1u, e - 1u, (f & 1u) == 1u)"),
        false => ("f % pairs", "select(e + pairs, e - pairs, f >= pairs)"),
    };
    let second = if traditional { "(f & 1u) == 1u" } else { "f >= pairs" };
    let inverse = match freqs {
        Some(_) => format!("1.0 / load_periods({} + pair)", param(8)),
        None => format!("bitcast<f32>(P[at.base + {}u + pair])", FIRST_PARAM + table(rank)),
    };
    let offset = match offsets {
        Some(_) => format!(
            "index_offsets({} + select(0u, e / {}, e / {} < {}))",
            param(9),
            param(10),
            param(10),
            param(11)
        ),
        None => signed(5),
    };
    debug_assert_eq!(Lane::of(dtype), Lane::F32);
    source.push(&format!(
        "fn item(e: u32) -> f32 {{\n{}return load_a(a_at);\n}}",
        locate("e", rank, 12, &["a"])
    ));
    let element = format!(
        "fn element(e: u32) -> f32 {{\n\
         let f = e % {features};\n\
         if f >= {dims} {{ return item(e); }}\n\
         let pairs = {dims} / 2u;\n\
         let pair = {pair};\n\
         let position = f32({offset} + i32(e / {features} % {positions})) * {scale};\n\
         let turn = sin_cos(position * ({inverse}));\n\
         let own = item(e);\nlet other = item({partner});\n\
         if {second} {{ return other * turn.x + own * turn.y; }}\n\
         return own * turn.y - other * turn.x;\n}}",
        scale = float(6),
    );
    words(&mut source, dtype, &element);
    source.finish()
}
