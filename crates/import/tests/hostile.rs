//! Archives that mean harm: cut, flipped, repacked, with pickles that want to call and tables that want to
//! grow. Every one is an error that says what is wrong; none panics, hangs or takes memory that its size does
//! not explain.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron_format::Limits;
use pteron_import::pt2::{self, Package, Pt2Error};
use pteron_tensor::Bytes;
use std::io::{Read, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

type Members = Vec<(String, Vec<u8>)>;

fn file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn members(archive: &[u8]) -> Members {
    let mut archive = ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).unwrap();
        let mut data = Vec::new();
        member.read_to_end(&mut data).unwrap();
        members.push((member.name().unwrap().into_owned(), data));
    }
    members
}

fn pack_as(members: &Members, method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, data) in members {
        writer.start_file(name.as_str(), SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn pack(members: &Members) -> Vec<u8> {
    pack_as(members, CompressionMethod::Stored)
}

fn read(bytes: &[u8]) -> Result<Package, Pt2Error> {
    pt2::read(Bytes::copy_of(bytes), &Limits::default())
}

fn fails(bytes: &[u8], wanted: &str) {
    let error = read(bytes).expect_err(wanted).to_string();
    assert!(error.contains(wanted), "{wanted:?} is not in {error}");
    assert!(error.len() < 2000, "{} bytes of message", error.len());
}

/// An archive with one member changed.
fn with(base: &str, suffix: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let mut members = members(&file(base));
    let member = members.iter_mut().find(|member| member.0.ends_with(suffix)).unwrap();
    member.1 = change(std::mem::take(&mut member.1));
    pack(&members)
}

/// The program's JSON with one text replaced by another.
fn edited(base: &str, from: &str, to: &str) -> Vec<u8> {
    with(base, "models/model.json", |json| {
        let json = String::from_utf8(json).unwrap();
        assert!(json.contains(from), "{from} is not there");
        json.replacen(from, to, 1).into_bytes()
    })
}

#[test]
fn every_cut_is_an_error_and_no_flip_panics() {
    for name in ["mutated.pt2", "nvfp4.pt2"] {
        let whole = file(name);
        for len in (0..whole.len()).step_by(61) {
            assert!(read(&whole[..len]).is_err(), "{name} cut at {len}");
        }
        let mut seed = 7u64;
        for _ in 0..1500 {
            let mut bytes = whole.clone();
            for _ in 0..2 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (seed >> 33) as usize % bytes.len();
                bytes[at] ^= 1 << ((seed >> 24) & 7);
            }
            let _ = read(&bytes);
        }
    }
}

#[test]
fn what_is_no_archive_of_torch_is_refused() {
    let plain = members(&file("mutated.pt2"));
    fails(&pack_as(&plain, CompressionMethod::Deflated), "is compressed (zip method 8)");
    for name in ["../x", "/x", "a/../b", "a//b", "a\\b", "c:x", "a/\u{1}"] {
        let mut odd = plain.clone();
        odd.push((name.to_owned(), vec![1]));
        fails(&pack(&odd), "is refused");
    }
    // The writer refuses two equal names, so that one is renamed in the bytes.
    let mut twice = plain.clone();
    let root = plain[0].0.split('/').next().unwrap().to_owned();
    let (odd, plain_name) = (format!("{root}/archive_formaX"), format!("{root}/archive_format"));
    twice.push((odd.clone(), b"pt2".to_vec()));
    let bytes = replace(&pack(&twice), odd.as_bytes(), plain_name.as_bytes());
    fails(&bytes, "two members are named `");
    let mut roots = plain.clone();
    roots.push(("other/archive_format".to_owned(), b"pt2".to_vec()));
    fails(&pack(&roots), "several folders hold a `archive_format`");
    let renamed = |from: &str, to: &str| {
        let rename = |(name, data): &(String, Vec<u8>)| (name.replace(from, to), data.clone());
        pack(&plain.iter().map(rename).collect())
    };
    fails(&renamed("archive_format", "archive_fromat"), "no folder holds a `archive_format`");
    fails(&renamed("models/", "muddles/"), "no member `models/model.json`");
    fails(&renamed("weights/weight_0", "weights/weight_9"), "the archive has no `data/weights/weight_0`");
    fails(&with("mutated.pt2", "byteorder", |_| b"big".to_vec()), "big-endian");
    fails(&with("mutated.pt2", "archive_version", |_| b"1".to_vec()), "`1` is found where `0` is known");
    fails(b"PK\x05\x06", "not a zip archive");
    // A directory that claims more entries than fit is refused before anything is taken for them.
    let mut many = pack(&plain);
    let end = many.len() - 22;
    many[end + 10..end + 12].copy_from_slice(&u16::MAX.to_le_bytes());
    fails(&many, "65535 members do not fit");
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let places: Vec<_> = (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from)).collect();
    for at in places {
        bytes[at..at + from.len()].copy_from_slice(to);
    }
    bytes
}

