//! Softmax and norms along the last axis: a group of threads a row. Rows are read through strides and written without gaps, in
//! whole words, so that a row begins with one.
//!
//! Parameters: rows, first word of the result, features, stride of features, epsilon, first element of factors and of what is
//! added, sizes, first element and strides of the rows' places.

use super::source::{Source, THREADS, encoded, float, locate, over_threads, param, per_word, signed};
use pteron_ir::OpKind;
use pteron_tensor::DType;

pub(super) fn text(
    kind: OpKind,
    (input, out): (DType, DType),
    weight: Option<DType>,
    bias: Option<DType>,
    rank: u32,
) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", input);
    if let Some(dtype) = weight {
        source.reads("w", dtype);
    }
    if let Some(dtype) = bias {
        source.reads("b", dtype);
    }
    let count = param(2);
    source.push(&over_threads());
    source.push(&format!(
        "fn item(base: i32, f: u32) -> f32 {{ return load_a(u32(base + i32(f) * {})); }}",
        signed(3)
    ));
    let each = |start: &str, step: &str| {
        format!(
            "var part = {start};\n\
             for (var f = thread; f < {count}; f += {THREADS}u) {{ let x = item(base, f); part = {step}; }}\n"
        )
    };
    let (eps, features) = (float(4), format!("f32({count})"));
    let weight_of = |f: &str| match weight {
        Some(_) => format!(" * load_w({} + {f})", param(5)),
        None => String::new(),
    };
    let bias_of = |f: &str| match bias {
        Some(_) => format!(" + load_b({} + {f})", param(6)),
        None => String::new(),
    };
    let (before, value) = match kind {
        OpKind::Softmax => (
            // NaN makes the sum one, so that the largest need not be.
            format!(
                "{}let top = largest_of(thread, part);\n{{ {}part_sum = part; }}\nlet sum = total_of(thread, part_sum);\n",
                each("-infinity()", "max(part, x)").replace("var part", "var part_sum = 0.0;\nvar part"),
                each("0.0", "part + exp(x - top)")
            ),
            "exp(x - top) / sum".to_owned(),
        ),
        OpKind::LayerNorm => (
            format!(
                "{}let mean = total_of(thread, part) / {features};\n\
                 var squares = 0.0;\n{{ {}squares = part; }}\n\
                 let scale = 1.0 / sqrt(total_of(thread, squares) / {features} + {eps});\n",
                each("0.0", "part + x"),
                each("0.0", "part + (x - mean) * (x - mean)")
            ),
            format!("(x - mean) * scale{}{}", weight_of("f"), bias_of("f")),
        ),
        _ => (
            format!(
                "{}let scale = 1.0 / sqrt(total_of(thread, part) / {features} + {eps});\n",
                each("0.0", "part + x * x")
            ),
            format!("x * scale{}", weight_of("f")),
        ),
    };
    let (per, width) = (per_word(out), 32 / per_word(out));
    source.main(&format!(
        "if group >= {rows} {{ return; }}\n{find}let base = a_in;\n{before}\
         for (var word = thread; word * {per}u < {count}; word += {THREADS}u) {{\n\
         var bits = 0u;\n\
         for (var j = 0u; j < {per}u; j++) {{\n\
         let f = word * {per}u + j;\nlet x = item(base, f);\nlet value = {value};\n\
         bits |= {bits} << (j * {width}u);\n}}\n\
         out[{first} + group * ({count} / {per}u) + word] = bits;\n}}",
        rows = param(0),
        first = param(1),
        find = locate("group", rank, 7, &["a"]),
        bits = encoded(out, "value"),
    ));
    source.finish()
}
