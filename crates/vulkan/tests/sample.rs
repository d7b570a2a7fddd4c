//! The packed conformance sample on Vulkan: every case gives what the reference backend gives, within the case's tolerances. Ops
//! without a kernel run on the reference backend, in pieces of their graphs.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod device;

use pteron_runtime::backend::Backend;
use pteron_runtime::registry::Registry;
use pteron_runtime::{CacheLayer, CacheSpec, DataFile, Options, Program, Session, SessionOptions, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// By case and name.
type Files = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

fn sample() -> Files {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/sample.zip");
    let mut archive = zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut files = Files::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        let Some((case, file)) = name.split_once('/') else { continue };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.entry(case.to_owned()).or_default().insert(file.to_owned(), bytes);
    }
    files
}

fn tensors(file: &[u8]) -> BTreeMap<String, HostTensor> {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: Json = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let data = &file[8 + length..];
    let number = |json: &Json| json.as_u64().unwrap() as usize;
    let tensor = |entry: &Json| {
        let dtype = match entry["dtype"].as_str().unwrap() {
            "BOOL" => DType::Bool,
            other => DType::from_name(&other.to_lowercase()).unwrap(),
        };
        let shape = entry["shape"].as_array().unwrap().iter().map(number).collect();
        let range = number(&entry["data_offsets"][0])..number(&entry["data_offsets"][1]);
        HostTensor::new(dtype, shape, Bytes::copy_of(&data[range])).unwrap()
    };
    let entries = header.as_object().unwrap().iter().filter(|(key, _)| *key != "__metadata__");
    entries.map(|(key, entry)| (key.clone(), tensor(entry))).collect()
}

fn input(entry: &Json, key: &str, tensors: &BTreeMap<String, HostTensor>) -> Value {
    match entry {
        Json::String(_) => tensors[key].clone().into(),
        entry if entry["int"].is_i64() => Value::Int(entry["int"].as_i64().unwrap()),
        entry if entry["bool"].is_boolean() => Value::Bool(entry["bool"].as_bool().unwrap()),
        entry => Value::Float(match entry["float"].as_str() {
            Some("nan") => f64::NAN,
            Some("inf") => f64::INFINITY,
            Some(_) => f64::NEG_INFINITY,
            None => entry["float"].as_f64().unwrap(),
        }),
    }
}

fn cache(case: &Json) -> Option<CacheSpec> {
    let cache = case.get("kv_cache").filter(|cache| cache.is_object())?;
    let number = |key: &str| cache[key].as_u64().unwrap() as usize;
    let dtype = match cache["dtype"].as_str().unwrap() {
        "float32" => DType::F32,
        "float16" => DType::F16,
        _ => DType::BF16,
    };
    let layer = CacheLayer { kv_heads: number("kv_heads"), head_dim: number("head_dim"), window: None };
    let layers = vec![layer; number("layers")];
    Some(CacheSpec { capacity: number("capacity"), layers, max_write: None, dtype: Some(dtype) })
}

fn session(files: &BTreeMap<String, Vec<u8>>, case: &Json, options: &Options) -> Session {
    let names = case.get("data").and_then(Json::as_array).cloned().unwrap_or_default();
    let data: Vec<DataFile> = names
        .iter()
        .map(|name| name.as_str().unwrap())
        .map(|name| DataFile { name: name.to_owned(), bytes: Bytes::copy_of(&files[name]) })
        .collect();
    let program = Program::load("model.pte", Bytes::copy_of(&files["model.pte"]), &data, options).unwrap();
    program.session_with(&SessionOptions { cache: cache(case), ..SessionOptions::default() }).unwrap()
}

/// A tensor's elements as numbers.
fn numbers(value: &Value) -> Vec<f64> {
    let Some(tensor) = value.to_tensor().unwrap() else {
        return match value {
            Value::Int(number) => vec![*number as f64],
            Value::Float(number) => vec![*number],
            Value::Bool(truth) => vec![f64::from(u8::from(*truth))],
            _ => Vec::new(),
        };
    };
    match tensor.dtype() {
        DType::I64 => tensor.as_slice::<i64>().unwrap().iter().map(|&number| number as f64).collect(),
        _ => {
            let wide = pteron_runtime::reference::cast(&tensor, DType::F32).unwrap();
            wide.as_slice::<f32>().unwrap().iter().map(|&number| number.into()).collect()
        }
    }
}

/// What is wrong with an output.
fn difference(got: &Value, want: &Value, atol: f64, rtol: f64) -> Option<String> {
    if got.describe() != want.describe() && want.as_tensor().is_some() {
        return Some(format!("{} instead of {}", got.describe(), want.describe()));
    }
    let pairs = numbers(got).into_iter().zip(numbers(want)).enumerate();
    let mut wrong = pairs.filter(|&(_, (got, want))| {
        let same = got == want || (got.is_nan() && want.is_nan());
        let near = (got - want).abs() <= atol + rtol * want.abs();
        !same && !near
    });
    let (at, (got, want)) = wrong.next()?;
    Some(format!("element {at} is {got}, not {want}, and {} others differ", wrong.count()))
}

fn judged(files: &BTreeMap<String, Vec<u8>>, vulkan: &Options, reference: &Options) -> Option<String> {
    let case: Json = serde_json::from_slice(&files["case.json"]).unwrap();
    let tensors = tensors(&files["io.safetensors"]);
    let (atol, rtol) = (case["atol"].as_f64().unwrap(), case["rtol"].as_f64().unwrap());
    let (mut ours, mut theirs) = (session(files, &case, vulkan), session(files, &case, reference));
    for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let method = step["method"].as_str().unwrap();
        let entries = step["inputs"].as_array().unwrap().iter().enumerate();
        let inputs: Vec<Value> =
            entries.map(|(at, entry)| input(entry, &format!("{number}.in.{at}"), &tensors)).collect();
        let want = theirs.run(method, &inputs).unwrap();
        let got = match ours.run(method, &inputs) {
            Ok(got) => got,
            Err(error) => return Some(format!("step {number}: {error}")),
        };
        let mut pairs = got.iter().zip(&want).enumerate();
        let wrong = pairs.find_map(|(at, (got, want))| Some((at, difference(got, want, atol, rtol)?)));
        if let Some((at, problem)) = wrong {
            return Some(format!("step {number}, output {at}: {problem}"));
        }
    }
    None
}

fn options(backend: Option<Arc<dyn Backend>>, name: &str) -> Options {
    let mut registry = Registry::default();
    backend.into_iter().for_each(|backend| registry.add(backend));
    Options { registry, backend: Some(name.to_owned()), ..Options::default() }
}

#[test]
fn every_case_of_the_sample_gives_what_the_reference_backend_gives() {
    let Some(vulkan) = device::open() else { return };
    let (vulkan, reference) = (options(Some(vulkan), "vulkan"), options(None, "reference"));
    let all = sample();
    let mut wrong = Vec::new();
    for (name, files) in all.iter().filter(|(_, files)| files.contains_key("model.pte")) {
        if let Some(problem) = judged(files, &vulkan, &reference) {
            wrong.push(format!("{name}: {problem}"));
        }
    }
    assert!(all.len() > 200, "{} cases", all.len());
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}
