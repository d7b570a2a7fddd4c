//! The text of an answer as it grows: shown as far as it will not change.

use crate::stop::StopStrings;
use crate::stream::TextStream;
use crate::tokenizer::Tokenizer;

/// Tokens in, text that may be shown out.
#[derive(Debug)]
pub(super) struct Text {
    /// Without a tokenizer there is no text.
    spoken: Option<(Tokenizer, TextStream)>,
    /// Special tokens that are shown all the same.
    pub(super) marks: Vec<u32>,
    stops: StopStrings,
    shown: String,
    /// A stop string has come: what follows is no part of the answer.
    stopped: bool,
}

impl Text {
    pub(super) fn new(tokenizer: Option<&Tokenizer>, stops: &[String]) -> Text {
        let spoken = tokenizer.map(|tokenizer| (tokenizer.clone(), tokenizer.stream()));
        Text {
            spoken,
            marks: Vec::new(),
            stops: StopStrings::new(stops),
            shown: String::new(),
            stopped: false,
        }
    }

    /// Takes a token and adds what may be shown to a piece; whether a stop string has come with it.
    pub(super) fn push(&mut self, token: u32, piece: &mut String) -> bool {
        let Some((tokenizer, characters)) = &mut self.spoken else { return false };
        let text = match tokenizer.is_special(token) {
            true if self.marks.contains(&token) => tokenizer.spelling(token).unwrap_or_default(),
            // Turn marks and the like are structure, not text.
            true => return false,
            false => characters.push(token),
        };
        let (more, stopped) = self.stops.push(&text);
        self.stopped = stopped;
        self.shown += &more;
        *piece += &more;
        stopped
    }

    /// The whole text, what was held back of it, and the stop string that ended it.
    pub(super) fn finish(mut self) -> (String, String, Option<String>) {
        if self.stopped {
            return (self.shown, String::new(), self.stops.found().map(str::to_owned));
        }
        let rest = self.spoken.take().map(|(_, characters)| characters.finish()).unwrap_or_default();
        let (mut more, stopped) = self.stops.push(&rest);
        let found = self.stops.found().map(str::to_owned);
        if !stopped {
            more += &self.stops.finish();
        }
        self.shown += &more;
        (self.shown, more, found)
    }
}
