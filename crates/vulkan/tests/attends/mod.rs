//! Attention of many queries at once, as prompts, images and sound have it, against the reference backend.

use crate::{device, differential};
use pteron_format::WriteOptions;
use pteron_gpu::Features;
use pteron_ir::{Op, ValueId};
use pteron_models::architectures::Llama;
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Model, ModelOptions, Position, Quantization, RandomWeights};
use pteron_runtime::backend::Backend;
use pteron_runtime::reference::cast;
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use pteron_vulkan::VulkanOptions;
use std::sync::Arc;

/// Numbers between -1 and 1: the same on every machine.
fn tensor(dtype: DType, shape: &[usize], seed: usize) -> HostTensor {
    let count: usize = shape.iter().product();
    let number = |at: usize| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    let values: Vec<f32> = (0..count).map(number).collect();
    cast(&HostTensor::from_slice(shape.to_vec(), &values).unwrap(), dtype).unwrap()
}

/// Sizes of an attention.
struct Sizes {
    heads: [usize; 2],
    places: [usize; 2],
    features: [usize; 2],
}

fn attends(backend: &dyn Backend, dtype: DType, sizes: &Sizes, causal: bool, mask: Option<HostTensor>) {
    let Sizes { heads: [heads, shared], places: [queries, keys], features: [features, values] } = *sizes;
    let given = [
        tensor(dtype, &[2, heads, queries, features], 1),
        tensor(dtype, &[2, shared, keys, features], 2),
        tensor(dtype, &[2, shared, keys, values], 3),
    ];
    let op = Op::Sdpa {
        q: ValueId(0),
        k: ValueId(1),
        v: ValueId(2),
        scale: 2.0 / (features as f32).sqrt(),
        mask: mask.as_ref().map(|_| ValueId(3)),
        causal,
    };
    let operands: Vec<(ValueId, Value)> =
        given.into_iter().chain(mask).zip(0..).map(|(tensor, id)| (ValueId(id), tensor.into())).collect();
    let found = differential::check_op(&op, &operands, backend).unwrap_or_else(|difference| {
        panic!(
            "{dtype}, {heads} heads over {shared}, {queries} queries over {keys} keys, {features} and {values} features, causal: \
             {causal}: {}",
            difference.0.rsplit(": ").next().unwrap_or_default()
        )
    });
    assert!(found.is_some(), "refused by both");
}

fn every_size(backend: &dyn Backend) {
    let sizes = |heads, places, features| Sizes { heads, places, features };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for sizes in [
            sizes([4, 2], [32, 16], [64, 64]),
            sizes([3, 1], [33, 70], [64, 64]),
            sizes([2, 2], [100, 31], [128, 128]),
            sizes([1, 1], [64, 96], [80, 72]),
            sizes([2, 1], [41, 129], [8, 120]),
        ] {
            let [queries, keys] = sizes.places;
            attends(backend, dtype, &sizes, false, None);
            attends(backend, dtype, &sizes, true, None);
            // Some see nothing at all.
            let seen: Vec<bool> = (0..queries * keys).map(|at| at % 3 != 0 && at / keys % 7 != 5).collect();
            let mask = HostTensor::from_bools(vec![queries, keys], &seen).unwrap();
            attends(backend, dtype, &sizes, false, Some(mask));
            let heads = sizes.heads[0];
            attends(backend, dtype, &sizes, false, Some(tensor(dtype, &[2, heads, 1, keys], 4)));
        }
    }
}

#[test]
fn many_queries_see_what_the_reference_backend_has_them_see() {
    let Some(backend) = device::open() else { return };
    every_size(backend.as_ref());
}

#[test]
fn many_queries_attend_where_a_device_has_the_least_features() {
    let options = VulkanOptions { at_most: Some(Features::LEAST), ..VulkanOptions::default() };
    let Some(backend) = device::open_with(&options) else { return };
    every_size(backend.as_ref());
}

/// Prompts in chunks, whose later tokens see the last of the earlier ones in a ring.
#[test]
fn chunks_of_a_prompt_attend_over_caches_and_rings() {
    let Some(backend) = device::open() else { return };
    for (window, cache) in
        [(None, DType::F32), (Some(40), DType::F32), (Some(40), DType::F16), (None, DType::BF16)]
    {
        let llama = Llama { sliding_window: window, max_position_embeddings: 512, ..tiny::llama() };
        let options = ModelOptions {
            activations: DType::F32,
            cache,
            kv: KvCache::OffGraph,
            position: Position::Number,
            context: 256,
            chunk: 64,
            quantization: Quantization::of("8w".parse().unwrap()),
            ..ModelOptions::default()
        };
        let model = Model::build(&llama, Arc::new(RandomWeights::new(3)), options).unwrap();
        let mut file = Vec::new();
        model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut file).unwrap();
        let scores = |name: &str| -> Vec<Vec<f32>> {
            let mut registry = Registry::default();
            registry.add(backend.clone());
            let options = Options { backend: Some(name.into()), registry, ..Options::default() };
            let program = Program::load("decoder", Bytes::copy_of(&file), &[], &options).unwrap();
            let mut session = program.session().unwrap();
            let mut position = 0;
            let mut chunk = |length: usize| {
                let tokens: Vec<i64> =
                    (position..position + length).map(|at| (at * 13 % 37) as i64).collect();
                let tokens: Value = HostTensor::from_slice(vec![1, length], &tokens).unwrap().into();
                let outputs = session.run("forward", &[tokens, Value::Int(position as i64)]).unwrap();
                position += length;
                let scores = cast(&outputs[0].to_tensor().unwrap().unwrap(), DType::F32).unwrap();
                scores.as_slice::<f32>().unwrap().to_vec()
            };
            [64, 33, 1, 17, 64].map(&mut chunk).into()
        };
        let (wanted, got) = (scores("reference"), scores("vulkan"));
        for (round, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
            let most = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let off = wanted.iter().zip(got).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(off <= 2e-3 * most, "window {window:?}, cache {cache}, round {round}: {off} of {most}");
        }
    }
}
