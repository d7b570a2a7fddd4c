//! Small models of every architecture against plain loops: whole texts, chunks and single tokens.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod small;

use std::ops::Range;
use std::sync::Arc;

use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_ir::Op;
use pteron_models::architectures::{Gemma4, LayerKind, Llama};
use pteron_models::{
    Architecture, Form, KvCache, Logits, Model, ModelOptions, Packing, Position, Quantization, RandomWeights,
    Wanted, WeightError, WeightSource, shapes,
};
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::{Bytes, DType};
use small::*;

#[test]
fn every_architecture_computes_what_plain_loops_do() {
    let source = Arc::new(RandomWeights::new(7));
    for (name, architecture, decoder) in cases() {
        let wanted = decoder.logits(source.as_ref(), &tokens());
        // The whole text at once, in chunks of which a ring of window + chunk - 1 slots wraps, and token by token.
        for (declared, chunk) in [(TOKENS, TOKENS), (5, 5), (5, 3), (5, 1), (1, 1)] {
            let got = run(file(&build(architecture.as_ref(), source.clone(), options(declared))), chunk);
            let difference = largest_difference(&got, &wanted);
            assert!(difference < 2e-4, "{name}, chunks of {chunk} of {declared}: off by {difference}");
        }
    }
}

#[test]
fn the_last_position_is_the_last_of_all() {
    let source = Arc::new(RandomWeights::new(7));
    for (name, architecture, decoder) in cases() {
        let wanted = decoder.logits(source.as_ref(), &tokens());
        let last = ModelOptions { logits: Logits::Last, ..options(6) };
        let got = run(file(&build(architecture.as_ref(), source.clone(), last)), 6);
        let ends: Vec<Vec<f32>> = [5, 11, 17, 19].iter().map(|&at: &usize| wanted[at].clone()).collect();
        assert!(largest_difference(&got, &ends) < 2e-4, "{name}");
    }
}

#[test]
fn narrow_activations_and_caches_stay_close() {
    let source = Arc::new(RandomWeights::new(7));
    for (name, architecture, decoder) in cases() {
        let wanted = decoder.logits(source.as_ref(), &tokens());
        for (activations, cache) in [
            (DType::BF16, DType::BF16),
            (DType::F16, DType::F16),
            (DType::F32, DType::F16),
            (DType::BF16, DType::F16),
        ] {
            let options = ModelOptions { activations, cache, ..options(5) };
            let got = run(file(&build(architecture.as_ref(), source.clone(), options)), 5);
            let error = relative_error(&got, &wanted);
            // A few roundings of 2^-9 and 2^-12, which sharp attention makes larger.
            let bound = if activations == DType::BF16 { 0.1 } else { 0.02 };
            assert!(error < bound, "{name}, {activations} with {cache}: off by {error}");
        }
    }
}

#[test]
fn caches_outside_the_graph_hold_the_same() {
    let source = Arc::new(RandomWeights::new(7));
    for (name, architecture, decoder) in cases() {
        let wanted = decoder.logits(source.as_ref(), &tokens());
        let off_graph = ModelOptions { kv: KvCache::OffGraph, ..options(5) };
        let model = build(architecture.as_ref(), source.clone(), off_graph);
        assert!(model.module().main.buffers.is_empty(), "{name}");
        for chunk in [5, 3, 1] {
            let difference = largest_difference(&run(file(&model), chunk), &wanted);
            assert!(difference < 2e-4, "{name}, chunks of {chunk}: off by {difference}");
        }
    }
}

#[test]
fn positions_as_numbers_give_what_positions_as_tensors_give() {
    let source = Arc::new(RandomWeights::new(7));
    for (name, architecture, _) in cases() {
        for kv in [KvCache::InGraph, KvCache::OffGraph] {
            let [tensor, number] = [Position::Tensor, Position::Number].map(|position| {
                let options = ModelOptions { kv, position, ..options(5) };
                let model = build(architecture.as_ref(), source.clone(), options);
                let mut reads_back = false;
                model
                    .module()
                    .main
                    .for_each_node(|node, _| reads_back |= matches!(node.op, Op::ItemInt { .. }));
                let wanted = position == Position::Tensor && kv == KvCache::InGraph;
                assert_eq!(reads_back, wanted, "{name}, {kv:?}, {position:?}");
                run(file(&model), 3)
            });
            assert_eq!(tensor, number, "{name}, {kv:?}");
        }
    }
}

