//! The header says what the library has; C that uses it compiles, runs and finds nothing amiss.

#![allow(clippy::unwrap_used)] // a test may panic
#![allow(unsafe_code)] // what C may do is tried here

use pteron_c::*;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    std::fs::read_to_string(folder().join("include/pteron.h")).unwrap()
}

/// Names that end before a bracket and follow a mark.
fn names<'t>(text: &'t str, mark: &str) -> BTreeSet<&'t str> {
    let name = |rest: &'t str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
    text.split(mark).skip(1).map(name).collect()
}

#[test]
fn the_header_has_every_function_and_no_other() {
    let sources = std::fs::read_dir(folder().join("src")).unwrap();
    let sources: String = sources
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    let exported = names(&sources, "extern \"C\" fn ");
    let text = header();
    // Between the end of a declaration and its bracket; types of callbacks stand in brackets themselves.
    let declared: BTreeSet<&str> = text
        .lines()
        .filter(|line| {
            !line.starts_with([' ', '/', '*']) && !line.starts_with("typedef") && line.contains('(')
        })
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .collect();
    assert!(exported.iter().all(|name| name.is_empty() || name.starts_with("pteron_")), "{exported:?}");
    let exported: BTreeSet<&str> = exported.into_iter().filter(|name| !name.is_empty()).collect();
    assert_eq!(declared, exported);
}

#[test]
fn the_header_numbers_how_calls_end_as_the_library_does() {
    let statuses = [
        ("OK", Status::Ok),
        ("NOT_FOUND", Status::NotFound),
        ("NOT_ENOUGH_MEMORY", Status::NotEnoughMemory),
        ("UNSUPPORTED", Status::Unsupported),
        ("DAMAGED", Status::Damaged),
        ("CANCELLED", Status::Cancelled),
        ("CONTEXT_FULL", Status::ContextFull),
        ("INVALID", Status::Invalid),
        ("FETCH", Status::Fetch),
        ("STORAGE", Status::Storage),
        ("RUN", Status::Run),
        ("BUSY", Status::Busy),
        ("DISPOSED", Status::Disposed),
        ("LISTENER", Status::Listener),
    ];
    let text = header();
    for (name, status) in statuses {
        let number = status as i32;
        let has = |line: &str| {
            let line = line.split([',', '/']).next().unwrap().trim();
            line == format!("PTERON_{name} = {number}")
        };
        assert!(text.lines().any(has), "{name} = {number}");
    }
}

/// Where cargo has put the library for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

#[test]
fn the_example_in_c_compiles_without_warnings_and_runs() {
    let place = tempfile::tempdir().unwrap();
    let talking = pteron::tiny::talking(place.path()).unwrap();
    let silent = pteron::tiny::silent(place.path()).unwrap();
    let example = place.path().join("chat");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg(folder().join("examples/chat.c"))
        .arg("-I")
        .arg(folder().join("include"))
        .arg("-L")
        .arg(library())
        .arg("-lpteron_c")
        .arg(format!("-Wl,-rpath,{}", library().display()))
        .arg("-o")
        .arg(&example)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&example).args([&talking, &silent]).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "there is no file or folder no/such/file.pte");
    assert!(said.contains(" of 512 tokens\n"), "{said}");
    assert!(lines.last().unwrap().starts_with("1 result of 2 dims, the largest at "), "{said}");
}

