//! Packed cases of programs with other delegates' payloads: reading them, running them on the reference backend and here, and
//! saying what is wrong.

use pteron_cpu::Cpu;
use pteron_format::pte::Pte;
use pteron_format::{Limits, WriteOptions};
use pteron_ir::Graph;
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Program, Value, reference};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;

/// The files of a packed set, by case and name.
pub(crate) fn cases(set: &str) -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance").join(set);
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(std::fs::read(file).unwrap())).unwrap();
    let mut cases: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let Some((case, name)) =
            file.name().unwrap().split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned()))
        else {
            continue;
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        cases.entry(case).or_default().insert(name, bytes);
    }
    cases
}

/// What follows a key of flat JSON.
fn after<'a>(text: &'a str, key: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\"{key}\":")).unwrap();
    rest.trim_start()
}

fn numbers(text: &str) -> Vec<usize> {
    let inside = text.strip_prefix('[').unwrap().split_once(']').unwrap().0;
    inside
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().unwrap())
        .collect()
}

/// The tensors of a safetensors file by name.
fn tensors(file: &[u8]) -> BTreeMap<String, HostTensor> {
    let length = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let header = std::str::from_utf8(&file[8..8 + length]).unwrap();
    let mut tensors = BTreeMap::new();
    for entry in header.split_inclusive('}').filter(|entry| entry.contains("data_offsets")) {
        let (head, body) = entry.split_once(":{").unwrap();
        let name = head.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        let dtype = match after(body, "dtype").split('"').nth(1).unwrap() {
            "F32" => DType::F32,
            "F16" => DType::F16,
            "I64" => DType::I64,
            "I32" => DType::I32,
            "BOOL" => DType::Bool,
            other => panic!("a tensor of {other}"),
        };
        let (shape, place) = (numbers(after(body, "shape")), numbers(after(body, "data_offsets")));
        let bytes = Bytes::copy_of(&file[8 + length..][place[0]..place[1]]);
        tensors.insert(name, HostTensor::new(dtype, shape, bytes).unwrap());
    }
    tensors
}

fn elements(tensor: &HostTensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::I64 => tensor.as_slice::<i64>().unwrap().iter().map(|&number| number as f64).collect(),
        DType::I32 => tensor.as_slice::<i32>().unwrap().iter().map(|&number| number.into()).collect(),
        DType::Bool => tensor.bytes().iter().map(|&byte| byte.into()).collect(),
        DType::F16 => tensor.as_slice::<half::f16>().unwrap().iter().map(|&number| number.into()).collect(),
        _ => tensor.as_slice::<f32>().unwrap().iter().map(|&number| number.into()).collect(),
    }
}

/// Why an output is not what it must be.
fn difference(got: &Value, wanted: &HostTensor, (atol, rtol): (f64, f64)) -> Option<String> {
    let Value::Tensor(got) = got else { return Some("no tensor".into()) };
    if (got.dtype(), got.shape()) != (wanted.dtype(), wanted.shape()) {
        return Some(format!(
            "{:?} {:?}, not {:?} {:?}",
            got.dtype(),
            got.shape(),
            wanted.dtype(),
            wanted.shape()
        ));
    }
    let pairs = elements(got).into_iter().zip(elements(wanted));
    let parts = pairs.map(|(got, want)| (got - want).abs() / (atol + rtol * want.abs()));
    // A NaN would be lost among maxima.
    let worst = parts.map(|part| if part.is_nan() { f64::INFINITY } else { part }).fold(0.0, f64::max);
    (worst > 1.0).then(|| format!("off by {worst:.3} times what is allowed"))
}

