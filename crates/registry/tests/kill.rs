//! Processes that are killed at any moment of a download or a conversion: what is there afterwards is whole, and the next
//! process goes on.
//!
//! `cargo test --release -p pteron-registry --test kill -- --kills 200` kills more often than the usual 20 times.

#![allow(clippy::unwrap_used)]

mod support;

use pteron_registry::{Error, Identity, Network, Piece, Platform, Registry, Sha256, Store, Variant, Wish};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{Page, Server, noise};

/// Bytes of the file.
const SIZE: usize = 2_000_000;

/// Bytes that the server sends at once.
const BLOCK: usize = 50_000;

/// Steps of a conversion.
const STEPS: usize = 20;

/// What a source is made into.
const PIECES: [&str; 2] = ["weights.ptd", "model.pte"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, role, store, url] if role == "--work" => work(Path::new(store), url),
        _ => kill(kills(&arguments)),
    }
}

fn kills(arguments: &[String]) -> usize {
    let at = arguments.iter().position(|argument| argument == "--kills");
    at.map_or(20, |at| arguments[at + 1].parse().unwrap())
}

/// The process that is killed: fetches, then converts, and writes a byte wherever it could be killed.
fn work(store: &Path, url: &str) {
    let store = open(store);
    let installed = store.fetch(&variant(url), &mut |_| step()).unwrap();
    let convert = |out: &mut dyn Write| {
        let source = std::fs::read(&installed.path).unwrap();
        for part in source.chunks(SIZE / STEPS) {
            out.write_all(part).unwrap();
            step();
        }
        Ok::<(), Error>(())
    };
    // Weights and a program, as pieces of one source.
    for file in PIECES {
        let piece = Piece { file, format: 1, options: "options" };
        store.converted(&Identity::of_installed(&installed), &piece, convert).unwrap();
        step();
    }
}

fn step() {
    let mut out = std::io::stdout();
    out.write_all(b".").unwrap();
    out.flush().unwrap();
}

fn kill(kills: usize) {
    let server = Server::start();
    let bytes = noise(SIZE, 1);
    let slow = Page { slow: Some((Duration::from_millis(1), BLOCK)), ..Page::of(&bytes) };
    let url = server.put("/m", slow);
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (mut killed, mut in_download, mut in_conversion) = (0, 0, 0);
    while killed < kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let steps = (random >> 33) as usize % (SIZE / BLOCK + 2 * STEPS + 5);
        let moment = Duration::from_micros(random >> 50 & 0x7ff);
        let was_ended_early = start_and_kill(folder.path(), &url, steps, moment);
        killed += usize::from(was_ended_early);
        let installed = store.installed(&variant(&url)).unwrap();
        in_download += usize::from(installed.is_none() && !store.partials().unwrap().is_empty());
        if let Some(installed) = &installed {
            assert_eq!(std::fs::read(&installed.path).unwrap(), bytes, "a half-file is used");
            let conversions = store.conversions().unwrap();
            in_conversion += usize::from(conversions.len() < PIECES.len());
            for conversion in &conversions {
                assert_eq!(std::fs::read(&conversion.path).unwrap(), bytes, "a half-made program is used");
            }
            if conversions.len() == PIECES.len() {
                store.remove("m").unwrap();
            }
        }
    }
    assert!(
        kills < 20 || in_download > 0 && in_conversion > 0,
        "{in_download} and {in_conversion} of {killed}"
    );
    assert!(!start_and_kill(folder.path(), &url, usize::MAX, Duration::ZERO), "the next start fails");
    let installed = store.installed(&variant(&url)).unwrap().unwrap();
    assert!(installed.check().unwrap().is_empty());
    let conversions = store.conversions().unwrap();
    assert_eq!(conversions.len(), PIECES.len());
    assert!(conversions.iter().all(|made| std::fs::read(&made.path).unwrap() == bytes));
    for left in ["partial/models/m", "partial/converted"] {
        let there = std::fs::read_dir(folder.path().join(left)).map_or(0, Iterator::count);
        assert_eq!(there, 0, "{left} is not empty");
    }
    store.remove("m").unwrap();
    assert!(store.partials().unwrap().is_empty() && store.conversions().unwrap().is_empty());
}

/// Starts a process and kills it after so many steps and a moment more. Whether it was killed in mid-work; a process
/// that ends by itself must have succeeded.
fn start_and_kill(store: &Path, url: &str, steps: usize, moment: Duration) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.arg("--work").arg(store).arg(url).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut byte = [0];
    for _ in 0..steps {
        if output.read(&mut byte).unwrap() == 0 {
            assert!(child.wait().unwrap().success());
            return false;
        }
    }
    std::thread::sleep(moment);
    child.kill().unwrap();
    // It may have ended in that moment.
    !child.wait().unwrap().success()
}

fn open(folder: &Path) -> Store {
    let network = Network { pause: Duration::from_millis(1), ..Network::default() };
    Store::open(folder).unwrap().with_network(network)
}

fn variant(url: &str) -> Variant {
    let hash = Sha256::of(&noise(SIZE, 1));
    let text = format!(
        "[models.m]\nlicence = 'MIT'\n[[models.m.variants]]\nname = 'v'\nkind = 'gguf'\nfile = 'm.gguf'\n\
         size = {SIZE}\nsha256 = '{hash}'\nsources = ['{url}']"
    );
    let registry = Registry::built_in().unwrap().with("test", &text).unwrap();
    let wish = Wish { platform: Platform::here(), backend: None, present: &["cpu"] };
    registry.resolve(Some("m"), &wish).unwrap().variant.clone()
}
