//! A store in a folder of its own beside a server, and models to fetch.

use super::Server;
use pteron_registry::{Error, Event, Network, Registry, Sha256, Store, Variant, Wish};
use std::time::Duration;
use tempfile::TempDir;

/// A store in a folder of its own, and a registry of one model with one variant.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) server: Server,
    pub(crate) store: Store,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start();
        let network = Network {
            hub: server.address.clone(),
            hub_token: Some("secret".to_owned()),
            patience: Duration::from_millis(500),
            pause: Duration::from_millis(1),
            retries: 3,
            ..Network::default()
        };
        let store = Store::open(&folder.path().join("store")).unwrap().with_network(network);
        Bench { folder, server, store }
    }

    /// Fetches and tells what happened.
    pub(crate) fn fetch(&self, variant: &Variant) -> (Result<Vec<u8>, Error>, Vec<String>) {
        let mut told = Vec::new();
        let fetched = self.store.fetch(variant, &mut |event| match event {
            Event::Bytes { .. } => {}
            other => told.push(format!("{other:?}")),
        });
        (fetched.map(|installed| std::fs::read(installed.path).unwrap_or_default()), told)
    }

    pub(crate) fn leftovers(&self) -> u64 {
        self.store.partials().unwrap().iter().map(|partial| partial.bytes).sum()
    }
}

/// A variant that is one file.
pub(crate) fn file(sha256: Option<&[u8]>, sources: &[&str]) -> Variant {
    let hash = sha256.map(|bytes| format!("sha256 = '{}'\nsize = {}", Sha256::of(bytes), bytes.len()));
    variant(&format!("kind = 'gguf'\nfile = 'm.gguf'\n{}\nsources = {sources:?}", hash.unwrap_or_default()))
}

pub(crate) fn variant(table: &str) -> Variant {
    let text = format!("[models.m]\nlicence = 'MIT'\n[[models.m.variants]]\nname = 'v'\n{table}");
    let registry = Registry::built_in().unwrap().with("test", &text).unwrap();
    let wish = Wish { platform: pteron_registry::Platform::here(), backend: None, present: &["cpu"] };
    registry.resolve(Some("m"), &wish).unwrap().variant.clone()
}

/// A network that tries everything once.
pub(crate) fn quick() -> Network {
    Network { retries: 0, pause: Duration::from_millis(1), ..Network::default() }
}
