//! Programs built by hand: every value and instruction kind there and back, layout, limits, and damaged files.

use std::io::Write;

use pteron_tensor::{Bytes, DType};

use super::*;
use crate::{Blob, List, Text};

fn limits() -> Limits {
    Limits::default()
}

fn tensor(dtype: DType, sizes: &[i32]) -> Tensor {
    Tensor {
        scalar_type: dtype.into(),
        sizes: sizes.to_vec().into(),
        dim_order: (0..sizes.len() as u8).collect(),
        ..Tensor::default()
    }
}

fn boxed(tensor: Tensor) -> EValue {
    EValue::Tensor(Box::new(tensor))
}

/// One value of every kind and every placement of a tensor.
fn values() -> Vec<EValue> {
    let constant = Tensor { data_buffer_idx: 1, ..tensor(DType::F32, &[2, 2]) };
    let place = AllocationDetails { memory_id: 1, memory_offset_low: 16, memory_offset_high: 0 };
    let planned = Tensor {
        allocation_info: Some(place),
        shape_dynamism: TensorShapeDynamism::DynamicBound,
        dim_order: vec![1, 0].into(),
        ..tensor(DType::I64, &[2, 1])
    };
    let mutable = Tensor { data_buffer_idx: 1, requires_grad: true, ..planned.clone() };
    let external = Tensor {
        layout: 2,
        extra_tensor_info: Some(ExtraTensorInfo {
            mutable_data_segments_idx: 0,
            fully_qualified_name: "linear.weight".into(),
            location: TensorDataLocation::External,
            device_type: DeviceType::Cuda,
            device_index: 1,
        }),
        ..tensor(DType::BF16, &[])
    };
    let unbound = Tensor { shape_dynamism: TensorShapeDynamism::DynamicUnbound, ..tensor(DType::U8, &[-1]) };
    vec![
        EValue::Null,
        EValue::Int(-7),
        EValue::Bool(true),
        EValue::Double(-0.0),
        boxed(constant),
        EValue::String("text".into()),
        EValue::IntList(vec![1, 1].into()),
        EValue::DoubleList(vec![1.5, f64::INFINITY].into()),
        EValue::BoolList(vec![true, false].into()),
        EValue::TensorList(vec![4].into()),
        EValue::OptionalTensorList(vec![-1, 0, 4].into()),
        boxed(planned),
        boxed(mutable),
        boxed(external),
        boxed(unbound),
        EValue::IntList(List::absent()),
        EValue::DoubleList(vec![].into()),
        EValue::String(Text::absent()),
    ]
}

fn instructions() -> Vec<Instruction> {
    vec![
        Instruction::Kernel(KernelCall { op_index: 0, args: vec![4, 11, 11].into() }),
        Instruction::Delegate(DelegateCall { delegate_index: 1, args: vec![4, 11].into() }),
        Instruction::Move(MoveCall { move_from: 4, move_to: 11 }),
        Instruction::JumpFalse(JumpFalseCall { cond_value_index: 2, destination_instruction: 5 }),
        Instruction::Free(FreeCall { value_index: 11 }),
    ]
}

fn delegate(location: DataLocation, index: u32, specs: List<CompileSpec>) -> BackendDelegate {
    let processed = Some(BackendDelegateDataReference { location, index });
    BackendDelegate { id: "MLXBackend".into(), processed, compile_specs: specs }
}

