//! Who may be asked to leave when all places for connections are taken: whoever says nothing, or takes its time to say it,
//! the longest first. Whoever is being answered stays, and whoever turns out to have asked for something.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// How long whoever rests is listened to before it leaves: what it has sent may not have been read yet.
const TO_BE_HEARD: Duration = Duration::from_millis(100);

/// The places of a server: who rests, who was asked to leave, who waits.
pub(crate) struct Seats {
    table: Mutex<Table>,
    most: usize,
    /// The last one has gone.
    deserted: Notify,
}

struct Table {
    free: usize,
    /// How often somebody began to rest, or to wait.
    count: u64,
    /// All that are not being answered, the longest so first, but those that were asked to leave.
    resting: BTreeMap<u64, Arc<Notify>>,
    /// Those that were asked to leave and are still there: no more than there are waiting.
    asked: BTreeMap<u64, Arc<Notify>>,
    /// Who waits for a seat, the longest so first. None is told to whom there is nobody to make room for.
    waiting: BTreeMap<u64, oneshot::Sender<Option<Arc<Seat>>>>,
}

impl Table {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn forget(&mut self, count: u64) {
        self.resting.remove(&count);
        self.asked.remove(&count);
    }

    /// Gives what is free to those that wait, and asks as many to leave as still wait: whoever finds a seat otherwise takes
    /// back its asking, or somebody would have to go for nobody.
    fn settle(&mut self, seats: &Arc<Seats>) {
        while self.free > 0
            && let Some((_, waiting)) = self.waiting.pop_first()
        {
            let seat = Seat::new(seats, self);
            // Who waits leaves the queue before it stops listening.
            let _ = waiting.send(Some(seat));
        }
        while self.asked.len() < self.waiting.len()
            && let Some((count, leave)) = self.resting.pop_first()
        {
            leave.notify_one();
            self.asked.insert(count, leave);
        }
        while self.asked.len() > self.waiting.len()
            && let Some((count, leave)) = self.asked.pop_last()
        {
            self.resting.insert(count, leave);
        }
        if self.asked.is_empty() {
            // All that are there are being answered.
            while let Some((_, waiting)) = self.waiting.pop_first() {
                let _ = waiting.send(None);
            }
        }
    }
}

