//! Tokens of a decoder on Vulkan: what is replayed gives what the reference backend gives, a token after the first records nothing,
//! and a layer takes few kernels.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod device;

use pteron_format::WriteOptions;
use pteron_gpu::Features;
use pteron_models::architectures::Llama;
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Model, ModelOptions, Position, Quantization, RandomWeights};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Precision, Program, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use pteron_vulkan::{Counts, VulkanBackend, VulkanOptions};
use std::sync::Arc;

const LAYERS: usize = 2;
const VOCAB: usize = 40;

/// Heads of which several share keys, weights in groups of 32 codes.
fn decoder(scheme: &str, activations: DType, kv: KvCache) -> Vec<u8> {
    let llama = Llama {
        hidden_size: 64,
        intermediate_size: 128,
        num_hidden_layers: LAYERS,
        max_position_embeddings: 512,
        ..tiny::llama()
    };
    let options = ModelOptions {
        activations,
        cache: activations,
        kv,
        position: if kv == KvCache::OffGraph { Position::Number } else { Position::Tensor },
        context: 512,
        chunk: 64,
        quantization: Quantization::of(scheme.parse().unwrap()),
        ..ModelOptions::default()
    };
    let model = Model::build(&llama, Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut file = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut file).unwrap();
    file
}

fn program(file: &[u8], vulkan: Option<&Arc<VulkanBackend>>, precision: Precision) -> Program {
    let mut registry = Registry::default();
    let mut backend = "reference";
    if let Some(vulkan) = vulkan {
        registry.add(vulkan.clone());
        backend = "vulkan";
    }
    let options = Options { backend: Some(backend.to_owned()), registry, precision, ..Options::default() };
    Program::load("decoder", Bytes::copy_of(file), &[], &options).unwrap()
}

/// The logits of the last of some tokens.
fn read(session: &mut Session, tokens: &[i64], position: usize) -> Vec<f32> {
    let tokens = HostTensor::from_slice(vec![1, tokens.len()], tokens).unwrap();
    // Caches of the session go with positions as numbers, those of the graph with positions as tensors.
    let position = match session.cached_tokens() {
        Some(_) => Value::Int(position as i64),
        None => HostTensor::from_slice(vec![1], &[position as i64]).unwrap().into(),
    };
    let outputs = session.run("forward", &[tokens.into(), position]).unwrap();
    let logits = outputs[0].to_tensor().unwrap().unwrap();
    let logits = pteron_runtime::reference::cast(&logits, DType::F32).unwrap();
    logits.as_slice::<f32>().unwrap().to_vec()
}

fn token(number: usize) -> i64 {
    (number * 17 % VOCAB) as i64
}

fn open(options: &VulkanOptions) -> Option<Arc<VulkanBackend>> {
    // Says so where there is no device.
    device::open_with(options)?;
    Some(Arc::new(VulkanBackend::open(options).unwrap()))
}

#[track_caller]
fn near(one: &[f32], other: &[f32], tolerance: f32, what: &str) {
    assert_eq!(one.len(), other.len());
    let most = other.iter().fold(0f32, |most, x| most.max(x.abs()));
    let worst = one.iter().zip(other).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst <= tolerance * most, "{what}: {worst} apart, where the largest is {most}");
}

/// Prompts of several lengths, then tokens beyond the rows that a cache begins with, a rewind in between.
fn tokens_agree(options: &VulkanOptions, scheme: &str, (activations, kv): (DType, KvCache), tolerance: f32) {
    tokens_agree_in(options, scheme, (activations, kv), tolerance, Precision::Exact);
}

/// The same with activations rounded further, or not.
fn tokens_agree_in(
    options: &VulkanOptions,
    scheme: &str,
    (activations, kv): (DType, KvCache),
    tolerance: f32,
    precision: Precision,
) {
    let Some(vulkan) = open(options) else { return };
    let file = decoder(scheme, activations, kv);
    let ours = program(&file, Some(&vulkan), precision);
    let theirs = program(&file, None, Precision::Exact);
    let (mut ours, mut theirs) = (ours.session().unwrap(), theirs.session().unwrap());
    let mut at = 0;
    for length in [5, 1, 1, 3, 1, 64, 64, 64, 50, 1, 1, 1, 2, 1, 1, 1, 1] {
        let tokens: Vec<i64> = (at..at + length).map(token).collect();
        let (one, other) = (read(&mut ours, &tokens, at), read(&mut theirs, &tokens, at));
        near(&one, &other, tolerance, &format!("{length} tokens at {at}"));
        at += length;
    }
    for session in [&mut ours, &mut theirs] {
        session.rewind_to(9).unwrap();
    }
    for at in 9..13 {
        let tokens = [token(at + 3)];
        let (one, other) = (read(&mut ours, &tokens, at), read(&mut theirs, &tokens, at));
        near(&one, &other, tolerance, &format!("a token at {at} behind a rewind"));
    }
}

