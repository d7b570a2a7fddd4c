//! The objects of the bindings as WebAssembly: bytes and JSON flow in, JSON flows out, and answers come a step at a time, so
//! that the worker that holds them hears what its page says in between. The package in `bindings/browser` makes of it what
//! apps call. Nothing here knows of pages, workers or storage.

// What wasm-bindgen's macros write reads pointers of JavaScript's.
#![allow(unsafe_code)]

pub mod chat;
pub mod model;
pub mod module;
pub mod store;
pub mod vectors;

use pteron_bindings::PteronError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn error(text: &str);
}

/// Says in the browser's console why the module ended, which its page would only hear of as `unreachable`.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| error(&panic.to_string())));
}

/// What JavaScript gets or catches: an error as JSON.
type Result<T> = std::result::Result<T, JsValue>;

/// What goes wrong, as JSON to be thrown.
fn thrown(error: PteronError) -> JsValue {
    JsValue::from_str(&error.details().to_string())
}

fn invalid(reason: String) -> JsValue {
    thrown(PteronError::Invalid { reason })
}

/// An argument that is JSON.
fn read<T: DeserializeOwned>(what: &str, json: Option<String>) -> Result<Option<T>> {
    let Some(json) = json else { return Ok(None) };
    serde_json::from_str(&json).map(Some).map_err(|error| invalid(format!("{what}: {error}")))
}

/// A result as JSON.
fn told(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| thrown(PteronError::Run { reason: error.to_string() }))
}
