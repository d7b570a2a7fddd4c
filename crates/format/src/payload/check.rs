//! What the tables of a payload must agree on: slots and chains exist, counts are within limits, chains nest
//! without cycles and do not multiply beyond measure.
//!
//! Whether a slot is set before it is read, and whether shapes fit, is for `lift` to find out.

use pteron_ir::Op;
use pteron_ir::op::FieldRef;

use super::tables::{ChainId, Payload, ShapeDim, Slot, SlotVariant, Wire};
use super::{Tid, VERSION, Vid};
use crate::{FormatError, Limits, Place, Result};

/// Checks a payload that was read.
pub(super) fn check(payload: &Payload, limits: &Limits) -> Result<()> {
    check_version(&payload.version)?;
    within("tensors", payload.num_tensors(), limits.tensors, "num_*_tensors")?;
    within("values", payload.num_values.into(), limits.values, "num_values")?;
    let total: u64 = payload.instruction_chains.iter().map(|chain| chain.instructions.len() as u64).sum();
    within("instructions", total, limits.instructions, "instruction_chains")?;
    check_boundary(payload)?;
    check_meta(payload, limits)?;
    let slots = Slots { tensors: payload.num_tensors(), values: payload.num_values.into() };
    for (chain, instructions) in payload.instruction_chains.iter().enumerate() {
        for (index, instruction) in instructions.instructions.iter().enumerate() {
            slots.check_node(chain, index, &instruction.op, &instruction.results)?;
        }
    }
    check_nesting(payload, limits)
}

fn place(field: &str) -> Place {
    Place::at(format!("Payload.{field}"))
}

fn within(limit: &'static str, found: u64, allowed: u64, field: &str) -> Result<()> {
    FormatError::check_limit(limit, found, allowed, || place(field))
}

fn check_version(version: &str) -> Result<()> {
    if version.is_empty() {
        return Ok(());
    }
    match version.parse::<u64>() {
        Ok(found) if found <= VERSION => Ok(()),
        Ok(found) => Err(FormatError::NewerVersion { place: place("version"), found, known: VERSION }),
        Err(_) => Err(FormatError::Table {
            place: place("version"),
            problem: format!("{version:?} is not a version number"),
        }),
    }
}

fn check_index(path: impl FnOnce() -> Place, index: u32, count: u64, what: &'static str) -> Result<()> {
    match u64::from(index) < count {
        true => Ok(()),
        false => Err(FormatError::Index { place: path(), index: index.into(), count, what }),
    }
}

/// How many slots of each space there are.
struct Slots {
    tensors: u64,
    values: u64,
}

impl Slots {
    fn check(&self, slot: Slot, path: impl FnOnce() -> Place) -> Result<()> {
        match slot {
            Slot::Tensor(Tid(index)) => check_index(path, index, self.tensors, "tensor slots"),
            Slot::Value(Vid(index)) => check_index(path, index, self.values, "value slots"),
        }
    }

    fn check_node(&self, chain: usize, index: usize, op: &Op<Wire>, results: &[Slot]) -> Result<()> {
        let spec = op.spec();
        let path = |field: &str| {
            place(&format!("instruction_chains[{chain}].instructions[{index}].{}.{field}", spec.name))
        };
        if spec.tag.is_none() {
            let problem = format!("{} is no op of a payload", spec.name);
            return Err(FormatError::Table { place: path("op"), problem });
        }
        for &slot in results {
            self.check(slot, || path(spec.result.name))?;
        }
        let mut outcome = Ok(());
        op.for_each_field(|field, value| {
            let mut seen = |slot: Slot| {
                if outcome.is_ok() {
                    outcome = self.check(slot, || path(field.name));
                }
            };
            value.for_each_tensor(&mut |tid| seen(Slot::Tensor(tid)));
            value.for_each_scalar(&mut |vid| seen(Slot::Value(vid)));
            if let FieldRef::LoopSlots(slots) = value {
                slots.iter().for_each(|&tid| seen(Slot::Tensor(tid)));
            }
        });
        outcome
    }
}

fn check_boundary(payload: &Payload) -> Result<()> {
    let slots = Slots { tensors: payload.num_tensors(), values: payload.num_values.into() };
    let maps = [
        ("input_map", &payload.input_map),
        ("output_map", &payload.output_map),
        ("mutable_buffer_map", &payload.mutable_buffer_map),
    ];
    for (name, map) in maps {
        for (index, slot) in map.iter().enumerate() {
            slots.check(slot.slot(), || place(&format!("{name}[{index}]")))?;
        }
    }
    for (index, named) in payload.named_slots.iter().enumerate() {
        let path = || place(&format!("named_slots[{index}]"));
        match &named.slot {
            Some(slot) => slots.check(SlotVariant::slot(slot), path)?,
            None => return Err(FormatError::Table { place: path(), problem: "the slot is missing".into() }),
        }
    }
    Ok(())
}

