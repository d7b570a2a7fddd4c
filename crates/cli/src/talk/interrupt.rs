//! The interrupt key stops the answer; pressed again while nothing listens, the program.

use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The status of a process that an interrupt ended, as shells have it.
const INTERRUPTED: i32 = 130;

/// A flag that the interrupt key sets.
pub(crate) fn listen() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    let handler = move || {
        if set.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED);
        }
    };
    ctrlc::set_handler(handler)
        .map_err(|error| Failure::new(format!("cannot listen to the interrupt key: {error}")))?;
    Ok(flag)
}
