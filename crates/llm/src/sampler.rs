//! From logits to one token.
