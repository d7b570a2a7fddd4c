//! Running sums along an axis. A group of threads goes over a row in blocks, of which every thread has a few elements side by side;
//! where rows are short or many, each thread has a row. The result is of whole words.
//!
//! Parameters: rows, elements of a row, their strides in the result and in the operand, sizes, and first element and strides of the
//! rows' places in the result and in the operand.

use super::source::{Lane, Source, THREADS, locate, param, signed};
use pteron_tensor::DType;

/// Elements of a block that a thread has.
const EACH: u32 = 8;

pub(super) fn text(input: DType, out: DType, inclusive: bool, alone: bool, rank: u32) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", input);
    let lane = Lane::of(out);
    let (ty, zero) = (lane.wgsl(), lane.literal(0));
    let item = Lane::of(input).cast(lane, &format!("load_a(u32(base + i32(e) * {}))", signed(3)));
    source.push(&format!("fn item(base: i32, e: u32) -> {ty} {{ return {item}; }}"));
    let write = match out.size() {
        8 => {
            "let bits = u64(sum); out[2u * to] = u32(bits & 0xfffffffflu); out[2u * to + 1u] = u32(bits >> 32u);"
        }
        _ => "out[to] = bitcast<u32>(sum);",
    };
    source.push(&format!(
        "fn put(base: i32, e: u32, sum: {ty}) {{ let to = u32(base + i32(e) * {}); {write} }}",
        signed(2)
    ));
    let (rows, count) = (param(0), param(1));
    let one = |e: &str| match inclusive {
        true => format!("sum += item(a_in, {e});\nput(out_in, {e}, sum);\n"),
        // The operand may lie where the result does.
        false => format!("let x = item(a_in, {e});\nput(out_in, {e}, sum);\nsum += x;\n"),
    };
    if alone {
        source.main(&format!(
            "let row = group * {THREADS}u + thread;\nif row >= {rows} {{ return; }}\n{find}\
             var sum = {zero};\nfor (var e = 0u; e < {count}; e++) {{\n{one}}}",
            find = locate("row", rank, 4, &["out", "a"]),
            one = one("e"),
        ));
        return source.finish();
    }
    source.push(&format!("var<workgroup> sums: array<{ty}, {THREADS}>;"));
    source.main(&format!(
        "if group >= {rows} {{ return; }}\n{find}\
         var before = {zero};\n\
         for (var block = 0u; block < {count}; block += {all}u) {{\n\
         let own = block + thread * {EACH}u;\nlet end = min(own + {EACH}u, {count});\n\
         var part = {zero};\n\
         for (var e = own; e < end; e++) {{ part += item(a_in, e); }}\n\
         sums[thread] = part;\nworkgroupBarrier();\n\
         for (var step = 1u; step < {THREADS}u; step <<= 1u) {{\n\
         var other = {zero};\nif thread >= step {{ other = sums[thread - step]; }}\n\
         workgroupBarrier();\n\
         if thread >= step {{ let all = other + sums[thread]; sums[thread] = all; }}\n\
         workgroupBarrier();\n}}\n\
         var sum = before;\nif thread > 0u {{ sum += sums[thread - 1u]; }}\n\
         before += sums[{last}u];\nworkgroupBarrier();\n\
         for (var e = own; e < end; e++) {{\n{one}}}\n}}",
        find = locate("group", rank, 4, &["out", "a"]),
        all = THREADS * EACH,
        last = THREADS - 1,
        one = one("e"),
    ));
    source.finish()
}
