//! Products of few rows with packed rows (matrix-vector) of 4 or 8 bits, 16 bytes at a time: what decoding reads its weights by. A
//! group takes a few packed rows over the whole inner size, so that activations are read once for all of them; several
//! matrices share a grid, and the norm before, the gate or the residual sum behind a product cost no dispatch of their own.
//!
//! A code becomes the float `1 + code / 2^bits` by its bits alone, without a conversion; sums of activations take the ones off.
//!
//! Parameters: inner size, first activation and stride of rows in 16 bytes, vectors and groups of a packed row, first number that
//! is added, first weight of the norm in 16 bytes, its epsilon, rows of activations, stride of rows of what is added; by matrix: one
//! behind its last block, its columns, first word of the result, first vector, first scale, first bias, stride of rows of the result.
//!
//! A group takes one row of activations, or a few, for which packed rows are read and taken apart once. Groups of one block stand side
//! by side for all rows of activations, so that the cache has its packed rows for all of them.

use super::Packed;
use super::source::{Source, encoded, float, four, param, per_vector, per_word, rounded};
use pteron_tensor::DType;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gemv {
    /// Of the activations.
    pub left: DType,
    /// Of the matrices.
    pub right: Packed,
    /// Of the results.
    pub out: DType,
    /// How many matrices; those of a gate are two that are taken together.
    pub matrices: u32,
    /// Packed rows of a group.
    pub rows: u32,
    /// Rows of activations of a group.
    pub lanes: u32,
    /// Threads of a group.
    pub threads: u32,
    /// The activation of the first of two matrices that the second multiplies.
    pub gate: Option<&'static str>,
    /// Of what is added to the product.
    pub residual: Option<DType>,
    /// Whether activations are normed first (RMS): by this weight.
    pub norm: Option<DType>,
    /// Whether sums run over subgroups.
    pub subgroups: bool,
    /// Whether activations are rounded to 8 bits, each thread's own by their largest, and multiplied four at a time.
    pub int8: bool,
}

/// The most parameters that are pushed: with where parameters begin they fill what every device has room for.
const MOST_PUSHED: usize = 31;

/// Where parameters of matrices begin, and how many each has.
const MATRICES: u32 = 10;
const EACH: u32 = 7;

impl Gemv {
    /// Codes that are taken at once.
    pub(crate) fn chunk(bits: u32) -> u32 {
        128 / bits
    }

    /// Products that a group sums up for one row of activations.
    fn sums(&self) -> u32 {
        if self.gate.is_some() { 2 * self.rows } else { self.rows }
    }

    /// Statements that add what the matrices of a group's block give. All that a thread reads from memory is asked for first.
    fn block(&self, start: &str, matrices: std::ops::Range<u32>) -> String {
        let Packed { bits, group, .. } = self.right;
        let chunk = Gemv::chunk(bits);
        let fours = chunk / 4;
        let (vectors, per) = (chunk / per_vector(self.left), per_vector(self.left) / 4);
        let mut text = format!(
            "let n0 = (block - {start}) * {rows}u;\n\
             for (var c = thread; c < {count}; c += {threads}u) {{\nlet g = c * {chunk}u / {group}u;\n",
            rows = self.rows,
            count = param(3),
            threads = self.threads,
        );
        for lane in 0..self.lanes {
            text += &format!("let x_at{lane} = x_first{lane} + c * {vectors}u;\n");
            for vector in 0..vectors {
                text += &format!("let xs{lane}_{vector} = x[x_at{lane} + {vector}u];\n");
            }
        }
        for (place, matrix) in matrices.enumerate() {
            let own = MATRICES + EACH * matrix;
            for row in 0..self.rows {
                text += &format!(
                    "let n_{at} = min(n0 + {row}u, {columns} - 1u);\nlet q{at} = w{matrix}[{first} + n_{at} * {count} + c];\n\
                     let s{at} = n_{at} * {groups} + g;\n\
                     let scale{at} = load_scales{matrix}({scales} + s{at});\n\
                     let bias{at} = load_biases{matrix}({biases} + s{at});\n",
                    columns = param(own + 1),
                    first = param(own + 3),
                    count = param(3),
                    groups = param(4),
                    scales = param(own + 4),
                    biases = param(own + 5),
                    at = place as u32 * self.rows + row,
                );
            }
        }
        if let Some(dtype) = self.norm {
            let each = chunk / per_vector(dtype);
            for vector in 0..each {
                text += &format!("let ns{vector} = norm[{} + c * {each}u + {vector}u];\n", param(6));
            }
        }
        for lane in 0..self.lanes {
            text += "{\n";
            for at in 0..fours {
                let value = four(self.left, &format!("xs{lane}_{}", at / per), at % per);
                match self.norm {
                    None => text += &format!("let x{at} = {value};\n"),
                    Some(dtype) => {
                        let own = per_vector(dtype) / 4;
                        let weight = four(dtype, &format!("ns{}", at / own), at % own);
                        text += &format!(
                            "let raw{at} = {value};\nsquares{lane} += dot(raw{at}, raw{at});\n\
                             let x{at} = raw{at} * {weight};\n"
                        );
                    }
                }
            }
            let all: Vec<String> = (0..fours).map(|at| format!("x{at}")).collect();
            text += &format!("let total = dot({}, vec4<f32>(1.0));\n", all.join(" + "));
            text += &if self.int8 { self.by_bytes(fours, lane) } else { self.by_floats(fours, lane) };
            text += "}\n";
        }
        text + "}\n"
    }

