//! Sessions that share runs: each gives what it gives alone, however they come and go, and one that fails leaves the others alone.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod device;

use pteron_format::WriteOptions;
use pteron_gpu::Features;
use pteron_models::architectures::Llama;
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Logits, Model, ModelOptions, Position, Quantization, RandomWeights};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Lane, Options, Program, RunControl, Session, SessionOptions, Span, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use pteron_vulkan::{VulkanBackend, VulkanOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const VOCAB: usize = 1536;

fn decoder(activations: DType, position: Position) -> Vec<u8> {
    let llama = Llama {
        hidden_size: 64,
        intermediate_size: 128,
        num_hidden_layers: 2,
        vocab_size: VOCAB,
        max_position_embeddings: 512,
        ..tiny::llama()
    };
    let options = ModelOptions {
        activations,
        cache: activations,
        kv: KvCache::OffGraph,
        position,
        logits: Logits::Selected,
        context: 512,
        chunk: 64,
        quantization: Quantization::of("4w".parse().unwrap()),
        ..ModelOptions::default()
    };
    let model = Model::build(&llama, Arc::new(RandomWeights::new(3)), options).unwrap();
    let mut file = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut file).unwrap();
    file
}

fn loaded(options: &VulkanOptions, file: &[u8]) -> Option<(Arc<VulkanBackend>, Program)> {
    // Says so where there is no device.
    device::open_with(options)?;
    let vulkan = Arc::new(VulkanBackend::open(options).unwrap());
    let mut registry = Registry::default();
    registry.add(vulkan.clone());
    let options = Options { backend: Some("vulkan".into()), registry, ..Options::default() };
    Some((vulkan, Program::load("decoder", Bytes::copy_of(file), &[], &options).unwrap()))
}

fn integers(shape: Vec<usize>, numbers: &[i64]) -> Value {
    HostTensor::from_slice(shape, numbers).unwrap().into()
}

/// What a call of some tokens is given; it gives the logits of the last.
fn call(tokens: &[i64], position: usize) -> [Value; 3] {
    let last = tokens.len() as i64 - 1;
    [integers(vec![1, tokens.len()], tokens), Value::Int(position as i64), integers(vec![1], &[last])]
}

fn scores(value: &Value) -> Vec<f32> {
    let scores = value.to_tensor().unwrap().unwrap();
    let scores = pteron_runtime::reference::cast(&scores, DType::F32).unwrap();
    scores.as_slice::<f32>().unwrap().to_vec()
}

fn difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// A text in a session beside others, and the same alone.
struct Text {
    shared: Session,
    alone: Session,
    next: i64,
    position: usize,
}

impl Text {
    fn new(program: &Program, prompt: &[i64]) -> Text {
        let mut text = Text {
            shared: program.session().unwrap(),
            alone: program.session().unwrap(),
            next: prompt[0] + 7,
            position: prompt.len(),
        };
        for session in [&mut text.shared, &mut text.alone] {
            session.run("forward", &call(prompt, 0)).unwrap();
        }
        text
    }
}

/// A step of each; the largest difference between what it gives beside the others and alone.
fn step(texts: &mut [Text]) -> f32 {
    let control = RunControl::default();
    let inputs: Vec<_> = texts.iter().map(|text| call(&[text.next], text.position)).collect();
    let mut outputs = vec![Vec::new(); texts.len()];
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for ((text, inputs), outputs) in texts.iter_mut().zip(&inputs).zip(&mut outputs) {
        lanes.push(Lane::new(&mut text.shared, inputs, &control, outputs));
    }
    Session::run_together("forward", &mut lanes).unwrap();
    lanes.into_iter().for_each(|lane| lane.result.unwrap());
    let each = texts.iter_mut().zip(inputs).zip(outputs).map(|((text, inputs), outputs)| {
        let alone = text.alone.run("forward", &inputs).unwrap();
        let Value::Device(shared) = &outputs[0] else { panic!("{outputs:?}") };
        let likeliest = shared.argmax_last(DType::I64, &[1, 1]).unwrap().unwrap().to_host().unwrap();
        let (one, other) = (scores(&outputs[0]), scores(&alone[0]));
        text.next = likeliest.as_slice::<i64>().unwrap()[0];
        let most = one.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(one[text.next as usize], most);
        text.position += 1;
        difference(&one, &other)
    });
    each.fold(0.0, f32::max)
}

#[test]
fn sessions_that_share_runs_give_what_each_gives_alone() {
    let least = VulkanOptions { at_most: Some(Features::LEAST), ..VulkanOptions::default() };
    for (options, activations, lanes, most) in [
        (VulkanOptions::default(), DType::F32, 5, 1e-4),
        (VulkanOptions::default(), DType::BF16, 8, 0.1),
        (VulkanOptions::default(), DType::F32, 19, 1e-3),
        (least, DType::F32, 3, 1e-4),
    ] {
        let Some((vulkan, program)) = loaded(&options, &decoder(activations, Position::Number)) else {
            return;
        };
        // Texts of several lengths.
        let prompt = |lane: i64| -> Vec<i64> { (0..=lane % 7).map(|at| 31 * lane + 11 * at + 1).collect() };
        let mut texts: Vec<Text> = (0..lanes).map(|lane| Text::new(&program, &prompt(lane))).collect();
        for _ in 0..6 {
            let off = step(&mut texts);
            assert!(off <= most, "{lanes} lanes of {activations}: off by {off}");
        }
        let before = vulkan.counts();
        let off = step(&mut texts);
        let runs = vulkan.counts().runs - before.runs;
        assert!(off <= most, "{lanes} lanes of {activations}: off by {off}");
        // What is cut at ops that the device cannot run goes lane by lane.
        if options.at_most.is_none() {
            assert_eq!(runs, 1 + lanes as u64, "one run for all, and each alone");
        }
        // One goes, one goes back, one comes.
        texts.remove(1);
        let back = &mut texts[0];
        back.position -= 3;
        back.shared.rewind_to(back.position).unwrap();
        back.alone.rewind_to(back.position).unwrap();
        texts.push(Text::new(&program, &[5, 6, 7, 8]));
        for _ in 0..3 {
            let off = step(&mut texts);
            assert!(off <= most, "{lanes} lanes of {activations}, others: off by {off}");
        }
    }
}

