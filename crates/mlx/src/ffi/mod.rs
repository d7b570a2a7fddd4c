//! The one room with `unsafe`: the shim opened as a library, and handles of its arrays and functions as Rust values
//! with one owner each. Everything outside sees safe types.
//!
//! Arrays are shared pointers on the other side, and two kinds of values here. An [`Array`] may be yet to be computed:
//! it is a node of a graph that MLX changes while it computes, on a stream of the thread that made it, so it never leaves
//! that thread. A [`Shared`] one has been computed, or was handed over to be computed ([`Flight`]), and may be shared
//! between threads: the thread that handed it over may go on with it, all others wait until it is there.

#![allow(unsafe_code, reason = "calls into the shim; each block says why it holds")]

mod flight;

pub(crate) use flight::{Flight, Shared, Submitted};

use crate::error::MlxError;
use flight::Home;
use pteron_tensor::{Bytes, DType, HostTensor};
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

/// Compared with what the shim says; see `pteron_mlx.h`.
const ABI: u32 = 2;

#[repr(C)]
struct RawArray {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawFunction {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawFlight {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawArguments {
    arrays: *const *const RawArray,
    array_count: usize,
    ints: *const i64,
    int_count: usize,
    floats: *const f64,
    float_count: usize,
    text: *const c_char,
}

#[repr(C)]
struct RawResults {
    arrays: *mut *mut RawArray,
    capacity: usize,
    count: usize,
}

#[repr(C)]
struct RawData {
    bytes: *const c_void,
    byte_count: usize,
    dtype: i8,
    shape: *const i32,
    rank: usize,
}

#[repr(C)]
#[derive(Default)]
struct RawDevice {
    kind: i32,
    memory_bytes: u64,
    can_compile: i32,
}

type RawTrace =
    unsafe extern "C" fn(*mut c_void, *const *const RawArray, usize, *mut RawResults) -> *mut c_char;
type RawDrop = unsafe extern "C" fn(*mut c_void);

macro_rules! functions {
    ($( $field:ident = $symbol:literal : fn($($argument:ty),*) $(-> $result:ty)?; )*) => {
        /// The shim's functions by name.
        struct Functions { $( $field: unsafe extern "C" fn($($argument),*) $(-> $result)?, )* }

        impl Functions {
            fn resolve(library: &libloading::Library) -> Result<Functions, MlxError> {
                Ok(Functions { $(
                    // SAFETY: the symbol's type is that of its declaration in `pteron_mlx.h`, whose number the
                    // opener compares before it calls anything else.
                    $field: *unsafe { library.get($symbol) }.map_err(|error| MlxError::Open(error.to_string()))?,
                )* })
            }
        }
    };
}

functions! {
    abi = b"pteron_mlx_abi": fn() -> u32;
    version = b"pteron_mlx_version": fn() -> *const c_char;
    text_free = b"pteron_mlx_text_free": fn(*mut c_char);
    device = b"pteron_mlx_device": fn(*mut RawDevice) -> *mut c_char;
    find = b"pteron_mlx_find": fn(*const c_char, *mut u32) -> *mut c_char;
    apply = b"pteron_mlx_apply": fn(u32, *const RawArguments, *mut RawResults) -> *mut c_char;
    copy = b"pteron_mlx_copy": fn(*const RawData, *mut *mut RawArray) -> *mut c_char;
    wrap = b"pteron_mlx_wrap": fn(*const RawData, *mut c_void, RawDrop, *mut *mut RawArray) -> *mut c_char;
    residency = b"pteron_mlx_residency": fn(*const RawArray, *mut *const c_void, *mut usize) -> *mut c_char;
    describe = b"pteron_mlx_describe": fn(*const RawArray, *mut i8, *mut *const i32, *mut usize);
    read = b"pteron_mlx_read": fn(*const RawArray, *mut c_void, usize) -> *mut c_char;
    eval = b"pteron_mlx_eval": fn(*const *const RawArray, usize) -> *mut c_char;
    submit = b"pteron_mlx_submit": fn(*const *const RawArray, usize, *mut *mut RawFlight) -> *mut c_char;
    flight_wait = b"pteron_mlx_flight_wait": fn(*mut RawFlight) -> *mut c_char;
    flight_release = b"pteron_mlx_flight_release": fn(*mut RawFlight);
    land = b"pteron_mlx_land": fn(*const RawArray) -> *mut c_char;
    share = b"pteron_mlx_share": fn(*const RawArray) -> *mut RawArray;
    release = b"pteron_mlx_release": fn(*mut RawArray);
    compile = b"pteron_mlx_compile": fn(RawTrace, *mut c_void, RawDrop, *mut *mut RawFunction) -> *mut c_char;
    call = b"pteron_mlx_call": fn(*const RawFunction, *const *const RawArray, usize, *mut RawResults) -> *mut c_char;
    function_release = b"pteron_mlx_function_release": fn(*mut RawFunction);
}

/// The opened shim. Never closed: MLX keeps threads and static state of its own.
pub(crate) struct Shim {
    functions: Functions,
    _library: libloading::Library,
}

/// What MLX computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    Cpu,
    Metal,
    Cuda,
}

/// The device, as MLX tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) kind: DeviceKind,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) can_compile: bool,
}

/// What a call is given besides arrays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes<'a> {
    pub(crate) ints: &'a [i64],
    pub(crate) floats: &'a [f64],
    pub(crate) text: &'a str,
}

