//! What decoders are made of. Each block appends its ops to a [`Net`](crate::Net) and knows no architecture.

mod activation;
mod attention;
mod cache;
mod linear;
mod mlp;
mod norm;
mod rope;

pub use activation::Activation;
pub use attention::{Attention, Biases, HeadNorms, KeyValues, Keys, attention};
pub(crate) use cache::RingView;
pub use linear::{Matrix, bias, embed, linear, matrix, product};
pub use mlp::{Mlp, gated_mlp};
pub use norm::{Norm, head, output_matrix, unweighted_norm};
pub use rope::{Llama3Scaling, LongScaling, Rope, RopeScaling, RopeSettings, YarnScaling};
