//! Products of few rows with packed rows (matrix-vector), and packed rows as numbers. A group of 64 threads takes four packed rows
//! at once, so that each activation is read once for all of them; scales multiply once a word.
//!
//! Parameters of products: rows, columns, inner size, first word of the result, first activation, stride of rows, words and
//! groups of a packed row, first word, scale and bias, blocks of columns.

use super::Packed;
use super::copy::fault;
use super::packed::Rows;
use super::source::{Source, THREADS, encoded, param, per_word, signed, words};
use pteron_tensor::DType;

/// Packed rows of a group.
pub(crate) const ROWS: u32 = 4;

pub(super) fn text(left: DType, right: Packed, out: DType, subgroups: bool) -> String {
    let Packed { bits, group, .. } = right;
    let mut source = Source::new();
    source.writes("out");
    source.reads("x", left);
    right.reads_all(&mut source);
    source.push(&format!("var<workgroup> parts: array<vec4<f32>, {THREADS}>;"));
    // Codes that are taken at once: those of a word, or of as many words as hold whole codes; and those of one group of them.
    let (chunk, chunk_words) = if 32 % bits == 0 { (32 / bits, 1) } else { (32, bits) };
    let spans = right.groups_of(chunk);
    let each = chunk / spans;
    let mut body = format!(
        "let m = group / {blocks};\nlet n0 = group % {blocks} * {ROWS}u;\n\
         if m >= {rows} {{ return; }}\n\
         var sum = vec4<f32>();\n\
         for (var c = thread; c < {words} / {chunk_words}u; c += {THREADS}u) {{\n\
         let x0 = {first} + m * {stride} + c * {chunk}u;\n",
        blocks = param(11),
        rows = param(0),
        words = param(6),
        first = param(4),
        stride = param(5),
    );
    for code in 0..chunk {
        body.push_str(&format!("let v{code} = load_x(x0 + {code}u);\n"));
    }
    if right.is_biased() {
        for span in 0..spans {
            let all: Vec<String> = (span * each..(span + 1) * each).map(|code| format!("v{code}")).collect();
            body.push_str(&format!("let total{span} = {};\n", all.join(" + ")));
        }
    }
    body.push_str(&format!("let g = c * {chunk}u / {group}u;\n"));
    for row in 0..ROWS {
        body.push_str(&format!(
            "{{ let n = min(n0 + {row}u, {columns} - 1u);\nlet at_word = {first} + n * {words} + c * {chunk_words}u;\n\
             let s = n * {groups} + g;\n",
            columns = param(1),
            first = param(8),
            words = param(6),
            groups = param(7),
        ));
        for word in 0..chunk_words {
            body.push_str(&format!("let w{word} = w[at_word + {word}u];\n"));
        }
        for span in 0..spans {
            body.push_str("{ var dot = 0.0;\n");
            for code in span * each..(span + 1) * each {
                let (word, shift) = (code * bits / 32, code * bits % 32);
                let value = if shift + bits <= 32 {
                    format!("w{word} >> {shift}u")
                } else {
                    format!("(w{word} >> {shift}u) | (w{} << {}u)", word + 1, 32 - shift)
                };
                body.push_str(&format!("dot += {} * v{code};\n", right.element(&value)));
            }
            let scale = right.scale("", &format!("{} + s + {span}u", param(9)));
            body.push_str(&format!("sum[{row}] += dot * {scale}"));
            if right.is_biased() {
                let bias = right.bias("", &format!("{} + s + {span}u", param(10)));
                body.push_str(&format!(" + total{span} * {bias}"));
            }
            body.push_str("; }\n");
        }
        body.push_str("}\n");
    }
    body.push_str("}\n");
    if subgroups {
        // How many threads run in step is the device's affair: what each of those sums to lies where its first one is.
        source.push("var<workgroup> firsts: array<u32, 64>;");
        body.push_str(&format!(
            "let own = subgroupAdd(sum);\nlet first = subgroupMin(thread);\n\
             parts[thread] = select(vec4<f32>(), own, thread == first);\n\
             workgroupBarrier();\n\
             if thread == 0u {{ var all = vec4<f32>(); for (var i = 0u; i < {THREADS}u; i++) {{ all += parts[i]; }} parts[0] = all; }}\n\
             workgroupBarrier();\n"
        ));
    } else {
        body.push_str(&format!(
            "parts[thread] = sum;\nworkgroupBarrier();\n\
             for (var half = {}u; half > 0u; half >>= 1u) {{\n\
             if thread < half {{ parts[thread] += parts[thread + half]; }}\nworkgroupBarrier();\n}}\n",
            THREADS / 2
        ));
    }
    let per = per_word(out);
    let width = 32 / per;
    body.push_str(&format!(
        "let n = n0 + thread * {per}u;\nif thread < {}u && n < {columns} {{\nvar bits = 0u;\n",
        ROWS / per,
        columns = param(1)
    ));
    for part in 0..per {
        let value = encoded(out, &format!("parts[0][thread * {per}u + {part}u]"));
        body.push_str(&format!("bits |= {value} << {}u;\n", part * width));
    }
    body.push_str(&format!("out[{} + (m * {} + n) / {per}u] = bits;\n}}", param(3), param(1)));
    source.main(&body);
    source.finish()
}

/// Parameters: elements, first word of the result, elements, words and groups of a row, first word, scale and bias.
pub(super) fn dequantize(packed: Packed, out: DType) -> String {
    let mut source = Source::new();
    source.writes("out");
    packed.reads_all(&mut source);
    let rows = Rows { words: param(3), groups: param(4), scales: param(6), biases: param(7) };
    let element = format!(
        "fn element(e: u32) -> f32 {{\nlet row = e / {0};\nlet column = e % {0};\n{1}}}",
        param(2),
        packed.number_at(("row", "row"), "column", &param(5), &rows)
    );
    words(&mut source, out, &element);
    source.finish()
}

/// Packed rows that indices pick, as numbers. Parameters: elements, first word of the result, the number of the dispatch, elements,
/// words and groups of a row, first word, scale and bias, first index, rows that there are.
pub(super) fn embed(packed: Packed, indices: DType, out: DType) -> String {
    let mut source = Source::new();
    source.writes("out");
    packed.reads_all(&mut source);
    source.reads_indices("places", indices);
    source.writes_parts("faults");
    let rows = Rows { words: param(4), groups: param(5), scales: param(7), biases: param(8) };
    let element = format!(
        "fn element(e: u32) -> f32 {{\nlet column = e % {columns};\nlet given = index_places({first} + e / {columns});\n\
         var index = given;\nif index < 0i {{ index += {size}; }}\n\
         if index < 0i || index >= {size} {{ {fault} return 0.0; }}\nlet row = u32(index);\n{number}}}",
        columns = param(3),
        first = param(9),
        size = signed(10),
        fault = fault(&param(2), &param(10)),
        number = packed.number_at(("row", "row"), "column", &param(6), &rows)
    );
    words(&mut source, out, &element);
    source.finish()
}
