//! A method that there is, with more calls in it: its values keep their numbers and places, and what is new lies behind its
//! own arena.

use indexmap::IndexMap;

use super::method::{MethodWriter, Storage, Value, ValueIndex, operator, tables};
use super::{AssembleError, DATA_ALIGNMENT};
use crate::List;
use crate::pte::{Chain, ExecutionPlan, Instruction};

impl ValueIndex {
    /// A value of the method that is continued.
    pub(crate) fn existing(number: i32) -> ValueIndex {
        ValueIndex(number)
    }
}

impl MethodWriter {
    /// A writer whose values are those of a method, and which has no instruction yet.
    pub(crate) fn resumed(plan: &ExecutionPlan) -> MethodWriter {
        let mut writer = MethodWriter::new(&plan.name);
        writer.values = plan.values.iter().cloned().map(Value::Plain).collect();
        writer.operators_before = plan.operators.len();
        writer
    }

    /// An instruction of the method that is continued.
    pub(crate) fn repeat(&mut self, instruction: Instruction) {
        self.steps.push(instruction);
    }

    /// How many instructions there are.
    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Puts values, operators and instructions in the place of the method's own.
    pub(crate) fn complete(self, plan: &mut ExecutionPlan) -> Result<(), AssembleError> {
        let mut places = self.plan()?;
        if places.bytes > 0 {
            let sizes = plan.non_const_buffer_sizes.make_mut();
            sizes.resize(sizes.len().max(Storage::OWN_ARENA as usize + 1), 0);
            let arena = &mut sizes[Storage::OWN_ARENA as usize];
            let end = u64::try_from(*arena)
                .ok()
                .and_then(|before| before.checked_next_multiple_of(DATA_ALIGNMENT))
                .inspect(|before| places.base = *before)
                .and_then(|before| i64::try_from(before.checked_add(places.bytes)?).ok());
            *arena = end.ok_or_else(|| self.size_problem(0, "the arena exceeds 2^63"))?;
        }
        plan.operators.make_mut().extend(self.operators.into_keys().map(operator));
        plan.values = tables(&self.name, self.values, &places, &IndexMap::new())?.into();
        let chains = plan.chains.make_mut();
        if chains.is_empty() {
            chains.push(Chain::default());
        }
        chains[0].instructions = List::from(self.steps);
        Ok(())
    }
}
