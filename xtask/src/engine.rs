//! The backends that programs are tried on here: the oracle, and the CPU backend that users get by default.

use std::sync::Arc;

use clap::ValueEnum;
use pteron_cpu::Cpu;
use pteron_runtime::Options;
use pteron_runtime::registry::Registry;

use crate::error::{Error, Result};

/// A backend by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// The fast one.
    Cpu,
    /// The oracle.
    Reference,
}

impl Engine {
    pub(crate) const ALL: [Engine; 2] = [Engine::Cpu, Engine::Reference];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Cpu => "cpu",
            Engine::Reference => "reference",
        }
    }

    /// How a program is loaded on it. Every session computes on its caller's thread alone.
    pub(crate) fn options(self) -> Result<Options> {
        let mut registry = Registry::default();
        if self == Engine::Cpu {
            registry.add(Arc::new(Cpu::new(1, None).map_err(|error| Error::message(error.to_string()))?));
        }
        Ok(Options { backend: Some(self.name().to_owned()), registry, ..Options::default() })
    }
}
