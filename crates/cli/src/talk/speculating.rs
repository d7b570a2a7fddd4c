//! How answers are guessed ahead: the same option for `run` and `chat`.

use super::load::Loading;
use crate::failure::Failure;
use crate::output::complain;
use pteron::{Model, Speculate};
use std::str::FromStr;

/// Options of every command that writes one answer at a time.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Speculating {
    /// Guess tokens ahead and check many in one call (speculative decoding); each is chosen as without. auto guesses from the
    /// text so far as long as that makes the answer faster, lookup wherever it can, draft=MODEL by a smaller model with the
    /// same tokenizer; off does not guess
    #[arg(long, value_name = "HOW", default_value = "off")]
    speculate: How,
}

/// `--speculate`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    Auto,
    Off,
    Lookup,
    Draft(String),
}

impl FromStr for How {
    type Err = String;

    fn from_str(text: &str) -> Result<How, String> {
        match text {
            "auto" => Ok(How::Auto),
            "off" => Ok(How::Off),
            "lookup" => Ok(How::Lookup),
            _ => match text.strip_prefix("draft=") {
                Some(model) if !model.is_empty() => Ok(How::Draft(model.to_owned())),
                _ => Err("auto, off, lookup or draft=MODEL is wanted".to_owned()),
            },
        }
    }
}

impl Speculating {
    /// As the library takes it. A draft is loaded as the model itself was; where what was asked for cannot be had of the
    /// model, that is told.
    pub(crate) fn of(&self, model: &Model, loading: &Loading) -> Result<Speculate, Failure> {
        let asked = !matches!(self.speculate, How::Auto | How::Off);
        if let (true, Err(reason)) = (asked, model.language().can_speculate()) {
            complain(&format!("nothing is guessed ahead: {reason}\n"));
            return Ok(Speculate::Off);
        }
        Ok(match &self.speculate {
            How::Auto => Speculate::Auto,
            How::Off => Speculate::Off,
            How::Lookup => Speculate::Lookup,
            How::Draft(draft) => Speculate::Draft(loading.load_draft(draft)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_guess_are_words_and_a_draft_has_a_model() {
        let cases = [
            ("auto", How::Auto),
            ("off", How::Off),
            ("lookup", How::Lookup),
            ("draft=small.pte", How::Draft("small.pte".to_owned())),
        ];
        for (text, how) in cases {
            assert_eq!(text.parse(), Ok(how), "{text}");
        }
        for wrong in ["", "draft", "draft=", "Lookup", "on"] {
            assert!(wrong.parse::<How>().is_err_and(|error| error.contains("draft=MODEL")), "{wrong}");
        }
    }
}
