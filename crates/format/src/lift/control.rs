//! Branches and loops: chains that write outer slots become blocks that give values.

use pteron_ir::op::IntArg;
use pteron_ir::{Block, Dim, Op, SymbolInfo, Symbols, TensorType, Type, ValueId};
use pteron_tensor::{DType, promote};

use super::Lifter;
use super::chain::At;
use super::error::LiftError;
use crate::payload::{ChainId, Slot, Tid, Vid};

/// The fields of a loop's node.
pub(super) struct Scan<'p> {
    pub(super) originals: &'p [Tid],
    pub(super) sliced: &'p [Tid],
    pub(super) body: ChainId,
    pub(super) axis: i32,
    pub(super) outputs: &'p [Slot],
}

/// The graph before a loop's body was lifted.
struct Checkpoint {
    values: usize,
    symbols: Symbols,
}

impl Lifter<'_> {
    /// A branch gives the slots that one of its bodies writes and somebody reads later; a body that leaves one
    /// alone gives what was in it before.
    pub(super) fn branch(
        &mut self,
        at: At,
        cond: &IntArg<Vid>,
        bodies: [ChainId; 2],
        handed_on: &[Slot],
    ) -> Result<(), LiftError> {
        let cond = match *cond {
            IntArg::Literal(literal) => IntArg::Literal(literal),
            IntArg::Value(vid) => IntArg::Value(self.read(at.into(), Slot::Value(vid))?),
        };
        let [mut then, mut other] = [Block::default(), Block::default()];
        for (body, block) in bodies.into_iter().zip([&mut then, &mut other]) {
            let mark = self.slots.mark();
            self.builder.open_block(Vec::new());
            self.chain(body, handed_on)?;
            let values = handed_on.iter().map(|&slot| self.read(at.into(), slot));
            let values: Vec<ValueId> = values.collect::<Result<_, _>>()?;
            self.slots.rewind(mark);
            *block = self.builder.close_block(values);
        }
        // Each pair of values once and in their order: slots are numbered anew when the graph is written, values
        // are not. What both branches leave as one and the same value needs no result.
        let pairs: Vec<(ValueId, ValueId)> =
            then.results.iter().copied().zip(other.results.iter().copied()).collect();
        let mut distinct: Vec<(ValueId, ValueId)> = pairs.iter().copied().filter(|(a, b)| a != b).collect();
        distinct.sort_unstable();
        distinct.dedup();
        (then.results, other.results) = distinct.iter().copied().unzip();
        let results = self.append(at, Op::If { cond, then_chain_idx: then, else_chain_idx: other })?;
        for (&slot, pair) in handed_on.iter().zip(&pairs) {
            let result = distinct.binary_search(pair).ok().and_then(|index| results.get(index));
            self.write_all(at, &[slot], &[result.copied().unwrap_or(pair.0)])?;
        }
        Ok(())
    }

    /// A loop's body takes the slices and the carried slots, and gives what is stacked and the carried slots.
    pub(super) fn scan(&mut self, at: At, scan: &Scan<'_>, carried: &[Slot]) -> Result<(), LiftError> {
        self.check_loop(at, scan, carried)?;
        let originals = scan.originals.iter().map(|&tid| self.read(at.into(), Slot::Tensor(tid)));
        let originals: Vec<ValueId> = originals.collect::<Result<_, _>>()?;
        let mut carried = carried.to_vec();
        let start = carried.iter().map(|&slot| self.read(at.into(), slot));
        let mut start: Vec<ValueId> = start.collect::<Result<_, _>>()?;
        let body_chain_idx = loop {
            let before = self.checkpoint(at)?;
            let body = self.loop_body(at, scan, &carried, &originals, &start)?;
            let (kept, wider) = (unchanged(&body, start.len()), self.wider(&start, &body));
            if !kept.contains(&true) && wider.iter().all(Option::is_none) {
                break body;
            }
            self.restore(before);
            if kept.contains(&true) {
                // A slot that every step leaves as it was is an outer value like any other.
                let carry = |index: usize| !kept[index];
                carried = (0..kept.len()).filter(|&index| carry(index)).map(|index| carried[index]).collect();
                start = (0..kept.len()).filter(|&index| carry(index)).map(|index| start[index]).collect();
                continue;
            }
            // On the wire a slot may hold bf16 in the first step and f32 from then on, because ops promote. A
            // value has one type: it starts out wide. (conformance: gated_delta_rule_projection_*)
            for (value, dtype) in start.iter_mut().zip(wider) {
                if let Some(scalar_type) = dtype {
                    let converted = self.append(at, Op::AsType { x: *value, scalar_type })?;
                    *value = converted.first().copied().unwrap_or(*value);
                }
            }
        };
        let values = self.append(
            at,
            Op::Scan { originals, sliced: (), carry: start, body_chain_idx, scan_axis: scan.axis },
        )?;
        // The stacked outputs are written last: a slot may be carried and given.
        let (outputs, last) = values.split_at(scan.outputs.len().min(values.len()));
        self.write_all(at, &carried, last)?;
        self.write_all(at, scan.outputs, outputs)
    }

    fn loop_body(
        &mut self,
        at: At,
        scan: &Scan<'_>,
        carried: &[Slot],
        originals: &[ValueId],
        start: &[ValueId],
    ) -> Result<Block, LiftError> {
        let mut types = Vec::with_capacity(originals.len() + start.len());
        types.extend(originals.iter().filter_map(|&value| self.slice_type(value, scan.axis)));
        types.extend(start.iter().filter_map(|&value| self.builder.graph().ty(value).cloned()));
        let mark = self.slots.mark();
        let params = self.builder.open_block(types);
        let (slices, passed_on) = params.split_at(originals.len().min(params.len()));
        self.write_all(at, carried, passed_on)?;
        // The slices are set at the start of each step, over whatever was carried there.
        let sliced: Vec<Slot> = scan.sliced.iter().map(|&tid| Slot::Tensor(tid)).collect();
        self.write_all(at, &sliced, slices)?;

        let given: Vec<Slot> = scan.outputs.iter().chain(carried).copied().collect();
        self.chain(scan.body, &given)?;
        let values = given.iter().map(|&slot| self.read(at.into(), slot));
        let values: Vec<ValueId> = values.collect::<Result<_, _>>()?;
        self.slots.rewind(mark);
        Ok(self.builder.close_block(values))
    }

    /// For each carried value the dtype that a step turns it into, where that is a wider one.
    fn wider(&self, start: &[ValueId], body: &Block) -> Vec<Option<DType>> {
        let dtype = |value: ValueId| match self.builder.graph().ty(value) {
            Some(Type::Tensor(tensor)) => Some(tensor.dtype),
            _ => None,
        };
        let next = &body.results[body.results.len().saturating_sub(start.len())..];
        let pairs = start.iter().zip(next).map(|(&start, &next)| dtype(start).zip(dtype(next)));
        pairs.map(|pair| pair.filter(|&(a, b)| a != b && promote(a, b) == b).map(|(_, next)| next)).collect()
    }

    fn checkpoint(&mut self, at: At) -> Result<Checkpoint, LiftError> {
        let graph = self.builder.graph();
        let (values, symbols) = (graph.values.len(), graph.symbols.clone());
        // Copying the symbols for each of many loops adds up.
        self.charge_types(at, (symbols.len() * size_of::<SymbolInfo>()) as u64)?;
        Ok(Checkpoint { values, symbols })
    }

    fn restore(&mut self, checkpoint: Checkpoint) {
        let graph = self.builder.graph_mut();
        graph.values.truncate(checkpoint.values);
        graph.symbols = checkpoint.symbols;
    }

    fn check_loop(&mut self, at: At, scan: &Scan<'_>, carried: &[Slot]) -> Result<(), LiftError> {
        let forbidden = |lifter: &Self, slot: Slot, problem| {
            Err(LiftError::Forbidden { at: at.into(), slot: lifter.named(slot), problem })
        };
        if let Some(&slot) = carried.iter().find(|slot| matches!(slot, Slot::Value(_))) {
            return forbidden(self, slot, "a loop carries tensors, not values, from step to step");
        }
        let body = self.liveness.effects(scan.body);
        for &tid in scan.originals {
            let slot = Slot::Tensor(tid);
            if body.writes.contains(&slot) || scan.sliced.contains(&tid) {
                return forbidden(self, slot, "a loop cannot change what it runs over");
            }
        }
        if scan.sliced.len() != scan.originals.len() {
            let (slots, results) = (scan.sliced.len(), scan.originals.len());
            let operands = "one slice slot for each scanned tensor is needed".to_owned();
            return Err(LiftError::ResultCount { at: at.into(), slots, results, operands });
        }
        Ok(())
    }

    /// The type of one step's slice; `None` where there is no such axis, which the op's rule will say.
    fn slice_type(&self, value: ValueId, axis: i32) -> Option<Type> {
        let Some(Type::Tensor(TensorType { dtype, shape })) = self.builder.graph().ty(value) else {
            return None;
        };
        let from_end = if axis < 0 { shape.len() as i64 } else { 0 };
        let axis = usize::try_from(i64::from(axis) + from_end).ok()?;
        let mut shape: Vec<Dim> = shape.clone();
        if axis >= shape.len() {
            return None;
        }
        shape.remove(axis);
        Some(Type::Tensor(TensorType { dtype: *dtype, shape }))
    }
}

/// For each carried value whether the body gives it on as it got it.
fn unchanged(body: &Block, carried: usize) -> Vec<bool> {
    let params = &body.params[body.params.len().saturating_sub(carried)..];
    let next = &body.results[body.results.len().saturating_sub(carried)..];
    params.iter().zip(next).map(|(param, next)| param == next).collect()
}
