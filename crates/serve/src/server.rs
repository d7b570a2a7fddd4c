//! A server: where it listens, what connections may take, and how it ends.

use crate::connection;
use crate::keep::KeepAlive;
use crate::metrics::Metrics;
use crate::models::{Models, OpenError};
use crate::pool::Pool;
use crate::seats::Seats;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Threads that read requests, apply templates and write down what is said.
const HELPERS: usize = 16;
/// Sounds that are heard or wait for it at the same time.
const TRANSCRIPTS: usize = 8;
/// Connections that wait for somebody to leave, and those that are turned away with a word; more are just closed.
const WAITING: usize = 64;
const REFUSALS: usize = 64;
/// How long they wait.
const TO_SIT: Duration = Duration::from_secs(3);

/// What requests and connections may take.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Who may ask; everybody where there is none.
    pub keys: Vec<String>,
    /// Pages of which other places may ask, such as `https://chat.example.org`; `*` stands for all. Without, no page but
    /// this server's own may.
    pub origins: Vec<String>,
    /// Bytes of a request.
    pub longest_body: usize,
    /// Bytes of a request with a sound.
    pub longest_sound: usize,
    /// Until a request has come whole.
    pub to_read: Duration,
    /// Until an answer is given up.
    pub to_answer: Duration,
    /// How long a reader may take nothing of what is there for it, before it is cut off.
    pub to_take: Duration,
    /// Tokens of a stream that may wait for their reader, before it is cut off.
    pub most_unread: usize,
    /// Connections at once. Another one takes the place of the one that has said nothing for the longest; where all are being
    /// answered, it is told to come back later.
    pub connections: usize,
    /// Bytes that all models may hold; the least used are dropped for those that are asked for.
    pub memory: u64,
    /// How long a model stays that nobody uses, where requests do not say it.
    pub keep_alive: KeepAlive,
    /// Until answers are cut off when the server is told to stop.
    pub to_stop: Duration,
    /// Whether what is asked is logged: the bodies of requests.
    pub log_prompts: bool,
    /// Whether the signals that end processes (SIGTERM, SIGINT) stop it.
    pub signals: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keys: Vec::new(),
            origins: Vec::new(),
            longest_body: 16 << 20,
            longest_sound: 64 << 20,
            to_read: Duration::from_secs(30),
            to_answer: Duration::from_secs(600),
            to_take: Duration::from_secs(30),
            most_unread: 1 << 14,
            // Below what systems usually let a process open.
            connections: 512,
            memory: u64::MAX,
            keep_alive: KeepAlive::Forever,
            to_stop: Duration::from_secs(30),
            log_prompts: false,
            signals: false,
        }
    }
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) pool: Arc<Pool>,
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    pub(crate) stopping: AtomicBool,
    /// Whether only this machine can reach it; then other names in requests are somebody's trick.
    pub(crate) local: bool,
    /// Places for those who want something written down.
    pub(crate) transcripts: Arc<Semaphore>,
}

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// Takes no more connections, lets answers come to their end, and ends.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: Stop,
}

impl Server {
    /// Listens at an address; port 0 takes one that is free.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn bind(address: SocketAddr, models: Arc<dyn Models>, options: Options) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let shared = Shared {
            pool: Pool::new(models, options.memory, options.keep_alive),
            options,
            metrics: Metrics::default(),
            stopping: AtomicBool::new(false),
            local: address.ip().is_loopback(),
            transcripts: Arc::new(Semaphore::new(TRANSCRIPTS)),
        };
        let stop = Stop(Arc::new(watch::channel(false).0));
        Ok(Server { listener, shared: Arc::new(shared), stop })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Loads a model before anybody asks for it.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn load(&self, name: &str) -> Result<(), OpenError> {
        self.shared.pool.load_now(name)
    }

    /// The way to stop it.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Answers requests until it is stopped; then the models' queues are drained.
    ///
    /// # Errors
    /// When threads cannot be had or the listener is broken.
    pub fn run(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(HELPERS)
            .thread_name("serve")
            .enable_all()
            .build()?;
        let Server { listener, shared, stop } = self;
        let outcome = runtime.block_on(async {
            tokio::spawn(shared.pool.clone().watch());
            if shared.options.signals {
                tokio::spawn(stop_on_signals(stop.clone()));
            }
            accept(tokio::net::TcpListener::from_std(listener)?, &shared, &stop).await
        });
        shared.pool.close();
        // What is still under way has had its time.
        runtime.shutdown_timeout(Duration::from_secs(1));
        outcome
    }
}

/// Waits until the server is told to stop.
pub(crate) async fn told(stopped: &mut watch::Receiver<bool>) {
    // Where nobody can tell any more, the server is gone too.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// Takes connections until it is stopped, then waits for those that are there.
async fn accept(listener: tokio::net::TcpListener, shared: &Arc<Shared>, stop: &Stop) -> io::Result<()> {
    let seats = Seats::new(shared.options.connections.max(1));
    let [waiting, refusals] = [WAITING, REFUSALS].map(|most| Arc::new(Semaphore::new(most)));
    let mut stopped_now = stop.0.subscribe();
    loop {
        let stream = tokio::select! {
            () = told(&mut stopped_now) => break,
            accepted = listener.accept() => accepted,
        };
        match stream {
            Ok((stream, _)) => {
                let (shared, stopped) = (shared.clone(), stop.0.subscribe());
                if let Some(seat) = seats.sit() {
                    tokio::spawn(connection::serve(stream, shared, seat, stopped));
                    continue;
                }
                // Who comes next waits in the listener's queue: a wait for a seat is short.
                let wait = tokio::select! {
                    () = told(&mut stopped_now) => break,
                    wait = waiting.clone().acquire_owned() => wait,
                };
                let Ok(wait) = wait else { continue };
                let (seats, refusals) = (seats.clone(), refusals.clone());
                tokio::spawn(async move {
                    let seat = seats.wait(TO_SIT).await;
                    drop(wait);
                    if let Some(seat) = seat {
                        connection::serve(stream, shared, seat, stopped).await;
                    } else if let Ok(refusal) = refusals.try_acquire_owned() {
                        connection::refuse(stream).await;
                        drop(refusal);
                    }
                });
            }
            // Of the connection, or for want of file handles: the next may be better.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    shared.stopping.store(true, Ordering::Relaxed);
    if tokio::time::timeout(shared.options.to_stop, seats.deserted()).await.is_err() {
        tracing::warn!("answers were cut off");
    }
    Ok(())
}

#[cfg(unix)]
async fn stop_on_signals(stop: Stop) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut end), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return tracing::warn!("signals cannot be listened for");
    };
    tokio::select! {
        _ = end.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.stop();
}

#[cfg(not(unix))]
async fn stop_on_signals(stop: Stop) {
    if tokio::signal::ctrl_c().await.is_ok() {
        stop.stop();
    }
}
