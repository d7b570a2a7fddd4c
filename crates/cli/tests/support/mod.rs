//! What the tests of the binary share: running it, and programs made on the spot through the writer.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; a test may panic

use pteron_format::payload::Payload;
use pteron_format::pte::{
    self, AllocationDetails, BackendDelegate, BackendDelegateDataReference, Chain, DataLocation,
    DelegateCall, EValue, ExecutionPlan, Instruction, KernelCall, NamedData, Operator, Program, Tensor,
    TensorShapeDynamism,
};
use pteron_format::{Segment, WriteOptions, emit};
use pteron_ir::text::parse_module;
use pteron_ir::{Graph, Type};
use pteron_tensor::DType;
use serde_json::{Value, json};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What came of running the binary.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `pteron` with these arguments.
pub(crate) fn pteron(arguments: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_pteron")).args(arguments).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
}

impl Run {
    /// Standard output of a run that went well.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        self.stdout
    }
}

/// A folder of its own for one test, with the files that it makes.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as text, for the command line.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.at(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// One delegate and some metadata: `y = x * w + x` over rows, with a counter that each run advances.
pub(crate) const SCALED: &str = r#"graph "forward"
  symbol T in 2..=8
  input %0 "x": f32[T, 2]
  constant %1 "w": f32[2]
  constant %6 "one": i32[1]
  buffer %2 "count": i32[1] -> %5
{
  %3: f32[T, 2] = multiply(a=%0, b=%1)
  %4: f32[T, 2] = add(a=%3, b=%0)
  %5: i32[1] = add(a=%2, b=%6)
}
output %4 "y": f32[T, 2]
output %5 "seen": i32[1]
"#;

