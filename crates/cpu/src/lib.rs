//! The fast CPU backend: compiled plans over vector kernels.
