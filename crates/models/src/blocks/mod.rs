//! What decoders are made of. Each block appends its ops to a [`Net`](crate::Net) and knows no architecture.

mod activation;
mod altup;
mod attention;
mod cache;
mod conv;
mod delta;
mod difference;
mod experts;
mod latent;
mod linear;
mod lru;
mod mlp;
mod norm;
mod per_layer;
mod rope;
mod scores;
mod selective;
mod ssm;

pub use activation::Activation;
pub use altup::Streams;
pub use attention::{Attention, Biases, HeadNorms, Heads, KeyValues, Keys, Reach, Span, Warmth, attention};
pub(crate) use cache::RingView;
pub use conv::{ShortConv, short_conv};
pub use delta::{Delta, DeltaDims, delta_rule};
pub use difference::Pairs;
pub use experts::{Divisor, Experts, GroupScore, Groups, Router, Scoring, Shared, experts};
pub use latent::{Latent, latent_attention};
pub(crate) use linear::product_of;
pub use linear::{Matrix, bias, embed, linear, matrix, picked, product, projected, stacked, unpacked};
pub use lru::{Lru, linear_recurrence};
pub use mlp::{Mlp, MlpKind, mlp};
pub use norm::{
    Logits, Norm, NormKind, asked_for, capped, head, layer_norm, logits, output_matrix, unweighted_norm,
};
pub use per_layer::{PerLayer, PerLayerInputs};
pub(crate) use rope::turned_by;
pub use rope::{Llama3Scaling, LongScaling, Rope, RopeScaling, RopeSettings, YarnScaling};
pub use scores::{Alibi, Scores};
pub use selective::{Selective, SelectiveNorms, selective_scan};
pub use ssm::{GatedNorm, Ssm, state_space};
