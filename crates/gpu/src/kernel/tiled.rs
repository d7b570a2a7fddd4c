//! Attention of many queries over keys and values whose rows lie in whole vectors of 16 bytes: a group of 64 threads has 32 queries
//! of a head and goes over keys in blocks of 32 with a running softmax (flash attention), so that a key that is read serves 32
//! queries. Threads stand eight by eight: each makes four by four scores, then four queries by eight features of a chunk of 64.
//!
//! In shared memory (13 KiB): 32 features of queries and of keys, later 64 of values; the scores of a block, later its weights, by
//! key and quad of queries; by query what its softmax has come to.
//!
//! Parameters: groups, first word of the result, heads, queries of a head, keys, vectors of a row of keys and of values, the
//! scale, query heads a key head, whether it is causal; by queries, keys and values the first vector and strides in vectors by
//! batch, head and position; slots of a ring (none: 0), the first key's position, the window; first element and strides of a mask.

use super::source::{Lane, Source, float, four, param, per_vector, per_word, rounded, signed, store_four};
use pteron_tensor::DType;

/// Queries of a group, and keys of a block.
pub(crate) const TILED_QUERIES: usize = 32;
/// Features of a chunk of values.
const CHUNK: u32 = 64;
/// Features of the largest heads.
pub(crate) const MOST_TILED_FEATURES: usize = 128;
const THREADS: u32 = 64;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tiled {
    /// Of queries.
    pub q: DType,
    /// Of keys and values.
    pub kv: DType,
    /// Of a mask.
    pub mask: Option<DType>,
    /// Of the result.
    pub out: DType,
    /// Chunks of 64 features that values have.
    pub chunks: u32,
}

impl Tiled {
    /// Chunks of so many features.
    pub(crate) fn chunks(features: usize) -> u32 {
        features.div_ceil(CHUNK as usize) as u32
    }

    pub(super) fn text(&self) -> String {
        let Tiled { q, kv, mask, out, chunks } = *self;
        let mut source = Source::new();
        source.writes("out");
        for name in ["q", "k", "v"] {
            source.reads_vectors(name);
        }
        if let Some(dtype) = mask {
            source.reads("mask", dtype);
        }
        source.push(
            "var<workgroup> stage: array<vec4<f32>, 512>;\n\
             var<workgroup> weights: array<vec4<f32>, 256>;\n\
             var<workgroup> tops: array<f32, 32>;\nvar<workgroup> sums: array<f32, 32>;\n\
             var<workgroup> fades: array<vec4<f32>, 8>;\nvar<workgroup> parts: array<f32, 128>;",
        );
        let sums: String = each(chunks).map(|name| format!("var {name} = vec4<f32>();\n")).collect();
        let body = format!(
            "if group >= {groups} {{ return; }}\nlet tiles = ({queries} + 31u) / 32u;\n\
             let l0 = group % tiles * 32u;\nlet h = group / tiles % {heads};\nlet b = group / (tiles * {heads});\n\
             let kh = h / {ratio};\n\
             let q0 = {q0} + i32(b) * {qb} + i32(h) * {qh};\n\
             let k0 = {k0} + i32(b) * {kb} + i32(kh) * {kkh};\nlet v0 = {v0} + i32(b) * {vb} + i32(kh) * {vh};\n\
             let features = {kvec} * {per_kv}u;\nlet value_vectors = {vvec};\nlet value_features = value_vectors * {per_kv}u;\n\
             let slots = {slots};\nlet first_key = {first};\n\
             let row = thread % 32u;\nlet part = thread / 32u;\nlet quad = row / 4u;\nlet own = row % 4u;\n\
             let tq = thread / 8u;\nlet tk = thread % 8u;\n\
             let lq = l0 + tq * 4u;\n\
             let keys = i32({keys});\nvar last = keys;\nvar ends = vec4<i32>(keys);\nvar begin = 0i;\n\
             var begins = vec4<i32>();\nvar seen = keys;\n\
             if {causal} == 1u {{\nlet past = keys - i32({queries});\n\
             last = min(last, i32(l0) + 32i + past);\nseen = min(keys, i32(l0) + 1i + past);\n\
             ends = min(ends, vec4<i32>(i32(lq) + past) + vec4<i32>(1i, 2i, 3i, 4i));\n}}\n\
             if {window} > 0i {{ begin = max(0i, seen - {window}); begins = ends - vec4<i32>({window}); }}\n\
             if thread < 32u {{ tops[thread] = -infinity(); sums[thread] = 0.0; }}\n\
             workgroupBarrier();\n{sums}\
             for (var j0 = begin; j0 < last; j0 += 32i) {{\n{scores}{softmax}{values}}}\n{results}",
            groups = param(0),
            heads = param(2),
            queries = param(3),
            keys = param(4),
            kvec = param(5),
            vvec = param(6),
            per_kv = per_vector(kv),
            ratio = param(8),
            causal = param(9),
            q0 = signed(10),
            qb = signed(11),
            qh = signed(12),
            k0 = signed(14),
            kb = signed(15),
            kkh = signed(16),
            v0 = signed(18),
            vb = signed(19),
            vh = signed(20),
            slots = signed(22),
            first = signed(23),
            window = signed(24),
            scores = scores(q, kv, mask),
            softmax = SOFTMAX,
            values = values(kv, chunks),
            results = results(out, chunks),
        );
        source.main_of(THREADS, false, &body);
        source.finish()
    }
}

