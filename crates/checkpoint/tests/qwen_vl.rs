//! Tiny Qwen2.5-VLs and Qwen3-VLs, from Hugging Face folders, held to what transformers computes (`make_qwen_vl.py`): patches, rows, logits and
//! greedy tokens behind images.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod speech;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_companion::Vision;
use pteron_runtime::{BufferId, Program, Session, Value};
use pteron_tensor::{DType, HostTensor};
use pteron_vision::{Input, Picture, Places, input};
use speech::{Expected, data, difference, exported, floats};

const CLOSE: f32 = 2e-4;
const CASES: [(&str, Expected, &[&[&str]]); 4] = [
    (
        "qwen2_5_vl",
        Expected(include_bytes!("data/qwen2_5_vl_expected.safetensors")),
        &[&["noise.png"], &["wide.png", "grey.png"], &[]],
    ),
    (
        "qwen2_5_vl_other",
        Expected(include_bytes!("data/qwen2_5_vl_other_expected.safetensors")),
        &[&["grey.png", "palette.png"], &["alpha.png"]],
    ),
    (
        "qwen3_vl",
        Expected(include_bytes!("data/qwen3_vl_expected.safetensors")),
        &[&["noise.png"], &["wide.png", "grey.png"], &[]],
    ),
    (
        "qwen3_vl_other",
        Expected(include_bytes!("data/qwen3_vl_other_expected.safetensors")),
        &[&["grey.png", "palette.png"], &["alpha.png"]],
    ),
];

fn opened(name: &str) -> (Checkpoint, Vision) {
    let checkpoint = Checkpoint::open(&data(name)).unwrap();
    let vision = checkpoint.vision.clone().unwrap();
    (checkpoint, vision)
}

fn patches(name: &str, vision: &Vision) -> Input {
    let picture = Picture::read(&std::fs::read(data(&format!("images/{name}"))).unwrap()).unwrap();
    input(&picture, &vision.pixels).unwrap()
}

#[test]
fn patches_are_those_of_the_processor() {
    for (name, expected, prompts) in CASES {
        let (_, vision) = opened(name);
        for (number, images) in prompts.iter().enumerate().filter(|(_, images)| !images.is_empty()) {
            let found: Vec<f32> = images.iter().flat_map(|image| patches(image, &vision).values).collect();
            let off = difference(&found, &expected.floats(&format!("{number}.pixels")));
            assert!(off < 1e-3, "{name}, {number}: off by {off}");
        }
    }
}

/// What a text is read with.
struct Reader {
    session: Session,
    shift: BufferId,
    position: usize,
    shifted: i64,
    logits: Vec<f32>,
}

impl Reader {
    fn new(program: &Program) -> Reader {
        let shift = program.buffers().iter().find(|buffer| buffer.id.name == "position_shift").unwrap();
        Reader {
            session: program.session().unwrap(),
            shift: shift.id.clone(),
            position: 0,
            shifted: 0,
            logits: Vec::new(),
        }
    }

    fn look(&mut self, input: &Input) -> Vec<f32> {
        let places = &input.places.as_ref().unwrap().patches;
        let places = HostTensor::from_slice(vec![3, places.len() / 3], places).unwrap();
        let pixels = HostTensor::from_slice(input.shape.clone(), &input.values).unwrap();
        floats(&self.session.run("vision_encoder", &[pixels.into(), places.into()]).unwrap()[0])
    }

    fn tokens(&mut self, tokens: &[i64]) {
        let ids = HostTensor::from_slice(vec![1, tokens.len()], tokens).unwrap();
        let last = HostTensor::from_slice(vec![1], &[tokens.len() as i64 - 1]).unwrap();
        let at = Value::Int(self.position as i64);
        let given = self.session.run("forward", &[ids.into(), at, last.into()]).unwrap();
        self.logits = floats(&given[0]);
        self.position += tokens.len();
    }

    /// Rows of an image in parts of that many.
    fn rows(&mut self, rows: &[f32], places: &Places, chunk: usize) {
        let count = places.rows.len() / 3;
        let width = rows.len() / count;
        let first = self.position as i64 + self.shifted;
        for from in (0..count).step_by(chunk) {
            let to = (from + chunk).min(count);
            let along = |axis: usize| places.rows[axis * count + from..axis * count + to].iter();
            let positions: Vec<i64> = (0..3).flat_map(along).map(|place| place + first).collect();
            let positions = HostTensor::from_slice(vec![3, to - from], &positions).unwrap();
            let part = &rows[from * width..to * width];
            let part = HostTensor::from_slice(vec![1, to - from, width], part).unwrap();
            let at = Value::Int((self.position + from) as i64);
            let given = self.session.run("text_decoder", &[part.into(), at, positions.into()]).unwrap();
            self.logits = floats(&given[0]);
        }
        self.position += count;
        self.shifted += places.advance as i64 - count as i64;
        let shift = HostTensor::from_slice(vec![1], &[self.shifted]).unwrap();
        self.session.write(&self.shift, &shift).unwrap();
    }
}

#[test]
fn every_step_behind_images_is_what_transformers_computes() {
    let options = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    for (name, expected, prompts) in CASES {
        let (checkpoint, vision) = opened(name);
        let program: Program = exported(&checkpoint, &options);
        for (number, images) in prompts.iter().enumerate() {
            for chunk in [1, 5, 100] {
                let mut reader = Reader::new(&program);
                let inputs: Vec<Input> = images.iter().map(|image| patches(image, &vision)).collect();
                let seen: Vec<Vec<f32>> = inputs.iter().map(|input| reader.look(input)).collect();
                if !images.is_empty() {
                    let off = difference(&seen.concat(), &expected.floats(&format!("{number}.rows")));
                    assert!(off < CLOSE, "{name}, {number}: rows are off by {off}");
                }
                let prompt = expected.integers(&format!("{number}.prompt"));
                let mut each = seen.iter().zip(&inputs);
                let is_row = |token: &i64| *token == i64::from(vision.marks.row);
                for part in prompt.chunk_by(|a, b| is_row(a) == is_row(b)) {
                    match is_row(&part[0]) {
                        true => {
                            let (rows, input) = each.next().unwrap();
                            reader.rows(rows, input.places.as_ref().unwrap(), chunk);
                        }
                        false => reader.tokens(part),
                    }
                }
                let wanted = expected.floats(&format!("{number}.logits"));
                let tokens = expected.integers(&format!("{number}.tokens"));
                for (step, (wanted, token)) in
                    wanted.chunks(wanted.len() / tokens.len()).zip(tokens).enumerate()
                {
                    let off = difference(&reader.logits, wanted);
                    assert!(off < CLOSE, "{name}, {number}, by {chunk}: step {step} is off by {off}");
                    reader.tokens(&[token]);
                }
            }
        }
    }
}

#[test]
fn other_exports_read_text_alone_and_say_so() {
    let (checkpoint, _) = opened("qwen2_5_vl");
    let said = |options: &ExportOptions| Export::new(&checkpoint, options).unwrap().remarks().join("\n");
    assert_eq!(said(&ExportOptions::default()), "");
    for options in [ExportOptions::for_executorch(), ExportOptions::batched()] {
        assert!(said(&options).contains("vision part is left out"), "{}", said(&options));
    }
}
