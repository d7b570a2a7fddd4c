//! Tiny decoders as transformers saves them on Vulkan: those with experts and those with states run there from the first op to the last,
//! over packed weights too, and give what the reference backend gives, in long inputs (rows sorted by expert) and token by token. The
//! set is packed by `conformance/make_families.py`.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod device;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_gpu::Features;
use pteron_models::{KvCache, Quantization};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Precision, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use pteron_vulkan::{VulkanBackend, VulkanOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Families whose layers have experts and whose other parts all have kernels.
const WITH_EXPERTS: [&str; 5] = ["mixtral", "qwen3_moe", "olmoe", "gpt_oss", "gpt_oss-mxfp4"];

/// More of them: routers that choose among groups, by sigmoids, two by two, with experts for all tokens beside.
const OTHERS: [&str; 8] = [
    "deepseek_v2-groups",
    "deepseek_v3",
    "glm4_moe",
    "granitemoe",
    "llama4",
    "phimoe",
    "qwen2_moe",
    "deepseek_v2",
];

/// Families whose layers keep states: convolutions, state spaces as Mamba 2 has them, the delta rule.
const WITH_STATES: [&str; 9] = [
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "lfm2",
    "lfm2_moe",
    "mamba2",
    "nemotron_h",
    "qwen3_5",
    "qwen3_next",
];

/// Those whose states go from token to token in a loop.
const WITH_LOOPS: [&str; 4] = ["falcon_mamba", "jamba", "mamba", "recurrent_gemma"];

/// Files of the checkpoints of some cases, by case.
fn checkpoints(names: &[&str]) -> BTreeMap<String, tempfile::TempDir> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/families.zip");
    let mut archive = zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut folders = BTreeMap::new();
    for at in 0..archive.len() {
        let mut member = archive.by_index(at).unwrap();
        let name = member.name().unwrap().into_owned();
        let Some((case, file)) = name.split_once("/checkpoint/") else { continue };
        if !names.contains(&case) {
            continue;
        }
        let folder = folders.entry(case.to_owned()).or_insert_with(|| tempfile::tempdir().unwrap());
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        std::fs::write(folder.path().join(file), bytes).unwrap();
    }
    assert_eq!(folders.len(), names.len());
    folders
}

fn file(folder: &Path, scheme: Option<&str>, activations: DType) -> Vec<u8> {
    let quantization = match scheme {
        Some(scheme) => Quantization::of(scheme.parse().unwrap()),
        None => Quantization::default(),
    };
    let kv = KvCache::OffGraph;
    let (context, chunk) = (Some(64), Some(64));
    let options = ExportOptions { activations, context, chunk, kv, quantization, ..ExportOptions::default() };
    let checkpoint = Checkpoint::open(folder).unwrap();
    let mut file = Vec::new();
    Export::new(&checkpoint, &options).unwrap().write(&mut file, &mut |_| ()).unwrap();
    file
}

fn program(file: &[u8], vulkan: Option<&Arc<VulkanBackend>>, precision: Precision) -> Program {
    let mut registry = Registry::default();
    let mut backend = "reference";
    if let Some(vulkan) = vulkan {
        registry.add(vulkan.clone());
        backend = "vulkan";
    }
    let options = Options { backend: Some(backend.to_owned()), registry, precision, ..Options::default() };
    Program::load("model.pte", Bytes::copy_of(file), &[], &options).unwrap()
}

/// Logits of all tokens, read in inputs of these lengths.
fn logits(program: &Program, lengths: &[usize]) -> Vec<f32> {
    let mut session = program.session().unwrap();
    let (mut at, mut all) = (0, Vec::new());
    for &length in lengths {
        let tokens: Vec<i64> = (at..at + length).map(|at| (at * 17 % 40) as i64).collect();
        let tokens = HostTensor::from_slice(vec![1, length], &tokens).unwrap();
        let rows: Vec<i64> = (0..length as i64).collect();
        let rows = HostTensor::from_slice(vec![length], &rows).unwrap();
        let inputs = [tokens.into(), Value::Int(at as i64), rows.into()];
        let outputs = session.run("forward", &inputs).unwrap();
        let logits = outputs[0].to_tensor().unwrap().unwrap();
        let logits = pteron_runtime::reference::cast(&logits, DType::F32).unwrap();
        all.extend_from_slice(logits.as_slice::<f32>().unwrap());
        at += length;
    }
    all
}

