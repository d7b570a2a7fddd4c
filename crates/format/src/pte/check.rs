//! What the tables of a program must agree on: every index points at something, every tensor lies inside what
//! holds its bytes, every product is countable.
//!
//! Runs once, after decoding and before writing, so that everybody after it may index without looking. What a
//! delegate's payload says is checked by its own reader.

use std::collections::HashSet;

use super::schema::*;
use super::values::{EValue, Instruction};
use crate::mirror::List;
use crate::{FormatError, Limits, Place, Result};

/// The newest `Program.version`.
const NEWEST: u32 = 0;

/// Checks a program whose segments have these sizes.
pub(super) fn check(program: &Program, segments: &[u64], limits: &Limits) -> Result<()> {
    if program.version > NEWEST {
        return Err(FormatError::NewerVersion {
            place: Place::at("Program.version"),
            found: program.version.into(),
            known: NEWEST.into(),
        });
    }
    let root = Checker { program, segments, limits };
    root.subsegments()?;
    root.named_data()?;
    let mut names = HashSet::new();
    for (index, plan) in program.execution_plan.iter().enumerate() {
        let path = format!("Program.execution_plan[{index}]");
        if plan.name.is_absent() {
            return Err(FormatError::table(path, "a method has no name"));
        }
        if !names.insert(&*plan.name) {
            return Err(FormatError::table(path, format!("two methods are named {:?}", &*plan.name)));
        }
        PlanChecker { root: &root, plan, path }.check()?;
    }
    Ok(())
}

/// Checks one index; `place` is called only for the error.
fn index(place: impl FnOnce() -> String, index: i64, count: usize, what: &'static str) -> Result<()> {
    match usize::try_from(index) {
        Ok(found) if found < count => Ok(()),
        _ => Err(FormatError::Index { place: Place::at(place()), index, count: count as u64, what }),
    }
}

struct Checker<'a> {
    program: &'a Program,
    segments: &'a [u64],
    limits: &'a Limits,
}

impl Checker<'_> {
    fn subsegments(&self) -> Result<()> {
        if let Some(table) = &self.program.constant_segment {
            self.subsegment(table, || "Program.constant_segment".into())?;
        }
        for (at, table) in self.program.mutable_data_segments.iter().enumerate() {
            self.subsegment(table, || format!("Program.mutable_data_segments[{at}]"))?;
        }
        Ok(())
    }

    fn subsegment(&self, table: &SubsegmentOffsets, path: impl Fn() -> String) -> Result<()> {
        // A lone entry stands for "no data", and then no segment need exist.
        if table.offsets.len() <= 1 && self.segments.get(table.segment_index as usize).is_none() {
            return Ok(());
        }
        let place = || format!("{}.segment_index", path());
        index(place, table.segment_index.into(), self.segments.len(), "segments")?;
        let size = self.segments[table.segment_index as usize];
        match table.offsets.iter().position(|offset| *offset > size) {
            None => Ok(()),
            Some(at) => Err(FormatError::table(
                format!("{}.offsets[{at}]", path()),
                format!("offset {} lies outside the segment's {size} bytes", table.offsets[at]),
            )),
        }
    }

    fn named_data(&self) -> Result<()> {
        let mut keys = HashSet::new();
        for (at, named) in self.program.named_data.iter().enumerate() {
            let path = || format!("Program.named_data[{at}]");
            if named.key.is_absent() {
                return Err(FormatError::table(path(), "the entry has no key"));
            }
            if !keys.insert(&*named.key) {
                return Err(FormatError::table(path(), format!("the key {:?} occurs twice", &*named.key)));
            }
            index(path, named.segment_index.into(), self.segments.len(), "segments")?;
        }
        Ok(())
    }

    /// Bytes there are for entry `entry` of a table of offsets.
    fn room(&self, table: &SubsegmentOffsets, entry: u32, path: &dyn Fn() -> String) -> Result<u64> {
        let place = || format!("{}.data_buffer_idx", path());
        index(place, entry.into(), table.offsets.len(), "stored tensors")?;
        let size = self.segments.get(table.segment_index as usize).copied().unwrap_or(0);
        Ok(size.saturating_sub(table.offsets[entry as usize]))
    }
}

struct PlanChecker<'a> {
    root: &'a Checker<'a>,
    plan: &'a ExecutionPlan,
    path: String,
}

