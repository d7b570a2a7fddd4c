//! Families that read a text as a whole, as rows of the same kind: layers are those of decoders that see what comes, too.

use super::layout::{Fused, Fusion, Layout, USUAL};
use super::row::*;
use super::{Decoder, LayerNorms};
use crate::architectures::LayerKind;
use crate::architectures::decoder::finish::{Finished, each_attention};
use crate::blocks::{Activation, NormKind, Reach};
use crate::{Config, ConfigError};

const BERT_LAYOUT: Layout = Layout {
    prefixes: &["bert.", "model.", ""],
    layers: "encoder.layer",
    modules: &[
        ("embed_tokens", "embeddings.word_embeddings"),
        ("embed_positions", "embeddings.position_embeddings"),
        ("embed_types", "embeddings.token_type_embeddings"),
        ("embed_norm", "embeddings.LayerNorm"),
        ("pooler", "pooler.dense"),
        ("self_attn.q_proj", "attention.self.query"),
        ("self_attn.k_proj", "attention.self.key"),
        ("self_attn.v_proj", "attention.self.value"),
        ("self_attn.o_proj", "attention.output.dense"),
        ("post_attention_layernorm", "attention.output.LayerNorm"),
        ("post_feedforward_layernorm", "output.LayerNorm"),
        ("mlp.up_proj", "intermediate.dense"),
        ("mlp.down_proj", "output.dense"),
    ],
    ..USUAL
};

const ROBERTA_LAYOUT: Layout = Layout { prefixes: &["roberta.", "model.", ""], ..BERT_LAYOUT };

/// BERT: norms of sums, biases everywhere, learned positions.
pub(in crate::architectures) const BERT: Row = Row {
    names: &["bert", "BertModel"],
    sizes: Sizes {
        vocab: 30_522,
        hidden: 768,
        inner: Some(3072),
        layers: 12,
        heads: 12,
        kv_heads: None,
        head_dim: HeadDim::Shared,
        context: 512,
    },
    keys: &Keys { kv_heads: &[""], ..KEYS },
    layout: &BERT_LAYOUT,
    norm: NormKind::Layer,
    eps: ("layer_norm_eps", 1e-12),
    norms: LayerNorms { of_sums: true, ..NORMS_AFTER },
    qkv_bias: ALWAYS,
    out_bias: ALWAYS,
    rope: RopeRow::None,
    activation: ("hidden_act", Activation::Gelu),
    gated: false,
    mlp_bias: ALWAYS,
    embedding_norm: Some(NormKind::Layer),
    tied: true,
    ends: (None, None),
    refused: &["is_decoder", "add_cross_attention"],
    finish: bert,
    ..LLAMA
};

/// RoBERTa and XLM-RoBERTa: the same with positions that begin behind those of padding.
pub(in crate::architectures) const ROBERTA: Row = Row {
    names: &["roberta", "xlm-roberta", "camembert", "RobertaModel", "XLMRobertaModel"],
    sizes: Sizes { vocab: 50_265, ..BERT.sizes },
    layout: &ROBERTA_LAYOUT,
    finish: roberta,
    ..BERT
};

pub(in crate::architectures) const MODERNBERT: Row = Row {
    names: &["modernbert", "ModernBertModel"],
    sizes: Sizes { vocab: 50_368, inner: Some(1152), layers: 22, context: 8192, ..BERT.sizes },
    layout: &Layout {
        modules: &[
            ("embed_tokens", "embeddings.tok_embeddings"),
            ("embed_norm", "embeddings.norm"),
            ("norm", "final_norm"),
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "mlp_norm"),
            ("self_attn.o_proj", "attn.Wo"),
            ("mlp.down_proj", "mlp.Wo"),
        ],
        fused: &[
            Fused {
                parts: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                published: "attn.Wqkv",
                fusion: Fusion::Stacked,
            },
            Fused { parts: &["mlp.gate_proj", "mlp.up_proj"], published: "mlp.Wi", fusion: Fusion::Stacked },
        ],
        ..USUAL
    },
    norm: NormKind::LayerUnbiased,
    eps: ("norm_eps", 1e-5),
    norms: TWO_NORMS,
    qkv_bias: LLAMA.qkv_bias,
    out_bias: LLAMA.out_bias,
    rope: RopeRow::ByKind(160_000.0, 10_000.0),
    windows: Windows::Types(128, None, 3),
    activation: ("hidden_activation", Activation::Gelu),
    gated: true,
    mlp_bias: LLAMA.mlp_bias,
    embedding_norm: Some(NormKind::LayerUnbiased),
    refused: &["norm_bias"],
    finish: modernbert,
    ..BERT
};

fn bert(config: &Config, decoder: &mut Decoder) -> Finished {
    let kind = config.get("position_embedding_type").and_then(serde_json::Value::as_str);
    if kind.is_some_and(|kind| kind != "absolute") {
        return Err(ConfigError(format!("`position_embedding_type` is {kind:?}, which is not supported")));
    }
    decoder.embedding.positions = Some((decoder.max_position_embeddings, 0));
    decoder.embedding.kinds = Some(config.size("type_vocab_size", Some(2))?);
    decoder.head.norm = false;
    each_attention(decoder, |_, heads| heads.reach = Reach::Text);
    Ok(())
}

fn roberta(config: &Config, decoder: &mut Decoder) -> Finished {
    bert(config, decoder)?;
    // The first position comes behind that of padding.
    let first = config.count("pad_token_id", 1)? + 1;
    let rows = decoder.max_position_embeddings;
    if rows <= first {
        return Err(ConfigError(format!(
            "`max_position_embeddings` is {rows}, of which {first} are no text's"
        )));
    }
    decoder.embedding.positions = Some((rows, first));
    decoder.max_position_embeddings = rows - first;
    Ok(())
}

fn modernbert(config: &Config, decoder: &mut Decoder) -> Finished {
    let layers = decoder.layers.len();
    let every = config.size("global_attn_every_n_layers", Some(3))?;
    let kind = |layer: usize| match layer.is_multiple_of(every) {
        true => LayerKind::Full,
        false => LayerKind::Sliding,
    };
    let kinds = config.layer_types(layers, kind)?;
    let distance = config.size("local_attention", Some(128))? / 2;
    // Older files name bases otherwise.
    for (rope, key) in decoder.ropes.iter_mut().zip(["local_rope_theta", "global_rope_theta"]) {
        rope.settings.theta = config.number(key, rope.settings.theta)?;
    }
    for (number, layer) in decoder.layers.iter_mut().enumerate() {
        if let super::Mixing::Heads(heads, rope) = &mut layer.mixing {
            heads.window = None;
            heads.reach = match kinds[number] {
                LayerKind::Full => Reach::Text,
                LayerKind::Sliding => Reach::Near(distance),
            };
            *rope = Some(usize::from(kinds[number] == LayerKind::Full));
        }
        if number == 0 {
            layer.norms.before_attention = None;
        }
    }
    Ok(())
}
