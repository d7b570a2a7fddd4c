//! Arrays that were handed over to be computed: who may touch them meanwhile, who waits for them, and whose an error is.

use super::{Array, RawArray, RawFlight, Shim};
use crate::error::MlxError;
use pteron_tensor::HostTensor;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Flights of a row that may be under way. A token that is read one step late takes four: two steps, and two choices of
/// the likeliest token.
const MOST_UNDER_WAY: usize = 6;

/// What was handed over, with the flight that computes it where something is to be computed.
pub(crate) type Submitted<T> = (T, Option<Arc<Flight>>);

impl Shim {
    /// Hands arrays over to be computed, without a wait: from here on threads may share them. `before` are flights that
    /// they build on, and fail with.
    pub(crate) fn submit(
        &'static self,
        arrays: Vec<Array>,
        before: Vec<Arc<Flight>>,
    ) -> Result<(Vec<Shared>, Arc<Flight>), MlxError> {
        let handles: Vec<*const RawArray> =
            arrays.iter().map(|array| array.raw.as_ptr().cast_const()).collect();
        let home = Home::here();
        let mut raw = ptr::null_mut();
        let message = {
            let _alone = home.alone();
            // SAFETY: `arrays` owns the handles; what they build on is computed, or was handed over by this thread, whose
            // arrays nobody else touches meanwhile.
            unsafe { (self.functions.submit)(handles.as_ptr(), handles.len(), &raw mut raw) }
        };
        self.checked(message)?;
        let raw = NonNull::new(raw).ok_or(MlxError::NoMemory)?;
        let before = Mutex::new(before);
        let flight = Arc::new(Flight { raw, shim: self, home, before, outcome: OnceLock::new() });
        flight.home.add(&flight);
        let shared = arrays.into_iter().map(|array| Shared {
            array,
            flight: Some(flight.clone()),
            landed: AtomicBool::new(false),
        });
        Ok((shared.collect(), flight))
    }
}

/// A thread that hands arrays over. MLX notes in an array itself that it has been computed, whoever first finds out:
/// `looking` is held by whoever makes MLX look at arrays that this thread has handed over.
#[derive(Default)]
pub(crate) struct Home {
    looking: Mutex<()>,
    /// What it has handed over and nobody has waited for yet, in order.
    under_way: Mutex<Vec<Weak<Flight>>>,
}

impl Home {
    /// That of this thread.
    pub(super) fn here() -> Arc<Home> {
        thread_local!(static HOME: Arc<Home> = Arc::default());
        HOME.with(Arc::clone)
    }

    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was handed over, and forgets what has been waited for.
    fn add(&self, flight: &Arc<Flight>) {
        let mut list = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|flight| flight.upgrade().is_some_and(|flight| flight.outcome.get().is_none()));
        list.push(Arc::downgrade(flight));
    }

    /// Flights that nobody has waited for yet, in order, up to one or all of them.
    fn under_way(&self, until: Option<&Flight>) -> Vec<Arc<Flight>> {
        let list = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let flights = list.iter().filter_map(Weak::upgrade);
        flights.take_while(|flight| until.is_none_or(|until| !std::ptr::eq(&**flight, until))).collect()
    }

    /// Waits for all that was handed over, before something is computed with a wait: MLX tells of an error once, to
    /// whoever waits first, and it shall be told to whom it belongs.
    pub(super) fn settle(&self) {
        for flight in self.under_way(None) {
            flight.own_outcome();
        }
    }
}

/// Arrays that were handed over at once.
pub(crate) struct Flight {
    raw: NonNull<RawFlight>,
    shim: &'static Shim,
    home: Arc<Home>,
    /// What it builds on, until it has been waited for.
    before: Mutex<Vec<Arc<Flight>>>,
    /// What came of it, once somebody has waited.
    outcome: OnceLock<Result<(), String>>,
}

// SAFETY: the other side is a list of events, which are counters behind locks; it is changed by the one wait that
// `outcome` lets through, and dropped by whoever holds the flight last.
unsafe impl Send for Flight {}
// SAFETY: as above.
unsafe impl Sync for Flight {}

impl Flight {
    /// Waits until all of it, and all that it builds on, has been computed.
    pub(crate) fn wait(&self) -> Result<(), MlxError> {
        if self.outcome.get().is_none() {
            // They come first on the stream, too.
            for earlier in self.home.under_way(Some(self)) {
                earlier.own_outcome();
            }
        }
        self.own_outcome().clone().map_err(MlxError::Lost)
    }

