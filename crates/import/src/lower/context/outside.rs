//! Values from outside a graph: inputs, weights, buffers, and the symbols of their sizes.

use super::super::error::{Lowered, Refusal};
use super::{Bound, Int, Lowerer, Weight, check_dtype};
use crate::pt2::Weight as StoredWeight;
use crate::pt2::argument::{SymInt, TensorMeta};
use crate::pt2::expr::Interval;
use pteron_ir::{Dim, Symbol, TensorType, Type};
use std::rc::Rc;

/// Numbers beyond this are no bound: torch writes the largest integers it has for "none".
const LARGEST_BOUND: i64 = i32::MAX as i64;

impl Lowerer<'_> {
    /// Makes a value that nothing in the graph has defined: state, a constant, or an input.
    pub(super) fn bind_outside(&mut self, name: &str) -> Lowered<Bound> {
        if self.owned.contains(name) {
            let target = self.sources.get(name).and_then(|spec| spec.target()).unwrap_or(name);
            let ty = self.declared(name)?;
            return Ok(Bound::Tensor(self.builder.graph_mut().add_buffer(target, ty)));
        }
        if let Some(spec) = self.sources.get(name)
            && let Some(target) = spec.target()
            && !self.functional.buffer_updates.contains_key(name)
        {
            return match self.program.weight(target) {
                Some(StoredWeight::Tensor(tensor)) => {
                    let value = match self.constant_values.get(target) {
                        Some(value) => *value,
                        None => {
                            let tensor = tensor.to_host().map_err(Refusal::Arguments)?;
                            self.constant(target, tensor)?
                        }
                    };
                    Ok(Bound::Tensor(value))
                }
                Some(StoredWeight::Subclass(subclass)) => {
                    let subclass = subclass.clone();
                    Ok(Bound::Weight(Rc::new(Weight { name: target.to_owned(), subclass })))
                }
                _ => Err(Refusal::because(format!(
                    "`{target}` is an object that only its operators understand"
                ))),
            };
        }
        if self.functional.tensors.contains_key(name) {
            let ty = self.declared(name)?;
            check_dtype(ty.dtype)?;
            self.inputs.push(name.to_owned());
            return Ok(Bound::Tensor(self.builder.graph_mut().add_input(name, Type::Tensor(ty))));
        }
        match self.functional.ints.get(name) {
            Some(int) => {
                let dim = self.dim(int);
                self.inputs.push(name.to_owned());
                let value = self.builder.graph_mut().add_input(name, Type::Int(dim));
                Ok(Bound::Int(Int::Value(value)))
            }
            None => Err(Refusal::because(format!("`{name}` is neither a tensor nor an integer"))),
        }
    }

    /// The recorded type of a tensor.
    fn declared(&mut self, name: &str) -> Lowered<TensorType> {
        let meta = self.functional.tensors.get(name);
        let meta = meta.ok_or_else(|| Refusal::because(format!("nothing is recorded of `{name}`")))?;
        self.tensor_type(meta)
    }

    pub(crate) fn tensor_type(&mut self, meta: &TensorMeta) -> Lowered<TensorType> {
        let dtype = meta.dtype.dtype();
        let dtype =
            dtype.ok_or_else(|| Refusal::because(format!("the delegate has no {}", meta.dtype.name())))?;
        Ok(TensorType { dtype, shape: meta.sizes.iter().map(|size| self.dim(size)).collect() })
    }

    /// A size as an affine expression; one that is not affine becomes a symbol of its own.
    pub(crate) fn dim(&mut self, size: &SymInt) -> Dim {
        let expr = match size {
            SymInt::Int(value) => return Dim::known(*value),
            SymInt::Expr(size) => &size.expr,
        };
        let mut names = Vec::new();
        expr.symbols(&mut |name| names.push(name.to_owned()));
        for name in names {
            if !self.symbols.contains_key(&name) {
                let range = self.program.ranges().get(&name);
                let range = range.map_or((None, None), |range| (range.min_val, range.max_val));
                let symbol = self.symbol(&name, range);
                self.symbols.insert(name, Dim::symbol(symbol));
            }
        }
        let known = |name: &str| self.symbols.get(name).and_then(Dim::as_symbol);
        if let Some(dim) = expr.to_dim(&known) {
            return dim;
        }
        let text = expr.to_string();
        if let Some(dim) = self.symbols.get(&text) {
            return dim.clone();
        }
        let interval = self.program.interval(size);
        let dim = Dim::symbol(self.symbol("", interval));
        self.symbols.insert(text, dim.clone());
        dim
    }

    fn symbol(&mut self, name: &str, (min, max): Interval) -> Symbol {
        let max = max.filter(|max| *max < LARGEST_BOUND);
        self.builder.graph_mut().symbols.add(name, min.unwrap_or(0).max(0), max)
    }
}
