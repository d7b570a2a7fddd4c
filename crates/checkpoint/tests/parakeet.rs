//! Tiny Parakeets from Hugging Face folders and NVIDIA's files, held to what transformers computes (`make_parakeet.py`).

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod speech;

use pteron_checkpoint::{Checkpoint, ExportOptions};
use pteron_companion::Speech;
use pteron_models::Quantization;
use pteron_runtime::{Program, Session, Value};
use pteron_tensor::{DType, HostTensor};
use speech::{Expected, data, difference, exported, floats};

const EXPECTED: Expected = Expected(include_bytes!("data/parakeet_expected.safetensors"));
const CLOSE: f32 = 2e-4;
const MELS: usize = 16;
const BLANK: i64 = 23;
const FRAMES: [usize; 4] = [83, 8, 1, 150];

fn said(name: &str) -> Vec<[i64; 3]> {
    EXPECTED.integers(name).as_chunks::<3>().0.to_vec()
}

fn program(source: &str, options: &ExportOptions) -> Program {
    exported(&Checkpoint::open(&data(source)).unwrap(), options)
}

fn exact() -> ExportOptions {
    ExportOptions { activations: DType::F32, ..ExportOptions::default() }
}

fn number(value: &Value) -> i64 {
    value.to_tensor().unwrap().unwrap().as_slice::<i64>().unwrap()[0]
}

/// Features that are stored frame by frame, as the program takes them: band by band.
fn features(frames: usize) -> Value {
    let stored = EXPECTED.floats(&format!("features.{frames}"));
    let mut bands = vec![0.0; stored.len()];
    for (n, frame) in stored.chunks(MELS).enumerate() {
        frame.iter().enumerate().for_each(|(band, &value)| bands[band * frames + n] = value);
    }
    HostTensor::from_slice(vec![1, MELS, frames], &bands).unwrap().into()
}

/// The tokens of a window, by the rule that the model was trained with and nothing else.
fn transduced(session: &mut Session, places: &[f32], symbols: usize) -> Vec<[i64; 3]> {
    let width = 32;
    let count = places.len() / width;
    let zeros: Value = HostTensor::from_slice(vec![2, 1, width], &vec![0.0f32; 2 * width]).unwrap().into();
    let token = |id: i64| Value::from(HostTensor::from_slice(vec![1, 1], &[id]).unwrap());
    let mut text = session.run("decoder_step", &[token(BLANK), zeros.clone(), zeros]).unwrap();
    let (mut at, mut here, mut said) = (0, 0, Vec::new());
    while at < count {
        let place = &places[at * width..(at + 1) * width];
        let place: Value = HostTensor::from_slice(vec![1, 1, width], place).unwrap().into();
        let given = session.run("joint", &[place, text[0].clone()]).unwrap();
        let (id, lasts) = (number(&given[0]), given.get(1).map(number));
        if id == BLANK {
            at += lasts.unwrap_or(1).max(1) as usize;
            here = 0;
            continue;
        }
        said.push([id, at as i64, lasts.unwrap_or(1)]);
        text = session.run("decoder_step", &[token(id), text[1].clone(), text[2].clone()]).unwrap();
        here += 1;
        match lasts {
            Some(lasts) => at += lasts as usize,
            None if here == symbols => (at, here) = (at + 1, 0),
            None => {}
        }
    }
    said
}

#[test]
fn transducers_say_what_transformers_says_in_every_step() {
    for (source, name, symbols) in [
        ("parakeet_tdt", "parakeet_tdt", 10),
        ("parakeet_tdt.nemo", "parakeet_tdt", 10),
        ("parakeet_rnnt", "parakeet_rnnt", 3),
    ] {
        let program = program(source, &exact());
        let mut session = program.session().unwrap();
        for frames in FRAMES {
            let places = floats(&session.run("encoder", &[features(frames)]).unwrap()[0]);
            let off = difference(&places, &EXPECTED.floats(&format!("{name}.{frames}.places")));
            assert!(off < CLOSE, "{source}: the encoder is off by {off} over {frames} frames");
            let wanted = said(&format!("{name}.{frames}.said"));
            assert_eq!(transduced(&mut session, &places, symbols), wanted, "{source}: {frames} frames");
        }
    }
}

