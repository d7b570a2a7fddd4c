//! Products of matrices, of packed weights and of attention in ops that have a kernel: matrices of two axes, or of three with as many
//! batches on both sides.

use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Op, Ssa, TensorType, Type, ValueId};
use pteron_tensor::DType;

use super::plain::Plain;
use crate::draft::{Int, Step, problem};

impl Plain<'_> {
    /// The product of two tensors of one dtype by numpy's rules.
    pub(super) fn product(&mut self, mat1: ValueId, mat2: ValueId) -> Step<ValueId> {
        match (self.rank(mat1)?, self.rank(mat2)?) {
            (0, _) | (_, 0) => problem("a product of numbers"),
            (1, _) => {
                let row = self.emit(Op::ExpandDims { x: mat1, axis: 0 })?;
                let product = self.product(row, mat2)?;
                let axis = if self.rank(mat2)? == 1 { -1 } else { -2 };
                self.emit(Op::Squeeze { x: product, dims: Some(vec![axis]) })
            }
            (_, 1) => {
                let column = self.emit(Op::ExpandDims { x: mat2, axis: 1 })?;
                let product = self.product(mat1, column)?;
                self.emit(Op::Squeeze { x: product, dims: Some(vec![-1]) })
            }
            (2, 2) => self.matmul(mat1, mat2),
            (rank, 2) => {
                let mut shape = self.sizes(mat1)?;
                let rows = self.flat(mat1, rank - 1)?;
                let product = self.matmul(rows, mat2)?;
                shape[rank - 1] = self.size(mat2, 1)?;
                self.emit(Op::Reshape { x: product, shape })
            }
            (a, b) => {
                let shape = self.batches(mat1, mat2)?;
                let [mat1, mat2] = [(mat1, a), (mat2, b)].map(|(x, rank)| self.spread(x, rank, &shape));
                let (mat1, mat2) = (mat1?, mat2?);
                let rank = shape.len() + 2;
                let (flat1, flat2) = (self.batched(mat1, rank)?, self.batched(mat2, rank)?);
                let product = self.matmul(flat1, flat2)?;
                if rank == 3 {
                    return Ok(product);
                }
                let ends = [self.size(mat1, rank - 2)?, self.size(mat2, rank - 1)?];
                self.emit(Op::Reshape { x: product, shape: [shape, ends.to_vec()].concat() })
            }
        }
    }

    fn matmul(&mut self, mat1: ValueId, mat2: ValueId) -> Step<ValueId> {
        self.emit(Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, beta: 1.0 })
    }

    /// The leading axes joined to one.
    fn flat(&mut self, x: ValueId, joined: usize) -> Step<ValueId> {
        let mut sizes = self.sizes(x)?;
        let mut shape = sizes.split_off(joined);
        shape.insert(0, sizes.into_iter().try_fold(IntArg::Literal(1), |all, size| self.times(all, size))?);
        self.emit(Op::Reshape { x, shape })
    }

    /// The axes before a matrix joined to one.
    fn batched(&mut self, x: ValueId, rank: usize) -> Step<ValueId> {
        if rank == 3 { Ok(x) } else { self.flat(x, rank - 2) }
    }

    /// The axes before the matrices, which broadcast.
    fn batches(&mut self, mat1: ValueId, mat2: ValueId) -> Step<Vec<Int>> {
        let (mut a, mut b) = (self.sizes(mat1)?, self.sizes(mat2)?);
        a.truncate(a.len().saturating_sub(2));
        b.truncate(b.len().saturating_sub(2));
        let (mut long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
        let lead = long.len() - short.len();
        for (size, other) in long[lead..].iter_mut().zip(short) {
            if *size == IntArg::Literal(1) {
                *size = other;
            }
        }
        Ok(long)
    }

    /// A tensor with those batches.
    fn spread(&mut self, x: ValueId, rank: usize, batches: &[Int]) -> Step<ValueId> {
        let sizes = self.sizes(x)?;
        let (own, matrix) = sizes.split_at(rank.saturating_sub(2));
        // Two sizes of the run are taken to be the same: the product would not be defined otherwise.
        let one = IntArg::Literal(1);
        let same = own.len() == batches.len() && own.iter().zip(batches).all(|(a, b)| *a != one || *b == one);
        if same {
            return Ok(x);
        }
        self.emit(Op::BroadcastTo { x, shape: [batches, matrix].concat() })
    }

    /// Numbers of packed weights, or a product with them, in f32.
    pub(super) fn quantized(&mut self, op: Op<Ssa>) -> Step<ValueId> {
        let wanted = self.dtype_of(&op)?;
        match op {
            Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose } => {
                let weights = self.unpacked(w, (scales, biases), (group_size, bits, &mode))?;
                let weights = if transpose { self.swapped(weights)? } else { weights };
                let x = self.cast(x, DType::F32)?;
                let product = self.product(x, weights)?;
                self.cast(product, wanted)
            }
            Op::Dequantize { w, scales, biases, group_size, bits, mode, global_scale: None, .. } => {
                let weights = self.unpacked(w, (scales, biases), (group_size, bits, &mode))?;
                self.cast(weights, wanted)
            }
            _ => problem("weights with a global scale have no portable form"),
        }
    }

    fn unpacked(
        &mut self,
        w: ValueId,
        (scales, biases): (ValueId, Option<ValueId>),
        (group_size, bits, mode): (i32, i32, &str),
    ) -> Step<ValueId> {
        if mode != "affine" || !matches!(bits, 2 | 4 | 8) {
            return problem(format!("weights of {bits} bits in mode {mode} have no portable form"));
        }
        let codes = self.bytes_of_words(w)?;
        let codes = self.codes(codes, bits)?;
        let codes = self.emit(Op::AsType { x: codes, scalar_type: DType::F32 })?;
        let rank = self.rank(codes)?;
        let mut shape = self.sizes(codes)?;
        let whole = shape.clone();
        let groups = self.size(scales, rank - 1)?;
        shape.splice(rank - 1.., [groups, IntArg::Literal(group_size.into())]);
        let mut numbers = self.emit(Op::Reshape { x: codes, shape })?;
        let column = |plain: &mut Self, x| {
            let x = plain.cast(x, DType::F32)?;
            plain.emit(Op::ExpandDims { x, axis: -1 })
        };
        let scales = column(self, scales)?;
        numbers = self.emit(Op::Multiply { a: numbers, b: scales })?;
        if let Some(biases) = biases {
            let biases = column(self, biases)?;
            numbers = self.emit(Op::Add { a: numbers, b: biases })?;
        }
        self.emit(Op::Reshape { x: numbers, shape: whole })
    }

    /// The bytes of packed words: a stored constant read as bytes, or rows of one.
    fn bytes_of_words(&mut self, w: ValueId) -> Step<ValueId> {
        let graph = self.main.graph_mut();
        let Some(Type::Tensor(TensorType { dtype: DType::U32, shape })) = graph.ty(w) else {
            return problem("weights that are not packed in words");
        };
        let mut shape = shape.clone();
        let bytes = shape.last().and_then(|words| words.scale(4));
        let (Some(last), Some(bytes)) = (shape.last_mut(), bytes) else {
            return problem("weights without an axis");
        };
        *last = bytes;
        if let Some(name) = self.constants.get(&w).cloned() {
            let ty = TensorType { dtype: DType::U8, shape };
            return Ok(self.main.graph_mut().add_constant(&name, ty));
        }
        match self.rows.get(&w).copied() {
            Some((constant, index)) => {
                let x = self.bytes_of_words(constant)?;
                self.emit(Op::Take { x, index, axis: 0 })
            }
            None => problem("packed weights that are computed have no portable form"),
        }
    }

    /// Slices at indices of the first axis; those of a constant are remembered.
    pub(super) fn taken(&mut self, x: ValueId, index: IndexArg<ValueId, ValueId>) -> Step<ValueId> {
        let taken = self.emit(Op::Take { x, index, axis: 0 })?;
        if self.constants.contains_key(&x) {
            self.rows.insert(taken, (x, index));
        }
        Ok(taken)
    }

    /// Codes of so many bits, the lowest of a byte first.
    fn codes(&mut self, bytes: ValueId, bits: i32) -> Step<ValueId> {
        if bits == 8 {
            return Ok(bytes);
        }
        let mask = self.number((1 << bits) as f64 - 1.0, DType::U8)?;
        let mut parts = Vec::new();
        for shift in (0..8).step_by(bits as usize) {
            let divisor = self.number(f64::from(1 << shift), DType::U8)?;
            let part = if shift == 0 { bytes } else { self.emit(Op::FloorDivide { a: bytes, b: divisor })? };
            let is_last = shift + bits == 8;
            parts.push(if is_last { part } else { self.emit(Op::BitwiseAnd { a: part, b: mask })? });
        }
        let mut shape = self.sizes(bytes)?;
        let count = IntArg::Literal((8 / bits).into());
        if let Some(last) = shape.last_mut() {
            *last = self.times(*last, count)?;
        }
        let rank = self.rank(bytes)?;
        let apart = self.emit(Op::Stack { tensors: parts, axis: rank as i32 })?;
        self.emit(Op::Reshape { x: apart, shape })
    }

    /// The matrices of a row of them that indices name.
    pub(super) fn picked(&mut self, x: ValueId, indices: Option<ValueId>) -> Step<ValueId> {
        let Some(indices) = indices else { return Ok(x) };
        match self.rank(x)? {
            3 => self.taken(x, IndexArg::Tensor(indices)),
            rank => problem(format!("matrices picked in a tensor of {rank} dims have no portable form")),
        }
    }

    /// Softmax of scaled queries times keys plus the mask, times values.
    pub(super) fn attention(
        &mut self,
        [q, k, v]: [ValueId; 3],
        scale: f32,
        mask: Option<ValueId>,
        causal: bool,
    ) -> Step<ValueId> {
        let wanted = self.dtype(q)?;
        let q = self.cast(q, DType::F32)?;
        let (heads, groups) = (self.size(q, 1)?, self.size(k, 1)?);
        let (IntArg::Literal(heads), IntArg::Literal(groups)) = (heads, groups) else {
            return problem("a number of heads that is known at run time only");
        };
        let shared = IntArg::Literal(heads.checked_div(groups).unwrap_or(1));
        let wide = |plain: &mut Self, x| {
            let x = plain.cast(x, DType::F32)?;
            if shared == IntArg::Literal(1) { Ok(x) } else { plain.repeated(x, shared, 1) }
        };
        let (k, v) = (wide(self, k)?, wide(self, v)?);
        let q = self.scaled(q, scale)?;
        let keys = self.swapped(k)?;
        let mut scores = self.product(q, keys)?;
        let lowest = self.number(f64::NEG_INFINITY, DType::F32)?;
        if let Some(mask) = mask {
            scores = match self.dtype(mask)? {
                DType::Bool => self.emit(Op::Where { condition: mask, x: scores, y: lowest })?,
                _ => {
                    let mask = self.cast(mask, DType::F32)?;
                    self.emit(Op::Add { a: scores, b: mask })?
                }
            };
        }
        if causal {
            // The last query sees all keys.
            let (rows, columns) = (self.size(scores, 2)?, self.size(scores, 3)?);
            let minus = self.times(rows, IntArg::Literal(-1))?;
            let start = self.plus(columns, minus)?;
            let queries = self.counted(start, columns)?;
            let queries = self.emit(Op::ExpandDims { x: queries, axis: 1 })?;
            let keys = self.counted(IntArg::Literal(0), columns)?;
            let condition = self.emit(Op::LessEqual { a: keys, b: queries })?;
            scores = self.emit(Op::Where { condition, x: scores, y: lowest })?;
        }
        let weights = self.emit(Op::Softmax { x: scores, axis: -1, precise: true })?;
        let value = self.product(weights, v)?;
        self.cast(value, wanted)
    }
}
