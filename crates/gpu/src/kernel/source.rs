//! WGSL text in the making: bindings in order, how elements of every dtype are read from words and put into them, and the
//! functions that a kernel names.
//!
//! Regions are seen as words of 32 bits, so that no kernel needs more than every device has: two halves or four bytes lie in
//! one, and a thread writes whole words.

use super::functions::FUNCTIONS;
use pteron_tensor::DType;
use std::fmt::Write;

/// Threads of a group.
pub(crate) const THREADS: u32 = 64;

/// Parameters begin behind the grid, which the device reads from the same place.
pub(crate) const FIRST_PARAM: u32 = 3;

/// What a kernel computes an element in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Bool,
    I32,
    U32,
    I64,
    U64,
    F32,
}

impl Lane {
    pub(crate) fn of(dtype: DType) -> Lane {
        match dtype {
            DType::Bool => Lane::Bool,
            DType::U8 | DType::U16 | DType::U32 => Lane::U32,
            DType::I8 | DType::I16 | DType::I32 => Lane::I32,
            DType::I64 => Lane::I64,
            DType::U64 => Lane::U64,
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Lane::F32,
        }
    }

    pub(crate) fn wgsl(self) -> &'static str {
        match self {
            Lane::Bool => "bool",
            Lane::I32 => "i32",
            Lane::U32 => "u32",
            Lane::I64 => "i64",
            Lane::U64 => "u64",
            Lane::F32 => "f32",
        }
    }

    /// A number of this type.
    pub(crate) fn literal(self, number: u32) -> String {
        match self {
            Lane::Bool => (number != 0).to_string(),
            Lane::I32 => format!("{number}i"),
            Lane::U32 => format!("{number}u"),
            Lane::I64 => format!("{number}li"),
            Lane::U64 => format!("{number}lu"),
            Lane::F32 => format!("{number}.0f"),
        }
    }

    /// An expression of this type as one of another: floats are rounded toward zero, bools are 0 and 1.
    pub(crate) fn cast(self, to: Lane, expression: &str) -> String {
        match (self, to) {
            _ if self == to => expression.to_owned(),
            // Not `!=`, which is false of a NaN.
            (_, Lane::Bool) => format!("!({expression} == {})", self.literal(0)),
            (Lane::Bool, _) => format!("select({}, {}, {expression})", to.literal(0), to.literal(1)),
            (Lane::F32, Lane::I32) => format!("float_to_int({expression})"),
            (Lane::F32, Lane::U32) => format!("float_to_uint({expression})"),
            (Lane::F32, Lane::I64) => format!("float_to_long({expression})"),
            (Lane::F32, Lane::U64) => format!("float_to_ulong({expression})"),
            // By way of the type of the same width: naga extends by the sign of the result's type.
            (Lane::U32, Lane::I64) => format!("i64(u64({expression}))"),
            (Lane::I32, Lane::U64) => format!("u64(i64({expression}))"),
            _ => format!("{}({expression})", to.wgsl()),
        }
    }
}

/// Elements of a dtype in a word; of 64 bits, one in two.
pub(crate) fn per_word(dtype: DType) -> u32 {
    (4 / dtype.size() as u32).max(1)
}

/// A kernel's text.
pub(crate) struct Source {
    text: String,
    bindings: u32,
    body: String,
}

impl Source {
    pub(crate) fn new() -> Source {
        Source::with("")
    }

    /// A text that begins with these words: extensions of the language.
    pub(crate) fn with(extensions: &str) -> Source {
        let text = "struct At { base: u32 }\n\
                    var<immediate> at: At;\n\
                    @group(0) @binding(0) var<storage, read> P: array<u32>;\n";
        Source { text: format!("{extensions}{text}"), bindings: 1, body: String::new() }
    }

    fn binding(&mut self, name: &str, access: &str, element: &str) {
        let number = self.bindings;
        self.bindings += 1;
        let _ = writeln!(
            self.text,
            "@group(0) @binding({number}) var<storage, {access}> {name}: array<{element}>;"
        );
    }

    /// The next binding: words that are written.
    pub(crate) fn writes(&mut self, name: &str) {
        self.binding(name, "read_write", "u32");
    }

    /// The next binding: words of which parts are written.
    pub(crate) fn writes_parts(&mut self, name: &str) {
        self.binding(name, "read_write", "atomic<u32>");
    }

    /// The next binding: words that are read.
    pub(crate) fn reads_words(&mut self, name: &str) {
        self.binding(name, "read", "u32");
    }

    /// The next binding: elements that `load_NAME` reads.
    pub(crate) fn reads(&mut self, name: &str, dtype: DType) {
        self.reads_words(name);
        let lane = Lane::of(dtype).wgsl();
        let value = read(name, dtype);
        let _ = writeln!(self.body, "fn load_{name}(i: u32) -> {lane} {{ {value} }}");
    }

