//! One decoder for all families that differ in kind and size of the same parts: what a model is, as data, and how its graph is
//! built from the blocks. What a family is, as data too, is a [`Row`] of `table`; how a row and a file become a model is in
//! `read`, with `finish` and `sparse` for what no column can say; where published files keep weights in `layout`.

mod corrected;
mod delayed;
mod encoders;
mod finish;
mod hybrid;
mod layout;
mod layouts;
mod read;
mod row;
mod sparse;
mod table;

use std::borrow::Cow;

use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;

use super::{Architecture, Facts};
use crate::blocks::{
    Attention, Delta, Experts, Heads, Keys, Latent, Logits, Lru, Matrix, Mlp, MlpKind, Norm, NormKind, Rope,
    RopeSettings, Selective, ShortConv, Ssm, asked_for, attention, bias, delta_rule, embed, experts,
    latent_attention, linear, linear_recurrence, logits, matrix, mlp, output_matrix, selective_scan,
    short_conv, state_space,
};
use crate::{ModelError, Net};

pub(super) use encoders::{BERT, MODERNBERT, ROBERTA};
pub use layout::{Layout, Place, Places, Rows};
pub(super) use row::FOUR_NORMS;
pub use table::{ROWS, Row};

/// A decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// What names of its layers and last norm begin with.
    pub stem: &'static str,
    /// Token ids.
    pub vocab_size: usize,
    /// Features of the residual stream.
    pub hidden_size: usize,
    /// How tokens enter it.
    pub embedding: Embedding,
    /// What norms of the stream do.
    pub norm: NormKind,
    /// What they add to the mean square, or to the variance.
    pub eps: f32,
    /// Rotary positions that layers have.
    pub ropes: Vec<RopeSpec>,
    /// The layers.
    pub layers: Vec<Layer>,
    /// How logits leave it.
    pub head: Head,
    /// Whether what layers add up passes the largest number that f16 has, so that it is kept in f32 then.
    pub wide_sums: bool,
    /// The longest context.
    pub max_position_embeddings: usize,
    /// The token that begins a text.
    pub bos_token_id: Option<u32>,
    /// The tokens that end one.
    pub eos_token_id: Vec<u32>,
    /// How many places its text is behind the sound that it hears, where networks are told that.
    pub delay: Option<usize>,
    /// How published files keep its weights.
    pub layout: &'static Layout,
}

/// How tokens enter the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Features of a token's row, where they are others than those of the stream.
    pub width: Option<usize>,
    /// What rows are multiplied by.
    pub factor: Option<f32>,
    /// A norm of them.
    pub norm: Option<NormKind>,
    /// Learned rows for positions: how many, and the number of the first.
    pub positions: Option<(usize, usize)>,
    /// Sines and cosines of positions, and the number of the first.
    pub waves: Option<usize>,
    /// Rows for kinds of tokens.
    pub kinds: Option<usize>,
}

/// How logits leave the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Whether the stream is normed once more.
    pub norm: bool,
    /// Whether the matrix is the embedding.
    pub tied: bool,
    /// Whether it has a bias.
    pub bias: bool,
    /// What logits are multiplied by.
    pub factor: f32,
    /// The magnitude that they stay below.
    pub soft_cap: Option<f32>,
}

/// Rotary positions of some layers.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// What tells them from others of the model.
    pub name: Cow<'static, str>,
    /// Features of a head that turn, the first ones.
    pub dims: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Base and scaling.
    pub settings: RopeSettings,
    /// Whether pairs are neighbours.
    pub interleaved: bool,
    /// Whether they turn by negative angles.
    pub backwards: bool,
}

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its norms, by the names that published files give them.
    pub norms: LayerNorms,
    /// Whether both halves read the same stream, and not the second what the first has added.
    pub parallel: bool,
    /// What either half is multiplied by before it is added.
    pub factor: f32,
    /// Its attention.
    pub mixing: Mixing,
    /// Its feed-forward network.
    pub feed: Feed,
}

