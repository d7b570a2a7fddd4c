//! A layer's attention of one token from its projections on: queries and the key are turned by their position (rope), the key and the
//! value are written into the cache, and each head attends over what was there and over them. A group a head; a thread a key for
//! scores, then threads side by side over the features of values, with a running softmax.
//!
//! Groups that share keys turn the key each for itself, so that none waits for another, and one of them writes it.
//!
//! Parameters: query heads a key head, keys in the cache that are seen, the first of them, slots of a ring (none: 0), its first position;
//! rows of a head in the cache, the row of the new key; features that turn, the position, its scale, the scale of scores; first word
//! of the result; by queries, keys and values the first element and the stride of heads; the first period, or the radians by pair.

use super::source::{
    FIRST_PARAM, Source, encoded, float, four, over_group, over_group_call, param, per_vector, per_word,
    rounded, signed,
};
use pteron_tensor::DType;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Of everything.
    pub dtype: DType,
    /// Of a head: whole vectors of 16 bytes.
    pub features: u32,
    /// Of the periods.
    pub freqs: Option<DType>,
    /// Whether pairs lie side by side.
    pub traditional: bool,
    /// Threads of a group.
    pub threads: u32,
    /// Whether sums run over subgroups.
    pub subgroups: bool,
}

/// Where first elements and strides of heads begin, and the radians behind them.
const VIEWS: u32 = 12;
const TABLE: u32 = VIEWS + 6;
/// Vectors of a key, or rows of values, that a thread has under way.
const AT_ONCE: u32 = 16;
const ROWS_AT_ONCE: u32 = 4;

impl Token {
    /// Bytes that a group shares.
    pub(crate) fn shared_bytes(dtype: DType, features: u32, threads: u32) -> u32 {
        let fours = per_vector(dtype) / 4;
        3 * features * 4 + threads * 4 + threads * fours * 16 + threads * 4
    }

    fn turned(&self) -> String {
        let (pair, partner, second) = match self.traditional {
            true => ("f / 2u", "select(f + 1u, f - 1u, (f & 1u) == 1u)", "(f & 1u) == 1u"),
            false => ("f % pairs", "select(f + pairs, f - pairs, f >= pairs)", "f >= pairs"),
        };
        let inverse = match self.freqs {
            Some(_) => format!("1.0 / load_periods({} + pair)", param(TABLE)),
            None => format!("bitcast<f32>(P[at.base + {}u + pair])", FIRST_PARAM + TABLE),
        };
        let value = rounded(self.dtype, "turned");
        format!(
            "fn turned_at(row: u32, f: u32) -> f32 {{\n\
             let own = load_a(row + f);\nif f >= {dims} {{ return own; }}\n\
             let pairs = {dims} / 2u;\nlet pair = {pair};\n\
             let turn = sin_cos(f32({position}) * {scale} * ({inverse}));\nlet other = load_a(row + {partner});\n\
             let turned = select(own * turn.y - other * turn.x, other * turn.x + own * turn.y, {second});\n\
             return {value};\n}}",
            dims = param(7),
            position = signed(8),
            scale = float(9),
        )
    }

    /// Statements that write a row of shared numbers into a cache, by one thread a vector.
    fn kept(&self, cache: &str, row: &str) -> String {
        let (per, each) = (per_word(self.dtype), 32 / per_word(self.dtype));
        let words: Vec<String> = (0..4)
            .map(|word| {
                let parts: Vec<String> = (0..per)
                    .map(|part| {
                        let f = word * per + part;
                        let number = format!("{row}[own * {}u + {}u][{}u]", per, f / 4, f % 4);
                        format!("({} << {}u)", encoded(self.dtype, &number), part * each)
                    })
                    .collect();
                parts.join(" | ")
            })
            .collect();
        format!("{cache}[to + own] = vec4<u32>({});\n", words.join(", "))
    }

