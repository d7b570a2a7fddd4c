//! Where the elements of rows stand in order: ascending, NaN last, equal ones in the order that they had. A group of threads a row,
//! which lies in shared memory (up to 8 KiB); an element's place is the number of those that come before it, so that rows are
//! short ones: scores of experts, of which a router takes the best.
//!
//! Parameters: rows, first word of the result, elements of a row, their stride, sizes, first element and strides of the rows'
//! places.

use super::source::{Lane, Source, THREADS, locate, param, signed};
use pteron_tensor::DType;

/// The most elements of a row.
pub(crate) const MOST_ORDERED: usize = 1024;

/// What elements are compared as, and how an `item` becomes that. Floats are compared as integers that are in the same order: a
/// device may take small ones for zeros.
pub(super) fn key(input: DType) -> (&'static str, &'static str) {
    match Lane::of(input) {
        Lane::F32 => ("i32", "float_order(item)"),
        Lane::Bool => ("u32", "select(0u, 1u, item)"),
        lane => (lane.wgsl(), "item"),
    }
}

pub(super) fn text(input: DType, rank: u32) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", input);
    let (ty, key) = key(input);
    source.push(&format!("var<workgroup> keys: array<{ty}, {MOST_ORDERED}>;"));
    source.main(&format!(
        "if group >= {rows} {{ return; }}\n{find}\
         for (var e = thread; e < {count}; e += {THREADS}u) {{\n\
         let item = load_a(u32(a_in + i32(e) * {stride}));\nkeys[e] = {key};\n}}\n\
         workgroupBarrier();\n\
         for (var e = thread; e < {count}; e += {THREADS}u) {{\n\
         let own = keys[e];\nvar place = 0u;\n\
         for (var j = 0u; j < e; j++) {{ place += select(0u, 1u, keys[j] <= own); }}\n\
         for (var j = e + 1u; j < {count}; j++) {{ place += select(0u, 1u, keys[j] < own); }}\n\
         out[{first} + group * {count} + place] = e;\n}}",
        rows = param(0),
        first = param(1),
        count = param(2),
        stride = signed(3),
        find = locate("group", rank, 4, &["a"]),
    ));
    source.finish()
}