    /// Statements that multiply a thread's activations with what it has read of each row.
    fn by_floats(&self, fours: u32, lane: u32) -> String {
        let bits = self.right.bits;
        let (mask, one) = ((((1u32 << bits) - 1) << (23 - bits)), 0x3f80_0000u32);
        let mut text = String::new();
        for row in 0..self.sums() {
            text += "{ var dots = vec4<f32>();\n";
            for at in 0..fours {
                let word = ["x", "y", "z", "w"][(at * 4 * bits / 32) as usize];
                let codes: Vec<String> = (0..4)
                    .map(|code| {
                        let (from, to) = ((at * 4 + code) * bits % 32, 23 - bits);
                        match to.checked_sub(from) {
                            Some(0) => format!("q{row}.{word}"),
                            Some(left) => format!("(q{row}.{word} << {left}u)"),
                            None => format!("(q{row}.{word} >> {}u)", from - to),
                        }
                    })
                    .collect();
                text += &format!(
                    "dots = fma(bitcast<vec4<f32>>((vec4<u32>({}) & vec4<u32>({mask}u)) | vec4<u32>({one}u)), x{at}, dots);\n",
                    codes.join(", ")
                );
            }
            text += &format!(
                "sum{sum} += scale{row} * {factor}.0 * (dot(dots, vec4<f32>(1.0)) - total) + bias{row} * total; }}\n",
                sum = lane * self.sums() + row,
                factor = 1u32 << bits,
            );
        }
        text
    }

    /// The same with activations of 8 bits: rounded by the last bits of a float that is far larger, packed in the order in which codes
    /// come off their words, and multiplied four at a time.
    fn by_bytes(&self, fours: u32, lane: u32) -> String {
        let mut text = "var size = vec4<f32>();\n".to_owned();
        for at in 0..fours {
            text += &format!("size = max(size, abs(x{at}));\n");
        }
        // A sum that is no number makes everything none.
        text += "let most = max(max(size.x, size.y), max(size.z, size.w));\n\
                 let step = most * 0.007874015748031496 + total * 0.0;\n\
                 let turn = select(127.0 / most, 0.0, most == 0.0);\n\
                 let far = vec4<f32>(12582912.0);\n";
        for at in 0..fours {
            text += &format!(
                "let b{at} = bitcast<vec4<u32>>(fma(x{at}, vec4<f32>(turn), far)) & vec4<u32>(255u);\n"
            );
        }
        let packed = |bytes: [String; 4]| {
            let [a, b, c, d] = bytes;
            format!("({a} | ({b} << 8u) | ({c} << 16u) | ({d} << 24u))")
        };
        let is_four = self.right.bits == 4;
        let mut parts = Vec::new();
        for word in 0..4 {
            let name = ["x", "y", "z", "w"][word];
            if is_four {
                let (one, two) = (2 * word, 2 * word + 1);
                for (parity, [first, second]) in [["x", "z"], ["y", "w"]].into_iter().enumerate() {
                    let bytes = [(one, first), (one, second), (two, first), (two, second)];
                    let number = packed(bytes.map(|(at, part)| format!("b{at}.{part}")));
                    text += &format!("let a{word}_{parity} = {number};\n");
                    parts.push((format!("a{word}_{parity}"), format!("halves{parity}.{name}")));
                }
            } else {
                let number = packed(["x", "y", "z", "w"].map(|part| format!("b{word}.{part}")));
                text += &format!("let a{word}_0 = {number};\n");
                parts.push((format!("a{word}_0"), format!("halves0.{name}")));
            }
        }
        let ones: Vec<String> =
            parts.iter().map(|(own, _)| format!("dot4I8Packed({own}, 0x01010101u)")).collect();
        text += &format!("let whole = {};\n", ones.join(" + "));
        for row in 0..self.sums() {
            text += "{ ";
            if is_four {
                text += &format!(
                    "let halves0 = q{row} & vec4<u32>(0x0f0f0f0fu);\n\
                     let halves1 = (q{row} >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);\n"
                );
            } else {
                // Codes of 8 bits have no sign: they lose half of their range, and get it back behind.
                text += &format!("let halves0 = q{row} ^ vec4<u32>(0x80808080u);\n");
            }
            let dots: Vec<String> =
                parts.iter().map(|(own, codes)| format!("dot4I8Packed({codes}, {own})")).collect();
            let lost = if is_four { "" } else { " + 128i * whole" };
            text += &format!(
                "let dots = {}{lost};\n\
                 sum{sum} += step * (scale{row} * f32(dots) + bias{row} * f32(whole)); }}\n",
                dots.join(" + "),
                sum = lane * self.sums() + row,
            );
        }
        text
    }

