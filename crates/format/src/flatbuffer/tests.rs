//! The checked reader against tables that the `flatbuffers` crate builds, and against damaged ones.

use super::*;
use crate::{FormatError, Limits};

/// A table with one of everything: number, string, vectors, table, tables, strings, union.
fn everything(builder: &mut Builder) -> Offset {
    let name = builder.string("naïve");
    let numbers = builder.vector(&[1i64, -2, 3]);
    let blob = builder.bytes(&[7; 5], 64);
    let mut leaf = TableFields::new();
    leaf.scalar(0, -0.0f64).scalar_unless(1, 5u16, 5).scalar(2, true);
    let leaf = builder.table(&leaf);
    let leaves = builder.offsets(&[leaf, leaf]);
    let names = builder.offsets(&[name, name]);
    let mut root = TableFields::new();
    root.scalar(0, 9u32).offset(1, name).offset(2, numbers).offset(3, blob).offset(4, leaf);
    root.offset(5, leaves).offset(6, names).scalar(7, 3u8).offset(8, leaf).optional(9, None);
    builder.table(&root)
}

fn finished() -> Finished {
    let mut builder = Builder::new();
    let root = everything(&mut builder);
    builder.finish(root, Some(*b"TEST")).unwrap()
}

/// Touches all that `everything` wrote.
fn walk(bytes: &[u8], limits: &Limits) -> crate::Result<()> {
    let buffer = Buffer::new(bytes, 0, limits);
    let root = buffer.root("Root")?;
    root.scalar(0, "number", 0u32)?;
    root.string(1, "name")?;
    root.vector::<i64>(2, "numbers")?;
    root.bytes(3, "blob")?;
    root.structures(3, "blob", 1, 1)?;
    let leaf = root.table(4, "leaf")?;
    for leaf in root.tables(5, "leaves")?.into_iter().flat_map(TableVector::iter).chain(leaf.map(Ok)) {
        let leaf = leaf?;
        leaf.scalar(0, "double", 0f64)?;
        leaf.structure(0, "double", 8, 8)?;
        leaf.scalar(1, "short", 0u16)?;
        leaf.scalar(2, "bool", false)?;
    }
    for name in root.strings(6, "names")?.into_iter().flat_map(StringVector::iter) {
        name?;
    }
    root.union(7, "kind")?;
    Ok(())
}

#[test]
fn what_is_built_reads_back() {
    let finished = finished();
    assert_eq!(finished.bytes.len() % finished.align, 0);
    let limits = Limits::default();
    let buffer = Buffer::new(&finished.bytes, 0, &limits);
    assert_eq!(buffer.identifier(), Some(*b"TEST"));
    let root = buffer.root("Root").unwrap();
    assert_eq!(root.scalar(0, "number", 0u32).unwrap(), 9);
    assert_eq!(root.string(1, "name").unwrap(), Some("naïve"));
    assert_eq!(root.vector(2, "numbers").unwrap(), Some(vec![1i64, -2, 3]));
    assert_eq!(root.bytes(3, "blob").unwrap(), Some(&[7u8; 5][..]));
    assert_eq!(root.byte_range(3, "blob").unwrap().unwrap().start % 64, 0);
    let leaf = root.table(4, "leaf").unwrap().unwrap();
    assert_eq!(leaf.scalar(0, "double", 1.0f64).unwrap().to_bits(), (-0.0f64).to_bits());
    assert!(!leaf.has(1));
    assert_eq!(leaf.scalar(1, "short", 5u16).unwrap(), 5);
    assert!(leaf.scalar(2, "bool", false).unwrap());
    let leaves = root.tables(5, "leaves").unwrap().unwrap();
    assert_eq!(leaves.get(1).unwrap().path(), "Root.leaves[1]");
    let names: Vec<_> = root.strings(6, "names").unwrap().unwrap().iter().map(Result::unwrap).collect();
    assert_eq!(names, ["naïve", "naïve"]);
    assert_eq!(root.union(7, "kind").unwrap().unwrap().0, 3);
    assert!(!root.has(9) && root.string(9, "absent").unwrap().is_none());
    assert!(root.table(40, "newer").unwrap().is_none());
}

