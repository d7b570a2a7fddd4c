//! What is said in sound: sound in, text with times out.

use crate::error::{PteronError, Result};
use crate::live::LiveSound;
use crate::open::{Cancel, OpenOptions, ProgressListener, opening, source};
use crate::slot::Slot;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Sound to be transcribed.
#[derive(Clone, Debug, uniffi::Enum)]
pub enum Audio {
    /// A sound file, of whatever kind its content tells.
    File {
        /// Where it lies.
        path: String,
    },
    /// What such a file holds.
    Encoded {
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Samples of one channel, between -1 and 1.
    Samples {
        /// The samples.
        samples: Vec<f32>,
        /// How many make a second.
        rate: u32,
    },
    /// Sound that is still being said. Where silence is left out, what was said is written down at every pause.
    Live {
        /// Where it is pushed in.
        sound: Arc<LiveSound>,
    },
}

impl Audio {
    fn facade(self, cancel: &pteron::Cancel) -> pteron::Audio {
        match self {
            Audio::File { path } => pteron::Audio::File(PathBuf::from(path)),
            Audio::Encoded { bytes } => pteron::Audio::Encoded(bytes.into()),
            Audio::Samples { samples, rate } => pteron::Audio::Samples { samples, rate },
            Audio::Live { sound } => sound.heard(cancel),
        }
    }
}

/// How sound becomes text.
#[derive(Clone, Debug, Default, Deserialize, uniffi::Record)]
#[serde(default, deny_unknown_fields)]
pub struct TranscribeOptions {
    /// The language that is spoken, as a code; without, the model finds out.
    #[uniffi(default = None)]
    pub language: Option<String>,
    /// Whether the text shall be English, whatever is spoken.
    #[uniffi(default = false)]
    pub translate: bool,
    /// A text that might come before, with names and words as they are to be spelled.
    #[uniffi(default = None)]
    pub prompt: Option<String>,
    /// Whether the times of words are found.
    #[uniffi(default = false)]
    pub words: bool,
    /// Beginnings of a text that Whisper keeps beside each other; without, 3. One is faster and errs a little more.
    #[uniffi(default = None)]
    pub beams: Option<u32>,
    /// A question about what is said, for models that answer.
    #[uniffi(default = None)]
    pub ask: Option<String>,
}

impl TranscribeOptions {
    fn facade(self, cancel: &pteron::Cancel) -> pteron::TranscribeOptions {
        let options = pteron::TranscribeOptions::default().translate(self.translate).words(self.words);
        let mut options = options.cancel(cancel);
        if let Some(language) = self.language {
            options = options.language(language);
        }
        if let Some(prompt) = self.prompt {
            options = options.prompt(prompt);
        }
        if let Some(beams) = self.beams {
            options = options.beams(beams as usize);
        }
        match self.ask {
            Some(question) => options.ask(question),
            None => options,
        }
    }
}

/// A word with its time.
#[derive(Clone, Debug, PartialEq, Serialize, uniffi::Record)]
pub struct Word {
    /// What is said, with the space in front of it.
    pub text: String,
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends, in seconds.
    pub end: f64,
}

/// A stretch of what is said.
#[derive(Clone, Debug, PartialEq, Serialize, uniffi::Record)]
pub struct Segment {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends, in seconds.
    pub end: f64,
    /// What was said, with the space in front that the model gives.
    pub text: String,
    /// Its words, where their times are asked for.
    pub words: Vec<Word>,
}

impl Segment {
    fn of(segment: &pteron::Segment) -> Segment {
        let word = |word: &pteron::Word| Word { text: word.text.clone(), start: word.start, end: word.end };
        let words = segment.words.iter().map(word).collect();
        Segment { start: segment.start, end: segment.end, text: segment.text.clone(), words }
    }
}

/// What is found on the way through a sound, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, uniffi::Enum)]
#[serde(rename_all = "lowercase", tag = "event")]
pub enum Heard {
    /// It begins.
    Begins {
        /// How long it is, where anything tells.
        seconds: Option<f64>,
    },
    /// The language that is spoken.
    Language {
        /// Its code.
        code: String,
    },
    /// More of the text.
    Said {
        /// A stretch of it.
        segment: Segment,
    },
    /// So much has been heard.
    Until {
        /// Seconds of the sound.
        seconds: f64,
    },
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Serialize, uniffi::Record)]
pub struct Transcript {
    /// All of it.
    pub text: String,
    /// The language that was spoken, as a code.
    pub language: String,
    /// All of it with times.
    pub segments: Vec<Segment>,
    /// How long the sound was, in seconds.
    pub duration: f64,
    /// Whether the sound ended before it said that it would.
    pub is_cut_off: bool,
}

