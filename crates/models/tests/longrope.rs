//! LongRoPE through its border: which list turns an input is told by the end of the text, as far as the runner says it, and
//! by the input's own; what a cache holds stays as it was turned.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod small;

use std::sync::Arc;

use pteron_models::architectures::Llama;
use pteron_models::blocks::{LongScaling, RopeScaling, RopeSettings};
use pteron_models::{KvCache, ModelOptions, RandomWeights};
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::{Bytes, HostTensor};
use small::*;

/// The context of the first training.
const BORDER: usize = 11;
const FACTOR: f32 = 1.1;

fn short() -> Vec<f32> {
    (0..8).map(|pair| 1.0 + 0.1 * pair as f32).collect()
}

fn long() -> Vec<f32> {
    (0..8).map(|pair| 2.0 + pair as f32).collect()
}

fn scaling() -> RopeScaling {
    RopeScaling::Long(LongScaling {
        short: short(),
        long: long(),
        original_context: BORDER,
        attention_factor: FACTOR.into(),
    })
}

/// The twin in plain loops; positions from `first` on turn by the long list.
fn twin(first: usize) -> Decoder {
    let divided = |by: Vec<f32>| frequencies().iter().zip(by).map(|(frequency, by)| frequency / by).collect();
    plain(2, |_, mut layer| {
        layer.scale *= FACTOR * FACTOR;
        layer.inverse_frequencies = divided(short());
        layer.beyond = Some((first, divided(long())));
        layer
    })
}

/// Logits of all positions, the text given in inputs of those lengths; the program is told how long it is, or not.
fn run_in(file: Bytes, lengths: &[usize], told: Option<usize>) -> Vec<Vec<f32>> {
    let program = Program::load("model.pte", file, &[], &Options::default()).unwrap();
    let (mut session, mut rows, mut start) = (program.session().unwrap(), Vec::new(), 0);
    if let Some(told) = told {
        let buffer = program.buffers().iter().find(|buffer| buffer.id.name == "text_length").unwrap();
        session.write(&buffer.id, &HostTensor::from_slice(vec![1], &[told as i64]).unwrap()).unwrap();
    }
    for &length in lengths {
        let ids: Vec<i64> = tokens()[start..start + length].iter().map(|&token| token as i64).collect();
        let inputs: [Value; 2] = [
            HostTensor::from_slice(vec![1, length], &ids).unwrap().into(),
            HostTensor::from_slice(vec![1], &[start as i64]).unwrap().into(),
        ];
        let logits = session.run("forward", &inputs).unwrap()[0].to_tensor().unwrap().unwrap();
        rows.extend(logits.as_slice::<f32>().unwrap().chunks(VOCAB).map(<[f32]>::to_vec));
        start += length;
    }
    rows
}

/// The first position of the first input that ends beyond the border.
fn first_long(lengths: &[usize]) -> usize {
    let mut start = 0;
    for length in lengths {
        if start + length > BORDER {
            return start;
        }
        start += length;
    }
    start
}

#[test]
fn the_end_of_an_input_tells_which_list_turns_it() {
    let source = Arc::new(RandomWeights::new(7));
    let llama = Llama { rope: RopeSettings { theta: 10_000.0, scaling: scaling() }, ..llama() };
    let generated = [&[6][..], &[1; 14]].concat();
    let cases: [&[usize]; 6] = [&[TOKENS], &[BORDER], &[BORDER, 9], &[3; 6], &[5; 4], &generated];
    for kv in [KvCache::InGraph, KvCache::OffGraph] {
        let file = file(&build(&llama, source.clone(), ModelOptions { kv, ..options(TOKENS) }));
        for lengths in cases {
            let wanted = twin(first_long(lengths)).logits(source.as_ref(), &tokens()[..lengths.iter().sum()]);
            let difference = largest_difference(&run_in(file.clone(), lengths, None), &wanted);
            assert!(difference < 2e-4, "{kv:?}, inputs of {lengths:?}: off by {difference}");
        }
    }
}

#[test]
fn a_text_that_is_told_to_be_long_is_turned_by_the_long_list_from_its_beginning() {
    let source = Arc::new(RandomWeights::new(7));
    let llama = Llama { rope: RopeSettings { theta: 10_000.0, scaling: scaling() }, ..llama() };
    let long = twin(0).logits(source.as_ref(), &tokens());
    let short = twin(TOKENS).logits(source.as_ref(), &tokens()[..BORDER]);
    for kv in [KvCache::InGraph, KvCache::OffGraph] {
        let model = build(&llama, source.clone(), ModelOptions { kv, ..options(TOKENS) });
        let file = file(&model);
        for lengths in [&[5; 4][..], &[1; TOKENS], &[3, 17]] {
            let difference = largest_difference(&run_in(file.clone(), lengths, Some(TOKENS)), &long);
            assert!(difference < 2e-4, "{kv:?}, inputs of {lengths:?}: off by {difference}");
        }
        // A length within the border changes nothing.
        let difference = largest_difference(&run_in(file, &[4, 7], Some(BORDER)), &short);
        assert!(difference < 2e-4, "{kv:?}: off by {difference}");
    }
}

#[test]
fn a_context_within_the_border_has_one_list() {
    let llama = Llama { rope: RopeSettings { theta: 10_000.0, scaling: scaling() }, ..llama() };
    let built = |context| {
        let model = build(&llama, Arc::new(RandomWeights::new(7)), ModelOptions { context, ..options(4) });
        model.module().main.body.nodes.len()
    };
    let nodes = built(BORDER + 1) - built(BORDER);
    assert_eq!(nodes, 5, "length, end, the further one, comparison and choice, for all layers");
}