impl Seats {
    pub(crate) fn new(most: usize) -> Arc<Seats> {
        let table = Table {
            free: most,
            count: 0,
            resting: BTreeMap::new(),
            asked: BTreeMap::new(),
            waiting: BTreeMap::new(),
        };
        Arc::new(Seats { table: Mutex::new(table), most, deserted: Notify::new() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Whole after every change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a connection of which nothing has been heard yet, where one is free.
    pub(crate) fn sit(self: &Arc<Seats>) -> Option<Arc<Seat>> {
        let mut table = self.table();
        (table.free > 0).then(|| Seat::new(self, &mut table))
    }

    /// A seat that somebody leaves within a time. None where all are being answered, or nobody left.
    pub(crate) async fn wait(self: &Arc<Seats>, patience: Duration) -> Option<Arc<Seat>> {
        let (seat, mut given) = oneshot::channel();
        // Dropped before what it waits for.
        let _wait = {
            let mut table = self.table();
            let count = table.next();
            table.waiting.insert(count, seat);
            table.settle(self);
            Wait { seats: self, count }
        };
        timeout(patience, &mut given).await.ok()?.ok()?
    }

    /// Waits until nobody sits here.
    pub(crate) async fn deserted(&self) {
        loop {
            let deserted = self.deserted.notified();
            if self.table().free == self.most {
                return;
            }
            deserted.await;
        }
    }
}

/// Somebody who waits, until it does not.
struct Wait<'a> {
    seats: &'a Arc<Seats>,
    count: u64,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut table = self.seats.table();
        if table.waiting.remove(&self.count).is_some() {
            table.settle(self.seats);
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
    /// Takes one that is free, and rests.
    fn new(seats: &Arc<Seats>, table: &mut Table) -> Arc<Seat> {
        table.free -= 1;
        let (leave, count) = (Arc::<Notify>::default(), table.next());
        table.resting.insert(count, leave.clone());
        let place = Mutex::new(Some(Place { count, since: Instant::now() }));
        Arc::new(Seat { seats: seats.clone(), place, leave, unsent: AtomicBool::new(false) })
    }

    /// From here on it may be asked to leave.
    pub(crate) fn rest(&self) {
        let mut place = self.place();
        let mut table = self.seats.table();
        let count = table.next();
        if let Some(old) = place.replace(Place { count, since: Instant::now() }) {
            table.forget(old.count);
        }
        table.resting.insert(count, self.leave.clone());
        table.settle(&self.seats);
    }

    /// From here on it may not.
    pub(crate) fn work(&self) {
        let place = self.place().take();
        if let Some(place) = place {
            let mut table = self.seats.table();
            table.forget(place.count);
            table.settle(&self.seats);
        }
    }

    /// Waits until it has to leave: it was asked to, and has said nothing for long enough. If it has, another one is asked
    /// in its place. The connection has to be polled beside, and before.
    pub(crate) async fn has_to_leave(&self) {
        loop {
            self.leave.notified().await;
            let Some(asked) = self.asked_place() else { continue };
            sleep_until(asked.since + TO_BE_HEARD).await;
            if self.asked_place().is_some_and(|place| place.count == asked.count) {
                return;
            }
        }
    }

    /// Where it stood when it was asked to leave, unless it has been heard since.
    fn asked_place(&self) -> Option<Place> {
        let place = self.place();
        place.filter(|place| self.seats.table().asked.contains_key(&place.count))
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
        let place = self.place().take();
        let mut table = self.seats.table();
        if let Some(place) = place {
            table.forget(place.count);
        }
        table.free += 1;
        table.settle(&self.seats);
        if table.free == self.seats.most {
            self.seats.deserted.notify_waiters();
        }
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
        !is_pending(pin!(seat.leave.notified())) && seat.asked_place().is_some()
    }

    const LONG: Duration = Duration::from_secs(600);

    fn full(most: usize) -> (Arc<Seats>, Vec<Option<Arc<Seat>>>) {
        let seats = Seats::new(most);
        let all: Vec<_> = (0..most).map(|_| seats.sit()).collect();
        assert!(all.iter().all(Option::is_some) && seats.sit().is_none());
        (seats, all)
    }

    fn asked(all: &[Option<Arc<Seat>>]) -> Vec<usize> {
        let asked = |seat: &Option<Arc<Seat>>| seat.as_deref().is_some_and(is_asked);
        (0..all.len()).filter(|at| asked(&all[*at])).collect()
    }

    #[tokio::test]
    async fn whoever_has_rested_the_longest_leaves_and_who_works_stays() {
        let (seats, mut all) = full(4);
        let answer = Working::new(all[0].as_ref().unwrap());
        // Heard of last.
        drop(Working::new(all[1].as_ref().unwrap()));
        for leaving in [2, 3, 1] {
            let mut next = pin!(seats.wait(LONG));
            assert!(is_pending(next.as_mut()));
            assert_eq!(asked(&all), [leaving]);
            all[leaving] = None;
            let sits = next.await.unwrap();
            // Whoever has just come is being answered at once.
            sits.work();
            all.push(Some(sits));
        }
        // There is nobody to ask, until somebody is asked who cannot be heard.
        assert!(seats.wait(LONG).await.is_none());
        drop(answer);
        let mut next = pin!(seats.wait(LONG));
        assert!(is_pending(next.as_mut()));
        assert_eq!(asked(&all), [0]);
        all[0] = None;
        drop((next.await.unwrap(), all));
        // Those that are gone leave nothing behind.
        seats.deserted().await;
        assert!(seats.table().resting.is_empty() && seats.table().asked.is_empty());
    }

    #[tokio::test]
    async fn nobody_has_to_leave_for_one_that_found_a_seat() {
        let (seats, mut all) = full(3);
        // The second goes by itself: the first, asked before, may stay.
        {
            let mut next = pin!(seats.wait(LONG));
            assert!(is_pending(next.as_mut()));
            assert_eq!(asked(&all), [0]);
            all[1] = None;
            all[1] = next.await;
            assert_eq!(seats.table().asked.len(), 0);
        }
        // The same where one that waits goes away.
        {
            let mut next = pin!(seats.wait(LONG));
            assert!(is_pending(next.as_mut()));
            assert_eq!(seats.table().asked.len(), 1);
        }
        assert_eq!(seats.table().asked.len(), 0);
        let first = all[0].clone().unwrap();
        assert!(timeout(TO_BE_HEARD * 3, first.has_to_leave()).await.is_err());
        // It is asked again where it is needed.
        let mut next = pin!(seats.wait(LONG));
        assert!(is_pending(next.as_mut()));
        first.has_to_leave().await;
    }

    #[tokio::test]
    async fn whoever_is_heard_after_it_was_asked_stays_and_the_next_one_leaves() {
        let (seats, all) = full(2);
        let [first, second] = [0, 1].map(|at| all[at].clone().unwrap());
        drop(all);
        let mut next = pin!(seats.wait(LONG));
        assert!(is_pending(next.as_mut()));
        let answer = Working::new(&first);
        tokio::select! {
            biased;
            () = first.has_to_leave() => panic!("it has asked for something"),
            () = second.has_to_leave() => {}
        }
        // One that was answered meanwhile and rests again has been heard too.
        drop((answer, second));
        let third = next.await.unwrap();
        let mut next = pin!(seats.wait(LONG));
        assert!(is_pending(next.as_mut()));
        drop(Working::new(&first));
        tokio::select! {
            biased;
            () = first.has_to_leave() => panic!("it has asked for something"),
            () = third.has_to_leave() => {}
        }
    }
}
