//! Numbers in and out of tensors. A kernel computes in one of three lanes: `f64` for floats, `i128` for integers
//! (it holds both i64 and u64) and `bool` for truth. A [`Reader`] converts elements to lanes block by block, a
//! [`Writer`] rounds or wraps them once; no buffer here grows with the tensor.
//!
//! f64 is no second opinion on f32: of a single sum, difference, product, quotient or root of f32 numbers the
//! f64 result rounds to exactly the f32 one, because 53 bits are more than twice 24.

use super::offsets::Offsets;
use super::{Computed, KernelError, ResultType};
use half::{bf16, f16};
use pteron_tensor::{DType, HostTensor, Scalar};

/// How many elements are converted at a time.
pub(crate) const BLOCK: usize = 256;

/// What a kernel computes with.
pub(crate) trait Lane: Copy + Default + ToElement {
    fn from_signed(value: i64) -> Self;
    fn from_unsigned(value: u64) -> Self;
    fn from_float(value: f64) -> Self;

    /// The number as an operand of a computation in `dtype`.
    fn rounded(self, _dtype: DType) -> Self {
        self
    }
}

impl Lane for f64 {
    fn from_signed(value: i64) -> f64 {
        value as f64
    }
    fn from_unsigned(value: u64) -> f64 {
        value as f64
    }
    fn from_float(value: f64) -> f64 {
        value
    }
    fn rounded(self, dtype: DType) -> f64 {
        match dtype {
            DType::F16 => f16::from_f32(self as f32).to_f32().into(),
            DType::BF16 => bf16::from_f32(self as f32).to_f32().into(),
            DType::F32 => (self as f32).into(),
            _ => self,
        }
    }
}

impl Lane for i128 {
    fn from_signed(value: i64) -> i128 {
        value.into()
    }
    fn from_unsigned(value: u64) -> i128 {
        value.into()
    }
    fn from_float(value: f64) -> i128 {
        value as i128
    }
}

/// Everything but zero is true, NaN too.
impl Lane for bool {
    fn from_signed(value: i64) -> bool {
        value != 0
    }
    fn from_unsigned(value: u64) -> bool {
        value != 0
    }
    fn from_float(value: f64) -> bool {
        value != 0.0
    }
}

/// A lane as an element of a tensor, by the rules of `AsType`.
pub(crate) trait To<T> {
    fn to(self) -> T;
}

macro_rules! to {
    ($( $lane:ty => $($element:ty),*: |$x:ident| $value:expr; )*) => {
        $( $( impl To<$element> for $lane { fn to(self) -> $element { let $x = self; $value } } )* )*
    };
}

to! {
    // Rust's `as` saturates, and makes NaN 0; C++ leaves both undefined.
    f64 => u8, u16, u32, u64, i8, i16, i32, i64, f32, f64: |x| x as _;
    // ... and wraps integers, as C++ does.
    i128 => u8, u16, u32, u64, i8, i16, i32, i64, f32, f64: |x| x as _;
    bool => u8, u16, u32, u64, i8, i16, i32, i64, f32, f64: |x| x.into();
    f64 => bool: |x| x != 0.0;
    i128 => bool: |x| x != 0;
    bool => bool: |x| x;
    // By way of f32: `half` drops the low half of an f64 before it looks for ties.
    f64 => f16: |x| f16::from_f32(x as f32);
    f64 => bf16: |x| bf16::from_f32(x as f32);
    i128 => f16: |x| f16::from_f32(x as f32);
    i128 => bf16: |x| bf16::from_f32(x as f32);
    bool => f16: |x| f16::from_f32(x.into());
    bool => bf16: |x| bf16::from_f32(x.into());
}

/// [`To`] every element.
#[rustfmt::skip]
pub(crate) trait ToElement:
    To<bool> + To<u8> + To<u16> + To<u32> + To<u64> + To<i8> + To<i16> + To<i32> + To<i64>
    + To<f16> + To<bf16> + To<f32> + To<f64>
{
}
impl ToElement for f64 {}
impl ToElement for i128 {}
impl ToElement for bool {}

/// Reads a tensor's elements as lanes, in the order of a result.
pub(crate) struct Reader<'a> {
    tensor: &'a HostTensor,
    offsets: Offsets,
    /// Set where an operand is converted before the computation: `i64 + f16` adds in f16, so 70000 is infinite.
    rounding: Option<DType>,
}