/// A program that uses every table, and its segments: empty, constants, mutable data, payload, named.
fn sample() -> (Program, Vec<Vec<u8>>) {
    let frame = Frame { filename: "a.py".into(), lineno: 3, name: "f".into(), context: Text::absent() };
    let chain = Chain {
        inputs: vec![4].into(),
        outputs: vec![].into(),
        instructions: instructions().into(),
        stacktrace: vec![FrameList { items: vec![frame].into() }, FrameList::default()].into(),
    };
    let spec = CompileSpec { key: "level".into(), value: Blob::from(Bytes::copy_of(&[4])) };
    let plan = ExecutionPlan {
        name: "forward".into(),
        container_meta_type: Some(ContainerMetadata {
            encoded_inp_str: "[1]".into(),
            encoded_out_str: Text::absent(),
        }),
        values: values().into(),
        inputs: vec![4].into(),
        outputs: vec![11].into(),
        chains: vec![chain].into(),
        operators: vec![Operator { name: "aten::mul".into(), overload: "out".into() }].into(),
        delegates: vec![
            delegate(DataLocation::Segment, 3, vec![spec, CompileSpec::default()].into()),
            delegate(DataLocation::Inline, 0, List::absent()),
        ]
        .into(),
        non_const_buffer_sizes: vec![0, 64].into(),
        non_const_buffer_device: vec![NonConstBufferDevice {
            buffer_idx: 1,
            device_type: DeviceType::Cuda,
            device_index: 2,
        }]
        .into(),
    };
    let mut metadata = ExecutionPlan { name: "get_eos".into(), ..ExecutionPlan::default() };
    metadata.values = vec![EValue::Int(2)].into();
    let program = Program {
        version: 0,
        execution_plan: vec![plan, metadata].into(),
        constant_buffer: vec![Buffer::default(), Buffer { storage: Bytes::copy_of(&[1, 2]).into() }].into(),
        backend_delegate_data: vec![BackendDelegateInlineData { data: Bytes::copy_of(&[9; 33]).into() }]
            .into(),
        segments: List::absent(),
        constant_segment: Some(SubsegmentOffsets { segment_index: 1, offsets: vec![0, 16].into() }),
        mutable_data_segments: vec![SubsegmentOffsets { segment_index: 2, offsets: vec![0, 3].into() }]
            .into(),
        named_data: vec![
            NamedData { key: "pteron.tokenizer".into(), segment_index: 4 },
            NamedData { key: "alias".into(), segment_index: 4 },
        ]
        .into(),
    };
    (program, vec![vec![], vec![1; 32], vec![2; 19], vec![3; 130], vec![4; 7]])
}

fn to_file(program: &Program, segments: &[Vec<u8>]) -> Result<Vec<u8>> {
    let segments: Vec<Segment<'_>> = segments.iter().map(|bytes| Segment::borrowed(bytes)).collect();
    let mut file = Vec::new();
    let written = write(program, &segments, &WriteOptions::default(), &mut file)?;
    assert_eq!(written, file.len() as u64);
    Ok(file)
}

fn sample_file() -> Vec<u8> {
    let (program, segments) = sample();
    to_file(&program, &segments).unwrap()
}

fn read(file: &[u8]) -> Result<Pte> {
    Pte::read(Bytes::copy_of(file), &limits())
}

#[test]
fn every_table_survives_a_round_trip() {
    let (mut program, segments) = sample();
    let pte = read(&sample_file()).unwrap();
    assert!(!pte.program.segments.is_absent());
    program.segments = pte.program.segments.clone();
    assert_eq!(format!("{:?}", pte.program), format!("{program:?}"), "signs of zero included");
    assert_eq!(pte.program, program);
    assert!(pte.unknown_fields().is_empty());
    for (index, bytes) in segments.iter().enumerate() {
        assert_eq!(&*pte.segment(index as u32).unwrap(), &bytes[..]);
    }
    assert!(pte.segment(5).is_none());
}

#[test]
fn contents_are_found_by_name_and_value() {
    let pte = read(&sample_file()).unwrap();
    assert_eq!(&*pte.named("alias").unwrap(), &[4; 7]);
    assert!(pte.named("other").is_none());
    let plan = pte.method("forward").unwrap();
    assert_eq!(&*pte.payload(&plan.delegates[0]).unwrap(), &[3; 130]);
    assert_eq!(&*pte.payload(&plan.delegates[1]).unwrap(), &[9; 33]);
    let stored = |index: usize| match &plan.values[index] {
        EValue::Tensor(tensor) => pte.stored(tensor).map(|bytes| bytes.to_vec()),
        other => panic!("{other:?}"),
    };
    assert_eq!(stored(4), Some(vec![1; 16]));
    assert_eq!(stored(12), Some(vec![2; 16]));
    assert_eq!((stored(11), stored(13)), (None, None));
}

#[test]
fn segments_are_borrowed_from_the_file() {
    let pte = read(&sample_file()).unwrap();
    let file = pte.bytes().as_ptr_range();
    for bytes in [pte.segment(3).unwrap(), pte.program.backend_delegate_data[0].data.get().unwrap().clone()] {
        assert!(file.contains(&bytes.as_ptr()));
    }
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let file = sample_file();
    assert_eq!(file, sample_file());
    let mut again = Vec::new();
    read(&file).unwrap().rewrite(&mut again).unwrap();
    assert_eq!(file, again);
}

