//! Sound that is still being said: a microphone pushes it in on one thread, a transcriber hears it on another.

use crate::error::{PteronError, Result};
use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a transcriber that waits for sound does not look whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Sound that nobody has heard yet, at most: where nobody hears it, it would fill the memory.
const UNHEARD_SECONDS: usize = 600;

/// Sound that is still being said, as a microphone gives it: one channel, piece by piece, until it is finished.
#[derive(Debug, uniffi::Object)]
pub struct LiveSound {
    rate: u32,
    unheard: Mutex<Unheard>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Unheard {
    samples: VecDeque<f32>,
    is_finished: bool,
}

#[uniffi::export]
impl LiveSound {
    /// A sound of so many samples a second, of which nothing has been said yet.
    #[uniffi::constructor]
    pub fn new(rate: u32) -> Result<Arc<LiveSound>, PteronError> {
        if rate == 0 {
            return Err(PteronError::Invalid { reason: "a sound of no samples a second".to_owned() });
        }
        Ok(Arc::new(LiveSound { rate, unheard: Mutex::default(), changed: Condvar::new() }))
    }

    /// Adds samples between -1 and 1; from any thread, and without waiting for anybody.
    pub fn push(&self, samples: Vec<f32>) -> Result<(), PteronError> {
        let mut unheard = self.lock();
        if unheard.is_finished {
            return Err(PteronError::Invalid { reason: "the sound is finished".to_owned() });
        }
        let most = (self.rate as usize).saturating_mul(UNHEARD_SECONDS);
        if samples.len() > most.saturating_sub(unheard.samples.len()) {
            let reason = format!("{UNHEARD_SECONDS} seconds of sound wait for somebody who hears them");
            return Err(PteronError::Invalid { reason });
        }
        unheard.samples.extend(samples);
        self.changed.notify_all();
        Ok(())
    }

    /// Nothing more is said.
    pub fn finish(&self) {
        self.lock().is_finished = true;
        self.changed.notify_all();
    }
}

impl LiveSound {
    fn lock(&self) -> MutexGuard<'_, Unheard> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a transcriber hears, until it is finished or nobody wants it any more.
    pub(crate) fn heard(self: &Arc<LiveSound>, cancel: &pteron::Cancel) -> pteron::Audio {
        let format = pteron::RawFormat { kind: pteron::SampleKind::F32, rate: self.rate, channels: 1 };
        let hearing = Hearing { sound: self.clone(), cancel: cancel.clone(), begun: VecDeque::new() };
        pteron::Audio::Stream(Box::new(hearing), format)
    }
}

/// The bytes of samples, as they come.
struct Hearing {
    sound: Arc<LiveSound>,
    cancel: pteron::Cancel,
    /// What is left of a sample of which somebody read a part.
    begun: VecDeque<u8>,
}

impl Read for Hearing {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut unheard = self.sound.lock();
        while self.begun.is_empty() && unheard.samples.is_empty() && !unheard.is_finished {
            if self.cancel.is_cancelled() {
                return Ok(0);
            }
            let waited = self.sound.changed.wait_timeout(unheard, LOOK);
            (unheard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let wanted = out.len().saturating_sub(self.begun.len()).div_ceil(size_of::<f32>());
        let count = wanted.min(unheard.samples.len());
        self.begun.extend(unheard.samples.drain(..count).flat_map(f32::to_le_bytes));
        drop(unheard);
        self.begun.read(out)
    }
}
