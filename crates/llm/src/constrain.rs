//! Output that a grammar or a JSON schema bounds.
//!
//! A schema or a grammar and a [`Tokenizer`] flow in; out flows, before every token, which tokens may come next. The
//! grammars themselves are the work of `llguidance`, whose limits on lexer, parser and grammar bound the work of a
//! step. Nothing is ignored: what a schema asks for and cannot be had is an error when the constraint is made.

mod bounds;
mod digits;
mod formats;
mod keys;
mod words;

use crate::tokenizer::Tokenizer;
use digits::Digits;
use keys::Keys;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, OnceLock};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokRxInfo, TokTrie};
use words::in_our_words;

/// The largest schema or grammar that is read.
const MAX_SOURCE_BYTES: usize = 4 << 20;

/// Why a constraint cannot be made or kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The schema or the grammar cannot be honoured.
    #[error("the {kind} cannot be honoured: {reason}")]
    Refused {
        /// Schema or grammar.
        kind: &'static str,
        /// Why.
        reason: String,
    },
    /// The vocabulary cannot be constrained.
    #[error("output of this tokenizer cannot be constrained: {reason}")]
    Tokenizer {
        /// Why.
        reason: String,
    },
    /// The work on one token went over its bounds.
    #[error("the constraint stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// A token that the constraint does not allow here.
    #[error("token {token} is not allowed here by the constraint")]
    NotAllowed {
        /// Which.
        token: u32,
    },
}

/// What may be said, and how much of it has been. A clone goes its own way from here.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    /// Where in the text that is, where it is JSON.
    json: Option<Json>,
}

/// What of a JSON text a grammar does not count.
#[derive(Clone)]
struct Json {
    digits: Digits,
    keys: Keys,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").field("done", &self.is_done()).finish_non_exhaustive()
    }
}

/// A vocabulary as the grammar engine wants it: made once for a tokenizer, since that takes a while.
#[derive(Default)]
pub(crate) struct Vocabulary(OnceLock<Result<ParserFactory, String>>);

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vocabulary").field(&self.0.get().is_some()).finish()
    }
}

impl Constraint {
    /// Only values of a JSON schema, with one space after commas and colons and none elsewhere, and numbers of no
    /// more digits than 64-bit types tell apart, so that a schema with bounds bounds the text.
    ///
    /// # Errors
    /// When the schema has a part that cannot be honoured, or the tokenizer names no token for the end.
    pub fn json_schema(tokenizer: &Tokenizer, schema: &Value) -> Result<Constraint, ConstraintError> {
        const KIND: &str = "JSON schema";
        let refused = |reason: &str| ConstraintError::Refused { kind: KIND, reason: reason.to_owned() };
        let mut schema = match schema {
            Value::Object(_) => schema.clone(),
            Value::Bool(true) => json!({}),
            _ => return Err(refused("it is no object")),
        };
        if schema.get("x-guidance").is_some() {
            return Err(refused("`x-guidance` changes how a schema is read, and is not taken from files"));
        }
        formats::make_exact(&mut schema);
        exact_bounds(&mut schema).map_err(|reason| refused(&reason))?;
        schema["x-guidance"] = json!({
            "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": ", "lenient": false,
        });
        let mut constraint = Constraint::new(tokenizer, KIND, TopLevelGrammar::from_json_schema(schema))?;
        if let Some(warning) = constraint.matcher.grammar_warnings().first() {
            return Err(refused(&in_our_words(warning)));
        }
        let tokens = constraint.matcher.tok_env().map_err(|error| stopped(&error))?;
        let json = Json { digits: Digits::new(), keys: Keys::new(tokens.tok_trie()) };
        Ok(Constraint { json: Some(json), ..constraint })
    }

    /// Only texts of a grammar, written in Lark's notation as `llguidance` reads it.
    ///
    /// # Errors
    /// When the grammar cannot be read or honoured, or the tokenizer names no token for the end.
    pub fn grammar(tokenizer: &Tokenizer, grammar: &str) -> Result<Constraint, ConstraintError> {
        const KIND: &str = "grammar";
        if grammar.len() > MAX_SOURCE_BYTES {
            let reason = format!("it is longer than {MAX_SOURCE_BYTES} bytes");
            return Err(ConstraintError::Refused { kind: KIND, reason });
        }
        Constraint::new(tokenizer, KIND, TopLevelGrammar::from_lark(grammar.to_owned()))
    }

