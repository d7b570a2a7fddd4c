//! Voxtral: Whisper's encoder, four of its places joined to one, and a language model that reads them among its tokens.
//!
//! A program of several methods, called as ExecuTorch's export of it is: `audio_encoder` (features of 30 seconds to rows),
//! `token_embedding` (tokens to rows), `text_decoder` (rows behind those of calls before to logits of the last).

use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};

use super::decoder::{Decoder, Places, ROWS};
use super::whisper::SoundEncoder;
use super::{Architecture, Facts};
use crate::blocks::{Activation, linear, matrix};
use crate::net::literal;
use crate::{Config, ConfigError, ModelError, Net};

/// A Voxtral.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Voxtral {
    pub text: Decoder,
    pub num_mel_bins: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub max_source_positions: usize,
    pub activation_function: Activation,
    pub projector_hidden_act: Activation,
    /// What stands in a prompt for each row of the sound.
    pub audio_token_id: u32,
}

impl Voxtral {
    /// What a `config.json` says.
    pub fn read(config: &Config) -> Result<Voxtral, ConfigError> {
        let missing = |key: &str| ConfigError(format!("`{key}` is missing"));
        let audio = config.get_anywhere("audio_config").cloned().ok_or_else(|| missing("audio_config"))?;
        let audio = Config::new(audio)?;
        let family = config.family()?;
        let row = ROWS.iter().find(|row| row.names.contains(&family));
        let row = row.ok_or_else(|| ConfigError(format!("a text model of the family `{family}`")))?;
        let token = config.get_anywhere("audio_token_id");
        let voxtral = Voxtral {
            text: row.read(config)?,
            num_mel_bins: audio.size("num_mel_bins", Some(128))?,
            hidden_size: audio.size("hidden_size", Some(1280))?,
            intermediate_size: audio.size("intermediate_size", Some(5120))?,
            num_hidden_layers: audio.layers(32)?,
            num_attention_heads: audio.size("num_attention_heads", Some(20))?,
            max_source_positions: audio.size("max_source_positions", Some(1500))?,
            activation_function: audio.activation("activation_function", Activation::Gelu)?,
            projector_hidden_act: config.wrapped_activation("projector_hidden_act", Activation::Gelu)?,
            audio_token_id: token.map_or(Ok(24), |token| crate::config::token("audio_token_id", token))?,
        };
        let (width, heads) = (voxtral.hidden_size, voxtral.num_attention_heads);
        if !width.is_multiple_of(heads) || !voxtral.intermediate_size.is_multiple_of(width) {
            return Err(ConfigError(format!(
                "`hidden_size` is {width}, no multiple of {heads} heads, or {} no multiple of it",
                voxtral.intermediate_size
            )));
        }
        if !voxtral.max_source_positions.is_multiple_of(voxtral.joined()) {
            let places = voxtral.max_source_positions;
            return Err(ConfigError(format!("{places} places cannot be joined by {}", voxtral.joined())));
        }
        Ok(voxtral)
    }

    /// Places that become one row.
    fn joined(&self) -> usize {
        self.intermediate_size / self.hidden_size
    }

    /// Rows of a window.
    pub fn rows(&self) -> usize {
        self.max_source_positions / self.joined()
    }

    fn audio_encoder(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let (joined, width) = (self.intermediate_size, self.text.hidden_size);
        let encoder = SoundEncoder {
            name: "audio_tower",
            mels: self.num_mel_bins,
            width: self.hidden_size,
            layers: self.num_hidden_layers,
            heads: self.num_attention_heads,
            inner: self.intermediate_size,
            places: self.max_source_positions,
            activation: self.activation_function,
        };
        let x = encoder.build(net)?;
        net.enter("multi_modal_projector");
        let shape = vec![literal(1), IntArg::Literal(-1), literal(joined)];
        let x = net.op(Op::Reshape { x, shape })?;
        let first = matrix(net, "multi_modal_projector.linear_1.weight", width, joined)?;
        let x = linear(net, x, first, None)?;
        let x = self.projector_hidden_act.apply(net, x)?;
        let second = matrix(net, "multi_modal_projector.linear_2.weight", width, width)?;
        Ok(vec![("rows".to_owned(), linear(net, x, second, None)?)])
    }
}

impl Architecture for Voxtral {
    fn facts(&self) -> Facts {
        self.text.facts()
    }

    fn parts(&self) -> Vec<&'static str> {
        // The first is the one whose caches metadata describe.
        vec!["text_decoder", "token_embedding", "audio_encoder"]
    }

    fn build_part(&self, part: &str, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        match part {
            "text_decoder" => self.text.text_decoder(net),
            "token_embedding" => self.text.token_embedding(net),
            _ => self.audio_encoder(net),
        }
    }

    fn build(&self, _: &mut Net) -> Result<ValueId, ModelError> {
        Err(ModelError::configuration("a Voxtral is built part by part"))
    }

    fn places(&self) -> Places {
        self.text.places()
    }

    fn keeps_caches_in_graph(&self) -> bool {
        self.text.keeps_caches_in_graph()
    }
}
