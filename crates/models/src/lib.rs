//! Decoder language models as graphs: shared blocks, one small file per architecture, and how they become a program.
//!
//! A typed configuration and a [`WeightSource`] flow in; a [`Model`] flows out: a graph over
//! `forward(tokens[1,T], input_pos)`, the list of its weights, and what runners want to know of it. Weights are
//! named while the graph is built and read when the file is written, one tensor at a time, so that a model of any size
//! passes through little memory. Nothing here knows how ops compute.

pub mod architectures;
pub mod blocks;
pub mod config;
mod error;
mod model;
mod net;
pub mod parallel;
mod quantize;
mod random;
pub mod shapes;
mod weights;

pub use architectures::{Architecture, Facts};
pub use config::{Config, ConfigError};
pub use error::ModelError;
pub use model::{KvCache, Logits, Model, ModelOptions, Position};
pub use net::Net;
pub use quantize::{
    Deviation, Handling, Method, PackedMatrix, Packing, PackingError, Quantization, Rule, WeightReport,
};
pub use random::RandomWeights;
pub use weights::{Form, Part, Wanted, WeightError, WeightSource, encode};