#[test]
fn what_another_builder_builds_reads() {
    let mut other = flatbuffers::FlatBufferBuilder::new();
    let name = other.create_string("theirs");
    let numbers = other.create_vector(&[1.5f32, 2.5]);
    let start = other.start_table();
    other.push_slot_always(8, 3u8);
    let child = other.end_table(start);
    let children = other.create_vector(&[child, child]);
    let start = other.start_table();
    other.push_slot_always(4, 77u64);
    other.push_slot_always(6, name);
    other.push_slot_always(8, numbers);
    other.push_slot_always(10, children);
    let root = other.end_table(start);
    other.finish(root, Some("OTHR"));

    let limits = Limits::default();
    let buffer = Buffer::new(other.finished_data(), 0, &limits);
    let root = buffer.root("Root").unwrap();
    assert_eq!(root.scalar(0, "number", 0u64).unwrap(), 77);
    assert_eq!(root.string(1, "name").unwrap(), Some("theirs"));
    assert_eq!(root.vector(2, "numbers").unwrap(), Some(vec![1.5f32, 2.5]));
    let children = root.tables(3, "children").unwrap().unwrap();
    assert_eq!(children.get(1).unwrap().scalar(2, "byte", 0u8).unwrap(), 3);
}

#[test]
fn equal_layouts_share_a_vtable() {
    let size = |count: usize| {
        let mut builder = Builder::new();
        let tables: Vec<Offset> =
            (0..count).map(|n| builder.table(TableFields::new().scalar(3, n as u32))).collect();
        let all = builder.offsets(&tables);
        let root = builder.table(TableFields::new().offset(0, all));
        builder.finish(root, None).unwrap().bytes.len()
    };
    assert_eq!(size(12) - size(11), 12, "an offset and a table of eight bytes");
}

#[test]
fn damage_never_panics() {
    let (sound, limits) = (finished().bytes, Limits::default());
    walk(&sound, &limits).unwrap();
    // Miri is a thousand times slower; a sample keeps it useful.
    let step = if cfg!(miri) { 37 } else { 1 };
    for len in (0..sound.len()).step_by(step) {
        // The last bytes are padding, without which it may still be sound.
        let _ = walk(&sound[..len], &limits);
    }
    for at in (0..sound.len()).step_by(step) {
        let mut damaged = sound.clone();
        for value in [0, 1, 3, 0x7f, 0x80, 0xff] {
            damaged[at] = value;
            let _ = walk(&damaged, &limits);
        }
    }
}

#[test]
fn aliased_tables_are_charged_each_time() {
    let mut builder = Builder::new();
    let text = builder.string(&"x".repeat(100));
    let mut table = builder.table(TableFields::new().offset(1, text));
    for _ in 0..4 {
        let many = builder.offsets(&[table; 50]);
        table = builder.table(TableFields::new().offset(0, many).offset(1, text));
    }
    let bytes = builder.finish(table, None).unwrap().bytes;
    assert!(bytes.len() < 2000);

    fn visit(table: Table<'_>) -> crate::Result<()> {
        table.string(1, "text")?;
        let Some(tables) = table.tables(0, "many")? else { return Ok(()) };
        tables.iter().try_for_each(|table| visit(table?))
    }
    let run = |limits: &Limits| match Buffer::new(&bytes, 0, limits).root("Root").and_then(visit) {
        Err(FormatError::Limit { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    let wide = Limits::default();
    assert_eq!(run(&Limits { tables: 500, ..wide.clone() }), "tables");
    assert_eq!(run(&Limits { decoded_bytes: 5000, ..wide.clone() }), "decoded_bytes");
    assert_eq!(run(&Limits { table_depth: 3, ..wide.clone() }), "table_depth");
    assert_eq!(run(&Limits { string_bytes: 99, ..wide }), "string_bytes");
}

#[test]
fn errors_name_the_table_and_the_byte() {
    let mut bytes = finished().bytes;
    let limits = Limits::default();
    let at = {
        let buffer = Buffer::new(&bytes, 0, &limits);
        buffer.root("Root").unwrap().byte_range(3, "blob").unwrap().unwrap().start - 4
    };
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let buffer = Buffer::new(&bytes, 1000, &limits);
    let error = buffer.root("Root").unwrap().bytes(3, "blob").unwrap_err().to_string();
    assert_eq!(
        error,
        format!("Root.blob (byte {}): a vector of 4294967295 elements runs past the buffer", 1000 + at)
    );
}

#[test]
fn misaligned_numbers_are_refused() {
    let mut builder = Builder::new();
    let root = builder.table(TableFields::new().scalar(0, 1u64));
    let bytes = builder.finish(root, None).unwrap().bytes;
    let mut shifted = vec![0; 4];
    shifted.extend_from_slice(&bytes);
    let root = u32::from_wire(&bytes) + 4;
    shifted[..4].copy_from_slice(&root.to_le_bytes());
    let limits = Limits::default();
    let buffer = Buffer::new(&shifted, 0, &limits);
    assert!(buffer.root("Root").unwrap().scalar(0, "number", 0u64).is_err());
}