impl PlanChecker<'_> {
    fn check(&self) -> Result<()> {
        let plan = self.plan;
        for (at, size) in plan.non_const_buffer_sizes.iter().enumerate() {
            if *size < 0 {
                let path = format!("{}.non_const_buffer_sizes[{at}]", self.path);
                return Err(FormatError::table(path, format!("an arena has {size} bytes")));
            }
        }
        for (at, device) in plan.non_const_buffer_device.iter().enumerate() {
            let place = || format!("{}.non_const_buffer_device[{at}].buffer_idx", self.path);
            index(place, device.buffer_idx.into(), plan.non_const_buffer_sizes.len(), "arenas")?;
        }
        for (at, value) in plan.values.iter().enumerate() {
            self.value(value, &|| format!("{}.values[{at}]", self.path))?;
        }
        self.values(&plan.inputs, || format!("{}.inputs", self.path))?;
        self.values(&plan.outputs, || format!("{}.outputs", self.path))?;
        for (at, delegate) in plan.delegates.iter().enumerate() {
            self.delegate(delegate, || format!("{}.delegates[{at}]", self.path))?;
        }
        for (at, chain) in plan.chains.iter().enumerate() {
            self.chain(chain, &format!("{}.chains[{at}]", self.path))?;
        }
        Ok(())
    }

    fn value_index(&self, found: i64, place: impl FnOnce() -> String) -> Result<()> {
        index(place, found, self.plan.values.len(), "values")
    }

    fn values(&self, indices: &List<i32>, path: impl Fn() -> String) -> Result<()> {
        let mut indices = indices.iter().enumerate();
        indices.try_for_each(|(at, found)| self.value_index((*found).into(), || format!("{}[{at}]", path())))
    }

    fn value(&self, value: &EValue, path: &dyn Fn() -> String) -> Result<()> {
        match value {
            EValue::Tensor(tensor) => self.tensor(tensor, path),
            EValue::IntList(items) => {
                let is_int = |item: &EValue| matches!(item, EValue::Int(_));
                self.items(items.iter().copied(), path, "Int", is_int)
            }
            EValue::TensorList(items) => {
                let is_tensor = |item: &EValue| matches!(item, EValue::Tensor(_));
                self.items(items.iter().map(|item| i64::from(*item)), path, "Tensor", is_tensor)
            }
            EValue::OptionalTensorList(items) => {
                let is_tensor = |item: &EValue| matches!(item, EValue::Tensor(_) | EValue::Null);
                let some = items.iter().map(|item| i64::from(*item)).filter(|item| *item != -1);
                self.items(some, path, "Tensor or Null", is_tensor)
            }
            _ => Ok(()),
        }
    }

    fn items(
        &self,
        items: impl Iterator<Item = i64>,
        path: &dyn Fn() -> String,
        wanted: &str,
        fits: impl Fn(&EValue) -> bool,
    ) -> Result<()> {
        for (at, item) in items.enumerate() {
            let place = || format!("{}.items[{at}]", path());
            self.value_index(item, place)?;
            let value = &self.plan.values[item as usize];
            if !fits(value) {
                let problem = format!("value {item} is a {}, not a {wanted}", value.kind());
                return Err(FormatError::table(place(), problem));
            }
        }
        Ok(())
    }

    fn tensor(&self, tensor: &Tensor, path: &dyn Fn() -> String) -> Result<()> {
        let fail = |problem: String| Err(FormatError::table(path(), problem));
        let (rank, limits) = (tensor.sizes.len(), self.root.limits);
        FormatError::check_limit("rank", rank as u64, limits.rank as u64, || Place::at(path()))?;
        if tensor.dim_order.len() != rank {
            return fail(format!("{rank} sizes, but a dim_order of {}", tensor.dim_order.len()));
        }
        let mut seen = vec![false; rank];
        for dim in &tensor.dim_order {
            match seen.get_mut(usize::from(*dim)) {
                Some(seen) if !*seen => *seen = true,
                _ => return fail(format!("dim_order {:?} is no permutation", &*tensor.dim_order)),
            }
        }
        if tensor.storage_offset != 0 {
            return fail(format!("storage_offset is {}; no runtime takes any but 0", tensor.storage_offset));
        }
        if tensor.is_external() {
            let name = tensor.extra_tensor_info.as_ref().map(|extra| &*extra.fully_qualified_name);
            if name.is_none_or(str::is_empty) {
                return fail("its data is external, but it has no name to find it by".into());
            }
        }
        if tensor.shape_dynamism == TensorShapeDynamism::DynamicUnbound {
            // Its sizes mean nothing; whoever runs it decides.
            return Ok(());
        }
        let Some(bytes) = tensor.byte_len() else {
            return fail(format!("sizes {:?} are negative or exceed 2^64 bytes", &*tensor.sizes));
        };
        FormatError::check_limit("tensor_bytes", bytes, limits.tensor_bytes, || Place::at(path()))?;
        self.placement(tensor, bytes, path)
    }

    /// The bytes that a tensor starts with, and the arena it lives in, must hold it.
    fn placement(&self, tensor: &Tensor, bytes: u64, path: &dyn Fn() -> String) -> Result<()> {
        if let Some(room) = self.stored(tensor, path)?
            && room < bytes
        {
            return Err(FormatError::table(path(), format!("{room} bytes are stored of its {bytes}")));
        }
        let Some(place) = &tensor.allocation_info else { return Ok(()) };
        let arenas = &self.plan.non_const_buffer_sizes;
        let at = || format!("{}.allocation_info.memory_id", path());
        if place.memory_id == 0 {
            return Err(FormatError::table(at(), "arena 0 is reserved"));
        }
        index(at, place.memory_id.into(), arenas.len(), "arenas, the reserved one included")?;
        let arena = arenas[place.memory_id as usize];
        match place.offset().checked_add(bytes) {
            Some(end) if i128::from(end) <= i128::from(arena) => Ok(()),
            _ => Err(FormatError::table(
                path(),
                format!("{bytes} bytes at {} run past its arena's {arena}", place.offset()),
            )),
        }
    }

    /// Bytes stored for a tensor that the file gives a value, `None` for one that it does not.
    fn stored(&self, tensor: &Tensor, path: &dyn Fn() -> String) -> Result<Option<u64>> {
        let (entry, program) = (tensor.data_buffer_idx, self.root.program);
        if entry == 0 || tensor.is_external() {
            return Ok(None);
        }
        if tensor.allocation_info.is_some() {
            let extra = tensor.extra_tensor_info.as_ref();
            let table = extra.map_or(0, |extra| extra.mutable_data_segments_idx);
            let place = || format!("{}.extra_tensor_info.mutable_data_segments_idx", path());
            let found = i64::try_from(table).unwrap_or(i64::MAX);
            index(place, found, program.mutable_data_segments.len(), "mutable data segments")?;
            return self.root.room(&program.mutable_data_segments[table as usize], entry, path).map(Some);
        }
        match &program.constant_segment {
            Some(table) if !table.offsets.is_empty() => self.root.room(table, entry, path).map(Some),
            _ => {
                let place = || format!("{}.data_buffer_idx", path());
                index(place, entry.into(), program.constant_buffer.len(), "constants")?;
                Ok(Some(program.constant_buffer[entry as usize].storage.len() as u64))
            }
        }
    }

    fn delegate(&self, delegate: &BackendDelegate, path: impl Fn() -> String) -> Result<()> {
        let Some(processed) = &delegate.processed else {
            return Err(FormatError::table(path(), "a delegate has no payload"));
        };
        let (count, what) = match processed.location {
            DataLocation::Inline => (self.root.program.backend_delegate_data.len(), "inline payloads"),
            DataLocation::Segment => (self.root.segments.len(), "segments"),
        };
        index(|| format!("{}.processed.index", path()), processed.index.into(), count, what)
    }

    fn chain(&self, chain: &Chain, path: &str) -> Result<()> {
        self.values(&chain.inputs, || format!("{path}.inputs"))?;
        self.values(&chain.outputs, || format!("{path}.outputs"))?;
        for (at, instruction) in chain.instructions.iter().enumerate() {
            self.instruction(instruction, chain.instructions.len(), &|| {
                format!("{path}.instructions[{at}]")
            })?;
        }
        Ok(())
    }

    fn instruction(
        &self,
        instruction: &Instruction,
        instructions: usize,
        path: &dyn Fn() -> String,
    ) -> Result<()> {
        let value =
            |found: i32, field: &str| self.value_index(found.into(), || format!("{}.{field}", path()));
        match instruction {
            Instruction::Kernel(call) => {
                let place = || format!("{}.op_index", path());
                index(place, call.op_index.into(), self.plan.operators.len(), "operators")?;
                self.values(&call.args, || format!("{}.args", path()))
            }
            Instruction::Delegate(call) => {
                let place = || format!("{}.delegate_index", path());
                index(place, call.delegate_index.into(), self.plan.delegates.len(), "delegates")?;
                self.values(&call.args, || format!("{}.args", path()))
            }
            Instruction::Move(call) => {
                value(call.move_from, "move_from")?;
                value(call.move_to, "move_to")
            }
            Instruction::JumpFalse(call) => {
                value(call.cond_value_index, "cond_value_index")?;
                // One past the last instruction ends the chain.
                let place = || format!("{}.destination_instruction", path());
                index(place, call.destination_instruction.into(), instructions + 1, "places to jump to")
            }
            Instruction::Free(call) => value(call.value_index, "value_index"),
        }
    }
}
