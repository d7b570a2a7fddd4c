//! The off-graph key-value cache as data: how large it may get, layer by layer. A program's metadata say it, or
//! whoever opens a session does.

use crate::{Error, Result};
use pteron_format::Limits;
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

impl CacheSpec {
    /// Refuses a cache that cannot be kept, or that would be larger than the limits allow.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        let rows = self.layers.iter().map(|layer| layer.extent(self).0);
        let longest = rows.max().unwrap_or(0).max(self.capacity);
        let cells = (self.layers.len() as u64).saturating_mul(longest as u64);
        if cells > limits.cache_cells {
            let (what, limit) = ("layers times positions of the cache", "cache_cells");
            return Err(Error::Limit { what, limit, found: cells, allowed: limits.cache_cells });
        }
        if let Some(dtype) = self.dtype.filter(|dtype| !dtype.is_float()) {
            return Err(Error::Cache(format!("it cannot store {dtype}")));
        }
        if self.layers.iter().any(|layer| layer.window == Some(0)) {
            return Err(Error::Cache("a window of no positions".to_owned()));
        }
        Ok(())
    }
}

impl CacheLayer {
    /// Positions that the layer holds at once, and how many one call may write. A layer with a window holds what lets
    /// the longest write and the windows of all its queries exist at once.
    pub fn extent(&self, cache: &CacheSpec) -> (usize, usize) {
        match self.window {
            Some(window) => {
                let max_write = cache.max_write.unwrap_or(window).max(1);
                (window.saturating_add(max_write - 1), max_write)
            }
            None => (cache.capacity, cache.capacity),
        }
    }
}