impl Shim {
    /// Opens the shim, and with it MLX.
    pub(crate) fn open(path: &OsStr) -> Result<&'static Shim, MlxError> {
        // SAFETY: loading runs the initialisers of the shim, of MLX and of its BLAS, which are made to be loaded
        // into any process.
        let library =
            unsafe { libloading::Library::new(path) }.map_err(|error| MlxError::Open(error.to_string()))?;
        let functions = Functions::resolve(&library)?;
        // SAFETY: takes nothing and only gives a number.
        let found = unsafe { (functions.abi)() };
        if found != ABI {
            return Err(MlxError::Abi { found, wanted: ABI });
        }
        Ok(Box::leak(Box::new(Shim { functions, _library: library })))
    }

    /// MLX's own version.
    pub(crate) fn version(&self) -> String {
        // SAFETY: gives a pointer to static text.
        unsafe { CStr::from_ptr((self.functions.version)()) }.to_string_lossy().into_owned()
    }

    /// What MLX computes on in this process.
    pub(crate) fn device(&self) -> Result<Device, MlxError> {
        let mut raw = RawDevice::default();
        // SAFETY: `raw` is of the declared layout and outlives the call.
        self.checked(unsafe { (self.functions.device)(&raw mut raw) })?;
        let kind = match raw.kind {
            0 => DeviceKind::Cpu,
            1 => DeviceKind::Metal,
            _ => DeviceKind::Cuda,
        };
        let memory_bytes = Some(raw.memory_bytes).filter(|&bytes| bytes > 0);
        Ok(Device { kind, memory_bytes, can_compile: raw.can_compile != 0 })
    }

    /// The number of a call.
    pub(crate) fn find(&self, name: &str) -> Result<u32, MlxError> {
        let text = CString::new(name).map_err(|_| MlxError::Text)?;
        let mut number = 0;
        // SAFETY: both pointers outlive the call.
        self.checked(unsafe { (self.functions.find)(text.as_ptr(), &raw mut number) })?;
        Ok(number)
    }

    /// Makes a call that gives at most `most` arrays; they come in order.
    pub(crate) fn apply(
        &'static self,
        call: u32,
        arrays: &[Option<&Array>],
        attributes: Attributes<'_>,
        most: usize,
    ) -> Result<Vec<Array>, MlxError> {
        let handles: Vec<*const RawArray> = arrays
            .iter()
            .map(|array| array.map_or(ptr::null(), |array| array.raw.as_ptr().cast_const()))
            .collect();
        let text = CString::new(attributes.text).map_err(|_| MlxError::Text)?;
        let arguments = RawArguments {
            arrays: handles.as_ptr(),
            array_count: handles.len(),
            ints: attributes.ints.as_ptr(),
            int_count: attributes.ints.len(),
            floats: attributes.floats.as_ptr(),
            float_count: attributes.floats.len(),
            text: text.as_ptr(),
        };
        self.collect(most, |results| {
            // SAFETY: the lists outlive the call, their lengths are theirs, and the handles are alive because
            // `arrays` borrows their owners.
            unsafe { (self.functions.apply)(call, &raw const arguments, results) }
        })
    }

    /// Runs a call that fills a list of at most `most` results.
    fn collect(
        &'static self,
        most: usize,
        run: impl Fn(*mut RawResults) -> *mut c_char,
    ) -> Result<Vec<Array>, MlxError> {
        let mut room = vec![ptr::null_mut(); most];
        let mut results = RawResults { arrays: room.as_mut_ptr(), capacity: room.len(), count: 0 };
        self.checked(run(&raw mut results))?;
        let count = results.count;
        Ok(room.into_iter().take(count).filter_map(|raw| self.adopt(raw)).collect())
    }

    /// An array whose only handle is `raw`.
    fn adopt(&'static self, raw: *mut RawArray) -> Option<Array> {
        NonNull::new(raw).map(|raw| Array { raw, shim: self })
    }

    fn adopted(&'static self, raw: *mut RawArray) -> Result<Array, MlxError> {
        self.adopt(raw).ok_or(MlxError::NoMemory)
    }

    /// A copy of host data in memory of MLX's own.
    pub(crate) fn copy(&'static self, tensor: &HostTensor) -> Result<Shared, MlxError> {
        let shape = shape_of(tensor)?;
        let data = raw_data(tensor, &shape);
        let mut out = ptr::null_mut();
        // SAFETY: the data and the shape outlive the call, which copies both.
        self.checked(unsafe { (self.functions.copy)(&raw const data, &raw mut out) })?;
        // MLX makes an array of data as one that is available.
        self.adopted(out).map(Shared::available)
    }

    /// Host data as an array that uses the same memory, where MLX can; it keeps the memory's owner alive.
    pub(crate) fn wrap(&'static self, tensor: &HostTensor) -> Result<Shared, MlxError> {
        let shape = shape_of(tensor)?;
        let data = raw_data(tensor, &shape);
        let owner = Box::into_raw(Box::new(tensor.bytes().clone())).cast();
        let mut out = ptr::null_mut();
        // SAFETY: the shim calls `drop_bytes(owner)` exactly once, when MLX needs the memory no more, and until
        // then the owner keeps the data where it is. MLX does not write to memory that it does not own.
        self.checked(unsafe { (self.functions.wrap)(&raw const data, owner, drop_bytes, &raw mut out) })?;
        self.adopted(out).map(Shared::available)
    }

    /// Computes arrays that stay with the thread that made them, and waits for them.
    pub(crate) fn compute<'a>(&self, arrays: impl Iterator<Item = &'a Array>) -> Result<(), MlxError> {
        let handles: Vec<*const RawArray> = arrays.map(|array| array.raw.as_ptr().cast_const()).collect();
        let home = Home::here();
        home.settle();
        let _alone = home.alone();
        // SAFETY: the iterator borrows the owners of the handles.
        self.checked(unsafe { (self.functions.eval)(handles.as_ptr(), handles.len()) })
    }

    /// A function that MLX traces by `trace` and replays.
    pub(crate) fn compile(&'static self, trace: Box<Trace>) -> Result<Function, MlxError> {
        let context = Box::into_raw(Box::new(Context { trace, shim: self })).cast();
        let mut out = ptr::null_mut();
        // SAFETY: the shim owns the context from here on and drops it by `drop_context` with the function's last
        // holder; `trace_arrays` may be called from any thread, and `Trace` is `Send + Sync`.
        self.checked(unsafe { (self.functions.compile)(trace_arrays, context, drop_context, &raw mut out) })?;
        let raw = NonNull::new(out).ok_or(MlxError::NoMemory)?;
        Ok(Function { raw, shim: self })
    }

    /// Takes the message of a call, if it gave one.
    fn checked(&self, message: *mut c_char) -> Result<(), MlxError> {
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: a message that is not null is text that ends in zero and is ours until we free it, which we do
        // once.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        unsafe { (self.functions.text_free)(message) };
        Err(MlxError::Refused(text))
    }
}