#[test]
fn logits_are_those_of_the_rows_that_a_call_names() {
    let source = Arc::new(RandomWeights::new(7));
    for (name, architecture, decoder) in cases() {
        let wanted = decoder.logits(source.as_ref(), &tokens());
        for kv in [KvCache::InGraph, KvCache::OffGraph] {
            let selected = ModelOptions { logits: Logits::Selected, kv, ..options(5) };
            let file = file(&build(architecture.as_ref(), source.clone(), selected));
            // All of them, the last, the last two, and the first after the last.
            for rows in [&[0, 1, 2, 3][..], &[3], &[2, 3], &[3, 0]] {
                let found = run_rows(file.clone(), 4, rows);
                let wanted: Vec<Vec<f32>> = wanted
                    .chunks(4)
                    .filter(|part| part.len() == 4)
                    .flat_map(|part| rows.iter().map(|&row| part[row].clone()))
                    .collect();
                let difference = largest_difference(&found, &wanted);
                assert!(difference < 2e-4, "{name}, {kv:?}, rows {rows:?}: off by {difference}");
            }
        }
    }
}

/// The length of the difference against that of what is wanted.
fn relative_error(got: &[Vec<f32>], wanted: &[Vec<f32>]) -> f32 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
    let pairs = got.iter().flatten().zip(wanted.iter().flatten());
    (square(&mut pairs.map(|(a, b)| a - b)) / square(&mut wanted.iter().flatten().copied())).sqrt()
}

#[test]
fn a_tied_table_is_stored_once_and_files_are_the_same_each_time() {
    let packing: Packing = "4w".parse().unwrap();
    let build = |tied| {
        let llama = Llama { tie_word_embeddings: tied, ..llama() };
        let options =
            ModelOptions { quantization: Quantization::of(packing), activations: DType::BF16, ..options(5) };
        file(&build(&llama, Arc::new(RandomWeights::new(7)), options))
    };
    assert_eq!(build(true), build(true));
    let names = |file: Bytes| Pte::read(file, &Limits::default()).unwrap().program.named_data.len();
    assert_eq!(names(build(false)) - names(build(true)), 3, "codes, scales and the place of biases");
}

#[test]
fn metadata_speak_every_vocabulary() {
    let file = file(&build(&llama(), Arc::new(RandomWeights::new(7)), options(5)));
    let program = Program::load("model.pte", file, &[], &Options::default()).unwrap();
    let int = |name: &str| program.metadata_value(name).and_then(Value::as_int);
    for (name, wanted) in [
        ("get_max_seq_len", 5),
        ("get_max_context_len", 24),
        ("get_max_ctx_len", 24),
        ("get_prefill_chunk_size", 5),
        ("get_max_prefill_chunk", 5),
        ("get_vocab_size", 40),
        ("get_n_layers", 2),
        ("get_bos_id", 1),
    ] {
        assert_eq!(int(name), Some(wanted), "{name}");
    }
    assert_eq!(program.metadata()["get_eos_ids"].len(), 2);
    assert!(matches!(program.metadata_value("use_kv_cache"), Some(Value::Bool(true))));
    assert!(program.metadata_value("get_n_caches").is_none());
    let off_graph = ModelOptions { kv: KvCache::OffGraph, ..options(5) };
    let file = small::file(&build(&gemma3(), Arc::new(RandomWeights::new(7)), off_graph));
    let program = Program::load("model.pte", file, &[], &Options::default()).unwrap();
    assert_eq!(program.metadata_value("get_n_caches").and_then(Value::as_int), Some(4));
    for (name, wanted) in
        [("get_kv_heads", [2, 2, 2, 2]), ("get_head_dims", [16; 4]), ("get_windows", [6, 6, 0, 6])]
    {
        let Some(Value::Tensor(tensor)) = program.metadata_value(name) else { panic!("{name}") };
        assert_eq!(tensor.as_slice::<i32>().unwrap(), wanted, "{name}");
    }
}

