//! Hazards: which memory each step reads and writes, so that a backend whose steps overlap in time knows which of them must
//! wait for others. Two steps of different values can meet in one place: values that are never needed at the same time
//! share places.

use crate::groups::Groups;
use crate::lifetimes::{Lifetimes, Sharing};
use crate::plan::{Access, Storage};
use pteron_ir::{Block, Effect, Graph, Node, ValueId};
use std::collections::HashMap;

impl Access {
    /// Whether a later step has to wait for this one: it reads what this one writes, writes what this one reads or
    /// writes, or both have an effect.
    pub fn holds_up(&self, later: &Access) -> bool {
        let meet = |some: &[Storage], others: &[Storage]| {
            some.iter().any(|one| others.iter().any(|other| overlap(*one, *other)))
        };
        let memory = meet(&self.writes, &later.reads) || meet(&self.writes, &later.writes);
        memory || meet(&self.reads, &later.writes) || (self.has_effect && later.has_effect)
    }
}

/// Whether two places have a byte in common.
fn overlap(one: Storage, other: Storage) -> bool {
    match (one, other) {
        (Storage::Arena { offset: a, bytes: of_a }, Storage::Arena { offset: b, bytes: of_b }) => {
            a < b + of_b && b < a + of_a
        }
        (Storage::None | Storage::View, _) => false,
        _ => one == other,
    }
}

/// Before which steps a backend that starts them in order waits for all that it has started: as late as possible.
pub fn barriers(accesses: &[Access]) -> Vec<bool> {
    let mut first = 0;
    let mut barriers = Vec::with_capacity(accesses.len());
    for (at, access) in accesses.iter().enumerate() {
        let waits = accesses[first..at].iter().any(|earlier| earlier.holds_up(access));
        if waits {
            first = at;
        }
        barriers.push(waits);
    }
    barriers
}

/// What the steps of a plan touch.
pub(crate) struct Touching<'p> {
    pub(crate) lifetimes: &'p Lifetimes,
    pub(crate) groups: &'p Groups<'p>,
    /// By value, and behind those by scratch.
    pub(crate) storage: &'p [Storage],
    pub(crate) values: usize,
    /// By node: the scratch that it uses.
    pub(crate) scratch: HashMap<usize, Vec<usize>>,
}

impl Touching<'_> {
    /// By step: the accesses of its node, of what runs inside that, and of nested blocks. `steps` are the numbers of nodes.
    pub(crate) fn accesses(&self, graph: &Graph, steps: &[usize]) -> Vec<Access> {
        let mut by_node: HashMap<usize, Access> = HashMap::new();
        self.block(&graph.body, &mut 0, None, &mut by_node);
        steps.iter().map(|step| by_node.remove(step).unwrap_or_default()).collect()
    }

    /// Adds what nodes touch to the step that they run in: `around`, or their own.
    fn block(
        &self,
        block: &Block,
        number: &mut usize,
        around: Option<usize>,
        by_node: &mut HashMap<usize, Access>,
    ) {
        for node in &block.nodes {
            let own = *number;
            *number += 1;
            let step = around.unwrap_or_else(|| self.groups.place(own));
            self.node(node, own, by_node.entry(step).or_default());
            node.for_each_block(|block| {
                let access = by_node.entry(step).or_default();
                block.params.iter().for_each(|&param| self.write(access, param));
                block.results.iter().for_each(|&value| self.read(access, value));
                self.block(block, number, Some(step), by_node);
            });
        }
    }

    fn node(&self, node: &Node, number: usize, access: &mut Access) {
        access.has_effect |= node.op.effect() != Effect::Pure;
        for scratch in self.scratch.get(&number).into_iter().flatten() {
            add(&mut access.writes, self.storage[self.values + scratch]);
        }
        let sharing = node.results.first().map(|&result| self.lifetimes.life(result).sharing);
        // A view is sizes and strides: nothing is touched before somebody reads through it.
        if matches!(sharing, Some(Sharing::View(_))) {
            return;
        }
        node.for_each_operand(|value| self.read(access, value));
        if !self.groups.is_inner(number) {
            node.results.iter().for_each(|&value| self.write(access, value));
        }
    }

    /// Where a value is made: in memory of its own, or in that of what it updates.
    fn write(&self, access: &mut Access, value: ValueId) {
        let place = match self.lifetimes.life(value).sharing {
            Sharing::InPlace(_) => self.lifetimes.root(value),
            _ => value,
        };
        add(&mut access.writes, self.storage[place.0 as usize]);
    }

    /// Where a value is found: in the memory of its root, or where that may lie instead.
    fn read(&self, access: &mut Access, value: ValueId) {
        let mut at = self.lifetimes.root(value);
        loop {
            add(&mut access.reads, self.storage[at.0 as usize]);
            match self.lifetimes.life(at).sharing {
                Sharing::MaybeView(source) => at = self.lifetimes.root(source),
                _ => return,
            }
        }
    }
}

fn add(places: &mut Vec<Storage>, place: Storage) {
    if !matches!(place, Storage::None | Storage::View) && !places.contains(&place) {
        places.push(place);
    }
}