    /// The next binding: indices that `index_NAME` reads; one that no axis can have is the least integer.
    pub(crate) fn reads_indices(&mut self, name: &str, dtype: DType) {
        self.reads_words(name);
        let value = match dtype {
            DType::I64 => format!(
                "let low = bitcast<i32>({name}[2u * i]); let high = bitcast<i32>({name}[2u * i + 1u]); \
                 return select(-2147483647i - 1i, low, high == (low >> 31u));"
            ),
            DType::U64 | DType::U32 => {
                let (low, high) = match dtype {
                    DType::U64 => (format!("{name}[2u * i]"), format!("{name}[2u * i + 1u]")),
                    _ => (format!("{name}[i]"), "0u".to_owned()),
                };
                format!(
                    "let low = bitcast<i32>({low}); return select(-2147483647i - 1i, low, low >= 0i && {high} == 0u);"
                )
            }
            _ => format!("return i32(load_{name}(i));"),
        };
        if !matches!(dtype, DType::I64 | DType::U64 | DType::U32) {
            let lane = Lane::of(dtype).wgsl();
            let _ = writeln!(self.body, "fn load_{name}(i: u32) -> {lane} {{ {} }}", read(name, dtype));
        }
        let _ = writeln!(self.body, "fn index_{name}(i: u32) -> i32 {{ {value} }}");
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.body.push_str(text);
        self.body.push('\n');
    }

    /// The next binding: 16 bytes at a time.
    pub(crate) fn reads_vectors(&mut self, name: &str) {
        self.binding(name, "read", "vec4<u32>");
    }

    /// The next binding: 16 bytes at a time, which are written too.
    pub(crate) fn changes_vectors(&mut self, name: &str) {
        self.binding(name, "read_write", "vec4<u32>");
    }

    /// The next binding: 8 bytes at a time.
    pub(crate) fn reads_pairs(&mut self, name: &str) {
        self.binding(name, "read", "vec2<u32>");
    }

    /// The entry point; `body` sees `group`, its number, and `thread`, the number within it.
    pub(crate) fn main(&mut self, body: &str) {
        self.main_of(THREADS, false, body);
    }

    /// The same with groups of so many threads; with `subgroups`, `body` also sees `subgroup`, `subgroups` and `lane`: the number
    /// of the subgroup in its group, how many there are, and the thread's number in its own.
    pub(crate) fn main_of(&mut self, threads: u32, subgroups: bool, body: &str) {
        let groups_x = crate::dispatch::GROUPS_X;
        let more = match subgroups {
            true => {
                ", @builtin(subgroup_id) subgroup: u32, @builtin(num_subgroups) subgroups: u32, \
                 @builtin(subgroup_invocation_id) lane: u32"
            }
            false => "",
        };
        let _ = writeln!(
            self.body,
            "@compute @workgroup_size({threads})\n\
             fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32{more}) {{\n\
             let group = id.x + id.y * {groups_x}u;\n{body}\n}}"
        );
    }

    /// The same with so many parameters pushed, in place of being read from memory.
    pub(crate) fn finish_pushed(self, count: usize) -> String {
        let mut text = self.finish();
        let fields: String = (0..count).map(|number| format!(", p{number}: u32")).collect();
        text = text.replacen("struct At { base: u32 }", &format!("struct At {{ base: u32{fields} }}"), 1);
        for number in 0..count {
            text = text.replace(&param(number as u32), &format!("at.p{number}"));
        }
        text
    }

    /// The whole text, with the functions that it names.
    pub(crate) fn finish(self) -> String {
        let Source { mut text, body, .. } = self;
        let mut named: Vec<&str> = Vec::new();
        let calls = |text: &str, name: &str| text.contains(&format!("{name}("));
        // A function may name those before it.
        for (name, function) in FUNCTIONS.iter().rev() {
            if calls(&body, name) || named.iter().any(|text| calls(text, name)) {
                named.push(function);
            }
        }
        for function in named.iter().rev() {
            text.push_str(function);
            text.push('\n');
        }
        text.push_str(&body);
        text
    }
}

/// The sum, and the largest, of a number of every thread of a workgroup.
pub(crate) fn over_threads() -> String {
    let mut text = format!("var<workgroup> parts: array<f32, {THREADS}>;\n");
    for (name, step) in [("total", "x + y"), ("largest", "max(x, y)")] {
        text += &format!(
            "fn {name}_of(thread: u32, part: f32) -> f32 {{\n\
             parts[thread] = part;\nworkgroupBarrier();\n\
             for (var half = {}u; half > 0u; half >>= 1u) {{\n\
             if thread < half {{ let x = parts[thread]; let y = parts[thread + half]; parts[thread] = {step}; }}\n\
             workgroupBarrier();\n}}\n\
             let all = parts[0];\nworkgroupBarrier();\nreturn all;\n}}\n",
            THREADS / 2,
        );
    }
    text
}

