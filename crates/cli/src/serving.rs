//! The models of a server: what the command line names, loaded when somebody asks for it.

use crate::failure::Failure;
use crate::home;
use crate::talk::load::{Loading, source};
use pteron::parts::find::looks_like_a_path;
use pteron::parts::machine::memory;
use pteron::{
    Audio, Cancel, Embedder, Heard, Requirements, Segment, TranscribeOptions, Transcriber, requirements,
};
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{ScheduleOptions, Scheduler};
use pteron_registry::Platform;
use pteron_serve::{Embeds, HearError, Hearing, Hears, Loaded, Model, Models, OpenError, Served};
use pteron_speech::transcript::Transcript;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// How answers of a model share the machine.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    pub(crate) parallel: usize,
    pub(crate) queue: usize,
    /// Bytes for all models and their answers.
    pub(crate) memory: u64,
}

/// What a model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Talk,
    Hear,
    Embed,
}

/// What is offered.
struct Offer {
    /// What clients call it.
    name: String,
    /// What the library calls it.
    model: String,
    does: Does,
    size: Option<u64>,
}

/// All that is offered.
pub(crate) struct Shelf {
    offers: Vec<Offer>,
    loading: Loading,
    sharing: Sharing,
    created: u64,
    /// Models that were loaded before the server began.
    ready: Mutex<HashMap<String, Loaded>>,
}

impl Shelf {
    /// A shelf of models that talk, models that hear and models that make vectors; without any, of the default model. Names that nothing has are told
    /// at once.
    pub(crate) fn new(
        talking: &[String],
        hearing: &[String],
        embedding: &[String],
        loading: &Loading,
        sharing: Sharing,
    ) -> Result<Shelf, Failure> {
        let mut offers = Vec::new();
        if talking.is_empty() && hearing.is_empty() && embedding.is_empty() {
            let model = home::open()?.registry.default_model(&Platform::here())?.name.clone();
            offers.push(Offer { name: model.clone(), model, does: Does::Talk, size: None });
        }
        let all = [(talking, Does::Talk), (hearing, Does::Hear), (embedding, Does::Embed)];
        for (model, does) in all.iter().flat_map(|(models, does)| models.iter().map(|model| (model, *does))) {
            let offer = offer(model, does)?;
            if offers.iter().any(|other: &Offer| other.name == offer.name) {
                return Err(Failure::usage(format!("two models would be called {}", offer.name)));
            }
            offers.push(offer);
        }
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Ok(Shelf { offers, loading: loading.clone(), sharing, created, ready: Mutex::default() })
    }

    /// What clients call the models.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.offers.iter().map(|offer| offer.name.as_str()).collect()
    }

    /// Loads a model before the server begins, so that what is wrong with it is told in full.
    pub(crate) fn prepare(&self, name: &str) -> Result<(), Failure> {
        let Some(offer) = self.offer(name) else { return Ok(()) };
        let loaded = self.loaded(offer)?;
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), loaded);
        Ok(())
    }

    fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.name == name)
    }

    fn needs_of(&self, offer: &Offer) -> Option<Requirements> {
        requirements(source(Some(&offer.model)), &self.loading.options().ok()?).ok()
    }

    /// Bytes for the answers of a model of which one takes so many at its longest.
    fn for_answers(&self, one: u64) -> u64 {
        let Sharing { parallel, memory, .. } = self.sharing;
        // As many under way as may be, and as many that are kept for their beginnings.
        one.saturating_mul(2 * parallel as u64).min(memory / 4).max(one)
    }

    fn loaded(&self, offer: &Offer) -> Result<Loaded, Failure> {
        if offer.does == Does::Embed {
            let embedder = Embedder::open(source(Some(&offer.model)), self.loading.options()?)?;
            let bytes = self.needs_of(offer).unwrap_or_default().total();
            return Ok(Loaded::Embeds(Arc::new(Vectors { embedder, bytes })));
        }
        if offer.does == Does::Hear {
            let options = self.loading.options()?;
            let transcriber = Transcriber::open(source(Some(&offer.model)), options)?;
            let needs = self.needs_of(offer).unwrap_or_default();
            let (bytes, words) = (needs.total(), transcriber.tells_word_times());
            return Ok(Loaded::Hears(Arc::new(Ear { transcriber: Mutex::new(transcriber), bytes, words })));
        }
        let loaded = self.loading.load(Some(&offer.model))?;
        let voice = loaded.voice()?.clone();
        let mut options = ScheduleOptions::default();
        (options.parallel, options.queue) = (self.sharing.parallel, self.sharing.queue);
        options.kept = options.parallel;
        options.context = self.loading.context;
        // Before a model has been fetched and converted, nobody knows what its answers take.
        options.memory = match self.needs_of(offer) {
            Some(needs) => self.for_answers(needs.state),
            None => self.sharing.memory / 4,
        };
        let held = loaded.memory();
        let bytes = held.mapped_bytes.saturating_add(held.packed_bytes).saturating_add(options.memory);
        let (scheduler, handle) = Scheduler::new(loaded.language(), Some(&voice.tokenizer), options)?;
        let start = scheduler.spawn();
        start.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
        let usual = SamplerSettings { temperature: 0.7, ..SamplerSettings::default() };
        let sampling = loaded.suggested().over(usual);
        let model = Model::new(offer.name.as_str(), handle, voice, sampling).holding(bytes);
        Ok(Loaded::Talks(Arc::new(model)))
    }
}

