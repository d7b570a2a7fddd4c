//! The synchronisation that the pool is made of: the standard library's, or loom's where the protocol is
//! checked.

#[cfg(not(all(loom, test)))]
pub(super) use std::{
    cell::UnsafeCell,
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

#[cfg(all(loom, test))]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

/// Starts a named thread.
#[cfg(not(all(loom, test)))]
pub(super) fn spawn(
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}

/// Starts a thread; loom's have no names.
#[cfg(all(loom, test))]
pub(super) fn spawn(
    _name: String,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<thread::JoinHandle<()>> {
    Ok(thread::spawn(body))
}

/// The guard of a mutex. Nothing panics while holding one, so a poisoned one is as good as any.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits for a notification, or for none at all: callers look again at what they wait for.
pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
}
