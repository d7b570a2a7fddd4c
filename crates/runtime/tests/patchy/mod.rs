//! A backend that lacks some ops: another one that says so, and refuses programs that have them all the same.

#![allow(dead_code)] // each test file uses its part

use pteron_ir::{Op, Ssa, Type, TypeSource};
use pteron_runtime::backend::{
    Backend, DeviceId, DeviceInfo, Lack, LoadOptions, Loaded, ProgramGraphs, Support,
};
use pteron_runtime::registry::{Registry, Target};
use pteron_runtime::{Error, Result, VerifiedProgram, WithFallback};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which ops are lacking.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lacks {
    /// These, by name.
    Named(&'static [&'static str]),
    /// Some, by chance: of one op those with operands of some ranks.
    Random(u64),
}

/// Another backend, less some ops.
pub(crate) struct Patchy {
    name: &'static str,
    inner: Arc<dyn Backend>,
    lacks: Lacks,
    /// Graphs that it was given so far.
    pub(crate) graphs: AtomicUsize,
}

impl Patchy {
    pub(crate) fn new(name: &'static str, inner: Arc<dyn Backend>, lacks: Lacks) -> Patchy {
        Patchy { name, inner, lacks, graphs: AtomicUsize::new(0) }
    }

    fn lacks(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> bool {
        let name = op.spec().name;
        match self.lacks {
            Lacks::Named(names) => names.contains(&name),
            Lacks::Random(seed) => {
                let mut rank = 0;
                op.for_each_tensor(|value| {
                    if let Some(Type::Tensor(ty)) = types.type_of(value) {
                        rank = rank.max(ty.shape.len());
                    }
                });
                let bytes = name.bytes().chain([rank as u8]);
                let mixed = bytes.fold(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, |state, byte| {
                    (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3).rotate_left(23)
                });
                mixed % 4 == 0
            }
        }
    }

    /// An error where a graph has an op that it lacks.
    fn check(&self, graphs: &ProgramGraphs) -> Result<()> {
        let mut found = None;
        for graph in &graphs.graphs {
            let main = &graph.module.main;
            main.for_each_node(|node, _| {
                if self.lacks(&node.op, &main.values) {
                    found = Some(node.op.spec().name);
                }
            });
        }
        found.map_or(Ok(()), |op| Err(Error::Invalid(format!("{op} was not to come here"))))
    }
}

impl Backend for Patchy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.inner.devices()
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        match self.lacks(op, types) {
            true => Support::No(Lack::Other("nobody has written it".into())),
            false => self.inner.supports(op, types),
        }
    }

    fn load(
        &self,
        device: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>> {
        self.check(program.graphs())?;
        self.graphs.fetch_add(program.graphs().graphs.len(), Ordering::Relaxed);
        self.inner.load(device, program, options)
    }
}

/// A backend of a registry of its own.
fn target(backend: Arc<dyn Backend>) -> Target {
    let (name, mut registry) = (backend.name(), Registry::default());
    registry.add(backend);
    registry.resolve(Some(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// A backend, less some ops, with another one behind it; and the one of which graphs are counted.
pub(crate) fn in_pieces(
    name: &'static str,
    (backend, behind): (&Arc<dyn Backend>, &Arc<dyn Backend>),
    lacks: Lacks,
) -> (WithFallback, Arc<Patchy>) {
    let patchy = Arc::new(Patchy::new(name, backend.clone(), lacks));
    (WithFallback::new(target(patchy.clone()), target(behind.clone())), patchy)
}