    /// Statements behind the sums: what a thread writes of its matrix for a row of activations.
    fn written(&self, matrix: u32, start: &str, lane: u32) -> String {
        let own = MATRICES + EACH * matrix;
        let per = per_word(self.out);
        let (width, begin) = (32 / per, lane * self.sums());
        let mut text = format!(
            "{{\nlet m = m0 + {lane}u;\nlet n = (block - {start}) * {rows}u + thread * {per}u;\n\
             if thread < {threads}u && n < {columns} && m < {all} {{\nvar bits = 0u;\n",
            rows = self.rows,
            threads = self.rows / per,
            columns = param(own + 1),
            all = param(8),
        );
        if self.norm.is_some() {
            text += &format!(
                "let turn = 1.0 / sqrt(sum_of({}u) / f32({}) + {});\n",
                self.lanes * self.sums() + lane,
                param(0),
                float(7)
            );
        }
        let turn = if self.norm.is_some() { " * turn" } else { "" };
        for part in 0..per {
            let sum = |first: u32| format!("sum_of({}u + thread * {per}u + {part}u){turn}", begin + first);
            let mut value = rounded(self.out, &sum(0));
            if let Some(activation) = self.gate {
                text += &format!(
                    "let gate{part} = {value};\nlet up{part} = {};\n",
                    rounded(self.out, &sum(self.rows))
                );
                let active = match activation {
                    "gelu" => format!("0.5 * gate{part} * (1.0 + erf_f32(gate{part} * 0.7071067811865476))"),
                    "gelu_tanh" => format!(
                        "0.5 * gate{part} * (1.0 + tanh_f32(0.7978845608028654 * (gate{part} + 0.044715 * gate{part} * gate{part} * gate{part})))"
                    ),
                    "sigmoid_product" => {
                        format!(
                            "gate{part} * {}",
                            rounded(self.out, &format!("(1.0 / (1.0 + exp(-gate{part})))"))
                        )
                    }
                    _ => format!("gate{part} / (1.0 + exp(-gate{part}))"),
                };
                value = format!("{} * up{part}", rounded(self.out, &format!("({active})")));
            }
            if self.residual.is_some() {
                value = format!("{value} + load_residual({} + m * {} + n + {part}u)", param(5), param(9));
            }
            text += &format!(
                "let value{part} = {value};\nbits |= {} << {}u;\n",
                encoded(self.out, &format!("value{part}")),
                part * width
            );
        }
        text + &format!("out[{} + (m * {} + n) / {per}u] = bits;\n}}\n}}\n", param(own + 2), param(own + 6))
    }

