//! Orders of rows that are longer than shared memory holds: a bitonic network over the rows' indices, padded to a power of two; equal
//! elements stand in the order of their indices. Steps within a block of 1,024 run together in shared memory (8 to 12 KiB), others
//! are a dispatch each.
//!
//! Parameters: rows, first word of the indices, elements of a row, their stride, indices of a row, of the first and of the last
//! merge how many indices lie in it, the distance of the indices that are compared, sizes, first element and strides of the rows'
//! places.

use super::order::{MOST_ORDERED, key};
use super::source::{Source, THREADS, locate, param, signed};
use pteron_tensor::DType;

/// Which steps a kernel makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Merge {
    /// All that a block needs, from indices in their own order on.
    First,
    /// Those within a block.
    Within,
    /// One whose indices lie farther apart.
    Across,
}

pub(super) fn text(input: DType, merge: Merge, rank: u32) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", input);
    let (ty, key) = key(input);
    let (count, padded, first) = (param(2), param(4), param(1));
    source.push(&format!(
        "fn key(base: i32, index: u32) -> {ty} {{\n\
         let item = load_a(u32(base + i32(min(index, {count} - 1u)) * {}));\nreturn {key};\n}}\n\
         fn is_after(x: {ty}, i: u32, y: {ty}, j: u32) -> bool {{\n\
         if (i >= {count}) != (j >= {count}) {{ return i >= {count}; }}\n\
         return x > y || (x == y && i > j);\n}}",
        signed(3)
    ));
    let find = |row: &str| locate(row, rank, 8, &["a"]);
    if merge == Merge::Across {
        source.main(&format!(
            "let e = group * {THREADS}u + thread;\nlet pairs = {padded} / 2u;\nlet row = e / pairs;\n\
             if row >= {rows} {{ return; }}\n{find}\
             let pair = e - row * pairs;\nlet apart = {apart};\n\
             let place = (pair / apart) * 2u * apart + pair % apart;\n\
             let to = {first} + row * {padded} + place;\n\
             let i = out[to];\nlet j = out[to + apart];\n\
             if is_after(key(a_in, i), i, key(a_in, j), j) == ((place & {size}) == 0u) {{\n\
             out[to] = j;\nout[to + apart] = i;\n}}",
            rows = param(0),
            apart = param(7),
            size = param(5),
            find = find("row"),
        ));
        return source.finish();
    }
    let block = MOST_ORDERED;
    source.push(&format!("var<workgroup> keys: array<{ty}, {block}>;"));
    source.push(&format!("var<workgroup> indices: array<u32, {block}>;"));
    let index = match merge {
        Merge::First => "begin + e".to_owned(),
        _ => "out[to + e]".to_owned(),
    };
    source.main(&format!(
        "let blocks = {padded} / {block}u;\nlet row = group / blocks;\nif row >= {rows} {{ return; }}\n{find}\
         let begin = (group - row * blocks) * {block}u;\nlet to = {first} + row * {padded} + begin;\n\
         for (var e = thread; e < {block}u; e += {THREADS}u) {{\n\
         let index = {index};\nindices[e] = index;\nkeys[e] = key(a_in, index);\n}}\n\
         workgroupBarrier();\n\
         for (var size = {from}; size <= {to}; size <<= 1u) {{\n\
         for (var apart = min(size, {block}u) / 2u; apart > 0u; apart >>= 1u) {{\n\
         for (var pair = thread; pair < {half}u; pair += {THREADS}u) {{\n\
         let e = (pair / apart) * 2u * apart + pair % apart;\nlet f = e + apart;\n\
         let x = keys[e];\nlet y = keys[f];\nlet i = indices[e];\nlet j = indices[f];\n\
         if is_after(x, i, y, j) == (((begin + e) & size) == 0u) {{\n\
         keys[e] = y;\nkeys[f] = x;\nindices[e] = j;\nindices[f] = i;\n}}\n}}\n\
         workgroupBarrier();\n}}\n}}\n\
         for (var e = thread; e < {block}u; e += {THREADS}u) {{ out[to + e] = indices[e]; }}",
        rows = param(0),
        from = param(5),
        to = param(6),
        half = block / 2,
        find = find("row"),
    ));
    source.finish()
}
