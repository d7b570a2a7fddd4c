//! A tiny Whisper from a Hugging Face folder and from OpenAI's file, held to what transformers computes (`make_whisper.py`).

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod speech;

use pteron_checkpoint::{Checkpoint, ExportOptions};
use pteron_companion::{Whisper, WhisperTokens};
use pteron_models::Quantization;
use pteron_runtime::Value;
use pteron_speech::whisper::search::Branch;
use pteron_speech::whisper::{Engine, WhisperProgram};
use pteron_tensor::{DType, HostTensor};
use speech::{Expected, data, difference, exported, floats};

const EXPECTED: Expected = Expected(include_bytes!("data/whisper_expected.safetensors"));
const CLOSE: f32 = 1e-4;

fn tokens(ids: &[i64], position: i64, cross: &[Value]) -> Vec<Value> {
    let mut inputs: Vec<Value> = vec![
        HostTensor::from_slice(vec![1, ids.len()], ids).unwrap().into(),
        HostTensor::from_slice(vec![1], &[position]).unwrap().into(),
    ];
    inputs.extend(cross.iter().cloned());
    inputs
}

#[test]
fn every_step_is_what_transformers_computes() {
    let options = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    let ids = [1i64, 17, 5, 5, 30, 2, 8];
    for source in ["whisper", "whisper.pt"] {
        let checkpoint = Checkpoint::open(&data(source)).unwrap();
        let program = exported(&checkpoint, &options);
        let mut session = program.session().unwrap();
        let features = HostTensor::from_slice(vec![1, 16, 24], &EXPECTED.floats("features")).unwrap();
        let hidden = session.run("encoder", &[features.into()]).unwrap();
        let off = difference(&floats(&hidden[0]), &EXPECTED.floats("hidden"));
        assert!(off < CLOSE, "{source}: the encoder is off by {off}");
        let cross = session.run("cross_kv", &hidden).unwrap();
        let logits = EXPECTED.floats("logits");
        for (at, (id, wanted)) in ids.iter().zip(logits.chunks(64)).enumerate() {
            let given = session.run("decoder", &tokens(&[*id], at as i64, &cross)).unwrap();
            let off = difference(&floats(&given[0]), wanted);
            assert!(off < CLOSE, "{source}: step {at} is off by {off}");
        }
        let given = session.run("decoder", &tokens(&ids, 0, &cross)).unwrap();
        assert!(difference(&floats(&given[0]), &logits[6 * 64..]) < CLOSE, "{source}: all at once");
        // OpenAI's file does not say which heads follow the sound, and this one is none that is known.
        assert_eq!(program.method("alignment").is_ok(), source == "whisper");
    }
}

#[test]
fn heads_that_follow_the_sound_look_where_transformers_has_them_look() {
    let options = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    let program = exported(&Checkpoint::open(&data("whisper")).unwrap(), &options);
    let mut session = program.session().unwrap();
    let features = HostTensor::from_slice(vec![1, 16, 24], &EXPECTED.floats("features")).unwrap();
    let hidden = session.run("encoder", &[features.into()]).unwrap();
    let cross = session.run("cross_kv", &hidden).unwrap();
    let scores = session.run("alignment", &tokens(&[1, 17, 5, 5, 30, 2, 8], 0, &cross)).unwrap();
    let softmax = |row: &[f32]| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| (x - most).exp() / sum).collect::<Vec<f32>>()
    };
    let weights: Vec<f32> = scores
        .iter()
        .flat_map(|head| floats(head).chunks(12).flat_map(softmax).collect::<Vec<_>>())
        .collect();
    let off = difference(&weights, &EXPECTED.floats("weights"));
    assert!(off < CLOSE, "off by {off}");
}