fn shape_of(tensor: &HostTensor) -> Result<Vec<i32>, MlxError> {
    let sizes = tensor.shape().iter().map(|&size| i32::try_from(size));
    sizes.collect::<Result<_, _>>().map_err(|_| MlxError::Size(tensor.shape().to_vec()))
}

fn raw_data(tensor: &HostTensor, shape: &[i32]) -> RawData {
    RawData {
        bytes: tensor.bytes().as_ptr().cast(),
        byte_count: tensor.bytes().len(),
        dtype: tensor.dtype().code(),
        shape: shape.as_ptr(),
        rank: shape.len(),
    }
}

/// Ends what [`Shim::wrap`] kept alive.
unsafe extern "C" fn drop_bytes(owner: *mut c_void) {
    // SAFETY: `owner` came from `Box::into_raw` of this type and is dropped once.
    drop(unsafe { Box::from_raw(owner.cast::<Bytes>()) });
}

/// What a compiled function is traced by: arrays in, arrays out.
pub(crate) type Trace = dyn Fn(Vec<Array>) -> Result<Vec<Array>, String> + Send + Sync;

struct Context {
    trace: Box<Trace>,
    shim: &'static Shim,
}

unsafe extern "C" fn drop_context(context: *mut c_void) {
    // SAFETY: `context` came from `Box::into_raw` of this type and is dropped once.
    drop(unsafe { Box::from_raw(context.cast::<Context>()) });
}