/// Weights for [`SCALED`].
pub(crate) fn weights() -> Vec<(&'static str, Vec<u8>)> {
    let floats = [10f32, 100.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    vec![("w", floats), ("one", 1i32.to_le_bytes().to_vec())]
}

/// A `.pte` with one method that is one MLX delegate, and a constant method `get_answer`.
pub(crate) fn delegated(graph: &str, weights: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let module = parse_module(graph).unwrap();
    let payload = emit(&module).unwrap();
    delegate_program(&module.main, &payload, weights)
}

fn delegate_program(graph: &Graph, payload: &Payload, weights: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let inputs = graph.inputs.iter().map(|input| graph.ty(input.value).unwrap());
    let outputs = graph.outputs.iter().map(|output| &output.ty);
    let values: Vec<EValue> =
        inputs.chain(outputs).enumerate().map(|(at, ty)| value(graph, ty, at)).collect();
    let count = graph.inputs.len() as i32;
    let all: Vec<i32> = (0..values.len() as i32).collect();
    let call = DelegateCall { delegate_index: 0, args: all.clone().into() };
    let forward = ExecutionPlan {
        name: "forward".into(),
        values: values.into(),
        inputs: all[..count as usize].to_vec().into(),
        outputs: all[count as usize..].to_vec().into(),
        chains: vec![Chain { instructions: vec![Instruction::Delegate(call)].into(), ..Chain::default() }]
            .into(),
        delegates: vec![BackendDelegate {
            id: "MLXBackend".into(),
            processed: Some(BackendDelegateDataReference { location: DataLocation::Segment, index: 0 }),
            ..BackendDelegate::default()
        }]
        .into(),
        non_const_buffer_sizes: vec![0, 1 << 16].into(),
        ..ExecutionPlan::default()
    };
    let answer = ExecutionPlan {
        name: "get_answer".into(),
        values: vec![EValue::Int(42)].into(),
        outputs: vec![0].into(),
        ..ExecutionPlan::default()
    };
    let named = weights
        .iter()
        .enumerate()
        .map(|(index, (key, _))| NamedData { key: (*key).into(), segment_index: index as u32 + 1 });
    let mut program = Program {
        execution_plan: vec![forward, answer].into(),
        named_data: named.collect(),
        ..Program::default()
    };
    program.complete();
    let payload = payload.encode().unwrap();
    let mut segments = vec![Segment::borrowed(&payload)];
    segments.extend(weights.iter().map(|(_, bytes)| Segment::borrowed(bytes)));
    write(&program, &segments)
}

fn write(program: &Program, segments: &[Segment<'_>]) -> Vec<u8> {
    let mut file = Vec::new();
    pte::write(program, segments, &WriteOptions::default(), &mut file).unwrap();
    file
}

fn value(graph: &Graph, ty: &Type, position: usize) -> EValue {
    let Type::Tensor(ty) = ty else { return EValue::Int(0) };
    let dynamic = ty.shape.iter().any(|dim| dim.as_known().is_none());
    let sizes = ty.shape.iter().map(|dim| graph.symbols.upper(dim).unwrap() as i32);
    EValue::Tensor(Box::new(tensor(ty.dtype, sizes.collect(), dynamic, position)))
}

fn tensor(dtype: DType, sizes: Vec<i32>, dynamic: bool, position: usize) -> Tensor {
    Tensor {
        scalar_type: dtype.into(),
        dim_order: (0..sizes.len() as u8).collect(),
        sizes: sizes.into(),
        shape_dynamism: match dynamic {
            true => TensorShapeDynamism::DynamicBound,
            false => TensorShapeDynamism::Static,
        },
        allocation_info: Some(AllocationDetails {
            memory_id: 1,
            memory_offset_low: position as u32 * 1024,
            memory_offset_high: 0,
        }),
        ..Tensor::default()
    }
}

/// A `.pte` whose only method calls one portable operator: `out = op(in)`.
pub(crate) fn portable(name: &str, overload: &str, dtype: DType) -> Vec<u8> {
    portable_calls(&[(name, overload)], dtype)
}

/// The same with several operators, each over the input.
pub(crate) fn portable_calls(operators: &[(&str, &str)], dtype: DType) -> Vec<u8> {
    let call = |op_index| Instruction::Kernel(KernelCall { op_index, args: vec![0, 1, 1].into() });
    let calls = (0..operators.len() as i32).map(call).collect();
    let named =
        |(name, overload): &(&str, &str)| Operator { name: (*name).into(), overload: (*overload).into() };
    let tensors = (0..2).map(|at| EValue::Tensor(Box::new(tensor(dtype, vec![3], false, at))));
    let plan = ExecutionPlan {
        name: "run".into(),
        values: tensors.collect(),
        inputs: vec![0].into(),
        outputs: vec![1].into(),
        operators: operators.iter().map(named).collect(),
        chains: vec![Chain { instructions: calls, ..Chain::default() }].into(),
        non_const_buffer_sizes: vec![0, 1 << 16].into(),
        ..ExecutionPlan::default()
    };
    let mut program = Program { execution_plan: vec![plan].into(), ..Program::default() };
    program.complete();
    write(&program, &[])
}

/// A version 1 `.npy` file of f32, written without the code under test.
pub(crate) fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    npy_of("<f4", shape, values)
}

/// The same bytes under another type code.
pub(crate) fn npy_of(code: &str, shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&(header.len() as u16).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    file
}

/// The last numbers of a `.npy` file of f32.
pub(crate) fn floats(file: &[u8], count: usize) -> Vec<f32> {
    let data = &file[file.len() - 4 * count..];
    data.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// One file of a case in the packed sample.
pub(crate) fn sample(case: &str, file: &str) -> Vec<u8> {
    let bytes = std::fs::read(root().join("conformance/sample.zip")).unwrap();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut content = Vec::new();
    archive.by_name(&format!("{case}/{file}")).unwrap().read_to_end(&mut content).unwrap();
    content
}

/// The checkpoints of the repository, packed.
pub(crate) fn packed() -> String {
    root().join("conformance/checkpoints.zip").to_str().unwrap().to_owned()
}

/// A checkpoint of the packed set, unpacked; its path.
pub(crate) fn checkpoint(folder: &Folder, case: &str) -> String {
    let file = std::fs::File::open(packed()).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let prefix = format!("{case}/checkpoint/");
    std::fs::create_dir(folder.path(case)).unwrap();
    for at in 0..archive.len() {
        let mut member = archive.by_index(at).unwrap();
        let name = member.name().unwrap().to_string();
        let Some(name) = name.strip_prefix(&prefix) else { continue };
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        std::fs::write(folder.path(case).join(name), bytes).unwrap();
    }
    folder.at(case)
}

/// The 64 characters of the vocabulary, by id.
pub(crate) fn characters() -> Vec<char> {
    ('a'..='z').chain('A'..='Z').chain('0'..='9').chain([' ', '\n']).collect()
}

/// A tokenizer.json of that vocabulary, byte-level spelled.
pub(crate) fn character_tokenizer(folder: &Folder) -> String {
    let spelled = |c: char| match c {
        ' ' => "\u{120}".to_owned(),
        '\n' => "\u{10a}".to_owned(),
        c => c.to_string(),
    };
    let vocabulary: serde_json::Map<String, Value> =
        characters().into_iter().enumerate().map(|(id, c)| (spelled(c), id.into())).collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []
        }
    });
    folder.write("tokenizer.json", file.to_string().as_bytes())
}
