//! Writing chains: nodes with their slots, and the copies between them.

use pteron_ir::op::{IntArg, ResultKind};
use pteron_ir::{Block, Graph, Node, Op, Ssa, ValueId};

use super::EmitError;
use super::assign::Assignment;
use super::boundary::Edge;
use super::moves::{Move, in_sequence};
use crate::payload::translate::{Translate, int, translate};
use crate::payload::{ChainId, Instruction, InstructionChain, Slot, Tid, Vid, Wire};

/// Writes the chains of one graph.
pub(super) struct ChainWriter<'w> {
    graph: &'w Graph,
    assignment: &'w Assignment,
    first_tensor: u32,
    chains: &'w mut Vec<InstructionChain>,
    scratch: Option<Tid>,
}

/// Writes operands as slots.
struct Operands<'w> {
    graph: &'w Graph,
    assignment: &'w Assignment,
    user: &'static str,
}

impl Operands<'_> {
    fn slot(&self, value: ValueId) -> Result<Slot, EmitError> {
        self.assignment.slot(value).ok_or_else(|| EmitError::Undefined {
            graph: self.graph.name.clone(),
            value,
            user: self.user.to_owned(),
        })
    }

    fn kind(&self, value: ValueId, want: &'static str) -> EmitError {
        EmitError::Kind { graph: self.graph.name.clone(), value, user: self.user.to_owned(), want }
    }

    fn tensors(&mut self, values: &[ValueId]) -> Result<Vec<Tid>, EmitError> {
        values.iter().map(|&value| self.tensor(value)).collect()
    }
}

impl Translate<Ssa, Wire> for Operands<'_> {
    type Error = EmitError;

    fn tensor(&mut self, value: ValueId) -> Result<Tid, EmitError> {
        match self.slot(value)? {
            Slot::Tensor(tid) => Ok(tid),
            Slot::Value(_) => Err(self.kind(value, "a tensor")),
        }
    }

    fn scalar(&mut self, value: ValueId) -> Result<Vid, EmitError> {
        match self.slot(value)? {
            Slot::Value(vid) => Ok(vid),
            Slot::Tensor(_) => Err(self.kind(value, "an integer")),
        }
    }

    fn unknown(&self, field: &'static str) -> EmitError {
        EmitError::Field { graph: self.graph.name.clone(), field }
    }
}

