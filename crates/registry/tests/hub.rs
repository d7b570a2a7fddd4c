//! Downloads from a server that answers as the Hugging Face hub does.

#![allow(clippy::unwrap_used)]

mod support;

use pteron_registry::{Model, Network, Sha256};
use std::time::{Duration, Instant};
use support::bench::{Bench, file, quick, variant};
use support::{Page, Server, noise};

#[test]
fn the_hub_states_a_hash_before_the_file_comes() {
    let bench = Bench::new();
    let bytes = noise(50_000, 15);
    let stated = |hash: Sha256| Page {
        headers: vec![("X-Linked-Etag".to_owned(), format!("\"{hash}\""))],
        ..Page::of(&bytes)
    };
    bench.server.put("/org/repo/resolve/main/m.gguf", stated(Sha256::of(b"other")));
    let variant = file(Some(&bytes), &["hf:org/repo/m.gguf"]);
    let message = bench.fetch(&variant).0.unwrap_err().to_string();
    assert!(message.contains(&Sha256::of(b"other").to_string()), "{message}");
    assert!(bench.server.requests().iter().all(|request| request.method == "HEAD"));
    bench.server.put("/org/repo/resolve/main/m.gguf", stated(Sha256::of(&bytes)));
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    assert_eq!(bench.server.requests()[0].headers["authorization"], "Bearer secret");
}

#[test]
fn a_token_stays_with_the_hub() {
    let bench = Bench::new();
    let elsewhere = Server::start();
    let bytes = noise(1000, 16);
    // Another name of this machine is another host.
    let target = elsewhere.put("/cdn", Page::of(&bytes)).replace("127.0.0.1", "localhost");
    bench.server.put("/org/repo/resolve/main/m.gguf", Page { redirect: Some(target), ..Page::default() });
    assert_eq!(bench.fetch(&file(Some(&bytes), &["hf:org/repo/m.gguf"])).0.unwrap(), bytes);
    assert!(elsewhere.requests().iter().all(|request| !request.headers.contains_key("authorization")));
}

#[test]
fn a_repository_is_fetched_as_a_folder_of_one_version() {
    let bench = Bench::new();
    let weights = noise(300_000, 17);
    let list = serde_json::json!({ "sha": "abc123", "siblings": [
        { "rfilename": "model.safetensors", "size": 300_000,
          "lfs": { "sha256": Sha256::of(&weights), "size": 300_000, "pointerSize": 134 } },
        { "rfilename": "config.json", "size": 2 },
        { "rfilename": "README.md", "size": 5 },
        { "rfilename": "additional_chat_templates/tools.jinja", "size": 4 },
    ]});
    bench.server.put("/api/models/org/repo/revision/main?blobs=true", Page::of(list.to_string().as_bytes()));
    let broken = Page { breaks: Some((1, 100_000)), ..Page::of(&weights) };
    bench.server.put("/org/repo/resolve/abc123/model.safetensors", broken);
    bench.server.put("/org/repo/resolve/abc123/config.json", Page::of(b"{}"));
    bench.server.put("/org/repo/resolve/abc123/additional_chat_templates/tools.jinja", Page::of(b"tool"));
    let variant = variant("kind = 'folder'\nsources = ['hf:org/repo']");
    let installed = bench.store.fetch(&variant, &mut |_| {}).unwrap();
    let read = |name: &str| std::fs::read(installed.path.join(name)).unwrap();
    assert_eq!(read("model.safetensors"), weights);
    assert_eq!(read("config.json"), b"{}");
    assert_eq!(read("additional_chat_templates/tools.jinja"), b"tool");
    assert!(!installed.path.join("README.md").exists());
    assert_eq!(installed.record.size, 300_006);
    assert!(!installed.record.verified && installed.record.files[2].verified);
    assert!(installed.check().unwrap().is_empty());
}

