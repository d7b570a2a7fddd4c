//! What a family is, as data: defaults of its configuration, kinds of its parts, and by which keys a file chooses among them.

use super::layout::{Layout, USUAL};
use super::{Decoder, LayerNorms};
use crate::blocks::{Activation, NormKind, Span};
use crate::config::RopeKeys;
use crate::{Config, ConfigError};

/// A family.
#[derive(Clone, Copy)]
pub struct Row {
    /// `model_type`, and the names in `architectures`.
    pub names: &'static [&'static str],
    /// Sizes where the file does not say them.
    pub sizes: Sizes,
    /// By which keys it says them.
    pub keys: &'static Keys,
    /// Where the files keep weights.
    pub layout: &'static Layout,
    /// What norms of the stream do.
    pub norm: NormKind,
    /// The key of what they add, and what it is otherwise; without a key it is fixed.
    pub eps: (&'static str, f32),
    /// The norms of a layer.
    pub norms: LayerNorms,
    /// Whether both halves of a layer read the same stream.
    pub parallel: Flag,
    /// Whether projections of queries, keys and values have biases.
    pub qkv_bias: Flag,
    /// Whether the output's has one.
    pub out_bias: Flag,
    /// Norms of queries and keys, and when there are any.
    pub head_norms: Option<HeadNormRow>,
    /// What scores are multiplied by.
    pub scale: Scale,
    /// The magnitude that scores stay below, where the file does not say it; without, no key is looked at.
    pub score_cap: Option<Option<f32>>,
    /// The key of the magnitude that projections are cut to.
    pub clip: Option<&'static str>,
    /// Rotary positions.
    pub rope: RopeRow,
    /// Layers that do not turn.
    pub still: Still,
    /// Which layers see only a window.
    pub windows: Windows,
    /// The key of the activation, and what it is otherwise.
    pub activation: (&'static str, Activation),
    /// Whether what is activated is a gate.
    pub gated: bool,
    /// Whether matrices of the feed-forward network have biases.
    pub mlp_bias: Flag,
    /// What the rows of tokens are multiplied by.
    pub embedding: Factor,
    /// A norm of them.
    pub embedding_norm: Option<NormKind>,
    /// What halves of layers are multiplied by.
    pub residual: Factor,
    /// What logits are multiplied by.
    pub logits: Factor,
    /// The magnitude that logits stay below, where the file does not say it; without, no key is looked at.
    pub logit_cap: Option<Option<f32>>,
    /// Whether the head is the embedding, where the file does not say it.
    pub tied: bool,
    /// Whether the head has a bias.
    pub head_bias: Flag,
    /// The token that begins a text, and the one that ends it, where the file does not say them.
    pub ends: (Option<u32>, Option<u32>),
    /// Whether sums pass the largest number of f16.
    pub wide_sums: bool,
    /// Keys that change the model and are not built.
    pub refused: &'static [&'static str],
    /// What no other column can say.
    pub finish: fn(&Config, &mut Decoder) -> Result<(), ConfigError>,
}

/// Sizes where a file does not say them.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Token ids.
    pub vocab: usize,
    /// Features of the stream.
    pub hidden: usize,
    /// Features inside the feed-forward network; without, four times those of the stream.
    pub inner: Option<usize>,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key heads; without, as many as query heads.
    pub kv_heads: Option<usize>,
    /// Features of a head.
    pub head_dim: HeadDim,
    /// Positions.
    pub context: usize,
}

/// Features of a head.
#[derive(Clone, Copy, Debug)]
pub enum HeadDim {
    /// What `head_dim` says, or else the stream's by the number of heads.
    Said,
    /// What `head_dim` says, or else so many.
    Usual(usize),
    /// The stream's by the number of heads, whatever the file says.
    Shared,
}

/// Keys of sizes; of several the first that is there counts.
#[derive(Debug)]
#[allow(missing_docs)] // as in `Sizes`
pub struct Keys {
    pub hidden: &'static [&'static str],
    pub inner: &'static [&'static str],
    pub layers: &'static [&'static str],
    pub heads: &'static [&'static str],
    pub kv_heads: &'static [&'static str],
    pub context: &'static [&'static str],
}

/// The keys that most families have.
pub(super) const KEYS: Keys = Keys {
    hidden: &["hidden_size"],
    inner: &["intermediate_size"],
    layers: &["num_hidden_layers"],
    heads: &["num_attention_heads"],
    kv_heads: &["num_key_value_heads"],
    context: &["max_position_embeddings"],
};

