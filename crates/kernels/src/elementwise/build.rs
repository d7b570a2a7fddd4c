//! Building chains: values of dtypes go in, loops and registers come out.

use super::binary::binary;
use super::chain::{Chain, MAX_REGISTERS, Run, Source, Step};
use super::lane::Lane;
use super::run::{One, select};
use super::unary::{Conversion, cast, narrow, truth, unary, widen};
use super::walk::MAX_OPERANDS;
use super::{BinaryOp, UnaryOp};
use crate::path::Path;
use crate::simd::{Level, level};
use pteron_tensor::{DType, Scalar};

/// A value of a chain under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(usize);

#[derive(Clone, Copy, Debug)]
struct Made {
    dtype: DType,
    /// How its elements lie in a register.
    lane: Lane,
    source: Origin,
    /// The same as f32, where it is a 16-bit float.
    widened: Option<Value>,
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    Input(usize),
    Constant(u64),
    Step(usize),
}

/// Collects ops, each rounding to its dtype as it would alone.
#[derive(Debug)]
pub struct ChainBuilder {
    level: Level,
    values: Vec<Made>,
    inputs: Vec<DType>,
    steps: Vec<(Run, [usize; 3])>,
}

impl ChainBuilder {
    /// An empty chain for a path.
    pub fn new(path: Path) -> ChainBuilder {
        ChainBuilder { level: level(path), values: Vec::new(), inputs: Vec::new(), steps: Vec::new() }
    }

    /// The next operand of [`Chain::run`]; `None` for f64 and when there are too many.
    pub fn input(&mut self, dtype: DType) -> Option<Value> {
        if self.inputs.len() + 1 >= MAX_OPERANDS {
            return None;
        }
        let lane = Lane::stored(dtype)?;
        self.inputs.push(dtype);
        Some(self.push(dtype, lane, Origin::Input(self.inputs.len() - 1)))
    }

    /// One number everywhere, wrapped or rounded to the dtype.
    pub fn constant(&mut self, value: Scalar, dtype: DType) -> Option<Value> {
        let lane = Lane::stored(dtype)?.computed();
        let bits = bits_of(value, dtype)?;
        Some(self.push(dtype, lane, Origin::Constant(bits)))
    }

    /// The dtype of a value.
    pub fn dtype(&self, value: Value) -> DType {
        self.values[value.0].dtype
    }

