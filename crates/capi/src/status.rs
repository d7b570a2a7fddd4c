//! How a call ended: a number, and the words of a thread's last failure.

use pteron_bindings::PteronError;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

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

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

pub(crate) fn invalid(reason: &str) -> PteronError {
    PteronError::Invalid { reason: reason.to_owned() }
}

/// Does what a function shall do; what goes wrong becomes its status.
pub(crate) fn call(act: impl FnOnce() -> Result<(), PteronError>) -> Status {
    // What is left half done by a panic is an object that its own slot has taken back.
    let done = catch_unwind(AssertUnwindSafe(act));
    let done = done.unwrap_or_else(|_| Err(PteronError::Run { reason: "a panic below".to_owned() }));
    let Err(error) = done else { return Status::Ok };
    let words = error.to_string().replace('\0', " ");
    LAST.with(|last| *last.borrow_mut() = CString::new(words).unwrap_or_default());
    Status::of(&error)
}

/// What was wrong with this thread's last call that failed.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
