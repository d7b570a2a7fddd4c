//! Reading ahead: where a backend finds the likeliest token itself, the call that reads it is handed over before anybody
//! here has seen the token. The device is never idle between two tokens, and the host sees each one step late.
//!
//! A call that turns out not to be wanted (the answer has ended) has written one position behind the text, which is taken
//! back; so this is for caches that can be cut back to any position.

use super::Decoder;
use crate::signature::{Draw, Gives, Signature};
use crate::{LanguageModel, LlmError, Next, Result};
use pteron_runtime::{DeviceTensor, Error, Pending, RunControl, Value};
use std::sync::Arc;

/// What follows a text, still on the device.
struct Following {
    /// The scores.
    outputs: Vec<Value>,
    /// The likeliest token, one element.
    token: Arc<dyn DeviceTensor>,
}

/// A call that was handed over before its token was known.
pub(super) struct Ahead {
    /// The token that it reads, once it is known here.
    token: Option<u32>,
    pending: Pending,
    following: Following,
}

impl Decoder {
    /// As [`Decoder::read`] with the default draw, for those who take the likeliest token whatever follows: it may come as
    /// [`Next::Token`]. `goes_on` says whether the token that follows will be read too, unless it ends the text.
    pub fn read_greedily(&mut self, tokens: &[u32], goes_on: bool, control: &RunControl) -> Result<Next<'_>> {
        let model = self.model.clone();
        let following = match self.taken_ahead(tokens) {
            Some(Ahead { pending, following, .. }) => {
                self.append(tokens);
                if goes_on && self.room() > 0 {
                    self.ahead = self.hand_over(&model, &following, control)?;
                }
                pending.wait()?;
                following
            }
            None => {
                self.drop_ahead()?;
                let signature = self.read_chunks(&model, tokens, &Draw::default(), control)?;
                let Some(following) = following(&model, signature, &mut self.outputs)? else {
                    return self.scores_of(signature);
                };
                if goes_on && self.room() > 0 {
                    self.ahead = self.hand_over(&model, &following, control)?;
                }
                following
            }
        };
        let token = following.token.to_host()?;
        match super::drawn(model.decode(), &token) {
            Ok(token) => {
                if let Some(ahead) = &mut self.ahead {
                    ahead.token = Some(token);
                }
                Ok(Next::Token(token))
            }
            // No score is the greatest: whoever chooses says what is wrong with them.
            Err(_) => {
                self.drop_ahead()?;
                self.outputs = following.outputs;
                self.scores_of(model.decode())
            }
        }
    }

    /// The call that has been handed over, if it reads these tokens.
    fn taken_ahead(&mut self, tokens: &[u32]) -> Option<Ahead> {
        let [token] = tokens else { return None };
        self.ahead.take_if(|ahead| ahead.token == Some(*token))
    }

    /// Hands over the call that reads what follows; nothing where the backend does not find the likeliest token.
    fn hand_over(
        &mut self,
        model: &LanguageModel,
        following: &Following,
        control: &RunControl,
    ) -> Result<Option<Ahead>> {
        let signature = model.decode();
        self.tell_shift()?;
        signature.inputs(&[0], self.tokens.len(), &Draw::default(), &mut self.inputs)?;
        self.inputs[0] = Value::Device(following.token.clone());
        let mut outputs = Vec::new();
        let pending = self.session.submit(&signature.method, &self.inputs, control, &mut outputs)?;
        self.high = self.high.max(self.tokens.len() + 1);
        match self::following(model, signature, &mut outputs)? {
            Some(following) => Ok(Some(Ahead { token: None, pending, following })),
            None => {
                pending.wait()?;
                self.take_back_one()?;
                Ok(None)
            }
        }
    }

    /// Forgets a call that was handed over and is not wanted.
    pub(super) fn drop_ahead(&mut self) -> Result<()> {
        let Some(ahead) = self.ahead.take() else { return Ok(()) };
        match ahead.pending.wait() {
            // Nobody wants to know what it gave.
            Ok(()) | Err(Error::Cancelled | Error::Deadline) => self.take_back_one(),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes back the position behind the text.
    pub(super) fn take_back_one(&mut self) -> Result<()> {
        let held = self.tokens.len();
        self.high = self.high.max(held + 1);
        match self.cut(held)? {
            true => Ok(()),
            false => Err(LlmError::Run(Error::Cache("a position cannot be taken back".into()))),
        }
    }
}

/// What follows, where the backend finds it and a call that reads it could be taken back.
fn following(
    model: &LanguageModel,
    signature: &Signature,
    outputs: &mut Vec<Value>,
) -> Result<Option<Following>> {
    if signature.gives == Gives::Token || !model.caches().rewind_freely() {
        return Ok(None);
    }
    let tensors = outputs.iter().filter_map(|output| match output {
        Value::Device(tensor) => Some(tensor),
        _ => None,
    });
    let [scores] = tensors.collect::<Vec<_>>()[..] else { return Ok(None) };
    let token = scores.argmax_last(model.decode().token_dtype(), &[1, 1])?;
    Ok(token.map(|token| Following { outputs: std::mem::take(outputs), token }))
}
