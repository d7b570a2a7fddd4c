//! What a speech program says of itself: its kind, its front end, and which token means what.

use serde::{Deserialize, Serialize};

/// A speech program, by its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Speech {
    /// An encoder of 30 seconds and a decoder of text with times.
    Whisper(Whisper),
    /// An encoder of any length, and tokens place by place.
    Parakeet(Parakeet),
    /// A language model that reads what an encoder of 30 seconds hears among its tokens.
    Voxtral(Voxtral),
    /// An encoder that hears sound as it comes, and a language model that writes a token for each place of it.
    Realtime(Realtime),
}

/// A program of Voxtral's kind. Its marks are told by the names that its vocabulary has for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voxtral {
    /// Mel bands.
    pub mels: usize,
    /// Frames of a window.
    pub frames: usize,
}

/// A program of Voxtral Realtime's kind. Its marks are told by the names that its vocabulary has for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Realtime {
    /// Mel bands.
    pub mels: usize,
    /// Frames of a place.
    pub frames: usize,
    /// Places that the text is behind the sound.
    pub delay: usize,
    /// Places of silence before the sound.
    pub silence: usize,
}

/// A program of Parakeet's kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parakeet {
    /// Mel bands.
    pub mels: usize,
    /// Frames of the longest window.
    pub frames: usize,
    /// Frames of one place.
    pub subsampling: usize,
    /// The token that says that there is none.
    pub blank: u32,
    /// Places that a token may last, by their numbers; none where the model does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<usize>,
    /// Tokens in one place before the next one is looked at.
    pub most_symbols: usize,
}

/// A program of Whisper's kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whisper {
    /// Mel bands.
    pub mels: usize,
    /// Frames of a window.
    pub frames: usize,
    /// Positions of the decoder.
    pub positions: usize,
    /// Tokens with a meaning.
    pub tokens: WhisperTokens,
    /// Layer and head of the cross attention that follows the sound, for word times; none where nobody knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alignment_heads: Vec<[usize; 2]>,
}

/// Whisper's tokens that are no text. Ids from `first_time` on are times, 0.02 s apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhisperTokens {
    /// Ends a text; all ids below are text.
    pub end: u32,
    /// Begins a transcript.
    pub start: u32,
    /// Codes of languages; the first has the id behind `start`, and so on. Empty where the model has only one.
    pub languages: Vec<String>,
    /// The task of translating into English.
    pub translate: u32,
    /// The task of writing down what is said.
    pub transcribe: u32,
    /// Begins a text that came before.
    pub previous: u32,
    /// Says that nobody speaks.
    pub no_speech: u32,
    /// Says that there shall be no times.
    pub no_times: u32,
    /// The time 0.
    pub first_time: u32,
}

/// The languages of Whisper in the order of their tokens; the last came with the third version.
const LANGUAGES: &str = "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur \
    hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka \
    be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue";

/// Tokens of text in the vocabulary of models for English alone.
const ENGLISH_TEXT: u32 = 50_256;
/// Times from 0 to 30 s.
const TIMES: u32 = 1501;
/// Tokens with a meaning that are neither languages nor times: end, start, and six behind the languages.
const MARKS: u32 = 8;

impl WhisperTokens {
    /// The tokens of a published vocabulary of that size: all follow from how many languages it has. Nothing for a size that
    /// no published model has.
    pub fn published(vocabulary: usize) -> Option<WhisperTokens> {
        let vocabulary = u32::try_from(vocabulary).ok()?;
        // Models for English alone have one text token less, and places for languages that nobody uses.
        let is_multilingual = vocabulary > ENGLISH_TEXT + MARKS + 99 + TIMES;
        let end = ENGLISH_TEXT + u32::from(is_multilingual);
        let languages = vocabulary.checked_sub(end + MARKS + TIMES)?;
        if !(99..=100).contains(&languages) {
            return None;
        }
        let behind = end + 2 + languages;
        let codes = LANGUAGES.split_whitespace().take(if is_multilingual { languages as usize } else { 0 });
        Some(WhisperTokens {
            end,
            start: end + 1,
            languages: codes.map(str::to_owned).collect(),
            translate: behind,
            transcribe: behind + 1,
            previous: behind + 3,
            no_speech: behind + 4,
            no_times: behind + 5,
            first_time: behind + 6,
        })
    }

