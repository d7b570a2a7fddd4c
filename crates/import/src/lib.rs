//! Front doors: what people have, turned into what the rest of the workspace works on.
//!
//! One module a source: [`pt2`] reads exported programs of PyTorch, [`lower`] turns them into graphs, and [`compile`]
//! puts whole programs together. Files flow in under the same [`Limits`](pteron_format::Limits) as everywhere; nothing
//! here runs a program, and nothing in a file is ever called.

pub mod compile;
pub mod lower;
pub mod pt2;