#[test]
fn layout_follows_executorch() {
    let (program, segments) = sample();
    let file = sample_file();
    let pte = read(&file).unwrap();
    let header = *pte.header().unwrap();
    assert_eq!((&file[4..12], header.length), (&b"ET12eh00"[..], 32));
    assert_eq!(header.segment_base_offset % 128, 0);
    let spans: Vec<_> = pte.program.segments.iter().map(|segment| (segment.offset, segment.size)).collect();
    assert_eq!(spans, [(0, 0), (0, 32), (128, 19), (256, 130), (512, 7)]);
    assert_eq!(header.segment_data_size, 519);
    assert_eq!(file.len() as u64, header.segment_base_offset + 519);

    let mut wide: Vec<_> = segments.iter().map(|bytes| Segment::borrowed(bytes)).collect();
    wide[4] = Segment::borrowed(&segments[4]).aligned_to(4096);
    let mut file = Vec::new();
    write(&program, &wide, &WriteOptions { segment_alignment: 256 }, &mut file).unwrap();
    let pte = read(&file).unwrap();
    let offsets: Vec<_> = pte.program.segments.iter().map(|segment| segment.offset).collect();
    assert_eq!(offsets, [0, 0, 256, 512, 4096]);
    assert_eq!(pte.header().unwrap().segment_base_offset % 256, 0);
}

#[test]
fn a_program_without_segment_bytes_has_no_header() {
    let mut program = Program::default();
    let plan = ExecutionPlan { name: "forward".into(), ..ExecutionPlan::default() };
    program.execution_plan = vec![plan].into();
    program.complete();
    assert_eq!(&*program.constant_segment.as_ref().unwrap().offsets, &[0]);
    let file = to_file(&program, &[vec![]]).unwrap();
    let pte = read(&file).unwrap();
    assert!(pte.header().is_none());
    assert_eq!(pte.program.segments.len(), 1);

    let empty = to_file(&Program::default(), &[]).unwrap();
    assert_eq!(empty.len(), 64, "what every loader reads first");
    assert_eq!(read(&empty).unwrap().program, Program::default());
}

#[test]
fn headers_of_other_lengths_are_read() {
    let mut file = sample_file();
    // 24 bytes: the last field is not part of it, whatever stands there.
    file[12] = 24;
    file[32..40].fill(0xff);
    assert_eq!(read(&file).unwrap().header().unwrap().segment_data_size, 0);
    file[12] = 23;
    assert!(matches!(read(&file), Err(FormatError::Header { offset: 12, .. })));
    let mut file = sample_file();
    file[12] = 40;
    assert_eq!(read(&file).unwrap().header().unwrap().length, 40);
}

#[test]
fn other_files_are_told_apart() {
    let mut file = sample_file();
    file[6..8].copy_from_slice(b"13");
    let error = read(&file).err().unwrap();
    assert!(matches!(error, FormatError::OtherVersion { .. }), "{error}");
    file[4] = b'F';
    let error = read(&file).err().unwrap();
    assert_eq!(error.to_string(), "not a .pte file: bytes 4 to 8 are `FT13`, expected `ET12`");
    let error = read(&file[..63]).err().unwrap();
    assert!(matches!(error, FormatError::TooShort { found: 63, needed: 64, .. }), "{error}");
}

#[test]
fn every_truncation_is_refused() {
    let file = sample_file();
    // Miri is a thousand times slower; a sample keeps it useful.
    let step = if cfg!(miri) { 397 } else { 1 };
    for len in (0..file.len()).step_by(step) {
        assert!(read(&file[..len]).is_err(), "{len} of {} bytes were accepted", file.len());
    }
}

#[test]
fn damage_never_panics_and_what_is_accepted_can_be_written() {
    let file = sample_file();
    let step = if cfg!(miri) { 397 } else { 1 };
    let mut accepted = 0;
    for at in (0..file.len()).step_by(step) {
        let mut damaged = file.clone();
        for change in [0x01, 0x04, 0x80, 0xff] {
            damaged[at] = file[at] ^ change;
            let Ok(pte) = read(&damaged) else { continue };
            accepted += 1;
            let mut again = Vec::new();
            pte.rewrite(&mut again).unwrap();
            let again = read(&again).unwrap();
            assert_eq!(again.program.execution_plan.len(), pte.program.execution_plan.len());
        }
    }
    assert!(accepted > 0, "data bytes carry no checks");
}

/// A change to the sample, and the place and words that the error must have.
type Refused = (&'static str, fn(&mut Program), &'static str);