#[test]
fn replayed_tokens_are_those_of_the_reference_backend() {
    tokens_agree(&VulkanOptions::default(), "4w", (DType::F32, KvCache::OffGraph), 1e-4);
    tokens_agree(&VulkanOptions::default(), "8w", (DType::F32, KvCache::OffGraph), 1e-4);
    for scheme in ["mxfp4", "nvfp4", "mxfp8"] {
        tokens_agree(&VulkanOptions::default(), scheme, (DType::F32, KvCache::OffGraph), 1e-4);
    }
    tokens_agree(&VulkanOptions::default(), "mxfp4", (DType::BF16, KvCache::OffGraph), 5e-2);
    tokens_agree(&VulkanOptions::default(), "4w", (DType::BF16, KvCache::OffGraph), 5e-2);
    tokens_agree(&VulkanOptions::default(), "4w", (DType::F16, KvCache::OffGraph), 1e-2);
}

/// Bytes before weights of few rows; on devices with matrix units halves before weights of many.
#[test]
fn they_are_close_where_activations_may_be_rounded() {
    let options = VulkanOptions::default();
    let kinds = [
        ("4w", DType::F32),
        ("8w", DType::F16),
        ("4w", DType::BF16),
        ("mxfp4", DType::F32),
        ("nvfp4", DType::BF16),
        ("mxfp8", DType::F16),
    ];
    for (scheme, activations) in kinds {
        let kind = (activations, KvCache::OffGraph);
        tokens_agree_in(&options, scheme, kind, 5e-2, Precision::Fast);
    }
}

#[test]
fn they_are_so_where_caches_are_in_the_graph() {
    tokens_agree(&VulkanOptions::default(), "4w", (DType::F32, KvCache::InGraph), 1e-4);
    tokens_agree(&VulkanOptions::default(), "4w", (DType::BF16, KvCache::InGraph), 5e-2);
}

#[test]
fn they_are_so_where_a_device_has_the_least_features() {
    let least = VulkanOptions { at_most: Some(Features::LEAST), ..VulkanOptions::default() };
    for scheme in ["4w", "mxfp4", "nvfp4"] {
        tokens_agree(&least, scheme, (DType::F32, KvCache::OffGraph), 1e-4);
    }
}

#[test]
fn a_token_after_the_first_records_nothing_and_takes_few_kernels() {
    let Some(vulkan) = open(&VulkanOptions::default()) else { return };
    let program = program(&decoder("4w", DType::BF16, KvCache::OffGraph), Some(&vulkan), Precision::Exact);
    let mut session = program.session().unwrap();
    let mut one = |at: usize| -> Counts {
        let before = vulkan.counts();
        read(&mut session, &[token(at)], at);
        let after = vulkan.counts();
        Counts {
            runs: after.runs - before.runs,
            recorded: after.recorded - before.recorded,
            replayed: after.replayed - before.replayed,
            dispatches: after.dispatches - before.dispatches,
            host: after.host - before.host,
        }
    };
    let first = one(0);
    assert_eq!((first.runs, first.recorded, first.replayed), (1, 1, 0));
    // A layer: products of queries, keys and values; rope, cache and attention; its product; the gate; its product. Besides: the
    // embedding's four, the first norm, the last norm, the head and what gives the logits.
    let most = 5 * LAYERS as u64 + 10;
    assert!(first.dispatches <= most, "{} kernels", first.dispatches);
    let mut host = Vec::new();
    for at in 1..100 {
        let next = one(at);
        assert_eq!((next.runs, next.recorded, next.replayed), (1, 0, 1), "token {at}");
        assert_eq!(next.dispatches, first.dispatches);
        host.push(next.host);
    }
    host.sort();
    #[allow(clippy::print_stdout)] // a figure
    {
        println!("{} kernels a token, {:?} of the host (median)", first.dispatches, host[host.len() / 2]);
    }
}
