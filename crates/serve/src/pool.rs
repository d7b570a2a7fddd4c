//! Models that are loaded: on demand, each once however many ask for it, and dropped again by least use where memory is
//! short, or when nobody has asked for a while.
//!
//! Names flow in, models that stay as long as somebody uses them flow out. The lock is held for looking things up only:
//! a model loads on a thread of its own, and whoever asks for another one is not kept waiting.

use crate::keep::KeepAlive;
use crate::models::{Loaded, Model, Models, OpenError, Served};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Where a model stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unloaded,
    Loading,
    Loaded,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Unloaded => "unloaded",
            State::Loading => "loading",
            State::Loaded => "loaded",
        }
    }
}

/// A model that is open, as a list shows it.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) loaded: Loaded,
    /// When it will be dropped; `None` while it is used, or where it stays.
    pub(crate) expires: Option<Instant>,
}

type Outcome = Result<Loaded, OpenError>;

/// A model that is loading or loaded.
struct Entry {
    /// What came of loading it, once it is known.
    outcome: watch::Receiver<Option<Outcome>>,
    /// Tells this loading of a model from the next.
    number: u64,
    /// Bytes that it holds, or is expected to.
    bytes: u64,
    users: usize,
    used: Instant,
    keep: KeepAlive,
}

impl Entry {
    fn loaded(&self) -> Option<Loaded> {
        self.outcome.borrow().as_ref().and_then(|outcome| outcome.as_ref().ok().cloned())
    }

