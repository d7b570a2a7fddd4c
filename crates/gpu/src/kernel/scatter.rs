//! Updates added to what lies at their indices along one axis. A thread goes over all updates of a line along that axis, in order, so
//! that equal indices add up one after the other and nobody else writes there. The result is of whole words.
//!
//! Parameters: lines, the number of the dispatch, updates of a line, the size of the axis, strides along it in the result, the updates
//! and the indices, sizes, and first element and strides of the lines' places in those three.

use super::copy::fault;
use super::source::{Lane, Source, THREADS, locate, param, signed};
use pteron_tensor::DType;

pub(super) fn text(out: DType, updates: DType, indices: DType, rank: u32) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", updates);
    source.reads_indices("places", indices);
    source.writes_parts("faults");
    let lane = Lane::of(out);
    let value = Lane::of(updates).cast(lane, "load_a(u32(a_in + i32(n) * step_of_updates))");
    let add = match out.size() {
        8 => format!(
            "let sum = {ty}(u64(out[2u * to]) | (u64(out[2u * to + 1u]) << 32u)) + value;\nlet bits = u64(sum);\n\
             out[2u * to] = u32(bits & 0xfffffffflu);\nout[2u * to + 1u] = u32(bits >> 32u);",
            ty = lane.wgsl()
        ),
        _ => format!("out[to] = bitcast<u32>(bitcast<{}>(out[to]) + value);", lane.wgsl()),
    };
    source.main(&format!(
        "let line = group * {THREADS}u + thread;\nif line >= {lines} {{ return; }}\n{find}\
         let step_of_updates = {from};\n\
         for (var n = 0u; n < {count}; n++) {{\n\
         let given = index_places(u32(places_in + i32(n) * {each}));\nvar index = given;\n\
         if index < 0i {{ index += {size}; }}\n\
         if index < 0i || index >= {size} {{ {fault} continue; }}\n\
         let to = u32(out_in + index * {along});\nlet value = {value};\n{add}\n}}",
        lines = param(0),
        count = param(2),
        size = signed(3),
        along = signed(4),
        from = signed(5),
        each = signed(6),
        fault = fault(&param(1), &param(3)),
        find = locate("line", rank, 7, &["out", "a", "places"]),
    ));
    source.finish()
}