/// Bytes that models may have where nobody says it: nearly all that could be had without swapping.
pub(crate) fn usual_memory() -> u64 {
    memory().map_or(u64::MAX, |(_, free)| free / 10 * 9)
}

/// A model that the command line names.
fn offer(model: &str, does: Does) -> Result<Offer, Failure> {
    let path = Path::new(model);
    if path.exists() {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or(model);
        let size = path.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| about.len());
        return Ok(Offer { name: stem.to_owned(), model: model.to_owned(), does, size });
    }
    if looks_like_a_path(model) {
        return Err(Failure::usage(format!("there is no file or folder {model}")));
    }
    home::open()?.registry.model(model)?;
    Ok(Offer { name: model.to_owned(), model: model.to_owned(), does, size: None })
}

impl Models for Shelf {
    fn list(&self) -> Vec<Served> {
        let served = |offer: &Offer| {
            let served = Served::new(offer.name.as_str(), self.created);
            offer.size.into_iter().fold(served, Served::of_size)
        };
        self.offers.iter().map(served).collect()
    }

    fn needs(&self, name: &str) -> Option<u64> {
        let offer = self.offer(name)?;
        let needs = self.needs_of(offer)?;
        let talks = offer.does == Does::Talk;
        let answers = if talks { self.for_answers(needs.state) } else { needs.state };
        Some(needs.weights.saturating_add(answers).saturating_add(needs.run))
    }

    fn load(&self, name: &str) -> Result<Loaded, OpenError> {
        let offer = self.offer(name).ok_or(OpenError::Unknown)?;
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        match ready {
            Some(loaded) => Ok(loaded),
            None => self.loaded(offer).map_err(|failure| OpenError::Failed(failure.message().to_owned())),
        }
    }
}

/// A model that makes vectors.
struct Vectors {
    embedder: Embedder,
    bytes: u64,
}

impl Embeds for Vectors {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn embed(&self, texts: &[String]) -> Result<(Vec<Vec<f32>>, usize), String> {
        let tokens = texts.iter().map(|text| self.embedder.count_tokens(text)).sum::<pteron::Result<usize>>();
        let made = tokens.and_then(|tokens| Ok((self.embedder.embed(texts)?, tokens)));
        made.map_err(|error| error.to_string())
    }
}

/// A speech model; one sound after the other.
struct Ear {
    transcriber: Mutex<Transcriber>,
    bytes: u64,
    words: bool,
}

impl Hears for Ear {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn tells_word_times(&self) -> bool {
        self.words
    }

    fn hear(
        &self,
        sound: Vec<u8>,
        hearing: &Hearing,
        cancel: &Arc<AtomicBool>,
        tell: &mut dyn FnMut(&Segment),
    ) -> Result<Transcript, HearError> {
        // Every transcript begins anew, whatever became of the last.
        let mut transcriber = self.transcriber.lock().unwrap_or_else(PoisonError::into_inner);
        let options = TranscribeOptions::default()
            .translate(hearing.translate)
            .words(hearing.words)
            .cancel(&Cancel::of_flag(cancel.clone()));
        let options = hearing.language.iter().fold(options, TranscribeOptions::language);
        let options = hearing.prompt.iter().fold(options, TranscribeOptions::prompt);
        let options = match hearing.temperature {
            Some(temperature) => options.temperatures(vec![temperature]),
            None => options,
        };
        let heard = transcriber.transcribe(Audio::Encoded(sound.into()), &options, |heard| {
            if let Heard::Segment(segment) = heard {
                tell(segment);
            }
        });
        match heard {
            Ok(heard) => Ok(Transcript {
                language: heard.language,
                duration: heard.duration,
                translated: hearing.translate,
                segments: heard.segments,
            }),
            Err(error @ pteron::Error::Damaged(_)) => Err(HearError::Sound(error.to_string())),
            Err(error @ (pteron::Error::Invalid(_) | pteron::Error::Unsupported(_))) => {
                Err(HearError::Wanted(error.to_string()))
            }
            Err(error) => Err(HearError::Failed(error.to_string())),
        }
    }
}
