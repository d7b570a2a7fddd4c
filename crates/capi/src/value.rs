//! Arguments and results: what C points to becomes tensors, and tensors what C can look at.

use crate::text::{elements, invalid};
use pteron_bindings::{DType, PteronError, Tensor, Value};
use std::ffi::c_void;
use std::ptr::null;

/// An argument or a result.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pteron_value {
    /// What it is: nothing, a tensor, an integer, a double, a truth value.
    pub kind: i32,
    /// Of a tensor: as ExecuTorch numbers them.
    pub dtype: i32,
    /// Of a tensor.
    pub rank: u64,
    /// Of a tensor: its sizes.
    pub shape: *const u64,
    /// Of a tensor: its elements.
    pub data: *const c_void,
    /// Of a tensor.
    pub bytes: u64,
    /// Of an integer or a truth value.
    pub integer: i64,
    /// Of a double.
    pub number: f64,
}

const NOTHING: i32 = 0;
const TENSOR: i32 = 1;
const INT: i32 = 2;
const DOUBLE: i32 = 3;
const TRUTH: i32 = 4;

/// More dims than any program has.
const MOST_DIMS: u64 = 64;

const DTYPES: [(DType, i32); 13] = [
    (DType::U8, 0),
    (DType::I8, 1),
    (DType::I16, 2),
    (DType::I32, 3),
    (DType::I64, 4),
    (DType::F16, 5),
    (DType::F32, 6),
    (DType::F64, 7),
    (DType::Bool, 11),
    (DType::Bf16, 15),
    (DType::U16, 27),
    (DType::U32, 28),
    (DType::U64, 29),
];

/// A value of the caller.
///
/// # Safety
/// What a tensor points to is there, as long as it says.
pub(crate) unsafe fn read(value: &pteron_value) -> Result<Value, PteronError> {
    Ok(match value.kind {
        NOTHING => Value::Nothing,
        INT => Value::Int { value: value.integer },
        DOUBLE => Value::Double { value: value.number },
        TRUTH => Value::Bool { value: value.integer != 0 },
        TENSOR => {
            let dtype = DTYPES.iter().find(|(_, code)| *code == value.dtype);
            let (dtype, _) = dtype.ok_or_else(|| invalid("there is no such dtype"))?;
            if value.rank > MOST_DIMS {
                return Err(invalid("a tensor has too many dims"));
            }
            // SAFETY: as the caller promises.
            let shape = unsafe { elements("a shape", value.shape, value.rank) }?.to_vec();
            // SAFETY: as the caller promises.
            let bytes = unsafe { elements("a tensor", value.data.cast::<u8>(), value.bytes) }?.to_vec();
            Value::Tensor { tensor: Tensor::new(*dtype, shape, bytes)? }
        }
        _ => return Err(invalid("there is no such kind of value")),
    })
}

/// Results of a run, and their shapes.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_values(Vec<(Value, Vec<u64>)>);

impl pteron_values {
    pub(crate) fn of(values: Vec<Value>) -> pteron_values {
        let shaped = |value| match &value {
            Value::Tensor { tensor } => {
                let shape = tensor.shape();
                (value, shape)
            }
            _ => (value, Vec::new()),
        };
        pteron_values(values.into_iter().map(shaped).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// One of them; nothing where there are not so many.
    pub(crate) fn get(&self, index: usize) -> pteron_value {
        let none = pteron_value {
            kind: NOTHING,
            dtype: 0,
            rank: 0,
            shape: null(),
            data: null(),
            bytes: 0,
            integer: 0,
            number: 0.0,
        };
        let Some((value, shape)) = self.0.get(index) else { return none };
        match value {
            Value::Int { value } => pteron_value { kind: INT, integer: *value, ..none },
            Value::Double { value } => pteron_value { kind: DOUBLE, number: *value, ..none },
            Value::Bool { value } => pteron_value { kind: TRUTH, integer: (*value).into(), ..none },
            Value::Tensor { tensor } => {
                let dtype =
                    tensor.dtype().ok().and_then(|own| DTYPES.iter().find(|(dtype, _)| *dtype == own));
                let Some((_, dtype)) = dtype else { return none };
                pteron_value {
                    kind: TENSOR,
                    dtype: *dtype,
                    rank: shape.len() as u64,
                    shape: shape.as_ptr(),
                    data: tensor.address() as usize as *const c_void,
                    bytes: tensor.byte_length(),
                    ..none
                }
            }
            // Lists and texts are not results of programs that were made for C.
            _ => none,
        }
    }
}
