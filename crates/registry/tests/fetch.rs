//! Downloads against a server that misbehaves, and the store that they land in.

#![allow(clippy::unwrap_used)]

mod support;

use pteron_registry::{Error, Event, Network, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::bench::{Bench, file, quick};
use support::{Page, noise};

#[test]
fn a_file_lands_whole_and_is_not_fetched_twice() {
    let bench = Bench::new();
    let bytes = noise(3_000_000, 1);
    let variant = file(Some(&bytes), &[&bench.server.put("/m", Page::of(&bytes))]);
    assert!(bench.store.installed(&variant).unwrap().is_none());
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    let installed = bench.store.installed(&variant).unwrap().unwrap();
    assert!(installed.record.verified && installed.check().unwrap().is_empty());
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    assert_eq!(bench.server.requests().len(), 1);
    assert_eq!(bench.leftovers(), 0);
    assert_eq!(bench.store.list().unwrap(), [installed]);
}

#[test]
fn a_broken_connection_is_taken_up_where_it_ended() {
    let bench = Bench::new();
    let bytes = noise(1_000_000, 2);
    let page = Page { breaks: Some((3, 200_000)), ..Page::of(&bytes) };
    let variant = file(Some(&bytes), &[&bench.server.put("/m", page)]);
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    let ranges: Vec<Option<String>> =
        bench.server.requests().iter().map(|request| request.headers.get("range").cloned()).collect();
    let range = |at: usize| Some(format!("bytes={at}-"));
    assert_eq!(ranges, [None, range(200_000), range(400_000), range(600_000)]);
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let bench = Bench::new();
    let bytes = noise(500_000, 3);
    let page = Page { breaks: Some((2, 100_000)), ranges: false, ..Page::of(&bytes) };
    let variant = file(Some(&bytes), &[&bench.server.put("/m", page)]);
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
}

#[test]
fn a_source_that_never_gets_further_is_given_up_and_another_goes_on_from_there() {
    let bench = Bench::new();
    let bytes = noise(500_000, 4);
    let stuck = Page { breaks: Some((100, 0)), ..Page::of(&bytes) };
    let url = bench.server.put("/stuck", stuck);
    let (failed, _) = bench.fetch(&file(Some(&bytes), &[&url]));
    assert!(failed.unwrap_err().is_offline());
    // Half of it, then nothing: what came is kept, and the second source sends the rest only.
    let half = Page { breaks: Some((1, 250_000)), ..Page::of(&bytes) };
    let half_url = bench.server.put("/half", half);
    let stopped = Bench { store: bench.store.clone().with_network(quick()), ..bench };
    let (failed, _) = stopped.fetch(&file(Some(&bytes), &[&half_url]));
    assert!(failed.is_err());
    assert!(stopped.leftovers() >= 250_000);
    let second = stopped.server.put("/second", Page::of(&bytes));
    assert_eq!(stopped.fetch(&file(Some(&bytes), &[&second])).0.unwrap(), bytes);
    let last = stopped.server.requests().pop().unwrap();
    assert_eq!(last.headers["range"], "bytes=250000-");
}

#[test]
fn wrong_bytes_are_kept_in_no_form_and_the_next_source_is_tried() {
    let bench = Bench::new();
    let bytes = noise(300_000, 5);
    let other = noise(300_000, 6);
    let wrong = bench.server.put("/wrong", Page::of(&other));
    let short = bench.server.put("/short", Page::of(&other[..1000]));
    let (failed, _) = bench.fetch(&file(Some(&bytes), &[&wrong, &short]));
    let message = failed.unwrap_err().to_string();
    assert!(message.contains(&Sha256::of(&other).to_string()), "{message}");
    assert!(message.contains("has 1000 bytes, not 300000"), "{message}");
    // The state of a file that never came is all that is left.
    assert!(bench.leftovers() < 1000);
    let right = bench.server.put("/right", Page::of(&bytes));
    let (fetched, told) = bench.fetch(&file(Some(&bytes), &[&wrong, &right]));
    assert_eq!(fetched.unwrap(), bytes);
    assert!(told.iter().any(|event| event.starts_with("Failed")), "{told:?}");
}

#[test]
fn a_damaged_beginning_is_found_and_begun_anew() {
    let bench = Bench::new();
    let bytes = noise(400_000, 7);
    let page = Page { breaks: Some((1, 200_000)), ..Page::of(&bytes) };
    let variant = file(Some(&bytes), &[&bench.server.put("/m", page)]);
    let store = bench.store.clone().with_network(quick());
    store.fetch(&variant, &mut |_| {}).unwrap_err();
    let incoming = bench.store.root().join("partial/models/m/v/incoming");
    assert_eq!(std::fs::metadata(&incoming).unwrap().len(), 200_000);
    std::fs::write(&incoming, vec![0; 200_000]).unwrap();
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    // One byte too many in what is there, and all bytes there but never checked.
    for left in [vec![1; 400_001], bytes.clone()] {
        bench.store.remove("m").unwrap();
        bench.server.put("/m", Page { breaks: Some((1, 1000)), ..Page::of(&bytes) });
        store.fetch(&variant, &mut |_| {}).unwrap_err();
        std::fs::write(&incoming, left).unwrap();
        assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    }
}

#[test]
fn a_longer_answer_than_promised_ends_at_once() {
    let bench = Bench::new();
    let bytes = noise(100_000, 8);
    let mut longer = bytes.clone();
    longer.extend([0; 1000]);
    let variant = file(Some(&bytes), &[&bench.server.put("/m", Page::of(&longer))]);
    let message = bench.fetch(&variant).0.unwrap_err().to_string();
    assert!(message.contains("has 101000 bytes, not 100000"), "{message}");
}

#[test]
fn half_of_a_file_that_nobody_knows_the_length_of_is_not_taken_for_the_whole() {
    let bench = Bench::new();
    let bytes = noise(100_000, 24);
    let page = |breaks| Page { endless: true, breaks, ..Page::of(&bytes) };
    let url = bench.server.put("/m", page(Some((1, 1000))));
    let message = bench.fetch(&file(None, &[&url])).0.unwrap_err().to_string();
    assert!(message.contains("how long"), "{message}");
    // With a size and a hash the half is found out, and what is there is no beginning of anything.
    bench.server.put("/m", page(Some((1, 1000))));
    assert!(bench.fetch(&file(Some(&bytes), &[&url])).0.is_err());
    assert_eq!(bench.fetch(&file(Some(&bytes), &[&url])).0.unwrap(), bytes);
}

#[test]
fn errors_of_a_server_say_what_would_help() {
    let bench = Bench::new();
    let bytes = noise(1000, 9);
    let status = |code| Page { status: Some(code), ..Page::of(&bytes) };
    let cases = [(404, "no such file"), (401, "accept the model's licence"), (503, "try again later")];
    for (code, expected) in cases {
        let url = bench.server.put(&format!("/{code}"), status(code));
        let error = bench.fetch(&file(Some(&bytes), &[&url])).0.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.wants_credentials(), code == 401);
    }
    let passing = Page { fails_first: Some((2, 503)), ..Page::of(&bytes) };
    let url = bench.server.put("/passing", passing);
    assert_eq!(bench.fetch(&file(Some(&bytes), &[&url])).0.unwrap(), bytes);
}

