//! The interrupt key stops the answer; pressed again while nothing listens, the program.

use crate::failure::{Failure, INTERRUPTED};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that the interrupt key sets.
pub(crate) fn listen() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    let handler = move || {
        if set.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    ctrlc::set_handler(handler)
        .map_err(|error| Failure::new(format!("cannot listen to the interrupt key: {error}")))?;
    Ok(flag)
}
