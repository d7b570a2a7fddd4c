//! Differences between the tables of two programs: methods by name, everything in them by position.

use super::data::{compare_bytes, compare_named, dtype};
use super::{Differences, graph};
use crate::rewrite::MLX;
use pteron_format::payload::Payload;
use pteron_format::pte::{BackendDelegate, EValue, ExecutionPlan, Instruction, Pte, Tensor};
use pteron_format::vulkan::VULKAN_BACKEND;
use pteron_format::xnnpack::XNNPACK_BACKEND;
use pteron_format::{Limits, lift, lift_delegate};
use std::fmt::Debug;

/// Everything that two programs say differently.
pub(super) fn compare(first: &Pte, second: &Pte, found: &mut Differences) {
    let (one, other) = (&first.program, &second.program);
    found.compare("version", &one.version, &other.version, ToString::to_string);
    let shown = |present: &bool| if *present { "present".into() } else { "absent".into() };
    let present = |pte: &Pte| pte.program.constant_segment.is_some();
    found.compare("constant_segment", &present(first), &present(second), shown);
    compare_methods(first, second, found);
    compare_named(first, second, found);
}

fn compare_methods(first: &Pte, second: &Pte, found: &mut Differences) {
    let names = |pte: &Pte| pte.program.execution_plan.iter().map(|plan| plan.name.to_string()).collect();
    let (ours, theirs): (Vec<String>, Vec<String>) = (names(first), names(second));
    for plan in &first.program.execution_plan {
        match second.method(&plan.name) {
            Some(other) => Methods { first, second, one: plan, other }.compare(found),
            None => found.note(format!("method `{}`: only in the first", &*plan.name)),
        }
    }
    for name in theirs.iter().filter(|name| !ours.contains(name)) {
        found.note(format!("method `{name}`: only in the second"));
    }
    let common = |names: &[String], others: &[String]| -> Vec<String> {
        names.iter().filter(|name| others.contains(name)).cloned().collect()
    };
    found.compare("order of methods", &common(&ours, &theirs), &common(&theirs, &ours), |names| {
        names.join(", ")
    });
}

/// One method of both programs.
struct Methods<'a> {
    first: &'a Pte,
    second: &'a Pte,
    one: &'a ExecutionPlan,
    other: &'a ExecutionPlan,
}

