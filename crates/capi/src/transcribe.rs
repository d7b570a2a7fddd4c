//! What is said in sound.

use crate::model::{Progress, watch};
use crate::status::{Status, call, pteron_error};
use crate::text::{User, elements, free, give_json, invalid, json, object, optional, place, text};
use pteron_bindings::{Audio, Heard, LiveSound, PteronError, SoundListener, Transcriber};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// A speech model.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_transcriber(Arc<Transcriber>);

/// Sound that is still being said.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_sound(Arc<LiveSound>);

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

fn listens(found: Found, user: *mut c_void) -> Option<Arc<dyn SoundListener>> {
    found.map(|found| Arc::new(Listens(found, User(user))) as Arc<dyn SoundListener>)
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
            None if samples.is_null() => return Err(invalid("there is neither a file nor samples")),
            None => {
                // SAFETY: as the caller promises.
                let samples = unsafe { elements("samples", samples, count as u64) }?;
                Audio::Samples { samples: samples.to_vec(), rate }
            }
        };
        let listener = listens(found, user);
        *out = give_json(&object(transcriber)?.0.transcribe(audio, json("options", options)?, listener)?)?;
        Ok(())
    })
}

/// Leaves silence out from now on, by a small network that is fetched once.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_transcriber_leave_out_silence(
    transcriber: *mut pteron_transcriber,
    options: *const c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || object(transcriber)?.0.leave_out_silence(json("options", options)?))
}

/// Writes down what is said in a sound while it is being said, until it is finished.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_transcriber_listen(
    transcriber: *mut pteron_transcriber,
    sound: *mut pteron_sound,
    options: *const c_char,
    found: Found,
    user: *mut c_void,
    transcript: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(transcript)?;
        let audio = Audio::Live { sound: object(sound)?.0.clone() };
        let options = json("options", options)?;
        *out = give_json(&object(transcriber)?.0.transcribe(audio, options, listens(found, user))?)?;
        Ok(())
    })
}

/// A sound of so many samples a second, of which nothing has been said yet.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_sound_new(
    rate: u32,
    sound: *mut *mut pteron_sound,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(sound)?;
        *out = Box::into_raw(Box::new(pteron_sound(LiveSound::new(rate)?)));
        Ok(())
    })
}

/// Adds samples to a sound, without waiting for anybody.
///
/// # Safety
/// There are so many samples.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_sound_push(
    sound: *mut pteron_sound,
    samples: *const f32,
    count: usize,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        // SAFETY: as the caller promises.
        let samples = unsafe { elements("samples", samples, count as u64) }?;
        object(sound)?.0.push(samples.to_vec())
    })
}

/// Ends a sound: nothing more is said.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_sound_finish(sound: *mut pteron_sound) {
    call(null_mut(), || {
        object(sound)?.0.finish();
        Ok(())
    });
}

/// Gives a sound back; who hears it goes on until its end.
///
/// # Safety
/// It is NULL, or was made here and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_sound_free(sound: *mut pteron_sound) {
    // SAFETY: as the caller promises.
    unsafe { free(sound) };
}

/// Ends the transcription that is under way, from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_transcriber_stop(transcriber: *mut pteron_transcriber) {
    call(null_mut(), || {
        object(transcriber)?.0.stop();
        Ok(())
    });
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