#[test]
fn contradictions_are_refused_with_their_place() {
    fn plan(program: &mut Program) -> &mut ExecutionPlan {
        &mut program.execution_plan.make_mut()[0]
    }
    fn value(program: &mut Program, index: usize, value: EValue) {
        plan(program).values.make_mut()[index] = value;
    }
    fn on_tensor(program: &mut Program, index: usize, change: fn(&mut Tensor)) {
        match &mut plan(program).values.make_mut()[index] {
            EValue::Tensor(tensor) => change(tensor),
            other => panic!("{other:?}"),
        }
    }
    fn call(program: &mut Program, index: usize, call: Instruction) {
        plan(program).chains.make_mut()[0].instructions.make_mut()[index] = call;
    }
    let cases: &[Refused] = &[
        ("newer", |p| p.version = 1, "Program.version: version 1"),
        (
            "input",
            |p| plan(p).inputs = vec![18].into(),
            "execution_plan[0].inputs[0]: index 18, but there are 18",
        ),
        ("output", |p| plan(p).outputs = vec![0, -1].into(), "outputs[1]: index -1"),
        ("no name", |p| plan(p).name = Text::absent(), "execution_plan[0]: a method has no name"),
        ("same name", |p| plan(p).name = "get_eos".into(), "two methods are named"),
        (
            "int list",
            |p| value(p, 6, EValue::IntList(vec![4].into())),
            "values[6].items[0]: value 4 is a Tensor",
        ),
        ("huge int list", |p| value(p, 6, EValue::IntList(vec![1 << 40].into())), "index 1099511627776"),
        ("tensor list", |p| value(p, 9, EValue::TensorList(vec![-1].into())), "values[9].items[0]: index -1"),
        ("optional", |p| value(p, 10, EValue::OptionalTensorList(vec![1].into())), "not a Tensor or Null"),
        ("rank", |p| on_tensor(p, 4, |t| t.sizes = vec![1; 17].into()), "exceeds the limit `rank` of 16"),
        ("order", |p| on_tensor(p, 4, |t| t.dim_order = vec![0].into()), "2 sizes, but a dim_order of 1"),
        ("order", |p| on_tensor(p, 4, |t| t.dim_order = vec![1, 1].into()), "[1, 1] is no permutation"),
        ("negative", |p| on_tensor(p, 4, |t| t.sizes = vec![-1, 2].into()), "negative"),
        ("large", |p| on_tensor(p, 4, |t| t.sizes = vec![i32::MAX, 999].into()), "the limit `tensor_bytes`"),
        ("constant", |p| on_tensor(p, 4, |t| t.sizes = vec![5, 1].into()), "16 bytes are stored of its 20"),
        ("constant", |p| on_tensor(p, 4, |t| t.data_buffer_idx = 2), "values[4].data_buffer_idx: index 2"),
        (
            "arena",
            |p| plan(p).non_const_buffer_sizes = vec![0, 31].into(),
            "16 bytes at 16 run past its arena's 31",
        ),
        ("arena", |p| plan(p).non_const_buffer_sizes = vec![0, -1].into(), "an arena has -1 bytes"),
        (
            "no arena",
            |p| on_tensor(p, 11, |t| t.allocation_info = Some(Default::default())),
            "arena 0 is reserved",
        ),
        ("offset", |p| on_tensor(p, 4, |t| t.storage_offset = 1), "storage_offset is 1"),
        ("mutable", |p| p.mutable_data_segments = List::absent(), "but there are 0 mutable data segments"),
        (
            "external",
            |p| {
                on_tensor(p, 13, |t| {
                    t.extra_tensor_info.as_mut().unwrap().fully_qualified_name = Text::absent();
                })
            },
            "no name to find it by",
        ),
        (
            "operator",
            |p| plan(p).operators = List::absent(),
            "instructions[0].op_index: index 0, but there are 0",
        ),
        (
            "delegate",
            |p| call(p, 1, Instruction::Delegate(DelegateCall { delegate_index: 2, args: List::absent() })),
            "instructions[1].delegate_index: index 2",
        ),
        (
            "argument",
            |p| call(p, 0, Instruction::Kernel(KernelCall { op_index: 0, args: vec![0, 99].into() })),
            "chains[0].instructions[0].args[1]: index 99",
        ),
        (
            "move",
            |p| call(p, 2, Instruction::Move(MoveCall { move_from: 0, move_to: 99 })),
            "move_to: index 99",
        ),
        (
            "jump",
            |p| {
                let jump = JumpFalseCall { cond_value_index: 2, destination_instruction: 6 };
                call(p, 3, Instruction::JumpFalse(jump));
            },
            "destination_instruction: index 6",
        ),
        ("free", |p| call(p, 4, Instruction::Free(FreeCall { value_index: -5 })), "value_index: index -5"),
        (
            "payload",
            |p| plan(p).delegates.make_mut()[0].processed = None,
            "delegates[0]: a delegate has no payload",
        ),
        (
            "payload",
            |p| plan(p).delegates.make_mut()[1] = delegate(DataLocation::Inline, 1, List::absent()),
            "there are 1 inline payloads",
        ),
        (
            "payload",
            |p| plan(p).delegates.make_mut()[1] = delegate(DataLocation::Segment, 5, List::absent()),
            "there are 5 segments",
        ),
        ("device", |p| plan(p).non_const_buffer_device.make_mut()[0].buffer_idx = 2, "buffer_idx: index 2"),
        (
            "constants",
            |p| p.constant_segment.as_mut().unwrap().offsets = vec![0, 33].into(),
            "Program.constant_segment.offsets[1]: offset 33",
        ),
        (
            "constants",
            |p| p.constant_segment.as_mut().unwrap().segment_index = 5,
            "constant_segment.segment_index",
        ),
        ("named", |p| p.named_data.make_mut()[1].segment_index = 5, "Program.named_data[1]: index 5"),
        ("named", |p| p.named_data.make_mut()[1].key = "pteron.tokenizer".into(), "occurs twice"),
        ("named", |p| p.named_data.make_mut()[0].key = Text::absent(), "has no key"),
    ];
    for (what, change, wanted) in cases {
        let (mut program, segments) = sample();
        change(&mut program);
        // The writer holds itself to the reader's checks, so that both are tested at once.
        match to_file(&program, &segments) {
            Ok(_) => panic!("{what}: was written"),
            Err(error) => assert!(error.to_string().contains(wanted), "{what}: {error}"),
        }
    }
}