    fn expires(&self) -> Option<Instant> {
        match self.keep {
            KeepAlive::For(time) if self.users == 0 && self.loaded().is_some() => self.used.checked_add(time),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Entries {
    all: HashMap<String, Entry>,
    numbers: u64,
}

/// The models of a server.
pub(crate) struct Pool {
    models: Arc<dyn Models>,
    /// Bytes that all of them may hold.
    memory: u64,
    keep: KeepAlive,
    entries: Mutex<Entries>,
    /// Somebody has stopped using a model.
    freed: Notify,
}

/// A model that stays as long as this does.
pub(crate) struct Held {
    pub(crate) loaded: Loaded,
    _user: User,
}

/// Counts as one who uses a model.
struct User {
    pool: Arc<Pool>,
    name: String,
    number: u64,
}

impl Drop for User {
    fn drop(&mut self) {
        let mut entries = self.pool.entries();
        if let Some(entry) = entries.all.get_mut(&self.name).filter(|entry| entry.number == self.number) {
            entry.users -= 1;
            entry.used = Instant::now();
        }
        drop(entries);
        self.pool.drop_expired();
        self.pool.freed.notify_one();
    }
}

impl Pool {
    pub(crate) fn new(models: Arc<dyn Models>, memory: u64, keep: KeepAlive) -> Arc<Pool> {
        let (entries, freed) = (Mutex::default(), Notify::new());
        Arc::new(Pool { models, memory, keep, entries, freed })
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Entries are whole after every change.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn list(&self) -> Vec<Served> {
        self.models.list()
    }

    /// A model in the list; a name may have the tag that some clients put behind every one.
    pub(crate) fn find(&self, name: &str) -> Option<Served> {
        let list = self.list();
        let named = |name: &str| list.iter().find(|served| served.name == name).cloned();
        named(name).or_else(|| named(name.strip_suffix(":latest")?))
    }

    pub(crate) fn state(&self, name: &str) -> State {
        match self.entries().all.get(name) {
            None => State::Unloaded,
            Some(entry) if entry.loaded().is_some() => State::Loaded,
            Some(_) => State::Loading,
        }
    }

    /// Those that are open, by name.
    pub(crate) fn opened(&self) -> Vec<Opened> {
        let entries = self.entries();
        let opened = entries.all.iter().filter_map(|(name, entry)| {
            Some(Opened { name: name.clone(), loaded: entry.loaded()?, expires: entry.expires() })
        });
        let mut opened: Vec<Opened> = opened.collect();
        opened.sort_by(|one, other| one.name.cmp(&other.name));
        opened
    }

    /// The language models among them.
    pub(crate) fn talking(&self) -> Vec<Arc<Model>> {
        let talking = |opened: Opened| match opened.loaded {
            Loaded::Talks(model) => Some(model),
            Loaded::Hears(_) | Loaded::Embeds(_) => None,
        };
        self.opened().into_iter().filter_map(talking).collect()
    }

    /// A model by name, loaded if it is not; `keep` changes how long it stays.
    pub(crate) async fn open(
        self: &Arc<Pool>,
        name: &str,
        keep: Option<KeepAlive>,
    ) -> Result<Held, OpenError> {
        let name = self.find(name).ok_or(OpenError::Unknown)?.name;
        let (user, mut outcome, sender) = self.enter(name, keep);
        if let Some(sender) = sender {
            let (pool, name, number) = (self.clone(), user.name.clone(), user.number);
            let load = move || pool.load(&name, number, &sender);
            let thread = std::thread::Builder::new().name("loader".to_owned()).spawn(load);
            if let Err(error) = thread {
                self.leave(&user.name, user.number);
                return Err(OpenError::Failed(error.to_string()));
            }
        }
        let known = loop {
            let known = outcome.borrow_and_update().clone();
            if known.is_some() || outcome.changed().await.is_err() {
                break known;
            }
        };
        let loaded = known.unwrap_or_else(|| {
            // Whoever loaded it has panicked.
            self.leave(&user.name, user.number);
            Err(OpenError::Failed("loading it came to no end".to_owned()))
        });
        Ok(Held { loaded: loaded?, _user: user })
    }

    /// Loads a model on this thread, where it is not loaded yet.
    pub(crate) fn load_now(self: &Arc<Pool>, name: &str) -> Result<(), OpenError> {
        let name = self.find(name).ok_or(OpenError::Unknown)?.name;
        match self.enter(name, None) {
            (user, outcome, Some(sender)) => {
                self.load(&user.name, user.number, &sender);
                let known = outcome.borrow().clone();
                known.unwrap_or(Err(OpenError::Unknown)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// One more user of a model, and what will come of loading it; the sender is for whoever has to load it.
    #[allow(clippy::type_complexity)] // three things that are taken apart at once
    fn enter(
        self: &Arc<Pool>,
        name: String,
        keep: Option<KeepAlive>,
    ) -> (User, watch::Receiver<Option<Outcome>>, Option<watch::Sender<Option<Outcome>>>) {
        let mut entries = self.entries();
        entries.numbers += 1;
        let number = entries.numbers;
        let mut fresh = None;
        let entry = entries.all.entry(name.clone()).or_insert_with(|| {
            let (sender, outcome) = watch::channel(None);
            fresh = Some(sender);
            Entry { outcome, number, bytes: 0, users: 0, used: Instant::now(), keep: self.keep }
        });
        entry.users += 1;
        entry.keep = keep.unwrap_or(entry.keep);
        let user = User { pool: self.clone(), name, number: entry.number };
        (user, entry.outcome.clone(), fresh)
    }

    /// Loads a model, once there is room for it, and tells whoever waits.
    fn load(&self, name: &str, number: u64, sender: &watch::Sender<Option<Outcome>>) {
        let needs = self.models.needs(name).unwrap_or(0);
        let outcome = self.make_room(name, needs).and_then(|()| self.models.load(name));
        match &outcome {
            Ok(loaded) => {
                if let Some(entry) = self.entries().all.get_mut(name) {
                    entry.bytes = loaded.bytes().max(needs);
                }
                tracing::info!(model = name, "loaded");
            }
            Err(error) => {
                tracing::warn!(model = name, %error, "not loaded");
                self.leave(name, number);
            }
        }
        sender.send_replace(Some(outcome));
        // Whoever asked for it may be gone.
        self.drop_expired();
        self.freed.notify_one();
    }

    /// Forgets a loading that came to nothing.
    fn leave(&self, name: &str, number: u64) {
        let mut entries = self.entries();
        if entries.all.get(name).is_some_and(|entry| entry.number == number) {
            entries.all.remove(name);
        }
    }

    /// Drops the least used models until another has room.
    fn make_room(&self, name: &str, needed: u64) -> Result<(), OpenError> {
        if needed > self.memory {
            return Err(OpenError::TooLarge { needed, most: self.memory });
        }
        let mut gone = Vec::new();
        let mut entries = self.entries();
        let outcome = loop {
            let others = entries.all.iter().filter(|(other, _)| *other != name);
            let held = others.map(|(_, entry)| entry.bytes).fold(0, u64::saturating_add);
            let free = self.memory.saturating_sub(held);
            if needed <= free {
                if let Some(entry) = entries.all.get_mut(name) {
                    entry.bytes = needed;
                }
                break Ok(());
            }
            let unused = entries.all.iter().filter(|(_, entry)| entry.users == 0 && entry.loaded().is_some());
            let oldest = unused.min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone());
            match oldest.and_then(|oldest| entries.all.remove_entry(&oldest)) {
                Some(entry) => gone.push(entry),
                None => break Err(OpenError::NoRoom { needed, free, most: self.memory }),
            }
        };
        drop(entries);
        gone.into_iter().for_each(close);
        outcome
    }

    /// Drops a model as soon as nobody uses it.
    pub(crate) fn expire(&self, name: &str) {
        if let Some(entry) = self.entries().all.get_mut(name) {
            entry.keep = KeepAlive::For(Duration::ZERO);
        }
        self.drop_expired();
    }

    /// Drops what nobody has used for as long as it was to stay.
    fn drop_expired(&self) {
        let now = Instant::now();
        let is_over = |entry: &Entry| entry.expires().is_some_and(|end| end <= now);
        let gone: Vec<_> = self.entries().all.extract_if(|_, entry| is_over(entry)).collect();
        gone.into_iter().for_each(close);
    }

    /// Drops models when their time has come, for as long as the server runs.
    pub(crate) async fn watch(self: Arc<Pool>) {
        loop {
            let next = self.entries().all.values().filter_map(Entry::expires).min();
            match next {
                None => self.freed.notified().await,
                Some(end) => tokio::select! {
                    () = self.freed.notified() => {}
                    () = tokio::time::sleep_until(end.into()) => {}
                },
            }
            self.drop_expired();
        }
    }

    /// No model takes more requests.
    pub(crate) fn close(&self) {
        self.opened().iter().for_each(|opened| opened.loaded.close());
    }
}

fn close((name, entry): (String, Entry)) {
    tracing::info!(model = name, "dropped");
    if let Some(loaded) = entry.loaded() {
        loaded.close();
    }
}