#[test]
fn what_cannot_be_built_says_why() {
    let source: Arc<dyn WeightSource> = Arc::new(RandomWeights::new(7));
    let refused = |architecture: &dyn Architecture, options| {
        Model::build(architecture, source.clone(), options).err().unwrap().to_string()
    };
    let chunk = ModelOptions { chunk: 25, ..options(5) };
    assert!(refused(&llama(), chunk).contains("inputs of 25 tokens in a context of 24"));
    let packed = ModelOptions { quantization: Quantization::of("4w".parse().unwrap()), ..options(5) };
    let odd = Llama { intermediate_size: 40, ..llama() };
    let error = refused(&odd, packed);
    assert!(
        error.contains("mlp.down_proj.weight: rows of 40 values do not divide into groups of 32"),
        "{error}"
    );
    let quantization = Quantization { rules: vec!["*.mpl.*=4w".parse().unwrap()], ..Quantization::default() };
    let error = refused(&llama(), ModelOptions { quantization, ..options(5) });
    assert!(error.contains("the rule for `*.mpl.*` fits no module"), "{error}");
    let heads = Llama { num_key_value_heads: 3, ..llama() };
    assert!(refused(&heads, options(5)).starts_with("model.layers.0.self_attn: sdpa:"));
    let lonely = Gemma4 {
        layer_types: vec![LayerKind::Full, LayerKind::Sliding],
        num_kv_shared_layers: 1,
        ..gemma4()
    };
    assert!(refused(&lonely, options(5)).contains("no earlier one has its kind"));
    assert!("7w".parse::<Packing>().is_err() && "4w".parse::<Packing>().unwrap().with_group(16).is_err());
}

#[test]
fn published_shapes_have_the_published_sizes() {
    // Parameters in millions, embeddings once; from the model cards and configurations.
    let wanted = [
        ("smollm2-135m", 134.5),
        ("gemma-3-270m", 268.1),
        ("qwen2.5-0.5b", 494.0),
        ("qwen3-0.6b", 596.0),
        ("gemma-3-1b", 999.9),
        ("llama-3.2-1b", 1235.8),
        ("llama-3.1-8b", 8030.3),
        ("mistral-7b", 7241.7),
        ("gemma-4-31b", 30697.3),
    ];
    for (name, millions) in wanted {
        let options = ModelOptions::default();
        let shape = shapes::find(name).unwrap();
        let model = build(shape.architecture().unwrap().as_ref(), Arc::new(RandomWeights::new(1)), options);
        let got = model.weight_bytes() as f64 / 2e6;
        assert!((got / millions - 1.0).abs() < 2e-3, "{name}: {got} million parameters, not {millions}");
    }
}

/// Weights with which layers add up to more than f16 holds, as in published Gemma 3 models.
struct Loud(RandomWeights);

impl WeightSource for Loud {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        self.0.form(wanted)
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        self.0.read(wanted, elements, out)?;
        if wanted.name.ends_with("post_feedforward_layernorm.weight") {
            out.iter_mut().for_each(|value| *value *= 60_000.0);
        }
        Ok(())
    }
}

#[test]
fn gemma_3_adds_up_beyond_f16() {
    let source = Arc::new(Loud(RandomWeights::new(7)));
    let logits = |activations| {
        let options = ModelOptions { activations, cache: activations, ..options(5) };
        run(file(&build(&gemma3(), source.clone(), options)), 5)
    };
    let (wanted, got) = (logits(DType::F32), logits(DType::F16));
    let difference = largest_difference(&got, &wanted);
    assert!(difference < 0.1, "off by {difference}");
}
