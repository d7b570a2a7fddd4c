//! A plan puts values that are never needed at once into the same place. With memory of its own for every value, spoiled
//! when the plan says that nobody needs it any more, the packed sample gives the same bytes: no two values that live at
//! once overlap, and nothing is read that is gone. Under AddressSanitizer, nothing leaves its allocation either. Miri would unpack
//! the sample for hours; there, random programs have such memory (`agreement.rs`).

#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // helpers fail their test

use pteron_cpu::{Cpu, RunMemory};
use pteron_runtime::registry::Registry;
use pteron_runtime::{
    ArgumentKind, Bound, CacheSpec, DataFile, Options, Precision, Program, Session, SessionOptions, Value,
};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::sync::Arc;

/// The programs of the packed sample by case; those whose weights lie in another file have that beside them.
fn programs() -> BTreeMap<String, (Vec<u8>, Vec<Vec<u8>>)> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/sample.zip");
    let mut archive = zip::ZipArchive::new(Cursor::new(std::fs::read(file).unwrap())).unwrap();
    let mut programs: BTreeMap<String, (Vec<u8>, Vec<Vec<u8>>)> = BTreeMap::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).unwrap();
        let name = member.name().unwrap().to_string();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        let Some((case, file)) = name.split_once('/') else { continue };
        let entry = programs.entry(case.to_owned()).or_default();
        match file {
            "model.pte" => entry.0 = bytes,
            _ if file.ends_with(".ptd") => entry.1.push(bytes),
            _ => {}
        }
    }
    programs.retain(|_, (program, _)| !program.is_empty());
    programs
}

fn load(name: &str, files: &(Vec<u8>, Vec<Vec<u8>>), memory: RunMemory, precision: Precision) -> Program {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(2, None).unwrap().with_memory(memory)));
    let options = Options { registry, precision, ..Options::default() };
    let data = files.1.iter().map(|bytes| DataFile { name: "data".into(), bytes: Bytes::copy_of(bytes) });
    let data: Vec<DataFile> = data.collect();
    Program::load(name, Bytes::copy_of(&files.0), &data, &options).unwrap()
}

fn session(program: &Program) -> Session {
    let cache: Option<CacheSpec> = program.cache_spec().cloned();
    let context = program.needs_cache().then_some(64);
    program.session_with(&SessionOptions { cache, context, seed: 7 }).unwrap()
}

/// Small numbers of every dtype; integers are 0 or 1, so that most of them are good indices and positions.
fn tensor(dtype: DType, shape: &[usize]) -> HostTensor {
    let count: usize = shape.iter().product();
    let bytes: Vec<u8> = (0..count)
        .flat_map(|at| {
            let number = ((at * 37 % 61) as f32 - 30.0) / 16.0;
            match dtype {
                DType::F64 => f64::from(number).to_le_bytes().to_vec(),
                DType::F32 => number.to_le_bytes().to_vec(),
                DType::F16 => half::f16::from_f32(number).to_le_bytes().to_vec(),
                DType::BF16 => half::bf16::from_f32(number).to_le_bytes().to_vec(),
                _ => ((at % 2) as u64).to_le_bytes()[..dtype.size()].to_vec(),
            }
        })
        .collect();
    HostTensor::new(dtype, shape.to_vec(), Bytes::copy_of(&bytes)).unwrap()
}

/// Two runs of every method in one session, with the largest sizes and with the least, as text that holds every byte.
fn runs(program: &Program) -> Vec<String> {
    let mut session = session(program);
    let mut told = Vec::new();
    for method in program.methods() {
        for largest in [true, false] {
            let size = |bound: &Bound| {
                let most = bound.max.unwrap_or(4).min(64);
                if largest || bound.max == Some(bound.min) { most } else { bound.min.clamp(1, 3).min(most) }
            };
            let inputs: Option<Vec<Value>> = (method.inputs.iter())
                .map(|argument| match &argument.kind {
                    ArgumentKind::Tensor { dtype, dims } => {
                        let shape: Vec<usize> = dims.iter().map(size).collect();
                        Some(Value::Tensor(tensor(*dtype, &shape)))
                    }
                    ArgumentKind::Int => Some(Value::Int(1)),
                    ArgumentKind::Fixed(_) => None,
                })
                .collect();
            let Some(inputs) = inputs else { continue };
            told.push(match session.run(&method.name, &inputs) {
                Ok(outputs) => format!("{outputs:?}{:?}", outputs.iter().map(bytes).collect::<Vec<_>>()),
                Err(error) => error.to_string(),
            });
        }
    }
    told
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.to_tensor().unwrap().map(|tensor| tensor.bytes().to_vec())
}

#[test]
fn values_apart_are_what_values_in_one_region_are() {
    let programs = programs();
    let (mut compared, mut different) = (0, Vec::new());
    for (name, files) in &programs {
        for precision in [Precision::Exact, Precision::Fast] {
            let of = |memory| runs(&load(name, files, memory, precision));
            let (region, apart) = (of(RunMemory::Planned), of(RunMemory::Separate));
            compared += region.len();
            if region != apart {
                different.push(format!("{name}, {precision:?}"));
            }
        }
    }
    assert!(different.is_empty(), "{different:?}");
    assert!(compared >= 4 * 250, "only {compared} runs of {} programs", programs.len());
}
