//! Which graphs read tokens of several texts: those whose rows meet nowhere but in the cache. Each refusal names what mixes
//! them.

use pteron_ir::{LaneInput, LaneRows, lane_rows, parse_graph, token_rows};
use std::collections::BTreeSet;

/// A small decoder: two rows of its middle are given by the test.
fn graph(middle: &str) -> String {
    format!(
        r#"graph "forward"
  symbol T in 1..=16
  symbol P in 1..=16
  symbol R in 1..=16
  input %0 "tokens": i64[1, T]
  input %1 "positions": i64[P]
  input %2 "rows": i64[R]
  input %3 "temperature": f32[1]
  constant %4 "embedding": f32[10, 8]
  constant %5 "weight": f32[8, 8]
  constant %6 "learned": f32[16, 8]
{{
  %10: f32[1, T, 8] = take(x=%4, index=%0, axis=0)
  %11: int(T) = sym_size(a=%0, dim=1)
  %12: f32[1, T, 8] = addmm(mat1=%10, mat2=%5)
  %13: f32[1, T, 2, 4] = reshape(x=%12, shape=[1, %11, 2, 4])
  %14: f32[T, 2, 1, 4] = transpose(x=%13, perm=[1, 2, 0, 3])
  %15: f32[1, 2, T, 4] = transpose(x=%13, perm=[0, 2, 1, 3])
  %16: i64[P, 1] = reshape(x=%1, shape=[-1, 1])
{middle}
}}
"#
    )
}

/// The same with values numbered without gaps.
fn numbered(text: &str) -> String {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    let used: BTreeSet<u32> = text.split('%').skip(1).filter_map(|part| digits(part).parse().ok()).collect();
    let mut parts = text.split('%');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let old = digits(part);
        let new = used.iter().position(|&number| Ok(number) == old.parse()).unwrap_or_default();
        result.push_str(&format!("%{new}{}", &part[old.len()..]));
    }
    result
}

