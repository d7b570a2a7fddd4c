//! What is made from sources: once, whole, made again when it is damaged, and gone when nobody asks for it any more.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use pteron_registry::{Disuse, Error, Found, Identity, Network, Piece, Store};
use std::io::Write;
use std::path::{Path, PathBuf};
use support::bench::{Bench, file};
use support::{Page, noise};

/// What the pieces of these tests mean.
const FORMAT: u32 = 7;

fn piece(options: &str) -> Piece<'_> {
    Piece { file: "model.pte", format: FORMAT, options }
}

fn program(out: &mut dyn Write) -> Result<(), Error> {
    out.write_all(b"program").unwrap();
    Ok(())
}

fn refused(_: &mut dyn Write) -> Result<(), Error> {
    Err(Error::NotInstalled { model: "made again".to_owned() })
}

/// A file beside the store.
fn source(bench: &Bench, bytes: &[u8]) -> (PathBuf, Identity) {
    let path = bench.folder.path().join("m.gguf");
    std::fs::write(&path, bytes).unwrap();
    let identity = Identity::of_paths(&[&path]).unwrap();
    (path, identity)
}

/// Reasons and names of what is of no use.
fn unused(store: &Store) -> Vec<(Disuse, String)> {
    store.unused(FORMAT).unwrap().into_iter().map(|unused| (unused.why, unused.what)).collect()
}

#[test]
fn a_conversion_is_made_once_and_leaves_nothing_when_it_fails() {
    let bench = Bench::new();
    let bytes = noise(1000, 23);
    let variant = file(Some(&bytes), &[&bench.server.put("/m", Page::of(&bytes))]);
    let installed = bench.store.fetch(&variant, &mut |_| {}).unwrap();
    let source = Identity::of_installed(&installed);
    let failed = bench.store.converted(&source, &piece("4w"), |out| {
        out.write_all(b"half").unwrap();
        Err(Error::NotInstalled { model: "the weights end early".to_owned() })
    });
    assert!(failed.unwrap_err().to_string().contains("the weights end early"));
    assert!(bench.store.conversions().unwrap().is_empty());
    let nothing = bench.store.converted(&source, &piece("4w"), |_| Ok::<(), Error>(()));
    assert!(matches!(nothing, Err(Error::NothingMade { .. })));
    assert_eq!(std::fs::read_dir(bench.store.root().join("partial/converted")).unwrap().count(), 0);
    let made = bench.store.converted(&source, &piece("4w"), program).unwrap();
    assert_eq!(std::fs::read(&made).unwrap(), b"program");
    assert_eq!(bench.store.converted(&source, &piece("4w"), refused).unwrap(), made);
    assert_ne!(bench.store.converted(&source, &piece("8w"), program).unwrap(), made);
    let found = bench.store.conversions_of(&source).unwrap();
    let options: Vec<&str> = found.iter().map(|conversion| conversion.options.as_str()).collect();
    assert!(options.contains(&"4w") && options.contains(&"8w") && found[0].from == "m/v", "{found:?}");
    assert_eq!(unused(&bench.store), []);
    let removed = bench.store.remove("m").unwrap();
    assert!(removed.fetched >= 1000 && removed.converted >= 14, "{removed:?}");
    assert!(!made.exists() && !installed.path.exists());
    assert!(matches!(bench.store.remove("m"), Err(Error::NotInstalled { .. })));
    for hostile in ["..", "../models", "/", ""] {
        assert!(matches!(bench.store.remove(hostile), Err(Error::NotInstalled { .. })), "{hostile}");
    }
}

#[test]
fn what_killed_conversions_left_goes_with_the_next_one_and_what_is_under_way_stays() {
    let bench = Bench::new();
    let (_, source) = source(&bench, b"weights");
    let partials = bench.store.root().join("partial/converted");
    let killed = partials.join("somebody@else/whole");
    std::fs::create_dir_all(&killed).unwrap();
    std::fs::write(killed.join("model.pte"), b"half").unwrap();
    assert_eq!(unused(&bench.store), [(Disuse::Conversion, "somebody@else".to_owned())]);
    let made = bench.store.converted(&source, &piece("4w"), |out| {
        assert!(!killed.exists());
        program(out)?;
        bench.store.converted(&source, &piece("8w"), program)?;
        assert_eq!((unused(&bench.store), bench.store.remove_unused(FORMAT)?), (Vec::new(), 0));
        Ok::<(), Error>(())
    });
    assert_eq!(std::fs::read(made.unwrap()).unwrap(), b"program");
    assert_eq!(std::fs::read_dir(partials).unwrap().count(), 0);
}

