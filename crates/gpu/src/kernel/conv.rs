//! Convolutions over one to three axes, channels last, plain and transposed: for every position of the result, the elements of the
//! operand that lie under the kernel of weights are collected, and each filter is a sum of products with them. Of many filters
//! that is a product of matrices of which the left one is never written (implicit GEMM): a group makes a square tile of it, over
//! steps of 16 that lie in shared memory; of few filters, as of depthwise ones, each thread makes a word of the result by itself.
//!
//! Parameters: rows (positions of all batches) or, without tiles, elements of the result, its first word, filters of a group,
//! channels of a group, taps, groups, positions, tiles across and down, the operand's first element and its strides by batch and
//! channel, the first weight; then by axis its size in the operand, in the weights and in the result, what one position, the
//! border and one tap move by, and its stride in the operand.

use super::source::{Source, encoded, param, per_word, signed, words};
use pteron_tensor::DType;

/// Inner elements of a step.
const STEP: u32 = 16;
/// Inner elements that a thread brings in a step.
const EACH: u32 = 8;
/// Where it is said how axes lie.
const AXES: u32 = 13;
/// Parameters of an axis.
const EACH_AXIS: u32 = 7;

/// What a kernel is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Of the operand.
    pub input: DType,
    /// Of the weights.
    pub weight: DType,
    /// Of the result.
    pub out: DType,
    /// Axes that the weights move along.
    pub axes: u32,
    /// Whether weights are laid over the result, not over the operand.
    pub transposed: bool,
    /// Rows and columns of a tile, 32 or 64; `None` where threads compute by themselves.
    pub tile: Option<u32>,
}

impl Conv {
    /// Threads of a group that makes a tile: each has four columns of an eighth of its rows.
    pub(crate) fn threads(tile: u32) -> u32 {
        2 * tile
    }

    pub(super) fn text(&self) -> String {
        let mut source = Source::new();
        source.writes("out");
        source.reads("a", self.input);
        source.reads("b", self.weight);
        source.push(&self.places());
        match self.tile {
            Some(tile) => self.tiles(&mut source, tile),
            None => self.one_by_one(&mut source),
        }
        source.finish()
    }

    /// `coordinates_of` a position, and `under`: how far the element under a tap is from the first of its image, and 0 where there
    /// is none.
    fn places(&self) -> String {
        let axes = self.axes;
        let of = |axis: u32, number: u32| param(AXES + axis * EACH_AXIS + number);
        let mut text = String::new();
        for axis in 0..axes {
            let (size, step, border, tap) = (of(axis, 0), of(axis, 3), of(axis, 4), of(axis, 5));
            let stride = signed(AXES + axis * EACH_AXIS + 6);
            let meets = match self.transposed {
                // What is before the border wraps to more than any size.
                false => {
                    format!("let spot = o * {step} + t * {tap} - {border};\nlet meets = spot < {size};\n")
                }
                true => format!(
                    "let all = o + {border};\nlet spot = (all - t * {tap}) / {step};\n\
                     let meets = t * {tap} <= all && spot * {step} == all - t * {tap} && spot < {size};\n"
                ),
            };
            text += &format!(
                "fn along{axis}(o: u32, t: u32) -> vec2<i32> {{\n{meets}\
                 return select(vec2<i32>(0i, 0i), vec2<i32>(i32(spot) * {stride}, 1i), meets);\n}}\n"
            );
        }
        text +=
            "fn coordinates_of(position: u32) -> vec3<u32> {\nvar left = position;\nvar o = vec3<u32>();\n";
        for axis in (0..axes).rev() {
            let size = of(axis, 2);
            text += &format!("o[{axis}] = left % {size}; left /= {size};\n");
        }
        text += "return o;\n}\nfn under(o: vec3<u32>, tap: u32) -> vec2<i32> {\nvar left = tap;\nvar found = vec2<i32>(0i, 1i);\n";
        for axis in (0..axes).rev() {
            let size = of(axis, 1);
            let own = match axis {
                0 => "left".to_owned(),
                _ => format!("left % {size}"),
            };
            text += &format!(
                "{{ let one = along{axis}(o[{axis}], {own}); found = vec2<i32>(found.x + one.x, found.y * one.y); left /= {size}; }}\n"
            );
        }
        text + "return found;\n}"
    }

