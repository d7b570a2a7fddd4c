//! A call's arguments by position, as the values of the graph or the numbers that they are.

use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Call, Held, Lifter};
use crate::draft::{Draft, Int, Part, Step, Stop, problem};
use crate::vulkan::tables::{Value, VkTensor};

impl<'p> Lifter<'p> {
    pub(super) fn argument(&self, call: &Call<'_>, at: usize) -> Step<(i32, &'p Value)> {
        match call.args.get(at) {
            Some(&id) => Ok((id, self.declared(id)?)),
            None => problem(format!("there is no argument {at}")),
        }
    }

    fn wrong<T>(&self, at: usize, found: &Value, wanted: &str) -> Step<T> {
        problem(format!("argument {at} is {}, where {wanted} is wanted", found.kind()))
    }

    /// Whether an argument is there and not `None`.
    pub(super) fn has(&self, call: &Call<'_>, at: usize) -> bool {
        call.args.get(at).is_some_and(|&id| !matches!(self.declared(id), Err(_) | Ok(Value::Null(_))))
    }

    /// Takes from what may still be looked at of lists.
    pub(super) fn charge(&mut self, items: usize) -> Step<()> {
        let left = self.items_left.checked_sub(items as u64 + 1);
        self.items_left = left.ok_or_else(|| Stop::Problem("lists of too many items in all".into()))?;
        Ok(())
    }

