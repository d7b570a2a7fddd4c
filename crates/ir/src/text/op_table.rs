//! The op catalogue as a page of documentation: `docs/ops.md` is this text, and a test keeps the two equal.

use super::print::body_name;
use crate::op::{DefaultValue, FieldKind, FieldSpec, OpKind, OpSpec, ResultKind};
use std::fmt::Write as _;

/// Every op with its tag, fields, results and meaning, as a Markdown page; internal ones in a table of their own.
pub fn op_table() -> String {
    let mut page = String::from(
        "# Ops\n\n\
         Written by `pteron_ir::text::op_table` from the catalogue (`crates/ir/src/op/catalogue.rs`); change it\n\
         there, then run `PTERON_BLESS=1 cargo test -p pteron-ir --test op_table`.\n\n\
         A field is `name: kind`, with `= default` where it may be left out and `?` where it may be absent.\n\
         `tensor`, `int` and `scalar` are operands: values of the graph, or for `int` and `float` a number too.\n\n\
         | tag | op | text | fields | gives | meaning |\n\
         | ---: | --- | --- | --- | --- | --- |\n",
    );
    for kind in OpKind::all() {
        let spec = kind.spec();
        let tag = spec.tag.unwrap_or_default();
        let _ = writeln!(page, "| {tag} | {} | {} |", spec.name, cells(spec));
    }
    page.push_str(
        "\n## Internal ops\n\n\
         No file has these: a backend that runs several ops as one puts them in their place, and `pteron_ir::expand`\n\
         takes them apart again.\n\n\
         | op | text | fields | gives | meaning |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for kind in OpKind::internal() {
        let spec = kind.spec();
        let _ = writeln!(page, "| {} | {} |", spec.name, cells(spec));
    }
    page
}

/// What both tables say of an op behind its name.
fn cells(spec: &OpSpec) -> String {
    // A bar would end the cell.
    let doc = spec.doc.replace('|', "\\|");
    format!("`{}` | {} | {} | {doc}", spec.text, fields(spec), results(spec))
}

fn fields(spec: &OpSpec) -> String {
    // Loop slots are parameters of the body in a graph.
    let shown = spec.fields.iter().filter(|field| field.kind != FieldKind::LoopSlots);
    let fields: Vec<String> = shown.map(field).collect();
    fields.join(", ")
}

fn field(spec: &FieldSpec) -> String {
    let default = match spec.default {
        Some(DefaultValue::I32(value)) => format!(" = {value}"),
        Some(DefaultValue::U64(value)) => format!(" = {value}"),
        Some(DefaultValue::F32(value)) => format!(" = {value:?}"),
        Some(DefaultValue::Bool(value)) => format!(" = {value}"),
        None => String::new(),
    };
    format!("`{}: {}{default}`", body_name(spec), kind_name(spec.kind))
}

fn kind_name(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Tensor => "tensor",
        FieldKind::MaybeTensor => "tensor?",
        FieldKind::Tensors => "[tensor]",
        FieldKind::Int => "int",
        FieldKind::MaybeInt => "int?",
        FieldKind::Ints => "[int]",
        FieldKind::MaybeInts => "[int]?",
        FieldKind::Float => "float",
        FieldKind::Offset => "int or tensor",
        FieldKind::Index => "int or tensor",
        FieldKind::MaybeScalar => "scalar?",
        FieldKind::I32 => "i32",
        FieldKind::MaybeI32 => "i32?",
        FieldKind::I32s => "[i32]",
        FieldKind::MaybeI32s => "[i32]?",
        FieldKind::MaybeI8s => "[i8]?",
        FieldKind::U64 => "u64",
        FieldKind::F32 => "f32",
        FieldKind::MaybeF32 => "f32?",
        FieldKind::Bool => "bool",
        FieldKind::Str => "string",
        FieldKind::MaybeStr => "string?",
        FieldKind::MaybeStrs => "[string]?",
        FieldKind::DType => "dtype",
        FieldKind::MaybeDType => "dtype?",
        FieldKind::MaybeDTypes => "[dtype]?",
        FieldKind::Body => "body",
        FieldKind::LoopSlots => "",
    }
}

fn results(spec: &OpSpec) -> &'static str {
    match spec.result.kind {
        ResultKind::Tensor => "tensor",
        ResultKind::Scalar => "int",
        ResultKind::Tensors => "tensors",
        ResultKind::Yielded => "what the bodies yield",
        ResultKind::Nothing => "-",
    }
}
