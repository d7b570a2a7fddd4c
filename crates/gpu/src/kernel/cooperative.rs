//! Products of many rows with packed rows of 4 or 8 bits on matrix units (cooperative matrices of 16 by 16 by 16): numbers become halves
//! on their way into shared memory, sums stay f32. A subgroup owns a part of the tile; what the next step needs is read while this
//! one is multiplied.
//!
//! At its limit it reads shared memory: a step of a large tile moves 48 KiB of fragments there for half a million multiply-adds.
//!
//! Parameters: rows, columns, inner size, first word of the result, first activation and stride of rows in 16 bytes, first word and
//! words of a packed row in what is read at once, groups of a row, first scale, first bias, tiles across; over sorted rows those of
//! [`Place`].

use super::Packed;
use super::gemm::{GEMM_STEP, Gemm};
use super::sorted::Place;
use super::source::{Source, encoded, four, param, per_vector, per_word};
use pteron_tensor::DType;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cooperative {
    /// Of the activations.
    pub left: DType,
    /// Of the matrix.
    pub right: Packed,
    /// Of the result.
    pub out: DType,
    /// Threads of a subgroup.
    pub subgroup: u32,
    /// Whether tiles are large: for products of which there are many.
    pub large: bool,
    /// Whether rows pick matrices of a stack, by a table in which they are sorted.
    pub sorted: bool,
}

/// Rows and columns of a matrix.
const SIDE: u32 = 16;
/// Vectors of four halves from one row of shared memory to the next: two more than there are, so that rows begin in other banks.
const STRIDE: u32 = GEMM_STEP as u32 / 4 + 2;

impl Cooperative {
    /// Subgroups by rows and by columns of a tile, and matrices of each by rows and by columns.
    fn shape(large: bool) -> ([u32; 2], [u32; 2]) {
        if large { ([2, 4], [4, 2]) } else { ([2, 2], [2, 2]) }
    }

    /// Rows and columns of a tile.
    pub(crate) fn tile(large: bool) -> usize {
        let ([subgroups, _], [matrices, _]) = Cooperative::shape(large);
        (subgroups * matrices * SIDE) as usize
    }

    /// Threads of a group.
    pub(crate) fn threads(large: bool, subgroup: u32) -> u32 {
        let ([down, across], _) = Cooperative::shape(large);
        down * across * subgroup
    }

    /// Bytes that a group shares.
    pub(crate) fn shared_bytes(large: bool) -> u32 {
        let ([down, across], _) = Cooperative::shape(large);
        2 * Cooperative::tile(large) as u32 * STRIDE * 8 + down * across * SIDE * SIDE * 4
    }

    /// Statements that read what a thread brings of a step from global memory.
    fn read(&self, k: &str, items: u32, place: &Place) -> String {
        let vectors = 16 / per_vector(self.left);
        let group = self.right.group;
        let mut text = String::new();
        for item in 0..items {
            text += &format!(
                "{{ let at_x = {first} + x_row{item} * {stride} + ({k} / 16u + half{item}) * {vectors}u;\n",
                first = param(4),
                stride = param(5),
            );
            for vector in 0..vectors {
                text += &format!("xs{item}_{vector} = x[at_x + {vector}u];\n");
            }
            text += &format!(
                "let n = {lead}min(n0 + place{item}, {columns} - 1u);\n\
                 codes{item} = w[{first} + n * {stride} + {k} / 16u + half{item}];\n\
                 let g = n * {groups} + ({k} + half{item} * 16u) / {group}u;\n\
                 scale{item} = {scale};\nbias{item} = {bias}; }}\n",
                lead = place.lead,
                columns = param(1),
                first = param(6),
                stride = param(7),
                groups = param(8),
                scale = self.right.scale("", &format!("{} + g", param(9))),
                bias = self.right.bias("", &format!("{} + g", param(10))),
            );
        }
        text
    }

    /// Statements that put it into shared memory.
    fn put(&self, items: u32) -> String {
        let bits = self.right.bits;
        let per = per_vector(self.left) / 4;
        let mut text = String::new();
        for item in 0..items {
            for at in 0..4 {
                let value = four(self.left, &format!("xs{item}_{}", at / per), at % per);
                let numbers: Vec<String> = (0..4)
                    .map(|code| {
                        let from = (at * 4 + code) * bits;
                        let word = ["x", "y", "z", "w"][(from / 32) as usize];
                        let code = format!("codes{item}.{word} >> {}u", from % 32);
                        self.right.number(&code, &format!("scale{item}"), &format!("bias{item}"))
                    })
                    .collect();
                // What is beyond halves is as far as they go.
                text += &format!(
                    "lefts[place{item} * {STRIDE}u + half{item} * 4u + {at}u] = \
                     vec4<f16>(clamp({value}, vec4<f32>(-65504.0), vec4<f32>(65504.0)));\n\
                     rights[place{item} * {STRIDE}u + half{item} * 4u + {at}u] = \
                     vec4<f16>(vec4<f32>({numbers}));\n",
                    numbers = numbers.join(", "),
                );
            }
        }
        text
    }

