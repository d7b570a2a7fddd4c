//! Whether a text will do, or the window is tried again at a higher temperature: a text that repeats itself compresses too
//! well, one that the model does not believe in has a low probability, and silence is best left alone.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// When a text is not taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// A text that compresses better than this repeats itself.
    pub compression: f32,
    /// A mean logarithm of probabilities below this is a guess.
    pub log_probability: f32,
    /// A window whose probability of silence is above this is silent, if its text is a guess too.
    pub no_speech: f32,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { compression: 2.4, log_probability: -1.0, no_speech: 0.6 }
    }
}

/// What is known of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measures {
    /// Bytes of the text by bytes of it compressed.
    pub compression: f32,
    /// The mean logarithm of its tokens' probabilities.
    pub log_probability: f32,
    /// How likely the window holds no speech.
    pub no_speech: f32,
}

impl Thresholds {
    /// Whether a text will do.
    pub fn accept(&self, text: &Measures) -> bool {
        let repeats = text.compression > self.compression;
        let guesses = text.log_probability < self.log_probability;
        // Silence is told by both, and no temperature finds words in it.
        !repeats && !guesses || self.is_silent(text)
    }

    /// Whether nothing was said.
    pub fn is_silent(&self, text: &Measures) -> bool {
        text.no_speech > self.no_speech && text.log_probability < self.log_probability
    }

    /// The best of texts of which none would do: the likeliest of those that do not repeat themselves, or of all.
    pub fn least_bad<'t, T>(&self, texts: &'t [T], measures: impl Fn(&T) -> Measures) -> Option<&'t T> {
        let likeliest = |loops: bool| {
            let counted = texts.iter().filter(|text| loops || measures(text).compression <= self.compression);
            counted.max_by(|a, b| measures(a).log_probability.total_cmp(&measures(b).log_probability))
        };
        likeliest(false).or_else(|| likeliest(true))
    }
}

/// How much a text compresses.
pub fn compression(text: &str) -> f32 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Memory takes all that is written.
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    text.len() as f32 / compressed.map_or(1, |bytes| bytes.len().max(1)) as f32
}
