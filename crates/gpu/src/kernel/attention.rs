//! Attention: a group of 64 threads a query, over keys in blocks of 64 with a running softmax (flash attention over one row). Keys and
//! values have strides, so that they lie in tensors or in a cache; a cache with a window is a ring of slots.
//!
//! Parameters: queries of all heads, first word of the result, heads, queries of a head, keys, features of keys and of values, the
//! scale, query heads a key head, whether it is causal; by queries, keys, values and mask the first element and four strides;
//! slots of a ring (none: 0), the first key's position, the window (none: 0).

use super::source::{Source, THREADS, encoded, float, over_threads, param, per_word, rounded, signed};
use pteron_tensor::DType;

/// The most features of a head.
pub(crate) const MOST_FEATURES: usize = 512;

/// First elements and strides.
const Q: u32 = 10;
const K: u32 = 15;
const V: u32 = 20;
const MASK: u32 = 25;
const RING: u32 = 30;

pub(super) fn text(q: DType, kv: DType, mask: Option<DType>, out: DType) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("q", q);
    source.reads("k", kv);
    source.reads("v", kv);
    if let Some(dtype) = mask {
        source.reads("mask", dtype);
    }
    source.push(&format!(
        "var<workgroup> query: array<f32, {MOST_FEATURES}>;\n\
         var<workgroup> weights: array<f32, {THREADS}>;"
    ));
    source.push(&over_threads());
    let per = per_word(out);
    let width = 32 / per;
    // Words of the result that a thread has.
    let own_words = MOST_FEATURES as u32 / (THREADS * per);
    let masked = match mask {
        None => String::new(),
        Some(dtype) => {
            let place = format!(
                "u32({} + i32(b) * {} + i32(h) * {} + i32(l) * {} + i32(j) * {})",
                signed(MASK),
                signed(MASK + 1),
                signed(MASK + 2),
                signed(MASK + 3),
                signed(MASK + 4)
            );
            match dtype {
                DType::Bool => format!("if !load_mask({place}) {{ score = -infinity(); }}\n"),
                dtype => {
                    let value = super::source::Lane::of(dtype)
                        .cast(super::source::Lane::F32, &format!("load_mask({place})"));
                    format!("score += {};\n", rounded(q, &value))
                }
            }
        }
    };
    let body = format!(
        "if group >= {groups} {{ return; }}\n\
         let l = group % {queries};\nlet h = group / {queries} % {heads};\nlet b = group / ({queries} * {heads});\n\
         let kh = h / {ratio};\n\
         let q0 = {q0} + i32(b) * {qb} + i32(h) * {qh} + i32(l) * {ql};\n\
         let k0 = {k0} + i32(b) * {kb} + i32(kh) * {kkh};\n\
         let v0 = {v0} + i32(b) * {vb} + i32(kh) * {vh};\n\
         for (var d = thread; d < {features}; d += {THREADS}u) {{ query[d] = load_q(u32(q0 + i32(d) * {qd})); }}\n\
         workgroupBarrier();\n\
         var end = i32({keys});\nvar begin = 0i;\n\
         if {causal} == 1u {{ end = min(end, i32(l) + 1i + i32({keys}) - i32({queries})); }}\n\
         if {window} > 0u {{ begin = max(0i, end - i32({window})); }}\n\
         var top = -infinity();\nvar sum = 0.0;\n\
         var acc: array<f32, {slots}>;\n\
         for (var i = 0u; i < {slots}u; i++) {{ acc[i] = 0.0; }}\n\
         for (var j0 = begin; j0 < end; j0 += {THREADS}i) {{\n\
         let j = j0 + i32(thread);\nvar score = -infinity();\n\
         if j < end {{\n\
         var slot = j;\nif {ring} > 0u {{ slot = i32((u32(j) + {first}) % {ring}); }}\n\
         var dot = 0.0;\nlet row = k0 + slot * {ks};\n\
         for (var d = 0u; d < {features}; d++) {{ dot += query[d] * load_k(u32(row + i32(d) * {kd})); }}\n\
         score = dot * {scale};\n{masked}}}\n\
         let best = max(top, largest_of(thread, score));\n\
         if best > -infinity() || is_nan(best) {{\n\
         let weight = select(exp(score - best), 0.0, score == -infinity());\n\
         weights[thread] = weight;\n\
         let fade = select(exp(top - best), 0.0, top == -infinity());\n\
         sum = sum * fade + total_of(thread, weight);\n\
         top = best;\n\
         let count = min({THREADS}i, end - j0);\n\
         for (var i = 0u; i < {slots}u; i++) {{ acc[i] *= fade; }}\n\
         for (var t = 0i; t < count; t++) {{\n\
         let w = weights[t];\n\
         if w != 0.0 {{\n\
         var slot = j0 + t;\nif {ring} > 0u {{ slot = i32((u32(slot) + {first}) % {ring}); }}\n\
         let row = v0 + slot * {vs};\n\
         for (var i = 0u; i < {own_words}u; i++) {{\n\
         for (var c = 0u; c < {per}u; c++) {{\n\
         let d = (thread + i * {THREADS}u) * {per}u + c;\n\
         if d < {values} {{ acc[i * {per}u + c] += w * load_v(u32(row + i32(d) * {vd})); }}\n\
         }} }} }} }}\n\
         workgroupBarrier();\n}}\n}}\n\
         for (var i = 0u; i < {own_words}u; i++) {{\n\
         let word = thread + i * {THREADS}u;\n\
         if word * {per}u < {values} {{\n\
         var bits = 0u;\n\
         for (var c = 0u; c < {per}u; c++) {{\n\
         let value = select(acc[i * {per}u + c] / sum, 0.0, top == -infinity());\n\
         bits |= {bits} << (c * {width}u);\n}}\n\
         out[{out0} + group * ({values} / {per}u) + word] = bits;\n}}\n}}",
        groups = param(0),
        out0 = param(1),
        heads = param(2),
        queries = param(3),
        keys = param(4),
        features = param(5),
        values = param(6),
        scale = float(7),
        ratio = param(8),
        causal = param(9),
        q0 = signed(Q),
        qb = signed(Q + 1),
        qh = signed(Q + 2),
        ql = signed(Q + 3),
        qd = signed(Q + 4),
        k0 = signed(K),
        kb = signed(K + 1),
        kkh = signed(K + 2),
        ks = signed(K + 3),
        kd = signed(K + 4),
        v0 = signed(V),
        vb = signed(V + 1),
        vh = signed(V + 2),
        vs = signed(V + 3),
        vd = signed(V + 4),
        ring = param(RING),
        first = param(RING + 1),
        window = param(RING + 2),
        slots = own_words * per,
        bits = encoded(out, "value"),
    );
    source.main(&body);
    source.finish()
}
