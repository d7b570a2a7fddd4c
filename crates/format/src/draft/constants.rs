//! Constants of the graphs: stored ones, those that are written down here, and those that the init graph makes.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, Output, TensorType, Type, ValueId};
use pteron_tensor::{Bytes, DType};

use super::{Constant, Draft, Int, Part, Step, problem};

/// Sizes as the arguments of an op.
pub(crate) fn literals(shape: &[usize]) -> Vec<Int> {
    shape.iter().map(|&size| IntArg::Literal(size as i64)).collect()
}

impl Draft<'_> {
    /// A constant that the main graph reads and the init graph makes.
    pub(crate) fn made(&mut self, name: String, value: ValueId) -> Step<ValueId> {
        if let Some(&known) = self.constants.get(&(Part::Main, name.clone())) {
            return Ok(known);
        }
        if self.data.contains_key(&name) {
            return problem(format!("a key `{name}`, which stands for what is made of another constant"));
        }
        let ty = self.ty(Part::Init, value)?.clone();
        let output = Output { name: name.clone(), value, ty: Type::Tensor(ty.clone()) };
        self.init.graph_mut().outputs.push(output);
        let constant = self.main.graph_mut().add_constant(&name, ty);
        self.constants.insert((Part::Main, name), constant);
        Ok(constant)
    }

    /// A stored constant, found under that index, read as a tensor of that type.
    pub(crate) fn stored(
        &mut self,
        part: Part,
        (index, found): (u32, Option<Constant>),
        dtype: DType,
        shape: &[usize],
    ) -> Step<ValueId> {
        let key = (index, dtype, shape.to_vec());
        let name = match self.names.get(&key) {
            Some(name) => name.clone(),
            None => {
                let Some(found) = found else {
                    return problem(format!("there is no constant {index}"));
                };
                let bytes = self.bytes_of(dtype, shape)?;
                let (base, found) = match found {
                    Constant::Named(key) => (key.clone(), Constant::Named(key)),
                    Constant::Inline(all) => {
                        let Some(part) = all.slice(0..bytes) else {
                            return problem(format!(
                                "constant {index} has {} bytes instead of {bytes}",
                                all.len()
                            ));
                        };
                        (format!("constant_{index}"), Constant::Inline(part))
                    }
                };
                // The same bytes may be read as tensors of several types; each has a name of its own.
                let mut name = base.clone();
                let mut number = 1;
                while self.data.contains_key(&name)
                    || self.constants.contains_key(&(Part::Main, name.clone()))
                {
                    number += 1;
                    name = format!("{base}_{number}");
                }
                self.data.insert(name.clone(), found);
                self.names.insert(key, name.clone());
                name
            }
        };
        Ok(self.listed(part, name, dtype, shape))
    }

    /// A constant whose bytes come from here.
    pub(crate) fn written(
        &mut self,
        part: Part,
        name: &str,
        dtype: DType,
        shape: &[usize],
        bytes: &[u8],
    ) -> Step<ValueId> {
        if self.bytes_of(dtype, shape)? != bytes.len() {
            return problem(format!("{} bytes for {shape:?} of {}", bytes.len(), dtype.name()));
        }
        if !self.data.contains_key(name) {
            self.data.insert(name.to_owned(), Constant::Inline(Bytes::copy_of(bytes)));
        }
        Ok(self.listed(part, name.to_owned(), dtype, shape))
    }

    fn listed(&mut self, part: Part, name: String, dtype: DType, shape: &[usize]) -> ValueId {
        let graph = match part {
            Part::Init => self.init.graph_mut(),
            Part::Main => self.main.graph_mut(),
        };
        *self
            .constants
            .entry((part, name))
            .or_insert_with_key(|(_, name)| graph.add_constant(name, TensorType::known(dtype, shape)))
    }

    pub(crate) fn bytes_of(&self, dtype: DType, shape: &[usize]) -> Step<usize> {
        let bytes = shape.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size));
        match bytes.filter(|bytes| *bytes as u64 <= self.limits.tensor_bytes) {
            Some(bytes) => Ok(bytes),
            None => problem(format!(
                "a constant of {shape:?} exceeds the limit `tensor_bytes` of {}",
                self.limits.tensor_bytes
            )),
        }
    }

    /// The numbers -8 to 7 of bytes of two 4-bit codes each, in the init graph: `[rows, columns]` of `[rows, pairs]`. Even
    /// columns lie in the low half, or else in the high one.
    pub(crate) fn nibbles(
        &mut self,
        bytes: ValueId,
        [rows, pairs]: [usize; 2],
        columns: usize,
        even_is_low: bool,
    ) -> Step<ValueId> {
        let mask = self.number_in(Part::Init, 15.0, DType::U8)?;
        let shift = self.number_in(Part::Init, 16.0, DType::U8)?;
        let low = self.append(Part::Init, Op::BitwiseAnd { a: bytes, b: mask })?;
        let high = self.append(Part::Init, Op::FloorDivide { a: bytes, b: shift })?;
        let tensors = if even_is_low { vec![low, high] } else { vec![high, low] };
        let both = self.append(Part::Init, Op::Stack { tensors, axis: 2 })?;
        let shape = literals(&[rows, 2 * pairs]);
        let mut codes = self.append(Part::Init, Op::Reshape { x: both, shape })?;
        if 2 * pairs != columns {
            let (axis, start) = (IntArg::Literal(1), IntArg::Literal(0));
            let stop = IntArg::Literal(columns as i64);
            codes = self.append(Part::Init, Op::Slice { x: codes, axis, start, stop, step: 1 })?;
        }
        let codes = self.append(Part::Init, Op::AsType { x: codes, scalar_type: DType::F32 })?;
        let middle = self.number_in(Part::Init, 8.0, DType::F32)?;
        self.append(Part::Init, Op::Subtract { a: codes, b: middle })
    }
}
