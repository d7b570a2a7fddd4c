//! The interrupt key stops the answer; pressed again while nothing listens, the program.

use crate::failure::{Failure, INTERRUPTED};
use pteron::Cancel;

/// What the interrupt key cancels.
pub(crate) fn listen() -> Result<Cancel, Failure> {
    let cancel = Cancel::default();
    let set = cancel.clone();
    let handler = move || {
        if set.is_cancelled() {
            std::process::exit(i32::from(INTERRUPTED));
        }
        set.cancel();
    };
    ctrlc::set_handler(handler)
        .map_err(|error| Failure::new(format!("cannot listen to the interrupt key: {error}")))?;
    Ok(cancel)
}
