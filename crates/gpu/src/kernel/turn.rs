//! Queries and keys turned by their positions (rope), keys and values written into the cache: one kernel for what stands between a
//! layer's projections and its attention. Each thread makes one word; queries or values may be none.
//!
//! Parameters: words of queries, of keys and of values; features, features that turn, positions, the offset, the scale, first word of the
//! turned queries; rows of a head in the cache, slots of its ring (none: 0), the row of the first position; first period; by
//! queries, keys and values the first element and the strides of heads and positions; without periods the radians by pair.

use super::source::{FIRST_PARAM, Source, encoded, float, param, per_word, signed};
use pteron_tensor::DType;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Of everything.
    pub dtype: DType,
    /// Of the periods.
    pub freqs: Option<DType>,
    /// Whether pairs lie side by side.
    pub traditional: bool,
}

/// Where first elements and strides begin, and the radians behind them.
const VIEWS: u32 = 13;
const TABLE: u32 = VIEWS + 9;

impl Turn {
    pub(super) fn text(&self) -> String {
        let Turn { dtype, freqs, traditional } = *self;
        let mut source = Source::new();
        source.writes("out");
        source.writes("keys");
        source.writes("values");
        source.reads("a", dtype);
        if let Some(dtype) = freqs {
            source.reads("periods", dtype);
        }
        let (features, dims, positions) = (param(3), param(4), param(5));
        let (pair, partner, second) = match traditional {
            true => ("f / 2u", "select(f + 1u, f - 1u, (f & 1u) == 1u)", "(f & 1u) == 1u"),
            false => ("f % pairs", "select(f + pairs, f - pairs, f >= pairs)", "f >= pairs"),
        };
        let inverse = match freqs {
            Some(_) => format!("1.0 / load_periods({} + pair)", param(12)),
            None => format!("bitcast<f32>(P[at.base + {}u + pair])", FIRST_PARAM + TABLE),
        };
        source.push(&format!(
            "fn turned(row: u32, t: u32, f: u32) -> f32 {{\n\
             let own = load_a(row + f);\nif f >= {dims} {{ return own; }}\n\
             let pairs = {dims} / 2u;\nlet pair = {pair};\n\
             let position = f32({offset} + i32(t)) * {scale};\n\
             let turn = sin_cos(position * ({inverse}));\nlet other = load_a(row + {partner});\n\
             if {second} {{ return other * turn.x + own * turn.y; }}\n\
             return own * turn.y - other * turn.x;\n}}",
            offset = signed(6),
            scale = float(7),
        ));
        let (per, width) = (per_word(dtype), 32 / per_word(dtype));
        let word = |value: &str| -> String {
            (0..per)
                .map(|part| {
                    let value = value.replace("$f", &format!("f0 + {part}u"));
                    format!("bits |= {} << {}u;\n", encoded(dtype, &value), part * width)
                })
                .collect()
        };
        let find = |from: &str, view: u32| {
            format!(
                "let e = (word - {from}) * {per}u;\nlet f0 = e % {features};\nlet t = e / {features} % {positions};\n\
                 let h = e / ({features} * {positions});\n\
                 let row = u32({} + i32(h) * {} + i32(t) * {});\nvar bits = 0u;\n",
                signed(VIEWS + 3 * view),
                signed(VIEWS + 3 * view + 1),
                signed(VIEWS + 3 * view + 2),
            )
        };
        let slot = format!(
            "var slot = {start} + t;\nif {slots} > 0u {{ slot = slot % {slots}; }}\n\
             let to = ((h * {rows} + slot) * {features} + f0) / {per}u;\n",
            rows = param(9),
            slots = param(10),
            start = param(11),
        );
        let body = format!(
            "let word = group * {threads}u + thread;\nlet q_words = {qw};\nlet k_words = {kw};\n\
             if word < q_words {{\n{find_q}{turn}out[{out} + word] = bits;\n}}\n\
             else if word < q_words + k_words {{\n{find_k}{turn}{slot}keys[to] = bits;\n}}\n\
             else if word < q_words + k_words + {vw} {{\n{find_v}{copy}{slot}values[to] = bits;\n}}",
            threads = super::THREADS,
            qw = param(0),
            kw = param(1),
            vw = param(2),
            out = param(8),
            find_q = find("0u", 0),
            find_k = find("q_words", 1),
            find_v = find("q_words - k_words", 2),
            turn = word("turned(row, t, $f)"),
            copy = word("load_a(row + $f)"),
        );
        source.main(&body);
        source.finish()
    }
}
