//! How a call ended: a number, and an error for the caller where it failed. Nothing is kept by thread: runtimes such as Go's and
//! Node's move calls between threads.

use crate::text::{free, object};
use pteron_bindings::PteronError;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should.
    Ok = 0,
    /// No such file, folder or model.
    NotFound = 1,
    /// It needs more memory than it may have.
    NotEnoughMemory = 2,
    /// Of a kind that cannot be had here.
    Unsupported = 3,
    /// A file is not what it says, or not whole.
    Damaged = 4,
    /// A callback or a flag said so.
    Cancelled = 5,
    /// The text does not fit.
    ContextFull = 6,
    /// An argument makes no sense.
    Invalid = 7,
    /// It could not be fetched.
    Fetch = 8,
    /// The file system refused.
    Storage = 9,
    /// A run failed.
    Run = 10,
    /// Another call uses the object.
    Busy = 11,
    /// The object was disposed of.
    Disposed = 12,
    /// A callback failed.
    Listener = 13,
}

impl Status {
    fn of(error: &PteronError) -> Status {
        match error {
            PteronError::NotFound { .. } => Status::NotFound,
            PteronError::NotEnoughMemory { .. } => Status::NotEnoughMemory,
            PteronError::Unsupported { .. } => Status::Unsupported,
            PteronError::Damaged { .. } => Status::Damaged,
            PteronError::Cancelled => Status::Cancelled,
            PteronError::ContextFull { .. } => Status::ContextFull,
            PteronError::Invalid { .. } => Status::Invalid,
            PteronError::Fetch { .. } => Status::Fetch,
            PteronError::Storage { .. } => Status::Storage,
            PteronError::Run { .. } => Status::Run,
            PteronError::Busy { .. } => Status::Busy,
            PteronError::Disposed { .. } => Status::Disposed,
            PteronError::Listener { .. } => Status::Listener,
        }
    }
}

/// Why a call failed.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_error {
    words: CString,
    /// All there is to tell, as JSON.
    details: CString,
}

/// Does what a function shall do; what goes wrong becomes its status, and an error for the caller who wants one.
pub(crate) fn call(error: *mut *mut pteron_error, act: impl FnOnce() -> Result<(), PteronError>) -> Status {
    // SAFETY: the header says that it points to a pointer of the caller, or is NULL.
    let place = unsafe { error.as_mut() };
    // What is left half done by a panic is an object that its own slot has taken back.
    let done = catch_unwind(AssertUnwindSafe(act));
    let done = done.unwrap_or_else(|_| Err(PteronError::Run { reason: "a panic below".to_owned() }));
    let given = done.as_ref().err().map(|error| {
        let words = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
        let details = CString::new(error.details().to_string()).unwrap_or_default();
        Box::into_raw(Box::new(pteron_error { words, details }))
    });
    match (place, given) {
        (Some(place), given) => *place = given.unwrap_or(null_mut()),
        // SAFETY: nobody has seen it.
        (None, Some(given)) => unsafe { free(given) },
        (None, None) => {}
    }
    done.err().as_ref().map_or(Status::Ok, Status::of)
}

/// What was wrong, in words.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_error_words(error: *const pteron_error) -> *const c_char {
    object(error).map_or(c"".as_ptr(), |error| error.words.as_ptr())
}

/// The same as JSON: its kind, its words, and its numbers where it has some.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_error_json(error: *const pteron_error) -> *const c_char {
    object(error).map_or(c"{}".as_ptr(), |error| error.details.as_ptr())
}

/// Gives an error back.
///
/// # Safety
/// It is NULL, or came from a function here and was not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_error_free(error: *mut pteron_error) {
    // SAFETY: as the caller promises.
    unsafe { free(error) };
}
