//! What lives on from call to call: constants that an operator writes in place. Where such a tensor begins with other numbers
//! than zeros, the first call reads the constant.

use std::collections::{HashMap, HashSet};

use pteron_ir::{Op, TensorType, Type, ValueId};
use pteron_tensor::DType;

use super::{Held, Lifter, Table, one};
use crate::Result;
use crate::draft::{Constant, Part, Step, Stop, problem};
use crate::vulkan::tables::{Value, VkTensor};

/// Brings a constant to the device.
const PREPACK: &str = "et_vk.prepack.default";

/// Which arguments an operator writes in place.
fn written(name: &str) -> &'static [usize] {
    match name {
        "sdpa_with_kv_cache.default" => &[3, 4],
        "update_cache.default" => &[1],
        _ => &[],
    }
}

pub(super) const TABLE: Table = &[(PREPACK, |l, call| {
    let (id, table) = (usize::try_from(call.out).unwrap_or(usize::MAX), l.tensor_table(call, 0)?);
    match l.states.contains_key(&id) && table.constant_id >= 0 {
        true => one(l.initial(id, table)?),
        false => one(l.tensor(call, 0)?),
    }
})];

/// A tensor that lives on.
pub(super) struct State {
    /// Where the numbers that it begins with are.
    initial: Option<Constant>,
    /// What it is when a call begins, once somebody reads it.
    buffer: Option<ValueId>,
}

impl Lifter<'_> {
    /// Finds the tensors that live on: constants, prepacked or not, that something writes.
    pub(super) fn find_states(&mut self) {
        let graph = &self.payload.graph;
        let constant = |id: i32| match usize::try_from(id).ok().and_then(|id| graph.values.get(id)) {
            Some(Value::Tensor(tensor)) => u32::try_from(tensor.constant_id).ok(),
            _ => None,
        };
        let mut prepacked = HashMap::new();
        let mut changed = HashSet::new();
        for call in graph.chain.iter() {
            let Some((&out, args)) = call.args.split_last() else { continue };
            if &*call.name == PREPACK {
                if let Some(index) = args.first().and_then(|&id| constant(id)) {
                    prepacked.insert(out, index);
                }
                continue;
            }
            let places = written(&call.name).iter().filter_map(|&at| args.get(at).copied());
            let outs = match usize::try_from(out).ok().and_then(|out| graph.values.get(out)) {
                Some(Value::Values(list)) if self.items_left > list.items.len() as u64 => {
                    self.items_left -= list.items.len() as u64;
                    &list.items[..]
                }
                _ => std::slice::from_ref(&out),
            };
            changed.extend(places.chain(outs.iter().copied()));
        }
        for id in changed {
            let Some(index) = prepacked.get(&id).copied().or_else(|| constant(id)) else { continue };
            if let Ok(id) = usize::try_from(id) {
                let initial = self.payload.constant(index);
                self.states.insert(id, State { initial, buffer: None });
            }
        }
    }

    /// What a constant is when a call begins: the buffer, if it lives on, else the constant itself.
    pub(super) fn initial(&mut self, id: usize, table: &VkTensor) -> Step<ValueId> {
        let Some(state) = self.states.get(&id) else { return self.constant_value(Part::Main, table) };
        if state.buffer.is_some() {
            return problem(format!("value {id} is prepacked twice"));
        }
        let begins_with_zeros = match &state.initial {
            Some(Constant::Inline(bytes)) => is_zero(bytes),
            Some(Constant::Named(key)) => (self.named)(key).is_some_and(|bytes| is_zero(&bytes)),
            None => false,
        };
        let shape: Vec<usize> = table.dims.iter().map(|&size| size as usize).collect();
        let dtype = table.datatype.dtype();
        self.bytes_of(dtype, &shape)?;
        let ty = TensorType::known(dtype, &shape);
        let buffer = self.main.graph_mut().add_buffer(&format!("state_{id}"), ty);
        if let Some(state) = self.states.get_mut(&id) {
            state.buffer = Some(buffer);
        }
        if begins_with_zeros {
            return Ok(buffer);
        }
        let condition = match self.started {
            Some(started) => started,
            None => {
                let ty = TensorType::known(DType::Bool, &[]);
                let started = self.main.graph_mut().add_buffer("started", ty);
                let yes = self.number(1.0, DType::Bool)?;
                self.update(started, yes)?;
                *self.started.insert(started)
            }
        };
        let constant = self.constant_value(Part::Main, table)?;
        self.emit(Op::Where { condition, x: buffer, y: constant })
    }

    fn update(&mut self, buffer: ValueId, value: ValueId) -> Step<()> {
        let graph = self.main.graph_mut();
        if graph.ty(buffer) != graph.ty(value) {
            let show = |ty: Option<&Type>| ty.map(|ty| format!("{ty:?}")).unwrap_or_default();
            let (old, new) = (show(graph.ty(buffer)), show(graph.ty(value)));
            return problem(format!("it lives on as {old}, and {new} is written"));
        }
        if let Some(entry) = graph.buffers.iter_mut().find(|entry| entry.value == buffer) {
            entry.update = value;
        }
        Ok(())
    }

    /// What lives on is what was written last.
    pub(super) fn keep_states(&mut self) -> Result<()> {
        let mut states: Vec<_> =
            self.states.iter().filter_map(|(&id, state)| Some((id, state.buffer?))).collect();
        states.sort_unstable();
        for (id, buffer) in states {
            let kept = match self.held.get(id) {
                Some(Held::Tensor(value)) => {
                    let value = *value;
                    self.update(buffer, value)
                }
                _ => Err(Stop::Spoilt),
            };
            if let Err(stop) = kept {
                self.stopped(stop, || format!("VkGraph.values[{id}]"))?;
            }
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // In pieces, so that each is looked at by vectors.
    bytes.chunks(4096).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}
