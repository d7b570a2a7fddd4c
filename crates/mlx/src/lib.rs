//! The real MLX as a backend, through a small C++ shim opened at run time.