/// The softmax of a block goes on from that of those before: two threads a query, each with half of the keys.
const SOFTMAX: &str = "\
var most = -infinity();
for (var j = part * 16u; j < part * 16u + 16u; j++) { most = max(most, weights[j * 8u + quad][own]); }
parts[thread] = most;
workgroupBarrier();
let top = tops[row];
let best = max(top, max(parts[row], parts[row + 32u]));
var sum = 0.0;
for (var j = part * 16u; j < part * 16u + 16u; j++) {
let score = weights[j * 8u + quad][own];
let weight = select(exp(score - best), 0.0, score == -infinity());
weights[j * 8u + quad][own] = weight;
sum += weight;
}
parts[64u + thread] = sum;
workgroupBarrier();
if part == 0u {
let fade = select(exp(top - best), 0.0, top == -infinity());
fades[quad][own] = fade;
sums[row] = sums[row] * fade + parts[64u + row] + parts[96u + row];
tops[row] = best;
}
";

/// What a thread sums up: by chunk and query, four features of each half of the chunk.
fn each(chunks: u32) -> impl Iterator<Item = String> {
    (0..chunks * 8).map(|at| format!("acc{at}"))
}

/// 32 features of 32 rows are put where those of a feature lie side by side.
fn staged(name: &str, dtype: DType, first: u32) -> String {
    let per = per_vector(dtype);
    let fours: String = (0..per / 4)
        .map(|at| {
            let parts: String = (0..4)
                .map(|part| {
                    format!(
                        "stage[{first}u + (c * {per}u + {}u) * 8u + quad][own] = x{at}[{part}];\n",
                        at * 4 + part
                    )
                })
                .collect();
            format!("let x{at} = {};\n{parts}", four(dtype, "loaded", at))
        })
        .collect();
    format!(
        "for (var c = part; c < {}u; c += 2u) {{\nvar loaded = vec4<u32>();\nlet d = d0 / {per}u + c;\n\
         if d * {per}u < features {{ loaded = {name}[{name}_at + d]; }}\n{fours}}}\n",
        32 / per
    )
}

