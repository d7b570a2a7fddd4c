//! A tiny model of every family, as transformers saves it, against what transformers computes with it: whole prompts, chunks
//! and single tokens, caches in the graph and outside, four bits; and GGUF files of the architectures that have them. The sets are
//! packed by `conformance/make_families.py` and `conformance/make_gguf_families.py`.

#![allow(clippy::unwrap_used, clippy::panic)] // whatever cannot be had fails its test

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_models::architectures::ROWS;
use pteron_models::{Form, KvCache, Quantization, Wanted, WeightError, WeightSource};
use pteron_runtime::{Options, Program, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use safetensors::SafeTensors;
use serde_json::Value as Json;
use tempfile::TempDir;
use zip::ZipArchive;

/// One case, unpacked.
struct Case {
    name: String,
    folder: TempDir,
    prompt: Vec<i64>,
    decode: Vec<i64>,
    greedy: Vec<i64>,
    tolerance: f32,
    /// Rows of all positions of the prompt and of what is fed behind it.
    logits: Vec<Vec<f32>>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cases() -> Vec<Case> {
    cases_of("families.zip")
}

fn cases_of(set: &str) -> Vec<Case> {
    let bytes = std::fs::read(root().join("conformance").join(set)).unwrap();
    let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut files: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for at in 0..archive.len() {
        let mut member = archive.by_index(at).unwrap();
        let name = member.name().unwrap().into_owned();
        let (case, path) = name.split_once('/').unwrap();
        let (case, path) = (case.to_owned(), path.to_owned());
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        files.entry(case).or_default().insert(path, bytes);
    }
    files.into_iter().map(|(name, files)| case(name, &files)).collect()
}

fn case(name: String, files: &BTreeMap<String, Vec<u8>>) -> Case {
    let folder = TempDir::new().unwrap();
    for (path, bytes) in files {
        if let Some(path) = path.strip_prefix("checkpoint/") {
            std::fs::write(folder.path().join(path), bytes).unwrap();
        }
    }
    let said: Json = serde_json::from_slice(&files["case.json"]).unwrap();
    let tokens = |key: &str| said[key].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
    let (prompt, decode, greedy): (Vec<i64>, Vec<i64>, Vec<i64>) =
        (tokens("prompt"), tokens("decode"), tokens("greedy"));
    let tensors = SafeTensors::deserialize(&files["io.safetensors"]).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        let (words, _) = tensors.tensor(name).unwrap().data().as_chunks::<4>();
        words.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let prefill = floats("logits.prefill");
    let mut logits: Vec<Vec<f32>> =
        prefill.chunks(prefill.len() / prompt.len()).map(<[f32]>::to_vec).collect();
    logits.extend((0..decode.len()).map(|step| floats(&format!("logits.decode.{step}"))));
    let tolerance = said["atol"].as_f64().unwrap() as f32;
    Case { name, folder, prompt, decode, greedy, tolerance, logits }
}

fn options(kv: KvCache, chunk: usize) -> ExportOptions {
    ExportOptions {
        activations: DType::F32,
        context: Some(64),
        chunk: Some(chunk),
        kv,
        ..ExportOptions::default()
    }
}

fn program(case: &Case, options: &ExportOptions) -> Program {
    let gguf = case.folder.path().join("model.gguf");
    let opened = Checkpoint::open(if gguf.exists() { &gguf } else { case.folder.path() });
    let checkpoint = opened.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    loaded(case, &checkpoint, options)
}

fn loaded(case: &Case, checkpoint: &Checkpoint, options: &ExportOptions) -> Program {
    let fail = |problem: String| -> ! { panic!("{}: {problem}", case.name) };
    let export = Export::new(checkpoint, options).unwrap_or_else(|error| fail(error.to_string()));
    // What a model computes with and an export leaves out would be told here.
    let remarks: Vec<&String> = export.remarks().iter().collect();
    assert!(remarks.is_empty(), "{}: {remarks:?}", case.name);
    let mut file = Vec::new();
    export.write(&mut file, &mut |_| ()).unwrap_or_else(|error| fail(error.to_string()));
    let loaded = Program::load("model.pte", Bytes::copy_of(&file), &[], &Options::default());
    loaded.unwrap_or_else(|error| fail(error.to_string()))
}

/// The logits of some of the tokens of an input.
fn call(session: &mut Session, tokens: &[i64], start: usize, wanted: Range<usize>) -> Vec<f32> {
    let rows: Vec<i64> = wanted.map(|row| row as i64).collect();
    let rows = HostTensor::from_slice(vec![rows.len()], &rows).unwrap();
    let tokens = HostTensor::from_slice(vec![1, tokens.len()], tokens).unwrap();
    let outputs = session.run("forward", &[tokens.into(), Value::Int(start as i64), rows.into()]).unwrap();
    outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// Logits of all tokens, given in inputs of so many.
fn all_logits(case: &Case, program: &Program, chunk: usize) -> Vec<Vec<f32>> {
    let mut session = program.session().unwrap();
    let tokens: Vec<i64> = case.prompt.iter().chain(&case.decode).copied().collect();
    let mut rows = Vec::new();
    for (number, part) in tokens.chunks(chunk).enumerate() {
        let logits = call(&mut session, part, number * chunk, 0..part.len());
        rows.extend(logits.chunks(logits.len() / part.len()).map(<[f32]>::to_vec));
    }
    rows
}

fn largest_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!((a.len(), a[0].len()), (b.len(), b[0].len()));
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.fold(0.0, |most, (a, b)| if (a - b).is_nan() { f32::INFINITY } else { most.max((a - b).abs()) })
}

#[test]
fn every_family_computes_what_transformers_does() {
    assert_right(&cases());
}

#[test]
fn every_gguf_architecture_computes_what_transformers_does() {
    let cases = cases_of("gguf-families.zip");
    assert!(cases.len() >= 29, "{} cases", cases.len());
    assert_right(&cases);
}

/// Asserts that logits are those of the cases, with both kinds of caches and in inputs of several lengths.
fn assert_right(cases: &[Case]) {
    let mut wrong = Vec::new();
    for case in cases {
        for kv in [KvCache::OffGraph, KvCache::InGraph] {
            for chunk in [case.prompt.len(), 5, 1] {
                let program = program(case, &options(kv, chunk));
                let off = largest_difference(&all_logits(case, &program, chunk), &case.logits);
                if off > case.tolerance {
                    wrong.push(format!("{}, {kv:?}, inputs of {chunk}: off by {off}", case.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_family_writes_the_tokens_that_transformers_writes() {
    let mut wrong = Vec::new();
    for case in cases() {
        let program = program(&case, &options(KvCache::OffGraph, case.prompt.len()));
        let mut session = program.session().unwrap();
        let mut logits = call(&mut session, &case.prompt, 0, case.prompt.len() - 1..case.prompt.len());
        for (step, &wanted) in case.greedy.iter().enumerate() {
            let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| at as i64);
            if best != Some(wanted) {
                wrong.push(format!("{}: token {step} is {best:?}, not {wanted}", case.name));
                break;
            }
            logits = call(&mut session, &[wanted], case.prompt.len() + step, 0..1);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A source whose matrices are what four bits make of them.
struct FourBits(Arc<dyn WeightSource>, Quantization);

impl FourBits {
    /// Those that a program packs: routers, what states fade by, norms and positions it does not.
    fn is_packed(name: &str) -> bool {
        let deciding = ["mamba.dt_proj.weight", "linear_attn.a_proj.weight", "linear_attn.b_proj.weight"];
        if deciding.iter().any(|decides| name.ends_with(decides)) {
            return false;
        }
        let named = [
            "embed_tokens.weight",
            "embed_tokens_per_layer.weight",
            "lm_head.weight",
            "project_in.weight",
            "project_out.weight",
            "_with_mqa.weight",
            "laurel.linear_left.weight",
            "laurel.linear_right.weight",
            "per_layer_input_gate.weight",
            "per_layer_projection.weight",
            "per_layer_model_projection.weight",
        ];
        name.ends_with("_proj.weight")
            || name.starts_with("model.altup_")
            || named.iter().any(|packed| name.ends_with(packed))
    }
}

impl WeightSource for FourBits {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        self.0.form(wanted)
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let (&[rows, columns], true) = (wanted.shape, FourBits::is_packed(wanted.name)) else {
            return self.0.read(wanted, elements, out);
        };
        let mut whole = vec![0.0; rows * columns];
        self.0.read(wanted, 0..rows * columns, &mut whole)?;
        let matrix = HostTensor::from_slice(vec![rows, columns], &whole).unwrap();
        let packed = self.1.pack(wanted.name, &matrix, DType::F32).unwrap().unwrap();
        let (codes, scales) =
            (packed.codes.as_slice::<u32>().unwrap(), packed.scales.as_slice::<f32>().unwrap());
        let biases = packed.biases.unwrap();
        let biases = biases.as_slice::<f32>().unwrap();
        let (words, groups) = (codes.len() / rows, scales.len() / rows);
        let mut scratch = Vec::new();
        for (row, values) in whole.chunks_mut(columns).enumerate() {
            let (words, groups) = (row * words..(row + 1) * words, row * groups..(row + 1) * groups);
            let (scales, biases) = (&scales[groups.clone()], &biases[groups]);
            packed.scheme.dequantise(&codes[words], scales, biases, &mut scratch, values).unwrap();
        }
        out.copy_from_slice(&whole[elements]);
        Ok(())
    }
}

#[test]
fn four_bits_give_what_the_numbers_that_they_stand_for_give() {
    let mut wrong = Vec::new();
    for case in cases() {
        // What comes in few bits has lost what it had to lose.
        if case.name.ends_with("-mxfp4") {
            continue;
        }
        let quantization = Quantization::of("4w".parse().unwrap());
        let options = options(KvCache::OffGraph, 5);
        let packed = program(&case, &ExportOptions { quantization: quantization.clone(), ..options.clone() });
        let mut checkpoint = Checkpoint::open(case.folder.path()).unwrap();
        checkpoint.weights = Arc::new(FourBits(checkpoint.weights.clone(), quantization));
        let plain = loaded(&case, &checkpoint, &options);
        let wanted = all_logits(&case, &plain, 5);
        let largest = wanted.iter().flatten().fold(0.0f32, |most, logit| most.max(logit.abs()));
        let off = largest_difference(&all_logits(&case, &packed, 5), &wanted) / largest;
        let moved = largest_difference(&wanted, &case.logits) / largest;
        if off > 0.02 || moved < 0.01 {
            wrong.push(format!("{}: off by {off} of the largest logit; four bits move {moved}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A checkpoint as it lies in the folder of a model that also sees and hears: the text model's settings and weights inside, towers
/// beside them.
fn wrapped(case: &Case, wrapper: &str, class: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let file = std::fs::read(case.folder.path().join("config.json")).unwrap();
    let mut text: Json = serde_json::from_slice(&file).unwrap();
    let tied = text["tie_word_embeddings"].clone();
    text.as_object_mut().unwrap().remove("architectures");
    let config = serde_json::json!({
        "architectures": [class], "model_type": wrapper, "tie_word_embeddings": tied, "text_config": text,
        "vision_config": {"model_type": "pixtral"},
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let file = std::fs::read(case.folder.path().join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let mut inside: Vec<(String, safetensors::tensor::TensorView<'_>)> = Vec::new();
    for (name, tensor) in tensors.tensors() {
        let name = match name.strip_prefix("model.") {
            Some(rest) => format!("model.language_model.{rest}"),
            None => name,
        };
        inside.push((name, tensor));
    }
    let norm = tensors.tensor("model.norm.weight").unwrap();
    inside.push(("model.vision_tower.patch_embedder.norm.weight".to_owned(), norm.clone()));
    inside.push(("model.audio_tower.conformer.0.norm.weight".to_owned(), norm));
    safetensors::serialize_to_file(inside, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

#[test]
fn text_models_of_wrappers_are_read_and_their_towers_told() {
    let wrappers = [
        ("gemma3n", "gemma3n", "Gemma3nForConditionalGeneration"),
        ("mistral", "mistral3", "Mistral3ForConditionalGeneration"),
        ("ministral3", "mistral3", "Mistral3ForConditionalGeneration"),
    ];
    let cases = cases();
    for (name, wrapper, class) in wrappers {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let folder = wrapped(case, wrapper, class);
        let checkpoint = Checkpoint::open(folder.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let chunk = case.prompt.len();
        let export = Export::new(&checkpoint, &options(KvCache::OffGraph, chunk)).unwrap();
        let told =
            "the model's vision and audio parts are left out (2 tensors): the program reads text alone";
        let sorted =
            export.remarks().iter().map(|remark| remark.replace("audio and vision", "vision and audio"));
        assert_eq!(sorted.collect::<Vec<_>>(), [told], "{name}");
        let mut file = Vec::new();
        export.write(&mut file, &mut |_| ()).unwrap();
        let program = Program::load("model.pte", Bytes::copy_of(&file), &[], &Options::default()).unwrap();
        let off = largest_difference(&all_logits(case, &program, chunk), &case.logits);
        assert!(off <= case.tolerance, "{name} in a {wrapper}: off by {off}");
    }
}

#[test]
fn every_row_of_the_table_has_a_case() {
    let families: BTreeSet<String> = cases()
        .iter()
        .map(|case| {
            let file = std::fs::read(case.folder.path().join("config.json")).unwrap();
            let config: Json = serde_json::from_slice(&file).unwrap();
            config["model_type"].as_str().unwrap().to_owned()
        })
        .collect();
    let lacking: Vec<&str> =
        ROWS.iter().map(|row| row.names[0]).filter(|name| !families.contains(*name)).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
