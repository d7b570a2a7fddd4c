//! Any program, on tensors.

use crate::status::{Status, call, pteron_error};
use crate::text::{free, give_json, invalid, json, object, place, text};
use crate::value::{pteron_value, pteron_values, read};
use pteron_bindings::Module;
use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::Arc;

/// A program, loaded.
#[expect(non_camel_case_types, reason = "the name that it has in C")]
pub struct pteron_module(Arc<Module>);

/// Loads a program.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_module_load(
    path: *const c_char,
    options: *const c_char,
    module: *mut *mut pteron_module,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(module)?;
        let module = Module::load(text("path", path)?.to_owned(), vec![], json("options", options)?)?;
        *out = Box::into_raw(Box::new(pteron_module(module)));
        Ok(())
    })
}

/// Runs a method.
///
/// # Safety
/// There are so many inputs, and what they point to is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_module_execute(
    module: *mut pteron_module,
    method: *const c_char,
    inputs: *const pteron_value,
    count: usize,
    outputs: *mut *mut pteron_values,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let out = place(outputs)?;
        if count > 0 && inputs.is_null() {
            return Err(invalid("the inputs are NULL"));
        }
        // SAFETY: as the caller promises.
        let inputs = (0..count).map(|at| unsafe { read(&*inputs.add(at)) });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let outputs = object(module)?.0.execute(text("method", method)?.to_owned(), inputs)?;
        *out = Box::into_raw(Box::new(pteron_values::of(outputs)));
        Ok(())
    })
}

/// What its methods take and give, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_module_methods(
    module: *mut pteron_module,
    out: *mut *mut c_char,
    error: *mut *mut pteron_error,
) -> Status {
    call(error, || {
        let (out, module) = (place(out)?, &object(module)?.0);
        let methods = module.method_names().into_iter().map(|name| module.method_metadata(name));
        *out = give_json(&methods.collect::<Result<Vec<_>, _>>()?)?;
        Ok(())
    })
}

/// Forgets what earlier runs have left.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_module_reset(module: *mut pteron_module, error: *mut *mut pteron_error) -> Status {
    call(error, || object(module)?.0.reset())
}

/// How many results there are.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_values_count(values: *const pteron_values) -> usize {
    object(values).map_or(0, pteron_values::count)
}

/// One of them; nothing where there are not so many.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_values_get(values: *const pteron_values, index: usize) -> pteron_value {
    match object(values) {
        Ok(values) => values.get(index),
        Err(_) => pteron_values::of(vec![]).get(0),
    }
}

/// Gives results back.
///
/// # Safety
/// They are NULL, or came from here and were not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_values_free(values: *mut pteron_values) {
    // SAFETY: as the caller promises.
    unsafe { free(values) };
}

/// Cancels the run that is under way, waits for its end, and gives the memory back.
#[unsafe(no_mangle)]
pub extern "C" fn pteron_module_dispose(module: *mut pteron_module) {
    call(null_mut(), || {
        object(module)?.0.dispose();
        Ok(())
    });
}

/// Gives a module back.
///
/// # Safety
/// It is NULL, or was loaded here and not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pteron_module_free(module: *mut pteron_module) {
    // SAFETY: as the caller promises.
    unsafe { free(module) };
}