#[track_caller]
fn rows_of(middle: &str) -> Result<Vec<Option<usize>>, String> {
    let text = numbered(&graph(middle));
    let graph = parse_graph(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    token_rows(&graph).map(|rows| rows.tokens)
}

const ATTEND: &str = "  %30: f32[1, 2, T, 4] = update_and_attend(q=%15, k=%15, v=%15, position=%16, layer_id=0, scale=1.0, out_dtype=f32)\n";

#[test]
fn rows_that_stay_apart_are_found_by_input() {
    let all = [Some(1), Some(0), None, None];
    for middle in [
        "",
        // Positions of each row turn it, or sines that are computed from them.
        "  %20: f32[T, 2, 1, 4] = rope(x=%14, dims=4, offset=%1, base=10000.0)",
        "  %20: f32[P, 1] = as_type(x=%16, scalar_type=f32)\n  %21: f32[P, 1] = sin(x=%20)",
        "  %20: f32[1, T, 8] = rms_norm(x=%12, eps=0.001)",
        "  %20: f32[1, T, 1] = mean(x=%12, axes=[-1], keepdims=true)",
        "  %20: f32[1, T] = mean(x=%12, axes=[2])",
        "  %20: f32[1, T, 8] = multiply(a=%12, b=%3)",
        "  %20: f32[1, T, 4] = slice(x=%12, axis=-1, start=0, stop=4)",
        "  %20: f32[1, T, 16] = concatenate(tensors=[%12, %10], axis=2)",
        "  %20: f32[T, 8] = take(x=%12, index=0, axis=0)",
        "  %20: f32[T, 8] = squeeze(x=%12, dims=[0])",
        "  %20: f32[1, 1, T, 8] = expand_dims(x=%12, axis=0)",
        "  %20: f32[1, T, 8] = softmax(x=%12, axis=-1)",
        // Rows that the call asks for.
        "  %20: f32[1, R, 8] = take(x=%12, index=%2, axis=1)\n  %21: f32[1, R, 8] = silu(x=%20)",
    ] {
        let given = rows_of(&format!("{middle}\n{ATTEND}"));
        let picks = !middle.contains("index=%2");
        // Nothing reads the third input but a pick: unread, its size is one of tokens like any other.
        let wanted = if picks { vec![Some(1), Some(0), Some(0), None] } else { all.to_vec() };
        assert_eq!(given, Ok(wanted), "{middle}");
    }
}

#[test]
fn whatever_mixes_rows_is_named() {
    for (middle, wanted) in [
        ("  %20: f32[1, 8] = take(x=%12, index=-1, axis=1)", "`take` takes the row of one token"),
        ("  %20: f32[1, 8] = sum(x=%12, axes=[1])", "`sum` reads tokens of several rows at once"),
        ("  %20: f32[1, T, 8] = softmax(x=%12, axis=1)", "`softmax` reads tokens of several rows at once"),
        ("  %20: f32[1, T, 8] = cumsum(x=%12, axis=1)", "`cumsum` reads tokens of several rows at once"),
        (
            "  %20: f32[1, 8, T] = transpose(x=%12, perm=[0, 2, 1])\n  %21: f32[1, T, T] = addmm(mat1=%12, mat2=%20)",
            "`addmm` reads tokens of several rows at once",
        ),
        (
            "  %20: i64[T] = arange(start=0, stop=%11, step=1)",
            "`arange` reads tokens of several rows at once",
        ),
        (
            "  %20: f32[1, 1, 8] = slice(x=%12, axis=1, start=0, stop=1)",
            "`slice` reads tokens of several rows at once",
        ),
        (
            "  %20: f32[8, T] = reshape(x=%12, shape=[8, %11])",
            "`reshape` reads tokens of several rows at once",
        ),
        (
            "  %20: f32[1, T, 2, 4] = sdpa(q=%13, k=%13, v=%13, scale=1.0)",
            "`sdpa` reads tokens of several rows at once",
        ),
    ] {
        assert_eq!(rows_of(&format!("{middle}\n{ATTEND}")), Err(wanted.to_owned()), "{middle}");
    }
}

#[test]
fn one_position_is_that_of_one_text() {
    let first = "  %17: i64[1] = slice(x=%1, axis=0, start=0, stop=1)";
    assert_eq!(rows_of(first), Err("`slice` reads tokens of several rows at once".to_owned()));
    let given = "  %17: i64[1] = as_type(x=%3, scalar_type=i64)\n  %30: f32[1, 2, T, 4] = update_and_attend(q=%15, k=%15, \
                 v=%15, position=%17, layer_id=0, scale=1.0, out_dtype=f32)";
    let told = "`update_and_attend` is told the position of the first token only";
    assert_eq!(rows_of(given), Err(told.to_owned()));
    let turned = format!(
        "  %17: i64[1] = as_type(x=%3, scalar_type=i64)\n  %18: f32[1, 2, T, 4] = rope(x=%15, dims=4, offset=%17, \
         base=10000.0)\n{ATTEND}"
    );
    assert_eq!(rows_of(&turned), Err("`rope` turns by the position of the first token".to_owned()));
    assert_eq!(rows_of(""), Err("it keeps nothing in the session's cache".to_owned()));
}

#[test]
fn a_buffer_is_of_one_text() {
    let text = graph(ATTEND).replace("{\n", "  buffer %7 \"state\": f32[8]\n{\n");
    match parse_graph(&numbered(&text)) {
        Ok(graph) => assert_eq!(token_rows(&graph).unwrap_err(), "buffer `state` belongs to one text"),
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// A small decoder that is told the position of its first token.
fn laned(middle: &str) -> String {
    numbered(&format!(
        r#"graph "forward"
  symbol T in 1..=16
  symbol P in 0..=15
  symbol R in 1..=16
  input %0 "tokens": i64[1, T]
  input %1 "position": int(P)
  input %2 "rows": i64[R]
  constant %4 "embedding": f32[10, 8]
{{
  %10: f32[1, T, 8] = take(x=%4, index=%0, axis=0)
  %11: int(T) = sym_size(a=%0, dim=1)
  %13: f32[1, T, 2, 4] = reshape(x=%10, shape=[1, %11, 2, 4])
  %15: f32[1, 2, T, 4] = transpose(x=%13, perm=[0, 2, 1, 3])
  %16: i64[1] = full(shape=[1], v=%1, scalar_type=i64)
  %17: f32[1, 2, T, 4] = rope(x=%15, dims=4, offset=%16, base=10000.0)
  %30: f32[1, 2, T, 4] = update_and_attend(q=%17, k=%17, v=%15, position=%16, layer_id=0, scale=1.0, out_dtype=f32)
  %31: f32[1, T, 2, 4] = transpose(x=%30, perm=[0, 2, 1, 3])
  %32: f32[1, T, 8] = reshape(x=%31, shape=[1, %11, 8])
{middle}
"#
    ))
}

#[test]
fn lanes_are_read_by_graphs_that_use_one_position_for_nothing_but_their_texts() {
    let lanes = |middle: &str, output: &str| {
        let text = laned(&format!("{middle}\n}}\noutput {output}"));
        let graph = parse_graph(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        lane_rows(&graph)
    };
    let picked = "  %41: f32[1, R, 8] = take(x=%32, index=%2, axis=1)";
    let rows = "%41 \"y\": f32[1, R, 8]";
    let inputs = vec![LaneInput::Tokens { axis: 1, below: Some(10) }, LaneInput::Start, LaneInput::Picks];
    assert_eq!(lanes(picked, rows), Ok(LaneRows { inputs, outputs: vec![1] }));
    let last = lanes("  %40: f32[1, 8] = take(x=%32, index=-1, axis=1)", "%40 \"y\": f32[1, 8]");
    assert_eq!(last, Err("`take` takes the row of one token".to_owned()));
    for (more, wanted) in [
        ("  %40: i64[1] = add(a=%16, b=%16)", "`add` reads tokens of several rows at once"),
        ("  %40: i64[1, T] = add(a=%0, b=%0)", "input `tokens` does more than to pick rows of tables"),
    ] {
        assert_eq!(lanes(&format!("{more}\n{picked}"), rows), Err(wanted.to_owned()));
    }
    let text = laned("}\noutput %32 \"y\": f32[1, T, 8]");
    let graph = parse_graph(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(token_rows(&graph).unwrap_err(), "`rope` turns by the position of the first token");
}
