//! Tiny Gemma 4 models that see, from Hugging Face folders, held to what transformers computes (`make_gemma4.py`): patches, rows,
//! logits and greedy tokens behind images; and what is refused.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod speech;

use std::path::Path;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_companion::{Patches, Pixels, Size, Vision};
use pteron_runtime::{Program, Session, Value};
use pteron_tensor::{DType, HostTensor};
use pteron_vision::{Input, Picture, input};
use safetensors::SafeTensors;
use serde_json::{Value as Json, json};
use speech::{Expected, data, difference, exported, floats};
use tempfile::TempDir;

const CLOSE: f32 = 2e-4;
/// Of each its name, what is expected, the images of its prompts, and in parts of how many rows an image may be read: rows that see
/// each other are read at once.
type Case = (&'static str, Expected, &'static [&'static [&'static str]], &'static [usize]);
const CASES: [Case; 2] = [
    (
        "gemma4",
        Expected(include_bytes!("data/gemma4_expected.safetensors")),
        &[&["noise.png"], &["wide.png", "grey.png"], &[]],
        &[1, 7, 100],
    ),
    (
        "gemma4_other",
        Expected(include_bytes!("data/gemma4_other_expected.safetensors")),
        &[&["grey.png", "palette.png"], &["alpha.png"], &["thin.png"]],
        &[100],
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
    for (name, expected, prompts, _) in CASES {
        let (_, vision) = opened(name);
        for (number, images) in prompts.iter().enumerate().filter(|(_, images)| !images.is_empty()) {
            let mut wanted = expected.floats(&format!("{number}.pixels"));
            let mut places = expected.integers(&format!("{number}.places"));
            let counts = expected.integers(&format!("{number}.counts"));
            for (image, count) in images.iter().zip(counts) {
                let what = format!("{name}, {image}");
                let Input { values, shape, places: found } = patches(image, &vision);
                let (found, [patches, each]) = (found.unwrap(), [shape[0], shape[1]]);
                assert_eq!((found.rows.len() / 3, found.advance), (count as usize, count as usize), "{what}");
                // Of a patch the column and the row; here its square's patches are beside it.
                let rest = (wanted.split_off(patches * each), places.split_off(patches * 2));
                let at = |patch: usize| [found.patches[patches + patch], found.patches[patch]];
                let (mut off, mut seen) = (0.0f32, vec![false; patches]);
                for (patch, pixels) in values.chunks(each).enumerate() {
                    let same = places.chunks(2).position(|place| place == at(patch)).unwrap();
                    off = off.max(difference(pixels, &wanted[same * each..(same + 1) * each]));
                    seen[same] = true;
                }
                assert!(off < 1e-3 && seen.iter().all(|&seen| seen), "{what}: off by {off}");
                (wanted, places) = rest;
            }
            assert!(wanted.is_empty());
        }
    }
}

#[test]
fn images_of_every_form_are_brought_to_the_sizes_of_the_processor() {
    let (_, vision) = opened("gemma4");
    let size = Size::Largest { multiple: 48, squares: 280 };
    let patches = vision.pixels.patches.map(|patches| Patches { side: 16, ..patches });
    let pixels = Pixels { size, patches, ..vision.pixels };
    let sizes = CASES[0].1.integers("sizes");
    assert!(!sizes.is_empty());
    for size in sizes.chunks(4) {
        let [height, width, high, wide] = [0, 1, 2, 3].map(|at| size[at] as usize);
        let picture = Picture::new(width, height, vec![0; width * height * 3]).unwrap();
        let places = input(&picture, &pixels).unwrap().places.unwrap().patches;
        let count = places.len() / 3;
        let most = |axis: usize| places[axis * count..(axis + 1) * count].iter().max().unwrap() + 1;
        assert_eq!([most(0) * 16, most(1) * 16], [high as i64, wide as i64], "{height} by {width}");
        assert_eq!(count, high * wide / 256, "{height} by {width}");
    }
}

/// What a text is read with.
struct Reader {
    session: Session,
    position: usize,
    logits: Vec<f32>,
}

impl Reader {
    fn new(program: &Program) -> Reader {
        Reader { session: program.session().unwrap(), position: 0, logits: Vec::new() }
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
    fn rows(&mut self, rows: &[f32], count: usize, chunk: usize) {
        let width = rows.len() / count;
        for part in rows.chunks(chunk * width) {
            let length = part.len() / width;
            let rows = HostTensor::from_slice(vec![1, length, width], part).unwrap();
            let at = Value::Int(self.position as i64);
            self.logits = floats(&self.session.run("text_decoder", &[rows.into(), at]).unwrap()[0]);
            self.position += length;
        }
    }

    /// A whole prompt, with the rows of its images.
    fn prompt(&mut self, prompt: &[i64], row: u32, seen: &[Vec<f32>], chunk: usize) {
        let is_row = |token: &i64| *token == i64::from(row);
        let mut seen = seen.iter();
        for part in prompt.chunk_by(|a, b| is_row(a) == is_row(b)) {
            match is_row(&part[0]) {
                true => self.rows(seen.next().unwrap(), part.len(), chunk),
                false => self.tokens(part),
            }
        }
    }
}

fn options() -> ExportOptions {
    ExportOptions { activations: DType::F32, ..ExportOptions::default() }
}

#[test]
fn every_step_behind_images_is_what_transformers_computes() {
    for (name, expected, prompts, chunks) in CASES {
        let (checkpoint, vision) = opened(name);
        let program: Program = exported(&checkpoint, &options());
        for (number, images) in prompts.iter().enumerate() {
            for &chunk in chunks {
                let mut reader = Reader::new(&program);
                let seen: Vec<Vec<f32>> =
                    images.iter().map(|image| reader.look(&patches(image, &vision))).collect();
                if !images.is_empty() {
                    let off = difference(&seen.concat(), &expected.floats(&format!("{number}.rows")));
                    assert!(off < CLOSE, "{name}, {number}: rows are off by {off}");
                }
                let prompt = expected.integers(&format!("{number}.prompt"));
                reader.prompt(&prompt, vision.marks.row, &seen, chunk);
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

/// A copy of a model with another `config.json` and with some of its tensors.
fn changed(name: &str, change: impl FnOnce(&mut Json), keeps: impl Fn(&str) -> bool) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let to = |file: &str| folder.path().join(file);
    for entry in std::fs::read_dir(data(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to(path.file_name().unwrap().to_str().unwrap())).unwrap();
    }
    let mut config: Json = serde_json::from_slice(&std::fs::read(to("config.json")).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(to("config.json"), config.to_string()).unwrap();
    let weights = std::fs::read(to("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&weights).unwrap();
    let kept = tensors.iter().filter(|(name, _)| keeps(name));
    std::fs::write(to("model.safetensors"), safetensors::serialize(kept, None).unwrap()).unwrap();
    folder
}

/// Logits behind the first prompt of a model.
fn logits(folder: &Path, expected: &Expected, images: &[&str]) -> Vec<f32> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let vision = checkpoint.vision.clone().unwrap();
    let mut reader = Reader::new(&exported(&checkpoint, &options()));
    let seen: Vec<Vec<f32>> = images.iter().map(|image| reader.look(&patches(image, &vision))).collect();
    reader.prompt(&expected.integers("0.prompt"), vision.marks.row, &seen, 100);
    reader.logits
}

#[test]
fn every_setting_moves_the_logits() {
    type Change = fn(&mut Json);
    type Names = fn(&str) -> bool;
    let clips = |name: &str| name.ends_with("_min") || name.ends_with("_max");
    let moves = |name: &str| name.contains(".std_");
    // The case, what to change, and tensors that nobody asks for then.
    let none: Names = |_| false;
    let changes: [(usize, Change, Names); 8] = [
        (0, |config| config["vision_config"]["use_clipped_linears"] = json!(false), clips),
        (0, |config| config["vision_config"]["rope_parameters"]["rope_theta"] = json!(7.0), none),
        (0, |config| config["vision_config"]["rms_norm_eps"] = json!(0.5), none),
        (0, |config| config["vision_config"]["hidden_activation"] = json!("silu"), none),
        (0, |config| config["text_config"]["pad_token_id"] = json!(9), none),
        (1, |config| config["vision_config"]["standardize"] = json!(false), moves),
        (1, |config| config["text_config"]["use_bidirectional_attention"] = Json::Null, none),
        (1, |config| config["text_config"]["sliding_window"] = json!(60), none),
    ];
    for (number, (case, change, spare)) in changes.into_iter().enumerate() {
        let (name, expected, prompts, _) = &CASES[case];
        let other = changed(name, change, |tensor| !spare(tensor));
        let [plain, other] = [&data(name), other.path()].map(|folder| logits(folder, expected, prompts[0]));
        let off = difference(&plain, &other);
        assert!(off > 1e-3, "change {number} moves logits by {off} at most");
    }
}

/// What is said of a folder that is opened and exported.
fn said(folder: &Path) -> Result<String, String> {
    let checkpoint = Checkpoint::open(folder).map_err(|error| error.to_string())?;
    let export = Export::new(&checkpoint, &options()).map_err(|error| error.to_string())?;
    Ok(export.remarks().join("\n"))
}

#[test]
fn what_does_not_fit_together_is_named() {
    type Change = fn(&mut Json);
    let cases: [(Change, &str); 10] = [
        (|config| config["vision_config"]["hidden_size"] = json!(48), "asks for [48, 12]"),
        (
            |config| config["vision_config"]["patch_size"] = json!(3),
            "`patch_size` is 2, and the vision tower has 3",
        ),
        (|config| config["vision_config"]["pooling_kernel_size"] = json!(1), "`pooling_kernel_size` is 3"),
        (|config| config["vision_config"]["pooling_kernel_size"] = json!(4000), "for 70 rows of an image"),
        (|config| config["vision_config"]["head_dim"] = json!(6), "cannot turn by row and column"),
        (|config| config["vision_config"]["num_key_value_heads"] = json!(2), "3 heads of queries over 2"),
        (|config| config["vision_config"]["num_hidden_layers"] = json!(3), "encoder.layers.2."),
        (
            |config| config["vision_config"]["rope_parameters"]["rope_type"] = json!("yarn"),
            "`rope_type` is \"yarn\", which is not supported",
        ),
        (|config| config["text_config"]["pad_token_id"] = json!(300), "`pad_token_id` is 300, of 272 tokens"),
        (|config| config["image_token_id"] = json!(-1), "`image_token_id` is -1, not a token id"),
    ];
    for (change, message) in cases {
        let error = said(changed("gemma4", change, |_| true).path()).unwrap_err();
        assert!(error.contains(message), "{error:?} should say {message:?}");
    }
    let blind = changed("gemma4", |_| (), |tensor| !tensor.contains("vision_tower"));
    let error = said(blind.path()).unwrap_err();
    assert!(
        error.contains("vision_tower.patch_embedder.input_proj.weight: the checkpoint has no"),
        "{error}"
    );
    for rows in [json!(0), json!(5000), json!("many")] {
        let folder = changed("gemma4", |_| (), |_| true);
        let processor = json!({"image_processor": {"max_soft_tokens": rows}}).to_string();
        std::fs::write(folder.path().join("processor_config.json"), processor).unwrap();
        let error = said(folder.path()).unwrap_err();
        let message = "processor_config.json: `max_soft_tokens` is";
        assert!(error.contains(message), "{error:?} should say {message:?}");
    }
}

#[test]
fn other_exports_read_text_alone_and_say_so() {
    let remarks = |name: &str, options: &ExportOptions| {
        Export::new(&opened(name).0, options).unwrap().remarks().join("\n")
    };
    let short = ExportOptions { chunk: Some(60), ..ExportOptions::default() };
    for name in ["gemma4", "gemma4_other"] {
        assert_eq!(remarks(name, &ExportOptions::batched()), "");
        let said = remarks(name, &ExportOptions::for_executorch());
        assert!(said.contains("vision part is left out"), "{said}");
    }
    // Rows that see what came before them are read in parts; those that see each other are not.
    assert_eq!(remarks("gemma4", &short), "");
    assert!(remarks("gemma4_other", &short).contains("vision part is left out"));
    // No tower, and one without places for every image.
    type Change = fn(&mut Json);
    let changes: [Change; 2] = [
        |config| config["vision_config"] = Json::Null,
        |config| config["vision_config"]["position_embedding_size"] = json!(209),
    ];
    for change in changes {
        let said = said(changed("gemma4", change, |_| true).path()).unwrap();
        assert!(said.contains("vision part is left out") && said.contains("text alone"), "{said}");
    }
}
