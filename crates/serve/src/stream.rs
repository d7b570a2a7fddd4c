//! Bodies of replies: whole, or a stream of events that grows with the answer. A stream that is dropped, because its reader
//! has gone, gives its request up.

use crate::answer::Answers;
use crate::error::ApiError;
use crate::pool::Held;
use crate::seats::Working;
use crate::wire::{STILL_THERE, Wire, event};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use pteron_llm::{Event, Ticket};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// How long a stream may say nothing.
const SILENCE: Duration = Duration::from_secs(15);

/// A request that is given up when nobody waits for it any more, and the model that it keeps loaded until then.
pub(crate) struct Wanted {
    ticket: Ticket,
    _held: Held,
}

impl Wanted {
    pub(crate) fn new(ticket: Ticket, held: Held) -> Wanted {
        Wanted { ticket, _held: held }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.ticket.cancel();
    }
}

/// What both ends of a buffer know.
#[derive(Default)]
struct Unread {
    count: AtomicUsize,
    /// Whether there were more than may be.
    overflowed: AtomicBool,
}

/// The scheduler's end of a buffer of events. It never waits: a reader that lets too much pile up is cut off.
pub(crate) struct Teller {
    sender: Option<UnboundedSender<Event>>,
    unread: Arc<Unread>,
    most: usize,
}

impl Teller {
    /// Puts an event into the buffer; whether anybody will take it.
    pub(crate) fn tell(&mut self, event: Event) -> bool {
        let Some(sender) = &self.sender else { return false };
        let is_full = self.unread.count.fetch_add(1, Ordering::Relaxed) >= self.most;
        self.unread.overflowed.fetch_or(is_full, Ordering::Relaxed);
        if is_full || sender.send(event).is_err() {
            self.sender = None;
        }
        self.sender.is_some()
    }
}

/// The reader's end.
pub(crate) struct Events {
    receiver: UnboundedReceiver<Event>,
    unread: Arc<Unread>,
}

/// A buffer of so many events at most.
pub(crate) fn buffer(most: usize) -> (Teller, Events) {
    let (sender, receiver) = unbounded_channel();
    let unread = Arc::<Unread>::default();
    let teller = Teller { sender: Some(sender), unread: unread.clone(), most };
    (teller, Events { receiver, unread })
}

impl Events {
    pub(crate) async fn next(&mut self) -> Result<Event, ApiError> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, ApiError>> {
        self.receiver.poll_recv(context).map(|event| match event {
            Some(event) => {
                self.unread.count.fetch_sub(1, Ordering::Relaxed);
                Ok(event)
            }
            None if self.unread.overflowed.load(Ordering::Relaxed) => {
                let message = "the answer was not read as fast as it was written";
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message).code("slow_reader"))
            }
            None => Err(ApiError::internal("the model has stopped")),
        })
    }
}

/// The body of a reply.
pub(crate) enum ReplyBody {
    Whole(Option<Bytes>),
    Stream(Box<Stream>),
    Told(Box<Relay>),
}

/// Where the events of a relay come from; what it holds is dropped with it.
type Source = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, ApiError>>> + Send>;

/// Events that are passed on as they are, for so long.
pub(crate) struct Relay {
    ready: Option<Bytes>,
    source: Option<Source>,
    ping: Pin<Box<Sleep>>,
    ends: Pin<Box<Sleep>>,
}

impl Relay {
    pub(crate) fn new(first: Bytes, source: Source, ends: Instant) -> Relay {
        let (ping, ends) = (Box::pin(sleep(SILENCE)), Box::pin(sleep_until(ends)));
        Relay { ready: Some(first), source: Some(source), ping, ends }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(bytes) = self.ready.take() {
            return Poll::Ready(Some(bytes));
        }
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        let told = match source(context) {
            Poll::Pending if self.ends.as_mut().poll(context).is_ready() => {
                let message = "the sound took too long to be heard";
                Some(Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)))
            }
            Poll::Pending if self.ping.as_mut().poll(context).is_ready() => Some(Ok(STILL_THERE)),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(told) => told,
        };
        self.ping.as_mut().reset(Instant::now() + SILENCE);
        Poll::Ready(match told {
            Some(Ok(bytes)) => Some(bytes),
            Some(Err(error)) => {
                self.source = None;
                Some(event(&error.json()))
            }
            None => {
                self.source = None;
                None
            }
        })
    }
}

/// The events of one request as they come.
pub(crate) struct Stream {
    events: Events,
    answers: Answers,
    wire: Box<dyn Wire>,
    ready: VecDeque<Bytes>,
    ended: bool,
    ping: Pin<Box<Sleep>>,
    _wanted: Wanted,
}

impl Stream {
    pub(crate) fn new(events: Events, answers: Answers, mut wire: Box<dyn Wire>, wanted: Wanted) -> Stream {
        let ready = wire.begin().into();
        let ping = Box::pin(sleep(SILENCE));
        Stream { events, answers, wire, ready, ended: false, ping, _wanted: wanted }
    }

    fn take(&mut self, told: Result<Event, ApiError>) {
        match told.and_then(|told| self.answers.take(told).map_err(ApiError::from)) {
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
            match self.events.poll(context) {
                Poll::Ready(told) => self.take(told),
                Poll::Pending if self.ping.as_mut().poll(context).is_ready() => {
                    self.ping.as_mut().reset(Instant::now() + SILENCE);
                    self.ready.extend(self.wire.ping());
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
            ReplyBody::Told(relay) => relay.poll(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    /// How long a whole body is, which its head says then.
    fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            ReplyBody::Stream(_) | ReplyBody::Told(_) => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, ReplyBody::Whole(None))
    }
}

/// A body whose connection is at work until all of it has been taken.
pub(crate) struct Answering {
    body: ReplyBody,
    _working: Working,
}

impl Answering {
    pub(crate) fn new(body: ReplyBody, working: Working) -> Answering {
        Answering { body, _working: working }
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
