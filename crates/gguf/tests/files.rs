//! Whole files: what is written comes back, and what is damaged is refused with its place.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use proptest::prelude::*;
use pteron_gguf::{Gguf, GgufError, Limits, TensorType, Value, ValueType, Writer};
use pteron_tensor::Bytes;

fn read(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::read(Bytes::copy_of(bytes), &Limits::default())
}

fn ty(name: &str) -> TensorType {
    TensorType::from_name(name).unwrap()
}

/// A file with a value of every type, a nested array and tensors of two types.
fn sample() -> Writer {
    let mut writer = Writer::new();
    for (key, value) in scalars() {
        writer.put(key, value).unwrap();
    }
    let tokens = [Value::String(b"<s>"), Value::String(b""), Value::String(b"\xff\xfe")];
    writer.put_array("tokens", ValueType::String, &tokens).unwrap();
    writer.put_array("scores", ValueType::F32, &[Value::F32(-1.5), Value::F32(0.25)]).unwrap();
    writer.put_array("pattern", ValueType::Bool, &[Value::Bool(true), Value::Bool(false)]).unwrap();
    let mut inner = Writer::new();
    inner.put_array("inner", ValueType::U8, &[Value::U8(1), Value::U8(2)]).unwrap();
    let inner = read(&inner.finish()).unwrap();
    let nested = inner.metadata().get("inner").unwrap();
    writer.put_array("nested", ValueType::Array, &[nested, nested]).unwrap();
    let floats: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    writer.tensor("norm", &[2, 3], ty("F32"), floats).unwrap();
    // Scale 1, codes 0 and 1 in each nibble pair: -8 for the first sixteen, -7 for the others.
    let block: Vec<u8> = [0x00, 0x3c].into_iter().chain([0x10; 16]).collect();
    writer.tensor("packed", &[2, 32], ty("Q4_0"), block.repeat(2)).unwrap();
    writer.tensor("one", &[], ty("F32"), 7f32.to_le_bytes().to_vec()).unwrap();
    writer
}

fn scalars() -> [(&'static str, Value<'static>); 12] {
    [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-3)),
        ("u16", Value::U16(60000)),
        ("i16", Value::I16(-30000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("f32", Value::F32(0.5)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("käse".as_bytes())),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(1e300)),
    ]
}

#[test]
fn values_of_every_type_come_back() {
    let file = read(&sample().finish()).unwrap();
    assert_eq!(file.version(), 3);
    let metadata = file.metadata();
    for (key, value) in scalars() {
        assert_eq!(metadata.get(key), Some(value), "{key}");
    }
    let tokens = metadata.array("tokens").unwrap().unwrap();
    assert_eq!(tokens.strings().unwrap().collect::<Vec<_>>(), [b"<s>".as_slice(), b"", b"\xff\xfe"]);
    assert_eq!((tokens.len(), tokens.element()), (3, ValueType::String));
    let scores = metadata.array("scores").unwrap().unwrap();
    assert_eq!(scores.floats().unwrap().collect::<Vec<_>>(), [-1.5, 0.25]);
    assert!(scores.strings().is_none() && scores.integers().is_none());
    let pattern = metadata.array("pattern").unwrap().unwrap();
    assert_eq!(pattern.bools().unwrap().collect::<Vec<_>>(), [true, false]);
    let nested = metadata.array("nested").unwrap().unwrap();
    let inner: Vec<i64> =
        nested.values().flat_map(|value| value.as_array().unwrap().integers().unwrap()).collect();
    assert_eq!(inner, [1, 2, 1, 2]);
    assert_eq!(metadata.iter().count(), 16);
}

#[test]
fn typed_lookups_convert_or_say_what_is_there() {
    let file = read(&sample().finish()).unwrap();
    let metadata = file.metadata();
    assert_eq!(metadata.integer("u8"), Ok(Some(200)));
    assert_eq!(metadata.integer("absent"), Ok(None));
    assert_eq!(metadata.float("f32"), Ok(Some(0.5)));
    assert_eq!(metadata.text("string"), Ok(Some("käse")));
    assert_eq!(metadata.boolean("bool"), Ok(Some(true)));
    for error in [metadata.integer("i8").unwrap_err(), metadata.integer("tokens").unwrap_err()] {
        assert!(matches!(error, GgufError::KeyType { .. }), "{error}");
    }
    assert_eq!(
        metadata.text("tokens").unwrap_err().to_string(),
        "metadata \"tokens\" is an array of 3 string, where UTF-8 text is needed"
    );
}

#[test]
fn tensors_have_shapes_and_any_part_of_their_numbers() {
    for writer in [sample(), aligned(sample(), 64)] {
        let file = read(&writer.finish()).unwrap();
        let norm = file.tensor("norm").unwrap();
        assert_eq!((norm.shape(), norm.ty(), norm.elements()), ([2, 3].as_slice(), ty("F32"), 6));
        let mut part = [0.0; 4];
        file.decode(norm, 1..5, &mut part).unwrap();
        assert_eq!(part, [1.0, 2.0, 3.0, 4.0]);
        let packed = file.tensor("packed").unwrap();
        let whole: Vec<f32> = (0..64).map(|p| if p % 32 < 16 { -8.0 } else { -7.0 }).collect();
        for start in 0..64 {
            for end in start..=64 {
                let mut got = vec![0.0; end - start];
                file.decode(packed, start..end, &mut got).unwrap();
                assert_eq!(got, whole[start..end]);
            }
        }
        assert!(file.decode(packed, 0..65, &mut [0.0; 65]).is_err());
        assert!(file.decode(packed, 0..64, &mut [0.0; 63]).is_err());
        assert_eq!(file.tensor("one").unwrap().shape(), [0; 0]);
        assert_eq!(file.tensors().len(), 3);
    }
}

