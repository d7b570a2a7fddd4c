//! Files of `torch.save`, put together byte by byte: what is read of them, and what is refused.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use std::io::Write;

use pteron_format::Limits;
use pteron_import::pt2::Saved;
use pteron_tensor::Bytes;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn text(text: &str) -> Vec<u8> {
    let mut bytes = b"X".to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// A dictionary of pickled values.
fn dictionary(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entry = |(key, value): &(&str, Vec<u8>)| [text(key), value.clone(), b"s".to_vec()].concat();
    [b"}".to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// A tensor of two floats, as torch pickles it.
fn tensor(storage: &str, size: u8) -> Vec<u8> {
    let mut bytes = b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
    bytes.extend(text("storage"));
    bytes.extend(b"ctorch\nFloatStorage\n");
    bytes.extend(text(storage));
    bytes.extend(text("cpu"));
    bytes.extend(b"K\x02tQK\0K");
    bytes.push(size);
    bytes.extend(b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR");
    bytes
}

fn read(pickle: &[u8]) -> Result<Saved, String> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let whole = [&b"\x80\x02"[..], pickle, b"."].concat();
    let numbers: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    for (name, bytes) in [("archive/data.pkl", &whole), ("archive/data/0", &numbers)] {
        writer.start_file(name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    let file = writer.finish().unwrap().into_inner();
    Saved::read(Bytes::copy_of(&file), &Limits::untrusted()).map_err(|error| error.to_string())
}

#[test]
fn tensors_and_numbers_are_found_by_the_keys_that_lead_to_them() {
    let inner =
        dictionary(&[("n_mels", b"K\x50".to_vec()), ("name", text("tiny")), ("on", b"\x88".to_vec())]);
    let weights = dictionary(&[("conv1.weight", tensor("0", 2))]);
    let saved = read(&dictionary(&[("dims", inner), ("model_state_dict", weights)])).unwrap();
    assert_eq!(saved.numbers.iter().collect::<Vec<_>>(), [(&"dims.n_mels".to_owned(), &80)]);
    let (name, tensor) = saved.tensors.first().unwrap();
    assert_eq!((name.as_str(), tensor.sizes()), ("model_state_dict.conv1.weight", &[2][..]));
    assert_eq!(tensor.to_bytes()[..4], 1.5f32.to_le_bytes());
}

#[test]
fn what_reaches_beyond_the_file_is_refused() {
    assert!(read(&dictionary(&[("w", tensor("0", 3))])).unwrap_err().contains("beyond"));
    assert!(read(&dictionary(&[("w", tensor("7", 2))])).unwrap_err().contains("not there"));
    let deep = (0..6).fold(b"K\x01".to_vec(), |inner, _| dictionary(&[("d", inner)]));
    assert!(read(&deep).unwrap_err().contains("too deep"));
    assert!(read(b"cos\nsystem\n").is_err());
    assert!(Saved::read(Bytes::copy_of(b"PK\x03\x04"), &Limits::untrusted()).is_err());
}