/// Four numbers of a dtype from the words that hold them: `vector` is 16 bytes, `quarter` which of their parts of four numbers.
pub(crate) fn four(dtype: DType, vector: &str, quarter: u32) -> String {
    let words = if quarter == 0 {
        [format!("{vector}.x"), format!("{vector}.y")]
    } else {
        [format!("{vector}.z"), format!("{vector}.w")]
    };
    let [a, b] = words;
    match dtype {
        DType::BF16 => format!(
            "bitcast<vec4<f32>>(vec4<u32>({a} << 16u, {a} & 0xffff0000u, {b} << 16u, {b} & 0xffff0000u))"
        ),
        DType::F16 => format!("vec4<f32>(unpack2x16float({a}), unpack2x16float({b}))"),
        _ => format!("bitcast<vec4<f32>>({vector})"),
    }
}

/// Statements that write a vector of four numbers of a float dtype into the words of `out` from `to` on.
pub(crate) fn store_four(dtype: DType, value: &str, to: &str) -> String {
    let per = per_word(dtype);
    let word = |word: u32| {
        let parts: Vec<String> = (0..per)
            .map(|part| {
                let number = format!("{value}[{}]", word * per + part);
                format!("({} << {}u)", encoded(dtype, &number), part * (32 / per))
            })
            .collect();
        format!("out[{to} + {word}u] = {};\n", parts.join(" | "))
    };
    (0..4 / per).map(word).collect()
}

/// Numbers of a dtype in 16 bytes.
pub(crate) fn per_vector(dtype: DType) -> u32 {
    16 / dtype.size() as u32
}

/// Functions over all threads of a group: the sum of a number of each of them, and the largest. They name `parts`, an array of as
/// many numbers as there are threads, and, with subgroups, take what `main_of` tells of them.
pub(crate) fn over_group(threads: u32, subgroups: bool) -> String {
    let mut text = format!("var<workgroup> parts: array<f32, {threads}>;\n");
    for (name, step, own) in
        [("group_sum", "x + y", "subgroupAdd"), ("group_max", "max(x, y)", "subgroupMax")]
    {
        text += &match subgroups {
            true => format!(
                "fn {name}(subgroup: u32, subgroups: u32, lane: u32, part: f32) -> f32 {{\n\
                 let own = {own}(part);\nif lane == 0u {{ parts[subgroup] = own; }}\nworkgroupBarrier();\n\
                 var x = parts[0];\nfor (var i = 1u; i < subgroups; i++) {{ let y = parts[i]; x = {step}; }}\n\
                 workgroupBarrier();\nreturn x;\n}}\n"
            ),
            false => format!(
                "fn {name}(thread: u32, part: f32) -> f32 {{\n\
                 parts[thread] = part;\nworkgroupBarrier();\n\
                 for (var half = {}u; half > 0u; half >>= 1u) {{\n\
                 if thread < half {{ let x = parts[thread]; let y = parts[thread + half]; parts[thread] = {step}; }}\n\
                 workgroupBarrier();\n}}\n\
                 let all = parts[0];\nworkgroupBarrier();\nreturn all;\n}}\n",
                threads / 2,
            ),
        };
    }
    text
}

/// A call of one of [`over_group`]'s functions.
pub(crate) fn over_group_call(name: &str, subgroups: bool, part: &str) -> String {
    match subgroups {
        true => format!("{name}(subgroup, subgroups, lane, {part})"),
        false => format!("{name}(thread, {part})"),
    }
}

/// Statements that give element `i`.
fn read(name: &str, dtype: DType) -> String {
    let byte = format!("(({name}[i >> 2u] >> ((i & 3u) * 8u)) & 255u)");
    let half = format!("(({name}[i >> 1u] >> ((i & 1u) * 16u)) & 65535u)");
    let wide = format!("(u64({name}[2u * i]) | (u64({name}[2u * i + 1u]) << 32u))");
    match dtype {
        DType::Bool => format!("return {byte} != 0u;"),
        DType::U8 => format!("return {byte};"),
        DType::I8 => format!("return bitcast<i32>({byte} << 24u) >> 24u;"),
        DType::U16 => format!("return {half};"),
        DType::I16 => format!("return bitcast<i32>({half} << 16u) >> 16u;"),
        DType::U32 => format!("return {name}[i];"),
        DType::I32 => format!("return bitcast<i32>({name}[i]);"),
        DType::U64 => format!("return {wide};"),
        DType::I64 => format!("return i64({wide});"),
        DType::F16 => format!("return from_f16({half});"),
        DType::BF16 => format!("return bitcast<f32>({half} << 16u);"),
        DType::F32 | DType::F64 => format!("return bitcast<f32>({name}[i]);"),
    }
}