impl Methods<'_> {
    fn compare(&self, found: &mut Differences) {
        let (one, other) = (self.one, self.other);
        let at = |what: &str| format!("method `{}`, {what}", &*one.name);
        found.compare(at("container_meta_type"), &one.container_meta_type, &other.container_meta_type, debug);
        found.compare(at("inputs"), &one.inputs, &other.inputs, |list| format!("{:?}", &**list));
        found.compare(at("outputs"), &one.outputs, &other.outputs, |list| format!("{:?}", &**list));
        let sizes = (&one.non_const_buffer_sizes, &other.non_const_buffer_sizes);
        found.compare(at("non_const_buffer_sizes"), sizes.0, sizes.1, |list| format!("{:?}", &**list));
        let devices = (&one.non_const_buffer_device, &other.non_const_buffer_device);
        found.compare(at("non_const_buffer_device"), devices.0, devices.1, debug);
        found.compare_lists(&at("values"), &one.values, &other.values, value);
        self.compare_constants(found, &at("values"));
        found.compare_lists(&at("operators"), &one.operators, &other.operators, |operator| {
            format!("{}.{}", &*operator.name, &*operator.overload)
        });
        self.compare_chains(found, &at("chain"));
        self.compare_delegates(found, &at("delegate"));
    }

    fn compare_constants(&self, found: &mut Differences, place: &str) {
        let both = self.one.values.iter().zip(self.other.values.iter()).enumerate();
        for (index, (one, other)) in both {
            if let (EValue::Tensor(one), EValue::Tensor(other)) = (one, other) {
                let (one, other) = (self.first.stored(one), self.second.stored(other));
                let place = format!("{place}[{index}], stored data");
                compare_bytes(&place, one.as_deref(), other.as_deref(), found);
            }
        }
    }

    fn compare_chains(&self, found: &mut Differences, place: &str) {
        let (ours, theirs) = (&self.one.chains, &self.other.chains);
        found.compare(format!("{place}s"), &ours.len(), &theirs.len(), ToString::to_string);
        for (index, (one, other)) in ours.iter().zip(theirs.iter()).enumerate() {
            let place = format!("{place} {index}");
            found.compare(format!("{place}, inputs"), &one.inputs, &other.inputs, debug);
            found.compare(format!("{place}, outputs"), &one.outputs, &other.outputs, debug);
            found.compare(format!("{place}, stacktrace"), &one.stacktrace, &other.stacktrace, |frames| {
                format!("{} entries", frames.len())
            });
            if one.instructions == other.instructions {
                continue;
            }
            let show = |plan: &ExecutionPlan, chain: usize| {
                let instructions =
                    plan.chains.get(chain).map(|chain| &*chain.instructions).unwrap_or_default();
                instructions.iter().map(|step| instruction(plan, step)).collect::<Vec<_>>().join("\n")
            };
            let hunks = graph::compare(&show(self.one, index), &show(self.other, index));
            if hunks.is_empty() {
                found.note(format!("{place}: instructions use other values for the same steps"));
            }
            hunks.iter().for_each(|hunk| found.add(&place, &hunk.first, &hunk.second));
        }
    }

    fn compare_delegates(&self, found: &mut Differences, place: &str) {
        let (ours, theirs) = (&self.one.delegates, &self.other.delegates);
        found.compare(format!("{place}s"), &ours.len(), &theirs.len(), ToString::to_string);
        for (index, (one, other)) in ours.iter().zip(theirs.iter()).enumerate() {
            let place = format!("{place} {index}");
            found.compare(format!("{place}, id"), &one.id, &other.id, |id| id.to_string());
            let specs = (&one.compile_specs, &other.compile_specs);
            found.compare(format!("{place}, compile_specs"), specs.0, specs.1, debug);
            let location = |delegate: &BackendDelegate| delegate.processed.as_ref().map(|at| at.location);
            found.compare(format!("{place}, location"), &location(one), &location(other), debug);
            let (ours, theirs) = (self.first.payload(one), self.second.payload(other));
            match (ours, theirs) {
                (Some(ours), Some(theirs)) if ours != theirs && &*one.id == MLX && &*other.id == MLX => {
                    compare_payloads(&place, &ours, &theirs, found);
                }
                (Some(ours), Some(theirs))
                    if ours != theirs
                        && one.id == other.id
                        && matches!(&*one.id, XNNPACK_BACKEND | VULKAN_BACKEND) =>
                {
                    self.compare_graphs(&place, index, found);
                }
                (ours, theirs) => {
                    let place = format!("{place}, payload");
                    compare_bytes(&place, ours.as_deref(), theirs.as_deref(), found);
                }
            }
        }
    }
}

impl Methods<'_> {
    /// Compares what a delegate computes in both programs, and says so where only its tables differ.
    fn compare_graphs(&self, place: &str, number: usize, found: &mut Differences) {
        let limits = Limits::own();
        let text = |pte: &Pte, plan: &ExecutionPlan| match lift_delegate(pte, plan, number, &limits) {
            Ok(lifted) => lifted.module.to_string(),
            Err(error) => format!("not a graph: {error}"),
        };
        let hunks = graph::compare(&text(self.first, self.one), &text(self.second, self.other));
        if hunks.is_empty() {
            found.note(format!("{place}: the same graph, but the payload's tables differ"));
        }
        hunks.iter().for_each(|hunk| found.add(place, &hunk.first, &hunk.second));
    }
}

/// Compares what two payloads compute, and says so where only their slots differ.
fn compare_payloads(place: &str, first: &[u8], second: &[u8], found: &mut Differences) {
    let limits = Limits::own();
    let (one, other) = match (Payload::decode(first, &limits), Payload::decode(second, &limits)) {
        (Ok(one), Ok(other)) => (one, other),
        (one, other) => {
            // What cannot be read can only be compared as bytes.
            let verdict = |payload: &Result<Payload, _>| match payload {
                Ok(_) => "a sound payload".to_owned(),
                Err(error) => format!("{error}"),
            };
            found.compare(format!("{place}, payload"), &verdict(&one), &verdict(&other), Clone::clone);
            return compare_bytes(&format!("{place}, payload"), Some(first), Some(second), found);
        }
    };
    if one == other {
        return;
    }
    let (text, other_text) = (text(&one, &limits), text(&other, &limits));
    let hunks = graph::compare(&text, &other_text);
    if hunks.is_empty() {
        let tables = format!("{place}: the same graph, but {} differ", differing(&one, &other).join(", "));
        let (one, other) = (slots(&one), slots(&other));
        match one == other {
            true => found.note(tables),
            false => found.add(tables, &[one], &[other]),
        }
    }
    hunks.iter().for_each(|hunk| found.add(place, &hunk.first, &hunk.second));
}

