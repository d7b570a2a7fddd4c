//! A tiny Voxtral from a Hugging Face folder, held to what transformers computes (`make_voxtral.py`).

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod speech;

use std::path::Path;

use pteron_checkpoint::{Checkpoint, ExportOptions};
use pteron_companion::{Speech, Voxtral};
use pteron_runtime::{Program, Session, Value};
use pteron_tensor::{DType, HostTensor};
use speech::{Expected, data, difference, exported, floats};

const EXPECTED: Expected = Expected(include_bytes!("data/voxtral_expected.safetensors"));
const CLOSE: f32 = 2e-4;
const WIDTH: usize = 32;

fn program(folder: &Path, options: &ExportOptions) -> Program {
    let checkpoint = Checkpoint::open(folder).unwrap();
    assert_eq!(checkpoint.speech, Some(Speech::Voxtral(Voxtral { mels: 16, frames: 16 })));
    exported(&checkpoint, options)
}

fn embedded(session: &mut Session, ids: &[i64]) -> Vec<f32> {
    let ids = HostTensor::from_slice(vec![1, ids.len()], ids).unwrap();
    floats(&session.run("token_embedding", &[ids.into()]).unwrap()[0])
}

/// The same folder with the names that files of 2025 have.
fn renamed(folder: &Path) {
    std::fs::copy(data("voxtral/config.json"), folder.join("config.json")).unwrap();
    let bytes = std::fs::read(data("voxtral/model.safetensors")).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[8..8 + length]).unwrap();
    let header = header
        .replace("\"model.audio_tower.", "\"audio_tower.")
        .replace("\"model.multi_modal_projector.", "\"multi_modal_projector.")
        .replace("\"model.language_model.", "\"language_model.model.")
        .replace("\"lm_head.", "\"language_model.lm_head.");
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(&bytes[8 + length..]);
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
}

#[test]
fn every_step_is_what_transformers_computes() {
    let old = tempfile::tempdir().unwrap();
    renamed(old.path());
    let own = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    let theirs = ExportOptions { activations: DType::F32, ..ExportOptions::for_executorch() };
    for (folder, options, is_number) in [
        (data("voxtral"), &own, true),
        (old.path().to_owned(), &own, true),
        (data("voxtral"), &theirs, false),
    ] {
        let program = program(&folder, options);
        let mut session = program.session().unwrap();
        let mut heard = Vec::new();
        for window in EXPECTED.floats("features").chunks(16 * 16) {
            let window = HostTensor::from_slice(vec![1, 16, 16], window).unwrap();
            heard.extend(floats(&session.run("audio_encoder", &[window.into()]).unwrap()[0]));
        }
        let off = difference(&heard, &EXPECTED.floats("rows"));
        assert!(off < CLOSE, "the encoder is off by {off}");
        let mut rows = embedded(&mut session, &[1, 3, 25]);
        rows.extend(heard);
        rows.extend(embedded(&mut session, &[4, 30, 31, 34]));
        let mut position = 0;
        for (step, (wanted, token)) in
            EXPECTED.floats("logits").chunks(48).zip(EXPECTED.integers("tokens")).enumerate()
        {
            let count = rows.len() / WIDTH;
            let at: Value = match is_number {
                true => Value::Int(position as i64),
                false => HostTensor::from_slice(vec![1], &[position as i64]).unwrap().into(),
            };
            let input = HostTensor::from_slice(vec![1, count, WIDTH], &rows).unwrap();
            let logits = floats(&session.run("text_decoder", &[input.into(), at]).unwrap()[0]);
            let off = difference(&logits, wanted);
            assert!(off < CLOSE, "step {step} is off by {off}");
            position += count;
            rows = embedded(&mut session, &[token]);
        }
    }
}
