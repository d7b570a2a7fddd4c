//! Tiny encoders as transformers and sentence-transformers save them, against what those compute with them: vectors of texts of several
//! lengths, and numbers for pairs. The set is packed by `conformance/make_encoders.py`.

#![allow(clippy::unwrap_used, clippy::panic)] // whatever cannot be had fails its test

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::Path;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_runtime::{Options, Program};
use pteron_tensor::{Bytes, DType, HostTensor};
use serde_json::Value as Json;
use tempfile::TempDir;
use zip::ZipArchive;

/// The checkpoint of each case, unpacked, and what it must give.
fn cases() -> BTreeMap<String, (TempDir, Json)> {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/encoders.zip");
    let mut archive = ZipArchive::new(Cursor::new(std::fs::read(set).unwrap())).unwrap();
    let mut cases: BTreeMap<String, (TempDir, Json)> = BTreeMap::new();
    for at in 0..archive.len() {
        let mut member = archive.by_index(at).unwrap();
        let name = member.name().unwrap().into_owned();
        let (case, path) = name.split_once('/').unwrap();
        let (folder, said) =
            cases.entry(case.to_owned()).or_insert_with(|| (TempDir::new().unwrap(), Json::Null));
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        match path.strip_prefix("checkpoint/") {
            Some(path) => {
                let place = folder.path().join(path);
                std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                std::fs::write(place, bytes).unwrap();
            }
            None => *said = serde_json::from_slice(&bytes).unwrap(),
        }
    }
    cases
}

fn program(folder: &Path) -> (Program, String) {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let options = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    let export = Export::new(&checkpoint, &options).unwrap();
    let mut file = Vec::new();
    export.write(&mut file, &mut |_| ()).unwrap();
    let encoder = checkpoint.encoder.as_ref().unwrap();
    let program = Program::load("model.pte", Bytes::copy_of(&file), &[], &Options::default()).unwrap();
    (program, encoder.method.clone())
}

#[test]
fn every_encoder_gives_the_numbers_of_transformers() {
    let cases = cases();
    assert!(cases.len() >= 9, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for (name, (folder, said)) in &cases {
        let (program, method) = program(folder.path());
        let has_kinds = program.method(&method).unwrap().inputs.len() > 1;
        let mut session = program.session().unwrap();
        for text in said["texts"].as_array().unwrap() {
            let list = |key: &str| -> Vec<i64> {
                text[key].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
            };
            let tensor = |ids: Vec<i64>| HostTensor::from_slice(vec![1, ids.len()], &ids).unwrap().into();
            let mut inputs = vec![tensor(list("tokens"))];
            if has_kinds {
                inputs.push(tensor(list("types")));
            }
            let outputs = session.run(&method, &inputs).unwrap();
            let got = outputs[0].to_tensor().unwrap().unwrap();
            let got = got.as_slice::<f32>().unwrap();
            let wanted = text["numbers"].as_array().unwrap();
            assert_eq!(got.len(), wanted.len(), "{name}");
            let off = got
                .iter()
                .zip(wanted)
                .map(|(got, wanted)| (f64::from(*got) - wanted.as_f64().unwrap()).abs());
            let off = off.fold(0.0, f64::max);
            if off.is_nan() || off > said["atol"].as_f64().unwrap() {
                wrong.push(format!("{name}, {} tokens: off by {off}", list("tokens").len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_encoders_say_of_themselves_follows_the_files_beside_them() {
    let cases = cases();
    let said = |name: &str| Checkpoint::open(cases[name].0.path()).unwrap().encoder.unwrap();
    let vectors = said("bert-mean");
    assert_eq!((vectors.method.as_str(), vectors.numbers, vectors.tokens), ("embed", 32, 24));
    let scores = said("xlm-roberta-score");
    // Two of the positions are not a text's.
    assert_eq!((scores.method.as_str(), scores.numbers, scores.tokens), ("score", 3, 38));
}

#[test]
fn modules_that_are_not_built_are_refused() {
    let cases = cases();
    let folder = cases["bert-mean"].0.path();
    let modules = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"#;
    std::fs::write(folder.join("modules.json"), modules).unwrap();
    let error = Checkpoint::open(folder).err().unwrap().to_string();
    assert!(error.contains("Dense"), "{error}");
    let two = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#;
    let modules = r#"[{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;
    std::fs::write(folder.join("modules.json"), modules).unwrap();
    std::fs::write(folder.join("1_Pooling/config.json"), two).unwrap();
    let error = Checkpoint::open(folder).err().unwrap().to_string();
    assert!(error.contains("2 ways"), "{error}");
}
