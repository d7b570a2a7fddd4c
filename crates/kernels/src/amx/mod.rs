//! Matrix tiles of x86: permission, configuration and the instructions, which stable Rust has no functions
//! for.

#[cfg(target_arch = "x86_64")]
mod tiles;

#[cfg(target_arch = "x86_64")]
pub use tiles::{Configured, Few, TILE_ROWS, is_permitted};
