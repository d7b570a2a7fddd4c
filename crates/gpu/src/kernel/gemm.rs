//! Products of many rows with packed rows of 4 or 8 bits: a group of 128 threads makes 64 by 64 results, each thread 8 by 4 in
//! registers, over steps of 32 that lie in shared memory (16 KiB), dequantised on their way there.
//!
//! Parameters: rows, columns, inner size, first word of the result, first activation and stride of rows in 16 bytes, first word and
//! words of a packed row in what is read at once, groups of a row, first scale, first bias, tiles across; over sorted rows those of
//! [`Place`].

use super::Packed;
use super::sorted::Place;
use super::source::{Source, encoded, four, param, per_vector, per_word};
use pteron_tensor::DType;

/// Rows and columns of a tile.
pub(crate) const GEMM_TILE: usize = 64;
/// Inner elements of a step.
pub(crate) const GEMM_STEP: usize = 32;
const THREADS: u32 = 128;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Of the activations.
    pub left: DType,
    /// Of the matrix.
    pub right: Packed,
    /// Of the result.
    pub out: DType,
    /// Whether rows pick matrices of a stack, by a table in which they are sorted.
    pub sorted: bool,
}

impl Gemm {
    /// Words of codes that a thread reads at once: those of half a step.
    pub(crate) fn words(bits: u32) -> usize {
        GEMM_STEP / 2 * bits as usize / 32
    }

    pub(super) fn text(&self) -> String {
        let Packed { bits, group, .. } = self.right;
        let mut source = Source::new();
        source.writes("out");
        source.reads_vectors("x");
        if Gemm::words(bits) == 4 {
            source.reads_vectors("w")
        } else {
            source.reads_pairs("w")
        }
        self.right.reads_scales(&mut source, "");
        let place = Place::new(&mut source, self.sorted, GEMM_TILE as u32, "group / across_all");
        source.push(
            "var<workgroup> lefts: array<vec4<f32>, 512>;\nvar<workgroup> rights: array<vec4<f32>, 512>;",
        );
        let vectors = 16 / per_vector(self.left);
        let per_part = per_vector(self.left) / 4;
        let mut load = format!(
            "{{ let at_x = {first} + x_row * {stride} + (k0 / 16u + half) * {vectors}u;\n",
            first = param(4),
            stride = param(5),
        );
        for vector in 0..vectors {
            load += &format!("let xs{vector} = x[at_x + {vector}u];\n");
        }
        for at in 0..4 {
            load += &format!(
                "let x{at} = {};\n",
                four(self.left, &format!("xs{}", at / per_part), at % per_part)
            );
            for code in 0..4 {
                load += &format!(
                    "lefts[(half * 16u + {k}u) * 16u + place / 4u][place % 4u] = x{at}[{code}];\n",
                    k = at * 4 + code
                );
            }
        }
        load += &format!(
            "}}\n{{ let n = {lead}min(n0 + place, {columns} - 1u);\nlet codes = w[{first} + n * {stride} + k0 / 16u + half];\n\
             let g = n * {groups} + (k0 + half * 16u) / {group}u;\n\
             let scale = {scale};\nlet bias = {bias};\n",
            lead = place.lead,
            columns = param(1),
            first = param(6),
            stride = param(7),
            groups = param(8),
            scale = self.right.scale("", &format!("{} + g", param(9))),
            bias = self.right.bias("", &format!("{} + g", param(10))),
        );
        for code in 0..16u32 {
            let (word, shift) = (["x", "y", "z", "w"][(code * bits / 32) as usize], code * bits % 32);
            load += &format!(
                "rights[(half * 16u + {code}u) * 16u + place / 4u][place % 4u] = {};\n",
                self.right.number(&format!("codes.{word} >> {shift}u"), "scale", "bias")
            );
        }
        load += "}\n";
        let sums: String = (0..8).map(|row| format!("var sum{row} = vec4<f32>();\n")).collect();
        let adds: String = (0..8)
            .map(|row| {
                format!(
                    "sum{row} = fma(vec4<f32>({}[{}]), y, sum{row});\n",
                    if row < 4 { "a0" } else { "a1" },
                    row % 4
                )
            })
            .collect();
        let mut body = format!(
            "let across_all = {tiles};\nlet across = group % across_all;\n{find}\
             let m0 = down * {GEMM_TILE}u;\nlet n0 = across * {GEMM_TILE}u;\n\
             let place = thread % 64u;\nlet half = thread / 64u;\nlet x_row = {x_row};\n\
             let tx = thread % 16u;\nlet ty = thread / 16u;\n{sums}\
             for (var k0 = 0u; k0 < {inner}; k0 += {GEMM_STEP}u) {{\n{load}workgroupBarrier();\n\
             for (var k = 0u; k < {GEMM_STEP}u; k++) {{\n\
             let a0 = lefts[k * 16u + ty * 2u];\nlet a1 = lefts[k * 16u + ty * 2u + 1u];\nlet y = rights[k * 16u + tx];\n{adds}}}\n\
             workgroupBarrier();\n}}\nlet n = n0 + tx * 4u;\n",
            tiles = param(11),
            find = place.find,
            x_row = (place.left)("min(m0 + place, rows - 1u)"),
            inner = param(2),
        );
        let per = per_word(self.out);
        for row in 0..8 {
            body += &format!(
                "{{ let m = m0 + ty * 8u + {row}u;\nif m < rows {{\nlet to = {};\n",
                (place.result)("m")
            );
            for word in 0..4 / per {
                let parts: Vec<String> = (0..per)
                    .map(|part| {
                        let value = format!("sum{row}[{}]", word * per + part);
                        format!("({} << {}u)", encoded(self.out, &value), part * (32 / per))
                    })
                    .collect();
                body += &format!(
                    "if n + {0}u < {columns} {{ out[{first} + (to * {columns} + n + {0}u) / {per}u] = {bits}; }}\n",
                    word * per,
                    columns = param(1),
                    first = param(3),
                    bits = parts.join(" | "),
                );
            }
            body += "} }\n";
        }
        source.main_of(THREADS, false, &body);
        source.finish()
    }
}