    fn new(
        tokenizer: &Tokenizer,
        kind: &'static str,
        grammar: TopLevelGrammar,
    ) -> Result<Constraint, ConstraintError> {
        let factory = tokenizer.constrained().0.get_or_init(|| parser_factory(tokenizer));
        let factory =
            factory.as_ref().map_err(|reason| ConstraintError::Tokenizer { reason: reason.clone() })?;
        let matcher = Matcher::new(factory.create_parser(grammar));
        // What has no text at all, such as a rule that needs itself, shows when the first token is asked for.
        let nothing = || matcher.clone().compute_mask_or_eos().err().map(|error| error.to_string());
        match matcher.get_error().or_else(nothing) {
            Some(reason) => Err(ConstraintError::Refused { kind, reason: in_our_words(&reason) }),
            None => Ok(Constraint { matcher, json: None }),
        }
    }

    /// Rules out what must not come next: those logits become negative infinity. Where the text may end here, the
    /// tokenizer's EOS stays.
    ///
    /// # Errors
    /// When the work goes over its bounds, or a wrong token was accepted before.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        let mut mask = self.matcher.compute_mask_or_eos().map_err(|error| stopped(&error))?;
        if let Some(json) = &self.json {
            json.digits.narrow(&mut mask, &self.matcher)?;
            json.keys.narrow(&mut mask, &self.matcher)?;
        }
        for (logit, token) in logits.iter_mut().zip(0u32..) {
            // Models have more logits than their vocabulary has tokens, to fill up a multiple.
            let known = (token as usize) < mask.len();
            if !known || !mask.is_allowed(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// When the token was not allowed.
    pub fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        match self.matcher.try_consume_tokens(&[token]) {
            Ok(1) => {
                if let Some(json) = &mut self.json {
                    let tokens = self.matcher.tok_env().map_err(|error| stopped(&error))?;
                    let word = tokens.tok_trie().token(token);
                    json.digits.take(word);
                    json.keys.take(word);
                }
                Ok(())
            }
            Ok(_) => Err(ConstraintError::NotAllowed { token }),
            Err(error) => Err(stopped(&error)),
        }
    }

    /// Whether the text is complete and nothing may follow.
    pub fn is_done(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }

    /// Whether the text is complete, though more may follow.
    pub fn may_end(&mut self) -> bool {
        self.is_done() || self.matcher.is_accepting().unwrap_or(false)
    }
}

fn stopped(error: &impl ToString) -> ConstraintError {
    ConstraintError::Stopped { reason: in_our_words(&error.to_string()) }
}

/// Makes the bounds of all parts of a schema such that the engine holds them to the last digit.
fn exact_bounds(schema: &mut Value) -> Result<(), String> {
    match schema {
        Value::Object(fields) => {
            let parts = fields.iter_mut().filter(|(key, _)| !formats::DATA.contains(&key.as_str()));
            parts.map(|(_, part)| part).try_for_each(exact_bounds)?;
            bounds::make_exact(fields)
        }
        Value::Array(parts) => parts.iter_mut().try_for_each(exact_bounds),
        _ => Ok(()),
    }
}

fn parser_factory(tokenizer: &Tokenizer) -> Result<ParserFactory, String> {
    let eos = tokenizer.eos().ok_or("it names no token for the end of a text")?;
    let size = u32::try_from(tokenizer.vocab_size()).map_err(|_| "its vocabulary is too large")?;
    if eos >= size {
        return Err("its token for the end of a text is not in its vocabulary".to_owned());
    }
    let word = |id: u32| match tokenizer.is_special(id) || id == eos {
        // Marked, so that no text can spell it.
        true => {
            let spelling = tokenizer.spelling(id).unwrap_or_default();
            [&[TokTrie::SPECIAL_TOKEN_MARKER], spelling.as_bytes()].concat()
        }
        false => tokenizer.bytes_of(id).unwrap_or_default(),
    };
    let words: Vec<Vec<u8>> = (0..size).map(word).collect();
    let trie = TokTrie::from(&TokRxInfo::new(size, eos), &words);
    let environment: toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    // Tokens that are forced are not fed ahead: each one is sampled under the mask.
    let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &[]);
    let mut factory = factory.map_err(|error| error.to_string())?;
    factory.quiet();
    factory.limits_mut().verbose_errors = false;
    Ok(factory)
}