    pub(super) fn text(&self) -> String {
        let mut source = Source::new();
        source.writes("out");
        source.reads_vectors("x");
        if let Some(dtype) = self.residual {
            source.reads("residual", dtype);
        }
        if self.norm.is_some() {
            source.reads_vectors("norm");
        }
        for matrix in 0..self.matrices {
            source.reads_vectors(&format!("w{matrix}"));
            source.reads(&format!("scales{matrix}"), self.right.dtype);
            source.reads(&format!("biases{matrix}"), self.right.dtype);
        }
        // By sum what subgroups, or threads, have added up.
        let sums = self.lanes * (self.sums() + u32::from(self.norm.is_some()));
        source.push(&format!(
            "var<workgroup> parts: array<f32, {}>;\nvar<private> givers: u32;",
            sums * self.threads
        ));
        source.push(&format!(
            "fn sum_of(number: u32) -> f32 {{\nvar all = 0.0;\n\
             for (var i = 0u; i < givers; i++) {{ all += parts[i * {sums}u + number]; }}\nreturn all;\n}}"
        ));
        let mut body = format!(
            "let tiles = ({rows} + {more}u) / {lanes}u;\nlet m0 = group % tiles * {lanes}u;\nlet block = group / tiles;\n",
            rows = param(8),
            more = self.lanes - 1,
            lanes = self.lanes,
        );
        for lane in 0..self.lanes {
            body += &format!(
                "let x_first{lane} = {first} + min(m0 + {lane}u, {rows} - 1u) * {stride};\n",
                rows = param(8),
                first = param(1),
                stride = param(2),
            );
        }
        let mut names: Vec<String> = (0..self.lanes * self.sums()).map(|at| format!("sum{at}")).collect();
        if self.norm.is_some() {
            names.extend((0..self.lanes).map(|lane| format!("squares{lane}")));
        }
        for name in &names {
            body += &format!("var {name} = 0.0;\n");
        }
        let takes = if self.gate.is_some() { 1 } else { self.matrices };
        let each = |text: &dyn Fn(u32, &str) -> String| {
            let mut cases = String::new();
            for matrix in 0..takes {
                let start = if matrix == 0 { "0u".to_owned() } else { param(MATRICES + EACH * (matrix - 1)) };
                let own = text(matrix, &start);
                cases += &match (matrix + 1 == takes, matrix) {
                    (true, 0) => format!("{{\n{own}}}\n"),
                    (true, _) => format!(" else {{\n{own}}}\n"),
                    (false, 0) => format!("if block < {} {{\n{own}}}", param(MATRICES)),
                    (false, _) => format!(" else if block < {} {{\n{own}}}", param(MATRICES + EACH * matrix)),
                };
            }
            cases
        };
        body += &each(&|matrix, start| {
            let end = if self.gate.is_some() { self.matrices } else { matrix + 1 };
            self.block(start, matrix..end)
        });
        let put = |giver: &str| -> String {
            let stores = names.iter().enumerate();
            stores.map(|(at, name)| format!("parts[{giver} * {sums}u + {at}u] = {name};\n")).collect()
        };
        if self.subgroups {
            for name in &names {
                body += &format!("{name} = subgroupAdd({name});\n");
            }
            body += &format!(
                "givers = subgroups;\nif lane == 0u {{\n{}}}\nworkgroupBarrier();\n",
                put("subgroup")
            );
        } else {
            body += &format!(
                "givers = 1u;\n{}workgroupBarrier();\n\
                 for (var half = {}u; half > 0u; half >>= 1u) {{\nif thread < half {{\n\
                 for (var i = 0u; i < {sums}u; i++) {{ parts[thread * {sums}u + i] += parts[(thread + half) * {sums}u + i]; }}\n}}\n\
                 workgroupBarrier();\n}}\n",
                put("thread"),
                self.threads / 2
            );
        }
        body +=
            &each(&|matrix, start| (0..self.lanes).map(|lane| self.written(matrix, start, lane)).collect());
        source.main_of(self.threads, self.subgroups, &body);
        match self.is_pushed() {
            true => source.finish_pushed((MATRICES + EACH * self.matrices) as usize),
            false => source.finish(),
        }
    }

    /// Bytes that a group shares.
    pub(crate) fn shared_bytes(&self) -> u32 {
        4 * self.lanes * (self.sums() + u32::from(self.norm.is_some())) * self.threads
    }

    /// Whether parameters are pushed, so that no thread waits for them: they are the same in every run.
    pub(super) fn is_pushed(&self) -> bool {
        (MATRICES + EACH * self.matrices) as usize <= MOST_PUSHED
    }
}
