//! What programs and sessions do, whatever the backend: every backend's own tests include this.

mod panics;
mod programs;
mod sessions;
