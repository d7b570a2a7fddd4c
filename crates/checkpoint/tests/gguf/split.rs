//! Models that are cut into several files.

use std::path::{Path, PathBuf};

use pteron_checkpoint::{Checkpoint, ExportOptions, export};
use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_gguf::{Value, Writer};
use pteron_tensor::Bytes;

use super::tiny::*;

/// The file of a model cut into three: the metadata alone, then two with tensors.
fn parts() -> [Writer; 3] {
    let whole = read(&llama("Q4_0", &[0]).finish());
    let tensors = whole.tensors().len();
    let part = |number: usize| {
        let mut out = Writer::new();
        for (key, value) in whole.metadata().iter().filter(|_| number == 0) {
            out.put(key, value).unwrap();
        }
        out.put("split.no", Value::U16(number as u16)).unwrap();
        out.put("split.count", Value::U16(3)).unwrap();
        out.put("split.tensors.count", Value::I32(tensors as i32)).unwrap();
        let range = [0..0, 0..tensors / 2, tensors / 2..tensors][number].clone();
        for tensor in whole.tensors().skip(range.start).take(range.len()) {
            let data = whole.data(tensor).unwrap().to_vec();
            out.tensor(tensor.name(), tensor.shape(), tensor.ty(), data).unwrap();
        }
        out
    };
    [0, 1, 2].map(part)
}

fn path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("tiny-{number:05}-of-00003.gguf"))
}

fn write(folder: &Path, parts: &[Writer]) {
    for (at, part) in parts.iter().enumerate() {
        std::fs::write(path(folder, at + 1), part.finish()).unwrap();
    }
}

/// The program that a source becomes.
fn program(source: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model.pte");
    let checkpoint = Checkpoint::open(source).unwrap();
    let options = ExportOptions { context: Some(16), ..ExportOptions::default() };
    export(&checkpoint, &options, &out, &mut |_| ()).unwrap();
    std::fs::read(&out).unwrap()
}

#[test]
fn any_part_and_the_folder_mean_the_whole_model() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &parts());
    let checkpoint = Checkpoint::open(&path(folder.path(), 2)).unwrap();
    assert_eq!((checkpoint.origin.name.as_str(), checkpoint.origin.files.len()), ("tiny", 3));
    let from_first = program(&path(folder.path(), 1));
    assert!(program(&path(folder.path(), 3)) == from_first && program(folder.path()) == from_first);
    // The same weights as in one file; only the provenance names other files.
    let single = tempfile::tempdir().unwrap();
    std::fs::write(single.path().join("tiny.gguf"), llama("Q4_0", &[0]).finish()).unwrap();
    let opened = |program: &[u8]| Pte::read(Bytes::copy_of(program), &Limits::default()).unwrap();
    let (parts, whole) = (opened(&from_first), opened(&program(single.path())));
    for key in ["model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight", "model.norm.weight"] {
        assert_eq!(parts.named(key).unwrap(), whole.named(key).unwrap(), "{key}");
    }
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let refused = |change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &parts());
        change(folder.path());
        Checkpoint::open(&path(folder.path(), 1)).err().unwrap().to_string()
    };
    let missing = refused(&|folder| std::fs::remove_file(path(folder, 3)).unwrap());
    assert!(missing.contains("tiny-00003-of-00003.gguf: part 3 of 3 is missing"), "{missing}");
    let twice = refused(&|folder| {
        std::fs::copy(path(folder, 2), path(folder, 3)).unwrap();
    });
    assert!(twice.contains("it is not part 3 of 3, as its name says"), "{twice}");
    let lost = refused(&|folder| {
        let [_, part, _] = parts();
        std::fs::write(path(folder, 2), without(&part, &["token_embd.weight"]).finish()).unwrap();
    });
    assert!(lost.contains("tensors together, not"), "{lost}");
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("renamed.gguf");
    std::fs::write(&alone, parts()[0].finish()).unwrap();
    let renamed = Checkpoint::open(&alone).err().unwrap().to_string();
    assert!(renamed.contains("name it so again"), "{renamed}");
}