    /// The tokens of a vocabulary that calls them what published ones do, by those names. Nothing for one that lacks a mark.
    pub fn named(id_of: impl Fn(&str) -> Option<u32>) -> Option<WhisperTokens> {
        let start = id_of("<|startoftranscript|>")?;
        let language = |id: u32| {
            LANGUAGES
                .split_whitespace()
                .find(|code| id_of(&format!("<|{code}|>")) == Some(id))
                .map(str::to_owned)
        };
        let languages = (1..).map_while(|behind| language(start.checked_add(behind)?)).collect();
        let no_times = id_of("<|notimestamps|>")?;
        Some(WhisperTokens {
            end: id_of("<|endoftext|>")?,
            start,
            languages,
            translate: id_of("<|translate|>")?,
            transcribe: id_of("<|transcribe|>")?,
            previous: id_of("<|startofprev|>")?,
            // Older vocabularies speak of captions.
            no_speech: id_of("<|nospeech|>").or_else(|| id_of("<|nocaptions|>"))?,
            no_times,
            // Older vocabularies do not list times, which follow all the same.
            first_time: id_of("<|0.00|>").or_else(|| no_times.checked_add(1))?,
        })
    }

    /// The token of a language by its code.
    pub fn language(&self, code: &str) -> Option<u32> {
        let at = self.languages.iter().position(|known| known == code)?;
        Some(self.start + 1 + at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_of_any_size_are_told_by_names() {
        let names = [
            "<|endoftext|>",
            "<|startoftranscript|>",
            "<|de|>",
            "<|en|>",
            "<|translate|>",
            "<|transcribe|>",
            "<|startoflm|>",
            "<|startofprev|>",
            "<|nocaptions|>",
            "<|notimestamps|>",
        ];
        let id_of = |name: &str| names.iter().position(|known| *known == name).map(|at| at as u32 + 40);
        let tokens = WhisperTokens::named(id_of).unwrap();
        assert_eq!(
            (tokens.end, tokens.start, tokens.language("de"), tokens.language("en")),
            (40, 41, Some(42), Some(43))
        );
        assert_eq!((tokens.transcribe, tokens.no_speech, tokens.first_time), (45, 48, 50));
        assert_eq!(WhisperTokens::named(|name| id_of(name).filter(|id| *id != 47)), None);
    }

    #[test]
    fn published_vocabularies_have_their_tokens() {
        let english = WhisperTokens::published(51_864).unwrap();
        assert_eq!((english.end, english.start, english.first_time), (50_256, 50_257, 50_363));
        assert_eq!((english.transcribe, english.no_speech, english.no_times), (50_358, 50_361, 50_362));
        assert!(english.languages.is_empty());
        let many = WhisperTokens::published(51_865).unwrap();
        assert_eq!((many.end, many.start, many.translate, many.transcribe), (50_257, 50_258, 50_358, 50_359));
        assert_eq!((many.previous, many.no_speech, many.first_time), (50_361, 50_362, 50_364));
        assert_eq!((many.language("en"), many.language("su")), (Some(50_259), Some(50_357)));
        let third = WhisperTokens::published(51_866).unwrap();
        assert_eq!((third.language("yue"), third.first_time), (Some(50_358), 50_365));
        assert_eq!(third.languages.len(), 100);
        for other in [0, 1000, 51_863, 51_867, usize::MAX] {
            assert_eq!(WhisperTokens::published(other), None);
        }
    }
}
