//! Tokens to text as they come, whole characters only.
