//! How answers are chosen: the same options for `run` and `chat`.

use pteron_llm::GenerateOptions;
use pteron_llm::sampler::{SamplerOrder, SamplerSettings};
use std::time::{SystemTime, UNIX_EPOCH};

/// Options of every command that lets a model answer.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Choosing {
    /// Tokens of an answer at most [default: what the context has room for]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    pub(crate) max_new: Option<usize>,
    /// How freely tokens are chosen; 0 takes the most likely one
    #[arg(long, value_name = "T", default_value_t = 0.7, allow_negative_numbers = true)]
    temperature: f64,
    /// Choose among the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true, value_parser = whole)]
    top_k: usize,
    /// Choose among the most likely tokens that make up this much of the probability; 1 for all
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f64,
    /// Leave out tokens less likely than this part of the most likely one
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f64,
    /// Divide the scores of tokens that have come before; 1 does nothing
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Take this from a token's score for each time that it has come
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f64,
    /// Take this from the scores of tokens that have come
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
}

impl Choosing {
    /// As the library takes them; `end_tokens` are the model's own.
    pub(crate) fn options(&self, end_tokens: Vec<u32>) -> GenerateOptions {
        GenerateOptions {
            max_new: self.max_new,
            sampling: SamplerSettings {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                frequency_penalty: self.frequency_penalty,
                presence_penalty: self.presence_penalty,
                order: SamplerOrder::default(),
            },
            seed: self.seed.unwrap_or_else(moment),
            stop: self.stop.clone(),
            end_tokens: if self.ignore_eos { Vec::new() } else { end_tokens },
        }
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