/// The norms of a layer, by name, where there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerNorms {
    /// Of what attention reads.
    pub before_attention: Option<&'static str>,
    /// Of what attention adds.
    pub after_attention: Option<&'static str>,
    /// Of what the feed-forward network reads; in parallel layers without one, what attention reads.
    pub before_feed: Option<&'static str>,
    /// Of what it adds.
    pub after_feed: Option<&'static str>,
    /// Whether those after go over the sum, and not over what is added (OPT 350M).
    pub of_sums: bool,
}

/// How a layer's tokens learn of those before them. What is not attention keeps a state of all tokens so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixing {
    /// By heads, with the rotary positions of that number.
    Heads(Heads, Option<usize>),
    /// By way of few features, with the rotary positions of that number.
    Latent(Latent, usize),
    /// By a convolution over the last few.
    Conv(ShortConv),
    /// By states whose heads fade as a whole (Mamba 2).
    Ssm(Ssm),
    /// By states that fade each for itself (Mamba).
    Selective(Selective),
    /// By the gated delta rule.
    Delta(Delta),
    /// By a gated linear recurrence (RecurrentGemma).
    Lru(Lru),
    /// By heads and by states, added up.
    Both(Beside, Option<usize>, Ssm),
    /// Not at all.
    None,
}

impl Mixing {
    /// The module of its weights.
    fn module(&self) -> &'static str {
        match self {
            Mixing::Heads(..) | Mixing::Latent(..) | Mixing::Both(..) | Mixing::None => "self_attn",
            Mixing::Conv(_) => "conv",
            Mixing::Ssm(_) | Mixing::Selective(_) => "mamba",
            Mixing::Delta(_) => "linear_attn",
            Mixing::Lru(_) => "recurrent",
        }
    }

    /// Its attention, where that is by heads.
    fn heads(&self) -> Option<Heads> {
        match self {
            Mixing::Heads(heads, _) => Some(*heads),
            Mixing::Both(beside, ..) => Some(beside.heads),
            _ => None,
        }
    }
}

/// Attention beside a state space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// The attention.
    pub heads: Heads,
    /// What its input is multiplied by.
    pub inwards: f32,
    /// What it adds is multiplied by.
    pub outwards: f32,
    /// What the state space adds is multiplied by.
    pub of_states: f32,
}

/// A layer's feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Feed {
    /// One.
    Mlp(MlpKind),
    /// Many, of which a few serve each token.
    Experts(Experts),
    /// None.
    None,
}

/// A layer with two norms before its halves.
pub(super) fn plain_layer(mixing: Mixing, feed: Feed) -> Layer {
    Layer { norms: row::TWO_NORMS, parallel: false, factor: 1.0, mixing, feed }
}

impl Decoder {
    /// One without sizes and layers, with norms of that kind.
    pub(super) fn plain(norm: NormKind, tied: bool) -> Decoder {
        Decoder {
            stem: "model",
            vocab_size: 0,
            hidden_size: 0,
            embedding: Embedding {
                width: None,
                factor: None,
                norm: None,
                positions: None,
                waves: None,
                kinds: None,
            },
            norm,
            eps: 0.0,
            ropes: Vec::new(),
            layers: Vec::new(),
            head: Head { norm: true, tied, bias: false, factor: 1.0, soft_cap: None },
            wide_sums: false,
            max_position_embeddings: 0,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            delay: None,
            layout: &layout::USUAL,
        }
    }

    /// The same with further rotary positions of whole heads.
    pub(super) fn turned(mut self, name: &'static str, head_dim: usize, settings: &RopeSettings) -> Decoder {
        let (settings, interleaved, backwards) = (settings.clone(), false, false);
        let name = name.into();
        self.ropes.push(RopeSpec { name, dims: head_dim, head_dim, settings, interleaved, backwards });
        self
    }

    pub(super) fn norm_of(&self, name: String) -> Norm {
        Norm { name, size: self.hidden_size, eps: self.eps, kind: self.norm }
    }

