//! Delegates of a program by the kind of their payload: whoever wants a graph asks here, and need not know who wrote it.

use indexmap::IndexMap;
use pteron_tensor::DType;

use crate::assemble::MLX_BACKEND;
use crate::draft::{Argument, Lifted};
use crate::payload::Payload;
use crate::pte::{EValue, ExecutionPlan, Instruction, Pte, TensorShapeDynamism};
use crate::vulkan::{self, VULKAN_BACKEND};
use crate::xnnpack::{self, XNNPACK_BACKEND};
use crate::{LiftError, Limits, lift};

/// The ids of delegates whose payloads become graphs.
pub const DELEGATE_IDS: [&str; 3] = [MLX_BACKEND, XNNPACK_BACKEND, VULKAN_BACKEND];

/// What a method calls one of its delegates with, inputs and outputs. One that is called several times is taken to be
/// called with what varies most.
pub fn delegate_arguments(plan: &ExecutionPlan, number: usize) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    for instruction in plan.chains.iter().flat_map(|chain| chain.instructions.iter()) {
        let Instruction::Delegate(call) = instruction else { continue };
        if usize::try_from(call.delegate_index) != Ok(number) {
            continue;
        }
        for (place, &value) in call.args.iter().enumerate() {
            let value = usize::try_from(value).ok().and_then(|value| plan.values.get(value));
            let argument = argument(value);
            match arguments.get_mut(place) {
                Some(known) => known.is_dynamic |= argument.is_dynamic || known.sizes != argument.sizes,
                None => arguments.push(argument),
            }
        }
    }
    arguments
}

fn argument(value: Option<&EValue>) -> Argument {
    let Some(EValue::Tensor(tensor)) = value else { return Argument::default() };
    let dtype: Option<DType> = tensor.scalar_type.dtype();
    let sizes = tensor.sizes.iter().map(|&size| size.into()).collect();
    Argument { dtype, sizes, is_dynamic: tensor.shape_dynamism != TensorShapeDynamism::Static }
}

/// The graphs of a method's delegate, and where the bytes of their constants are: those that are not listed lie under
/// their names in the program's and `.ptd` files' named data.
pub fn lift_delegate(
    pte: &Pte,
    plan: &ExecutionPlan,
    number: usize,
    limits: &Limits,
) -> Result<Lifted, LiftError> {
    let missing = |problem: &str| LiftError::Missing { problem: problem.to_owned() };
    let table = plan.delegates.get(number).ok_or_else(|| missing("there is no such delegate"))?;
    let bytes = || pte.payload(table).ok_or_else(|| missing("there is no payload"));
    match &*table.id {
        MLX_BACKEND => {
            let payload = Payload::decode(&bytes()?, limits)?;
            Ok(Lifted { module: lift(&payload, &plan.name, limits)?, data: IndexMap::new() })
        }
        XNNPACK_BACKEND => {
            let payload = xnnpack::Payload::decode(&bytes()?, limits)?;
            let arguments = delegate_arguments(plan, number);
            Ok(xnnpack::lift(&payload, &plan.name, &arguments, limits)?)
        }
        VULKAN_BACKEND => {
            let payload = vulkan::Payload::decode(&bytes()?, limits)?;
            let arguments = delegate_arguments(plan, number);
            Ok(vulkan::lift(&payload, &plan.name, &arguments, &|key| pte.named(key), limits)?)
        }
        other => Err(LiftError::Foreign { id: other.to_owned() }),
    }
}
