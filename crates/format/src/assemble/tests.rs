//! Small programs assembled and read back: delegates, portable calls, state, and what is refused.

use super::*;
use crate::pte::{EValue, Instruction, Pte};
use crate::{Limits, payload::Payload};
use pteron_ir::parse_module;

const MODULE: &str = r#"
init graph "f.init"
  constant %0 "scales": f32[2]
{
  %1: f32[2] = multiply(a=%0, b=%0)
}
output %1 "biases": f32[2]

graph "f"
  symbol T in 1..=8
  input %0 "x": f32[T, 2]
  constant %1 "scales": f32[2]
  constant %2 "biases": f32[2]
{
  %3: f32[T, 2] = multiply(a=%0, b=%1)
  %4: f32[T, 2] = add(a=%3, b=%2)
}
output %4 "y": f32[T, 2]
"#;

fn spec(sizes: &[usize]) -> TensorSpec {
    TensorSpec { dynamic: true, ..TensorSpec::known(DType::F32, sizes) }
}

fn program() -> ProgramWriter<'static> {
    let mut writer = ProgramWriter::new();
    let module = parse_module(MODULE).unwrap();
    let payload = writer.payload(&module).unwrap();
    assert_eq!(writer.payload(&module).unwrap(), payload, "equal payloads are one");
    writer.name_produced("scales", 8, |out| out.write_all(&[0; 8])).unwrap();
    writer.name("other", Bytes::copy_of(&[1, 2, 3])).unwrap();
    writer.name("same", Bytes::copy_of(&[1, 2, 3])).unwrap();
    writer.alias("again", "scales").unwrap();

    let mut method = MethodWriter::new("forward");
    let x = method.input(&spec(&[8, 2]));
    let (between, y) = (method.tensor(&spec(&[8, 2])), method.tensor(&spec(&[8, 2])));
    let stored = writer.constant(&1.5f32.to_le_bytes());
    let half = method.constant(&TensorSpec::known(DType::F32, &[]), stored);
    let first = writer.initial(&7i64.to_le_bytes());
    let counter = method.state("counter", &TensorSpec::known(DType::I64, &[]), Some(first));
    let cache = method.shared_state("cache", &TensorSpec::known(DType::F32, &[4]));
    method.delegate(payload, &[x], &[between]);
    let one = method.int(1);
    method.kernel("aten::mul", "out", &[between, half, y, y]);
    let flag = method.bool(false);
    let jump = method.jump_false(flag);
    method.kernel("aten::add", "Scalar_out", &[counter, one, one, counter, counter]);
    method.land(jump);
    method.kernel("aten::mul", "out", &[cache, half, cache, cache]);
    method.output(y);
    writer.method(method).unwrap();
    writer.metadata("get_max_seq_len", &Metadata::Int(32)).unwrap();
    writer.metadata("get_eos_ids", &Metadata::Ints(vec![2, 3])).unwrap();
    let heads = HostTensor::from_slice(vec![2], &[4i32, 8]).unwrap();
    writer.metadata("get_kv_heads", &Metadata::Tensor(heads)).unwrap();
    writer
}

