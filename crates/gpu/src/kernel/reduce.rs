//! Folding axes: a group of threads an element of the result, or as many elements as a word has. Threads take elements in turn
//! and meet in a tree.
//!
//! Parameters: elements of the result, its first word, elements that are folded, what variances divide by, sizes and strides of
//! the axes that stay behind the first element, sizes and strides of those that are folded.

use super::source::{Lane, Source, THREADS, encoded, float, locate, param, per_word};
use pteron_ir::OpKind;
use pteron_tensor::DType;

pub(super) fn text(kind: OpKind, input: DType, out: DType, kept: u32, folded: u32) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads("a", input);
    let is_choice = matches!(kind, OpKind::Argmax | OpKind::Argmin);
    // What is folded in: choices compare what they were given, everything else is of the result's type.
    let lane = match kind {
        OpKind::Any | OpKind::All => Lane::Bool,
        _ if is_choice => Lane::of(input),
        _ => Lane::of(out),
    };
    let ty = lane.wgsl();
    // Behind the sizes of the kept axes are the first element and their strides.
    let inner = 4 + kept + 1 + kept;
    let load = Lane::of(input).cast(lane, "load_a(u32(a_in))");
    source.push(&format!(
        "fn item(base: i32, e: u32) -> {ty} {{\n{}return {load};\n}}",
        locate_from(folded, inner)
    ));
    source.push(&format!("var<workgroup> shared_values: array<{}, {THREADS}>;", stored(lane)));
    if is_choice {
        source.push(&format!("var<workgroup> shared_places: array<u32, {THREADS}>;"));
    }
    let count = param(2);
    let start = start(kind, lane);
    if is_choice {
        let better = better(kind, lane);
        source.push(&format!("fn better(x: {ty}, y: {ty}) -> bool {{ return {better}; }}"));
    } else {
        source.push(&format!("fn fold(x: {ty}, y: {ty}) -> {ty} {{ return {}; }}", step(kind, lane)));
    }
    let mut text = format!("fn folded(thread: u32, base: i32, mean: f32, top: f32) -> {ty} {{\n");
    if is_choice {
        text.push_str(&format!(
            "var best = item(base, 0u);\nvar place = 0u;\n\
             for (var e = thread; e < {count}; e += {THREADS}u) {{\n\
             let x = item(base, e);\n\
             if better(x, best) || (e == 0u) {{ best = x; place = e; }}\n}}\n\
             shared_values[thread] = {};\nshared_places[thread] = place;\nworkgroupBarrier();\n\
             for (var half = {}u; half > 0u; half >>= 1u) {{\n\
             if thread < half {{\n\
             let x = {};\nlet y = {};\n\
             let other = shared_places[thread + half];\nlet own = shared_places[thread];\n\
             if better(x, y) || (!better(y, x) && other < own) {{\n\
             shared_values[thread] = {};\nshared_places[thread] = other;\n}}\n}}\n\
             workgroupBarrier();\n}}\n\
             return best;\n}}",
            store(lane, "best"),
            THREADS / 2,
            restore(lane, "shared_values[thread + half]"),
            restore(lane, "shared_values[thread]"),
            store(lane, "x"),
        ));
    } else {
        text.push_str(&format!(
            "var sum = {start};\n\
             for (var e = thread; e < {count}; e += {THREADS}u) {{ sum = fold(sum, {}); }}\n\
             shared_values[thread] = {};\nworkgroupBarrier();\n\
             for (var half = {}u; half > 0u; half >>= 1u) {{\n\
             if thread < half {{ let x = fold({}, {}); shared_values[thread] = {}; }}\n\
             workgroupBarrier();\n}}\n\
             let all = {};\nworkgroupBarrier();\nreturn all;\n}}",
            changed(kind, "item(base, e)"),
            store(lane, "sum"),
            THREADS / 2,
            restore(lane, "shared_values[thread]"),
            restore(lane, "shared_values[thread + half]"),
            store(lane, "x"),
            restore(lane, "shared_values[0]"),
        ));
    }
    source.push(&text);
    let element = match kind {
        OpKind::Argmax | OpKind::Argmin => format!(
            "let unused = folded(thread, base, 0.0, 0.0);\nlet value = {};\nworkgroupBarrier();\n",
            Lane::U32.cast(Lane::of(out), "shared_places[0]")
        ),
        OpKind::Mean => format!("let value = folded(thread, base, 0.0, 0.0) / f32({count});\n"),
        OpKind::Var | OpKind::Std => {
            let root = if kind == OpKind::Std { "sqrt" } else { "" };
            format!(
                "let sum = folded_plain(thread, base);\n\
                 let value = {root}(folded(thread, base, sum / f32({count}), 0.0) / {});\n",
                float(3)
            )
        }
        OpKind::LogSumExp => "let top = largest(thread, base);\n\
             let shift = select(top, 0.0, is_infinite(top) || is_nan(top));\n\
             let value = log(folded(thread, base, 0.0, shift)) + shift;\n"
            .to_owned(),
        _ => "let value = folded(thread, base, 0.0, 0.0);\n".to_owned(),
    };
    match kind {
        OpKind::Var | OpKind::Std => source.push(&second(&count, "folded_plain", "0.0", "x + y")),
        OpKind::LogSumExp => source.push(&second(&count, "largest", "-infinity()", "max_f32(x, y)")),
        _ => {}
    }
    let (per, width) = (per_word(out), 32 / per_word(out));
    let find = locate("e", kept, 4, &["a"]);
    if out.size() == 8 {
        source.main(&format!(
            "let e = group;\nif e >= {} {{ return; }}\n{find}let base = a_in;\n{element}\
             if thread == 0u {{ let bits = u64(value); out[{1} + 2u * e] = u32(bits & 0xfffffffflu);\n\
             out[{1} + 2u * e + 1u] = u32(bits >> 32u); }}",
            param(0),
            param(1),
        ));
    } else {
        source.main(&format!(
            "var bits = 0u;\n\
             for (var j = 0u; j < {per}u; j++) {{\n\
             let e = group * {per}u + j;\n\
             if e < {} {{\n{find}let base = a_in;\n{element}\
             bits |= {} << (j * {width}u);\n}}\n}}\n\
             if thread == 0u {{ out[{} + group] = bits; }}",
            param(0),
            encoded(out, "value"),
            param(1),
        ));
    }
    source.finish()
}

