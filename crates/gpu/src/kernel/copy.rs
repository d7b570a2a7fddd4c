//! Kernels that move elements without looking at them: from strides to strides, picked by index tensors, placed by indices.
//!
//! Elements that are smaller than a word go into it by two atomic steps, which change no other bits: others may write the rest
//! of the word. Whoever can moves whole words instead.

use super::source::{Source, THREADS, locate, param, signed, words};
use pteron_tensor::DType;
use std::fmt::Write;

/// Parameters: elements, sizes, and first element and strides of the target and of the source.
pub(super) fn text(size: u32, rank: u32) -> String {
    let mut source = Source::new();
    target(&mut source, size);
    source.reads_words("a");
    let body = format!(
        "let e = group * {THREADS}u + thread;\nif e < {} {{\n{}{}\n}}",
        param(0),
        locate("e", rank, 1, &["out", "a"]),
        moved(size, "out_at", "a_at"),
    );
    source.main(&body);
    source.finish()
}

fn target(source: &mut Source, size: u32) {
    if size < 4 { source.writes_parts("out") } else { source.writes("out") }
}

/// Statements that say that an index is outside its axis: the dispatch's number, the index and the size of the axis.
pub(super) fn fault(number: &str, size: &str) -> String {
    format!(
        "atomicMax(&faults[0], {number}); atomicStore(&faults[1], bitcast<u32>(given)); atomicStore(&faults[2], {size});"
    )
}

/// Statements that move one element.
fn moved(size: u32, to: &str, from: &str) -> String {
    match size {
        8 => format!("out[2u * {to}] = a[2u * {from}]; out[2u * {to} + 1u] = a[2u * {from} + 1u];"),
        4 => format!("out[{to}] = a[{from}];"),
        _ => {
            let (per, bits) = (4 / size, 8 * size);
            let mask = (1u32 << bits) - 1;
            let shift = |at: &str| format!("(({at} % {per}u) * {bits}u)");
            format!(
                "let part = (a[{from} / {per}u] >> {}) & {mask}u;\n\
                 atomicAnd(&out[{to} / {per}u], ~({mask}u << {1}));\n\
                 atomicOr(&out[{to} / {per}u], part << {1});",
                shift(from),
                shift(to),
            )
        }
    }
}

/// Parameters: elements, first word of the result, the number of the dispatch, by index tensor the size of its axis, how many
/// positions there are to begin at, the axis' stride and what is added to negative indices; then sizes, and first element and strides of what is picked from and
/// of each index tensor.
pub(super) fn pick(dtype: DType, indices: &[DType], rank: u32) -> String {
    // Moved as bits: no element is converted.
    let bits = match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    };
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", bits);
    let names: Vec<String> = (0..indices.len()).map(|number| format!("places{number}")).collect();
    for (name, dtype) in names.iter().zip(indices) {
        source.reads_indices(name, *dtype);
    }
    source.writes_parts("faults");
    let mut operands = vec!["a"];
    operands.extend(names.iter().map(String::as_str));
    let first = 3 + 4 * indices.len() as u32;
    let lane = super::source::Lane::of(bits);
    let mut element = format!("fn element(e: u32) -> {} {{\n", lane.wgsl());
    element.push_str(&locate("e", rank, first, &operands));
    element.push_str("var source_at = a_in;\n");
    for (number, name) in names.iter().enumerate() {
        let own = 3 + 4 * number as u32;
        let _ = writeln!(
            element,
            "{{ let given = index_{name}({name}_at);\nvar index = given;\n\
             if index < 0i {{ index += {behind}; }}\n\
             if index < 0i || index >= {starts} {{ {fault} return {zero}; }}\n\
             source_at += index * {stride}; }}",
            behind = signed(own + 3),
            starts = signed(own + 1),
            fault = fault(&param(2), &param(own)),
            zero = lane.literal(0),
            stride = signed(own + 2),
        );
    }
    element.push_str("return load_a(u32(source_at));\n}");
    words(&mut source, bits, &element);
    source.finish()
}

/// Parameters: elements of one row of all rows, the number of the dispatch, how many indices, their first and stride, the size of
/// the indexed axis, its strides in the target and in the rows; then sizes, and first element and strides of the target and of
/// the rows. Rows are placed in order, so that of equal indices the last stays.
pub(super) fn place(size: u32, indices: DType, rank: u32) -> String {
    let mut source = Source::new();
    target(&mut source, size);
    source.reads_words("a");
    source.reads_indices("places", indices);
    source.writes_parts("faults");
    let body = format!(
        "let e = group * {THREADS}u + thread;\n\
         if e < {elements} {{\n{place}\
         for (var n = 0u; n < {count}; n++) {{\n\
         let given = index_places(u32({first} + i32(n) * {stride}));\nvar index = given;\n\
         if index < 0i {{ index += {size_of_axis}; }}\n\
         if index < 0i || index >= {size_of_axis} {{ {fault} continue; }}\n\
         let to = u32(out_in + index * {to_stride});\n\
         let source_at = u32(a_in + i32(n) * {from_stride});\n{moved}\n}}\n}}",
        elements = param(0),
        fault = fault(&param(1), &param(5)),
        count = param(2),
        first = signed(3),
        stride = signed(4),
        size_of_axis = signed(5),
        to_stride = signed(6),
        from_stride = signed(7),
        place = locate("e", rank, 8, &["out", "a"]),
        moved = moved(size, "to", "source_at"),
    );
    source.main(&body);
    source.finish()
}