#[test]
fn a_file_that_changes_is_another_source_of_conversions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, b"one").unwrap();
    let (file, all) = (Identity::of_paths(&[&path]).unwrap(), Identity::of_paths(&[folder.path()]).unwrap());
    assert_eq!(Identity::of_paths(&[&path]).unwrap(), file);
    std::fs::write(&path, b"other").unwrap();
    assert_ne!(Identity::of_paths(&[&path]).unwrap(), file);
    assert_ne!(Identity::of_paths(&[folder.path()]).unwrap(), all);
    assert!(Identity::of_paths(&[&path, &folder.path().join("none")]).is_err());
}

#[test]
fn edited_versions_of_one_file_leave_only_what_is_current() {
    let bench = Bench::new();
    let mut last = None;
    for edit in 1..=9 {
        let (_, source) = source(&bench, &noise(100 + edit, 1));
        last = Some(bench.store.converted(&source, &piece("4w"), program).unwrap());
    }
    let kept: Vec<PathBuf> =
        bench.store.conversions().unwrap().into_iter().map(|conversion| conversion.path).collect();
    assert_eq!(kept, [last.unwrap()]);
    assert_eq!(std::fs::read_dir(bench.store.root().join("converted")).unwrap().count(), 1);
}

#[test]
fn what_is_no_longer_used_is_told_with_its_reason_and_goes_on_request() {
    let bench = Bench::new();
    let (path, first) = source(&bench, b"first");
    let name = path.canonicalize().unwrap().display().to_string();
    let made = bench.store.converted(&first, &piece("4w"), program).unwrap();
    assert_eq!(unused(&bench.store), []);
    source(&bench, b"second");
    assert_eq!(unused(&bench.store), [(Disuse::SourceChanged, name.clone())]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(unused(&bench.store), [(Disuse::SourceGone, name.clone())]);
    // Another meaning of the same words, and a record as versions before this one wrote it.
    let (_, second) = source(&bench, b"second");
    bench.store.converted(&second, &piece("4w"), program).unwrap();
    let earlier = bench.store.root().join("converted/0123/4567");
    std::fs::create_dir_all(&earlier).unwrap();
    std::fs::write(earlier.join("model.pte"), b"an earlier version's").unwrap();
    std::fs::write(earlier.join("origin.json"), r#"{"from": "m/v", "options": "pteron 0.1.0"}"#).unwrap();
    let damaged = bench.store.root().join("converted/89ab/cdef");
    std::fs::create_dir_all(&damaged).unwrap();
    std::fs::write(damaged.join("model.pte"), b"nobody knows").unwrap();
    assert_eq!(
        unused(&bench.store),
        [(Disuse::OtherVersion, "m/v".to_owned()), (Disuse::Damaged, "89ab".to_owned())]
    );
    assert!(bench.store.unused(FORMAT + 1).unwrap().iter().all(|row| row.why != Disuse::SourceChanged));
    assert_eq!(bench.store.unused(FORMAT + 1).unwrap().len(), 3);
    assert!(bench.store.has_other_formats(&second, FORMAT + 1).unwrap());
    // A download that was broken off.
    let broken = file(Some(&noise(100_000, 9)), &["path:/nowhere"]);
    let partial = bench.store.root().join("partial/models/m/v");
    std::fs::create_dir_all(&partial).unwrap();
    std::fs::write(partial.join("incoming"), noise(5000, 9)).unwrap();
    assert!(unused(&bench.store).contains(&(Disuse::Download, broken.id())));
    assert!(bench.store.remove_unused(FORMAT).unwrap() > 5000);
    assert_eq!(unused(&bench.store), []);
    assert!(!earlier.exists() && !damaged.exists() && !partial.exists() && !made.exists());
    assert!(matches!(bench.store.conversion(&second, &piece("4w")).unwrap(), Found::Whole(_)));
}

#[test]
fn a_new_format_takes_the_place_of_the_old_one() {
    let bench = Bench::new();
    let (_, source) = source(&bench, b"weights");
    let old = bench.store.converted(&source, &piece("4w"), program).unwrap();
    let new = Piece { format: FORMAT + 1, ..piece("4w") };
    assert_eq!(bench.store.conversion(&source, &new).unwrap(), Found::Nothing);
    let made = bench.store.converted(&source, &new, program).unwrap();
    assert!(made.exists() && !old.exists());
}

#[test]
fn a_damaged_conversion_is_made_again() {
    let bench = Bench::new();
    let (_, source) = source(&bench, b"weights");
    let (words, whole) = (piece("4w"), noise(10 << 20, 3));
    let write = |out: &mut dyn Write| {
        out.write_all(&whole).unwrap();
        Ok::<(), Error>(())
    };
    let made = bench.store.converted(&source, &words, write).unwrap();
    let mut flipped = whole.clone();
    flipped[70_000] ^= 1;
    for damaged in [&whole[..5000], &[], &flipped] {
        std::fs::write(&made, damaged).unwrap();
        assert_eq!(bench.store.conversion(&source, &words).unwrap(), Found::Damaged);
        assert_eq!(bench.store.converted(&source, &words, write).unwrap(), made);
        assert!(std::fs::read(&made).unwrap() == whole);
    }
    for gone in [&made, &made.with_file_name("origin.json")] {
        std::fs::remove_file(gone).unwrap();
        assert_eq!(bench.store.conversion(&source, &words).unwrap(), Found::Damaged);
        bench.store.converted(&source, &words, write).unwrap();
    }
    // Far behind the beginning nothing looks at every start; whoever stumbles over it asks for all to be read.
    assert!(!bench.store.mend(&source).unwrap());
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&made, &flipped).unwrap();
    assert!(matches!(bench.store.conversion(&source, &words).unwrap(), Found::Whole(_)));
    assert!(bench.store.mend(&source).unwrap());
    assert_eq!(bench.store.conversion(&source, &words).unwrap(), Found::Nothing);
}

#[test]
fn two_at_once_convert_once() {
    let bench = Bench::new();
    let (_, source) = source(&bench, b"weights");
    let made = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let path = bench.store.converted(&source, &piece("4w"), |out| {
                    made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    program(out)
                });
                assert_eq!(std::fs::read(path.unwrap()).unwrap(), b"program");
            });
        }
    });
    assert_eq!(made.into_inner(), 1);
}