/// A limit, and the change that makes the sample exceed it.
type Limited = (&'static str, fn(&mut Limits));

#[test]
fn limits_are_kept() {
    let file = sample_file();
    let cases: [Limited; 8] = [
        ("file_bytes", |limits| limits.file_bytes = 100),
        ("tables", |limits| limits.tables = 20),
        ("decoded_bytes", |limits| limits.decoded_bytes = 50),
        ("string_bytes", |limits| limits.string_bytes = 8),
        ("values", |limits| limits.values = 17),
        ("instructions", |limits| limits.instructions = 4),
        ("chains", |limits| limits.chains = 0),
        ("entries", |limits| limits.entries = 1),
    ];
    for (name, change) in cases {
        let mut limits = limits();
        change(&mut limits);
        match Pte::read(Bytes::copy_of(&file), &limits) {
            Err(FormatError::Limit { limit, .. }) => assert_eq!(limit, name),
            Err(other) => panic!("{name}: {other}"),
            Ok(_) => panic!("{name}: was accepted"),
        }
    }
}

#[test]
fn sources_must_keep_their_word() {
    let (program, segments) = sample();
    let write_with = |len: u64, produced: usize| {
        let mut list: Vec<_> = segments.iter().map(|bytes| Segment::borrowed(bytes)).collect();
        list[3] = Segment::produced(len, move |out: &mut dyn Write| out.write_all(&vec![3; produced]));
        let mut file = Vec::new();
        write(&program, &list, &WriteOptions::default(), &mut file).map(|_| file)
    };
    assert_eq!(write_with(130, 130).unwrap(), sample_file());
    for produced in [129, 131] {
        let error = write_with(130, produced).unwrap_err().to_string();
        assert!(error.starts_with("cannot write segment 3: its source"), "{error}");
    }
}

#[test]
fn impossible_layouts_are_refused() {
    let (program, _) = sample();
    for (segment, options) in [
        (Segment::borrowed(&[1]).aligned_to(0), WriteOptions::default()),
        (Segment::borrowed(&[1]), WriteOptions { segment_alignment: 0 }),
        (Segment::borrowed(&[1]).aligned_to(1 << 40), WriteOptions::default()),
    ] {
        let error = write(&program, &[segment], &options, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, FormatError::Unwritable { .. }), "{error}");
    }
    let huge = || Segment::produced(u64::MAX - 1000, |_: &mut dyn Write| Ok(()));
    let error = write(&program, &[huge(), huge()], &WriteOptions::default(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("2^64"), "{error}");
}

#[cfg(not(miri))]
#[test]
fn a_failed_write_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pte");
    let (program, segments) = sample();
    let list: Vec<_> = segments.iter().map(|bytes| Segment::borrowed(bytes)).collect();
    write_file(&path, &program, &list, &WriteOptions::default()).unwrap();
    assert_eq!(Pte::open(&path, &limits()).unwrap().segment_count(), 5);

    let mut failing = list;
    failing[4] = Segment::produced(7, |_: &mut dyn Write| Err(std::io::Error::other("no more")));
    let error = write_file(&path, &program, &failing, &WriteOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot write segment 4: no more");
    assert_eq!(std::fs::read(&path).unwrap(), sample_file());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}