impl<'a> Reader<'a> {
    /// In the tensor's own order.
    pub(crate) fn new(tensor: &'a HostTensor) -> Reader<'a> {
        Reader { tensor, offsets: Offsets::contiguous(tensor.len()), rounding: None }
    }

    /// Broadcast to `shape`, as an operand of a computation in `dtype`.
    pub(crate) fn operand(tensor: &'a HostTensor, shape: &[usize], dtype: DType) -> Reader<'a> {
        let rounding = (dtype.is_float() && dtype != tensor.dtype()).then_some(dtype);
        Reader { tensor, offsets: Offsets::broadcast(tensor.shape(), shape), rounding }
    }

    /// Fills `lanes` with the next elements; after the last comes the first again.
    pub(crate) fn fill<L: Lane>(&mut self, lanes: &mut [L]) -> Result<(), KernelError> {
        let tensor = self.tensor;
        macro_rules! elements {
            ($T:ty, |$x:ident| $lane:expr) => {
                gather(tensor.as_slice::<$T>()?, &mut self.offsets, lanes, |$x| $lane)
            };
        }
        match tensor.dtype() {
            // Any byte but 0 is true: a caller's memory may hold others than 1.
            DType::Bool => {
                gather(tensor.bytes(), &mut self.offsets, lanes, |x| L::from_unsigned((x != 0).into()));
            }
            DType::U8 => elements!(u8, |x| L::from_unsigned(x.into())),
            DType::U16 => elements!(u16, |x| L::from_unsigned(x.into())),
            DType::U32 => elements!(u32, |x| L::from_unsigned(x.into())),
            DType::U64 => elements!(u64, |x| L::from_unsigned(x)),
            DType::I8 => elements!(i8, |x| L::from_signed(x.into())),
            DType::I16 => elements!(i16, |x| L::from_signed(x.into())),
            DType::I32 => elements!(i32, |x| L::from_signed(x.into())),
            DType::I64 => elements!(i64, |x| L::from_signed(x)),
            DType::F16 => elements!(f16, |x| L::from_float(x.to_f32().into())),
            DType::BF16 => elements!(bf16, |x| L::from_float(x.to_f32().into())),
            DType::F32 => elements!(f32, |x| L::from_float(x.into())),
            DType::F64 => elements!(f64, |x| L::from_float(x)),
        }
        if let Some(dtype) = self.rounding {
            lanes.iter_mut().for_each(|lane| *lane = lane.rounded(dtype));
        }
        Ok(())
    }
}

fn gather<T: Copy, L>(source: &[T], offsets: &mut Offsets, lanes: &mut [L], convert: impl Fn(T) -> L) {
    let mut filled = 0;
    offsets.next_runs(lanes.len(), |first, step, length| {
        let lanes = &mut lanes[filled..filled + length];
        match step {
            0 => lanes.fill_with(|| convert(source[first])),
            1 => {
                lanes.iter_mut().zip(&source[first..first + length]).for_each(|(lane, &x)| *lane = convert(x))
            }
            _ => lanes
                .iter_mut()
                .zip(source[first..].iter().step_by(step))
                .for_each(|(lane, &x)| *lane = convert(x)),
        }
        filled += length;
    });
}

/// Writes a result's elements in order, each rounded or wrapped once.
pub(crate) struct Writer {
    tensor: HostTensor,
    next: usize,
}

impl Writer {
    pub(crate) fn new(out: &ResultType) -> Result<Writer, KernelError> {
        Ok(Writer { tensor: HostTensor::zeros(out.dtype, out.shape.clone())?, next: 0 })
    }

    /// How many elements are still to be written.
    pub(crate) fn left(&self) -> usize {
        self.tensor.len() - self.next
    }

    pub(crate) fn put<L: Lane>(&mut self, lanes: &[L]) -> Result<(), KernelError> {
        let range = self.next..self.next + lanes.len();
        self.next = range.end;
        let tensor = &mut self.tensor;
        macro_rules! elements {
            ($T:ty) => {
                for (element, &lane) in tensor.as_mut_slice::<$T>()?[range].iter_mut().zip(lanes) {
                    *element = lane.to();
                }
            };
        }
        match tensor.dtype() {
            DType::Bool => {
                for (byte, &lane) in tensor.bytes_mut()[range].iter_mut().zip(lanes) {
                    *byte = To::<bool>::to(lane).into();
                }
            }
            DType::U8 => elements!(u8),
            DType::U16 => elements!(u16),
            DType::U32 => elements!(u32),
            DType::U64 => elements!(u64),
            DType::I8 => elements!(i8),
            DType::I16 => elements!(i16),
            DType::I32 => elements!(i32),
            DType::I64 => elements!(i64),
            DType::F16 => elements!(f16),
            DType::BF16 => elements!(bf16),
            DType::F32 => elements!(f32),
            DType::F64 => elements!(f64),
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> HostTensor {
        self.tensor
    }
}

/// The tensor converted to `dtype`; shared where it is that already.
pub(crate) fn cast(x: &HostTensor, dtype: DType) -> Computed {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    let out = ResultType { dtype, shape: x.shape().to_vec() };
    if x.dtype().is_float() { convert::<f64>(x, &out) } else { convert::<i128>(x, &out) }
}

fn convert<L: Lane>(x: &HostTensor, out: &ResultType) -> Computed {
    let (mut reader, mut writer) = (Reader::new(x), Writer::new(out)?);
    let mut lanes = [L::default(); BLOCK];
    while writer.left() > 0 {
        let lanes = &mut lanes[..writer.left().min(BLOCK)];
        reader.fill(lanes)?;
        writer.put(lanes)?;
    }
    Ok(writer.finish())
}

/// One number everywhere. Whole numbers keep all their bits and wrap into integers; others truncate.
pub(crate) fn filled(out: &ResultType, value: Scalar) -> Computed {
    let mut writer = Writer::new(out)?;
    while writer.left() > 0 {
        let count = writer.left().min(BLOCK);
        match value {
            Scalar::Int(value) => writer.put(&[i128::from(value); BLOCK][..count])?,
            Scalar::Bool(value) => writer.put(&[value; BLOCK][..count])?,
            Scalar::Float(value) if value.trunc() == value && value.abs() < 2e19 && !out.dtype.is_float() => {
                writer.put(&[value as i128; BLOCK][..count])?;
            }
            Scalar::Float(value) => writer.put(&[value; BLOCK][..count])?,
        }
    }
    Ok(writer.finish())
}