/// What is wrong with what a program gives.
fn check(files: &BTreeMap<String, Vec<u8>>, program: &[u8], options: &Options) -> Vec<String> {
    let case = std::str::from_utf8(&files["case.json"]).unwrap();
    let number = |key| after(case, key).split([',', '\n']).next().unwrap().trim().parse::<f64>().unwrap();
    let allowed = (number("atol"), number("rtol"));
    let program = match Program::load("model.pte", Bytes::copy_of(program), &[], options) {
        Ok(program) => program,
        Err(error) => return vec![error.to_string()],
    };
    let tensors = tensors(&files["io.safetensors"]);
    let steps: BTreeSet<usize> =
        tensors.keys().map(|key| key.split('.').next().unwrap().parse().unwrap()).collect();
    let mut session = program.session().unwrap();
    let mut found = Vec::new();
    for step in steps {
        let of = |kind: &str| {
            (0..)
                .map_while(|place| tensors.get(&format!("{step}.{kind}.{place}")).cloned())
                .collect::<Vec<_>>()
        };
        let inputs: Vec<Value> = of("in").into_iter().map(Value::Tensor).collect();
        match session.run("forward", &inputs) {
            Ok(outputs) => found.extend(
                outputs.iter().zip(of("out")).filter_map(|(got, want)| difference(got, &want, allowed)),
            ),
            Err(error) => found.push(error.to_string()),
        }
    }
    found
}

/// A program with MLX bytecode in place of its payloads.
#[allow(dead_code)] // programs without a payload have nothing to turn
pub(crate) fn with_mlx(program: &[u8]) -> Result<Vec<u8>, String> {
    let limits = Limits::default();
    let pte = Pte::read(Bytes::copy_of(program), &limits).map_err(|error| error.to_string())?;
    let (tables, segments) = pteron_format::to_mlx(&pte, &limits).map_err(|problems| problems.join("; "))?;
    let mut delegates = tables.execution_plan.iter().flat_map(|plan| plan.delegates.iter());
    assert!(delegates.all(|delegate| &*delegate.id == "MLXBackend"));
    let mut bytes = Vec::new();
    let written = pteron_format::pte::write(&tables, &segments, &WriteOptions::default(), &mut bytes);
    written.map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// A program with portable operators in place of its payloads.
#[allow(dead_code)] // programs without a payload have nothing to turn
pub(crate) fn with_portable(program: &[u8]) -> Result<Vec<u8>, String> {
    let limits = Limits::default();
    let pte = Pte::read(Bytes::copy_of(program), &limits).map_err(|error| error.to_string())?;
    let run_init = |graph: &Graph, constants: &[HostTensor]| {
        reference::run_constants(graph, constants, &limits).map_err(|error| error.to_string())
    };
    let turned = pteron_format::to_portable(&pte, &limits, &run_init);
    let (tables, segments) = turned.map_err(|problems| problems.join("; "))?;
    assert!(tables.execution_plan.iter().all(|plan| plan.delegates.is_empty()));
    let mut bytes = Vec::new();
    let written = pteron_format::pte::write(&tables, &segments, &WriteOptions::default(), &mut bytes);
    written.map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Runs every case of a set on both backends, as the program that `turned` makes of it, joined and apart.
pub(crate) fn check_all(set: &str, turned: impl Fn(&[u8]) -> Result<Vec<u8>, String>) {
    let cases = cases(set);
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for (name, files) in &cases {
        let program = match turned(&files["model.pte"]) {
            Ok(program) => program,
            Err(problem) => {
                wrong.push(format!("{name}: {problem}"));
                continue;
            }
        };
        for (backend, keeps_delegates) in [("reference", false), ("cpu", false), ("cpu", true)] {
            let mut registry = Registry::default();
            registry.add(Arc::new(Cpu::new(2, None).unwrap()));
            let backend_name = Some(backend.into());
            let options = Options { registry, backend: backend_name, keeps_delegates, ..Options::default() };
            let found = check(files, &program, &options);
            let apart = if keeps_delegates { ", apart" } else { "" };
            wrong.extend(found.into_iter().map(|problem| format!("{name} on {backend}{apart}: {problem}")));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
