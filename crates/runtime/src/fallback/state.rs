//! What a session owns of a program that two backends run: a state in each, and the buffers that are kept between the pieces.

use super::division::{Division, Home};
use super::place::Side;
use crate::backend::{BufferId, Rewind, Snapshot, State};
use crate::value::describe_tensor;
use crate::{Error, Result, Value};
use pteron_tensor::HostTensor;
use std::any::Any;
use std::sync::Arc;

/// The state of one session.
pub(super) struct SplitState {
    pub(super) division: Arc<Division>,
    pub(super) own: Box<dyn State>,
    pub(super) other: Box<dyn State>,
    /// By graph, in the order of [`Whole::kept`](super::cut::Whole): as the pieces gave them.
    committed: Vec<Vec<Value>>,
    /// What runs since the last commit have made of them.
    pending: Option<Vec<Vec<Value>>>,
    /// Why there is nothing to go on from: one half was kept and the other was lost.
    gone: Option<String>,
}

struct SplitSnapshot {
    division: Arc<Division>,
    own: Arc<dyn Snapshot>,
    other: Arc<dyn Snapshot>,
    kept: Vec<Vec<Value>>,
}

impl Snapshot for SplitSnapshot {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl SplitState {
    pub(super) fn new(
        division: Arc<Division>,
        own: Box<dyn State>,
        other: Box<dyn State>,
    ) -> Result<SplitState> {
        let zeros = division.wholes.iter().map(|whole| {
            let zeros = whole.kept.iter().map(|kept| {
                let shape = kept.ty.known_shape().unwrap_or_default();
                Ok(Value::Tensor(HostTensor::zeros(kept.ty.dtype, shape)?))
            });
            zeros.collect::<Result<Vec<Value>>>()
        });
        let committed = zeros.collect::<Result<_>>()?;
        Ok(SplitState { division, own, other, committed, pending: None, gone: None })
    }

    /// Whether it is a state of this program.
    pub(super) fn is_of(&self, division: &Arc<Division>) -> bool {
        Arc::ptr_eq(&self.division, division)
    }

    pub(super) fn check(&self) -> Result<()> {
        self.gone.as_ref().map_or(Ok(()), |problem| {
            Err(Error::Invalid(format!("the session is gone: {problem}; reset it, or restore a snapshot")))
        })
    }

    pub(super) fn side(&mut self, side: Side) -> &mut dyn State {
        match side {
            Side::Own => self.own.as_mut(),
            Side::Other => self.other.as_mut(),
        }
    }

    /// What the buffers between the pieces of a graph hold now.
    pub(super) fn kept(&self, graph: usize) -> &[Value] {
        let kept = self.pending.as_ref().unwrap_or(&self.committed);
        &kept[graph]
    }

    /// Has them hold something else until a commit or a rollback.
    pub(super) fn keep(&mut self, graph: usize, kept: usize, value: Value) {
        self.pending.get_or_insert_with(|| self.committed.clone())[graph][kept] = value;
    }

    fn home(&self, buffer: &BufferId) -> Result<Home> {
        let (graph, index) = self.division.graphs.find_buffer(buffer)?;
        Ok(self.division.homes[graph.0][index])
    }
}

impl State for SplitState {
    fn read(&self, buffer: &BufferId) -> Result<HostTensor> {
        self.check()?;
        match self.home(buffer)? {
            Home::Piece(Side::Own) => self.own.read(buffer),
            Home::Piece(Side::Other) => self.other.read(buffer),
            Home::Between { graph, kept } => {
                let tensor = self.committed[graph][kept].to_tensor()?;
                tensor.ok_or_else(|| Error::UnknownBuffer(buffer.clone()))
            }
        }
    }

    fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()> {
        self.check()?;
        match self.home(buffer)? {
            Home::Piece(side) => self.side(side).write(buffer, value),
            Home::Between { graph, kept } => {
                let ty = &self.division.wholes[graph].kept[kept].ty;
                let shape = ty.known_shape().unwrap_or_default();
                if (ty.dtype, shape.as_slice()) != (value.dtype(), value.shape()) {
                    return Err(Error::BufferType {
                        buffer: buffer.clone(),
                        wanted: describe_tensor(ty.dtype, &shape),
                        given: describe_tensor(value.dtype(), value.shape()),
                    });
                }
                self.committed[graph][kept] = Value::Tensor(value.clone());
                Ok(())
            }
        }
    }

    fn commit(&mut self) -> Result<()> {
        self.check()?;
        // The chosen backend first: it may be lost, and the one behind it is not.
        if let Err(error) = self.own.commit() {
            self.other.rollback();
            self.pending = None;
            return Err(error);
        }
        if let Err(error) = self.other.commit() {
            self.gone = Some(error.to_string());
            self.pending = None;
            return Err(error);
        }
        if let Some(pending) = self.pending.take() {
            self.committed = pending;
        }
        Ok(())
    }

    fn rollback(&mut self) {
        self.own.rollback();
        self.other.rollback();
        self.pending = None;
    }

    fn rewind_to(&mut self, tokens: usize) -> Result<Rewind> {
        self.check()?;
        let written =
            self.division.wholes.iter().zip(&self.division.graphs.graphs).find_map(|(whole, graph)| {
                let kept = whole.kept.iter().find(|kept| kept.update.is_some())?;
                Some((graph, &graph.module.main.buffers.get(kept.buffer)?.name))
            });
        if let Some((graph, name)) = written {
            let reason = format!(
                "buffer `{name}` of method `{}` holds what all tokens so far have made of it",
                graph.method
            );
            return Ok(Rewind::Replay { from: 0, reason });
        }
        // The side without the cache has nothing to rewind: it changes nothing, or says why it cannot.
        let cache = self.division.cache;
        let without = if cache == Side::Own { Side::Other } else { Side::Own };
        match self.side(without).rewind_to(tokens)? {
            Rewind::Done => self.side(cache).rewind_to(tokens),
            replay @ Rewind::Replay { .. } => Ok(replay),
        }
    }

    fn cached_tokens(&self) -> Option<usize> {
        match self.division.cache {
            Side::Own => self.own.cached_tokens(),
            Side::Other => self.other.cached_tokens(),
        }
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.check()?;
        Ok(Arc::new(SplitSnapshot {
            division: self.division.clone(),
            own: self.own.snapshot()?,
            other: self.other.snapshot()?,
            kept: self.committed.clone(),
        }))
    }

    fn restore(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        let snapshot = snapshot.as_any().downcast_ref::<SplitSnapshot>();
        let snapshot = snapshot
            .filter(|snapshot| Arc::ptr_eq(&snapshot.division, &self.division))
            .ok_or(Error::ForeignSnapshot)?;
        // Where one half is restored and the other is not, neither moment is left.
        self.own.restore(snapshot.own.as_ref())?;
        if let Err(error) = self.other.restore(snapshot.other.as_ref()) {
            self.gone = Some(error.to_string());
            return Err(error);
        }
        self.committed.clone_from(&snapshot.kept);
        self.pending = None;
        self.gone = None;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let kept = self.committed.iter().flatten().map(|value| match value {
            Value::Tensor(tensor) => tensor.bytes().len() as u64,
            Value::Device(tensor) => {
                let elements = tensor.shape().iter().fold(1u64, |count, &dim| count * dim as u64);
                elements * tensor.dtype().size() as u64
            }
            _ => 0,
        });
        self.own.bytes() + self.other.bytes() + kept.sum::<u64>()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