fn check_meta(payload: &Payload, limits: &Limits) -> Result<()> {
    for (index, meta) in payload.tensor_meta.iter().enumerate() {
        let path = || place(&format!("tensor_meta[{index}].shape"));
        FormatError::check_limit("rank", meta.shape.len() as u64, limits.rank as u64, path)?;
        for dim in &meta.shape {
            let ShapeDim { value, min_value, max_value } = *dim;
            let bounded = value >= 0 || (min_value >= 0 && (max_value == -1 || max_value >= min_value));
            if value < -1 || !bounded {
                let problem = format!("a size of {value} between {min_value} and {max_value} means nothing");
                return Err(FormatError::Table { place: path(), problem });
            }
        }
    }
    Ok(())
}

/// What running a chain amounts to, its bodies included.
#[derive(Clone, Copy)]
struct Extent {
    depth: u64,
    instructions: u64,
    bytes: u64,
}

/// A chain while its bodies are looked at.
#[derive(Clone, Copy)]
enum Seen {
    Not,
    Open,
    Done(Extent),
}

/// Refuses cycles, deep nesting, and bodies that share bodies until their number explodes.
fn check_nesting(payload: &Payload, limits: &Limits) -> Result<()> {
    let count = payload.instruction_chains.len();
    let mut seen = vec![Seen::Not; count];
    for chain in 0..count {
        extent(payload, limits, chain, 1, &mut seen)?;
    }
    let roots =
        [("main_chain_idx", Some(payload.main_chain_idx)), ("init_chain_idx", payload.init_chain_idx)];
    for (name, root) in roots {
        let Some(ChainId(root)) = root else { continue };
        check_index(|| place(name), root, count as u64, "chains")?;
        if let Seen::Done(extent) = seen[root as usize] {
            within("instructions", extent.instructions, limits.instructions, name)?;
            within("decoded_bytes", extent.bytes, limits.decoded_bytes, name)?;
        }
    }
    Ok(())
}

/// Recursion ends at the limit of depth.
fn extent(payload: &Payload, limits: &Limits, chain: usize, depth: u64, seen: &mut [Seen]) -> Result<Extent> {
    let path = |index: usize| place(&format!("instruction_chains[{chain}].instructions[{index}]"));
    let check_depth = |depth: u64| {
        FormatError::check_limit("chain_depth", depth, limits.chain_depth.into(), || {
            place(&format!("instruction_chains[{chain}]"))
        })
    };
    match seen[chain] {
        Seen::Done(extent) => return Ok(extent),
        Seen::Open => {
            return Err(FormatError::Table {
                place: place(&format!("instruction_chains[{chain}]")),
                problem: "the chain runs itself".into(),
            });
        }
        Seen::Not => check_depth(depth)?,
    }
    seen[chain] = Seen::Open;
    let mut total = Extent { depth: 1, instructions: 0, bytes: 0 };
    for (index, instruction) in payload.instruction_chains[chain].instructions.iter().enumerate() {
        total.instructions = total.instructions.saturating_add(1);
        let bytes = list_bytes(&instruction.op) + size_of_val(instruction.results.as_slice()) as u64;
        total.bytes = total.bytes.saturating_add(bytes);
        let mut bodies = Vec::new();
        instruction.op.for_each_field(|_, field| {
            if let FieldRef::Body(body) = field {
                bodies.push(body.0);
            }
        });
        for body in bodies {
            check_index(|| path(index), body, seen.len() as u64, "chains")?;
            let inner = extent(payload, limits, body as usize, depth + 1, seen)?;
            total.depth = total.depth.max(1 + inner.depth);
            total.instructions = total.instructions.saturating_add(inner.instructions);
            total.bytes = total.bytes.saturating_add(inner.bytes);
        }
    }
    check_depth(total.depth)?;
    seen[chain] = Seen::Done(total);
    Ok(total)
}

/// Bytes of what a node holds outside itself: what each further copy of it costs.
fn list_bytes(op: &Op<Wire>) -> u64 {
    let mut bytes = 0;
    op.for_each_field(|_, field| {
        bytes += match field {
            FieldRef::Tensors(items) | FieldRef::LoopSlots(items) => size_of_val(items.as_slice()),
            FieldRef::Ints(items) | FieldRef::MaybeInts(Some(items)) => size_of_val(items.as_slice()),
            FieldRef::I32s(items) | FieldRef::MaybeI32s(Some(items)) => size_of_val(items.as_slice()),
            FieldRef::MaybeI8s(Some(items)) => items.len(),
            FieldRef::MaybeDTypes(Some(items)) => items.len(),
            FieldRef::Str(text) | FieldRef::MaybeStr(Some(text)) => text.len(),
            FieldRef::MaybeStrs(Some(texts)) => {
                texts.iter().map(|text| size_of::<String>() + text.len()).sum()
            }
            _ => 0,
        } as u64;
    });
    bytes
}