#[test]
fn no_network_is_told_apart() {
    let bench = Bench::new();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gone = format!("http://127.0.0.1:{port}/m");
    let error = bench.fetch(&file(Some(b"x"), &[&gone])).0.unwrap_err();
    assert!(error.is_offline(), "{error}");
}

#[test]
fn a_server_that_falls_silent_is_not_waited_for_for_ever() {
    let bench = Bench::new();
    let bytes = noise(10_000, 10);
    let page = Page { slow: Some((Duration::from_secs(20), 10_000)), ..Page::of(&bytes) };
    let variant = file(Some(&bytes), &[&bench.server.put("/m", page)]);
    let network = Network { patience: Duration::from_millis(200), ..quick() };
    let error = bench.store.clone().with_network(network).fetch(&variant, &mut |_| {}).unwrap_err();
    assert!(error.is_offline(), "{error}");
}

#[test]
fn a_slow_server_is_waited_for() {
    let bench = Bench::new();
    let bytes = noise(10_000, 11);
    // Longer in all than the patience with each part of it.
    let page = Page { slow: Some((Duration::from_millis(100), 1000)), ..Page::of(&bytes) };
    let variant = file(Some(&bytes), &[&bench.server.put("/m", page)]);
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
}

#[test]
fn redirects_are_followed_and_carry_the_range() {
    let bench = Bench::new();
    let bytes = noise(200_000, 12);
    bench.server.put("/real", Page { breaks: Some((1, 50_000)), ..Page::of(&bytes) });
    let url = bench.server.put("/m", Page { redirect: Some("/real".to_owned()), ..Page::default() });
    assert_eq!(bench.fetch(&file(Some(&bytes), &[&url])).0.unwrap(), bytes);
    assert_eq!(bench.server.requests().pop().unwrap().headers["range"], "bytes=50000-");
    let round = bench.server.put("/round", Page { redirect: Some("/round".to_owned()), ..Page::default() });
    assert!(bench.fetch(&file(Some(b"else"), &[&round])).0.is_err());
}