    /// The embedding's matrix, and what enters the first layer.
    fn enter(&self, net: &mut Net) -> Result<(Matrix, ValueId), ModelError> {
        net.enter("embedding");
        let width = self.embedding.width.unwrap_or(self.hidden_size);
        let table = matrix(net, "model.embed_tokens.weight", self.vocab_size, width)?;
        let mut x = embed(net, table, net.tokens())?;
        if let Some(factor) = self.embedding.factor {
            x = net.scaled(x, factor)?;
        }
        if self.wide_sums && net.activations() == DType::F16 {
            x = net.cast(x, DType::F32)?;
        }
        if self.embedding.width.is_some() {
            let inwards = matrix(net, "model.project_in.weight", self.hidden_size, width)?;
            x = linear(net, x, inwards, None)?;
        }
        if let Some((count, first)) = self.embedding.positions {
            let dtype = net.activations();
            let rows = net.floats("model.embed_positions.weight", &[count, self.hidden_size], dtype, 0.0)?;
            let mut positions = net.positions()?;
            if first > 0 {
                let first = net.scalar(first as f32, DType::I64);
                positions = net.add(positions, first)?;
            }
            let rows = net.rows(rows, positions)?;
            x = net.add(x, rows)?;
        }
        if let Some(first) = self.embedding.waves {
            let waves = self.waves(net, first)?;
            x = net.add(x, waves)?;
        }
        if let Some(count) = self.embedding.kinds {
            let dtype = net.activations();
            let rows = net.floats("model.embed_types.weight", &[count, self.hidden_size], dtype, 0.0)?;
            let rows = match net.kinds() {
                Some(kinds) => net.rows(rows, kinds)?,
                // All are of the first.
                None => net.pick(rows, 0, 0)?,
            };
            x = net.add(x, rows)?;
        }
        if let Some(kind) = self.embedding.norm {
            let name = "model.embed_norm.weight".to_owned();
            x = Norm { kind, ..self.norm_of(name) }.apply(net, x)?;
        }
        Ok((table, x))
    }

    /// Sines of all positions times ever smaller numbers, then their cosines, `[T, hidden]`.
    fn waves(&self, net: &mut Net, first: usize) -> Mixed {
        let half = self.hidden_size / 2;
        let step = 10_000f32.ln() / (half as f32 - 1.0);
        let numbers: Vec<f32> = (0..half).map(|at| (at as f32 * -step).exp()).collect();
        let numbers = net.vector("waves", &numbers);
        let positions = net.positions()?;
        let positions = net.cast(positions, DType::F32)?;
        let first = net.scalar(first as f32, DType::F32);
        let positions = net.add(positions, first)?;
        let positions = net.op(Op::ExpandDims { x: positions, axis: 1 })?;
        let angles = net.multiply(positions, numbers)?;
        let (sines, cosines) = (net.op(Op::Sin { x: angles })?, net.op(Op::Cos { x: angles })?);
        let waves = net.op(Op::Concatenate { tensors: vec![sines, cosines], axis: 1 })?;
        let dtype = net.activations();
        net.cast(waves, dtype)
    }

    fn mix(&self, net: &mut Net, x: ValueId, prefix: &str, layer: &Layer, ropes: &[Rope]) -> Mixed {
        let hidden = self.hidden_size;
        let name = format!("{prefix}.{}", layer.mixing.module());
        match &layer.mixing {
            Mixing::Heads(heads, rope) => {
                let rope = rope.and_then(|at| ropes.get(at));
                let spec = Attention { name: &name, hidden, heads: *heads, rope, keys: Keys::Own };
                Ok(attention(net, x, &spec)?.0)
            }
            Mixing::Latent(latent, rope) => {
                let rope = ropes.get(*rope);
                let rope = rope.ok_or_else(|| ModelError::configuration("latent attention without rope"))?;
                latent_attention(net, x, &name, hidden, latent, rope)
            }
            Mixing::Conv(conv) => short_conv(net, x, &name, hidden, conv),
            Mixing::Ssm(ssm) => state_space(net, x, &name, hidden, ssm),
            Mixing::Selective(of) => selective_scan(net, x, &name, hidden, of),
            Mixing::Delta(delta) => delta_rule(net, x, &name, hidden, delta),
            Mixing::Lru(lru) => linear_recurrence(net, x, &name, hidden, lru),
            Mixing::Both(beside, rope, ssm) => {
                let rope = rope.and_then(|at| ropes.get(at));
                let kept = state_space(net, x, &format!("{prefix}.mamba"), hidden, ssm)?;
                let kept = net.scaled(kept, beside.of_states)?;
                let x = net.scaled(x, beside.inwards)?;
                let spec = Attention { name: &name, hidden, heads: beside.heads, rope, keys: Keys::Own };
                let (attended, _) = attention(net, x, &spec)?;
                let attended = net.scaled(attended, beside.outwards)?;
                net.add(kept, attended)
            }
            Mixing::None => Err(ModelError::configuration("a layer without attention has nothing to mix")),
        }
    }

