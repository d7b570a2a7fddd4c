//! Walking a chain: each instruction becomes a node, a new content of some slots, or both.

use pteron_ir::text::Printer;
use pteron_ir::{Dim, Op, Place, Ssa, SymbolInfo, Type, ValueId};

use super::control::Scan;
use super::error::{LiftError, Where};
use super::liveness::copied;
use super::{Lifter, Role};
use crate::payload::translate::{Translate, translate};
use crate::payload::{ChainId, Instruction, Slot, Tid, Vid, Wire};

/// An instruction that is being lifted.
#[derive(Clone, Copy)]
pub(super) struct At {
    chain: ChainId,
    index: usize,
    op: &'static str,
}

impl At {
    fn place(self) -> Option<Place> {
        Some(Place { chain: self.chain.0, index: self.index as u32 })
    }
}

impl From<At> for Where {
    fn from(at: At) -> Where {
        Where::Instruction { chain: at.chain, index: at.index, op: at.op }
    }
}

/// Reads operands out of the slots.
struct Operands<'l, 'p> {
    lifter: &'l Lifter<'p>,
    at: At,
}

impl Translate<Wire, Ssa> for Operands<'_, '_> {
    type Error = LiftError;

    fn tensor(&mut self, tid: Tid) -> Result<ValueId, LiftError> {
        self.lifter.read(self.at.into(), Slot::Tensor(tid))
    }

    fn scalar(&mut self, vid: Vid) -> Result<ValueId, LiftError> {
        self.lifter.read(self.at.into(), Slot::Value(vid))
    }

    fn unknown(&self, field: &'static str) -> LiftError {
        LiftError::Field { at: self.at.into(), field }
    }
}

