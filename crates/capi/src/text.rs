//! Texts and pointers at the border: read with a look at what they are, given out to be given back.

use pteron_bindings::PteronError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::{CStr, CString, c_char, c_void};

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Gives a text back.
///
/// # Safety
/// It is NULL, or came from a function here and was not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: such texts were made by `CString::into_raw` in `give_text`.
        drop(unsafe { CString::from_raw(text) });
    }
}

pub(crate) fn invalid(reason: &str) -> PteronError {
    PteronError::Invalid { reason: reason.to_owned() }
}

/// A text of the caller; an error where there is none.
pub(crate) fn text<'t>(name: &str, text: *const c_char) -> Result<&'t str, PteronError> {
    optional(name, text)?.ok_or_else(|| invalid(&format!("`{name}` is NULL")))
}

/// A text of the caller, or none.
pub(crate) fn optional<'t>(name: &str, text: *const c_char) -> Result<Option<&'t str>, PteronError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the header says that texts end with a zero byte; they are read during the call only.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| invalid(&format!("`{name}` is no UTF-8")))
}

/// What JSON of the caller says; `None` for NULL.
pub(crate) fn json<T: DeserializeOwned>(name: &str, json: *const c_char) -> Result<Option<T>, PteronError> {
    let Some(json) = optional(name, json)? else { return Ok(None) };
    serde_json::from_str(json).map(Some).map_err(|error| invalid(&format!("`{name}`: {error}")))
}

/// Where a result goes: set to nothing at first.
pub(crate) fn place<'p, T>(place: *mut *mut T) -> Result<&'p mut *mut T, PteronError> {
    // SAFETY: the header says that it points to a pointer of the caller, or is NULL.
    let place = unsafe { place.as_mut() }.ok_or_else(|| invalid("the place for the result is NULL"))?;
    *place = std::ptr::null_mut();
    Ok(place)
}

/// A value as JSON, for the caller to give back.
pub(crate) fn give_json(value: &impl Serialize) -> Result<*mut c_char, PteronError> {
    let text =
        serde_json::to_string(value).map_err(|error| PteronError::Run { reason: error.to_string() })?;
    Ok(CString::new(text).map_err(|_| invalid("a zero byte in a text"))?.into_raw())
}

/// An object of the caller; an error where there is none.
pub(crate) fn object<'o, T>(object: *const T) -> Result<&'o T, PteronError> {
    // SAFETY: the header says that it came from a function here and was not given back yet, or is NULL.
    unsafe { object.as_ref() }.ok_or_else(|| invalid("the object is NULL"))
}

/// Numbers of the caller.
///
/// # Safety
/// Where the pointer is neither NULL nor between two of them, there are so many, and they last for the call.
pub(crate) unsafe fn elements<'e, T: Copy>(
    what: &str,
    data: *const T,
    count: u64,
) -> Result<&'e [T], PteronError> {
    let fits = |count: &usize| *count <= isize::MAX as usize / size_of::<T>();
    let count = usize::try_from(count).ok().filter(fits);
    let count = count.ok_or_else(|| invalid(&format!("{what}: more elements than memory has")))?;
    if count == 0 {
        return Ok(&[]);
    }
    if data.is_null() || !data.is_aligned() {
        return Err(invalid(&format!("{what}: a pointer that is NULL, or between two numbers")));
    }
    // SAFETY: not NULL, aligned, of a size that memory has, and there as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// Drops what was given out.
///
/// # Safety
/// It is NULL, or came from `Box::into_raw` and was not given back yet.
pub(crate) unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// What the caller wants its callbacks to be given.
#[derive(Clone, Copy)]
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: it is handed on to callbacks, which the caller promises can take it on the threads that the header names.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}
