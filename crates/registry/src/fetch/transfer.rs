//! One file from one origin, with patience: what breaks is taken up again, what is wrong is begun once more.

use super::incoming::{Sink, already_finished};
use super::{Network, Origin, Wanted};
use crate::store::FileRecord;
use crate::{Event, Listener, Result};
use std::path::Path;

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
        let mut sink = Sink::open(wanted, from, partial, listener)?;
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

fn pour(origin: &mut dyn Origin, wanted: &Wanted, sink: &mut Sink<'_>, network: &Network) -> Result<()> {
    let mut failures = 0;
    loop {
        // A process may have ended after the last byte and before the check.
        if sink.is_full() {
            return Ok(());
        }
        let (before, resume) = (sink.at(), sink.resume());
        match origin.pour(wanted, &resume, sink) {
            Ok(()) => return Ok(()),
            Err(error) if error.is_passing() => {
                failures = if sink.at() > before { 1 } else { failures + 1 };
                if failures > network.retries {
                    return Err(error);
                }
                sink.tell(Event::Retrying { error: &error });
                std::thread::sleep(network.pause * 2u32.pow((failures - 1).min(5)));
            }
            Err(error) => {
                // Bytes of an origin that turned out wrong are nobody's beginning.
                if !error.is_ours() {
                    sink.restart()?;
                }
                return Err(error);
            }
        }
    }
}
