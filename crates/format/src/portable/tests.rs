//! Small methods whose delegates become calls: what stands beside them stays, and what cannot be said is said at once.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron_ir::parse_module;
use pteron_tensor::{Bytes, DType};

use super::to_portable;
use crate::assemble::{MethodWriter, ProgramWriter, TensorSpec};
use crate::pte::{self, EValue, ExecutionPlan, Instruction, Pte, Tensor};
use crate::{Limits, WriteOptions};

const KEEPING: &str = r#"
graph "f"
  input %0 "x": f32[2, 3]
  constant %1 "w": f32[4, 3]
  buffer %2 "sum": f32[2, 4] -> %5
{
  %3: f32[3, 4] = transpose(x=%1, perm=[1, 0])
  %4: f32[2, 4] = addmm(mat1=%0, mat2=%3)
  %5: f32[2, 4] = add(a=%2, b=%4)
}
output %5 "y": f32[2, 4]
"#;

const WITHOUT_FORM: &str = r#"
graph "f"
  input %0 "x": f32[2, 3]
{
  %1: u32[2, 3] = argsort(x=%0, axis=0)
  %2: f32[2, 3] = median(x=%0, axes=[0], keepdims=true)
  %3: f32[2, 3] = exp(x=%2)
}
output %1 "y": u32[2, 3]
output %3 "z": f32[2, 3]
"#;

/// Whether a condition holds, a delegate's call; then `aten::abs` of what the delegate gave first.
fn program(graph: &str, outputs: &[(DType, [usize; 2])]) -> Pte {
    let mut writer = ProgramWriter::new();
    let payload = writer.payload(&parse_module(graph).unwrap()).unwrap();
    let numbers: Vec<u8> = (0..12u8).flat_map(|number| f32::from(number).to_le_bytes()).collect();
    writer.name("w", Bytes::copy_of(&numbers)).unwrap();
    let mut method = MethodWriter::new("forward");
    let x = method.input(&TensorSpec::known(DType::F32, &[2, 3]));
    let given: Vec<_> =
        outputs.iter().map(|(dtype, shape)| method.tensor(&TensorSpec::known(*dtype, shape))).collect();
    let size = method.tensor(&TensorSpec::known(outputs[0].0, &outputs[0].1));
    let condition = method.bool(true);
    let jump = method.jump_false(condition);
    method.delegate(payload, &[x], &given);
    method.land(jump);
    method.kernel("aten::abs", "out", &[given[0], size, size]);
    method.output(size);
    writer.method(method).unwrap();
    let mut bytes = Vec::new();
    writer.write(&WriteOptions::default(), &mut bytes).unwrap();
    Pte::read(Bytes::copy_of(&bytes), &Limits::default()).unwrap()
}

fn turned(pte: &Pte) -> Result<Pte, Vec<String>> {
    let (tables, segments) = to_portable(pte, &Limits::default(), &|_, _| Ok(Vec::new()))?;
    let mut bytes = Vec::new();
    pte::write(&tables, &segments, &WriteOptions::default(), &mut bytes).unwrap();
    Ok(Pte::read(Bytes::copy_of(&bytes), &Limits::default()).unwrap())
}

fn calls(plan: &ExecutionPlan) -> Vec<String> {
    let named = |instruction: &Instruction| match instruction {
        Instruction::Kernel(call) => plan.operators[call.op_index as usize].name.to_string(),
        Instruction::JumpFalse(jump) => format!("jump to {}", jump.destination_instruction),
        other => format!("{other:?}"),
    };
    plan.chains[0].instructions.iter().map(named).collect()
}

fn tensors(plan: &ExecutionPlan) -> impl Iterator<Item = &Tensor> {
    plan.values.iter().filter_map(|value| match value {
        EValue::Tensor(tensor) => Some(&**tensor),
        _ => None,
    })
}

#[test]
fn calls_stand_where_the_delegate_was_called_and_jumps_lead_behind_them() {
    let old = program(KEEPING, &[(DType::F32, [2, 4])]);
    let new = turned(&old).unwrap();
    let (old_plan, plan) = (old.method("forward").unwrap(), new.method("forward").unwrap());
    assert_eq!(calls(plan), ["jump to 4", "aten::mm", "aten::add", "aten::copy_", "aten::abs"]);
    assert!(plan.delegates.is_empty() && new.program.named_data.is_empty());
    // Values keep their numbers and places; what is new lies behind them.
    assert_eq!(plan.values[..old_plan.values.len()], old_plan.values[..]);
    let end = old_plan.non_const_buffer_sizes[1] as u64;
    let added = tensors(plan).skip(tensors(old_plan).count());
    assert!(added.filter_map(|tensor| tensor.allocation_info.as_ref()).all(|place| place.offset() >= end));
    // The product and the sum that is kept are needed at one time.
    assert_eq!(plan.non_const_buffer_sizes[1] as u64, end + 2 * 32);
}

#[test]
fn constants_that_are_only_turned_lie_turned_in_the_file() {
    let new = turned(&program(KEEPING, &[(DType::F32, [2, 4])])).unwrap();
    let weight = tensors(new.method("forward").unwrap()).find(|tensor| *tensor.sizes == [3, 4]).unwrap();
    let numbers: Vec<f32> =
        new.stored(weight).unwrap().chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(numbers, [0., 3., 6., 9., 1., 4., 7., 10., 2., 5., 8., 11.]);
}

#[test]
fn all_that_has_no_portable_form_is_said_at_once_and_what_reads_it_is_passed_over() {
    let old = program(WITHOUT_FORM, &[(DType::I64, [2, 3]), (DType::F32, [2, 3])]);
    let problems = turned(&old).err().unwrap();
    let wanted = ["node 0 (`argsort`)", "node 1 (`median`)"];
    assert_eq!(problems.len(), 2, "{problems:?}");
    for (problem, node) in problems.iter().zip(wanted) {
        assert_eq!(
            *problem,
            format!("method `forward`, delegate 0: {node}: no portable operator computes it")
        );
    }
}
