//! One file from one origin, with patience: what breaks is taken up again, what is wrong is begun once more.

use super::incoming::{Sink, already_finished};
use super::{Network, Origin, Wanted};
use crate::store::FileRecord;
use crate::{Error, Event, Listener, Result};
use std::path::Path;
use std::time::Duration;

/// The hub counts requests over five minutes; no pause that it asks for is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Brings a file in, whole and checked.
pub(super) fn transfer(
    origin: &mut dyn Origin,
    wanted: &Wanted,
    from: &str,
    partial: &Path,
    network: &Network,
    listener: Listener<'_>,
) -> Result<FileRecord> {
    if let Some(finished) = already_finished(partial, wanted)? {
        return Ok(finished);
    }
    let mut begun_anew = false;
    loop {
        let mut sink = Sink::open(wanted, from, partial, network, listener)?;
        let poured = pour(origin, wanted, &mut sink, network).map_err(|error| (error, false));
        match poured.and_then(|()| sink.finish()) {
            Ok(record) => return Ok(record),
            // What was there before was damaged, or of another version; the origin may be right.
            Err((_, true)) if !begun_anew => begun_anew = true,
            Err((error, _)) => {
                if !error.is_ours() && !error.is_passing() {
                    origin.discard();
                }
                return Err(error);
            }
        }
    }
}

/// Asks something of a source, and again where it may do better in a moment.
pub(super) fn patiently<T>(
    network: &Network,
    listener: Listener<'_>,
    mut ask: impl FnMut(Listener<'_>) -> Result<T>,
) -> Result<T> {
    let mut failures = 0;
    loop {
        let error = match ask(listener) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        failures += 1;
        let Some(after) = pause(network, failures, &error) else { return Err(error) };
        listener(Event::Retrying { error: &error, after });
        network.rest(after)?;
    }
}

fn pour(origin: &mut dyn Origin, wanted: &Wanted, sink: &mut Sink<'_>, network: &Network) -> Result<()> {
    let mut failures = 0;
    loop {
        // A process may have ended after the last byte and before the check.
        if sink.is_full() {
            return Ok(());
        }
        let (before, resume) = (sink.at(), sink.resume());
        let Err(error) = origin.pour(wanted, &resume, sink) else { return Ok(()) };
        failures = if sink.at() > before { 1 } else { failures + 1 };
        match pause(network, failures, &error) {
            Some(after) => {
                sink.tell(Event::Retrying { error: &error, after });
                network.rest(after)?;
            }
            None => {
                // Bytes of an origin that turned out wrong are nobody's beginning.
                if !error.is_ours() && !error.is_passing() {
                    sink.restart()?;
                }
                return Err(error);
            }
        }
    }
}

/// The pause after so many failures in a row; `None` where another attempt is of no use. A source that names a pause gets
/// it, if that is not too long to wait for.
fn pause(network: &Network, failures: u32, error: &Error) -> Option<Duration> {
    if !error.is_passing() || failures > network.retries {
        return None;
    }
    let own = network.pause * 2u32.pow((failures - 1).min(5));
    let asked = error.wait().unwrap_or_default();
    (asked <= LONGEST_PAUSE).then(|| own.max(asked))
}
