//! Models: what they need, opening them, answers without a conversation.

use crate::status::{Status, call, pteron_error};
use crate::text::{User, free, give_json, json, object, optional, place, text};
use pteron_bindings::{
    Event, GenerateOptions, Message, Model, OpenOptions, PieceListener, ProgressListener, PteronError,
    requirements,
};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// A model that is open.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_model(pub(crate) Arc<Model>);

/// Gets more of an answer; whether it shall go on.
pub type Piece = Option<unsafe extern "C" fn(text: *const c_char, length: usize, user: *mut c_void) -> bool>;
/// Told what happens while a model is opened; whether to go on.
pub type Progress = Option<unsafe extern "C" fn(event: *const c_char, user: *mut c_void) -> bool>;

struct Pieces(unsafe extern "C" fn(*const c_char, usize, *mut c_void) -> bool, User);

impl PieceListener for Pieces {
    fn piece(&self, text: String) -> Result<bool, PteronError> {
        let length = text.len();
        // A piece may have a zero byte in it, which the length tells.
        let text = [text.as_bytes(), b"\0"].concat();
        // SAFETY: the caller's own function, with a text that lasts until it is back.
        Ok(unsafe { (self.0)(text.as_ptr().cast(), length, self.1.0) })
    }
}

pub(crate) fn listener(piece: Piece, user: *mut c_void) -> Option<Arc<dyn PieceListener>> {
    let piece = piece?;
    Some(Arc::new(Pieces(piece, User(user))))
}

struct Watch(unsafe extern "C" fn(*const c_char, *mut c_void) -> bool, User);

impl ProgressListener for Watch {
    fn progress(&self, event: Event) -> Result<bool, PteronError> {
        let event = serde_json::to_string(&event).unwrap_or_default();
        let event = CString::new(event).unwrap_or_default();
        // SAFETY: the caller's own function, with a text that lasts until it is back.
        Ok(unsafe { (self.0)(event.as_ptr(), self.1.0) })
    }
}

pub(crate) fn watch(progress: Progress, user: *mut c_void) -> Option<Arc<dyn ProgressListener>> {
    let progress = progress?;
    Some(Arc::new(Watch(progress, User(user))))
}

/// Bytes that a model would need, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_requirements(
    source: *const c_char,
    options: *const c_char,
    out: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(out)?;
        let needs = requirements(text("source", source)?.to_owned(), json("options", options)?)?;
        *out = give_json(&needs)?;
        Ok(())
    })
}

/// Opens a model.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_model_open(
    source: *const c_char,
    options: *const c_char,
    progress: Progress,
    user: *mut c_void,
    model: *mut *mut pteron_model,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(model)?;
        let options: Option<OpenOptions> = json("options", options)?;
        let model = Model::open(text("source", source)?.to_owned(), options, watch(progress, user), None)?;
        *out = Box::into_raw(Box::new(pteron_model(model)));
        Ok(())
    })
}

/// Whether it sees images.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_model_sees(model: *mut pteron_model) -> bool {
    object(model).and_then(|model| model.0.sees()).unwrap_or(false)
}

/// Cancels what is being said with it, waits for that, and disposes of its chats too.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_model_dispose(model: *mut pteron_model) {
    call(null_mut(), || {
        object(model)?.0.dispose();
        Ok(())
    });
}

/// Gives a model back.
///
/// # Safety
/// It is NULL, or was opened here and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_model_free(model: *mut pteron_model) {
    // SAFETY: as the caller promises.
    unsafe { free(model) };
}

/// Answers messages once.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_generate(
    model: *mut pteron_model,
    messages: *const c_char,
    tools: *const c_char,
    options: *const c_char,
    piece: Piece,
    user: *mut c_void,
    answer: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(answer)?;
        let options: Option<GenerateOptions> = json("options", options)?;
        let messages: Vec<Message> = json("messages", messages)?.unwrap_or_default();
        let generation = object(model)?.0.generation(options)?;
        *out = give_json(&generation.respond(
            messages,
            optional("tools", tools)?.map(str::to_owned),
            listener(piece, user),
        )?)?;
        Ok(())
    })
}