/// The graph of a payload, or, where it is none, its instructions.
fn text(payload: &Payload, limits: &Limits) -> String {
    match lift(payload, "", limits) {
        Ok(module) => module.to_string(),
        Err(error) => {
            let chains = payload.instruction_chains.iter().enumerate().flat_map(|(number, chain)| {
                let line = move |instruction| format!("chain {number}: {instruction:?}");
                chain.instructions.iter().map(line)
            });
            std::iter::once(format!("not a graph: {error}")).chain(chains).collect::<Vec<_>>().join("\n")
        }
    }
}

/// The tables of two payloads that are not equal, by name.
fn differing(one: &Payload, other: &Payload) -> Vec<&'static str> {
    let tables = [
        ("version", one.version == other.version),
        ("numbers of slots", slots(one) == slots(other)),
        ("instruction_chains", one.instruction_chains == other.instruction_chains),
        ("main_chain_idx", one.main_chain_idx == other.main_chain_idx),
        ("init_chain_idx", one.init_chain_idx == other.init_chain_idx),
        ("input_map", one.input_map == other.input_map),
        ("output_map", one.output_map == other.output_map),
        ("mutable_buffer_map", one.mutable_buffer_map == other.mutable_buffer_map),
        ("named_slots", one.named_slots == other.named_slots),
        ("tensor_meta", one.tensor_meta == other.tensor_meta),
    ];
    tables.into_iter().filter(|(_, equal)| !equal).map(|(name, _)| name).collect()
}

fn slots(payload: &Payload) -> String {
    format!(
        "{} constants, {} inputs, {} outputs, {} buffers, {} temporaries, {} values, {} chains",
        payload.num_constant_tensors,
        payload.num_input_tensors,
        payload.num_output_tensors,
        payload.num_mutable_buffer_tensors,
        payload.num_temp_tensors,
        payload.num_values,
        payload.instruction_chains.len()
    )
}

fn debug(value: &impl Debug) -> String {
    format!("{value:?}")
}

fn value(value: &EValue) -> String {
    match value {
        EValue::Tensor(value) => tensor(value),
        EValue::Int(value) => format!("int {value}"),
        EValue::Bool(value) => format!("bool {value}"),
        EValue::Double(value) => format!("float {value}"),
        EValue::String(value) => format!("text {:?}", &**value),
        other => debug(other),
    }
}

fn tensor(tensor: &Tensor) -> String {
    let mut text = format!("{} {:?}", dtype(tensor.scalar_type), &*tensor.sizes);
    if tensor.data_buffer_idx != 0 {
        text += &format!(", data {}", tensor.data_buffer_idx);
    }
    if let Some(at) = &tensor.allocation_info {
        text += &format!(", arena {} at {}", at.memory_id, at.offset());
    }
    if let Some(extra) =
        tensor.extra_tensor_info.as_ref().filter(|extra| !extra.fully_qualified_name.is_empty())
    {
        text += &format!(", `{}`", &*extra.fully_qualified_name);
    }
    text
}

fn instruction(plan: &ExecutionPlan, step: &Instruction) -> String {
    let values = |args: &[i32]| args.iter().map(|arg| format!("%{arg}")).collect::<Vec<_>>().join(", ");
    match step {
        Instruction::Kernel(call) => {
            let operator = usize::try_from(call.op_index).ok().and_then(|index| plan.operators.get(index));
            let name = operator.map(|operator| format!("{}.{}", &*operator.name, &*operator.overload));
            format!("{}({})", name.unwrap_or_else(|| "?".into()), values(&call.args))
        }
        Instruction::Delegate(call) => format!("delegate {}({})", call.delegate_index, values(&call.args)),
        Instruction::Move(call) => format!("move %{} to %{}", call.move_from, call.move_to),
        Instruction::JumpFalse(call) => {
            format!("unless %{} jump to {}", call.cond_value_index, call.destination_instruction)
        }
        Instruction::Free(call) => format!("free %{}", call.value_index),
    }
}