/// Something that is, or that a key says.
#[derive(Clone, Copy, Debug)]
pub enum Flag {
    /// Always so.
    Is(bool),
    /// By a key, and so otherwise.
    Key(&'static str, bool),
}

impl Flag {
    pub(super) fn read(self, config: &Config) -> Result<bool, ConfigError> {
        match self {
            Flag::Is(is) => Ok(is),
            Flag::Key(key, otherwise) => config.flag(key, otherwise),
        }
    }
}

/// A factor.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// None.
    One,
    /// What a key says, or a number otherwise.
    Key(&'static str, f32),
    /// One by what a key says, or by a number otherwise.
    By(&'static str, f32),
    /// The root of the stream's features.
    RootOfHidden,
}

impl Factor {
    pub(super) fn read(self, config: &Config, hidden: usize) -> Result<f32, ConfigError> {
        Ok(match self {
            Factor::One => 1.0,
            Factor::Key(key, otherwise) => config.number(key, otherwise)?,
            Factor::By(key, otherwise) => config.number(key, otherwise)?.recip(),
            Factor::RootOfHidden => (hidden as f32).sqrt(),
        })
    }
}

/// What scores are multiplied by.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// One by the root of a head's features.
    RootOfHead,
    /// What a key says, or a number otherwise.
    Key(&'static str, f32),
    /// One by the root of what a key says, or of a number otherwise.
    RootOfKey(&'static str, f32),
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct HeadNormRow {
    /// Whether there are any.
    pub when: Flag,
    /// What they do.
    pub kind: NormKind,
    /// What they go over.
    pub span: Span,
    /// Whether positions turn before.
    pub after_rope: bool,
}

/// Rotary positions.
#[derive(Clone, Copy, Debug)]
pub enum RopeRow {
    /// None.
    None,
    /// The same in all layers.
    One {
        /// How they are spelled.
        keys: RopeKeys,
        /// Whether pairs are neighbours.
        interleaved: bool,
        /// Whether they turn by negative angles.
        backwards: bool,
    },
    /// By kind of layer: bases of full and of sliding ones.
    ByKind(f32, f32),
}

impl RopeRow {
    /// Whole heads, halves as pairs.
    pub const fn usual(theta: f32) -> RopeRow {
        RopeRow::One { keys: RopeKeys::usual(theta), interleaved: false, backwards: false }
    }

    /// The same with a part of each head, by that key.
    pub const fn partial(key: &'static str, part: f64, interleaved: bool) -> RopeRow {
        let keys = RopeKeys { partial: Some((key, part)), ..RopeKeys::usual(10_000.0) };
        RopeRow::One { keys, interleaved, backwards: false }
    }

    /// Whole heads, neighbours as pairs.
    pub const fn interleaved(theta: f32) -> RopeRow {
        RopeRow::One { keys: RopeKeys::usual(theta), interleaved: true, backwards: false }
    }
}

/// Layers that do not turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Still {
    /// None.
    None,
    /// Those that see all, beside others that slide.
    Full,
    /// Those that `no_rope_layers` says 0 of, or else every n-th, n being `no_rope_layer_interval`.
    Listed,
}

/// Which layers see only a window of positions.
#[derive(Clone, Copy, Debug)]
pub enum Windows {
    /// None.
    None,
    /// All, where `sliding_window` is not null, or else of so many positions.
    All(Option<usize>),
    /// Those that `layer_types` names, with a window of so many positions unless `sliding_window` says it; where the file does
    /// not name them, all but every n-th, by that key where there is one.
    Types(usize, Option<&'static str>, usize),
    /// Those that `layer_types` names, with a window of so many positions; where the file does not name them, all but the first of so many.
    AllButFirst(usize, usize),
    /// Those from `max_window_layers` on, or else from that one, unless `sliding_window` is null (dots.llm1).
    From(usize, usize),
    /// All of them, unless `layer_types` says otherwise (Ministral).
    AllTypes(usize),
    /// With `use_sliding_window`, those from `max_window_layers` on (Qwen).
    Switched(usize),
}

/// The norms of most families.
pub(super) const TWO_NORMS: LayerNorms = LayerNorms {
    before_attention: Some("input_layernorm"),
    after_attention: None,
    before_feed: Some("post_attention_layernorm"),
    after_feed: None,
    of_sums: false,
};

/// Gemma's.
pub(crate) const FOUR_NORMS: LayerNorms = LayerNorms {
    before_attention: Some("input_layernorm"),
    after_attention: Some("post_attention_layernorm"),
    before_feed: Some("pre_feedforward_layernorm"),
    after_feed: Some("post_feedforward_layernorm"),
    of_sums: false,
};

/// Those of families that norm only what is added.
pub(super) const NORMS_AFTER: LayerNorms = LayerNorms {
    before_attention: None,
    after_attention: Some("post_attention_layernorm"),
    before_feed: None,
    after_feed: Some("post_feedforward_layernorm"),
    of_sums: false,
};

/// One norm for both halves of a parallel layer.
pub(super) const ONE_NORM: LayerNorms = LayerNorms { before_feed: None, ..TWO_NORMS };

/// Norms by head, with one weight for all of them.
pub(super) const HEAD_NORMS: HeadNormRow =
    HeadNormRow { when: Flag::Is(true), kind: NormKind::Rms, span: Span::Head, after_rope: false };

/// The same where every file has them.
pub(super) const BY_HEAD: Option<HeadNormRow> = Some(HEAD_NORMS);

/// Llama: what other families say their differences from.
pub(super) const LLAMA: Row = Row {
    names: &["llama", "LlamaForCausalLM"],
    sizes: Sizes {
        vocab: 32_000,
        hidden: 4096,
        inner: Some(11_008),
        layers: 32,
        heads: 32,
        kv_heads: None,
        head_dim: HeadDim::Said,
        context: 2048,
    },
    keys: &KEYS,
    layout: &USUAL,
    norm: NormKind::Rms,
    eps: ("rms_norm_eps", 1e-6),
    norms: TWO_NORMS,
    parallel: Flag::Is(false),
    qkv_bias: Flag::Key("attention_bias", false),
    out_bias: Flag::Key("attention_bias", false),
    head_norms: None,
    scale: Scale::RootOfHead,
    score_cap: None,
    clip: None,
    rope: RopeRow::usual(10_000.0),
    still: Still::None,
    windows: Windows::None,
    activation: ("hidden_act", Activation::Silu),
    gated: true,
    mlp_bias: Flag::Key("mlp_bias", false),
    embedding: Factor::One,
    embedding_norm: None,
    residual: Factor::One,
    logits: Factor::One,
    logit_cap: None,
    tied: false,
    head_bias: Flag::Is(false),
    ends: (Some(1), Some(2)),
    wide_sums: false,
    refused: &[],
    finish: |_, _| Ok(()),
};

/// What no file says is so.
pub(super) const NEVER: Flag = Flag::Is(false);
/// What every file says is so.
pub(super) const ALWAYS: Flag = Flag::Is(true);
