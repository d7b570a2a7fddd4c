//! How a model hears and speaks: its tokenizer and its chat template, as they travel inside its program.
//!
//! Messages flow in and become the tokens of a prompt; which tokens end an answer is found here too, by name and by what
//! the template writes behind one, never by number.

use crate::seeing::{Eyes, Image, SeeError, Shown};
use crate::tokenizer::{Ends, Tokenizer, TokenizerConfig, TokenizerError, TokenizerFormat};
use crate::{LanguageModel, LlmError, Result, Suggested};
use pteron_companion::{CHAT_TEMPLATE, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, TOKENIZER_FORMAT};
use pteron_format::pte::Pte;
use pteron_template::{ChatTemplate, LocalTime, RenderInput, Rendered};
use serde_json::{Map, Value, json};

/// Stands for an answer; no template writes it itself.
const PROBE: &str = "\u{2042}probe\u{2042}";

/// A tokenizer and, where the model has one, a chat template.
#[derive(Clone, Debug)]
pub struct Voice {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Messages to text.
    pub template: Option<ChatTemplate>,
    /// Further variables of the template.
    pub flags: Map<String, Value>,
    /// What the template takes for now.
    pub now: LocalTime,
    /// What special tokens are that messages spell.
    pub special_tokens: SpecialTokens,
    /// What sees, where the model does.
    pub eyes: Option<Eyes>,
    /// Positions that a prompt has to fit into, where that is known: of one that is far longer only a part is encoded.
    pub context: Option<usize>,
}

/// What special tokens are that the words of users, files and tools spell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialTokens {
    /// Text like any other: nobody but the template begins and ends turns.
    #[default]
    Text,
    /// Special tokens.
    Parse,
}

/// A prompt as text and as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// What the tokens stand for; of an image, one mark for all of its rows.
    pub text: String,
    /// The tokens, with those that the tokenizer puts at the beginning.
    pub tokens: Vec<u32>,
    /// The images that some of them stand for, in order.
    pub images: Vec<Shown>,
}

impl Voice {
    /// A voice without a template.
    pub fn new(tokenizer: Tokenizer) -> Voice {
        Voice {
            tokenizer,
            template: None,
            flags: Map::new(),
            now: LocalTime::default(),
            special_tokens: SpecialTokens::default(),
            eyes: None,
            context: None,
        }
    }

    /// The same, for templates that ask what time it is, now.
    pub fn at_present(&self) -> Voice {
        Voice { now: LocalTime::utc_now(), ..self.clone() }
    }

    /// The tokenizer that a program carries; `None` where it carries none.
    pub fn tokenizer_inside(pte: &Pte) -> Result<Option<Tokenizer>> {
        let Some(bytes) = pte.named(TOKENIZER) else { return Ok(None) };
        let format = match text(pte, TOKENIZER_FORMAT)? {
            Some(name) => name.trim().parse::<TokenizerFormat>().map_err(TokenizerError::from)?,
            None => TokenizerFormat::guess(&bytes)
                .ok_or_else(|| TokenizerError::UnknownFormat { name: String::new() })?,
        };
        let config = match pte.named(TOKENIZER_CONFIG) {
            Some(json) => serde_json::from_slice(&json).map_err(|error| inside(TOKENIZER_CONFIG, error))?,
            None => TokenizerConfig::default(),
        };
        Ok(Some(Tokenizer::load(format, &bytes, &config)?))
    }

    /// The chat template that a program carries; `None` where it carries none.
    pub fn template_inside(pte: &Pte) -> Result<Option<ChatTemplate>> {
        text(pte, CHAT_TEMPLATE)?.map(|source| Ok(ChatTemplate::new(&source)?)).transpose()
    }

    /// The settings that a program carries; none where it carries none.
    pub fn suggested_inside(pte: &Pte) -> Suggested {
        pte.named(GENERATION_CONFIG).map(|bytes| Suggested::read(&bytes)).unwrap_or_default()
    }

    /// A text alone, behind the BOS that the tokenizer puts before texts. An EOS that it would put behind them is left
    /// out: the text shall go on. Special tokens that it spells are such: whoever gives a text as it is means them.
    pub fn raw(&self, text: &str) -> Result<Prompt> {
        self.alone(text, SpecialTokens::Parse)
    }

    /// The same, with a choice of what special tokens in it are.
    pub fn alone(&self, text: &str, special_tokens: SpecialTokens) -> Result<Prompt> {
        let rendered = Rendered::heard(text.to_owned());
        let mut tokens: Vec<u32> = self.leading()?.into_iter().collect();
        tokens.extend(self.encode(&rendered, 0, special_tokens)?);
        Ok(Prompt { text: rendered.text, tokens, images: Vec::new() })
    }

    /// The tokens of a rendered text from a place on.
    pub(crate) fn encode(
        &self,
        rendered: &Rendered,
        from: usize,
        special_tokens: SpecialTokens,
    ) -> Result<Vec<u32>> {
        let text = &rendered.text[from..];
        if let Some(context) = self.context
            && self.tokenizer.far_exceeds(text, context)?
        {
            return Err(LlmError::PromptFarTooLong { context });
        }
        if special_tokens == SpecialTokens::Parse {
            return Ok(self.tokenizer.encode(text, Ends::None)?);
        }
        let heard = rendered.heard.iter().filter(|part| part.end > from);
        let heard: Vec<_> = heard.map(|part| part.start.max(from) - from..part.end - from).collect();
        Ok(self.tokenizer.encode_heard(text, &heard)?)
    }

