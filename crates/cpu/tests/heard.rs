//! Lanes whose texts are about one sound: they are given the same keys and values, which are read once for all of them.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

mod how;

use how::{How, apart, load, paths};
use pteron_format::WriteOptions;
use pteron_models::architectures::Whisper;
use pteron_models::{Config, Model, ModelOptions, Quantization, RandomWeights};
use pteron_runtime::{Lane, Precision, Program, RunControl, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::sync::Arc;

const LAYERS: usize = if cfg!(miri) { 1 } else { 2 };
const HEADS: usize = if cfg!(miri) { 1 } else { 4 };
const HEAD: usize = if cfg!(miri) { 8 } else { 32 };
const WIDTH: usize = HEAD * HEADS;
/// Of the layers between attention, which are not looked at here.
const WIDER: usize = if cfg!(miri) { 8 } else { 256 };
const VOCABULARY: usize = if cfg!(miri) { 16 } else { 64 };
/// More than a block of keys, and more than a range that is worth a task; Miri takes minutes for so many.
const PLACES: usize = if cfg!(miri) { 5 } else { 700 };

fn file(packing: Option<&str>) -> Bytes {
    let config = serde_json::json!({
        "vocab_size": VOCABULARY, "num_mel_bins": 4, "d_model": WIDTH, "encoder_layers": 1, "encoder_attention_heads": HEADS,
        "encoder_ffn_dim": WIDER, "decoder_layers": LAYERS, "decoder_attention_heads": HEADS, "decoder_ffn_dim": WIDER,
        "max_source_positions": PLACES, "max_target_positions": 40,
    });
    let whisper = Whisper::read(&Config::new(config).unwrap()).unwrap();
    let quantization =
        packing.map_or_else(Quantization::default, |packing| Quantization::of(packing.parse().unwrap()));
    let options = ModelOptions {
        activations: DType::F32,
        cache: DType::F32,
        context: 40,
        chunk: 8,
        quantization,
        ..ModelOptions::default()
    };
    let model = Model::build(&whisper, Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    Bytes::copy_of(&bytes)
}

/// Keys and values of a sound.
fn sound(seed: usize) -> Vec<Value> {
    let part = |number: usize| -> Value {
        let len = PLACES * WIDTH;
        let value = |at: usize| ((at * 7919 + number * 104_729 + seed * 31) % 2003) as f32 / 1001.5 - 1.0;
        let values: Vec<f32> = (0..len).map(value).collect();
        HostTensor::from_slice(vec![1, HEADS, PLACES, HEAD], &values).unwrap().into()
    };
    (0..2 * LAYERS).map(part).collect()
}

/// What a lane is told in each round: one token, or in one of them more, of a text of its own.
fn rounds(lane: usize, sound: &[Value]) -> Vec<Vec<Value>> {
    let mut position = 0;
    let lengths = [1, if lane % 4 == 1 { 3 } else { 1 }, 1, 1];
    let round = |length: usize| {
        let tokens: Vec<i64> =
            (position..position + length).map(|at| ((at * 13 + lane * 29 + 5) % VOCABULARY) as i64).collect();
        let mut inputs: Vec<Value> = vec![
            HostTensor::from_slice(vec![1, length], &tokens).unwrap().into(),
            HostTensor::from_slice(vec![1], &[position as i64]).unwrap().into(),
        ];
        position += length;
        inputs.extend(sound.iter().cloned());
        inputs
    };
    lengths.into_iter().take(if cfg!(miri) { 2 } else { 4 }).map(round).collect()
}

fn logits(outputs: &[Value]) -> Vec<u8> {
    outputs[0].as_tensor().unwrap().bytes().to_vec()
}

fn alone(program: &Program, lane: usize, sound: &[Value]) -> Vec<Vec<u8>> {
    let mut session = program.session().unwrap();
    rounds(lane, sound).iter().map(|inputs| logits(&session.run("decoder", inputs).unwrap())).collect()
}

/// What every lane gives beside the others; each has the sound of its number.
fn together(program: &Program, sounds: &[&[Value]]) -> Vec<Vec<Vec<u8>>> {
    let mut sessions: Vec<Session> = sounds.iter().map(|_| program.session().unwrap()).collect();
    let given: Vec<_> = sounds.iter().enumerate().map(|(lane, sound)| rounds(lane, sound)).collect();
    let mut outputs = vec![Vec::new(); sounds.len()];
    let mut all = vec![Vec::new(); sounds.len()];
    let control = RunControl::default();
    for round in 0..given.first().map_or(0, Vec::len) {
        let each = sessions.iter_mut().zip(&given).zip(&mut outputs);
        let mut lanes: Vec<Lane<'_>> = each
            .map(|((session, rounds), outputs)| Lane::new(session, &rounds[round], &control, outputs))
            .collect();
        Session::run_together("decoder", &mut lanes).unwrap();
        lanes.into_iter().for_each(|lane| lane.result.unwrap());
        all.iter_mut().zip(&outputs).for_each(|(all, outputs)| all.push(logits(outputs)));
    }
    all
}

/// Lanes at a time: few, whose numbers are those of each alone to the last bit, and more than are taken at once, where
/// products may sum in another order.
const FEW: &[usize] = if cfg!(miri) { &[2] } else { &[2, 5] };
const MANY: usize = if cfg!(miri) { 0 } else { 20 };
const PACKINGS: &[Option<&str>] = if cfg!(miri) { &[None] } else { &[None, Some("8w")] };
const PRECISIONS: &[Precision] =
    if cfg!(miri) { &[Precision::Fast] } else { &[Precision::Exact, Precision::Fast] };

#[test]
fn texts_about_one_sound_are_what_each_is_alone() {
    let [one, other] = [sound(1), sound(2)];
    for &packing in PACKINGS {
        let file = file(packing);
        for (path, &precision) in paths().flat_map(|path| PRECISIONS.iter().map(move |how| (path, how))) {
            let program = load(&file, &How { precision, ..How::on(path) });
            let what =
                |lane: usize, lanes: usize| format!("{packing:?} {path} {precision:?}: {lane} of {lanes}");
            let by_one: Vec<_> = (0..MANY.max(4)).map(|lane| alone(&program, lane, &one)).collect();
            let second_by_other = alone(&program, 2, &other);
            assert!(by_one[2] != second_by_other, "the sound does not matter");
            for &lanes in FEW {
                for (lane, given) in together(&program, &vec![&one[..]; lanes]).iter().enumerate() {
                    assert!(*given == by_one[lane], "{}", what(lane, lanes));
                }
            }
            // One text is about something else.
            for (lane, given) in together(&program, &[&one, &one, &other, &one]).iter().enumerate() {
                let wanted = if lane == 2 { &second_by_other } else { &by_one[lane] };
                assert!(given == wanted, "{}", what(lane, 4));
            }
            for (lane, given) in together(&program, &[&one[..]; MANY]).iter().enumerate() {
                let off = apart(given, &by_one[lane]);
                assert!(off < 0.02, "{} is off by {off}", what(lane, MANY));
            }
        }
    }
}
