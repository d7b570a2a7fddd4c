//! Bodies of replies: whole, or a stream of events that grows with the answer. A stream that is dropped, because its reader
//! has gone, gives its request up.

use crate::answer::Answers;
use crate::error::ApiError;
use crate::wire::Wire;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use pteron_llm::{Event, Ticket};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep};

/// How long a stream may say nothing, so that nobody between takes it for dead.
const SILENCE: Duration = Duration::from_secs(15);

/// A request that is given up when nobody waits for it any more.
pub(crate) struct Wanted(pub(crate) Ticket);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The body of a reply.
pub(crate) enum ReplyBody {
    Whole(Option<Bytes>),
    Stream(Box<Stream>),
}

/// The events of one request as they come.
pub(crate) struct Stream {
    // The scheduler writes no more than the answers have tokens, so that what waits here is bounded by them.
    events: UnboundedReceiver<Event>,
    answers: Answers,
    wire: Box<dyn Wire>,
    ready: VecDeque<Bytes>,
    ended: bool,
    ping: Pin<Box<Sleep>>,
    _wanted: Wanted,
}

impl Stream {
    pub(crate) fn new(
        events: UnboundedReceiver<Event>,
        answers: Answers,
        mut wire: Box<dyn Wire>,
        wanted: Wanted,
    ) -> Stream {
        let ready = wire.begin().into();
        let ping = Box::pin(sleep(SILENCE));
        Stream { events, answers, wire, ready, ended: false, ping, _wanted: wanted }
    }

    fn take(&mut self, told: Option<Event>) {
        let taken = match told {
            Some(told) => self.answers.take(told).map_err(ApiError::from),
            None => Err(ApiError::internal("the model has stopped")),
        };
        match taken {
            Ok(pieces) => {
                for piece in pieces {
                    self.ready.extend(self.wire.piece(piece));
                }
                if self.answers.done() {
                    self.ready.extend(self.wire.end(self.answers.usage()));
                    self.ended = true;
                }
            }
            Err(error) => {
                self.ready.extend(self.wire.failed(&error));
                self.ended = true;
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.ping.as_mut().reset(Instant::now() + SILENCE);
                return Poll::Ready(Some(bytes));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.events.poll_recv(context) {
                Poll::Ready(told) => self.take(told),
                Poll::Pending if self.ping.as_mut().poll(context).is_ready() => {
                    self.ready.push_back(Bytes::from_static(b": still there\n\n"));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            ReplyBody::Whole(bytes) => Poll::Ready(bytes.take()),
            ReplyBody::Stream(stream) => stream.poll(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
