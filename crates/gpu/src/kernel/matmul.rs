//! Products of matrices in tiles: a group of 64 threads makes 32 by 32 results, each thread 4 by 4, over steps of 16 that lie in
//! shared memory (4 KiB). The right operand is dense, or packed rows that are dequantised on their way there.
//!
//! Parameters: rows, columns, inner size, first word of the result, alpha, beta, tiles across and down, strides of the left
//! operand by row and inner, of the right one by inner and column, of what is added by row and column, words and groups of a
//! packed row, first scale and bias, batches; where a number picks the right operand of each batch, the first of them, how many
//! matrices there are, elements (of packed ones, words) and rows of a matrix, and the number of the dispatch; then sizes of batches,
//! and first element and strides of left, right and added by batch.

use super::Right;
use super::copy::fault;
use super::packed::Rows;
use super::source::{Source, encoded, float, locate, param, per_word, signed};
use pteron_tensor::DType;

/// Rows and columns of a tile.
pub(crate) const TILE: usize = 32;
/// Inner elements of a step.
const STEP: usize = 16;
/// Where it is said how matrices are picked, or sizes of batches begin.
const PICKS: u32 = 19;
/// Parameters of picks.
const EACH_PICK: u32 = 5;

pub(super) fn text(
    left: DType,
    right: Right,
    out: DType,
    bias: Option<DType>,
    picks: Option<DType>,
    batch: u32,
) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", left);
    let mut operands = vec!["a", "b"];
    let column_first = match right {
        Right::Dense(dtype) => {
            source.reads("b", dtype);
            source.push(&format!(
                "fn right(base: i32, lead: u32, k: u32, n: u32) -> f32 {{ return load_b(u32(base + i32(k) * {} + i32(n) * {})); }}",
                signed(10),
                signed(11)
            ));
            false
        }
        Right::Packed { packed, transposed } => {
            packed.reads_all(&mut source);
            let (row, column) = if transposed { ("n", "k") } else { ("k", "n") };
            let scales_row = format!("(lead + {row})");
            let rows = Rows { words: param(14), groups: param(15), scales: param(16), biases: param(17) };
            source.push(&format!(
                "fn right(base: i32, lead: u32, k: u32, n: u32) -> f32 {{\n{}}}",
                packed.number_at((row, &scales_row), column, "u32(base)", &rows)
            ));
            transposed
        }
    };
    if let Some(dtype) = bias {
        source.reads("c", dtype);
        operands.push("c");
    }
    let picked = match picks {
        Some(dtype) => {
            source.reads_indices("picks", dtype);
            source.writes_parts("faults");
            format!(
                "let given = index_picks({first} + batch);\nvar picked = given;\n\
                 if given < 0i || given >= {matrices} {{ {fault} picked = 0i; }}\n\
                 let matrix = b_in + picked * {stride};\nlet lead = u32(picked) * {rows};\n",
                first = param(PICKS),
                matrices = signed(PICKS + 1),
                stride = signed(PICKS + 2),
                rows = param(PICKS + 3),
                fault = fault(&param(PICKS + 4), &param(PICKS + 1)),
            )
        }
        None => "let matrix = b_in;\nlet lead = 0u;\n".to_owned(),
    };
    source.push(&format!("var<workgroup> lefts: array<f32, {}>;", TILE * STEP));
    source.push(&format!("var<workgroup> rights: array<f32, {}>;", TILE * STEP));
    let (rows, columns, inner) = (param(0), param(1), param(2));
    // Threads side by side read what lies side by side.
    let (right_k, right_n) = match column_first {
        true => (format!("at_one % {STEP}u"), format!("at_one / {STEP}u")),
        false => (format!("at_one / {TILE}u"), format!("at_one % {TILE}u")),
    };
    let mut body = format!(
        "let across = group % {tn};\nlet down = group / {tn} % {tm};\nlet batch = group / ({tn} * {tm});\n\
         if batch >= {batches} {{ return; }}\n{find}{picked}\
         let m0 = down * {TILE}u;\nlet n0 = across * {TILE}u;\n\
         let tx = thread % 8u;\nlet ty = thread / 8u;\n\
         var sum0 = vec4<f32>();\nvar sum1 = vec4<f32>();\nvar sum2 = vec4<f32>();\nvar sum3 = vec4<f32>();\n\
         for (var k0 = 0u; k0 < {inner}; k0 += {STEP}u) {{\n\
         for (var i = 0u; i < {each}u; i++) {{\n\
         let at_one = thread + i * 64u;\n\
         {{ let m = m0 + at_one / {STEP}u; let k = k0 + at_one % {STEP}u;\n\
         var x = 0.0;\n\
         if m < {rows} && k < {inner} {{ x = load_a(u32(a_in + i32(m) * {lm} + i32(k) * {lk})); }}\n\
         lefts[at_one] = x; }}\n\
         {{ let kk = {right_k}; let nn = {right_n}; let k = k0 + kk; let n = n0 + nn;\n\
         var x = 0.0;\n\
         if n < {columns} && k < {inner} {{ x = right(matrix, lead, k, n); }}\n\
         rights[kk * {TILE}u + nn] = x; }}\n\
         }}\n\
         workgroupBarrier();\n\
         for (var k = 0u; k < {STEP}u; k++) {{\n\
         let r = k * {TILE}u + tx * 4u;\n\
         let y = vec4<f32>(rights[r], rights[r + 1u], rights[r + 2u], rights[r + 3u]);\n\
         let l = ty * 4u * {STEP}u + k;\n\
         sum0 += lefts[l] * y;\nsum1 += lefts[l + {STEP}u] * y;\n\
         sum2 += lefts[l + {two}u] * y;\nsum3 += lefts[l + {three}u] * y;\n\
         }}\n\
         workgroupBarrier();\n}}\n",
        tn = param(6),
        tm = param(7),
        batches = param(18),
        find = locate("batch", batch, if picks.is_some() { PICKS + EACH_PICK } else { PICKS }, &operands),
        each = TILE * STEP / 64,
        lm = signed(8),
        lk = signed(9),
        two = 2 * STEP,
        three = 3 * STEP,
    );
    let per = per_word(out);
    let width = 32 / per;
    for row in 0..4u32 {
        body.push_str(&format!("{{ let m = m0 + ty * 4u + {row}u;\nif m < {rows} {{\n"));
        for word in 0..4 / per {
            body.push_str(&format!(
                "{{ let n = n0 + tx * 4u + {}u;\nif n < {columns} {{\nvar bits = 0u;\n",
                word * per
            ));
            for part in 0..per {
                let value = match bias {
                    Some(_) => format!(
                        "{} * sum{row}[{}] + {} * load_c(u32(c_in + i32(m) * {} + i32(n + {part}u) * {}))",
                        float(4),
                        word * per + part,
                        float(5),
                        signed(12),
                        signed(13)
                    ),
                    None => format!("sum{row}[{}]", word * per + part),
                };
                body.push_str(&format!("bits |= {} << {}u;\n", encoded(out, &value), part * width));
            }
            body.push_str(&format!(
                "out[{} + ((batch * {rows} + m) * {columns} + n) / {per}u] = bits;\n}} }}\n",
                param(3)
            ));
        }
        body.push_str("} }\n");
    }
    source.main(&body);
    source.finish()
}
