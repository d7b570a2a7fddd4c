//! What a fuzz target begins with: cut out of the packed sample and the packed vectors, or made here.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use pteron_format::payload::Payload;
use pteron_format::pte::Pte;
use pteron_format::vulkan::VULKAN_BACKEND;
use pteron_format::xnnpack::XNNPACK_BACKEND;
use pteron_format::{Limits, lift};
use pteron_gguf::{TensorType, Value, ValueType, Writer};
use pteron_tensor::{Bytes, DType, HostTensor, npy};

use super::Target;
use super::text_seeds;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::{case, workspace};

/// Fills a folder with what there is for a target to begin with; says how many there are.
pub(super) fn write(target: Target, folder: &Path) -> Result<usize> {
    match target {
        Target::Gguf => write_all(folder, &[gguf_seed()?], target),
        Target::Pt2 => write_exports(folder),
        Target::Npy => write_all(folder, &npy_seeds(), target),
        Target::Template => write_all(folder, &text_seeds::templates()?, target),
        Target::Jinja => write_all(folder, &text_seeds::choices(), target),
        Target::Tokenizer => write_all(folder, &text_seeds::tokenizers()?, target),
        Target::Conversation => write_all(folder, &text_seeds::conversations(), target),
        Target::Schema => write_all(folder, &text_seeds::schemas()?, target),
        Target::Sound => write_all(folder, &sound_seeds()?, target),
        Target::Xnnpack => write_packed(&workspace::xnnpack_cases(), target, folder),
        Target::VulkanPayload => write_packed(&workspace::vulkan_cases(), target, folder),
        _ => write_packed(&workspace::sample(), target, folder),
    }
}

/// Writes those that the target would not cut short.
fn write_all(folder: &Path, seeds: &[Vec<u8>], target: Target) -> Result<usize> {
    let whole = seeds.iter().filter(|seed| seed.len() <= target.longest());
    let mut count = 0;
    for seed in whole {
        let path = folder.join(format!("{count:04}"));
        fs::write(&path, seed).doing("write", &path)?;
        count += 1;
    }
    Ok(count)
}

/// The graphs of the exports among the cases of ops, where those have been made: the sample has no exports.
fn write_exports(folder: &Path) -> Result<usize> {
    let cases = Cache::locate()?.set("ops");
    let found = if cases.is_dir() { case::find(&cases)? } else { vec![] };
    let mut count = 0;
    for case in found {
        let path = case.folder.join("model.pt2");
        let Ok(file) = File::open(&path) else { continue };
        let mut archive = zip::ZipArchive::new(file).map_err(|error| Error::content(&path, error))?;
        let graph = (0..archive.len()).find(|&index| {
            let name = archive
                .by_index(index)
                .ok()
                .and_then(|member| member.name().ok().map(|name| name.to_string()));
            name.is_some_and(|name| name.ends_with("models/model.json"))
        });
        let Some(index) = graph else { continue };
        let mut bytes = vec![];
        let member = archive.by_index(index).map_err(|error| Error::content(&path, error))?;
        member.take(Target::Pt2.longest() as u64 + 1).read_to_end(&mut bytes).doing("read", &path)?;
        if bytes.len() <= Target::Pt2.longest() {
            let seed = folder.join(format!("{}.json", case.name()));
            fs::write(&seed, bytes).doing("write", &seed)?;
            count += 1;
        }
    }
    Ok(count)
}

/// What packed cases offer.
fn write_packed(path: &Path, target: Target, folder: &Path) -> Result<usize> {
    let file = File::open(path).doing("open", path)?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| Error::content(path, error))?;
    let mut count = 0;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| Error::content(path, error))?;
        let name = member.name().map_err(|error| Error::content(path, error))?.replace('/', "-");
        let mut bytes = vec![];
        member.read_to_end(&mut bytes).doing("read", path)?;
        for (part, seed) in seeds(target, &name, &bytes).iter().enumerate() {
            if seed.len() <= target.longest() {
                let seed_path = folder.join(format!("{name}.{part}"));
                fs::write(&seed_path, seed).doing("write", &seed_path)?;
                count += 1;
            }
        }
    }
    Ok(count)
}

