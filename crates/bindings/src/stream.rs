//! An answer that is asked for piece by piece: a thread of its own writes it, whoever wants it waits without a thread.

use crate::error::{PteronError, Result};
use crate::message::Answer;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// An answer that is being written. It stops when this is dropped.
#[derive(uniffi::Object)]
pub struct AnswerStream {
    shared: Arc<Shared>,
    stop: Box<dyn Fn() + Send + Sync>,
}

struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<String>,
    ended: Option<Result<Answer>>,
    is_unwanted: bool,
    waker: Option<Waker>,
}

impl State {
    /// What the next caller gets, where there is something.
    fn next(&mut self) -> Option<Result<Option<String>>> {
        match (self.pieces.pop_front(), &self.ended) {
            (Some(piece), _) => Some(Ok(Some(piece))),
            (None, Some(Ok(_))) => Some(Ok(None)),
            (None, Some(Err(error))) => Some(Err(error.clone())),
            (None, None) => None,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.more.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Ends a stream whose thread ends without an answer.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.ended.get_or_insert_with(|| Err(PteronError::run("the answer ended by a panic")));
        });
    }
}

impl AnswerStream {
    /// Lets `answer` run on a thread of its own; it is to end soon after `stop`.
    pub(crate) fn start(
        stop: impl Fn() + Send + Sync + 'static,
        answer: impl FnOnce(&mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<Answer> + Send + 'static,
    ) -> Result<Arc<AnswerStream>> {
        let shared = Arc::new(Shared { state: Mutex::default(), more: Condvar::new() });
        let ending = Ending(shared.clone());
        let run = move || {
            let shared = &ending.0;
            let mut show = |piece: &str| {
                let mut is_unwanted = false;
                shared.change(|state| {
                    is_unwanted = state.is_unwanted;
                    state.pieces.push_back(piece.to_owned());
                });
                if is_unwanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let answered = answer(&mut show);
            shared.change(|state| state.ended = Some(answered));
        };
        std::thread::Builder::new().name("pteron-answer".to_owned()).spawn(run).map_err(PteronError::run)?;
        Ok(Arc::new(AnswerStream { shared, stop: Box::new(stop) }))
    }
}

#[uniffi::export]
impl AnswerStream {
    /// The next piece of text; none at the end. Waits without holding a thread.
    pub async fn next(&self) -> Result<Option<String>, PteronError> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            match state.next() {
                Some(next) => Poll::Ready(next),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The same, for those who may block.
    pub fn wait_next(&self) -> Result<Option<String>, PteronError> {
        let mut state = self.shared.lock();
        loop {
            match state.next() {
                Some(next) => return next,
                None => state = self.shared.more.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The whole answer, once it has ended; none before.
    pub fn answer(&self) -> Result<Option<Answer>, PteronError> {
        self.shared.lock().ended.clone().transpose()
    }

    /// Ends the answer; what was said until then stays.
    pub fn stop(&self) {
        self.shared.lock().is_unwanted = true;
        (self.stop)();
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        let has_ended = self.shared.lock().ended.is_some();
        if !has_ended {
            self.stop();
        }
    }
}
