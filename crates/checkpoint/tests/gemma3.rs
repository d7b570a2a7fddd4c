//! Tiny Gemma 3 models that see, from Hugging Face folders, held to what transformers computes (`make_gemma3.py`): pixels, rows,
//! logits and greedy tokens behind images.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod speech;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_companion::Vision;
use pteron_runtime::{Program, Value};
use pteron_tensor::{DType, HostTensor};
use pteron_vision::{Picture, input};
use speech::{Expected, data, difference, exported, floats};

const CLOSE: f32 = 2e-4;
const CASES: [(&str, Expected, &[&[&str]]); 2] = [
    (
        "gemma3",
        Expected(include_bytes!("data/gemma3_expected.safetensors")),
        &[&["noise.png"], &["wide.png", "grey.png"], &[]],
    ),
    (
        "gemma3_other",
        Expected(include_bytes!("data/gemma3_other_expected.safetensors")),
        &[&["grey.png", "palette.png"], &["alpha.png"]],
    ),
];

fn opened(name: &str) -> (Checkpoint, Vision) {
    let checkpoint = Checkpoint::open(&data(name)).unwrap();
    let vision = checkpoint.vision.clone().unwrap();
    (checkpoint, vision)
}

fn pixels(name: &str, vision: &Vision) -> Vec<f32> {
    let picture = Picture::read(&std::fs::read(data(&format!("images/{name}"))).unwrap()).unwrap();
    input(&picture, &vision.pixels).unwrap().values
}

#[test]
fn pixels_are_those_of_the_processor() {
    for (name, expected, prompts) in CASES {
        let (_, vision) = opened(name);
        for (number, images) in prompts.iter().enumerate().filter(|(_, images)| !images.is_empty()) {
            let found: Vec<f32> = images.iter().flat_map(|image| pixels(image, &vision)).collect();
            let off = difference(&found, &expected.floats(&format!("{number}.pixels")));
            assert!(off < 1e-3, "{name}, {number}: off by {off}");
        }
    }
}

/// What a text is read with.
struct Reader {
    session: pteron_runtime::Session,
    position: usize,
    logits: Vec<f32>,
}

impl Reader {
    fn tokens(&mut self, tokens: &[i64]) {
        let ids = HostTensor::from_slice(vec![1, tokens.len()], tokens).unwrap();
        let last = HostTensor::from_slice(vec![1], &[tokens.len() as i64 - 1]).unwrap();
        let at = Value::Int(self.position as i64);
        let given = self.session.run("forward", &[ids.into(), at, last.into()]).unwrap();
        self.logits = floats(&given[0]);
        self.position += tokens.len();
    }

    fn rows(&mut self, rows: &[f32], count: usize) {
        let shape = vec![1, count, rows.len() / count];
        let rows = HostTensor::from_slice(shape, rows).unwrap();
        let at = Value::Int(self.position as i64);
        self.logits = floats(&self.session.run("text_decoder", &[rows.into(), at]).unwrap()[0]);
        self.position += count;
    }
}

#[test]
fn every_step_behind_images_is_what_transformers_computes() {
    let options = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    for (name, expected, prompts) in CASES {
        let (checkpoint, vision) = opened(name);
        let program: Program = exported(&checkpoint, &options);
        for (number, images) in prompts.iter().enumerate() {
            let mut reader = Reader { session: program.session().unwrap(), position: 0, logits: Vec::new() };
            let mut seen = Vec::new();
            for image in *images {
                let side = (pixels(image, &vision).len() / 3).isqrt();
                let shape = vec![1, 3, side, side];
                let pixels = HostTensor::from_slice(shape, &pixels(image, &vision)).unwrap();
                seen.push(floats(&reader.session.run("vision_encoder", &[pixels.into()]).unwrap()[0]));
            }
            if !images.is_empty() {
                let rows: Vec<f32> = seen.iter().flatten().copied().collect();
                let off = difference(&rows, &expected.floats(&format!("{number}.rows")));
                assert!(off < CLOSE, "{name}, {number}: rows are off by {off}");
            }
            let prompt = expected.integers(&format!("{number}.prompt"));
            let mut images = seen.iter();
            let is_row = |token: &i64| *token == i64::from(vision.marks.row);
            for part in prompt.chunk_by(|a, b| is_row(a) == is_row(b)) {
                match is_row(&part[0]) {
                    true => reader.rows(images.next().unwrap(), part.len()),
                    false => reader.tokens(part),
                }
            }
            let wanted = expected.floats(&format!("{number}.logits"));
            let tokens = expected.integers(&format!("{number}.tokens"));
            for (step, (wanted, token)) in wanted.chunks(wanted.len() / tokens.len()).zip(tokens).enumerate()
            {
                let off = difference(&reader.logits, wanted);
                assert!(off < CLOSE, "{name}, {number}: step {step} is off by {off}");
                reader.tokens(&[token]);
            }
        }
    }
}

#[test]
fn other_exports_read_text_alone_and_say_so() {
    let (checkpoint, _) = opened("gemma3");
    let said = |options: &ExportOptions| Export::new(&checkpoint, options).unwrap().remarks().join("\n");
    assert_eq!(said(&ExportOptions::default()), "");
    assert_eq!(said(&ExportOptions::batched()), "");
    let short = ExportOptions { chunk: Some(3), ..ExportOptions::default() };
    for options in [ExportOptions::for_executorch(), short] {
        assert!(said(&options).contains("vision part is left out"), "{}", said(&options));
    }
}
