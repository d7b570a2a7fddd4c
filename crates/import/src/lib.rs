//! Front doors: what people have, turned into what the rest of the workspace works on.
//!
//! One module a source. So far there is [`pt2`], the reader of PyTorch's exported programs. Files flow in
//! under the same [`Limits`](pteron_format::Limits) as everywhere; nothing here runs a program, and nothing
//! in a file is ever called.

pub mod pt2;