/// The same content with another alignment.
fn aligned(writer: Writer, alignment: u32) -> Writer {
    let file = read(&writer.finish()).unwrap();
    let mut other = Writer::with_alignment(alignment).unwrap();
    file.metadata().iter().for_each(|(key, value)| other.put(key, value).unwrap());
    for tensor in file.tensors() {
        let data = file.data(tensor).unwrap().to_vec();
        other.tensor(tensor.name(), tensor.shape(), tensor.ty(), data).unwrap();
    }
    other
}

#[test]
fn what_is_read_can_be_written_again_byte_for_byte() {
    let bytes = sample().finish();
    let file = read(&bytes).unwrap();
    let mut again = Writer::new();
    file.metadata().iter().for_each(|(key, value)| again.put(key, value).unwrap());
    for tensor in file.tensors() {
        let data = file.data(tensor).unwrap().to_vec();
        again.tensor(tensor.name(), tensor.shape(), tensor.ty(), data).unwrap();
    }
    assert_eq!(again.finish(), bytes);
}

/// A file of one tensor entry, for entries that no writer would make.
fn with_tensor(name: &str, dims: &[u64], ty: u32, offset: u64, data: usize) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend((name.len() as u64).to_le_bytes());
    out.extend(name.as_bytes());
    out.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
    out.extend(ty.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out.resize(out.len().next_multiple_of(32) + data, 0);
    out
}

/// A file of one metadata entry whose value is `bytes`.
fn with_value(ty: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    out.extend(1u64.to_le_bytes());
    out.push(b'k');
    out.extend(ty.to_le_bytes());
    out.extend(bytes);
    out
}

#[test]
fn damaged_files_are_refused_with_their_place() {
    let array = |ty: u32, len: u64| [ty.to_le_bytes().as_slice(), &len.to_le_bytes()].concat();
    let deep: Vec<u8> = array(9, 1).repeat(9);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"PK\x03\x04".to_vec(), "no GGUF file"),
        (b"".to_vec(), "no GGUF file"),
        (b"GGUF\x01\0\0\0".to_vec(), "version 1 is not read"),
        (b"GGUF\0\0\0\x03".to_vec(), "big-endian"),
        (b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "beyond the limit"),
        (with_value(13, &[]), "13 is no type"),
        (with_value(7, &[2]), "a bool of 2"),
        (with_value(8, &u64::MAX.to_le_bytes()), "string_bytes"),
        (with_value(8, &100u64.to_le_bytes()), "cut short"),
        (with_value(9, &array(8, 1 << 20)), "cut short"),
        (with_value(9, &array(0, u64::MAX)), "array_len"),
        (with_value(9, &deep), "array_depth"),
        (with_tensor("w", &[1 << 40, 1 << 40], 0, 0, 32), "more elements than memory"),
        (with_tensor("w", &[0, 1 << 62, 1 << 62], 0, 0, 32), "more elements than memory"),
        (with_tensor("w", &[8], 0, 32, 32), "cut short"),
        (with_tensor("w", &[8], 0, u64::MAX - 31, 32), "cut short"),
        (with_tensor("w", &[8], 0, 4, 64), "not aligned"),
        (with_tensor("w", &[33], 2, 0, 64), "no whole blocks of 32, as Q4_0 needs"),
        (with_tensor("w", &[8], 999, 0, 64), "type 999 is unknown"),
        (with_tensor("w", &[1, 1, 1, 1, 1], 0, 0, 64), "rank"),
    ];
    for (bytes, want) in cases {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains(want), "{error} does not say {want:?}");
    }
}

#[test]
fn names_and_data_occur_once() {
    let entry = |name: u8, offset: u64| {
        let mut out = 1u64.to_le_bytes().to_vec();
        out.push(name);
        out.extend(1u32.to_le_bytes());
        out.extend(8u64.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(offset.to_le_bytes());
        out
    };
    let file = |entries: &[Vec<u8>]| {
        let mut out = b"GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        out.extend(entries.concat());
        out.resize(out.len().next_multiple_of(32) + 64, 0);
        out
    };
    read(&file(&[entry(b'a', 0), entry(b'b', 32)])).unwrap();
    for (entries, want) in
        [([entry(b'a', 0), entry(b'b', 0)], "overlaps"), ([entry(b'a', 0), entry(b'a', 32)], "twice")]
    {
        let error = read(&file(&entries)).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn blocks_of_other_types_are_named() {
    let file = read(&with_tensor("blk.0.attn_q.weight", &[256], 15, 0, 320)).unwrap();
    let tensor = file.tensor("blk.0.attn_q.weight").unwrap();
    let error = file.decode(tensor, 0..256, &mut [0.0; 256]).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_q.weight") && error.contains("Q8_K"), "{error}");
}

#[test]
fn every_shorter_file_is_refused() {
    let bytes = sample().finish();
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
}

/// Reads bytes and, where they are taken, everything that they lend.
fn exercise(bytes: &[u8]) {
    let Ok(file) = read(bytes) else { return };
    for (_, value) in file.metadata().iter() {
        if let Some(array) = value.as_array() {
            assert_eq!(array.values().count(), array.len());
        }
    }
    for tensor in file.tensors().filter(|tensor| tensor.elements() <= 1 << 16) {
        let mut out = vec![0.0; tensor.elements()];
        let _ = file.decode(tensor, 0..out.len(), &mut out);
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = sample().finish();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&[b"GGUF\x03\0\0\0".as_slice(), &tail].concat());
    }
}