    /// Converts; nothing where the dtype is the same already.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Option<Value> {
        if self.dtype(x) == dtype {
            return Some(x);
        }
        let x = self.widened(x)?;
        let (from, to) = (self.values[x.0].lane, Lane::stored(dtype)?.computed());
        // A byte that is not 0 is true, whatever it is.
        let x = if from == Lane::Bool { self.one(truth(self.level), x, DType::Bool, Lane::Bool) } else { x };
        let converted = match cast(from, to, self.level)? {
            Conversion::Same => {
                let made = self.values[x.0];
                self.push(dtype, to, made.source)
            }
            Conversion::By(run) => self.one(run, x, dtype, to),
        };
        self.rounded(converted, dtype)
    }

    /// One op of one operand, in the operand's dtype.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Option<Value> {
        use UnaryOp as Op;
        let dtype = self.dtype(x);
        if !dtype.is_float() && matches!(op, Op::Floor | Op::Ceil | Op::Trunc | Op::Round) {
            return Some(x);
        }
        if dtype == DType::Bool && matches!(op, Op::Abs | Op::Square | Op::Sign) {
            return Some(x);
        }
        let x = self.widened(x)?;
        let lane = self.values[x.0].lane;
        let run = unary(op, lane, self.level)?;
        if op == Op::LogicalNot {
            return Some(self.one(run, x, DType::Bool, Lane::Bool));
        }
        let result = self.one(run, x, dtype, lane);
        self.rounded(result, dtype)
    }

    /// Rounding to a number of decimals, halves to even; every step in f32, as in PyTorch.
    pub fn round(&mut self, x: Value, decimals: i32) -> Option<Value> {
        let dtype = self.dtype(x);
        if decimals == 0 {
            return self.unary(UnaryOp::Round, x);
        }
        if !dtype.is_float() {
            if decimals > 0 || dtype == DType::Bool {
                return Some(x);
            }
            let power = self.constant(Scalar::Int(i64::from(decimals.unsigned_abs().min(100))), dtype)?;
            return self.binary(BinaryOp::RoundTo, x, power);
        }
        let unit = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
        let unit = self.constant(Scalar::Float(unit), DType::F32)?;
        let x = self.widened(x)?;
        let (scale, back) = match decimals > 0 {
            true => (BinaryOp::Multiply, BinaryOp::Divide),
            false => (BinaryOp::Divide, BinaryOp::Multiply),
        };
        let wide = self.push(DType::F32, Lane::F32, self.values[x.0].source);
        let scaled = self.binary(scale, wide, unit)?;
        let whole = self.unary(UnaryOp::Round, scaled)?;
        let result = self.binary(back, whole, unit)?;
        let result = self.push(dtype, Lane::F32, self.values[result.0].source);
        self.rounded(result, dtype)
    }

    /// One op of two operands of one dtype.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Option<Value> {
        let dtype = self.dtype(a);
        if dtype != self.dtype(b) {
            return None;
        }
        if matches!(op, BinaryOp::LogicalAnd | BinaryOp::LogicalOr) && dtype != DType::Bool {
            let (a, b) = (self.cast(a, DType::Bool)?, self.cast(b, DType::Bool)?);
            return self.binary(op, a, b);
        }
        let (a, b) = (self.widened(a)?, self.widened(b)?);
        let lane = self.values[a.0].lane;
        let (run, swapped) = binary(op, lane, self.level)?;
        let (a, b) = if swapped { (b, a) } else { (a, b) };
        self.steps.push((Run::Two(run), [a.0, b.0, 0]));
        let step = Origin::Step(self.steps.len() - 1);
        if op.gives_bool() {
            return Some(self.push(DType::Bool, Lane::Bool, step));
        }
        let result = self.push(dtype, lane, step);
        self.rounded(result, dtype)
    }

    /// The second operand not below the lower bound, then not above the upper one; NaN stays.
    pub fn clip(&mut self, x: Value, low: Option<Value>, high: Option<Value>) -> Option<Value> {
        let x = match low {
            Some(low) => self.binary(BinaryOp::Maximum, x, low)?,
            None => x,
        };
        match high {
            Some(high) => self.binary(BinaryOp::Minimum, x, high),
            None => Some(x),
        }
    }

    /// Where the condition is true, `x`, else `y`; both of one dtype.
    pub fn select(&mut self, condition: Value, x: Value, y: Value) -> Option<Value> {
        let dtype = self.dtype(x);
        if dtype != self.dtype(y) {
            return None;
        }
        let condition = self.cast(condition, DType::Bool)?;
        // As they lie in memory, where both do; else as they are computed.
        let (x, y) = match self.values[x.0].lane == self.values[y.0].lane {
            true => (x, y),
            false => (self.widened(x)?, self.widened(y)?),
        };
        let lane = self.values[x.0].lane;
        self.steps.push((Run::Three(select(lane_size(lane))?), [condition.0, x.0, y.0]));
        let step = Origin::Step(self.steps.len() - 1);
        Some(self.push(dtype, lane, step))
    }

    /// The chain that gives a value; `None` when it needs too many registers.
    pub fn finish(mut self, result: Value) -> Option<Chain> {
        let made = self.values[result.0];
        let stored = Lane::stored(made.dtype)?;
        // Narrow what was computed as f32; copy what no step has made.
        let result = match (made.lane == stored, made.source) {
            (false, _) => self.one(narrow(stored, self.level)?, result, made.dtype, stored),
            (true, Origin::Step(_)) => result,
            (true, _) => {
                let run: One = match lane_size(stored) {
                    1 => copy::<u8>,
                    2 => copy::<u16>,
                    4 => copy::<u32>,
                    _ => copy::<u64>,
                };
                self.one(run, result, made.dtype, stored)
            }
        };
        let Origin::Step(last) = self.values[result.0].source else { return None };
        // Steps behind the result's own (there are none in practice) would be work for nobody.
        self.steps.truncate(last + 1);
        self.assign(made.dtype)
    }

    /// Gives registers to constants and steps; one is free again after the last step that reads it.
    fn assign(&self, dtype: DType) -> Option<Chain> {
        let mut last_use = vec![0; self.steps.len()];
        for (at, (run, operands)) in self.steps.iter().enumerate() {
            for &operand in &operands[..run.operands()] {
                if let Origin::Step(step) = self.values[operand].source {
                    last_use[step] = at;
                }
            }
        }
        let mut constants: Vec<(u64, usize)> = Vec::new();
        let mut registers = [usize::MAX; MAX_REGISTERS];
        let mut holder: Vec<usize> = vec![0; self.steps.len()];
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut used = 0;
        // Constants keep their register throughout.
        for (run, operands) in &self.steps {
            for &operand in &operands[..run.operands()] {
                let made = self.values[operand];
                if let Origin::Constant(bits) = made.source {
                    let key = (bits, lane_size(made.lane));
                    if !constants.contains(&key) {
                        constants.push(key);
                    }
                }
            }
        }
        let fixed = constants.len() + self.inputs.len();
        if fixed > MAX_REGISTERS {
            return None;
        }
        for (at, (run, operands)) in self.steps.iter().enumerate() {
            let mut sources = [Source::Input(0); 3];
            for (source, &operand) in sources.iter_mut().zip(&operands[..run.operands()]) {
                let made = self.values[operand];
                *source = match made.source {
                    Origin::Input(input) => Source::Input(input),
                    Origin::Constant(bits) => {
                        let key = (bits, lane_size(made.lane));
                        let index = constants.iter().position(|&constant| constant == key)?;
                        Source::Register(self.inputs.len() + index)
                    }
                    Origin::Step(step) => Source::Register(holder[step]),
                };
            }
            // A step's output never shares a register with what it reads.
            let free = (fixed..MAX_REGISTERS).find(|&register| {
                let step = registers[register];
                step == usize::MAX || last_use[step] < at
            })?;
            registers[free] = at;
            holder[at] = free;
            used = used.max(free + 1);
            steps.push(Step { run: *run, sources, out: free });
        }
        Some(Chain::assembled(self.inputs.clone(), dtype, constants, steps, used.max(fixed)))
    }

    /// A 16-bit float as f32; anything else as it is.
    fn widened(&mut self, x: Value) -> Option<Value> {
        let made = self.values[x.0];
        if made.lane.computed() == made.lane {
            return Some(x);
        }
        if let Some(wide) = made.widened {
            return Some(wide);
        }
        let wide = self.one(widen(made.lane, self.level)?, x, made.dtype, Lane::F32);
        self.values[x.0].widened = Some(wide);
        Some(wide)
    }

    /// A computed value as its dtype keeps it.
    fn rounded(&mut self, x: Value, dtype: DType) -> Option<Value> {
        let stored = Lane::stored(dtype)?;
        if stored.computed() == stored {
            return Some(x);
        }
        Some(self.one(narrow(stored, self.level)?, x, dtype, stored))
    }

    fn one(&mut self, run: One, x: Value, dtype: DType, lane: Lane) -> Value {
        self.steps.push((Run::One(run), [x.0, 0, 0]));
        self.push(dtype, lane, Origin::Step(self.steps.len() - 1))
    }

    fn push(&mut self, dtype: DType, lane: Lane, source: Origin) -> Value {
        self.values.push(Made { dtype, lane, source, widened: None });
        Value(self.values.len() - 1)
    }
}

