//! What ops change besides their results: the off-graph cache and the random generator. Backends without their own
//! keep this one.

use super::kernels::cache::Cache;
use super::kernels::random::Key;
use super::run_op_with;
use crate::backend::{Rewind, RunControl, StateOptions};
use crate::{Error, Result, Value};
use pteron_format::Limits;
use pteron_ir::{Op, Ssa, ValueId};

/// The effects of one session. Cloning is a snapshot that costs what is written after it.
#[derive(Clone, Debug)]
pub struct Effects {
    /// The off-graph cache, where the session has one.
    pub(super) cache: Option<Cache>,
    /// Where the random generator stands.
    pub(super) key: Key,
}

impl Effects {
    /// An empty cache, where the session has one, and the generator at its seed.
    pub fn new(options: &StateOptions, limits: &Limits) -> Result<Effects> {
        if let Some(spec) = &options.cache {
            spec.check(limits)?;
        }
        let cache = options.cache.as_ref().map(Cache::new);
        Ok(Effects { cache, key: Key::new(options.seed) })
    }

    /// No cache, and a generator that nobody asks.
    pub fn none() -> Effects {
        Effects { cache: None, key: Key::new(0) }
    }

    /// Computes one op, with an effect or without; ops with bodies are not for this.
    pub fn run_op(
        &mut self,
        op: &Op<Ssa>,
        operands: &[(ValueId, Value)],
        limits: &Limits,
        control: &RunControl,
    ) -> Result<Vec<Value>> {
        run_op_with(op, operands, self, limits, control)
    }

    /// Positions in the cache; `None` when there is none.
    pub fn cached_tokens(&self) -> Option<usize> {
        self.cache.as_ref().map(Cache::len)
    }

    /// Goes back to when `tokens` positions were in the cache.
    pub fn rewind_to(&mut self, tokens: usize) -> Result<Rewind> {
        let Some(cache) = &mut self.cache else { return Ok(Rewind::Done) };
        if tokens > cache.len() {
            return Err(Error::Cache(format!("it holds {} positions, not {tokens}", cache.len())));
        }
        Ok(match cache.rewind(tokens) {
            Ok(()) => Rewind::Done,
            Err(reason) => Rewind::Replay { from: 0, reason },
        })
    }

    /// Bytes of the cache.
    pub fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::bytes)
    }
}