/// A value of a dtype's lane as the bits of an element of up to 32 bits.
pub(crate) fn encoded(dtype: DType, value: &str) -> String {
    match dtype {
        DType::Bool => format!("select(0u, 1u, {value})"),
        DType::U8 => format!("({value} & 255u)"),
        DType::U16 => format!("({value} & 65535u)"),
        DType::I8 => format!("(bitcast<u32>({value}) & 255u)"),
        DType::I16 => format!("(bitcast<u32>({value}) & 65535u)"),
        DType::F16 => format!("to_f16({value})"),
        DType::BF16 => format!("to_bf16({value})"),
        DType::U32 => value.to_owned(),
        _ => format!("bitcast<u32>({value})"),
    }
}

/// A float rounded to the dtype that a computation has.
pub(crate) fn rounded(dtype: DType, value: &str) -> String {
    match dtype {
        DType::F16 => format!("from_f16(to_f16({value}))"),
        DType::BF16 => format!("bitcast<f32>(to_bf16({value}) << 16u)"),
        _ => value.to_owned(),
    }
}

/// The parameter of a number.
pub(crate) fn param(number: u32) -> String {
    format!("P[at.base + {}u]", number + FIRST_PARAM)
}

/// The same, signed.
pub(crate) fn signed(number: u32) -> String {
    format!("bitcast<i32>({})", param(number))
}

/// The same, a float.
pub(crate) fn float(number: u32) -> String {
    format!("bitcast<f32>({})", param(number))
}

/// Statements that find where element `index` of a tensor of `rank` sizes lies in each operand. Parameters from `first` on: the
/// sizes, then by operand its first element and its strides. An operand's place is called `NAME_at`.
pub(crate) fn locate(index: &str, rank: u32, first: u32, operands: &[&str]) -> String {
    let mut text = String::new();
    let base = |operand: u32| first + rank + operand * (rank + 1);
    for (number, name) in operands.iter().enumerate() {
        let _ = writeln!(text, "var {name}_in = {};", signed(base(number as u32)));
    }
    if rank > 0 {
        let _ = writeln!(text, "{{ var left = {index};");
        for axis in (0..rank).rev() {
            let last = axis == 0;
            if last {
                text.push_str("let step = i32(left);\n");
            } else {
                let size = param(first + axis);
                let _ = writeln!(text, "{{ let next = left / {size}; let step = i32(left - next * {size});");
            }
            for (number, name) in operands.iter().enumerate() {
                let _ = writeln!(text, "{name}_in += step * {};", signed(base(number as u32) + 1 + axis));
            }
            if !last {
                text.push_str("left = next; }\n");
            }
        }
        text.push_str("}\n");
    }
    for name in operands {
        let _ = writeln!(text, "let {name}_at = u32({name}_in);");
    }
    text
}

/// A kernel in which each thread makes one word of a dtype from its elements: `element` is the text of a function from an
/// element's number to its value. Parameters: how many elements, and the first word of the result.
pub(crate) fn words(source: &mut Source, dtype: DType, element: &str) {
    source.push(element);
    let count = per_word(dtype);
    let (elements, first) = (param(0), param(1));
    let body = if dtype.size() == 8 {
        format!(
            "let word = group * {THREADS}u + thread;\n\
             if word < {elements} {{\n\
             let bits = u64(element(word));\n\
             out[{first} + 2u * word] = u32(bits & 0xfffffffflu);\n\
             out[{first} + 2u * word + 1u] = u32(bits >> 32u);\n}}"
        )
    } else if count == 1 {
        let bits = encoded(dtype, "element(word)");
        format!(
            "let word = group * {THREADS}u + thread;\n\
             if word < {elements} {{ out[{first} + word] = {bits}; }}"
        )
    } else {
        let (bits, width) = (encoded(dtype, "element(e)"), 32 / count);
        format!(
            "let word = group * {THREADS}u + thread;\n\
             if word * {count}u < {elements} {{\n\
             var bits = 0u;\n\
             for (var j = 0u; j < {count}u; j++) {{\n\
             let e = word * {count}u + j;\n\
             if e < {elements} {{ bits |= {bits} << (j * {width}u); }}\n}}\n\
             out[{first} + word] = bits;\n}}"
        )
    };
    source.main(&body);
}
