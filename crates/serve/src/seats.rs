//! Who may be asked to leave when all places for connections are taken: whoever says nothing, or takes its time to say it,
//! the longest first. Whoever is being answered stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All connections that are not being answered, the longest so first.
#[derive(Default)]
pub(crate) struct Seats {
    resting: Mutex<Resting>,
}

#[derive(Default)]
struct Resting {
    /// How often somebody began to rest.
    count: u64,
    all: BTreeMap<u64, Arc<Notify>>,
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
    pub(crate) fn make_room(&self) -> bool {
        let Some((_, leave)) = self.resting().all.pop_first() else { return false };
        leave.notify_one();
        true
    }
}

/// The seat of one connection.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    /// Where it stands among those that rest.
    place: Mutex<Option<u64>>,
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
        if let Some(old) = place.replace(count) {
            resting.all.remove(&old);
        }
        resting.all.insert(count, self.leave.clone());
    }

    /// From here on it may not.
    pub(crate) fn work(&self) {
        if let Some(place) = self.place().take() {
            self.seats.resting().all.remove(&place);
        }
    }

    /// Waits until it is asked to leave.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Notes whether something is left to be sent.
    pub(crate) fn note_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Ordering::Relaxed);
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed)
    }

    fn place(&self) -> MutexGuard<'_, Option<u64>> {
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
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn is_asked(seat: &Seat) -> bool {
        pin!(seat.asked_to_leave()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn whoever_has_rested_the_longest_leaves_and_who_works_stays() {
        let seats = Arc::new(Seats::default());
        let all: Vec<Arc<Seat>> = (0..4).map(|_| seats.sit()).collect();
        let answer = Working::new(&all[0]);
        // Heard of last.
        drop(Working::new(&all[1]));
        let leaving = |seats: &Seats| {
            let room = seats.make_room();
            (room, all.iter().position(|seat| is_asked(seat)))
        };
        assert_eq!(leaving(&seats), (true, Some(2)));
        assert_eq!(leaving(&seats), (true, Some(3)));
        assert_eq!(leaving(&seats), (true, Some(1)));
        assert_eq!(leaving(&seats), (false, None));
        drop(answer);
        assert_eq!(leaving(&seats), (true, Some(0)));
        // Those that are gone leave nothing behind.
        all[1].rest();
        drop(all);
        assert!(!seats.make_room());
    }
}
