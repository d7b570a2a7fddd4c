//! What programs and sessions do, whatever the backend: every backend's own tests include this.

mod contract;
mod joined;
mod operators;
mod panics;
mod programs;
mod sessions;
mod together;
