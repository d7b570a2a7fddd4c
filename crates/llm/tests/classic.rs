//! Programs of ExecuTorch's Llama exporter for XNNPACK and Vulkan, as a runner drives them: prompts in chunks or token by token, answers,
//! and going back in a text without reading it again.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_cpu::Cpu;
use pteron_llm::{Decoder, DecoderOptions, Draw, LanguageModel, Next};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Program, RunControl};
use pteron_tensor::Bytes;
use std::io::Read;
use std::sync::Arc;

/// What the cases begin with (`conformance/xnnpack_llama.py`, `conformance/vulkan_llama.py`).
const PROMPT: [u32; 7] = [1, 17, 62, 5, 40, 33, 8];

/// A file of a case in a packed set.
fn file((set, case): (&str, &str), name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance").join(set);
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(&format!("{case}/{name}")).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// The most likely token after each step, where that is certain.
fn greedy(case: (&str, &str)) -> Vec<Option<u32>> {
    let about = String::from_utf8(file(case, "case.json")).unwrap();
    let list = about.split_once("\"greedy\": [").unwrap().1.split_once(']').unwrap().0;
    list.split(',').map(|item| item.trim().parse().ok()).collect()
}

fn model(case: (&str, &str)) -> LanguageModel {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(1, None).unwrap()));
    let options = Options { registry, backend: Some("cpu".into()), ..Options::default() };
    let program = Program::load(case.1, Bytes::copy_of(&file(case, "model.pte")), &[], &options).unwrap();
    LanguageModel::new(program).unwrap()
}

fn next(decoder: &mut Decoder, tokens: &[u32]) -> u32 {
    match decoder.read(tokens, &Draw::default(), &RunControl::default()).unwrap() {
        Next::Scores(scores) => {
            let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            best.0 as u32
        }
        Next::Token(token) => token,
    }
}

#[test]
fn answers_are_those_of_executorch_and_texts_are_cut_back() {
    let forms = ["f32", "f32_plain_cache", "8bit", "qc4", "8da4w", "8da4w_one_token", "8da4w_8bit_cache"];
    answers(forms.map(|form| ("xnnpack.zip", form)).into_iter());
}

#[test]
fn answers_of_programs_for_vulkan_are_those_of_pytorch_and_texts_are_cut_back() {
    answers(["f32", "8da4w"].map(|form| ("vulkan.zip", form)).into_iter());
}

fn answers<'a>(forms: impl Iterator<Item = (&'a str, &'a str)>) {
    for (set, case) in forms.map(|(set, form)| (set, format!("llama_{form}"))) {
        let model = model((set, &case));
        assert_eq!(
            (model.context(), model.vocab(), model.bos(), model.eos()),
            (Some(32), Some(64), Some(1), &[2][..])
        );
        assert_eq!(model.chunk() == 1, case.contains("one_token"), "{case}");
        let greedy = greedy((set, &case));
        let chosen = &greedy[greedy.len() - 6..];
        let mut decoder = Decoder::new(&model, &DecoderOptions::default()).unwrap();
        // Caches that delegates do not keep have to be filled anew.
        let is_cut_back = !case.ends_with("_cache");
        for again in [0, 1] {
            let kept = decoder.begin(&PROMPT).unwrap().kept;
            assert!(!is_cut_back || kept == again * (PROMPT.len() - 1), "{case}: {kept} kept");
            let mut token = next(&mut decoder, &PROMPT[kept..]);
            for (step, wanted) in chosen.iter().enumerate() {
                // A near tie may fall otherwise, and the text goes on otherwise then.
                let Some(wanted) = wanted else { break };
                assert_eq!(token, *wanted, "{case}, step {step}");
                token = next(&mut decoder, &[token]);
            }
        }
    }
}
