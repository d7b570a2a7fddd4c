//! Who holds a model: the object that was opened, and what was made of it, so that all of it can be given back at once.

use crate::error::{PteronError, Result};
use crate::slot::Dispose;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A model with what was made of it, so that it can be disposed of as a whole.
pub(crate) struct Owner(Mutex<Option<Held>>);

struct Held {
    model: pteron::Model,
    made: Vec<Weak<dyn Dispose>>,
}

impl Owner {
    pub(crate) fn of(model: pteron::Model) -> Arc<Owner> {
        Arc::new(Owner(Mutex::new(Some(Held { model, made: Vec::new() }))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn model(&self) -> Result<pteron::Model> {
        self.lock().as_ref().map(|held| held.model.clone()).ok_or_else(disposed)
    }

    /// Takes note of what was made of the model; an error where that is gone already.
    pub(crate) fn adopt<T: Dispose + 'static>(&self, made: Arc<T>) -> Result<Arc<T>> {
        let mut held = self.lock();
        let held = held.as_mut().ok_or_else(disposed)?;
        held.made.retain(|made| made.strong_count() > 0);
        let weak: Weak<T> = Arc::downgrade(&made);
        held.made.push(weak);
        Ok(made)
    }

    /// Disposes of the model and of all that was made of it.
    pub(crate) fn dispose(&self) {
        let held = self.lock().take();
        for made in held.iter().flat_map(|held| &held.made).filter_map(Weak::upgrade) {
            made.dispose();
        }
    }
}

fn disposed() -> PteronError {
    PteronError::Disposed { what: "model".to_owned() }
}