#[test]
fn a_list_of_files_that_leads_out_of_the_folder_is_refused() {
    let bench = Bench::new();
    for name in ["../x.json", "/etc/x.json", "additional_chat_templates/../../x.json", "C:x.json"] {
        let list = serde_json::json!({ "sha": "abc", "siblings": [{ "rfilename": name, "size": 1 }] });
        bench
            .server
            .put("/api/models/org/repo/revision/main?blobs=true", Page::of(list.to_string().as_bytes()));
        let variant = variant("kind = 'folder'\nsources = ['hf:org/repo']");
        assert!(bench.fetch(&variant).0.is_err(), "{name}");
    }
    assert!(bench.server.requests().iter().all(|request| request.path.starts_with("/api/")));
}

/// The address of the file that all tests fetch.
const FILE: &str = "/org/repo/resolve/main/m.gguf";

fn header(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// What the hub answers for a large file: it states size and hash, and sends to a store on another host.
fn linked(bytes: &[u8], target: &str) -> Page {
    Page {
        redirect: Some(target.to_owned()),
        headers: vec![
            header("X-Repo-Commit", "0123abc"),
            header("X-Linked-Size", bytes.len()),
            header("X-Linked-Etag", format!("\"{}\"", Sha256::of(bytes))),
        ],
        ..Page::default()
    }
}

/// A store of large files, whose tags are hashes of another kind.
fn store(bytes: &[u8], breaks: Option<(usize, usize)>) -> (Server, String) {
    let server = Server::start();
    let tag = Some("\"6f1ed002ab5595859014ebf0951522d9\"".to_owned());
    // Another name of this machine is another host.
    let target = server.put("/blob?Signature=x", Page { tag, breaks, ..Page::of(bytes) });
    (server, target.replace("127.0.0.1", "localhost"))
}

#[test]
fn a_large_file_is_checked_by_what_the_hub_states_of_it() {
    let bench = Bench::new();
    let bytes = noise(300_000, 30);
    let (elsewhere, target) = store(&bytes, Some((1, 100_000)));
    bench.server.put(FILE, linked(&bytes, &target));
    // The registry knows neither size nor hash; the connection breaks once.
    let variant = file(None, &["hf:org/repo/m.gguf"]);
    let (fetched, told) = bench.fetch(&variant);
    assert_eq!(fetched.unwrap(), bytes);
    assert!(bench.store.installed(&variant).unwrap().unwrap().record.verified);
    assert!(told.last().unwrap().starts_with("Recorded"), "{told:?}");
    let ranges: Vec<Option<String>> =
        elsewhere.requests().iter().map(|request| request.headers.get("range").cloned()).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-".to_owned())]);
    // Other bytes than those that the hub states are kept in no form.
    bench.store.remove("m").unwrap();
    let (_elsewhere, target) = store(&noise(300_000, 31), None);
    bench.server.put(FILE, linked(&bytes, &target));
    let message = bench.fetch(&variant).0.unwrap_err().to_string();
    assert!(message.contains(&format!("not {}", Sha256::of(&bytes))), "{message}");
}

#[test]
fn a_later_process_goes_on_over_the_redirect() {
    let bench = Bench::new();
    let bytes = noise(300_000, 32);
    let (elsewhere, target) = store(&bytes, Some((1, 100_000)));
    bench.server.put(FILE, linked(&bytes, &target));
    for known in [None, Some(&bytes[..])] {
        let variant = file(known, &["hf:org/repo/m.gguf"]);
        let network = Network { hub: bench.server.address.clone(), ..quick() };
        elsewhere.put("/blob?Signature=x", Page { breaks: Some((1, 100_000)), ..Page::of(&bytes) });
        assert!(bench.store.clone().with_network(network).fetch(&variant, &mut |_| {}).is_err());
        assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
        let last = elsewhere.requests().pop().unwrap();
        assert_eq!(last.headers["range"], "bytes=100000-");
        assert!(!last.headers.contains_key("authorization"));
        bench.store.remove("m").unwrap();
    }
}

#[test]
fn a_repository_that_has_moved_is_followed_with_the_token() {
    let bench = Bench::new();
    let bytes = noise(10_000, 33);
    let (_elsewhere, target) = store(&bytes, None);
    let moved = "/new/repo/resolve/main/m.gguf";
    bench.server.put(FILE, Page { redirect: Some(moved.to_owned()), status: Some(307), ..Page::default() });
    bench.server.put(moved, linked(&bytes, &target));
    let variant = file(None, &["hf:org/repo/m.gguf"]);
    assert_eq!(bench.fetch(&variant).0.unwrap(), bytes);
    assert!(bench.store.installed(&variant).unwrap().unwrap().record.verified);
    let requests = bench.server.requests();
    assert!(requests.iter().any(|request| request.path == moved));
    assert!(requests.iter().all(|request| request.headers["authorization"] == "Bearer secret"));
}

#[test]
fn the_hub_says_why_it_refuses() {
    let bench = Bench::new();
    let bytes = noise(100, 34);
    let refusal = |status, reason: &str, words: &str| Page {
        status: Some(status),
        headers: vec![header("X-Error-Code", reason), header("X-Error-Message", words)],
        ..Page::default()
    };
    let gated = "Access to model org/repo is restricted.";
    let cases = [
        (401, "GatedRepo", gated, "accept the model's licence", true),
        (403, "GatedRepo", gated, "accept the model's licence", true),
        (401, "RepoNotFound", "Invalid username or password.", "no such repository, or it is private", true),
        (404, "RevisionNotFound", "Invalid rev id", "no such revision", false),
        (404, "EntryNotFound", "Entry not found", "no such file", false),
    ];
    let list = "/api/models/org/repo/revision/main?blobs=true";
    for (status, reason, words, advice, wants_credentials) in cases {
        for page in [FILE, list] {
            bench.server.put(page, refusal(status, reason, words));
        }
        let folder = variant("kind = 'folder'\nsources = ['hf:org/repo']");
        for model in [file(Some(&bytes), &["hf:org/repo/m.gguf"]), folder] {
            let error = bench.fetch(&model).0.unwrap_err();
            let message = error.to_string();
            assert!(message.contains(words) && message.contains(advice), "{message}");
            assert_eq!(error.wants_credentials(), wants_credentials, "{message}");
        }
    }
    // One request each: asking again would not help.
    assert_eq!(bench.server.requests().len(), 2 * cases.len());
}

#[test]
fn a_hub_that_asks_for_a_pause_gets_it() {
    let bench = Bench::new();
    let bytes = noise(100, 35);
    let model = file(Some(&bytes), &["hf:org/repo/m.gguf"]);
    for wait in [header("Retry-After", 1), header("RateLimit", "\"resolvers\";r=0;t=1")] {
        let busy = Page { fails_first: Some((1, 429)), headers: vec![wait], ..Page::of(&bytes) };
        bench.server.put(FILE, busy);
        let start = Instant::now();
        let (fetched, told) = bench.fetch(&model);
        assert_eq!(fetched.unwrap(), bytes);
        assert!(start.elapsed() >= Duration::from_secs(1));
        assert!(
            told.iter().any(|event| event.starts_with("Retrying") && event.contains("after: 1s")),
            "{told:?}"
        );
        bench.store.remove("m").unwrap();
    }
    // Not for ever, and the list of a repository is asked for again too.
    let busy = Page { status: Some(429), headers: vec![header("Retry-After", 3600)], ..Page::of(&bytes) };
    bench.server.put(FILE, busy);
    let message = bench.fetch(&model).0.unwrap_err().to_string();
    assert!(message.contains("429 (too many requests"), "{message}");
    let busy = Page { fails_first: Some((2, 503)), ..list_of(&["m.safetensors"]) };
    bench.server.put("/api/models/org/repo/revision/main?blobs=true", busy);
    bench.server.put("/org/repo/resolve/abc/m.safetensors", Page::of(b"{}"));
    let folder = variant("kind = 'folder'\nsources = ['hf:org/repo']");
    assert!(bench.fetch(&folder).0.is_ok());
}

#[test]
fn a_hub_that_does_not_answer_is_left_for_the_next_source_once_and_soon() {
    let bench = Bench::new();
    let bytes = noise(1000, 36);
    let there = bench.folder.path().join("there.gguf");
    std::fs::write(&there, &bytes).unwrap();
    let next = format!("path:{}", there.display());
    // Connections to it are taken by the system, and nobody ever says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hub = format!("http://{}", silent.local_addr().unwrap());
    let patience = Duration::from_millis(300);
    let store =
        bench.store.clone().with_network(Network { hub, hub_patience: patience, ..Network::default() });
    let start = Instant::now();
    let mut told = Vec::new();
    let variant = file(Some(&bytes), &["hf:org/repo/m.gguf", &next]);
    let fetched = store.fetch(&variant, &mut |event| told.push(format!("{event:?}"))).unwrap();
    assert_eq!(std::fs::read(fetched.path).unwrap(), bytes);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(
        told.iter().any(|event| event.starts_with("Failed") && event.contains("no answer in time")),
        "{told:?}"
    );
    assert!(!told.iter().any(|event| event.starts_with("Retrying")), "{told:?}");
    // One that answers is asked first, and gives it.
    bench.store.remove("m").unwrap();
    bench.server.put(FILE, Page::of(&bytes));
    bench.fetch(&variant).0.unwrap();
    assert!(bench.store.installed(&variant).unwrap().unwrap().record.source.starts_with("hf:"));
}

/// What a test puts into a list of a repository's files.
fn list_of(files: &[&str]) -> Page {
    let siblings: Vec<_> =
        files.iter().map(|name| serde_json::json!({ "rfilename": name, "size": 2 })).collect();
    Page::of(serde_json::json!({ "sha": "abc", "siblings": siblings }).to_string().as_bytes())
}

#[test]
fn a_repository_is_a_model_without_an_entry() {
    let bench = Bench::new();
    let model = Model::of_repository("Org/Repo").unwrap();
    bench
        .server
        .put("/api/models/Org/Repo/revision/main?blobs=true", list_of(&["config.json", "m.safetensors"]));
    for name in ["config.json", "m.safetensors"] {
        bench.server.put(&format!("/Org/Repo/resolve/abc/{name}"), Page::of(b"{}"));
    }
    let installed = bench.store.fetch(&model.variants[0], &mut |_| {}).unwrap();
    assert!(installed.path.join("m.safetensors").exists());
    // Another way to write it is the same model, which is here now.
    let again = Model::of_repository("hf:org/repo").unwrap();
    assert_eq!(
        bench.store.installed(&again.variants[0]).unwrap().map(|here| here.path),
        Some(installed.path)
    );
}

#[test]
fn a_repository_of_other_files_says_how_they_are_named() {
    let bench = Bench::new();
    let model = Model::of_repository("org/repo-GGUF").unwrap();
    let place = "/api/models/org/repo-GGUF/revision/main?blobs=true";
    bench.server.put(place, list_of(&["README.md", "m-Q4_K_M.gguf", "m-Q8_0.gguf"]));
    let message = bench.store.fetch(&model.variants[0], &mut |_| {}).unwrap_err().to_string();
    assert!(
        message
            .contains("name one of its files: hf:org/repo-GGUF/m-Q4_K_M.gguf, hf:org/repo-GGUF/m-Q8_0.gguf"),
        "{message}"
    );
    bench.server.put(place, list_of(&["pytorch_model.bin"]));
    let message = bench.store.fetch(&model.variants[0], &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("it has no .safetensors, and no file"), "{message}");
}