#[test]
fn members_that_overlap_are_refused() {
    let bytes = pack(&vec![("r/a".to_owned(), vec![0; 100]), ("r/b".to_owned(), vec![0; 10])]);
    // The first central entry: grow its sizes over the second member.
    let at = (0..bytes.len()).find(|&at| bytes[at..].starts_with(b"PK\x01\x02")).unwrap();
    let mut grown = bytes.clone();
    grown[at + 20..at + 24].copy_from_slice(&120u32.to_le_bytes());
    grown[at + 24..at + 28].copy_from_slice(&120u32.to_le_bytes());
    fails(&grown, "members overlap");
}

#[test]
fn tables_that_do_not_fit_name_the_place() {
    let cases = [
        (r#""major": 8"#, r#""major": 9"#, "schema version 9.20, this reader knows 8.20"),
        (r#""minor": 20"#, r#""minor": 21"#, "schema version 8.21"),
        (r#"{"as_float": 2.0}"#, r#"{"as_what": 2.0}"#, "unknown variant `as_what`"),
        (r#"{"as_float": 2.0}"#, r#"{"as_what": 2.0}"#, "torch.ops.aten.mul"),
        (r#"{"as_float": 2.0}"#, r#"{"as_scalar_type": 77}"#, "unknown scalar type 77"),
        (
            r#"{"as_float": 2.0}"#,
            r#"{"as_tensor": {"name": "nobody"}}"#,
            "value `nobody` is used before it is defined",
        ),
        (r#"{"as_float": 2.0}"#, r#"{"as_tensor": {"name": "nobody"}}"#, "node `"),
        (r#""kind": 1"#, r#""kind": 7"#, "unknown kind of argument 7"),
        (r#""buffer_name": "steps""#, r#""buffer_name": "stops""#, "the archive holds no `stops`"),
        (r#""user_input_name": "out""#, r#""user_input_name": "in""#, "changes what is no input"),
        (r#""dtype": 7"#, r#""dtype": 13"#, "another dtype or shape"),
        (r#""graph_module""#, r#""graph_modul""#, "missing field `graph_module`"),
    ];
    for (from, to, wanted) in cases {
        fails(&edited("mutated.pt2", from, to), wanted);
    }
    fails(&edited("dynamic.pt2", "Symbol('s", "system('s"), "unknown function `system`");
    let deep = format!("{}Integer(1){}", "Abs(".repeat(5000), ")".repeat(5000));
    fails(&edited("dynamic.pt2", "Symbol('s", &format!("{deep}Symbol('s")), "levels deep");
}

#[test]
fn deep_and_large_tables_are_bounded() {
    let nested = |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    let graphs = nested(r#"{"as_string_to_argument": {"a": "#, "}}", 100_000);
    fails(&edited("mutated.pt2", r#"{"as_float": 2.0}"#, &graphs), "recursion limit");
    fails(
        &with("mutated.pt2", "weights_config.json", |_| nested("[", "]", 100_000).into_bytes()),
        "invalid type",
    );
    let small = Limits { json_bytes: 1000, ..Limits::default() };
    let error = pt2::read(Bytes::copy_of(&file("mutated.pt2")), &small).unwrap_err().to_string();
    assert!(error.contains("exceeds the limit `json_bytes` of 1000"), "{error}");
    for (limits, name) in [
        (Limits { entries: 3, ..Limits::default() }, "entries"),
        (Limits { instructions: 1, ..Limits::default() }, "instructions"),
        (Limits { rank: 1, ..Limits::default() }, "rank"),
        (Limits { tensor_bytes: 8, ..Limits::default() }, "tensor_bytes"),
        (Limits { pickle_steps: 20, ..Limits::default() }, "pickle_steps"),
    ] {
        let file = file(if name == "pickle_steps" { "intx.pt2" } else { "mutated.pt2" });
        let error = pt2::read(Bytes::copy_of(&file), &limits).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn weights_that_reach_beyond_their_bytes_are_refused() {
    let config = |from: &'static str, to: &'static str| {
        with("raw.pt2", "weights_config.json", move |json| {
            let json = String::from_utf8(json).unwrap();
            assert!(json.contains(from), "{json}");
            json.replacen(from, to, 1).into_bytes()
        })
    };
    fails(
        &config(r#""storage_offset": {"as_int": 2}"#, r#""storage_offset": {"as_int": 6}"#),
        "reach beyond its 32",
    );
    fails(&config(r#"{"as_int": 3}"#, r#"{"as_int": 4000000000}"#), "weight `");
    fails(&config(r#"{"as_int": 3}"#, r#"{"as_int": -3}"#), "is negative");
    fails(&config(r#""layout": 7"#, r#""layout": 1"#), "SparseCoo");
    fails(&config(r#""path_name": "weight_"#, r#""path_name": "../../x"#), "the archive has no");
}

/// An archive whose one pickled weight is this pickle.
fn pickled(pickle: &[u8]) -> Vec<u8> {
    with("nvfp4.pt2", "weights/weight_0", |inner| {
        let mut inner = members(&inner);
        let data = inner.iter_mut().find(|member| member.0.ends_with("data.pkl")).unwrap();
        data.1 = pickle.to_vec();
        pack(&inner)
    })
}

#[test]
fn pickles_call_nothing() {
    let cases: &[(&[u8], &str)] = &[
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.", "names `os.system`"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", "names `posix.system`"),
        (b"\x80\x02cbuiltins\neval\n.", "names `builtins.eval`"),
        (b"\x80\x02ctorch\nload\n.", "names `torch.load`"),
        (b"\x80\x02ctorch\nQuantStorage\n.", "names `torch.QuantStorage`"),
        (b"\x80\x02ccollections\nOrderedDict\n)R.", "holds no tensor"),
        (b"\x80\x02ccollections\nOrderedDict\n(NNtR.", "called with 2 arguments"),
        (b"\x80\x02N)R.", "calls what is no function of the list"),
        (b"\x80\x00.", "protocol 0"),
        (b"\x80\x06.", "protocol 6"),
        (b"\x80\x02ios\nsystem\n.", "opcode 0x69"),
        (b"\x80\x02}}b.", "opcode 0x62"),
        (b"\x80\x02)\x81.", "opcode 0x81"),
        (b"\x80\x02.", "the stack is empty"),
        (b"\x80\x02t", "there is no mark"),
        (b"\x80\x02N(\x86.", "the stack is empty"),
        (b"\x80\x02h\x07.", "nothing was kept under 7"),
        (b"\x80\x02q\x07.", "the stack is empty"),
        (b"\x80\x02X\xff\xff\xff\xffab", "cut off"),
        (b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffab", "cut off"),
        (b"\x80\x02\x8a\x09123456789.", "more than 64 bits"),
        (b"\x80\x02NNa.", "appends to what is no list"),
        (b"\x80\x02}(Nu.", "a key has no value"),
        (b"\x80\x02]q\x00h\x00a.", "holds no tensor"),
        (b"\x80\x02NQ.", "a persistent id that is no tuple"),
        (
            b"\x80\x02(X\x07\x00\x00\x00storagectorch\nByteStorage\nX\x02\x00\x00\x00..NK\x01tQ.",
            "is not there",
        ),
        (
            b"\x80\x02(X\x07\x00\x00\x00storagectorch\nByteStorage\nX\x01\x00\x00\x000NJ\xff\xff\xff\x7ftQ.",
            "is shorter",
        ),
        (b"\x80\x02cos\n", "cut off"),
        (b"", "cut off"),
    ];
    for (pickle, wanted) in cases {
        fails(&pickled(pickle), wanted);
    }
}

#[test]
fn pickles_cannot_grow_without_end() {
    // Each tuple holds the one before twice: as a tree it would have 2^5000 leaves.
    let mut doubling = b"\x80\x02N".to_vec();
    doubling.extend(b"2\x86".repeat(5000));
    doubling.push(b'.');
    fails(&pickled(&doubling), "holds no tensor");
    let mut endless = b"\x80\x02".to_vec();
    endless.extend(b"(".repeat(1_000_000));
    fails(&pickled(&endless), "pickle_steps");
}