#[test]
fn nothing_is_begun_that_does_not_fit() {
    let bench = Bench::new();
    let bytes = noise(100_000, 5);
    let url = bench.server.put("/m", Page::of(&bytes));
    let with = |free_space: fn(&Path) -> Option<u64>| {
        bench.store.clone().with_network(Network { free_space, ..Network::default() })
    };
    let variant = file(Some(&bytes), &[&url]);
    let error = with(|_| Some(80_000)).fetch(&variant, &mut |_| {}).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("97.7 KiB are needed, 78.1 KiB are free"), "{message}");
    assert!(bench.server.requests().is_empty(), "it was asked for all the same");
    // Packages need the room twice; without that the client is not even started.
    let package = file(Some(&bytes), &["pypi:no-such-package-anywhere==1.0!x"]);
    let error = with(|_| Some(150_000)).fetch(&package, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("195.3 KiB are needed"), "{error}");
    assert!(with(|_| Some(10)).check_room(11).is_err());
    assert!(with(|_| Some(11)).check_room(11).is_ok() && with(|_| None).check_room(u64::MAX).is_ok());
    assert!(with(|_| Some(100_000)).fetch(&variant, &mut |_| {}).is_ok());
}

#[test]
fn a_store_that_is_only_looked_at_makes_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("not/there");
    let store = Store::open(&root).unwrap();
    assert!(store.list().unwrap().is_empty() && store.conversions().unwrap().is_empty());
    assert!(store.partials().unwrap().is_empty() && store.unused(FORMAT).unwrap().is_empty());
    assert_eq!((store.bytes(), store.free_bytes().is_some()), (0, true));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
