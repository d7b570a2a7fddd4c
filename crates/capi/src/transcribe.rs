//! What is said in sound.

use crate::model::{Progress, watch};
use crate::status::{Status, call, pteron_error};
use crate::text::{User, free, give_json, invalid, json, object, optional, place, text};
use pteron_bindings::{Audio, Heard, PteronError, SoundListener, Transcriber};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// A speech model.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_transcriber(Arc<Transcriber>);

/// Told what is found in a sound, as JSON; whether to go on.
pub type Found = Option<unsafe extern "C" fn(event: *const c_char, user: *mut c_void) -> bool>;

struct Listens(unsafe extern "C" fn(*const c_char, *mut c_void) -> bool, User);

impl SoundListener for Listens {
    fn heard(&self, event: Heard) -> Result<bool, PteronError> {
        let event = serde_json::to_string(&event).unwrap_or_default();
        let event = CString::new(event).unwrap_or_default();
        // SAFETY: the caller's own function, with a text that lasts until it is back.
        Ok(unsafe { (self.0)(event.as_ptr(), self.1.0) })
    }
}

/// Opens a speech model.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_transcriber_open(
    source: *const c_char,
    options: *const c_char,
    progress: Progress,
    user: *mut c_void,
    transcriber: *mut *mut pteron_transcriber,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(transcriber)?;
        let (source, options) = (text("source", source)?.to_owned(), json("options", options)?);
        let transcriber = Transcriber::open(source, options, watch(progress, user), None)?;
        *out = Box::into_raw(Box::new(pteron_transcriber(transcriber)));
        Ok(())
    })
}

/// Writes down what is said in a file, or in samples where no file is named.
///
/// # Safety
/// There are so many samples.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_transcriber_transcribe(
    transcriber: *mut pteron_transcriber,
    path: *const c_char,
    samples: *const f32,
    count: usize,
    rate: u32,
    options: *const c_char,
    found: Found,
    user: *mut c_void,
    transcript: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(transcript)?;
        let audio = match optional("path", path)? {
            Some(path) => Audio::File { path: path.to_owned() },
            None if samples.is_null()
                || !samples.is_aligned()
                || count > isize::MAX as usize / size_of::<f32>() =>
            {
                return Err(invalid("there is neither a file nor samples"));
            }
            // SAFETY: not NULL, aligned, of a size that memory has, and there as the caller promises.
            None => Audio::Samples {
                samples: unsafe { std::slice::from_raw_parts(samples, count) }.to_vec(),
                rate,
            },
        };
        let listener = found.map(|found| Arc::new(Listens(found, User(user))) as Arc<dyn SoundListener>);
        *out = give_json(&object(transcriber)?.0.transcribe(audio, json("options", options)?, listener)?)?;
        Ok(())
    })
}

/// Cancels the transcription that is under way, waits for its end, and gives the memory back.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_transcriber_dispose(transcriber: *mut pteron_transcriber) {
    call(null_mut(), || {
        object(transcriber)?.0.dispose();
        Ok(())
    });
}

/// Gives a speech model back.
///
/// # Safety
/// It is NULL, or was opened here and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_transcriber_free(transcriber: *mut pteron_transcriber) {
    // SAFETY: as the caller promises.
    unsafe { free(transcriber) };
}
