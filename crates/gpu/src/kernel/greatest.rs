//! Where the greatest of a row of floats is (greedy sampling): one group over the whole row, four vectors of 16 bytes a thread at a
//! time, so that the host reads a number and not a row.
//!
//! Parameters: vectors, the first of them, first word of the result, first word of the report that is told too.

use super::source::{Source, four, param, per_vector};
use pteron_tensor::DType;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Greatest {
    /// Of the row.
    pub dtype: DType,
    /// Threads of the group.
    pub threads: u32,
}

/// Vectors that a thread has under way.
const AT_ONCE: u32 = 4;

impl Greatest {
    pub(super) fn text(&self) -> String {
        let Greatest { dtype, threads } = *self;
        let mut source = Source::new();
        source.writes("out");
        source.reads_vectors("x");
        source.writes_parts("faults");
        source.push(&format!(
            "var<workgroup> tops: array<f32, {threads}>;\nvar<workgroup> places: array<u32, {threads}>;"
        ));
        let per = per_vector(dtype);
        let loads: String = (0..AT_ONCE)
            .map(|at| {
                format!(
                    "let v{at} = min(v + {}u, {vectors} - 1u);\nlet w{at} = x[{first} + v{at}];\n",
                    at * threads,
                    vectors = param(0),
                    first = param(1)
                )
            })
            .collect();
        let mut looks = String::new();
        for at in 0..AT_ONCE {
            for quarter in 0..per / 4 {
                looks += &format!("{{ let f = {};\n", four(dtype, &format!("w{at}"), quarter));
                for number in 0..4 {
                    // What is not a number is above all: then none is the greatest.
                    looks += &format!(
                        "{{ let s = select(f[{number}], infinity(), is_nan(f[{number}]));\n\
                         if s > top {{ top = s; place = v{at} * {per}u + {}u; }} }}\n",
                        quarter * 4 + number
                    );
                }
                looks += "}\n";
            }
        }
        let body = format!(
            "var top = -infinity();\nvar place = 0u;\n\
             for (var v = thread; v < {vectors}; v += {step}u) {{\n{loads}{looks}}}\n\
             tops[thread] = top;\nplaces[thread] = place;\nworkgroupBarrier();\n\
             for (var half = {half}u; half > 0u; half >>= 1u) {{\n\
             if thread < half {{\n\
             let x = tops[thread];\nlet y = tops[thread + half];\nlet own = places[thread];\nlet other = places[thread + half];\n\
             if y > x || (y == x && other < own) {{ tops[thread] = y; places[thread] = other; }}\n}}\n\
             workgroupBarrier();\n}}\n\
             if thread == 0u {{\n\
             let is_found = abs(tops[0]) < infinity();\n\
             let low = select(0xffffffffu, places[0], is_found);\nlet high = select(0xffffffffu, 0u, is_found);\n\
             out[{out}] = low;\nout[{out} + 1u] = high;\n\
             atomicStore(&faults[{told}], low);\natomicStore(&faults[{told} + 1u], high);\n}}",
            vectors = param(0),
            step = threads * AT_ONCE,
            half = threads / 2,
            out = param(2),
            told = param(3),
        );
        source.main_of(threads, false, &body);
        source.finish()
    }
}