#[test]
fn both_forms_give_the_same_program_in_eight_bits() {
    let quantization =
        Quantization { scheme: Some("8w".parse().unwrap()), group: Some(32), ..Quantization::default() };
    let options = ExportOptions { activations: DType::F32, quantization, ..ExportOptions::default() };
    let logits = |source: &str| {
        let program = exported(&Checkpoint::open(&data(source)).unwrap(), &options);
        let mut session = program.session().unwrap();
        let features = HostTensor::from_slice(vec![1, 16, 24], &EXPECTED.floats("features")).unwrap();
        let hidden = session.run("encoder", &[features.into()]).unwrap();
        let cross = session.run("cross_kv", &hidden).unwrap();
        floats(&session.run("decoder", &tokens(&[1, 17, 5], 0, &cross)).unwrap()[0])
    };
    let (folder, file) = (logits("whisper"), logits("whisper.pt"));
    assert_eq!(folder, file);
    let wanted = &EXPECTED.floats("logits")[2 * 64..3 * 64];
    let size = wanted.iter().map(|x| x.abs()).fold(0.0, f32::max);
    assert!(difference(&folder, wanted) < 0.05 * size);
}

#[test]
fn other_files_of_torch_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.pt");
    // The same file with another name for its sizes.
    let mut bytes = std::fs::read(data("whisper.pt")).unwrap();
    let at = bytes.windows(4).position(|window| window == b"dims").unwrap();
    bytes[at..at + 4].copy_from_slice(b"mids");
    std::fs::write(&path, &bytes).unwrap();
    let error = Checkpoint::open(&path).err().unwrap().to_string();
    assert!(error.contains("no Whisper") || error.contains("checksum"), "{error}");
    for length in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        assert!(Checkpoint::open(&path).is_err(), "{length} bytes");
    }
}

#[test]
fn texts_beside_each_other_are_what_each_is_alone() {
    let options = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    let program = exported(&Checkpoint::open(&data("whisper")).unwrap(), &options);
    let tokens = WhisperTokens {
        end: 50,
        start: 51,
        languages: Vec::new(),
        translate: 52,
        transcribe: 53,
        previous: 54,
        no_speech: 55,
        no_times: 56,
        first_time: 57,
    };
    let info = Whisper { mels: 16, frames: 24, positions: 20, tokens, alignment_heads: Vec::new() };
    let mut engines: [WhisperProgram; 2] = std::array::from_fn(|_| {
        WhisperProgram::new(std::slice::from_ref(&program), Some(info.clone()), None).unwrap()
    });
    engines.iter_mut().for_each(|engine| engine.hear(&EXPECTED.floats("features")).unwrap());
    let [beside, alone] = &mut engines;
    let mut logits = Vec::new();
    let mut check = |texts: &[Vec<u32>], given: &[Vec<f32>]| {
        assert_eq!(texts.len(), given.len());
        for (text, given) in texts.iter().zip(given) {
            alone.read(text, 0, &mut logits).unwrap();
            let off = difference(given, &logits);
            assert!(off < CLOSE, "{text:?} is off by {off}");
        }
    };
    // Texts that split, swap places, end, and are one again; twice, since what is left of the first time must not count.
    let steps: [&[(usize, u32)]; 6] = [
        &[(0, 5), (0, 30), (0, 2)],
        &[(1, 7), (1, 8), (0, 9)],
        &[(2, 3), (0, 4), (1, 6), (0, 11)],
        &[(3, 12), (3, 13)],
        &[(1, 14), (0, 15), (1, 16), (0, 17), (1, 18)],
        &[(4, 19)],
    ];
    for prompt in [vec![1, 17], vec![3, 4, 5]] {
        let (mut first, mut given) = (Vec::new(), Vec::new());
        beside.read(&prompt, 0, &mut first).unwrap();
        check(std::slice::from_ref(&prompt), &[first]);
        // From the same place twice, as a second attempt at a text begins.
        for attempt in 0..2 {
            let mut texts = vec![prompt.clone()];
            for (at, step) in steps.iter().enumerate().skip(attempt) {
                let step = if texts.len() == 1 { steps[0] } else { step };
                let branches: Vec<Branch> =
                    step.iter().map(|&(from, token)| Branch { from, token }).collect();
                texts = branches.iter().map(|to| [&texts[to.from][..], &[to.token]].concat()).collect();
                beside.follow(&branches, prompt.len() + at - attempt, &mut given).unwrap();
                check(&texts, &given);
            }
        }
    }
    assert!(beside.follow(&[Branch { from: 1, token: 3 }], 4, &mut Vec::new()).is_err(), "there is one text");
}
