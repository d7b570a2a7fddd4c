//! Who may be asked to leave when all places for connections are taken: whoever says nothing, or takes its time to say it,
//! the longest first. Whoever is being answered stays, and whoever turns out to have asked for something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long whoever rests is listened to before it leaves: what it has sent may not have been read yet.
const TO_BE_HEARD: Duration = Duration::from_millis(100);

/// All connections that are not being answered, the longest so first.
#[derive(Default)]
pub(crate) struct Seats {
    resting: Mutex<Resting>,
    /// Somebody began to rest, or to work, or has gone.
    changed: Notify,
    /// Whoever wants a seat asks for it in turn.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Resting {
    /// How often somebody began to rest.
    count: u64,
    all: BTreeMap<u64, Arc<Notify>>,
    /// Those that were asked to leave and are still there.
    asked: BTreeSet<u64>,
}

impl Resting {
    fn forget(&mut self, count: u64) {
        self.all.remove(&count);
        self.asked.remove(&count);
    }
}

impl Seats {
    fn resting(&self) -> MutexGuard<'_, Resting> {
        // Whole after every change.
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a connection of which nothing has been heard yet.
    pub(crate) fn sit(self: &Arc<Seats>) -> Arc<Seat> {
        let (place, unsent) = (Mutex::default(), AtomicBool::new(false));
        let seat = Seat { seats: self.clone(), place, leave: Arc::default(), unsent };
        seat.rest();
        Arc::new(seat)
    }

    /// Asks the one that has rested the longest to leave; whether there is one.
    pub(crate) async fn make_room(&self) -> bool {
        let _turn = self.turn.lock().await;
        self.ask().await
    }

    async fn ask(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            {
                let mut resting = self.resting();
                if let Some((count, leave)) = resting.all.pop_first() {
                    resting.asked.insert(count);
                    leave.notify_one();
                    return true;
                }
                if resting.asked.is_empty() {
                    return false;
                }
            }
            // All that rest are leaving for others; whoever follows them can be asked.
            changed.await;
        }
    }
}

/// Where one that rests stands among all of them.
#[derive(Clone, Copy)]
struct Place {
    count: u64,
    since: Instant,
}

/// The seat of one connection.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    /// None while it is being answered.
    place: Mutex<Option<Place>>,
    leave: Arc<Notify>,
    /// Whether something is written that its reader has no room for yet.
    unsent: AtomicBool,
}

impl Seat {
    /// From here on it may be asked to leave.
    pub(crate) fn rest(&self) {
        let mut place = self.place();
        let mut resting = self.seats.resting();
        resting.count += 1;
        let count = resting.count;
        if let Some(old) = place.replace(Place { count, since: Instant::now() }) {
            resting.forget(old.count);
        }
        resting.all.insert(count, self.leave.clone());
        drop(resting);
        self.seats.changed.notify_waiters();
    }

    /// From here on it may not.
    pub(crate) fn work(&self) {
        if let Some(place) = self.place().take() {
            self.seats.resting().forget(place.count);
            self.seats.changed.notify_waiters();
        }
    }

    /// Waits until it has to leave: it was asked to, and has said nothing for long enough. If it has, another one is asked
    /// in its place. The connection has to be polled beside, and before.
    pub(crate) async fn has_to_leave(&self) {
        loop {
            self.leave.notified().await;
            if let Some(asked) = self.asked_place() {
                sleep_until(asked.since + TO_BE_HEARD).await;
                if self.asked_place().is_some_and(|place| place.count == asked.count) {
                    return;
                }
            }
            // By itself: this one may be asked again before another is found.
            let seats = self.seats.clone();
            tokio::spawn(async move { seats.ask().await });
        }
    }

    /// Where it stood when it was asked to leave, unless it has been heard since.
    fn asked_place(&self) -> Option<Place> {
        let place = self.place();
        place.filter(|place| self.seats.resting().asked.contains(&place.count))
    }

    /// Notes whether something is left to be sent.
    pub(crate) fn note_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Ordering::Relaxed);
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed)
    }

    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.work();
    }
}

/// Rests again when the answer is over: its last piece has been taken, or nobody wants it any more.
pub(crate) struct Working(Arc<Seat>);

impl Working {
    pub(crate) fn new(seat: &Arc<Seat>) -> Working {
        seat.work();
        Working(seat.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    fn is_pending<T>(future: Pin<&mut impl Future<Output = T>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn is_asked(seat: &Seat) -> bool {
        !is_pending(pin!(seat.leave.notified()))
    }

    #[tokio::test]
    async fn whoever_has_rested_the_longest_leaves_and_who_works_stays() {
        let seats = Arc::new(Seats::default());
        let all: Vec<Arc<Seat>> = (0..4).map(|_| seats.sit()).collect();
        let answer = Working::new(&all[0]);
        // Heard of last.
        drop(Working::new(&all[1]));
        let leaving = async || {
            assert!(seats.make_room().await);
            all.iter().position(|seat| is_asked(seat))
        };
        assert_eq!(leaving().await, Some(2));
        assert_eq!(leaving().await, Some(3));
        assert_eq!(leaving().await, Some(1));
        // They are on their way: whoever wants a seat waits for one that follows.
        {
            let mut next = pin!(leaving());
            assert!(is_pending(next.as_mut()));
            drop(answer);
            assert_eq!(next.await, Some(0));
        }
        // Those that are gone leave nothing behind.
        all[1].rest();
        drop(all);
        assert!(!seats.make_room().await);
    }

    #[tokio::test]
    async fn whoever_is_heard_after_it_was_asked_stays_and_the_next_one_leaves() {
        let seats = Arc::new(Seats::default());
        let [first, second] = [seats.sit(), seats.sit()];
        assert!(seats.make_room().await);
        let answer = Working::new(&first);
        tokio::select! {
            biased;
            () = first.has_to_leave() => panic!("it has asked for something"),
            () = second.has_to_leave() => {}
        }
        // One that was answered meanwhile and rests again has been heard too.
        drop(answer);
        assert!(seats.make_room().await);
        let third = seats.sit();
        drop(Working::new(&first));
        tokio::select! {
            biased;
            () = first.has_to_leave() => panic!("it has asked for something"),
            () = third.has_to_leave() => {}
        }
    }
}
