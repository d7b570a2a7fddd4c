//! The files behind a program, and tensors over their bytes. Data is borrowed where it lies; what has to be copied
//! (because it is not aligned, or stored in another order of dims) is counted, so that a small file cannot ask
//! for the same bytes a million times.

use super::tensors::TensorPlan;
use crate::portable::lanes::pick_elements;
use crate::portable::walk::Walk;
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_format::ptd::Ptd;
use pteron_format::pte::{self, Pte};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// The files of a program.
pub(super) struct Files {
    pub(super) name: String,
    pub(super) pte: Pte,
    pub(super) data: Vec<Ptd>,
    /// Those that were opened by path.
    pub(super) mapped: Vec<Arc<MappedFile>>,
    copied: Cell<u64>,
    /// Aligned copies by where the bytes lie and how many they are.
    aligned: RefCell<HashMap<(usize, usize), Bytes>>,
    allowed: u64,
}

impl Files {
    pub(super) fn new(
        name: &str,
        pte: Pte,
        data: Vec<Ptd>,
        mapped: Vec<Arc<MappedFile>>,
        limits: &Limits,
    ) -> Files {
        Files {
            name: name.to_owned(),
            pte,
            data,
            mapped,
            copied: Cell::new(0),
            aligned: RefCell::default(),
            allowed: limits.live_bytes,
        }
    }

    /// The bytes under a key: those of a `.ptd` file first, then the program's own.
    pub(super) fn named(&self, key: &str) -> Option<Bytes> {
        let external = self.data.iter().find_map(|ptd| ptd.named(key));
        external.map(|data| data.bytes).or_else(|| self.pte.named(key))
    }

    /// A tensor over bytes of a file.
    pub(super) fn tensor(&self, dtype: DType, shape: Vec<usize>, bytes: Bytes) -> Result<HostTensor, String> {
        let place = bytes.as_ptr() as usize;
        let bytes = if place.is_multiple_of(dtype.size()) {
            bytes
        } else {
            let key = (place, bytes.len());
            let known = self.aligned.borrow().get(&key).cloned();
            match known {
                Some(copy) => copy,
                None => {
                    self.charge(bytes.len())?;
                    let copy = Bytes::copy_of(&bytes);
                    self.aligned.borrow_mut().insert(key, copy.clone());
                    copy
                }
            }
        };
        HostTensor::new(dtype, shape, bytes).map_err(|error| error.to_string())
    }

    /// What the files hold for a tensor of the program: a constant, or where a mutable one starts.
    pub(super) fn stored(
        &self,
        table: &pte::Tensor,
        plan: &TensorPlan,
    ) -> Result<Option<HostTensor>, String> {
        let bytes = match table.is_external() {
            true => Some(self.external(table, plan)?),
            false => self.pte.stored(table),
        };
        bytes.map(|bytes| self.row_major(table, plan, bytes)).transpose()
    }

    fn external(&self, table: &pte::Tensor, plan: &TensorPlan) -> Result<Bytes, String> {
        let key = table.extra_tensor_info.as_ref().map(|extra| extra.fully_qualified_name.to_string());
        let key = key.unwrap_or_default();
        let found = self.data.iter().find_map(|ptd| ptd.named(&key));
        let found = found.ok_or_else(|| format!("its data `{key}` is in none of the .ptd files given"))?;
        if let Some(layout) = &found.layout {
            let same = layout.scalar_type == table.scalar_type
                && layout.sizes[..] == table.sizes[..]
                && layout.dim_order[..] == table.dim_order[..];
            if !same {
                let (sizes, code) = (&layout.sizes[..], layout.scalar_type.code());
                return Err(format!(
                    "the .ptd file has `{key}` as {sizes:?} of type {code}, the program as {plan}"
                ));
            }
        }
        Ok(found.bytes)
    }

    /// Data that is stored in another order of dims is copied into ours.
    fn row_major(&self, table: &pte::Tensor, plan: &TensorPlan, bytes: Bytes) -> Result<HostTensor, String> {
        let order: Vec<usize> = table.dim_order.iter().map(|&dim| usize::from(dim)).collect();
        let flat = self.tensor(plan.dtype, plan.sizes.clone(), bytes)?;
        if order.iter().copied().eq(0..order.len()) {
            return Ok(flat);
        }
        self.charge(flat.bytes().len())?;
        let mut strides = vec![0isize; plan.sizes.len()];
        let mut step = 1isize;
        for &dim in order.iter().rev() {
            let (Some(stride), Some(&size)) = (strides.get_mut(dim), plan.sizes.get(dim)) else {
                return Err(format!("{order:?} is no order of {} dims", plan.sizes.len()));
            };
            *stride = step;
            step = step.saturating_mul(size as isize);
        }
        let walk = Walk::new(&plan.sizes, &strides, 0);
        pick_elements(&flat, plan.sizes.clone(), walk).map_err(|error| error.to_string())
    }

    fn charge(&self, bytes: usize) -> Result<(), String> {
        let total = self.copied.get().saturating_add(bytes as u64);
        if total > self.allowed {
            return Err(format!("copies of {total} bytes exceed the limit `live_bytes` of {}", self.allowed));
        }
        self.copied.set(total);
        Ok(())
    }
}