impl Lifter<'_> {
    /// Lifts a chain into the innermost open block. `live_out` is what is read after it.
    pub(super) fn chain(&mut self, chain: ChainId, live_out: &[Slot]) -> Result<(), LiftError> {
        let payload = self.payload;
        let wanted = self.liveness.wanted(chain, live_out.iter().copied());
        let instructions = payload.chain(chain).map_or(&[][..], |chain| &chain.instructions);
        for (index, instruction) in instructions.iter().enumerate() {
            let at = At { chain, index, op: instruction.op.spec().name };
            self.charge_instruction(at)?;
            let handed_on = wanted.get(&index).map_or(&[][..], Vec::as_slice);
            self.instruction(at, instruction, handed_on)?;
        }
        Ok(())
    }

    fn instruction(
        &mut self,
        at: At,
        instruction: &Instruction,
        handed_on: &[Slot],
    ) -> Result<(), LiftError> {
        let results = &instruction.results;
        if let Some(from) = copied(&instruction.op)
            && self.copy(at, from, results)?
        {
            return Ok(());
        }
        match &instruction.op {
            Op::Noop {} => Ok(()),
            Op::If { cond, then_chain_idx, else_chain_idx } => {
                self.branch(at, cond, [*then_chain_idx, *else_chain_idx], handed_on)
            }
            Op::Scan { originals, sliced, body_chain_idx, scan_axis, .. } => {
                let scan =
                    Scan { originals, sliced, body: *body_chain_idx, axis: *scan_axis, outputs: results };
                self.scan(at, &scan, handed_on)
            }
            op => {
                let lifted = translate(op, &mut Operands { lifter: self, at })?;
                let values = self.append(at, lifted)?;
                if values.len() != results.len() {
                    let (slots, results) = (results.len(), values.len());
                    let operands = self.show_operands(op);
                    return Err(LiftError::ResultCount { at: at.into(), slots, results, operands });
                }
                self.write_all(at, results, &values)
            }
        }
    }

    /// Copying is only a new content of a slot; `false` where it is not a copy after all.
    fn copy(&mut self, at: At, from: Slot, to: &[Slot]) -> Result<bool, LiftError> {
        let Some(value) = self.slots.get(from) else {
            // A copy that nobody reads may copy what a branch did not hand on for that very reason.
            to.iter().for_each(|&slot| self.slots.unset(slot));
            return Ok(true);
        };
        match self.builder.graph().ty(value) {
            // A sum with a float or bool is for the op's rule to refuse.
            Some(Type::Float | Type::Bool) => Ok(false),
            _ => self.write_all(at, to, &[value]).map(|()| true),
        }
    }

    pub(super) fn read(&self, at: Where, slot: Slot) -> Result<ValueId, LiftError> {
        self.slots.get(slot).ok_or_else(|| LiftError::Unset { at, slot: self.named(slot) })
    }

    pub(super) fn write_all(&mut self, at: At, slots: &[Slot], values: &[ValueId]) -> Result<(), LiftError> {
        for (&slot, &value) in slots.iter().zip(values) {
            let problem = match self.role {
                Role::Main if self.is_constant(slot) => "only the init chain may write constants",
                Role::Init if self.is_buffer(slot) => "the init chain may write constants, not state",
                _ => {
                    self.slots.set(slot, value);
                    continue;
                }
            };
            return Err(LiftError::Forbidden { at: at.into(), slot: self.named(slot), problem });
        }
        Ok(())
    }

    pub(super) fn append(&mut self, at: At, op: Op<Ssa>) -> Result<Vec<ValueId>, LiftError> {
        // Only an error needs the operands again, and by then the op has been consumed.
        let operands = |lifter: &Self| {
            let wire = lifter.payload.chain(at.chain).and_then(|chain| chain.instructions.get(at.index));
            wire.map_or_else(String::new, |wire| lifter.show_operands(&wire.op))
        };
        let symbols = self.builder.graph().symbols.len();
        let values = match self.builder.append(op, at.place()) {
            Ok(values) => values,
            Err(source) => {
                return Err(LiftError::Rule { at: at.into(), operands: operands(self), source });
            }
        };
        let symbols = self.builder.graph().symbols.len() - symbols;
        self.charge_types(at, (symbols * size_of::<SymbolInfo>()) as u64)?;
        for &value in &values {
            let Some(ty) = self.builder.graph().ty(value) else { continue };
            let (rank, bytes) = extent(ty);
            if rank > self.limits.rank {
                let (limit, allowed) = ("rank", self.limits.rank as u64);
                return Err(LiftError::Limit { at: at.into(), limit, allowed });
            }
            self.charge_types(at, bytes)?;
        }
        Ok(values)
    }

    pub(super) fn charge_types(&mut self, at: At, bytes: u64) -> Result<(), LiftError> {
        let allowed = self.limits.decoded_bytes;
        self.type_bytes = self.type_bytes.checked_sub(bytes).ok_or_else(|| LiftError::Limit {
            at: at.into(),
            limit: "decoded_bytes",
            allowed,
        })?;
        Ok(())
    }

    /// Bodies of loops may be lifted twice; nested in each other they would double each time.
    fn charge_instruction(&mut self, at: At) -> Result<(), LiftError> {
        let allowed = self.limits.instructions;
        self.instructions = self.instructions.checked_sub(1).ok_or_else(|| LiftError::Limit {
            at: at.into(),
            limit: "instructions",
            allowed,
        })?;
        Ok(())
    }

    /// The tensors and values that a node reads, with slots and types, for errors.
    fn show_operands(&self, op: &Op<Wire>) -> String {
        const SHOWN: usize = 16;
        let graph = self.builder.graph();
        let printer = Printer::new(graph);
        let mut shown = Vec::new();
        op.for_each_field(|field, value| {
            let mut show = |slot: Slot| {
                if shown.len() == SHOWN {
                    shown.push("...".to_owned());
                } else if shown.len() < SHOWN {
                    let ty = self.slots.get(slot).and_then(|value| graph.ty(value));
                    let ty = ty.map_or_else(|| "unset".to_owned(), |ty| printer.ty(ty).to_string());
                    shown.push(format!("{} = {slot}: {ty}", field.name));
                }
            };
            value.for_each_tensor(&mut |tid| show(Slot::Tensor(tid)));
            value.for_each_scalar(&mut |vid| show(Slot::Value(vid)));
        });
        shown.join(", ")
    }
}

/// Rank of a type, and roughly the bytes that it takes.
fn extent(ty: &Type) -> (usize, u64) {
    let dims = match ty {
        Type::Tensor(tensor) => tensor.shape.as_slice(),
        Type::Int(dim) => std::slice::from_ref(dim),
        Type::Float | Type::Bool => &[],
    };
    let bytes = dims.iter().map(|dim| size_of::<Dim>() + size_of_val(dim.parts().1)).sum::<usize>();
    (dims.len(), (size_of::<Type>() + bytes) as u64)
}