    /// What the payload says of a tensor argument.
    pub(super) fn tensor_table(&self, call: &Call<'_>, at: usize) -> Step<&'p VkTensor> {
        match self.argument(call, at)? {
            (_, Value::Tensor(tensor)) => Ok(tensor),
            (_, other) => self.wrong(at, other, "a tensor"),
        }
    }

    pub(super) fn tensor(&mut self, call: &Call<'_>, at: usize) -> Step<ValueId> {
        let (id, value) = self.argument(call, at)?;
        match value {
            Value::Tensor(_) => self.tensor_by_id(id),
            other => self.wrong(at, other, "a tensor"),
        }
    }

    pub(super) fn tensor_by_id(&mut self, id: i32) -> Step<ValueId> {
        let tensor = self.declared_tensor(id)?;
        let index = usize::try_from(id).unwrap_or(usize::MAX);
        match self.held.get(index) {
            Some(Held::Tensor(value)) => Ok(*value),
            Some(Held::Spoilt) => Err(Stop::Spoilt),
            Some(Held::Int(_)) => problem(format!("value {id} is an integer, where a tensor is wanted")),
            Some(Held::Nothing) | None if tensor.constant_id >= 0 => {
                let value = self.initial(index, tensor)?;
                self.hold(id, Held::Tensor(value))?;
                Ok(value)
            }
            Some(Held::Nothing) | None => {
                problem(format!("it reads value {id}, which nothing has set before"))
            }
        }
    }

    /// A constant in the type that the payload declares.
    pub(super) fn constant_value(&mut self, part: Part, tensor: &VkTensor) -> Step<ValueId> {
        let shape: Vec<usize> = tensor.dims.iter().map(|&size| size as usize).collect();
        self.constant_as(part, tensor, tensor.datatype.dtype(), &shape)
    }

    /// The bytes of a constant as a tensor of another type.
    pub(super) fn constant_as(
        &mut self,
        part: Part,
        tensor: &VkTensor,
        dtype: DType,
        shape: &[usize],
    ) -> Step<ValueId> {
        let Ok(index) = u32::try_from(tensor.constant_id) else { return problem("it is no constant") };
        let found = self.payload.constant(index);
        self.stored(part, (index, found), dtype, shape)
    }

    pub(super) fn maybe_tensor(&mut self, call: &Call<'_>, at: usize) -> Step<Option<ValueId>> {
        if self.has(call, at) { self.tensor(call, at).map(Some) } else { Ok(None) }
    }

    /// A tensor, or a number as one of that type.
    pub(super) fn operand(&mut self, call: &Call<'_>, at: usize, dtype: DType) -> Step<ValueId> {
        match self.argument(call, at)?.1 {
            Value::Tensor(_) => self.tensor(call, at),
            Value::SymInt(_) => {
                let int = self.int(call, at)?;
                int_tensor(self, int, dtype)
            }
            _ => {
                let number = self.float(call, at)?;
                self.number(number, dtype)
            }
        }
    }

    pub(super) fn tensors(&mut self, call: &Call<'_>, at: usize) -> Step<Vec<Option<ValueId>>> {
        let (_, value) = self.argument(call, at)?;
        let Value::Values(list) = value else { return self.wrong(at, value, "a list of tensors") };
        self.charge(list.items.len())?;
        let mut tensors = Vec::with_capacity(list.items.len());
        for &id in list.items.iter() {
            tensors.push(match self.declared(id)? {
                Value::Null(_) => None,
                _ => Some(self.tensor_by_id(id)?),
            });
        }
        Ok(tensors)
    }

    fn int_by_id(&self, id: i32) -> Step<Int> {
        match self.declared(id)? {
            Value::Int(int) => Ok(IntArg::Literal(int.int_val)),
            Value::Bool(flag) => Ok(IntArg::Literal(flag.bool_val.into())),
            Value::SymInt(_) => match usize::try_from(id).ok().and_then(|id| self.held.get(id)) {
                Some(Held::Int(int)) => Ok(*int),
                Some(Held::Spoilt) => Err(Stop::Spoilt),
                _ => problem(format!("it reads value {id}, which nothing has set before")),
            },
            other => problem(format!("value {id} is {}, where an integer is wanted", other.kind())),
        }
    }

    /// An integer that may be known at run time only.
    pub(super) fn int(&self, call: &Call<'_>, at: usize) -> Step<Int> {
        let (id, _) = self.argument(call, at)?;
        self.int_by_id(id)
    }

    /// An integer that must be known.
    pub(super) fn known_int(&self, call: &Call<'_>, at: usize) -> Step<i64> {
        known(self.int(call, at)?)
    }

    /// Integers, some of them known at run time only. No list is an empty one.
    pub(super) fn ints(&mut self, call: &Call<'_>, at: usize) -> Step<Vec<Int>> {
        if !self.has(call, at) {
            return Ok(Vec::new());
        }
        match self.argument(call, at)?.1 {
            Value::Ints(list) => {
                self.charge(list.items.len())?;
                Ok(list.items.iter().map(|&int| IntArg::Literal(int)).collect())
            }
            Value::Values(list) => {
                self.charge(list.items.len())?;
                list.items.iter().map(|&id| self.int_by_id(id)).collect()
            }
            Value::Int(_) | Value::SymInt(_) => Ok(vec![self.int(call, at)?]),
            other => self.wrong(at, other, "a list of integers"),
        }
    }

    pub(super) fn known_ints(&mut self, call: &Call<'_>, at: usize) -> Step<Vec<i64>> {
        self.ints(call, at)?.into_iter().map(known).collect()
    }

    /// Two integers for rows and columns; one stands for both, none for `default`.
    pub(super) fn pair(&mut self, call: &Call<'_>, at: usize, default: [i64; 2]) -> Step<[i64; 2]> {
        match self.known_ints(call, at)?[..] {
            [] => Ok(default),
            [one] => Ok([one, one]),
            [rows, columns] => Ok([rows, columns]),
            ref more => problem(format!("argument {at} has {} numbers for two axes", more.len())),
        }
    }

    pub(super) fn float(&self, call: &Call<'_>, at: usize) -> Step<f64> {
        match self.argument(call, at)?.1 {
            Value::Double(number) => Ok(number.double_val),
            Value::Int(number) => Ok(number.int_val as f64),
            Value::Bool(flag) => Ok(f64::from(u8::from(flag.bool_val))),
            other => self.wrong(at, other, "a number"),
        }
    }

    pub(super) fn maybe_float(&self, call: &Call<'_>, at: usize) -> Step<Option<f64>> {
        if self.has(call, at) { self.float(call, at).map(Some) } else { Ok(None) }
    }

    pub(super) fn floats(&mut self, call: &Call<'_>, at: usize) -> Step<Vec<f64>> {
        if !self.has(call, at) {
            return Ok(Vec::new());
        }
        match self.argument(call, at)?.1 {
            Value::Doubles(list) => {
                self.charge(list.items.len())?;
                Ok(list.items.to_vec())
            }
            Value::Ints(list) if list.items.is_empty() => Ok(Vec::new()),
            other => self.wrong(at, other, "a list of numbers"),
        }
    }

    pub(super) fn flag(&self, call: &Call<'_>, at: usize) -> Step<bool> {
        match self.argument(call, at)?.1 {
            Value::Bool(flag) => Ok(flag.bool_val),
            Value::Int(int) => Ok(int.int_val != 0),
            Value::Null(_) => Ok(false),
            other => self.wrong(at, other, "true or false"),
        }
    }

    pub(super) fn text(&self, call: &Call<'_>, at: usize) -> Step<&'p str> {
        match self.argument(call, at)?.1 {
            Value::Text(text) => Ok(&text.string_val),
            Value::Null(_) => Ok(""),
            other => self.wrong(at, other, "a text"),
        }
    }

    /// An axis from the front; a tensor without dims has one that is not there.
    pub(super) fn axis(&self, call: &Call<'_>, at: usize, rank: usize) -> Step<usize> {
        axis_of(self.known_int(call, at)?, rank)
    }
}

/// An integer of the graph as a tensor without dims.
pub(super) fn int_tensor(draft: &mut Draft<'_>, int: Int, dtype: DType) -> Step<ValueId> {
    match int {
        IntArg::Literal(number) => draft.number(number as f64, dtype),
        IntArg::Value(value) => {
            draft.emit(Op::Full { shape: Vec::new(), v: FloatArg::Value(value), scalar_type: dtype })
        }
    }
}

pub(super) fn known(int: Int) -> Step<i64> {
    match int {
        IntArg::Literal(number) => Ok(number),
        IntArg::Value(_) => problem("a number that is known at run time only, where it must be known before"),
    }
}

pub(super) fn axis_of(dim: i64, rank: usize) -> Step<usize> {
    let counted = if dim < 0 { dim.saturating_add(rank.max(1) as i64) } else { dim };
    match usize::try_from(counted) {
        Ok(axis) if axis < rank.max(1) => Ok(axis),
        _ => problem(format!("axis {dim} of a tensor of {rank} dims")),
    }
}
