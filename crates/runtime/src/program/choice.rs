//! Which backend takes a program where nobody names one: each of the order is asked in turn, and who lacks an op, the memory or
//! the driver leaves it to the next. What is wrong with a file is wrong for all of them.

use crate::registry::Target;
use crate::{Error, Options, Result};

/// A backend that a program is loaded for.
pub(super) struct Choice {
    pub(super) target: Target,
    /// Whether another one takes the program where this one cannot run all of it.
    pub(super) has_next: bool,
}

/// What the backend that is named loads, or the first of the order that can.
pub(super) fn first_that_takes<T>(options: &Options, load: impl Fn(&Choice) -> Result<T>) -> Result<T> {
    if options.backend.is_some() {
        let target = options.registry.resolve(options.backend.as_deref())?;
        return load(&Choice { target, has_next: false });
    }
    let mut targets = options.registry.in_order();
    // The reference backend is there for whoever names it, and where there is nothing else.
    if targets.len() > 1 {
        targets.retain(|target| target.name() != "reference");
    }
    let last = targets.pop();
    for target in targets {
        let choice = Choice { target, has_next: true };
        match load(&choice) {
            Err(error) if !is_of_the_file(&error) => {
                let (backend, device) = (choice.target.name(), &choice.target.device.name);
                tracing::warn!(backend, device, %error, "not taken for this program; the next backend is");
            }
            decided => return decided,
        }
    }
    let target = last.map_or_else(|| options.registry.resolve(None), Ok)?;
    load(&Choice { target, has_next: false })
}

/// Whether every backend would say the same.
fn is_of_the_file(error: &Error) -> bool {
    matches!(
        error,
        Error::Format { .. }
            | Error::Program { .. }
            | Error::ForeignDelegate { .. }
            | Error::UnknownOperator { .. }
            | Error::Limit { .. }
    )
}