fn seeds(target: Target, name: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let (program, data) = (name.ends_with(".pte"), name.ends_with(".ptd"));
    match target {
        Target::Container if program || data => vec![bytes.to_vec()],
        Target::Execute if program => vec![bytes.to_vec()],
        Target::Payload | Target::Lift if program => payloads(bytes),
        Target::Xnnpack if program => payloads_of(bytes, XNNPACK_BACKEND),
        Target::VulkanPayload if program => payloads_of(bytes, VULKAN_BACKEND),
        Target::Text if program => payloads(bytes).iter().filter_map(|payload| text(payload)).collect(),
        _ => vec![],
    }
}

/// A file with a tensor of every type that there is, and metadata of several.
fn gguf_seed() -> Result<Vec<u8>> {
    let mut file = Writer::new();
    let failed = |error: pteron_gguf::GgufError| Error::message(error.to_string());
    file.put("general.architecture", Value::String(b"llama")).map_err(failed)?;
    file.put("llama.block_count", Value::U32(1)).map_err(failed)?;
    file.put_array("tokenizer.ggml.tokens", ValueType::String, &[Value::String(b"a"), Value::String(b"b")])
        .map_err(failed)?;
    for ty in (0..64).filter_map(TensorType::from_number) {
        let row = ty.block_len() * 2;
        let Some(bytes) = ty.row_bytes(row) else { continue };
        let data = (0..2 * bytes).map(|at| (at * 37) as u8).collect();
        file.tensor(ty.name(), &[2, row], ty, data).map_err(failed)?;
    }
    Ok(file.finish())
}

/// A file of every type that NumPy has, in several shapes.
fn npy_seeds() -> Vec<Vec<u8>> {
    let shapes = [vec![], vec![3], vec![2, 0, 4], vec![2, 3]];
    let tensors = DType::all().flat_map(|dtype| shapes.iter().map(move |shape| (dtype, shape.clone())));
    let tensors = tensors.filter_map(|(dtype, shape)| HostTensor::zeros(dtype, shape).ok());
    tensors.filter_map(|tensor| npy::write(&tensor)).collect()
}

/// The sound files of the tests, and one without compression.
fn sound_seeds() -> Result<Vec<Vec<u8>>> {
    let folder = workspace::root().join("crates/speech/tests/data");
    // A WAV file of 16-bit samples, 16,000 a second.
    let mut wav =
        b"RIFF\xa4\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x80\0\0\0"
            .to_vec();
    wav.extend(0..128);
    let mut seeds = vec![wav];
    let names = ["tone.flac", "tone.m4a", "tone.mp3", "tone.ogg", "tone.opus", "tone.webm", "tone-opus.mp4"];
    for name in names.into_iter().chain(["voice-silk.opus", "voice-hybrid.opus", "voice-celt.opus"]) {
        let path = folder.join(name);
        seeds.push(fs::read(&path).doing("read", &path)?);
    }
    Ok(seeds)
}

/// The text form of what a payload holds.
fn text(payload: &[u8]) -> Option<Vec<u8>> {
    let limits = Limits::untrusted();
    let payload = Payload::decode(payload, &limits).ok()?;
    Some(lift(&payload, "seed", &limits).ok()?.to_string().into_bytes())
}

/// The payloads of a delegate in a program, each behind a byte that the target reads first.
fn payloads_of(bytes: &[u8], id: &str) -> Vec<Vec<u8>> {
    let Ok(pte) = Pte::read(Bytes::copy_of(bytes), &Limits::untrusted()) else { return vec![] };
    let delegates = pte.program.execution_plan.iter().flat_map(|plan| plan.delegates.iter());
    let payloads = delegates.filter(|delegate| &*delegate.id == id);
    payloads.filter_map(|delegate| Some([&[1][..], &pte.payload(delegate)?[..]].concat())).collect()
}

/// The MLX payloads in a program, found by their magic: four bytes, "MLX0", then where data begin and their size.
fn payloads(bytes: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| -> Option<usize> {
        let field: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(field)).ok()
    };
    let starts = (0..bytes.len().saturating_sub(24)).filter(|&at| &bytes[at + 4..at + 8] == b"MLX0");
    starts
        .filter_map(|at| {
            let end = at.checked_add(number(at + 8)?)?.checked_add(number(at + 16)?)?;
            bytes.get(at..end).map(<[u8]>::to_vec)
        })
        .collect()
}