/// How far logits are from those of the reference backend, in parts of the largest of them. All ops run on the device but those named.
fn distance(options: &VulkanOptions, file: &[u8], precision: Precision, elsewhere: &[&str]) -> Option<f32> {
    device::open_with(options)?;
    let vulkan = Arc::new(VulkanBackend::open(options).unwrap());
    let ours = program(file, Some(&vulkan), precision);
    let left: Vec<String> = ours
        .methods()
        .iter()
        .flat_map(|method| &method.delegates)
        .flat_map(|delegate| &delegate.fallbacks)
        .map(|(op, _)| (*op).to_owned())
        .collect();
    assert_eq!(left, elsewhere, "not on the device");
    let theirs = program(file, None, Precision::Exact);
    let lengths = [41, 1, 3, 1, 12, 1, 1];
    let (one, other) = (logits(&ours, &lengths), logits(&theirs, &lengths));
    assert_eq!(one.len(), other.len());
    let most = other.iter().fold(0f32, |most, x| most.max(x.abs()));
    let worst = one.iter().zip(&other).fold(0f32, |worst, (a, b)| match (a - b).is_nan() {
        true => f32::INFINITY,
        false => worst.max((a - b).abs()),
    });
    Some(worst / most)
}

fn agree(options: &VulkanOptions, names: &[&str], schemes: &[Option<&str>]) {
    agree_but_for(options, names, schemes, &[]);
}

fn agree_but_for(options: &VulkanOptions, names: &[&str], schemes: &[Option<&str>], elsewhere: &[&str]) {
    let mut wrong = Vec::new();
    for (name, folder) in checkpoints(names) {
        for &scheme in schemes {
            let file = file(folder.path(), scheme, DType::F32);
            let Some(off) = distance(options, &file, Precision::Exact, elsewhere) else { return };
            if off > 2e-4 {
                wrong.push(format!("{name}, {scheme:?}: off by {off}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn decoders_with_experts_run_on_the_device_as_a_whole() {
    agree(&VulkanOptions::default(), &WITH_EXPERTS, &[None, Some("4w"), Some("8w"), Some("mxfp4")]);
    agree(&VulkanOptions::default(), &OTHERS, &[Some("4w")]);
}

#[test]
fn decoders_with_states_run_on_the_device_as_a_whole() {
    agree(&VulkanOptions::default(), &WITH_STATES, &[None]);
    agree(&VulkanOptions::default(), &["lfm2", "mamba2", "qwen3_next"], &[Some("4w")]);
}

#[test]
fn of_decoders_with_loops_over_tokens_nothing_else_runs_elsewhere() {
    agree_but_for(&VulkanOptions::default(), &WITH_LOOPS, &[None], &["Scan"]);
}

#[test]
fn they_do_so_where_a_device_has_the_least_features() {
    // Positions are integers of 64 bits.
    let features = Features { int64: true, ..Features::LEAST };
    let least = VulkanOptions { at_most: Some(features), ..VulkanOptions::default() };
    agree(&least, &["qwen3_moe", "gpt_oss-mxfp4"], &[Some("4w"), Some("mxfp4")]);
    agree(&least, &["lfm2", "mamba2", "qwen3_next"], &[None]);
}

#[test]
fn a_token_after_the_first_records_nothing() {
    if device::open().is_none() {
        return;
    }
    let vulkan = Arc::new(VulkanBackend::open(&VulkanOptions::default()).unwrap());
    let (_, folder) = checkpoints(&["qwen3_moe"]).pop_first().unwrap();
    let program = program(&file(folder.path(), Some("4w"), DType::BF16), Some(&vulkan), Precision::Exact);
    let mut session = program.session().unwrap();
    for at in 0..20i64 {
        let before = vulkan.counts();
        let token = HostTensor::from_slice(vec![1, 1], &[at * 17 % 40]).unwrap();
        let row = HostTensor::from_slice(vec![1], &[0i64]).unwrap();
        session.run("forward", &[token.into(), Value::Int(at), row.into()]).unwrap();
        let after = vulkan.counts();
        let (recorded, replayed) = (after.recorded - before.recorded, after.replayed - before.replayed);
        let expected = if at == 0 { (1, 0) } else { (0, 1) };
        assert_eq!((recorded, replayed), expected, "token {at}");
    }
}