    fn feed(&self, net: &mut Net, x: ValueId, prefix: &str, layer: &Layer) -> Mixed {
        let (name, hidden) = (format!("{prefix}.mlp"), self.hidden_size);
        match &layer.feed {
            Feed::Mlp(kind) => mlp(net, x, &Mlp { name: &name, hidden, kind: *kind }),
            Feed::Experts(of) => experts(net, x, &name, hidden, of),
            Feed::None => Err(ModelError::configuration("a layer without a network has nothing to feed")),
        }
    }

    /// What one layer makes of the stream.
    fn layer(&self, net: &mut Net, x: ValueId, number: usize, layer: &Layer, ropes: &[Rope]) -> Mixed {
        let prefix = format!("{}.layers.{number}", self.stem);
        let names = layer.norms;
        let sums = net.dtype(x).unwrap_or(DType::F32);
        let before = |net: &mut Net, x, name: Option<&str>| match name {
            Some(name) => self.norm_of(format!("{prefix}.{name}.weight")).apply(net, x),
            None => {
                let dtype = net.activations();
                net.cast(x, dtype)
            }
        };
        let added = |net: &mut Net, x: ValueId, part: ValueId, name: Option<&str>| {
            let norm = name.map(|name| self.norm_of(format!("{prefix}.{name}.weight")));
            let part = match &norm {
                Some(norm) if !names.of_sums => norm.apply_in(net, part, sums)?,
                _ => part,
            };
            let part = if layer.factor == 1.0 { part } else { net.scaled(part, layer.factor)? };
            let sum = net.add(x, part)?;
            match &norm {
                Some(norm) if names.of_sums => norm.apply_in(net, sum, sums),
                _ => Ok(sum),
            }
        };
        if layer.mixing == Mixing::None {
            let normed = before(net, x, names.before_feed)?;
            let fed = self.feed(net, normed, &prefix, layer)?;
            return added(net, x, fed, names.after_feed);
        }
        let normed = before(net, x, names.before_attention)?;
        let attended = self.mix(net, normed, &prefix, layer, ropes)?;
        if layer.feed == Feed::None {
            return added(net, x, attended, names.after_attention);
        }
        if layer.parallel {
            let input = match names.before_feed {
                Some(name) => before(net, x, Some(name))?,
                None => normed,
            };
            let fed = self.feed(net, input, &prefix, layer)?;
            let x = added(net, x, attended, names.after_attention)?;
            return added(net, x, fed, names.after_feed);
        }
        let x = added(net, x, attended, names.after_attention)?;
        let normed = match (self.delay, names.before_feed) {
            (Some(delay), Some(name)) => delayed::norm(self, net, x, &prefix, name, delay)?,
            _ => before(net, x, names.before_feed)?,
        };
        let fed = self.feed(net, normed, &prefix, layer)?;
        added(net, x, fed, names.after_feed)
    }

    pub(super) fn all_layers(&self, net: &mut Net, x: ValueId) -> Mixed {
        self.layers_with(net, x, &[])
    }

    /// All layers, with something more added to what leaves each of the first.
    fn layers_with(&self, net: &mut Net, mut x: ValueId, more: &[ValueId]) -> Mixed {
        let context = net.options().context;
        let ropes = self.ropes.iter().map(|spec| {
            let rope = Rope::new(&spec.name, spec.dims, &spec.settings, context)?;
            Ok(rope.within(spec.head_dim).interleaved(spec.interleaved).backwards(spec.backwards))
        });
        let ropes = ropes.collect::<Result<Vec<Rope>, ModelError>>()?;
        for (number, layer) in self.layers.iter().enumerate() {
            x = self.layer(net, x, number, layer, &ropes)?;
            if let Some(&more) = more.get(number) {
                x = net.add(x, more)?;
            }
        }
        Ok(x)
    }