/// The words of an error, which is given back.
fn words(error: *mut pteron_error) -> String {
    // SAFETY: it came from a call, and its words last until it is given back.
    let words = unsafe { CStr::from_ptr(pteron_error_words(error)) }.to_str().unwrap().to_owned();
    // SAFETY: as above.
    unsafe { pteron_error_free(error) };
    words
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn opened(place: &Path) -> *mut pteron_model {
    let path = text(pteron::tiny::talking(place).unwrap().to_str().unwrap());
    let mut model = null_mut();
    assert_eq!(
        pteron_model_open(path.as_ptr(), null(), None, null_mut(), &mut model, null_mut()),
        Status::Ok
    );
    model
}

#[test]
fn what_c_should_not_hand_over_is_told() {
    let (mut model, mut error) = (null_mut(), null_mut());
    let mut open = |source: *const c_char, options: *const c_char| {
        let status = pteron_model_open(source, options, None, null_mut(), &mut model, &mut error);
        assert!(model.is_null());
        (status, words(error))
    };
    assert_eq!(open(null(), null()), (Status::Invalid, "`source` is NULL".to_owned()));
    assert_eq!(open(c"caf\xe9".as_ptr(), null()), (Status::Invalid, "`source` is no UTF-8".to_owned()));
    let (status, said) = open(c"a.pte".as_ptr(), c"{\"thread\": 1}".as_ptr());
    assert_eq!(status, Status::Invalid);
    assert!(said.contains("unknown field `thread`"), "{said}");
    let nowhere = pteron_model_open(c"a.pte".as_ptr(), null(), None, null_mut(), null_mut(), null_mut());
    assert_eq!(nowhere, Status::Invalid);
    assert_eq!(pteron_chat_new(null_mut(), null(), null_mut(), null_mut()), Status::Invalid);
    assert_eq!(pteron_chat_rewind(null_mut(), 0, null_mut()), Status::Invalid);
    assert_eq!(pteron_values_count(null()), 0);
    assert_eq!(words(null_mut()), "");
    // SAFETY: NULL may be given back.
    unsafe {
        pteron_model_free(null_mut());
        pteron_text_free(null_mut());
    }
}

#[test]
fn errors_have_their_numbers() {
    let place = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::talking(place.path()).unwrap().to_str().unwrap());
    let (mut model, mut error) = (null_mut(), null_mut());
    let limit = c"{\"memory_limit\": 1000}".as_ptr();
    let status = pteron_model_open(path.as_ptr(), limit, None, null_mut(), &mut model, &mut error);
    assert_eq!(status, Status::NotEnoughMemory);
    // SAFETY: it came from the call, and its words last until it is given back.
    let said = unsafe { CStr::from_ptr(pteron_error_json(error)) }.to_str().unwrap().to_owned();
    assert!(said.contains("\"kind\":\"NotEnoughMemory\"") && said.contains("\"limit\":1000"), "{said}");
    words(error);
}

#[test]
fn tensors_of_c_are_looked_at_before_they_are_read() {
    let place = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::silent(place.path()).unwrap().to_str().unwrap());
    let mut module = null_mut();
    assert_eq!(pteron_module_load(path.as_ptr(), null(), &mut module, null_mut()), Status::Ok);
    let (tokens, shape) = ([5i64, 6, 7], [1u64, 3]);
    let good = pteron_value {
        kind: 1,
        dtype: 4,
        rank: 2,
        shape: shape.as_ptr(),
        data: tokens.as_ptr().cast(),
        bytes: 24,
        integer: 0,
        number: 0.0,
    };
    let position = pteron_value { kind: 2, ..good };
    let wrong = [
        pteron_value { kind: 9, ..good },
        pteron_value { dtype: 12, ..good },
        pteron_value { rank: 65, ..good },
        pteron_value { shape: null(), ..good },
        pteron_value { data: null(), ..good },
        pteron_value { bytes: 16, ..good },
        pteron_value { bytes: u64::MAX, ..good },
    ];
    let run = |value: pteron_value| {
        let (inputs, mut outputs) = ([value, position], null_mut());
        // SAFETY: two inputs, which point to what is above or are refused before they are followed.
        let status = unsafe {
            pteron_module_execute(module, c"forward".as_ptr(), inputs.as_ptr(), 2, &mut outputs, null_mut())
        };
        let count = pteron_values_count(outputs);
        // SAFETY: it came from the call, or is NULL.
        unsafe { pteron_values_free(outputs) };
        (status, count)
    };
    assert_eq!(run(good), (Status::Ok, 1));
    for value in wrong {
        assert_eq!(run(value), (Status::Invalid, 0), "{value:?}");
    }
    pteron_module_dispose(module);
    assert_eq!(run(good), (Status::Disposed, 0));
    // SAFETY: loaded above.
    unsafe { pteron_module_free(module) };
}

