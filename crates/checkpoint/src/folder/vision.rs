//! How a folder's images become pixels: `preprocessor_config.json`, or the part of `processor_config.json` that newer folders
//! have instead, and the marks of its `config.json`.

use std::path::{Path, PathBuf};

use pteron_companion::{Filter, Marks, Patches, Pixels, Size, Vision};
use pteron_models::Config;
use pteron_models::architectures::{Eyes, SOFT_TOKENS, Seeing};
use serde_json::{Map, Value};

use super::json;
use crate::CheckpointError;

/// Larger than any file about images.
const LARGEST: u64 = 1 << 20;
/// Rows that an image becomes at most, where a folder says it.
const MOST_SOFT_TOKENS: u64 = 1120;
/// Where it is written in the order of looking: the file, and the key in it.
const FILES: [(&str, Option<&str>); 2] =
    [("processor_config.json", Some("image_processor")), ("preprocessor_config.json", None)];

/// What is said of images in a folder, and where; nothing in its `config.json`, where no file says anything.
fn said(folder: &Path) -> Result<(PathBuf, Map<String, Value>), CheckpointError> {
    for (file, key) in FILES {
        let path = folder.join(file);
        let Some(said) = json::read_optional(&path, LARGEST)? else { continue };
        if let Some(Value::Object(said)) = key.map_or(Some(&said), |key| said.get(key)) {
            return Ok((path, said.clone()));
        }
    }
    Ok((folder.join("config.json"), Map::new()))
}

/// Lets what makes pixels of images say how many rows they become, where the model itself leaves that open (Gemma 4).
pub(super) fn bound(folder: &Path, config: &mut Config) -> Result<(), CheckpointError> {
    let (path, mut said) = said(folder)?;
    let Some(rows) = said.remove(SOFT_TOKENS).filter(|rows| !rows.is_null()) else { return Ok(()) };
    if !rows.as_u64().is_some_and(|rows| (1..=MOST_SOFT_TOKENS).contains(&rows)) {
        let problem = format!("`{SOFT_TOKENS}` is {rows}, not a number from 1 to {MOST_SOFT_TOKENS}");
        return Err(CheckpointError::configuration(&path, problem));
    }
    config.set(SOFT_TOKENS, rows);
    Ok(())
}

/// What a model that sees says of that.
pub(super) fn read(folder: &Path, config: &Config) -> Result<Vision, CheckpointError> {
    let path = folder.join("config.json");
    let seeing = Seeing::read(config);
    let seeing = seeing.map_err(|error| CheckpointError::configuration(&path, error.to_string()))?;
    let (path, mut said) = said(folder)?;
    let vision = match &seeing.eyes {
        Eyes::Gemma3(eyes) => {
            let side = eyes.tower.image_size;
            let usual = Pixels {
                size: Size::Fixed { height: side, width: side },
                filter: Filter::Bilinear,
                factor: 1.0 / 255.0,
                mean: [0.5; 3],
                deviation: [0.5; 3],
                patches: None,
            };
            let [placeholder, row, end] = eyes.marks;
            let around = "\n\n".to_owned();
            let marks = Marks { placeholder, row, begin: None, end: Some(end), around };
            fixed(&said, usual).map(|pixels| Vision { pixels, marks })
        }
        Eyes::Qwen(eyes) => {
            let usual = Pixels {
                size: Size::Near {
                    multiple: eyes.patch_size * eyes.spatial_merge_size,
                    least: 56 * 56,
                    most: 28 * 28 * 1280,
                },
                filter: Filter::Bicubic,
                factor: 1.0 / 255.0,
                mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
                deviation: [0.268_629_54, 0.261_302_6, 0.275_777_1],
                patches: Some(Patches {
                    side: eyes.patch_size,
                    merged: eyes.spatial_merge_size,
                    frames: eyes.temporal_patch_size,
                    window: eyes.window(),
                    by_pixel: false,
                    in_line: false,
                }),
            };
            let marks = alone(eyes.image_token_id);
            near(&said, usual, eyes.most_patches()).map(|pixels| Vision { pixels, marks })
        }
        Eyes::Qwen3(eyes) => {
            let usual = Pixels {
                size: Size::Near {
                    multiple: eyes.patch_size * eyes.spatial_merge_size,
                    least: 256 * 256,
                    most: 4096 * 4096,
                },
                filter: Filter::Bicubic,
                factor: 1.0 / 255.0,
                mean: [0.5; 3],
                deviation: [0.5; 3],
                patches: Some(Patches {
                    side: eyes.patch_size,
                    merged: eyes.spatial_merge_size,
                    frames: eyes.temporal_patch_size,
                    // Windows, where there are any, are none of these eyes.
                    window: 1,
                    by_pixel: false,
                    in_line: false,
                }),
            };
            let marks = alone(eyes.image_token_id);
            near(&said, usual, eyes.most_patches()).map(|pixels| Vision { pixels, marks })
        }
        Eyes::Gemma4(eyes) => {
            let (side, merged) = (eyes.patch_size, eyes.pooling_kernel_size);
            let usual = Pixels {
                size: Size::Largest { multiple: side * merged, squares: eyes.rows },
                filter: Filter::Bicubic,
                factor: 1.0 / 255.0,
                // The tower moves them itself.
                mean: [0.0; 3],
                deviation: [1.0; 3],
                patches: Some(Patches { side, merged, frames: 1, window: 1, by_pixel: true, in_line: true }),
            };
            let [begin, row, end] = eyes.marks;
            let marks = Marks { begin: Some(begin), end: Some(end), ..alone(row) };
            said.entry("do_normalize").or_insert(Value::Bool(false));
            agrees(&said, "patch_size", side)
                .and_then(|()| agrees(&said, "pooling_kernel_size", merged))
                .and_then(|()| plain(&said, usual))
                .map(|pixels| Vision { pixels, marks })
        }
    };
    vision.map_err(|problem| CheckpointError::configuration(&path, problem))
}