impl<'w> ChainWriter<'w> {
    pub(super) fn new(
        graph: &'w Graph,
        assignment: &'w Assignment,
        edge: &Edge,
        chains: &'w mut Vec<InstructionChain>,
    ) -> ChainWriter<'w> {
        ChainWriter { graph, assignment, first_tensor: edge.first_tensor, chains, scratch: None }
    }

    /// The graph's own instructions; bodies are added to the chains.
    pub(super) fn graph(&mut self) -> Result<Vec<Instruction>, EmitError> {
        let mut out = Vec::with_capacity(self.graph.body.nodes.len());
        self.moves(&self.assignment.at_start, &mut out);
        self.nodes(&self.graph.body, &mut out)?;
        self.moves(&self.assignment.at_end, &mut out);
        Ok(out)
    }

    /// How many temporary tensors were used.
    pub(super) fn temps(&self) -> u32 {
        self.assignment.tensors + u32::from(self.scratch.is_some())
    }

    fn nodes(&mut self, block: &Block, out: &mut Vec<Instruction>) -> Result<(), EmitError> {
        block.nodes.iter().try_for_each(|node| self.node(node, out))
    }

    fn operands(&self, node: &Node) -> Operands<'w> {
        Operands { graph: self.graph, assignment: self.assignment, user: node.op.spec().text }
    }

    fn results(&self, node: &Node) -> Result<Vec<Slot>, EmitError> {
        let operands = self.operands(node);
        node.results.iter().map(|&value| operands.slot(value)).collect()
    }

    fn node(&mut self, node: &Node, out: &mut Vec<Instruction>) -> Result<(), EmitError> {
        let results = self.results(node)?;
        match &node.op {
            Op::Noop {} => {}
            Op::If { cond, then_chain_idx, else_chain_idx } => {
                let cond = int(cond, &mut self.operands(node))?;
                let then = self.body(node, then_chain_idx, &results)?;
                let other = self.body(node, else_chain_idx, &results)?;
                let op = Op::If { cond, then_chain_idx: then, else_chain_idx: other };
                out.push(Instruction { op, results: Vec::new() });
            }
            Op::Scan { originals, carry, body_chain_idx, scan_axis, .. } => {
                self.scan(node, originals, carry, body_chain_idx, *scan_axis, out)?;
            }
            op => {
                let op: Op<Wire> = translate(op, &mut self.operands(node))?;
                self.check_results(node, &results)?;
                out.push(Instruction { op, results });
            }
        }
        Ok(())
    }

    fn check_results(&self, node: &Node, results: &[Slot]) -> Result<(), EmitError> {
        let spec = node.op.spec();
        let fits = match (spec.result.kind, results) {
            (ResultKind::Tensor, [Slot::Tensor(_)]) | (ResultKind::Scalar, [Slot::Value(_)]) => true,
            (ResultKind::Tensors, results) => results.iter().all(|slot| matches!(slot, Slot::Tensor(_))),
            (ResultKind::Nothing, []) => true,
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(EmitError::Results {
                graph: self.graph.name.clone(),
                op: spec.text,
                found: results.len(),
            }),
        }
    }

    fn scan(
        &mut self,
        node: &Node,
        originals: &[ValueId],
        carry: &[ValueId],
        body: &Block,
        scan_axis: i32,
        out: &mut Vec<Instruction>,
    ) -> Result<(), EmitError> {
        let mut operands = self.operands(node);
        let outputs = node.results.len().saturating_sub(carry.len());
        let (stacked, finals) = node.results.split_at(outputs);
        let (sliced, _) = body.params.split_at(originals.len().min(body.params.len()));
        let start = operands.tensors(carry)?;
        let carried = operands.tensors(finals)?;
        let moves = start.iter().zip(&carried);
        let moves: Vec<Move> =
            moves.map(|(&from, &to)| Move { from: Slot::Tensor(from), to: Slot::Tensor(to) }).collect();
        let op = Op::Scan {
            originals: operands.tensors(originals)?,
            sliced: operands.tensors(sliced)?,
            carry: carried,
            body_chain_idx: self.body(node, body, &self.results(node)?)?,
            scan_axis,
        };
        let results = operands.tensors(stacked)?.into_iter().map(Slot::Tensor).collect();
        self.moves(&moves, out);
        out.push(Instruction { op, results });
        Ok(())
    }

    /// A body as a chain of its own that leaves what it gives in the slots of the node's results.
    fn body(&mut self, node: &Node, body: &Block, results: &[Slot]) -> Result<ChainId, EmitError> {
        let found = body.results.len();
        if found != results.len() {
            let (graph, op) = (self.graph.name.clone(), node.op.spec().text);
            return Err(EmitError::Results { graph, op, found });
        }
        let chain = self.chains.len();
        self.chains.push(InstructionChain::default());
        let mut out = Vec::with_capacity(body.nodes.len());
        self.nodes(body, &mut out)?;
        let operands = self.operands(node);
        let mut moves = Vec::with_capacity(results.len());
        for (&given, &to) in body.results.iter().zip(results) {
            let from = operands.slot(given)?;
            match (from, to) {
                (Slot::Tensor(_), Slot::Tensor(_)) => {}
                (Slot::Value(_), Slot::Value(_)) if from == to || self.is_int(given) => {}
                (Slot::Value(_), Slot::Value(_)) => {
                    return Err(EmitError::NoCopy { graph: self.graph.name.clone(), value: given });
                }
                _ => return Err(operands.kind(given, "of the kind that its block should give")),
            }
            moves.push(Move { from, to });
        }
        self.moves(&moves, &mut out);
        self.chains[chain].instructions = out.into();
        Ok(ChainId(chain as u32))
    }

    fn is_int(&self, value: ValueId) -> bool {
        matches!(self.graph.ty(value), Some(pteron_ir::Type::Int(_)))
    }

    fn moves(&mut self, moves: &[Move], out: &mut Vec<Instruction>) {
        let scratch = Tid(self.first_tensor + self.assignment.tensors);
        let used = &mut self.scratch;
        let sequence = in_sequence(moves, || {
            *used = Some(scratch);
            Slot::Tensor(scratch)
        });
        out.extend(sequence.into_iter().map(|one| {
            let op = match (one.from, one.to) {
                (Slot::Tensor(x), _) => Op::IdCopy { x },
                // The format copies no values, but it adds integers.
                (Slot::Value(from), _) => Op::AddInt { a: IntArg::Value(from), b: IntArg::Literal(0) },
            };
            Instruction { op, results: vec![one.to] }
        }));
    }
}