unsafe fn copy<T: Copy>(out: *mut u8, x: *const u8, count: usize) {
    // SAFETY: a loop's contract: `count` elements at both, apart from each other.
    unsafe { x.cast::<T>().copy_to_nonoverlapping(out.cast::<T>(), count) }
}

fn lane_size(lane: Lane) -> usize {
    match lane {
        Lane::Bool | Lane::U8 | Lane::I8 => 1,
        Lane::U16 | Lane::I16 | Lane::F16 | Lane::BF16 => 2,
        Lane::U32 | Lane::I32 | Lane::F32 => 4,
        Lane::U64 | Lane::I64 => 8,
    }
}

/// A number as a register holds it. Whole numbers keep all their bits and wrap into integers; others truncate and
/// saturate.
fn bits_of(value: Scalar, dtype: DType) -> Option<u64> {
    let (float, int) = match value {
        Scalar::Int(x) => (x as f64, i128::from(x)),
        Scalar::Bool(x) => (f64::from(u8::from(x)), i128::from(x)),
        Scalar::Float(x) if x.trunc() == x && x.abs() < 2e19 => (x, x as i128),
        Scalar::Float(x) => (x, saturated(x, dtype)),
    };
    let narrowed = match value {
        Scalar::Int(x) => x as f32,
        _ => float as f32,
    };
    Some(match dtype {
        DType::F64 => return None,
        DType::F32 => narrowed.to_bits().into(),
        DType::F16 => half::f16::from_f32(narrowed).to_f32().to_bits().into(),
        DType::BF16 => half::bf16::from_f32(narrowed).to_f32().to_bits().into(),
        DType::Bool => u64::from(float != 0.0),
        _ => int as u64,
    })
}

fn saturated(x: f64, dtype: DType) -> i128 {
    match dtype {
        DType::U8 => (x as u8).into(),
        DType::U16 => (x as u16).into(),
        DType::U32 => (x as u32).into(),
        DType::U64 => (x as u64).into(),
        DType::I8 => (x as i8).into(),
        DType::I16 => (x as i16).into(),
        DType::I32 => (x as i32).into(),
        _ => (x as i64).into(),
    }
}
