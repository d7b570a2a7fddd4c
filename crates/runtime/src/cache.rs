//! The off-graph key-value cache as data: how large it may get, layer by layer. A program's metadata say it, or
//! whoever opens a session does.

use pteron_tensor::DType;

/// The off-graph cache of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    /// Positions that a flat layer can hold; the context.
    pub capacity: usize,
    /// By cache id.
    pub layers: Vec<CacheLayer>,
    /// Positions that one call may write; a ring layer needs that many beyond its window. `None`: the window.
    pub max_write: Option<usize>,
    /// What is stored; `None`: the dtype of the first keys written.
    pub dtype: Option<DType>,
}

/// One layer of the off-graph cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLayer {
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Features of one head.
    pub head_dim: usize,
    /// Positions that attention sees, where it slides: the layer is then a ring.
    pub window: Option<usize>,
}