    /// Statements that write a subgroup's matrices, one by one through shared memory.
    fn written(&self, across: u32, [by_rows, by_columns]: [u32; 2], place: &Place) -> String {
        let (per, each) = (per_word(self.out), SIDE * SIDE / self.subgroup);
        let mut text = String::new();
        for i in 0..by_rows {
            for j in 0..by_columns {
                text += &format!(
                    "coopStoreT(sum{i}_{j}, &stage[subgroup * {whole}u], {SIDE}u);\nworkgroupBarrier();\n",
                    whole = SIDE * SIDE
                );
                for word in 0..each / per {
                    let parts: Vec<String> = (0..per)
                        .map(|part| {
                            let value = format!("stage[subgroup * {}u + v + {part}u]", SIDE * SIDE);
                            format!("({} << {}u)", encoded(self.out, &value), part * (32 / per))
                        })
                        .collect();
                    text += &format!(
                        "{{ let v = lane * {each}u + {first}u;\n\
                         let m = m0 + (subgroup / {across}u) * {down}u + {row}u + v / {SIDE}u;\n\
                         let n = n0 + (subgroup % {across}u) * {wide}u + {column}u + v % {SIDE}u;\n\
                         if m < rows && n < {columns} {{ out[{out} + ({to} * {columns} + n) / {per}u] = {bits}; }} }}\n",
                        first = word * per,
                        down = by_rows * SIDE,
                        row = i * SIDE,
                        wide = by_columns * SIDE,
                        column = j * SIDE,
                        columns = param(1),
                        out = param(3),
                        to = (place.result)("m"),
                        bits = parts.join(" | "),
                    );
                }
                text += "workgroupBarrier();\n";
            }
        }
        text
    }

    pub(super) fn text(&self) -> String {
        let bits = self.right.bits;
        let ([down, across], [by_rows, by_columns]) = Cooperative::shape(self.large);
        let (tile, threads) =
            (Cooperative::tile(self.large) as u32, Cooperative::threads(self.large, self.subgroup));
        let mut source = Source::with("enable f16;\nenable wgpu_cooperative_matrix;\n");
        source.writes("out");
        source.reads_vectors("x");
        if Gemm::words(bits) == 4 {
            source.reads_vectors("w")
        } else {
            source.reads_pairs("w")
        }
        self.right.reads_scales(&mut source, "");
        let place = Place::new(&mut source, self.sorted, tile, "group / across_all");
        source.push(&format!(
            "var<workgroup> lefts: array<vec4<f16>, {all}>;\nvar<workgroup> rights: array<vec4<f16>, {all}>;\n\
             var<workgroup> stage: array<f32, {staged}>;",
            all = tile * STRIDE,
            staged = down * across * SIDE * SIDE,
        ));
        // Half a step of a row of each operand is an item.
        let items = 2 * tile / threads;
        let mut body = format!(
            "let across_all = {tiles};\n{find}let m0 = down * {tile}u;\nlet n0 = group % across_all * {tile}u;\n",
            tiles = param(11),
            find = place.find,
        );
        for item in 0..items {
            body += &format!(
                "let place{item} = (thread + {from}u) / 2u;\nlet half{item} = (thread + {from}u) % 2u;\nlet x_row{item} = {x_row};\n\
                 var codes{item}: {codes};\nvar scale{item}: f32;\nvar bias{item}: f32;\n",
                from = item * threads,
                x_row = (place.left)(&format!("min(m0 + place{item}, rows - 1u)")),
                codes = if Gemm::words(bits) == 4 { "vec4<u32>" } else { "vec2<u32>" },
            );
            for vector in 0..16 / per_vector(self.left) {
                body += &format!("var xs{item}_{vector}: vec4<u32>;\n");
            }
        }
        let sums = (0..by_rows).flat_map(|i| (0..by_columns).map(move |j| (i, j)));
        for (i, j) in sums.clone() {
            body += &format!("var sum{i}_{j} = coop_mat16x16<f32, C>();\n");
        }
        let mut multiply = String::new();
        for k in 0..GEMM_STEP as u32 / SIDE {
            for i in 0..by_rows {
                multiply += &format!(
                    "let a{k}_{i} = coopLoadT<coop_mat16x16<f16, A>>(&lefts[((subgroup / {across}u) * {rows}u + {row}u) * {STRIDE}u + {at}u], {STRIDE}u);\n",
                    rows = by_rows * SIDE,
                    row = i * SIDE,
                    at = k * SIDE / 4,
                );
            }
            for j in 0..by_columns {
                multiply += &format!(
                    "let b{k}_{j} = coopLoad<coop_mat16x16<f16, B>>(&rights[((subgroup % {across}u) * {columns}u + {column}u) * {STRIDE}u + {at}u], {STRIDE}u);\n",
                    columns = by_columns * SIDE,
                    column = j * SIDE,
                    at = k * SIDE / 4,
                );
            }
            for (i, j) in sums.clone() {
                multiply += &format!("sum{i}_{j} = coopMultiplyAdd(a{k}_{i}, b{k}_{j}, sum{i}_{j});\n");
            }
        }
        body += &format!(
            "{first}for (var k0 = 0u; k0 < {inner}; k0 += {GEMM_STEP}u) {{\n{put}workgroupBarrier();\n\
             let next = k0 + {GEMM_STEP}u;\nif next < {inner} {{\n{read}}}\n{multiply}workgroupBarrier();\n}}\n",
            first = self.read("0u", items, &place),
            inner = param(2),
            put = self.put(items),
            read = self.read("next", items, &place),
        );
        body += &self.written(across, [by_rows, by_columns], &place);
        source.main_of(threads, true, &body);
        source.finish()
    }
}
