//! Attention of few queries over many keys whose rows lie in whole vectors of 16 bytes: a group a query, a thread a key for scores,
//! then threads side by side over the features of values. A running softmax (flash attention over one row) over blocks of as
//! many keys as there are threads.
//!
//! Parameters: queries of all heads, first word of the result, heads, queries of a head, keys, vectors of a row of keys and of
//! values, the scale, query heads a key head, whether it is causal; first element and strides of queries by batch, head and
//! position; the same of keys and of values, in vectors; slots of a ring (none: 0), the first key's position, the window.

use super::source::{
    Source, float, four, over_group, over_group_call, param, per_vector, per_word, signed, store_four,
};
use pteron_tensor::DType;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decode {
    /// Of queries.
    pub q: DType,
    /// Of keys and values.
    pub kv: DType,
    /// Of the result.
    pub out: DType,
    /// Threads of a group.
    pub threads: u32,
    /// Whether sums run over subgroups.
    pub subgroups: bool,
}

/// Vectors of four features at most: heads of 256.
pub(crate) const MOST_FOURS: u32 = 64;

impl Decode {
    pub(super) fn text(&self) -> String {
        let Decode { q, kv, out, threads, subgroups } = *self;
        let mut source = Source::new();
        source.writes("out");
        source.reads("q", q);
        source.reads_vectors("k");
        source.reads_vectors("v");
        let fours = per_vector(kv) / 4;
        source.push(&format!(
            "var<workgroup> query: array<vec4<f32>, {MOST_FOURS}>;\n\
             var<workgroup> weights: array<f32, {threads}>;\n\
             var<workgroup> partial: array<vec4<f32>, {}>;",
            threads * fours
        ));
        source.push(&over_group(threads, subgroups));
        let place = "var slot = place;\nif slots > 0i { slot = (place + first_key) % slots; }\n";
        let dots: String = (0..fours)
            .map(|at| format!("dots = fma({}, query[d * {fours}u + {at}u], dots);\n", four(kv, "row", at)))
            .collect();
        let adds: String = (0..fours)
            .map(|at| format!("acc{at} = fma(vec4<f32>(w), {}, acc{at});\n", four(kv, "row", at)))
            .collect();
        let each = |text: &dyn Fn(u32) -> String| (0..fours).map(text).collect::<String>();
        let body = format!(
            "if group >= {groups} {{ return; }}\nlet l = group % {queries};\nlet h = group / {queries} % {heads};\nlet b = group / ({queries} * {heads});\n\
             let kh = h / {ratio};\n\
             let q0 = {q0} + i32(b) * {qb} + i32(h) * {qh} + i32(l) * {ql};\n\
             let k0 = {k0} + i32(b) * {kb} + i32(kh) * {kkh};\nlet v0 = {v0} + i32(b) * {vb} + i32(kh) * {vh};\n\
             let key_vectors = {kvec};\nlet value_vectors = {vvec};\n\
             let slots = {slots};\nlet first_key = {first};\n\
             for (var d = thread; d < key_vectors * {fours}u; d += {threads}u) {{\n\
             let at_q = u32(q0) + d * 4u;\n\
             query[d] = vec4<f32>(load_q(at_q), load_q(at_q + 1u), load_q(at_q + 2u), load_q(at_q + 3u)) * {scale};\n}}\n\
             workgroupBarrier();\n\
             var end = i32({keys});\nvar begin = 0i;\n\
             if {causal} == 1u {{ end = min(end, i32(l) + 1i + i32({keys}) - i32({queries})); }}\n\
             if {window} > 0i {{ begin = max(0i, end - {window}); }}\n\
             let slices = {threads}u / value_vectors;\nlet slice = thread / value_vectors;\nlet own = thread % value_vectors;\n\
             var top = -infinity();\nvar sum = 0.0;\n{zeros}\
             for (var j0 = begin; j0 < end; j0 += {threads}i) {{\n\
             let place = j0 + i32(thread);\nvar score = -infinity();\n\
             if place < end {{\n{slot}\
             let at_k = u32(k0 + slot * {ks});\nvar dots = vec4<f32>();\n\
             for (var d = 0u; d < key_vectors; d++) {{ let row = k[at_k + d];\n{dots}}}\n\
             score = dot(dots, vec4<f32>(1.0));\n}}\n\
             let best = max(top, {largest});\n\
             if best > -infinity() || is_nan(best) {{\n\
             let weight = select(exp(score - best), 0.0, score == -infinity());\n\
             weights[thread] = weight;\n\
             let fade = select(exp(top - best), 0.0, top == -infinity());\n\
             sum = sum * fade + {total};\ntop = best;\n{fades}\
             let count = u32(min({threads}i, end - j0));\n\
             if slice < slices {{\n\
             for (var t = slice; t < count; t += slices) {{\n\
             let w = weights[t];\nlet place = j0 + i32(t);\n{slot}\
             let row = v[u32(v0 + slot * {vs}) + own];\n{adds}}}\n}}\n\
             workgroupBarrier();\n}}\n}}\n\
             if slice < slices {{\n{kept}}}\nworkgroupBarrier();\n\
             for (var d = thread; d < value_vectors * {fours}u; d += {threads}u) {{\n\
             var all = vec4<f32>();\n\
             for (var i = 0u; i < slices; i++) {{ all += partial[i * value_vectors * {fours}u + d]; }}\n\
             let value = select(all / sum, vec4<f32>(), top == -infinity());\n\
             let to = {out0} + (group * value_vectors * {fours}u + d) * {words_each}u;\n{words}}}",
            groups = param(0),
            out0 = param(1),
            heads = param(2),
            queries = param(3),
            keys = param(4),
            kvec = param(5),
            vvec = param(6),
            scale = float(7),
            ratio = param(8),
            causal = param(9),
            q0 = signed(10),
            qb = signed(11),
            qh = signed(12),
            ql = signed(13),
            k0 = signed(14),
            kb = signed(15),
            kkh = signed(16),
            ks = signed(17),
            v0 = signed(18),
            vb = signed(19),
            vh = signed(20),
            vs = signed(21),
            slots = signed(22),
            first = signed(23),
            window = signed(24),
            slot = place,
            largest = over_group_call("group_max", subgroups, "score"),
            total = over_group_call("group_sum", subgroups, "weight"),
            zeros = each(&|at| format!("var acc{at} = vec4<f32>();\n")),
            fades = each(&|at| format!("acc{at} *= fade;\n")),
            kept =
                each(&|at| format!("partial[(slice * value_vectors + own) * {fours}u + {at}u] = acc{at};\n")),
            words_each = 4 / per_word(out),
            words = store_four(out, "value", "to"),
        );
        source.main_of(threads, subgroups, &body);
        source.finish()
    }
}
