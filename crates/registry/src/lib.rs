//! Models by name: where their bytes come from, how they are fetched, checked and kept.
//!
//! [`Registry`] is data: names, licences, variants by backend, several sources of the same bytes. [`Store`] is a folder:
//! what was fetched, and what was converted from it. A [`Variant`] flows from the one to the other.
//!
//! Nothing here prints, reads the environment or chooses a folder; what happens is told as [`Event`]s. Packages of other
//! people are read as data and never installed or run. What lands in the store is whole: its size and hash were
//! checked while it came in, and it took its place by one rename.

mod catalogue;
mod digest;
mod error;
mod event;
mod fetch;
mod resolve;
mod source;
mod store;

pub use catalogue::{Export, FileKind, Model, Platform, Registry, Variant};
pub use digest::{NotAHash, Sha256};
pub use error::{Attempt, Error, Refusal, Result};
pub use event::{Event, Listener};
pub use fetch::Network;
pub use resolve::{Considered, Resolution, Verdict, Wish};
pub use source::{Hub, NotASource, Packages, Source};
pub use store::{
    Conversion, Disuse, FileRecord, Found, Identity, Installed, Partial, Piece, Record, Removed, Store,
    Unused,
};
