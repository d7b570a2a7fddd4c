//! Models by name: where their bytes come from, how they are fetched, checked and kept.