#[test]
fn without_a_hash_only_the_same_version_is_taken_up_again() {
    let bench = Bench::new();
    let (old, new) = (noise(400_000, 13), noise(400_000, 14));
    let page =
        |bytes: &[u8], tag: &str, breaks| Page { tag: Some(tag.to_owned()), breaks, ..Page::of(bytes) };
    let url = bench.server.put("/m", page(&old, "\"old\"", Some((1, 100_000))));
    let variant = file(None, &[&url]);
    let (fetched, told) = bench.fetch(&variant);
    assert_eq!(fetched.unwrap(), old);
    assert!(told.last().unwrap().contains(&Sha256::of(&old).to_string()), "{told:?}");
    let request = bench.server.requests().pop().unwrap();
    assert_eq!((&*request.headers["range"], &*request.headers["if-range"]), ("bytes=100000-", "\"old\""));
    assert!(!bench.store.installed(&variant).unwrap().unwrap().record.verified);
    // The file changes between two connections, or has nothing that tells its versions apart.
    for tag in ["\"new\"", "W/\"weak\""] {
        bench.store.remove("m").unwrap();
        bench.server.put("/m", page(&old, "\"old\"", Some((1, 100_000))));
        let server = bench.server.clone();
        let fetched = bench.store.fetch(&variant, &mut |event| {
            if let Event::Retrying { .. } = event {
                server.put("/m", page(&new, tag, None));
            }
        });
        assert_eq!(std::fs::read(fetched.unwrap().path).unwrap(), new);
    }
}

#[test]
fn a_path_is_copied_and_checked() {
    let bench = Bench::new();
    let bytes = noise(100_000, 18);
    let path = bench.folder.path().join("there.gguf");
    std::fs::write(&path, &bytes).unwrap();
    let source = format!("path:{}", path.display());
    assert!(bench.fetch(&file(Some(b"other"), &[&source])).0.is_err());
    assert_eq!(bench.fetch(&file(Some(&bytes), &["path:/nowhere", &source])).0.unwrap(), bytes);
}

#[test]
fn what_changed_on_disk_or_in_the_registry_is_fetched_anew() {
    let bench = Bench::new();
    let (old, new) = (noise(1000, 19), noise(1001, 20));
    let url = bench.server.put("/m", Page::of(&old));
    let before = file(Some(&old), &[&url]);
    bench.fetch(&before).0.unwrap();
    let path = bench.store.installed(&before).unwrap().unwrap().path;
    std::fs::write(&path, b"cut").unwrap();
    assert!(bench.store.installed(&before).unwrap().is_none());
    assert_eq!(bench.fetch(&before).0.unwrap(), old);
    std::fs::write(&path, noise(1000, 21)).unwrap();
    assert_eq!(bench.store.installed(&before).unwrap().unwrap().check().unwrap(), ["m.gguf"]);
    bench.server.put("/m", Page::of(&new));
    assert_eq!(bench.fetch(&file(Some(&new), &[&url])).0.unwrap(), new);
}

#[test]
fn two_at_once_fetch_once() {
    let bench = Bench::new();
    let bytes = noise(200_000, 22);
    let page = Page { slow: Some((Duration::from_millis(10), 20_000)), ..Page::of(&bytes) };
    let variant = file(Some(&bytes), &[&bench.server.put("/m", page)]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(bench.fetch(&variant).0.unwrap(), bytes));
        }
    });
    assert_eq!(bench.server.requests().len(), 1);
}

#[test]
fn a_cancelled_download_ends_and_goes_on_where_it_ended() {
    let bench = Bench::new();
    let bytes = noise(2_000_000, 23);
    let page = Page { slow: Some((Duration::from_millis(5), 50_000)), ..Page::of(&bytes) };
    let variant = file(Some(&bytes), &[&bench.server.put("/m", page), "path:/nowhere"]);
    let cancel = Arc::new(AtomicBool::new(false));
    let store = bench.store.clone().with_network(Network { cancel: Some(cancel.clone()), ..quick() });
    let mut sources = 0;
    let fetched = store.fetch(&variant, &mut |event| match event {
        Event::Bytes { at } if at >= 500_000 => cancel.store(true, Ordering::Relaxed),
        Event::Trying { .. } => sources += 1,
        _ => {}
    });
    assert!(matches!(fetched, Err(Error::Cancelled)), "{fetched:?}");
    assert_eq!(sources, 1, "no other source is tried for somebody who does not wait");
    let kept = bench.leftovers();
    assert!((500_000..2_000_000).contains(&kept), "{kept}");
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    assert!(bench.server.requests().pop().unwrap().headers.contains_key("range"));
}