fn scores(q: DType, kv: DType, mask: Option<DType>) -> String {
    let masked: String = match mask {
        None => String::new(),
        Some(dtype) => (0..4)
            .map(|at| {
                let place = format!(
                    "u32({} + i32(b) * {} + i32(h) * {} + i32(min(lq + {at}u, {queries} - 1u)) * {} + min(place, keys - 1i) * {})",
                    signed(25),
                    signed(26),
                    signed(27),
                    signed(28),
                    signed(29),
                    queries = param(3),
                );
                match dtype {
                    DType::Bool => format!("if !load_mask({place}) {{ column[{at}] = -infinity(); }}\n"),
                    dtype => {
                        let value = Lane::of(dtype).cast(Lane::F32, &format!("load_mask({place})"));
                        format!("column[{at}] += {};\n", rounded(q, &value))
                    }
                }
            })
            .collect(),
    };
    let dots: String =
        (0..4).map(|at| format!("dots{at} = fma(vec4<f32>(x[{at}]), y, dots{at});\n")).collect();
    let zeros: String = (0..4).map(|at| format!("var dots{at} = vec4<f32>();\n")).collect();
    let columns: String = (0..4)
        .map(|at| {
            format!(
                "{{ let place = j0 + i32(tk * 4u + {at}u);\n\
                 var column = vec4<f32>(dots0[{at}], dots1[{at}], dots2[{at}], dots3[{at}]) * {scale};\n{masked}\
                 let sees = (vec4<i32>(place) < ends) & (vec4<i32>(place) >= begins);\n\
                 weights[(tk * 4u + {at}u) * 8u + tq] = select(vec4<f32>(-infinity()), column, sees); }}\n",
                scale = float(7),
            )
        })
        .collect();
    format!(
        "{zeros}\
         let q_at = u32(q0 + i32(min(l0 + row, {queries} - 1u)) * {ql});\n\
         var slot = min(j0 + i32(row), last - 1i);\nif slots > 0i {{ slot = (slot + first_key) % slots; }}\n\
         let k_at = u32(k0 + slot * {ks});\n\
         for (var d0 = 0u; d0 < features; d0 += 32u) {{\nworkgroupBarrier();\n{query}{key}workgroupBarrier();\n\
         for (var f = 0u; f < 32u; f++) {{\nlet x = stage[f * 8u + tq];\nlet y = stage[256u + f * 8u + tk];\n{dots}}}\n}}\n\
         {columns}workgroupBarrier();\n",
        queries = param(3),
        ql = signed(13),
        ks = signed(17),
        query = staged("q", q, 0),
        key = staged("k", kv, 256),
    )
}

/// What a block's values add.
fn values(kv: DType, chunks: u32) -> String {
    let per = per_vector(kv);
    let across = CHUNK / per;
    let fours: String = (0..per / 4)
        .map(|at| format!("stage[key * 16u + column * {}u + {at}u] = {};\n", per / 4, four(kv, "loaded", at)))
        .collect();
    (0..chunks)
        .map(|chunk| {
            let names: Vec<String> = each(chunks).skip(chunk as usize * 8).take(8).collect();
            let fades: String = (0..8).map(|at| format!("{} *= fade[{}];\n", names[at], at / 2)).collect();
            let adds: String = (0..8)
                .map(|at| {
                    let (name, x) = (&names[at], ["x", "y"][at % 2]);
                    format!("{name} = fma(vec4<f32>(w[{}]), {x}, {name});\n", at / 2)
                })
                .collect();
            format!(
                "{before}for (var i = thread; i < {all}u; i += {THREADS}u) {{\n\
                 let key = i / {across}u;\nlet column = i % {across}u;\nlet place = j0 + i32(key);\n\
                 var loaded = vec4<u32>();\n\
                 if place < last && {first}u + column < value_vectors {{\n\
                 var slot = place;\nif slots > 0i {{ slot = (place + first_key) % slots; }}\n\
                 loaded = v[u32(v0 + slot * {vs}) + {first}u + column];\n}}\n{fours}}}\n\
                 workgroupBarrier();\n{{ let fade = fades[tq];\n{fades}}}\n\
                 for (var j = 0u; j < 32u; j++) {{\nlet w = weights[j * 8u + tq];\n\
                 let x = stage[j * 16u + tk];\nlet y = stage[j * 16u + 8u + tk];\n{adds}}}\n",
                before = if chunk == 0 { "" } else { "workgroupBarrier();\n" },
                all = 32 * across,
                first = chunk * across,
                vs = signed(21),
            )
        })
        .collect()
}

fn results(out: DType, chunks: u32) -> String {
    let per = per_word(out);
    each(chunks)
        .enumerate()
        .map(|(at, name)| {
            let (chunk, query, half) = (at as u32 / 8, at as u32 % 8 / 2, at as u32 % 2);
            format!(
                "{{ let d = {first}u + tk * 4u;\nlet sum = sums[tq * 4u + {query}u];\n\
                 if lq + {query}u < {queries} && d < value_features {{\n\
                 let value = select({name} / sum, vec4<f32>(), sum == 0.0);\n\
                 let to = {out0} + (((b * {heads} + h) * {queries} + lq + {query}u) * value_features + d) / {per}u;\n\
                 {words}}} }}\n",
                first = chunk * CHUNK + half * 32,
                queries = param(3),
                heads = param(2),
                out0 = param(1),
                words = store_four(out, "value", "to"),
            )
        })
        .collect()
}