fn written(writer: ProgramWriter<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    writer.write(&WriteOptions::default(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_program_reads_back_as_it_was_put_together() {
    let bytes = written(program());
    assert_eq!(bytes, written(program()), "the same calls give the same bytes");
    let pte = Pte::read(Bytes::copy_of(&bytes), &Limits::default()).unwrap();
    let plan = pte.method("forward").unwrap();
    let payload = pte.payload(&plan.delegates[0]).unwrap();
    let module =
        crate::lift(&Payload::decode(&payload, &Limits::default()).unwrap(), "f", &Limits::default())
            .unwrap();
    assert_eq!(module.main.body.nodes.len(), 2);
    assert_eq!(&*pte.named("biases").unwrap(), &[0; 4], "a placeholder of one element");
    let shared = |a, b| pte.named(a).unwrap().as_ptr() == pte.named(b).unwrap().as_ptr();
    assert!(shared("other", "same") && shared("again", "scales") && !shared("other", "scales"));

    let tensor = |value: i32| match &plan.values[value as usize] {
        EValue::Tensor(tensor) => tensor,
        other => panic!("{other:?}"),
    };
    assert_eq!(pte.stored(tensor(3)).as_deref(), Some(&1.5f32.to_le_bytes()[..]));
    assert_eq!(pte.stored(tensor(4)).as_deref(), Some(&7i64.to_le_bytes()[..]));
    let arena = |value: i32| tensor(value).allocation_info.as_ref().unwrap().memory_id;
    assert_eq!([arena(0), arena(4), arena(5)], [1, 1, 2]);
    assert_eq!(plan.non_const_buffer_sizes[2], 16);
    match plan.chains[0].instructions.as_ref() as &[Instruction] {
        [Instruction::Delegate(call), Instruction::Kernel(_), Instruction::JumpFalse(jump), _, last] => {
            assert_eq!(*call.args, [0, 1]);
            assert_eq!(jump.destination_instruction, 4);
            assert!(
                matches!(last, Instruction::Kernel(call) if call.op_index == 0),
                "operators are listed once"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut writer = program();
    let error = writer.name("other", Bytes::zeroed(1)).unwrap_err().to_string();
    assert_eq!(error, r#"two data are named "other""#);
    assert!(writer.alias("x", "nothing").unwrap_err().to_string().contains("\"nothing\""));
    assert!(writer.method(MethodWriter::new("forward")).is_err());

    let mut method = MethodWriter::new("short");
    let payload = writer.payload(&parse_module(MODULE).unwrap()).unwrap();
    let x = method.input(&spec(&[8, 2]));
    method.delegate(payload, &[x], &[]);
    let error = writer.method(method).unwrap_err().to_string();
    assert!(error.contains("takes 2 arguments, inputs and outputs together, not 1"), "{error}");

    let mut method = MethodWriter::new("other_size");
    method.shared_state("cache", &TensorSpec::known(DType::F32, &[5]));
    assert!(writer.method(method).unwrap_err().to_string().contains("20 bytes here and 16"));
    let mut method = MethodWriter::new("huge");
    method.tensor(&spec(&[1 << 40]));
    assert!(writer.method(method).unwrap_err().to_string().contains("value 0"));

    let mut unnamed = ProgramWriter::new();
    unnamed.payload(&parse_module(MODULE).unwrap()).unwrap();
    let error = unnamed.write(&WriteOptions::default(), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("no data is named \"scales\""), "{error}");
}

#[test]
fn data_that_is_taken_out_of_a_program_is_whole_in_its_own_file() {
    let (rest, data) = program().split(|key| key == "scales");
    let entries: Vec<(String, u64)> = data.entries().map(|(key, len)| (key.to_owned(), len)).collect();
    assert_eq!(
        entries,
        [("scales".to_owned(), 8), ("again".to_owned(), 8)],
        "names of one segment stay together"
    );
    let mut file = Vec::new();
    data.write(&WriteOptions::default(), &mut file).unwrap();
    let ptd = crate::ptd::Ptd::read(Bytes::copy_of(&file), &Limits::default()).unwrap();
    assert_eq!(&*ptd.named("again").unwrap().bytes, &[0; 8]);
    let mut file = Vec::new();
    rest.write(&WriteOptions::default(), &mut file).unwrap();
    let pte = Pte::read(Bytes::copy_of(&file), &Limits::default()).unwrap();
    assert!(pte.named("scales").is_none());
    assert_eq!(&*pte.named("same").unwrap(), &[1, 2, 3]);
    // A constant that is in neither is still missed.
    let mut broken = ProgramWriter::new();
    broken.payload(&parse_module(MODULE).unwrap()).unwrap();
    let (broken, _) = broken.split(|_| true);
    assert!(matches!(
        broken.write(&WriteOptions::default(), &mut Vec::new()),
        Err(AssembleError::UnknownName { .. })
    ));
}
