//! Products of few rows with packed rows (matrix-vector) of 4 or 8 bits, 16 bytes at a time: what decoding reads its weights by. A
//! group takes a few packed rows over the whole inner size, so that activations are read once for all of them; several
//! matrices share a grid, and the norm before, the gate or the residual sum behind a product cost no dispatch of their own.
//!
//! An affine code becomes the float `1 + code / 2^bits` by its bits alone, without a conversion; sums of activations take the ones off.
//! Codes of e2m1 become bytes, eight of a word at once, and those floats in the same way.
//!
//! Parameters: inner size, first activation and stride of rows in 16 bytes, vectors and groups of a packed row, first number that
//! is added, first weight of the norm in 16 bytes, its epsilon, rows of activations, stride of rows of what is added; by matrix: one
//! behind its last block, its columns, first word of the result, first vector, first scale, first bias, stride of rows of the result.
//!
//! Where each row picks its matrix out of a stack by number (experts), parameters behind those of the matrices are the first pick, how
//! many there are in a stack, how many rows in turn have one row of activations, and the number of the dispatch.
//!
//! A group takes one row of activations, or a few, for which packed rows are read and taken apart once. Groups of one block stand side
//! by side for all rows of activations, so that the cache has its packed rows for all of them.

use super::Packed;
use super::copy::fault;
use super::source::{Source, encoded, float, four, param, per_vector, per_word, rounded, signed};
use pteron_tensor::DType;
use pteron_tensor::quant::Mode;

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
    /// Of numbers by which rows, taken one by one, pick their matrices.
    pub picks: Option<DType>,
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
/// How many say how matrices are picked.
const PICKS: usize = 4;

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
        let spans = self.right.groups_of(chunk);
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
                let at = place as u32 * self.rows + row;
                text += &format!(
                    "let n_{at} = {lead}min(n0 + {row}u, {columns} - 1u);\nlet q{at} = w{matrix}[{first} + n_{at} * {count} + c];\n\
                     let s{at} = n_{at} * {groups} + g;\n",
                    columns = param(own + 1),
                    first = param(own + 3),
                    count = param(3),
                    groups = param(4),
                    lead = if self.picks.is_some() {
                        format!("picked * {} + ", param(own + 1))
                    } else {
                        String::new()
                    },
                );
                for span in 0..spans {
                    let of = matrix.to_string();
                    let group = |first: u32| format!("{} + s{at} + {span}u", param(first));
                    text += &format!("let scale{at}_{span} = {};\n", self.right.scale(&of, &group(own + 4)));
                    if self.right.is_biased() {
                        text +=
                            &format!("let bias{at}_{span} = {};\n", self.right.bias(&of, &group(own + 5)));
                    }
                }
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
            for span in 0..spans {
                let all: Vec<String> =
                    (0..fours / spans).map(|at| format!("x{}", span * fours / spans + at)).collect();
                text += &format!("let total{span} = dot({}, vec4<f32>(1.0));\n", all.join(" + "));
            }
            text += &if self.int8 { self.by_bytes(fours, lane) } else { self.by_floats(fours, lane) };
            text += "}\n";
        }
        text + "}\n"
    }

    /// Statements that multiply a thread's activations with what it has read of each row.
    fn by_floats(&self, fours: u32, lane: u32) -> String {
        let bits = self.right.bits;
        let spans = self.right.groups_of(fours * 4);
        let mut text = String::new();
        for row in 0..self.sums() {
            text += "{\n";
            if self.right.is_e2m1() {
                text += &halves(row);
            }
            for span in 0..spans {
                text += "{ var dots = vec4<f32>();\n";
                for at in span * fours / spans..(span + 1) * fours / spans {
                    let word = ["x", "y", "z", "w"][(at * 4 * bits / 32) as usize];
                    let numbers = match self.right.is_e2m1() {
                        true => self.of_bytes(at, word),
                        false => self.of_words(&format!("q{row}.{word}"), at * 4 * bits % 32),
                    };
                    text += &format!("dots = fma({numbers}, x{at}, dots);\n");
                }
                let all = "dot(dots, vec4<f32>(1.0))";
                let product = match self.right.mode {
                    Mode::Affine => format!(
                        "{factor}.0 * ({all} - total{span}) + bias{row}_{span} * total{span}",
                        factor = 1u32 << bits
                    ),
                    // A thirty-second of twice what codes stand for.
                    Mode::MxFp4 | Mode::NvFp4 => format!("16.0 * {all}"),
                    Mode::MxFp8 => all.to_owned(),
                };
                text += &format!(
                    "sum{sum} += scale{row}_{span} * {product}; }}\n",
                    sum = lane * self.sums() + row,
                );
            }
            text += "}\n";
        }
        text
    }

    /// Four numbers of the codes that begin at a bit of a word: of affine ones as floats from 1 to 2.
    fn of_words(&self, word: &str, first: u32) -> String {
        let bits = self.right.bits;
        let from = |code: u32| first + code * bits;
        if !self.right.is_biased() {
            let numbers = [0, 1, 2, 3].map(|code| self.right.element(&format!("{word} >> {}u", from(code))));
            return format!("vec4<f32>({})", numbers.join(", "));
        }
        as_mantissas((((1u32 << bits) - 1) << (23 - bits), 23 - bits), |code| (word.to_owned(), from(code)))
    }

    /// Four numbers of the bytes that [`halves`] has made, as parts of 32.
    fn of_bytes(&self, at: u32, word: &str) -> String {
        // Codes of a word lie in its bytes two by two: the even ones in the low halves.
        let place = |code: u32| (format!("halves{}.{word}", code % 2), (at % 2 * 2 + code / 2) * 8);
        format!("({} - vec4<f32>(1.5))", as_mantissas((31 << 18, 18), place))
    }

    /// The same with activations of 8 bits: rounded by the last bits of a float that is far larger, packed in the order in which codes
    /// come off their words, and multiplied four at a time.
    fn by_bytes(&self, fours: u32, lane: u32) -> String {
        let spans = self.right.groups_of(fours * 4);
        let totals: Vec<String> = (0..spans).map(|span| format!("total{span}")).collect();
        let mut text = "var size = vec4<f32>();\n".to_owned();
        for at in 0..fours {
            text += &format!("size = max(size, abs(x{at}));\n");
        }
        // A sum that is no number makes everything none.
        text += &format!(
            "let most = max(max(size.x, size.y), max(size.z, size.w));\n\
             let step = most * 0.007874015748031496 + ({}) * 0.0;\n\
             let turn = select(127.0 / most, 0.0, most == 0.0);\n\
             let far = vec4<f32>(12582912.0);\n",
            totals.join(" + ")
        );
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
        // By word of codes.
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
        let parts: Vec<&[(String, String)]> = parts.chunks(parts.len() / spans as usize).collect();
        for (span, parts) in parts.iter().enumerate() {
            let ones: Vec<String> =
                parts.iter().map(|(own, _)| format!("dot4I8Packed({own}, 0x01010101u)")).collect();
            text += &format!("let whole{span} = {};\n", ones.join(" + "));
        }
        for row in 0..self.sums() {
            text += "{ ";
            // What every code of a group has too much or too little, how often activations get it back, and what a unit is.
            let (lost, unit) = match (self.right.is_e2m1(), is_four) {
                (true, _) => {
                    text += &halves(row);
                    (" - 16i", "0.5 * ")
                }
                (false, true) => {
                    text += &format!(
                        "let halves0 = q{row} & vec4<u32>(0x0f0f0f0fu);\n\
                         let halves1 = (q{row} >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);\n"
                    );
                    ("", "")
                }
                // Codes of 8 bits have no sign: they lose half of their range, and get it back behind.
                (false, false) => {
                    text += &format!("let halves0 = q{row} ^ vec4<u32>(0x80808080u);\n");
                    (" + 128i", "")
                }
            };
            for (span, parts) in parts.iter().enumerate() {
                let dots: Vec<String> =
                    parts.iter().map(|(own, codes)| format!("dot4I8Packed({codes}, {own})")).collect();
                let lost = if lost.is_empty() { String::new() } else { format!("{lost} * whole{span}") };
                let added = match self.right.is_biased() {
                    true => format!(" + bias{row}_{span} * f32(whole{span})"),
                    false => String::new(),
                };
                text += &format!(
                    "let dots{span} = {}{lost};\n\
                     sum{sum} += step * (scale{row}_{span} * {unit}f32(dots{span}){added});\n",
                    dots.join(" + "),
                    sum = lane * self.sums() + row,
                );
            }
            text += "}\n";
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
            self.right.reads_scales(&mut source, &matrix.to_string());
        }
        if let Some(dtype) = self.picks {
            source.reads_indices("picks", dtype);
            source.writes_parts("faults");
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
        let own = MATRICES + EACH * self.matrices;
        if self.picks.is_some() {
            body += &format!(
                "let given = index_picks({first} + m0);\nvar picked = u32(given);\n\
                 if given < 0i || given >= {matrices} {{ {fault} picked = 0u; }}\n",
                first = param(own),
                matrices = signed(own + 1),
                fault = fault(&param(own + 3), &param(own + 1)),
            );
        }
        for lane in 0..self.lanes {
            let row = match self.picks {
                Some(_) => format!("m0 / {}", param(own + 2)),
                None => format!("min(m0 + {lane}u, {} - 1u)", param(8)),
            };
            body += &format!(
                "let x_first{lane} = {first} + {row} * {stride};\n",
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
            true => source.finish_pushed(self.params()),
            false => source.finish(),
        }
    }

    /// Bytes that a group shares.
    pub(crate) fn shared_bytes(&self) -> u32 {
        4 * self.lanes * (self.sums() + u32::from(self.norm.is_some())) * self.threads
    }

    /// How many parameters there are.
    fn params(&self) -> usize {
        (MATRICES + EACH * self.matrices) as usize + if self.picks.is_some() { PICKS } else { 0 }
    }

    /// Whether parameters are pushed, so that no thread waits for them: they are the same in every run.
    pub(super) fn is_pushed(&self) -> bool {
        self.params() <= MOST_PUSHED
    }
}

/// Statements that make bytes of a row's codes of e2m1: each 16 and twice what it stands for.
fn halves(row: u32) -> String {
    format!(
        "let halves0 = e2m1_bytes(q{row} & vec4<u32>(0x0f0f0f0fu));\n\
         let halves1 = e2m1_bytes((q{row} >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));\n"
    )
}

/// Four integers as floats from 1 to 2: each is given as a word and the bit where it begins, and goes under a mask that begins at
/// a bit of its own.
fn as_mantissas((mask, to): (u32, u32), place: impl Fn(u32) -> (String, u32)) -> String {
    let shifted = [0, 1, 2, 3].map(|code| {
        let (word, from) = place(code);
        match to.checked_sub(from) {
            Some(0) => word,
            Some(left) => format!("({word} << {left}u)"),
            None => format!("({word} >> {}u)", from - to),
        }
    });
    format!(
        "bitcast<vec4<f32>>((vec4<u32>({}) & vec4<u32>({mask}u)) | vec4<u32>({one}u))",
        shifted.join(", "),
        one = 0x3f80_0000u32
    )
}