    fn own_outcome(&self) -> &Result<(), String> {
        self.outcome.get_or_init(|| {
            let before = std::mem::take(&mut *self.before.lock().unwrap_or_else(PoisonError::into_inner));
            for before in before {
                before.own_outcome().clone()?;
            }
            // SAFETY: the handle is ours; no other call has it, because this is run once.
            let message = unsafe { (self.shim.functions.flight_wait)(self.raw.as_ptr()) };
            self.shim.checked(message).map_err(|error| error.to_string())
        })
    }

    /// Whether it is known to have failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.outcome.get(), Some(Err(_)))
    }

    /// How many flights of a row are under way, this one and those that it builds on.
    fn depth(&self) -> usize {
        if self.outcome.get().is_some() {
            return 0;
        }
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).clone();
        1 + before.iter().map(|before| before.depth()).max().unwrap_or(0)
    }

    /// Waits for what it builds on where too many of a row are under way: whoever hands over and never reads is held back.
    pub(crate) fn hold_back(&self) -> Result<(), MlxError> {
        if self.depth() < MOST_UNDER_WAY {
            return Ok(());
        }
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).clone();
        before.iter().try_for_each(|before| before.wait())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // SAFETY: this is the handle's only owner.
        unsafe { (self.shim.functions.flight_release)(self.raw.as_ptr()) };
    }
}

/// An array that has been computed, or is being computed. Only [`Shim::submit`] gives one, and what makes an array out of
/// host data.
pub(crate) struct Shared {
    array: Array,
    /// What computes it; none where it was made of data.
    flight: Option<Arc<Flight>>,
    /// Whether its flight was waited for, and MLX has noted in the array that it is there.
    landed: AtomicBool,
}

// The array's descriptor has no primitive and no inputs: MLX takes them off what it is handed over, and arrays of
// data have none. While it is computed (MLX 0.32: the status "evaluated", and an event), `eval_impl`, `array::wait` and
// `is_available` may write to its status and event: that happens under the lock of the thread that handed it over
// ([`Home`]), which is the only one that computes over it before it has landed; others land it first (`Shared::enter`),
// under the same lock, after they have waited by a copy of the event. From then on its status is "available", which all
// of them look at first, and nothing writes to the descriptor or its elements again. Its memory is donated to a result
// only where descriptor and data have one holder, which a handle keeps from being so. Both are held by
// `std::shared_ptr`, which counts atomically; handles are released by whoever holds the `Shared` last, after all others
// have let go of it, and what a stream still computes with is held by the stream.
//
// SAFETY: all of the above.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// An array of data.
    pub(super) fn available(array: Array) -> Shared {
        Shared { array, flight: None, landed: AtomicBool::new(true) }
    }

    /// The same array as an operand of the thread that has just made it of data.
    pub(crate) fn into_array(self) -> Array {
        self.array
    }

    /// The array as an operand of this thread, which waits for it unless it handed it over itself. Not for keeping
    /// beyond this thread: `Array` sees to that.
    pub(crate) fn enter(&self) -> Result<&Array, MlxError> {
        match &self.flight {
            Some(flight) if !Arc::ptr_eq(&flight.home, &Home::here()) => self.land()?,
            _ => {}
        }
        Ok(&self.array)
    }

    /// The same once more, for who holds on to what was entered.
    pub(crate) fn entered(&self) -> &Array {
        &self.array
    }

    /// Waits until it is there.
    pub(crate) fn land(&self) -> Result<(), MlxError> {
        let Some(flight) = self.flight.as_ref().filter(|_| !self.landed.load(Ordering::Acquire)) else {
            return Ok(());
        };
        flight.wait()?;
        let _alone = flight.home.alone();
        // SAFETY: our handle is alive, and nobody else makes MLX look at the array meanwhile.
        let message = unsafe { (self.array.shim.functions.land)(self.array.raw.as_ptr()) };
        self.array.shim.checked(message)?;
        self.landed.store(true, Ordering::Release);
        Ok(())
    }

    /// What computes it, where that may still be under way.
    pub(crate) fn flight(&self) -> Option<&Arc<Flight>> {
        self.flight.as_ref().filter(|_| !self.landed.load(Ordering::Acquire))
    }

    /// A copy on the host; waits for it.
    pub(crate) fn to_host(&self) -> Result<HostTensor, MlxError> {
        self.land()?;
        self.array.read()
    }

    /// See [`Array::residency`].
    pub(crate) fn residency(&self) -> Result<(usize, usize), MlxError> {
        self.land()?;
        self.array.residency()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.array, f)
    }
}
