//! How large programs are that we compile, beside ExecuTorch's own of the same model: nodes in delegates, calls of
//! delegates, portable operators, and which patterns made the difference.

use super::case::Case;
use super::from_pt2;
use super::set::Set;
use pteron_format::Limits;
use pteron_format::payload::Payload;
use pteron_format::pte::{Instruction, Pte};

/// What a program does in a run of each of its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) delegate_calls: usize,
    pub(crate) portable: usize,
}

/// A compiled program beside ExecuTorch's.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) ours: Size,
    pub(crate) theirs: Size,
    /// How often each pattern was taken.
    pub(crate) taken: Vec<(&'static str, usize)>,
}

impl Comparison {
    /// Whether ours is nowhere the larger one.
    pub(crate) fn is_within(&self) -> bool {
        self.ours.nodes <= self.theirs.nodes
            && self.ours.delegate_calls <= self.theirs.delegate_calls
            && self.ours.portable <= self.theirs.portable
    }
}

/// Compiles a case's program and counts both.
pub(crate) fn compare(set: &Set, name: &str, limits: &Limits) -> Result<Comparison, String> {
    let case = Case::parse(&set.read(name, "case.json")?)?;
    let (file, report) = from_pt2::compile_with_report(set, name, &case, limits)?;
    let read = |bytes| Pte::read(bytes, limits).map_err(|error| error.to_string());
    let ours = count(&read(file)?, limits)?;
    let theirs = count(&read(set.read(name, "model.pte")?)?, limits)?;
    let mut taken: Vec<(&'static str, usize)> = Vec::new();
    for (pattern, found) in report.methods.iter().flat_map(|method| method.taken()) {
        match taken.iter_mut().find(|(known, _)| *known == pattern) {
            Some((_, times)) => *times += found.times,
            None => taken.push((pattern, found.times)),
        }
    }
    Ok(Comparison { ours, theirs, taken })
}

fn count(pte: &Pte, limits: &Limits) -> Result<Size, String> {
    let mut size = Size { nodes: 0, delegate_calls: 0, portable: 0 };
    for plan in &pte.program.execution_plan {
        for instruction in plan.chains.iter().flat_map(|chain| chain.instructions.iter()) {
            match instruction {
                Instruction::Kernel(_) => size.portable += 1,
                Instruction::Delegate(_) => size.delegate_calls += 1,
                _ => {}
            }
        }
        for delegate in &plan.delegates {
            let bytes = pte.payload(delegate).ok_or("a delegate has no payload")?;
            let payload = Payload::decode(&bytes, limits).map_err(|error| error.to_string())?;
            size.nodes +=
                payload.instruction_chains.iter().map(|chain| chain.instructions.len()).sum::<usize>();
        }
    }
    Ok(size)
}