    /// The BOS that the tokenizer puts before texts; `None` where it puts none.
    pub fn leading(&self) -> Result<Option<u32>> {
        let around_nothing = self.tokenizer.encode("", Ends::AsConfigured)?;
        Ok(self.tokenizer.bos().filter(|bos| around_nothing.first() == Some(bos)))
    }

    /// A conversation up to the beginning of the assistant's turn.
    pub fn chat(&self, messages: &[Value]) -> Result<Prompt> {
        self.chat_with_tools(messages, &Value::Null)
    }

    /// The same, where the model may call tools: a list of their descriptions, or null.
    pub fn chat_with_tools(&self, messages: &[Value], tools: &Value) -> Result<Prompt> {
        self.chat_showing(messages, tools, &[], "")
    }

    /// The same, where messages show images, as many as have their places in the contents of messages, in order; and where the
    /// assistant's turn may have begun with a text already, from which the answer goes on.
    pub fn chat_showing(
        &self,
        messages: &[Value],
        tools: &Value,
        images: &[Image],
        begun: &str,
    ) -> Result<Prompt> {
        let mut rendered = self.chat_text(messages, tools, images.len())?;
        if !begun.is_empty() {
            let from = rendered.text.len();
            rendered.text.push_str(begun);
            rendered.heard.push(from..rendered.text.len());
        }
        self.tokens_of(rendered, images)
    }

    /// The same as text, with the marks of so many images. Without a template: every message with a line end behind it.
    pub(crate) fn chat_text(&self, messages: &[Value], tools: &Value, images: usize) -> Result<Rendered> {
        let eyes = match (images, &self.eyes) {
            (0, _) => None,
            (_, None) => return Err(SeeError::Blind.into()),
            (_, Some(eyes)) => Some(eyes),
        };
        match &self.template {
            Some(template) => {
                let input = RenderInput { tools: tools.clone(), ..self.input(messages, true) };
                let rendered = template.render_heard(&input)?;
                Ok(match eyes {
                    Some(eyes) => eyes.place(rendered, &self.tokenizer, images)?,
                    None => rendered,
                })
            }
            None if images > 0 => Err(SeeError::Places { images, places: 0 }.into()),
            None => {
                let contents = messages.iter().filter_map(|message| message["content"].as_str());
                Ok(Rendered::heard(contents.map(|content| format!("{content}\n")).collect()))
            }
        }
    }

    /// The tokens of a conversation's text. A template spells its own BOS.
    pub(crate) fn tokens_of(&self, rendered: Rendered, images: &[Image]) -> Result<Prompt> {
        match self.template {
            None => self.alone(&rendered.text, self.special_tokens),
            Some(_) => {
                let (tokens, images) = self.encode_showing(&rendered, 0, images, 0)?;
                Ok(Prompt { text: rendered.text, tokens, images })
            }
        }
    }

    /// The tokens of a rendered text from a place on, with marks for the rows of the images there, whose places are counted
    /// from `first` on.
    pub(crate) fn encode_showing(
        &self,
        rendered: &Rendered,
        from: usize,
        images: &[Image],
        first: usize,
    ) -> Result<(Vec<u32>, Vec<Shown>)> {
        let Some(eyes) = self.eyes.as_ref().filter(|_| !images.is_empty()) else {
            return Ok((self.encode(rendered, from, self.special_tokens)?, Vec::new()));
        };
        let tokens = match self.special_tokens {
            SpecialTokens::Text => self.encode(rendered, from, SpecialTokens::Text)?,
            // Whatever else messages may spell: an image is what is shown.
            SpecialTokens::Parse => {
                let heard = eyes.spelled_marks(rendered, &self.tokenizer);
                let rendered = Rendered { text: rendered.text.clone(), heard };
                self.encode(&rendered, from, SpecialTokens::Text)?
            }
        };
        Ok(eyes.fill(&tokens, images, first)?)
    }

    fn input(&self, messages: &[Value], add_generation_prompt: bool) -> RenderInput {
        RenderInput {
            messages: Value::Array(messages.to_vec()),
            tools: Value::Null,
            add_generation_prompt,
            tokens: self.tokenizer.named_tokens().clone(),
            now: self.now,
            flags: self.flags.clone(),
        }
    }

    /// Tokens that end an answer: those that the program names, the tokenizer's EOS, and the special token that the
    /// template writes behind an answer.
    pub fn end_tokens(&self, model: &LanguageModel) -> Vec<u32> {
        let mut ends = model.eos().to_vec();
        ends.extend(self.tokenizer.eos());
        ends.extend(self.turn_end());
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// The special token that the template writes behind an answer.
    fn turn_end(&self) -> Option<u32> {
        let template = self.template.as_ref()?;
        let messages =
            [json!({"role": "user", "content": "a"}), json!({"role": "assistant", "content": PROBE})];
        let rendered = template.render(&self.input(&messages, false)).ok()?;
        let (_, behind) = rendered.split_once(PROBE)?;
        let first = self.tokenizer.encode(behind.trim_start(), Ends::None).ok()?.first().copied()?;
        self.tokenizer.is_special(first).then_some(first)
    }
}

/// Named data that is text.
fn text(pte: &Pte, key: &'static str) -> Result<Option<String>> {
    let Some(bytes) = pte.named(key) else { return Ok(None) };
    std::str::from_utf8(&bytes).map(|text| Some(text.to_owned())).map_err(|error| inside(key, error))
}

fn inside(key: &'static str, problem: impl std::fmt::Display) -> LlmError {
    LlmError::NamedData { key, problem: problem.to_string() }
}