/// Called by MLX while it traces. Neither errors nor panics cross the border other than as text.
unsafe extern "C" fn trace_arrays(
    context: *mut c_void,
    inputs: *const *const RawArray,
    input_count: usize,
    results: *mut RawResults,
) -> *mut c_char {
    // SAFETY: the shim passes the context that it was given, a list of that length and results with room; all of
    // them outlive this call.
    let (context, inputs, results) = unsafe {
        let inputs = if input_count == 0 { &[] } else { std::slice::from_raw_parts(inputs, input_count) };
        (&*context.cast::<Context>(), inputs, &mut *results)
    };
    let traced = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the handles are alive during the call; `share` makes others that we own.
        let shared =
            inputs.iter().map(|&raw| context.shim.adopt(unsafe { (context.shim.functions.share)(raw) }));
        let shared = shared.collect::<Option<Vec<Array>>>().ok_or("out of memory")?;
        let outputs = (context.trace)(shared)?;
        if outputs.len() > results.capacity {
            return Err(format!("{} results of a traced function", outputs.len()));
        }
        Ok(outputs)
    }));
    match traced.unwrap_or_else(|_| Err("a panic while the graph was traced".to_owned())) {
        Ok(outputs) => {
            results.count = outputs.len();
            for (at, output) in outputs.into_iter().enumerate() {
                // SAFETY: `at` is below the capacity of the list.
                unsafe { *results.arrays.add(at) = output.into_raw() };
            }
            ptr::null_mut()
        }
        Err(problem) => message(&problem),
    }
}

/// Text that the shim frees by C's `free`.
fn message(text: &str) -> *mut c_char {
    unsafe extern "C" {
        fn malloc(size: usize) -> *mut c_void;
    }
    let bytes: Vec<u8> = text.bytes().filter(|&byte| byte != 0).chain([0]).collect();
    // SAFETY: C's allocator with the size that is then written; a null pointer is not written to.
    unsafe {
        let copy: *mut u8 = malloc(bytes.len()).cast();
        if !copy.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
        }
        copy.cast()
    }
}

/// One handle of an MLX array, computed or not; it stays on its thread.
pub(crate) struct Array {
    raw: NonNull<RawArray>,
    shim: &'static Shim,
}

