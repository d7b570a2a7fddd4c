//! A program divided between two backends: whose each node is, the graphs of either side, and what is to be told of it.

use super::cut::{Part, Whole, cut};
use super::place::{Moved, Placed, Side, any_op, place};
use crate::backend::{Backend, DelegateGraph, GraphId, ProgramGraphs, Support};
use crate::error::UnsupportedOp;
use crate::reference::interpret::show_place;
use crate::{Error, Result, VerifiedGraphs, VerifiedProgram, Weights};
use pteron_ir::Module;
use pteron_ir::text::Printer;
use std::sync::Arc;

/// Where a buffer lives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Home {
    /// In a piece of that side.
    Piece(Side),
    /// With the session's state, between the pieces of a graph.
    Between {
        graph: usize,
        /// Its place among those.
        kept: usize,
    },
}

/// How the graphs of a program are divided.
pub(crate) struct Division {
    pub(super) graphs: Arc<ProgramGraphs>,
    /// By graph.
    pub(super) wholes: Vec<Whole>,
    /// By graph and buffer.
    pub(super) homes: Vec<Vec<Home>>,
    /// Who keeps the off-graph cache.
    pub(super) cache: Side,
    /// By side: whose each of its graphs is a piece of.
    own: Vec<(GraphId, DelegateGraph)>,
    other: Vec<(GraphId, DelegateGraph)>,
}

/// What a graph runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// In order: the backend of each, and how many nodes it has.
    pub list: Vec<(&'static str, usize)>,
    /// Values that go from one backend to the other in a run.
    pub values: usize,
    /// Their most bytes, where that is bounded.
    pub bytes: Option<u64>,
}

impl Division {
    /// Divides a program; every op that `own` refuses is for `other`.
    pub(super) fn of(
        graphs: &Arc<ProgramGraphs>,
        own: &dyn Backend,
        other: &dyn Backend,
    ) -> Result<Division> {
        let placed = placed(graphs, own, other)?;
        let mut division = Division {
            graphs: graphs.clone(),
            wholes: Vec::with_capacity(placed.len()),
            homes: Vec::with_capacity(placed.len()),
            cache: Side::Own,
            own: Vec::new(),
            other: Vec::new(),
        };
        for (index, placed) in placed.into_iter().enumerate() {
            if placed.moved.cache {
                division.cache = Side::Other;
            }
            division.add(GraphId(index), &placed);
        }
        Ok(division)
    }

    fn add(&mut self, id: GraphId, placed: &Placed) {
        let graphs = self.graphs.clone();
        let delegate = &graphs.graphs[id.0];
        let main = &delegate.module.main;
        // A graph without nodes has what it gives from elsewhere, and still somebody has to give it.
        let whole = [(Side::Own, Vec::new())];
        let turns = if placed.turns.is_empty() { &whole } else { &placed.turns[..] };
        let mut next = [self.own.len(), self.other.len()];
        let (whole, parts) = cut(main, turns, |side| {
            let next = &mut next[usize::from(side == Side::Other)];
            *next += 1;
            GraphId(*next - 1)
        });
        let mut homes: Vec<Option<Home>> = vec![None; main.buffers.len()];
        for (at, kept) in whole.kept.iter().enumerate() {
            homes[kept.buffer] = Some(Home::Between { graph: id.0, kept: at });
        }
        for Part { side, graph, buffers } in parts {
            let origins = match delegate.origins.is_empty() {
                true => Vec::new(),
                false => buffers.iter().map(|&buffer| delegate.origins[buffer].clone()).collect(),
            };
            buffers.iter().for_each(|&buffer| homes[buffer] = Some(Home::Piece(side)));
            let module = Arc::new(Module { init: None, main: graph });
            let part = DelegateGraph { module, origins, ..delegate.clone() };
            match side {
                Side::Own => self.own.push((id, part)),
                Side::Other => self.other.push((id, part)),
            }
        }
        // Every buffer has a home; one that had none would be read as the chosen backend's, which does not know it.
        self.homes.push(homes.into_iter().map(|home| home.unwrap_or(Home::Piece(Side::Own))).collect());
        self.wholes.push(whole);
    }

    /// The program of one side.
    pub(super) fn program(&self, side: Side, weights: &Weights) -> Result<VerifiedProgram> {
        let parts = match side {
            Side::Own => &self.own,
            Side::Other => &self.other,
        };
        let mut taken = Weights::new(parts.len());
        for (index, (from, part)) in parts.iter().enumerate() {
            for constant in &part.module.main.constants {
                taken.share(GraphId(index), &constant.name, (weights, *from, &constant.name));
            }
        }
        let graphs = parts.iter().map(|(_, part)| part.clone()).collect();
        let graphs = ProgramGraphs { file: self.graphs.file.clone(), graphs };
        VerifiedProgram::new(VerifiedGraphs::new(graphs)?, Arc::new(taken))
    }

    /// What a graph runs as; `None` where the chosen backend runs all of it.
    pub(super) fn pieces(
        &self,
        graph: GraphId,
        (own, other): (&'static str, &'static str),
    ) -> Option<Pieces> {
        let whole = self.wholes.get(graph.0)?;
        if whole.pieces.iter().all(|piece| piece.side == Side::Own) {
            return None;
        }
        let name = |side| if side == Side::Own { own } else { other };
        let list = whole.pieces.iter().map(|piece| (name(piece.side), piece.nodes)).collect();
        let (values, bytes) = whole.crossing;
        Some(Pieces { list, values, bytes })
    }
}

/// Places all graphs. State besides results is the whole program's: where one node that changes it has to move, all do.
fn placed(graphs: &ProgramGraphs, own: &dyn Backend, other: &dyn Backend) -> Result<Vec<Placed>> {
    let mut moved = Moved::default();
    loop {
        let mains = graphs.graphs.iter().map(|graph| &graph.module.main);
        let placed: Vec<Placed> = mains.map(|main| place(main, own, other, moved)).collect();
        let found = placed.iter().fold(moved, |all, one| Moved {
            cache: all.cache || one.moved.cache,
            random: all.random || one.moved.random,
        });
        if found == moved {
            check(graphs, &placed, other)?;
            return Ok(placed);
        }
        moved = found;
    }
}

/// An error where a node that is not the chosen backend's is nobody's.
fn check(graphs: &ProgramGraphs, placed: &[Placed], other: &dyn Backend) -> Result<()> {
    for (graph, placed) in graphs.graphs.iter().zip(placed) {
        let main = &graph.module.main;
        let elsewhere = placed.turns.iter().filter(|(side, _)| *side == Side::Other);
        for node in elsewhere.flat_map(|(_, nodes)| nodes).map(|&node| &main.body.nodes[node]) {
            let mut lack = None;
            any_op(node, &mut |op| {
                if let Support::No(reason) = other.supports(op, &main.values) {
                    lack.get_or_insert(reason);
                }
                lack.is_some()
            });
            if let Some(reason) = lack {
                return Err(Error::UnsupportedOp(Box::new(UnsupportedOp {
                    file: graphs.file.clone(),
                    method: graph.method.clone(),
                    delegate: graph.delegate,
                    place: show_place(node),
                    backend: other.name().to_owned(),
                    op: Printer::new(main).node(node).to_string(),
                    reason,
                })));
            }
        }
    }
    Ok(())
}