/// Marks of a model whose templates write for an image what stands for each row of it, and nothing around that.
fn alone(row: u32) -> Marks {
    Marks { placeholder: row, row, begin: None, end: None, around: String::new() }
}

/// Images of one size, which is the tower's.
fn fixed(said: &Map<String, Value>, usual: Pixels) -> Result<Pixels, String> {
    refuse(said, &["do_pan_and_scan", "do_center_crop", "do_pad"])?;
    let pixels = plain(said, usual)?;
    let given = said.get("size").filter(|size| !size.is_null());
    let sides = given.map(|size| ["height", "width"].map(|side| size.get(side).and_then(Value::as_u64)));
    let Size::Fixed { height, width } = pixels.size else { return Ok(pixels) };
    match sides {
        Some(sides) if sides != [Some(height as u64), Some(width as u64)] => Err(format!(
            "`size` is {}, and the vision tower takes {height} times {width}",
            given.map_or_else(String::new, Value::to_string)
        )),
        _ => Ok(pixels),
    }
}

/// Images near their own size, of so many patches at most.
fn near(said: &Map<String, Value>, usual: Pixels, most_patches: usize) -> Result<Pixels, String> {
    let mut pixels = plain(said, usual)?;
    let (Size::Near { multiple, least, most }, Some(patches)) = (pixels.size, pixels.patches) else {
        return Ok(pixels);
    };
    for (key, wanted) in [
        ("patch_size", patches.side),
        ("merge_size", patches.merged),
        ("temporal_patch_size", patches.frames),
    ] {
        agrees(said, key, wanted)?;
    }
    let bound = |older: &str, newer: &str, usual: usize| {
        let given = said.get(older).filter(|given| !given.is_null());
        let given = given.or_else(|| said.get("size")?.get(newer)).filter(|given| !given.is_null());
        let Some(given) = given else { return Ok(usual) };
        let pixels = given.as_u64().and_then(|pixels| usize::try_from(pixels).ok());
        pixels
            .filter(|&pixels| pixels > 0)
            .ok_or_else(|| format!("`{newer}` is {given}, not a number of pixels"))
    };
    let least = bound("min_pixels", "shortest_edge", least)?;
    // What the tower takes in one call is the bound of what it is worth to be larger.
    let most = bound("max_pixels", "longest_edge", most)?.min(most_patches * patches.side.pow(2));
    if most < least || most < multiple.pow(2) {
        return Err(format!("images of {least} to {most} pixels, in squares of {multiple}"));
    }
    pixels.size = Size::Near { multiple, least, most };
    Ok(pixels)
}

/// An error where what makes pixels has another size than the tower.
fn agrees(said: &Map<String, Value>, key: &str, wanted: usize) -> Result<(), String> {
    let given = said.get(key).filter(|given| !given.is_null());
    match given.filter(|given| given.as_u64() != Some(wanted as u64)) {
        Some(given) => Err(format!("`{key}` is {given}, and the vision tower has {wanted}")),
        None => Ok(()),
    }
}

/// What all front ends have: the filter and the numbers.
fn plain(said: &Map<String, Value>, usual: Pixels) -> Result<Pixels, String> {
    let does = |key: &str| said.get(key).and_then(Value::as_bool) != Some(false);
    if !does("do_resize") {
        return Err("`do_resize` is false, which is not supported".to_owned());
    }
    let mut pixels = usual;
    if let Some(number) = said.get("resample").filter(|number| !number.is_null()) {
        let filter = number.as_u64().and_then(Filter::numbered);
        pixels.filter = filter.ok_or_else(|| format!("`resample` is {number}, which is no filter"))?;
    }
    if let Some(factor) = said.get("rescale_factor").and_then(Value::as_f64) {
        pixels.factor = factor as f32;
    }
    if !does("do_rescale") {
        pixels.factor = 1.0;
    }
    for (key, to) in [("image_mean", &mut pixels.mean), ("image_std", &mut pixels.deviation)] {
        if let Some(given) = said.get(key).filter(|given| !given.is_null()) {
            *to = three(given).ok_or_else(|| format!("`{key}` is {given}, not three numbers"))?;
        }
    }
    if !does("do_normalize") {
        (pixels.mean, pixels.deviation) = ([0.0; 3], [1.0; 3]);
    }
    let is_fine = |number: &f32| number.is_finite();
    let all = pixels.mean.iter().chain(&pixels.deviation).chain([&pixels.factor]).all(is_fine);
    match all && pixels.deviation.iter().all(|&by| by > 0.0) {
        true => Ok(pixels),
        false => Err("`rescale_factor`, `image_mean` and `image_std` give no pixels".to_owned()),
    }
}

/// One number for all channels, or one for each.
fn three(value: &Value) -> Option<[f32; 3]> {
    if let Some(one) = value.as_f64() {
        return Some([one as f32; 3]);
    }
    let all: Option<Vec<f32>> =
        value.as_array()?.iter().map(|number| number.as_f64().map(|number| number as f32)).collect();
    all?.try_into().ok()
}

fn refuse(said: &Map<String, Value>, keys: &[&str]) -> Result<(), String> {
    match keys.iter().find(|key| said.get(**key).and_then(Value::as_bool) == Some(true)) {
        Some(key) => Err(format!("`{key}` is true, which is not supported")),
        None => Ok(()),
    }
}
