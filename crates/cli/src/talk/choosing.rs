//! How answers are chosen: the same options for `run` and `chat`.

use super::load::Loaded;
use crate::output::complain;
use clap::ValueEnum;
use pteron_llm::sampler::{SamplerOrder, SamplerSettings};
use pteron_llm::{GenerateOptions, SpecialTokens};
use std::time::{SystemTime, UNIX_EPOCH};

/// Options of every command that lets a model answer. What is not given comes from the model's own `generation_config.json`,
/// where it has one.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Choosing {
    /// Tokens of an answer at most [default: what the context has room for]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    pub(crate) max_new: Option<usize>,
    /// How freely tokens are chosen; 0 takes the most likely one [default: the model's own, else 0.7]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Choose among the K most likely tokens; 0 for all [default: the model's own, else 0]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = whole)]
    top_k: Option<usize>,
    /// Choose among the most likely tokens that make up this much of the probability; 1 for all [default: the model's own,
    /// else 1]
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Leave out tokens less likely than this part of the most likely one [default: the model's own, else 0]
    #[arg(long, value_name = "P")]
    min_p: Option<f64>,
    /// Divide the scores of tokens that have come before, in the prompt too; 1 does nothing [default: the model's own,
    /// else 1]
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f64>,
    /// Take this from a token's score for each time that the answer has it
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f64,
    /// Take this from the scores of tokens that the answer has
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f64,
    /// Where the random generator starts: the same seed gives the same answer [default: another each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// End the answer at this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on when the model wants to end its answer
    #[arg(long)]
    ignore_eos: bool,
    /// What special tokens such as <|im_end|> are where messages spell them: text, or the tokens themselves, with which a
    /// text can begin and end turns [default: text; parse with --raw]
    #[arg(long, value_enum, value_name = "HOW")]
    special_tokens: Option<Spelled>,
}

/// `--special-tokens`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Spelled {
    Text,
    Parse,
}

impl Choosing {
    /// As the library takes them: what the user says over what the model's publisher says over what is usual.
    pub(crate) fn options(&self, loaded: &Loaded) -> GenerateOptions {
        for problem in &loaded.suggested.wrong {
            complain(&format!("the model's generation_config.json: {problem}; left out\n"));
        }
        let usual = SamplerSettings {
            temperature: 0.7,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            order: SamplerOrder::default(),
            ..SamplerSettings::default()
        };
        let usual = loaded.suggested.over(usual);
        GenerateOptions {
            max_new: self.max_new,
            sampling: SamplerSettings {
                temperature: self.temperature.unwrap_or(usual.temperature),
                top_k: self.top_k.unwrap_or(usual.top_k),
                top_p: self.top_p.unwrap_or(usual.top_p),
                min_p: self.min_p.unwrap_or(usual.min_p),
                repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
                ..usual
            },
            seed: self.seed.unwrap_or_else(moment),
            stop: self.stop.clone(),
            end_tokens: if self.ignore_eos { Vec::new() } else { loaded.end_tokens() },
        }
    }

    /// What special tokens in messages are; `None` where the user does not say.
    pub(crate) fn special_tokens(&self) -> Option<SpecialTokens> {
        self.special_tokens.map(|spelled| match spelled {
            Spelled::Text => SpecialTokens::Text,
            Spelled::Parse => SpecialTokens::Parse,
        })
    }
}

/// A number of tokens; said in words where it is none.
pub(super) fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number is wanted, 0 or more".to_owned())
}

/// A number that is another one each time.
fn moment() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