    fn one_by_one(&self, source: &mut Source) {
        let element = format!(
            "fn element(e: u32) -> f32 {{\n\
             let all = {filters} * {groups};\nlet own = e % all;\nlet row = e / all;\n\
             let o = coordinates_of(row % {positions});\n\
             let image = {first} + i32(row / {positions}) * {batch} + i32(own / {filters} * {depth}) * {channel};\n\
             var weight = {weights} + own * {taps} * {depth};\nvar sum = 0.0;\n\
             for (var tap = 0u; tap < {taps}; tap++) {{\n\
             let found = under(o, tap);\n\
             if found.y != 0i {{\n\
             for (var c = 0u; c < {depth}; c++) {{\n\
             sum += load_a(u32(image + found.x + i32(c) * {channel})) * load_b(weight + c);\n}}\n}}\n\
             weight += {depth};\n}}\n\
             return sum;\n}}",
            filters = param(2),
            depth = param(3),
            taps = param(4),
            groups = param(5),
            positions = param(6),
            first = signed(9),
            batch = signed(10),
            channel = signed(11),
            weights = param(12),
        );
        words(source, self.out, &element);
    }

    fn tiles(&self, source: &mut Source, tile: u32) {
        let (across, each) = (tile / 4, tile / 8);
        source.push(&format!("var<workgroup> lefts: array<f32, {}>;", tile * STEP));
        source.push(&format!("var<workgroup> rights: array<f32, {}>;", tile * STEP));
        let (rows, filters, depth, taps, groups) = (param(0), param(2), param(3), param(4), param(5));
        let mut body = format!(
            "let across = group % {tn};\nlet down = group / {tn} % {tm};\nlet part = group / ({tn} * {tm});\n\
             if part >= {groups} {{ return; }}\n\
             let m0 = down * {tile}u;\nlet n0 = across * {tile}u;\nlet inner = {taps} * {depth};\n\
             let own = thread / 2u;\nlet half = (thread % 2u) * {EACH}u;\n\
             let m = m0 + own;\nlet n = n0 + own;\nlet is_row = m < {rows};\nlet is_filter = n < {filters};\n\
             let o = coordinates_of(m % {positions});\n\
             let image = {first} + i32(m / {positions}) * {batch} + i32(part * {depth}) * {channel};\n\
             let weight = {weights} + (part * {filters} + n) * inner;\n\
             let tx = thread % {across}u;\nlet ty = thread / {across}u;\n",
            tn = param(7),
            tm = param(8),
            positions = param(6),
            first = signed(9),
            batch = signed(10),
            channel = signed(11),
            weights = param(12),
        );
        for row in 0..each {
            body += &format!("var sum{row} = vec4<f32>();\n");
        }
        body += &format!(
            "for (var k0 = 0u; k0 < inner; k0 += {STEP}u) {{\n\
             var k = k0 + half;\nvar tap = k / {depth};\nvar c = k - tap * {depth};\nvar found = under(o, tap);\n\
             for (var i = 0u; i < {EACH}u; i++) {{\n\
             var x = 0.0;\nvar w = 0.0;\n\
             if k < inner {{\n\
             if is_row && found.y != 0i {{ x = load_a(u32(image + found.x + i32(c) * {channel})); }}\n\
             if is_filter {{ w = load_b(weight + k); }}\n}}\n\
             let to = (half + i) * {tile}u + own;\nlefts[to] = x;\nrights[to] = w;\n\
             k++;\nc++;\nif c == {depth} {{ c = 0u; tap++; found = under(o, tap); }}\n}}\n\
             workgroupBarrier();\n\
             for (var k = 0u; k < {STEP}u; k++) {{\n\
             let r = k * {tile}u + tx * 4u;\n\
             let y = vec4<f32>(rights[r], rights[r + 1u], rights[r + 2u], rights[r + 3u]);\n\
             let l = k * {tile}u + ty * {each}u;\n",
            channel = signed(11),
        );
        for row in 0..each {
            body += &format!("sum{row} += lefts[l + {row}u] * y;\n");
        }
        body += "}\nworkgroupBarrier();\n}\n";
        let (per, width) = (per_word(self.out), 32 / per_word(self.out));
        for row in 0..each {
            body += &format!("{{ let m = m0 + ty * {each}u + {row}u;\nif m < {rows} {{\n");
            for word in 0..4 / per {
                let parts: Vec<String> = (0..per)
                    .map(|part| {
                        let bits = encoded(self.out, &format!("sum{row}[{}]", word * per + part));
                        format!("({bits} << {}u)", part * width)
                    })
                    .collect();
                body += &format!(
                    "{{ let n = n0 + tx * 4u + {}u;\nif n < {filters} {{\n\
                     out[{} + ((m * {groups} + part) * {filters} + n) / {per}u] = {};\n}} }}\n",
                    word * per,
                    param(1),
                    parts.join(" | "),
                );
            }
            body += "} }\n";
        }
        source.main_of(Conv::threads(tile), false, &body);
    }
}