#[test]
fn shared_runs_are_replayed() {
    let file = decoder(DType::BF16, Position::Number);
    let Some((vulkan, program)) = loaded(&VulkanOptions::default(), &file) else { return };
    let mut texts: Vec<Text> = (0..4).map(|lane| Text::new(&program, &[lane + 1, lane + 2])).collect();
    for _ in 0..4 {
        step(&mut texts);
    }
    let before = vulkan.counts();
    for _ in 0..4 {
        step(&mut texts);
    }
    let after = vulkan.counts();
    assert_eq!((after.recorded - before.recorded, after.replayed - before.replayed), (0, 4 * (1 + 4)));
}

#[test]
fn a_lane_that_fails_leaves_the_others_alone() {
    let file = decoder(DType::F32, Position::Number);
    let Some((_, program)) = loaded(&VulkanOptions::default(), &file) else { return };
    let short = SessionOptions { context: Some(2), ..SessionOptions::default() };
    let mut sessions: Vec<Session> = (0..5).map(|_| program.session().unwrap()).collect();
    sessions[1] = program.session_with(&short).unwrap();
    for session in &mut sessions {
        session.run("forward", &call(&[3, 4], 0)).unwrap();
    }
    let stopped = RunControl { cancel: Some(Arc::new(AtomicBool::new(true))), ..RunControl::default() };
    let control = RunControl::default();
    let tokens = [9, 9, 9, VOCAB as i64, 9];
    let inputs: Vec<_> = tokens.iter().map(|&token| call(&[token], 2)).collect();
    let mut outputs = vec![Vec::new(); 5];
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    let each = sessions.iter_mut().zip(&inputs).zip(&mut outputs);
    for (number, ((session, inputs), outputs)) in each.enumerate() {
        let control = if number == 2 { &stopped } else { &control };
        lanes.push(Lane::new(session, inputs, control, outputs));
    }
    Session::run_together("forward", &mut lanes).unwrap();
    let told = |lane: Lane<'_>| lane.result.map_or_else(|error| error.to_string(), |()| "fine".to_owned());
    let told: Vec<String> = lanes.into_iter().map(told).collect();
    assert_eq!((told[0].as_str(), told[4].as_str()), ("fine", "fine"));
    assert!(told[1].contains("exceed the capacity"), "{}", told[1]);
    assert!(told[2].contains("cancelled"), "{}", told[2]);
    assert!(told[3].contains("index 1536 is outside an axis of size 1536"), "{}", told[3]);
    let counts: Vec<_> = sessions[..3].iter().map(Session::cached_tokens).collect();
    assert_eq!(counts, [Some(3), Some(2), Some(2)]);
    let (one, other) = (scores(&outputs[0][0]), scores(&outputs[4][0]));
    assert_eq!(one, other);
    // Those that failed in time go on where they were.
    let again = sessions[2].run("forward", &call(&[9], 2)).unwrap();
    assert!(difference(&scores(&again[0]), &one) < 1e-4);
}

#[test]
fn flat_batches_give_what_each_text_gives_alone() {
    let file = decoder(DType::F32, Position::Each);
    let Some((_, program)) = loaded(&VulkanOptions::default(), &file) else { return };
    program.reads_flat("forward").unwrap();
    let parts: [&[i64]; 3] = [&[5], &[7, 8, 9, 10], &[11]];
    let mut sessions: Vec<Session> = (0..3).map(|_| program.session().unwrap()).collect();
    let mut alone: Vec<Session> = (0..3).map(|_| program.session().unwrap()).collect();
    let control = RunControl::default();
    let each = |part: &[i64], start: i64| (start..start + part.len() as i64).collect::<Vec<i64>>();
    for round in 0..3 {
        let starts = parts.map(|part| round * part.len() as i64);
        let positions: Vec<i64> =
            parts.iter().zip(starts).flat_map(|(part, start)| each(part, start)).collect();
        let tokens = parts.concat();
        let inputs = [
            integers(vec![1, tokens.len()], &tokens),
            integers(vec![positions.len()], &positions),
            integers(vec![3], &[0, 4, 5]),
        ];
        let spans = sessions.iter_mut().zip(parts);
        let mut spans: Vec<Span<'_>> =
            spans.map(|(session, part)| Span::new(session, part.len(), &control)).collect();
        let mut outputs = Vec::new();
        Session::run_flat("forward", &mut spans, &inputs, &mut outputs).unwrap();
        let all = scores(&outputs[0]);
        for (number, (session, part)) in alone.iter_mut().zip(parts).enumerate() {
            let inputs = [
                integers(vec![1, part.len()], part),
                integers(vec![part.len()], &each(part, starts[number])),
                integers(vec![1], &[part.len() as i64 - 1]),
            ];
            let wanted = scores(&session.run("forward", &inputs).unwrap()[0]);
            let off = difference(&all[number * VOCAB..(number + 1) * VOCAB], &wanted);
            assert!(off < 1e-3, "round {round}, text {number}: off by {off}");
        }
    }
}