unsafe extern "C" fn refuses(_: *const c_char, _: usize, user: *mut c_void) -> bool {
    // SAFETY: the count of the test below.
    unsafe { *user.cast::<usize>() += 1 };
    false
}

#[test]
fn a_callback_ends_an_answer_and_disposal_a_chat() {
    let place = tempfile::tempdir().unwrap();
    let model = opened(place.path());
    let (mut chat, mut answer, mut pieces) = (null_mut(), null_mut(), 0usize);
    assert_eq!(
        pteron_chat_new(model, c"{\"answering\": {\"ignore_end\": true}}".as_ptr(), &mut chat, null_mut()),
        Status::Ok
    );
    let user: *mut usize = &mut pieces;
    let send = |answer: &mut *mut c_char| {
        pteron_chat_send(
            chat,
            c"Count to a hundred.".as_ptr(),
            null(),
            Some(refuses),
            user.cast(),
            answer,
            null_mut(),
        )
    };
    assert_eq!(send(&mut answer), Status::Ok);
    // SAFETY: it came from the call above.
    let said = unsafe { CStr::from_ptr(answer) }.to_str().unwrap().to_owned();
    assert!(said.contains("\"finish_reason\":\"cancelled\""), "{said}");
    assert_eq!(pieces, 1);
    // SAFETY: as above.
    unsafe { pteron_text_free(answer) };
    pteron_model_dispose(model);
    assert_eq!(send(&mut answer), Status::Disposed);
    assert!(answer.is_null());
    // SAFETY: both came from here.
    unsafe {
        pteron_chat_free(chat);
        pteron_model_free(model);
    }
}

#[test]
fn live_sound_of_c_is_heard_until_it_is_finished() {
    let place = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::hearing(place.path()).unwrap().to_str().unwrap());
    let options = text(&format!("{{\"home\": \"{}\"}}", place.path().join("home").display()));
    let (mut transcriber, mut sound, mut transcript) = (null_mut(), null_mut(), null_mut());
    let status = pteron_transcriber_open(
        path.as_ptr(),
        options.as_ptr(),
        None,
        null_mut(),
        &mut transcriber,
        null_mut(),
    );
    assert_eq!(status, Status::Ok);
    assert_eq!(pteron_sound_new(0, &mut sound, null_mut()), Status::Invalid);
    assert_eq!(pteron_sound_new(16_000, &mut sound, null_mut()), Status::Ok);
    // SAFETY: there are so many samples, or none is looked at.
    let push = |samples: *const f32, count| unsafe { pteron_sound_push(sound, samples, count, null_mut()) };
    let samples = [0.1f32; 4000];
    assert_eq!(push(null(), 1), Status::Invalid);
    assert_eq!(push(samples.as_ptr(), usize::MAX), Status::Invalid);
    assert!((0..4).all(|_| push(samples.as_ptr(), samples.len()) == Status::Ok));
    pteron_sound_finish(sound);
    assert_eq!(push(samples.as_ptr(), 1), Status::Invalid);
    let listened = pteron_transcriber_listen(
        transcriber,
        sound,
        c"{\"beams\": 1}".as_ptr(),
        None,
        null_mut(),
        &mut transcript,
        null_mut(),
    );
    assert_eq!(listened, Status::Ok);
    // SAFETY: the call has given it.
    let said = unsafe { CStr::from_ptr(transcript) }.to_str().unwrap();
    assert!(said.contains("\"text\":\"A\"") && said.contains("\"duration\":1.0"), "{said}");
    // SAFETY: they came from calls, and are given back once.
    unsafe {
        pteron_text_free(transcript);
        pteron_sound_free(sound);
        pteron_transcriber_free(transcriber);
    }
}
