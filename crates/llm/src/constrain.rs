//! Output that a grammar or a JSON schema bounds.
