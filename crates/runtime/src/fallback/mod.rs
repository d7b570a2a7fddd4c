//! Ops that a backend lacks run on another one: a graph is cut there, and its pieces run one after the other, each on its
//! backend. What one gives and another takes crosses as a value, and stays where it is while pieces of one backend pass it on.
//!
//! Cuts are as few as the order of the nodes allows (`place`); a method takes effect as a whole in both backends or in none
//! (`state`); sessions that run together do so in every piece (`loaded`).

mod cut;
mod division;
mod loaded;
mod place;
mod state;

pub(crate) use division::Division;
pub use division::Pieces;

use crate::backend::{Backend, DeviceId, DeviceInfo, GraphId, LoadMode, LoadOptions, Loaded, Support};
use crate::registry::Target;
use crate::{Result, VerifiedProgram};
use loaded::SplitLoaded;
use place::Side;
use pteron_ir::{Op, Ssa, TypeSource};
use std::sync::Arc;

/// A backend with another one behind it, which runs what the first lacks.
#[derive(Clone)]
pub struct WithFallback {
    own: Target,
    other: Target,
}

impl WithFallback {
    /// `other` behind `own`.
    pub fn new(own: Target, other: Target) -> WithFallback {
        WithFallback { own, other }
    }

    /// How a program is divided between them.
    pub(crate) fn divide(&self, program: &VerifiedProgram) -> Result<Division> {
        Division::of(program.graphs(), self.own.backend.as_ref(), self.other.backend.as_ref())
    }

    /// What a graph runs as; `None` where the first runs all of it.
    pub(crate) fn pieces(&self, division: &Division, graph: GraphId) -> Option<Pieces> {
        division.pieces(graph, (self.own.name(), self.other.name()))
    }

    /// Loads a program that was divided.
    pub(crate) fn load_divided(
        &self,
        (program, division): (&VerifiedProgram, Division),
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>> {
        for (index, graph) in program.graphs().graphs.iter().enumerate() {
            if let Some(Pieces { list, values, bytes }) = self.pieces(&division, GraphId(index)) {
                let (method, delegate) = (&graph.method, graph.delegate);
                tracing::info!(method, delegate, pieces = ?list, values, bytes, "a graph runs in pieces");
            }
        }
        let Target { backend: own, device } = &self.own;
        // The runtime has copied weights for a backend that reads them in place, and for no other.
        let is_copied = own.reads_in_place() || options.mode != LoadMode::Copy;
        let mode = if is_copied { options.mode } else { LoadMode::Map };
        let behind = LoadOptions { mode, ..options.clone() };
        let [ours, theirs] = [Side::Own, Side::Other].map(|side| division.program(side, program.weights()));
        let own = own.load(device.id, &ours?, options)?;
        let other = self.other.backend.load(self.other.device.id, &theirs?, &behind)?;
        Ok(Arc::new(SplitLoaded { division: Arc::new(division), own, other }))
    }
}

impl Backend for WithFallback {
    fn name(&self) -> &'static str {
        self.own.name()
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.own.backend.devices()
    }

    /// What the backend behind runs is a fallback, with what the first lacks.
    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        match self.own.backend.supports(op, types) {
            Support::No(lack) => match self.other.backend.supports(op, types) {
                Support::No(_) => Support::No(lack),
                Support::Native | Support::Fallback(_) => Support::Fallback(lack),
            },
            support => support,
        }
    }

    fn reads_in_place(&self) -> bool {
        self.own.backend.reads_in_place()
    }

    fn arranges(&self) -> bool {
        self.own.backend.arranges()
    }

    fn load(
        &self,
        device: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>> {
        let own = self.own.backend.as_ref();
        let lacks = program.graphs().graphs.iter().any(|graph| {
            let main = &graph.module.main;
            main.body.nodes.iter().any(|node| place::is_refused(node, own, main))
        });
        match lacks {
            true => self.load_divided((program, self.divide(program)?), options),
            false => own.load(device, program, options),
        }
    }
}