#[test]
fn places_can_be_asked_for_together() {
    let program = program("parakeet_tdt", &exact());
    let mut session = program.session().unwrap();
    let places = floats(&session.run("encoder", &[features(83)]).unwrap()[0]);
    let zeros: Value = HostTensor::from_slice(vec![2, 1, 32], &[0.0f32; 64]).unwrap().into();
    let blank = HostTensor::from_slice(vec![1, 1], &[BLANK]).unwrap().into();
    let text = session.run("decoder_step", &[blank, zeros.clone(), zeros]).unwrap();
    let mut ask = |from: usize, count: usize| {
        let part = &places[from * 32..(from + count) * 32];
        let part = HostTensor::from_slice(vec![1, count, 32], part).unwrap().into();
        let given = session.run("joint", &[part, text[0].clone()]).unwrap();
        let numbers = |value: &Value| value.to_tensor().unwrap().unwrap().as_slice::<i64>().unwrap().to_vec();
        (numbers(&given[0]), numbers(&given[1]))
    };
    let (tokens, durations) = ask(0, 11);
    let one_by_one: Vec<_> = (0..11).map(|at| ask(at, 1)).map(|(t, d)| (t[0], d[0])).collect();
    assert_eq!(tokens.into_iter().zip(durations).collect::<Vec<_>>(), one_by_one);
}

#[test]
fn ctc_scores_are_those_of_transformers() {
    for source in ["parakeet_ctc", "parakeet_ctc.nemo"] {
        let program = program(source, &exact());
        let mut session = program.session().unwrap();
        for frames in FRAMES {
            let scores = floats(&session.run("ctc", &[features(frames)]).unwrap()[0]);
            let off = difference(&scores, &EXPECTED.floats(&format!("parakeet_ctc.{frames}.places")));
            assert!(off < 5.0 * CLOSE, "{source}: off by {off} over {frames} frames");
        }
    }
}

#[test]
fn eight_bits_are_near() {
    let quantization =
        Quantization { scheme: Some("8w".parse().unwrap()), group: Some(32), ..Quantization::default() };
    let options = ExportOptions { quantization, ..exact() };
    let program = program("parakeet_tdt", &options);
    let places = program.session().unwrap().run("encoder", &[features(83)]).unwrap();
    let wanted = EXPECTED.floats("parakeet_tdt.83.places");
    let size = wanted.iter().map(|x| x.abs()).fold(0.0, f32::max);
    let off = difference(&floats(&places[0]), &wanted);
    assert!(off < 0.05 * size, "off by {off} of {size}");
}

#[test]
fn both_forms_describe_the_same_model() {
    for name in ["parakeet_tdt", "parakeet_ctc"] {
        let folder = Checkpoint::open(&data(name)).unwrap();
        let file = Checkpoint::open(&data(&format!("{name}.nemo"))).unwrap();
        assert_eq!(folder.speech, file.speech);
        assert!(
            matches!(&file.speech, Some(Speech::Parakeet(info)) if info.blank == 23 && info.mels == MELS)
        );
        assert!(file.tokenizer.is_some());
    }
}

#[test]
fn broken_archives_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.nemo");
    let whole = std::fs::read(data("parakeet_ctc.nemo")).unwrap();
    for length in [0, 300, 511, 512, 1000, 3000, whole.len() / 2] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(Checkpoint::open(&path).is_err(), "{length} bytes");
    }
    let without = |name: &[u8]| {
        let mut bytes = whole.clone();
        let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
        bytes[at] = b'x';
        bytes
    };
    for name in ["model_config.yaml", "model_weights.ckpt"] {
        std::fs::write(&path, without(name.as_bytes())).unwrap();
        // The checksum of the header may be what is noticed.
        let error = Checkpoint::open(&path).err().unwrap().to_string();
        assert!(
            error.contains("missing") || error.contains("checksum") || error.contains("cksum"),
            "{error}"
        );
    }
    let mut other = whole.clone();
    let at = other.windows(10).position(|window| window == b"batch_norm").unwrap();
    other[at..at + 10].copy_from_slice(b"layer_norm");
    std::fs::write(&path, other).unwrap();
    let error = Checkpoint::open(&path).err().unwrap().to_string();
    assert!(error.contains("conv_norm_type") && error.contains("layer_norm"), "{error}");
}
