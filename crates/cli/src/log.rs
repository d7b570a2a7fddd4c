//! What the libraries tell of themselves, on standard error, when PTERON_LOG asks for it.

use std::io;
use tracing_subscriber::filter::LevelFilter;

/// The environment variable: `error`, `warn`, `info`, `debug` or `trace`.
const VARIABLE: &str = "PTERON_LOG";

/// Listens at the level that the environment names; warnings are always shown.
pub(crate) fn listen() {
    let named = std::env::var(VARIABLE).ok().and_then(|level| level.parse().ok());
    let level: LevelFilter = named.unwrap_or(LevelFilter::WARN);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .init();
}
