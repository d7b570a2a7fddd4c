//! What decoders are made of. Each block appends its ops to a [`Net`](crate::Net) and knows no architecture.

mod activation;
mod attention;
mod cache;
mod experts;
mod latent;
mod linear;
mod mlp;
mod norm;
mod rope;
mod scores;

pub use activation::Activation;
pub use attention::{Attention, Biases, HeadNorms, Heads, KeyValues, Keys, Span, Warmth, attention};
pub(crate) use cache::RingView;
pub use experts::{Experts, GroupScore, Groups, Router, Scoring, Shared, experts};
pub use latent::{Latent, latent_attention};
pub use linear::{Matrix, bias, embed, linear, matrix, picked, product, stacked};
pub use mlp::{Mlp, MlpKind, mlp};
pub use norm::{Logits, Norm, NormKind, asked_for, capped, head, logits, output_matrix, unweighted_norm};
pub use rope::{Llama3Scaling, LongScaling, Rope, RopeScaling, RopeSettings, YarnScaling};
pub use scores::{Alibi, Scores};
