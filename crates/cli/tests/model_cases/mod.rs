//! Programs of whole models with what PyTorch computed for them: those of the packed sample, or those of the set `models`
//! below the folder that `PTERON_CASES` names; and those for XNNPACK, with what ExecuTorch's runtime computed.

use crate::support::root;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;

/// One program with its steps.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) program: Vec<u8>,
    about: Value,
    io: Vec<u8>,
}

/// All of them, by name.
pub(crate) fn model_cases() -> Vec<Case> {
    let mut cases = match std::env::var_os("PTERON_CASES") {
        Some(cases) => in_folder(&Path::new(&cases).join("models")),
        None => packed("sample.zip"),
    };
    cases.extend(packed("xnnpack.zip"));
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn in_folder(set: &Path) -> Vec<Case> {
    let entries = fs::read_dir(set).unwrap().map(|entry| entry.unwrap().path());
    let case = |path: std::path::PathBuf| {
        let read = |name: &str| fs::read(path.join(name)).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let about = serde_json::from_slice(&read("case.json")).unwrap();
        Case { name, program: read("model.pte"), about, io: read("io.safetensors") }
    };
    entries.filter(|path| path.join("case.json").is_file()).map(case).collect()
}

fn packed(set: &str) -> Vec<Case> {
    let bytes = fs::read(root().join("conformance").join(set)).unwrap();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let case_of = |name: &str| name.strip_suffix("/case.json").map(str::to_owned);
    let names: Vec<String> = archive.file_names().filter_map(|name| case_of(&name.unwrap())).collect();
    let mut cases = Vec::new();
    for name in names {
        let mut read = |file: &str| {
            let mut content = Vec::new();
            archive.by_name(&format!("{name}/{file}")).unwrap().read_to_end(&mut content).unwrap();
            content
        };
        let about: Value = serde_json::from_slice(&read("case.json")).unwrap();
        if about["kind"] == "model" {
            cases.push(Case { program: read("model.pte"), io: read("io.safetensors"), about, name });
        }
    }
    cases
}

impl Case {
    /// Whether the program is one that `pteron run` runs: `forward` reads tokens and gives logits or a token.
    pub(crate) fn writes_text(&self) -> bool {
        let steps = self.about["steps"].as_array().unwrap();
        let gives_tokens = self.about["greedy"].is_array() || self.draws_itself();
        gives_tokens && steps.iter().all(|step| step["method"] == "forward")
    }

    /// Whether it gives tokens in place of logits.
    pub(crate) fn draws_itself(&self) -> bool {
        self.tensors().tensor("0.out.0").is_ok_and(|output| output.dtype() == Dtype::I64)
    }

    /// The tokens that a step is given.
    pub(crate) fn given(&self, step: usize) -> Vec<u64> {
        self.integers(&format!("{step}.in.0"))
    }

    /// Prompts and the tokens that greedy decoding continues them with. The steps of a case feed what PyTorch chose, so
    /// an answer is a run of steps without a near tie among them, and its prompt is all that was fed up to its first.
    pub(crate) fn greedy_answers(&self) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut answers: Vec<(Vec<u64>, Vec<u64>)> = Vec::new();
        let mut fed = Vec::new();
        let mut open = false;
        for (step, chosen) in self.chosen().into_iter().enumerate() {
            let given = self.given(step);
            let follows = answers.last().is_some_and(|(_, answer)| given == answer[answer.len() - 1..]);
            fed.extend(given);
            match (chosen, answers.last_mut()) {
                (Some(token), Some((_, answer))) if open && follows => answer.push(token),
                (Some(token), _) => answers.push((fed.clone(), vec![token])),
                (None, _) => {}
            }
            open = chosen.is_some();
        }
        answers
    }

    /// What each step chose, where that is certain. A program that draws has no choice but the most likely token where its
    /// step is judged as `exact`.
    fn chosen(&self) -> Vec<Option<u64>> {
        match self.about["greedy"].as_array() {
            Some(greedy) => greedy.iter().map(Value::as_u64).collect(),
            None => {
                let steps = 0..self.about["steps"].as_array().unwrap().len();
                let certain = |step: &usize| self.about["steps"][step]["rule"] == "exact";
                steps.map(|step| certain(&step).then(|| self.integers(&format!("{step}.out.0"))[0])).collect()
            }
        }
    }

    fn integers(&self, name: &str) -> Vec<u64> {
        let tensors = self.tensors();
        let words = tensors.tensor(name).unwrap().data().as_chunks::<8>().0;
        words.iter().map(|word| i64::from_le_bytes(*word) as u64).collect()
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.io).unwrap()
    }
}
