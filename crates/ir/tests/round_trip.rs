//! Whatever can be in a graph survives the text form, and no text makes the parser panic.

mod random;

use proptest::prelude::*;
#[cfg(not(miri))]
use pteron_ir::OpKind;
use pteron_ir::{Graph, Module, parse_graph, parse_module, verify};
use random::{Source, broken_graph, built_graph};
#[cfg(not(miri))]
use std::collections::BTreeSet;

/// How many bytes a random graph is made of; Miri is a thousand times slower.
const BYTES: usize = if cfg!(miri) { 100 } else { 600 };

fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if cfg!(miri) { ProptestConfig { cases: 2, ..config } } else { config }
}

fn survives(graph: &Graph) -> Result<(), TestCaseError> {
    let text = graph.to_string();
    let parsed = parse_graph(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    prop_assert_eq!(&parsed, graph, "\n{}", &text);
    prop_assert_eq!(parsed.to_string(), without_places(&text));
    Ok(())
}

/// Where a node stood in its payload is a comment, which parsing drops.
fn without_places(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("  ; chain").next().unwrap_or_default());
    lines.map(|line| format!("{line}\n")).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn built_graphs_verify_and_survive(bytes in prop::collection::vec(any::<u8>(), 0..BYTES)) {
        let graph = built_graph(&mut Source::new(&bytes));
        survives(&graph)?;
        prop_assert_eq!(verify(&graph), Ok(()), "\n{}", graph);
        let module = Module { init: Some(graph.clone()), main: graph };
        prop_assert_eq!(parse_module(&module.to_string()).unwrap(), module);
    }

    #[test]
    fn any_fields_of_any_op_survive(bytes in prop::collection::vec(any::<u8>(), 0..BYTES)) {
        survives(&broken_graph(&mut Source::new(&bytes)))?;
    }

    #[test]
    fn broken_texts_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..BYTES / 2),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len()), 1..8),
    ) {
        let mut text = broken_graph(&mut Source::new(&bytes)).to_string();
        for (at, piece) in edits {
            let mut at = at.index(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            // Half of the pieces replace what follows, the others stand before it.
            let end = (at + piece % 2 * PIECES[piece].len()).min(text.len());
            let end = (end..=text.len()).find(|&end| text.is_char_boundary(end)).unwrap_or(text.len());
            text.replace_range(at..end, PIECES[piece]);
        }
        if let Ok(graph) = parse_graph(&text) {
            let _ = verify(&graph);
            let again = parse_graph(&graph.to_string());
            prop_assert_eq!(again.unwrap().to_string(), graph.to_string());
        }
    }
}

/// What edits put into texts: everything that means something somewhere.
#[rustfmt::skip] // a line each would hide what is here
const PIECES: &[&str] = &[
    "", "{", "}", "(", ")", "[", "]", ",", ":", "=", "->", "..", "..=", "+", "-", "*", "#", "%", "\"",
    "\\", ";", "\n", "é", "%0", "%99", "%4294967295", "#0", "0", "1", "-1", "1e999", "9223372036854775808",
    "nan", "nan(", "inf", "graph ", "init ", "symbol ", "input ", "constant ", "buffer ", "value ",
    "output ", "yield ", "then ", "else ", "body ", "int(", "float", "bool", "f32[", "i32", "true", "add(",
    "if(", "\\u{", "\\u{110000}", " in ",
];

#[test]
fn deep_blocks_are_refused_before_the_stack_is() {
    let text = format!("graph \"\" {{ {}", "if(cond=1) then { ".repeat(100_000));
    let error = parse_graph(&text).unwrap_err().to_string();
    assert!(error.ends_with("there are more than 64 levels of blocks"), "{error}");
}

#[test]
fn long_words_make_short_errors() {
    let count = if cfg!(miri) { 200 } else { 100_000 };
    let word = "x".repeat(count);
    for text in [
        word.clone(),
        format!("graph \"\" {{ {word}"),
        format!("graph \"\" {{ sort(axis={}", "9".repeat(count)),
    ] {
        let error = parse_graph(&text).unwrap_err().to_string();
        assert!(error.len() < 300, "{error}");
    }
}

/// Sums of many symbols are as cheap as they are long.
#[test]
fn long_sums_parse() {
    let count = if cfg!(miri) { 20 } else { 2000 };
    let mut graph = Graph::default();
    let mut sum = pteron_ir::Dim::known(7);
    for index in 0..count {
        let symbol = graph.symbols.add("", 0, None);
        sum = sum.add(&pteron_ir::Dim::symbol(symbol).scale(index - 5).unwrap()).unwrap();
    }
    graph.add_input("n", pteron_ir::Type::Int(sum));
    assert_eq!(parse_graph(&graph.to_string()), Ok(graph));
}

/// The random graphs reach every op, and nest, so that the tests above mean something.
#[cfg(not(miri))]
#[test]
fn random_graphs_have_every_op() {
    let (mut broken, mut built) = (BTreeSet::new(), BTreeSet::new());
    let mut state = 1u64;
    for _ in 0..4000 {
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..300).map(|_| random()).collect();
        broken_graph(&mut Source::new(&bytes)).for_each_node(|node, _| broken.extend([node.op.kind()]));
        built_graph(&mut Source::new(&bytes))
            .for_each_node(|node, depth| built.extend([(depth, node.op.kind())]));
    }
    assert_eq!(broken.len(), OpKind::all().len() + OpKind::internal().len());
    for depth in 0..3 {
        for kind in [OpKind::If, OpKind::Scan, OpKind::Split, OpKind::Take, OpKind::Reshape, OpKind::Full] {
            assert!(built.contains(&(depth, kind)), "no {kind:?} at depth {depth}");
        }
    }
}
