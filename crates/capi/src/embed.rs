//! Vectors of texts.

use crate::model::{Progress, watch};
use crate::status::{Status, call, pteron_error};
use crate::text::{free, give_json, json, object, place, text};
use pteron_bindings::Embedder;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// A model that makes vectors of texts.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_embedder(Arc<Embedder>);

/// Opens an encoder.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_embedder_open(
    source: *const c_char,
    options: *const c_char,
    progress: Progress,
    user: *mut c_void,
    embedder: *mut *mut pteron_embedder,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(embedder)?;
        let (source, options) = (text("source", source)?.to_owned(), json("options", options)?);
        let embedder = Embedder::open(source, options, watch(progress, user), None)?;
        *out = Box::into_raw(Box::new(pteron_embedder(embedder)));
        Ok(())
    })
}

/// The vector of each text of a list, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_embedder_embed(
    embedder: *mut pteron_embedder,
    texts: *const c_char,
    vectors: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(vectors)?;
        let texts: Vec<String> = json("texts", texts)?.unwrap_or_default();
        *out = give_json(&object(embedder)?.0.embed(texts)?)?;
        Ok(())
    })
}

/// Waits for what is being computed, and gives the memory back.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_embedder_dispose(embedder: *mut pteron_embedder) {
    call(null_mut(), || {
        object(embedder)?.0.dispose();
        Ok(())
    });
}

/// Gives an encoder back.
///
/// # Safety
/// It is NULL, or was opened here and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_embedder_free(embedder: *mut pteron_embedder) {
    // SAFETY: as the caller promises.
    unsafe { free(embedder) };
}