    /// The embedding's matrix, and what leaves the last layer.
    pub(super) fn states(&self, net: &mut Net) -> Result<(Matrix, ValueId), ModelError> {
        let (table, x) = self.enter(net)?;
        Ok((table, self.all_layers(net, x)?))
    }

    /// Logits of rows that are not made of tokens here, with something more added to what leaves each of the first layers.
    pub(super) fn over(&self, net: &mut Net, rows: ValueId, more: &[ValueId]) -> Mixed {
        let x = self.layers_with(net, rows, more)?;
        let width = self.embedding.width.unwrap_or(self.hidden_size);
        let table = if self.head.tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
        let table = matrix(net, table, self.vocab_size, width)?;
        self.leave(net, x, table)
    }

    /// The part of a model that hears which makes rows of tokens.
    pub(super) fn token_embedding(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let length = net.symbol("T", net.options().chunk);
        let tokens = net.input("tokens", DType::I64, vec![Dim::known(1), length]);
        net.enter("embedding");
        let table = matrix(net, "model.embed_tokens.weight", self.vocab_size, self.hidden_size)?;
        Ok(vec![("rows".to_owned(), embed(net, table, tokens)?)])
    }

    /// The part of a model that hears which reads rows, be they of tokens or of sound.
    pub(super) fn text_decoder(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let rows = net.text_rows(self.hidden_size)?;
        Ok(vec![("logits".to_owned(), self.over(net, rows, &[])?)])
    }

    pub(super) fn last_norm(&self, net: &mut Net, x: ValueId) -> Mixed {
        self.norm_of(format!("{}.norm.weight", self.stem)).apply(net, x)
    }

    fn leave(&self, net: &mut Net, x: ValueId, table: Matrix) -> Mixed {
        let width = self.embedding.width.unwrap_or(self.hidden_size);
        let output = output_matrix(net, table, self.head.tied, self.vocab_size, width)?;
        let mut x = asked_for(net, x)?;
        x = match self.head.norm {
            true => self.last_norm(net, x)?,
            false => {
                let dtype = net.activations();
                net.cast(x, dtype)?
            }
        };
        if self.embedding.width.is_some() {
            let outwards = matrix(net, "model.project_out.weight", width, self.hidden_size)?;
            x = linear(net, x, outwards, None)?;
        }
        let bias = match self.head.bias {
            true => Some(bias(net, "lm_head.bias", self.vocab_size)?),
            false => None,
        };
        let Head { factor, soft_cap, .. } = self.head;
        logits(net, x, &Logits { matrix: output, bias, factor, soft_cap })
    }
}

type Mixed = Result<ValueId, ModelError>;

impl Architecture for Decoder {
    fn facts(&self) -> Facts {
        Facts {
            vocab_size: self.vocab_size,
            layers: self.layers.len(),
            bos: self.bos_token_id,
            eos: self.eos_token_id.clone(),
            context: self.max_position_embeddings,
        }
    }

    fn build(&self, net: &mut Net) -> Mixed {
        let (table, x) = self.states(net)?;
        self.leave(net, x, table)
    }

    fn places(&self) -> Places {
        let heads = self.layers.iter().find_map(|layer| layer.mixing.heads());
        let delta = self.layers.iter().find_map(|layer| match layer.mixing {
            Mixing::Delta(delta) => Some(delta),
            _ => None,
        });
        let inner = |number: usize| match self.layers.get(number).map(|layer| layer.feed) {
            Some(Feed::Mlp(kind)) => (kind.inner, None),
            Some(Feed::Experts(of)) => {
                (of.inner, Some((of.count, of.shared.map_or(0, |shared| shared.inner))))
            }
            Some(Feed::None) | None => (0, None),
        };
        let inners = (0..self.layers.len()).map(inner).collect();
        let heads = heads.map_or((1, 1, 1), |heads| (heads.heads, heads.kv_heads, heads.head_dim));
        Places::new(self.layout, heads, inners).with_delta(delta)
    }

    fn keeps_caches_in_graph(&self) -> bool {
        let is_plain = |layer: &Layer| layer.mixing.heads().is_none_or(|heads| heads.scores.is_plain());
        !self.layers.iter().all(is_plain)
    }
}