/// Who is told what is found, on the thread that asked for it.
#[uniffi::export(with_foreign)]
pub trait SoundListener: Send + Sync {
    /// Something is found; whether to go on.
    fn heard(&self, event: Heard) -> Result<bool, PteronError>;
}

/// A speech model that writes down what is said.
#[derive(uniffi::Object)]
pub struct Transcriber {
    slot: Arc<Slot<pteron::Transcriber>>,
    /// What ends the transcription that is under way.
    cancel: Mutex<pteron::Cancel>,
}

impl Transcriber {
    /// Opens whatever is meant, as callers in Rust say it: a program in memory too.
    pub fn of(
        source: pteron::Source,
        options: Option<OpenOptions>,
        listener: Option<Arc<dyn ProgressListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Transcriber>, PteronError> {
        let open = |options| pteron::Transcriber::open(source, options);
        let transcriber = opening(options, listener, cancel, open)?;
        let slot = Slot::new("transcriber", transcriber);
        Ok(Arc::new(Transcriber { slot, cancel: Mutex::default() }))
    }
}

#[cfg(feature = "registry")]
#[uniffi::export]
impl Transcriber {
    /// Leaves silence out, by a small network that is fetched once.
    #[uniffi::method(default(options = None))]
    pub fn leave_out_silence(&self, options: Option<OpenOptions>) -> Result<(), PteronError> {
        Ok(self.slot.lend()?.leave_out_silence(&options.unwrap_or_default().facade())?)
    }
}

#[uniffi::export]
impl Transcriber {
    /// Opens a speech model by path or name.
    #[uniffi::constructor(default(options = None, listener = None, cancel = None))]
    pub fn open(
        source: String,
        options: Option<OpenOptions>,
        listener: Option<Arc<dyn ProgressListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Transcriber>, PteronError> {
        Transcriber::of(self::source(source), options, listener, cancel)
    }

    /// Whether it can tell the times of words.
    pub fn tells_word_times(&self) -> Result<bool, PteronError> {
        Ok(self.slot.lend()?.tells_word_times())
    }

    /// Writes down what is said; the listener is told as it is found, and may end it.
    #[uniffi::method(default(options = None, listener = None))]
    pub fn transcribe(
        &self,
        audio: Audio,
        options: Option<TranscribeOptions>,
        listener: Option<Arc<dyn SoundListener>>,
    ) -> Result<Transcript, PteronError> {
        let mut transcriber = self.slot.lend()?;
        let cancel = pteron::Cancel::default();
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = cancel.clone();
        let options = options.unwrap_or_default().facade(&cancel);
        let mut failure = None;
        let audio = audio.facade(&cancel);
        let transcript = transcriber.transcribe(audio, &options, |event| {
            if self.slot.is_unwanted() {
                cancel.cancel();
            }
            let (Some(listener), Some(event), false) = (&listener, found(event), cancel.is_cancelled())
            else {
                return;
            };
            match listener.heard(event) {
                Ok(true) => {}
                Ok(false) => cancel.cancel(),
                Err(error) => {
                    failure = Some(error);
                    cancel.cancel();
                }
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
        let transcript = transcript?;
        Ok(Transcript {
            text: transcript.text(),
            segments: transcript.segments.iter().map(Segment::of).collect(),
            language: transcript.language,
            duration: transcript.duration,
            is_cut_off: transcript.is_cut_off,
        })
    }

    /// Ends the transcription that is under way, from any thread.
    pub fn stop(&self) {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }

    /// Cancels the transcription that is under way, waits for its end, and gives the memory back.
    pub fn dispose(&self) {
        self.slot.dispose(|| self.stop());
    }
}

fn found(event: pteron::Heard<'_>) -> Option<Heard> {
    Some(match event {
        pteron::Heard::Begins(seconds) => Heard::Begins { seconds },
        pteron::Heard::Language(code) => Heard::Language { code: code.to_owned() },
        pteron::Heard::Segment(segment) => Heard::Said { segment: Segment::of(segment) },
        pteron::Heard::Until { seconds } => Heard::Until { seconds },
        _ => return None,
    })
}
