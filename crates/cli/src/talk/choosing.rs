//! How answers are chosen: the same options for `run` and `chat`.

use crate::output::complain;
use clap::ValueEnum;
use pteron::{GenerateOptions, Model, SpecialTokens};

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
    /// As the library takes them; what of the model's own settings makes no sense is told.
    pub(crate) fn options(&self, model: &Model) -> GenerateOptions {
        for problem in &model.suggested().wrong {
            complain(&format!("the model's generation_config.json: {problem}; left out\n"));
        }
        let mut options = GenerateOptions::default()
            .frequency_penalty(self.frequency_penalty)
            .presence_penalty(self.presence_penalty)
            .stop(self.stop.clone())
            .ignore_end(self.ignore_eos);
        let numbers = [
            (self.temperature, GenerateOptions::temperature as fn(GenerateOptions, f64) -> GenerateOptions),
            (self.top_p, GenerateOptions::top_p),
            (self.min_p, GenerateOptions::min_p),
            (self.repetition_penalty, GenerateOptions::repetition_penalty),
        ];
        for (number, set) in numbers {
            options = number.into_iter().fold(options, set);
        }
        options = self.max_new.into_iter().fold(options, GenerateOptions::max_tokens);
        options = self.top_k.into_iter().fold(options, GenerateOptions::top_k);
        options = self.seed.into_iter().fold(options, GenerateOptions::seed);
        self.special_tokens().into_iter().fold(options, GenerateOptions::special_tokens)
    }

    /// What special tokens in messages are; `None` where the user does not say.
    fn special_tokens(&self) -> Option<SpecialTokens> {
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