    pub(super) fn text(&self) -> String {
        let Token { dtype, features, freqs, threads, subgroups, .. } = *self;
        let (vectors, fours, row) = (features / per_vector(dtype), per_vector(dtype) / 4, features / 4);
        let mut source = Source::new();
        source.writes("out");
        source.changes_vectors("keys");
        source.changes_vectors("values");
        source.reads("a", dtype);
        if let Some(dtype) = freqs {
            source.reads("periods", dtype);
        }
        source.push(&format!(
            "var<workgroup> query: array<vec4<f32>, {row}>;\nvar<workgroup> fresh: array<vec4<f32>, {row}>;\n\
             var<workgroup> told: array<vec4<f32>, {row}>;\nvar<workgroup> weights: array<f32, {threads}>;\n\
             var<workgroup> partial: array<vec4<f32>, {}>;",
            threads * fours
        ));
        source.push(&over_group(threads, subgroups));
        source.push(&self.turned());
        let each = |text: &dyn Fn(u32) -> String| (0..fours).map(text).collect::<String>();
        let place = "var slot = place;\nif slots > 0u { slot = (place + ring) % slots; }\n";
        let mut dots = String::new();
        for from in (0..vectors).step_by(AT_ONCE as usize) {
            let some = from..vectors.min(from + AT_ONCE);
            dots += "{\n";
            some.clone().for_each(|d| dots += &format!("let r{d} = keys[at_k + {d}u];\n"));
            for d in some {
                for at in 0..fours {
                    dots += &format!(
                        "dots = fma({}, query[{}u], dots);\n",
                        four(dtype, &format!("r{d}"), at),
                        d * fours + at
                    );
                }
            }
            dots += "}\n";
        }
        let rows: String = (0..ROWS_AT_ONCE)
            .map(|at| {
                format!(
                    "let t{at} = t + {at}u * slices;\nlet w{at} = select(0.0, weights[min(t{at}, count - 1u)], t{at} < count);\n\
                     var v{at} = vec4<u32>();\n{{ let place = j0 + min(t{at}, count - 1u);\n{place}\
                     v{at} = values[(kh * rows + slot) * {vectors}u + own]; }}\n"
                )
            })
            .collect();
        let adds: String = (0..ROWS_AT_ONCE)
            .flat_map(|at| (0..fours).map(move |part| (at, part)))
            .map(|(at, part)| {
                let value = four(dtype, &format!("v{at}"), part);
                format!("acc{part} = fma(vec4<f32>(w{at}), {value}, acc{part});\n")
            })
            .collect();
        let per = per_word(dtype);
        let words: String = (0..4 / per)
            .map(|word| {
                let parts: Vec<String> = (0..per)
                    .map(|part| {
                        let value = encoded(dtype, &format!("value[{}]", word * per + part));
                        format!("({value} << {}u)", part * (32 / per))
                    })
                    .collect();
                format!("out[to + {word}u] = {};\n", parts.join(" | "))
            })
            .collect();
        let body = format!(
            "let h = group;\nlet kh = h / {ratio};\nlet slots = {slots};\nlet ring = {ring};\nlet rows = {rows_of};\n\
             let q0 = u32({q0} + i32(h) * {qh});\nlet k0 = u32({k0} + i32(kh) * {kh_});\nlet v0 = u32({v0} + i32(kh) * {vh});\n\
             for (var f = thread; f < {features}u; f += {threads}u) {{\n\
             query[f >> 2u][f & 3u] = turned_at(q0, f) * {scale};\n\
             fresh[f >> 2u][f & 3u] = turned_at(k0, f);\n\
             told[f >> 2u][f & 3u] = load_a(v0 + f);\n}}\nworkgroupBarrier();\n\
             if h % {ratio} == 0u {{\n\
             let to = (kh * rows + {new_row}) * {vectors}u;\n\
             for (var own = thread; own < {vectors}u; own += {threads}u) {{\n{keep_k}{keep_v}}}\n}}\n\
             let slices = {threads}u / {vectors}u;\nlet slice = thread / {vectors}u;\nlet own = thread % {vectors}u;\n\
             var top = -infinity();\nvar sum = 0.0;\n{zeros}\
             let end = {keys};\n\
             for (var j0 = {begin}; j0 < end; j0 += {threads}u) {{\n\
             let place = j0 + thread;\nvar score = -infinity();\n\
             if place < end {{\n{place}let at_k = (kh * rows + slot) * {vectors}u;\nvar dots = vec4<f32>();\n{dots}\
             score = dot(dots, vec4<f32>(1.0));\n}}\n\
             let best = max(top, {largest});\n\
             if best > -infinity() || is_nan(best) {{\n\
             let weight = select(exp(score - best), 0.0, score == -infinity());\nweights[thread] = weight;\n\
             let fade = select(exp(top - best), 0.0, top == -infinity());\n\
             sum = sum * fade + {total};\ntop = best;\n{fades}\
             let count = min({threads}u, end - j0);\n\
             if slice < slices {{\nfor (var t = slice; t < count; t += {step}u * slices) {{\n{rows}{adds}}}\n}}\n\
             workgroupBarrier();\n}}\n}}\n\
             var score = 0.0;\nfor (var d = 0u; d < {row}u; d++) {{ score += dot(query[d], fresh[d]); }}\n\
             let best = max(top, score);\n\
             let fade = select(exp(top - best), 0.0, top == -infinity());\n\
             let weight = select(exp(score - best), 0.0, score == -infinity());\nsum = sum * fade + weight;\n{fades}\
             if slice < slices {{\n{kept}}}\nworkgroupBarrier();\n\
             for (var left = slices; left > 1u; left = (left + 1u) / 2u) {{\n\
             let half = (left + 1u) / 2u;\n\
             for (var d = thread; d < (left - half) * {row}u; d += {threads}u) {{ partial[d] += partial[d + half * {row}u]; }}\n\
             workgroupBarrier();\n}}\n\
             for (var d = thread; d < {row}u; d += {threads}u) {{\n\
             let value = select((partial[d] + weight * told[d]) / sum, vec4<f32>(), best == -infinity());\n\
             let to = {out} + (h * {row}u + d) * {words_each}u;\n{words}}}",
            ratio = param(0),
            keys = param(1),
            begin = param(2),
            slots = param(3),
            ring = param(4),
            rows_of = param(5),
            new_row = param(6),
            scale = float(10),
            out = param(11),
            q0 = signed(VIEWS),
            qh = signed(VIEWS + 1),
            k0 = signed(VIEWS + 2),
            kh_ = signed(VIEWS + 3),
            v0 = signed(VIEWS + 4),
            vh = signed(VIEWS + 5),
            keep_k = self.kept("keys", "fresh"),
            keep_v = self.kept("values", "told"),
            zeros = each(&|at| format!("var acc{at} = vec4<f32>();\n")),
            fades = each(&|at| format!("acc{at} *= fade;\n")),
            largest = over_group_call("group_max", subgroups, "score"),
            total = over_group_call("group_sum", subgroups, "weight"),
            step = ROWS_AT_ONCE,
            kept = each(&|at| format!("partial[slice * {row}u + own * {fours}u + {at}u] = acc{at};\n")),
            words_each = 4 / per,
        );
        source.main_of(threads, subgroups, &body);
        source.finish()
    }
}