/// Does not compile if somebody makes arrays that are yet to be computed `Send` or `Sync`: which of two impls is meant
/// would not be clear then.
const _: () = {
    trait Stays<Which> {
        const HERE: () = ();
    }
    struct Leaves;
    struct IsSeen;
    impl<T> Stays<()> for T {}
    impl<T: Send> Stays<Leaves> for T {}
    impl<T: Sync> Stays<IsSeen> for T {}
    <Array as Stays<_>>::HERE
};

impl Array {
    fn into_raw(self) -> *mut RawArray {
        let raw = self.raw.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// Another handle of the same array.
    pub(crate) fn share(&self) -> Result<Array, MlxError> {
        // SAFETY: our handle is alive.
        let raw = unsafe { (self.shim.functions.share)(self.raw.as_ptr()) };
        self.shim.adopted(raw)
    }

    /// Dtype and dims; `None` for a dtype that programs do not have.
    pub(crate) fn ty(&self) -> Option<(DType, Vec<usize>)> {
        let (mut dtype, mut shape, mut rank) = (0, ptr::null(), 0);
        // SAFETY: our handle is alive, and the shape belongs to its array.
        let shape = unsafe {
            (self.shim.functions.describe)(self.raw.as_ptr(), &raw mut dtype, &raw mut shape, &raw mut rank);
            if rank == 0 { &[] } else { std::slice::from_raw_parts(shape, rank) }
        };
        let shape = shape.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
        Some((DType::from_code(dtype)?, shape))
    }

    /// A copy on the host; computes what is not computed yet.
    pub(crate) fn to_host(&self) -> Result<HostTensor, MlxError> {
        Home::here().settle();
        self.read()
    }

    /// The same where nothing is to be computed: what is there is copied at once, whatever is under way.
    fn read(&self) -> Result<HostTensor, MlxError> {
        let (dtype, shape) = self.ty().ok_or(MlxError::DType)?;
        let mut tensor = HostTensor::zeros(dtype, shape)?;
        let bytes = tensor.bytes_mut();
        let home = Home::here();
        let _alone = home.alone();
        // SAFETY: our handle is alive; the shim writes exactly `bytes.len()` bytes or refuses.
        let message =
            unsafe { (self.shim.functions.read)(self.raw.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len()) };
        self.shim.checked(message)?;
        Ok(tensor)
    }

    /// Where the elements of an evaluated array lie, and how many of their bytes are in main memory.
    fn residency(&self) -> Result<(usize, usize), MlxError> {
        let (mut address, mut resident) = (ptr::null(), 0);
        // SAFETY: our handle is alive; nothing is written but the two results.
        let message = unsafe {
            (self.shim.functions.residency)(self.raw.as_ptr(), &raw mut address, &raw mut resident)
        };
        self.shim.checked(message)?;
        Ok((address as usize, resident))
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: this is the handle's only owner.
        unsafe { (self.shim.functions.release)(self.raw.as_ptr()) };
    }
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ty() {
            Some((dtype, shape)) => write!(f, "{dtype} {shape:?}"),
            None => f.write_str("an array of another dtype"),
        }
    }
}

/// A compiled function.
pub(crate) struct Function {
    raw: NonNull<RawFunction>,
    shim: &'static Shim,
}

// SAFETY: the function is never changed after it was made; what MLX traces belongs to the calling thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Calls it: at most `most` arrays that are yet to be computed.
    pub(crate) fn call(&self, inputs: &[&Array], most: usize) -> Result<Vec<Array>, MlxError> {
        let handles: Vec<*const RawArray> =
            inputs.iter().map(|array| array.raw.as_ptr().cast_const()).collect();
        self.shim.collect(most, |results| {
            // SAFETY: the function and the handles are alive, the list has that length.
            unsafe { (self.shim.functions.call)(self.raw.as_ptr(), handles.as_ptr(), handles.len(), results) }
        })
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: this is the function's only owner.
        unsafe { (self.shim.functions.function_release)(self.raw.as_ptr()) };
    }
}
