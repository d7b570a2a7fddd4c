//! Who uses an object now: one call at a time, lent and given back. A second call is told so, a disposal waits for the first.

use crate::error::{PteronError, Result};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How often a run that shall end is told so. It takes heed between two steps; what it is told before its first is lost.
const REMINDER: Duration = Duration::from_millis(20);

/// What can be disposed of.
pub(crate) trait Dispose: Send + Sync {
    /// Cancels what uses it, waits for that, and gives its memory back.
    fn dispose(&self);
}

/// A place for a value that one call at a time may use.
pub(crate) struct Slot<T> {
    what: &'static str,
    state: Mutex<State<T>>,
    returned: Condvar,
}

enum State<T> {
    Idle(T),
    Lent { to: Option<ThreadId>, is_unwanted: bool },
    Gone,
}

impl<T> Slot<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Arc<Slot<T>> {
        Arc::new(Slot { what, state: Mutex::new(State::Idle(value)), returned: Condvar::new() })
    }

    /// The value for a call on this thread, which may call listeners.
    pub(crate) fn lend(self: &Arc<Slot<T>>) -> Result<Lent<T>> {
        self.lend_to(Some(std::thread::current().id()))
    }

    /// The value for a call on a thread of its own, which calls nobody.
    pub(crate) fn lend_away(self: &Arc<Slot<T>>) -> Result<Lent<T>> {
        self.lend_to(None)
    }

    fn lend_to(self: &Arc<Slot<T>>, to: Option<ThreadId>) -> Result<Lent<T>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Lent { to, is_unwanted: false }) {
            State::Idle(value) => Ok(Lent { slot: self.clone(), value: Some(value) }),
            other => {
                let what = self.what.to_owned();
                let busy = matches!(other, State::Lent { is_unwanted: false, .. });
                *state = other;
                Err(if busy { PteronError::Busy { what } } else { PteronError::Disposed { what } })
            }
        }
    }

    /// Whether nobody wants what a call is doing with it.
    pub(crate) fn is_unwanted(&self) -> bool {
        matches!(*self.lock(), State::Gone | State::Lent { is_unwanted: true, .. })
    }

    /// Drops the value. Where a call uses it, that is cancelled and waited for, unless it is the caller of this: a listener
    /// that disposes of what it listens to.
    pub(crate) fn dispose(&self, cancel: impl Fn()) {
        let mut state = self.lock();
        let caller = std::thread::current().id();
        loop {
            match &mut *state {
                State::Lent { to, is_unwanted } => {
                    *is_unwanted = true;
                    cancel();
                    // Without threads nobody else could come to the end of it: who steps does, at the next step.
                    if *to == Some(caller) || cfg!(target_family = "wasm") {
                        return;
                    }
                    let waited = self.returned.wait_timeout(state, REMINDER);
                    (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                }
                place => {
                    let value = std::mem::replace(place, State::Gone);
                    drop(state);
                    drop(value);
                    return;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Whoever panicked has left a state that is whole: it is replaced at once.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value that is lent; it goes back when this is dropped.
pub(crate) struct Lent<T> {
    slot: Arc<Slot<T>>,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is lent until it is dropped")
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is lent until it is dropped")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let mut state = self.slot.lock();
        if let State::Lent { is_unwanted: true, .. } = *state {
            drop(state);
            // Whoever waits for the end of this shall find the memory given back.
            self.value = None;
            state = self.slot.lock();
            *state = State::Gone;
        } else if let Some(value) = self.value.take() {
            *state = State::Idle(value);
        }
        drop(state);
        self.slot.returned.notify_all();
    }
}