/// A fold of floats besides the one that gives the result.
fn second(count: &str, name: &str, start: &str, step: &str) -> String {
    format!(
        "fn {name}(thread: u32, base: i32) -> f32 {{\nvar x = {start};\n\
         for (var e = thread; e < {count}; e += {THREADS}u) {{ let y = item(base, e); x = {step}; }}\n\
         shared_values[thread] = x;\nworkgroupBarrier();\n\
         for (var half = {}u; half > 0u; half >>= 1u) {{\n\
         if thread < half {{ let x = shared_values[thread]; let y = shared_values[thread + half]; \
         shared_values[thread] = {step}; }}\n\
         workgroupBarrier();\n}}\n\
         let all = shared_values[0];\nworkgroupBarrier();\nreturn all;\n}}",
        THREADS / 2,
    )
}

/// Statements that find a folded element from where the first one of its row is.
fn locate_from(rank: u32, first: u32) -> String {
    let mut text = "var a_in = base;\n".to_owned();
    if rank > 0 {
        text.push_str("var left = e;\n");
        for axis in (0..rank).rev() {
            let (size, stride) = (param(first + axis), super::source::signed(first + rank + axis));
            if axis == 0 {
                text.push_str(&format!("a_in += i32(left) * {stride};\n"));
            } else {
                text.push_str(&format!(
                    "{{ let next = left / {size}; a_in += i32(left - next * {size}) * {stride}; left = next; }}\n"
                ));
            }
        }
    }
    text
}

/// Truth values lie in shared memory as words.
fn stored(lane: Lane) -> &'static str {
    if lane == Lane::Bool { "u32" } else { lane.wgsl() }
}

fn store(lane: Lane, value: &str) -> String {
    if lane == Lane::Bool { format!("select(0u, 1u, {value})") } else { value.to_owned() }
}

fn restore(lane: Lane, value: &str) -> String {
    if lane == Lane::Bool { format!("({value} != 0u)") } else { value.to_owned() }
}

fn start(kind: OpKind, lane: Lane) -> String {
    match kind {
        OpKind::Prod | OpKind::All => lane.literal(1),
        // No row is empty: the first element counts twice, which changes no extreme.
        OpKind::Max | OpKind::Min => "item(base, 0u)".to_owned(),
        _ => lane.literal(0),
    }
}

/// What is folded of an element.
fn changed(kind: OpKind, item: &str) -> String {
    match kind {
        OpKind::Var | OpKind::Std => format!("({item} - mean) * ({item} - mean)"),
        OpKind::LogSumExp => format!("exp({item} - top)"),
        _ => item.to_owned(),
    }
}

fn step(kind: OpKind, lane: Lane) -> &'static str {
    match (kind, lane) {
        (OpKind::Prod, _) => "x * y",
        (OpKind::Any | OpKind::Max, Lane::Bool) => "x || y",
        (OpKind::All | OpKind::Min, Lane::Bool) => "x && y",
        (OpKind::Max, Lane::F32) => "max_f32(x, y)",
        (OpKind::Min, Lane::F32) => "min_f32(x, y)",
        (OpKind::Max, _) => "max(x, y)",
        (OpKind::Min, _) => "min(x, y)",
        _ => "x + y",
    }
}

/// Whether `x` is to be chosen before `y`; a NaN is chosen before any number.
fn better(kind: OpKind, lane: Lane) -> &'static str {
    match (kind, lane) {
        (OpKind::Argmax, Lane::F32) => "x > y || (is_nan(x) && !is_nan(y))",
        (_, Lane::F32) => "x < y || (is_nan(x) && !is_nan(y))",
        (OpKind::Argmax, Lane::Bool) => "x && !y",
        (_, Lane::Bool) => "!x && y",
        (OpKind::Argmax, _) => "x > y",
        _ => "x < y",
    }
}
