//! Conversations.

use crate::model::{Piece, listener, pteron_model};
use crate::status::{Status, call, pteron_error};
use crate::text::{elements, free, give_json, json, object, place, text};
use pteron_bindings::Chat;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// A conversation.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_chat(Arc<Chat>);

/// A conversation with a model.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_new(
    model: *mut pteron_model,
    options: *const c_char,
    chat: *mut *mut pteron_chat,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(chat)?;
        let chat = object(model)?.0.chat(json("options", options)?)?;
        *out = Box::into_raw(Box::new(pteron_chat(chat)));
        Ok(())
    })
}

/// Asks something.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_send(
    chat: *mut pteron_chat,
    asked: *const c_char,
    options: *const c_char,
    piece: Piece,
    user: *mut c_void,
    answer: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(answer)?;
        let (chat, options) = (&object(chat)?.0, json("options", options)?);
        let answer = chat.send(text("text", asked)?.to_owned(), options, listener(piece, user))?;
        *out = give_json(&answer)?;
        Ok(())
    })
}

/// Gives the model what a tool has found.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_send_result(
    chat: *mut pteron_chat,
    found: *const c_char,
    piece: Piece,
    user: *mut c_void,
    answer: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(answer)?;
        let found = text("found", found)?.to_owned();
        *out = give_json(&object(chat)?.0.send_result(found, listener(piece, user))?)?;
        Ok(())
    })
}

/// Stops the answer that is being given.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_stop(chat: *mut pteron_chat) {
    call(null_mut(), || {
        object(chat)?.0.stop();
        Ok(())
    });
}

/// Everything that was said, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_history(
    chat: *mut pteron_chat,
    out: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(out)?;
        *out = give_json(&object(chat)?.0.history()?)?;
        Ok(())
    })
}

/// Goes back until so many turns are left.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_rewind(
    chat: *mut pteron_chat,
    turns: u64,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || object(chat)?.0.rewind(turns))
}

/// Another conversation that goes on from here.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_fork(
    chat: *mut pteron_chat,
    fork: *mut *mut pteron_chat,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(fork)?;
        *out = Box::into_raw(Box::new(pteron_chat(object(chat)?.0.fork()?)));
        Ok(())
    })
}

/// Writes the conversation to a file.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_save(
    chat: *mut pteron_chat,
    path: *const c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || object(chat)?.0.save(text("path", path)?.to_owned()))
}

/// Goes on with a conversation in a file.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_restore(
    chat: *mut pteron_chat,
    path: *const c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || object(chat)?.0.restore(text("path", path)?.to_owned()).map(drop))
}

/// Shows the model an image with the next question.
///
/// # Safety
/// There are so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_chat_show(
    chat: *mut pteron_chat,
    image: *const c_void,
    bytes: usize,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        // SAFETY: as the caller promises.
        let image = unsafe { elements("the image", image.cast::<u8>(), bytes as u64) }?;
        object(chat)?.0.show(image.to_vec())
    })
}

/// Tokens that the caches hold, and can hold.
///
/// # Safety
/// Each of the two places is NULL, or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_chat_cache_state(
    chat: *mut pteron_chat,
    position: *mut u64,
    capacity: *mut u64,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let state = object(chat)?.0.cache_state()?;
        let places = [(position, state.position), (capacity, state.capacity.unwrap_or(0))];
        for (place, value) in places.into_iter().filter(|(place, _)| !place.is_null()) {
            // SAFETY: as the caller promises.
            unsafe { place.write(value) };
        }
        Ok(())
    })
}

/// Cancels the answer that is being given, waits for its end, and gives the caches back.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_chat_dispose(chat: *mut pteron_chat) {
    call(null_mut(), || {
        object(chat)?.0.dispose();
        Ok(())
    });
}

/// Gives a conversation back.
///
/// # Safety
/// It is NULL, or was made here and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_chat_free(chat: *mut pteron_chat) {
    // SAFETY: as the caller promises.
    unsafe { free(chat) };
}
