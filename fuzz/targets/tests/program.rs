//! The program that runs targets without a fuzzer: what holds ends well, what does not is kept.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_fuzz_targets::TARGETS;
use pteron_fuzz_targets::changes::Chance;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(name: &str, seconds: &str, memory: &str, kept: &Path, seeds: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron-fuzz-targets"));
    command.args([name, seconds, "4096", memory, "60"]).args([kept, seeds]).output().unwrap()
}

#[test]
fn every_target_holds_on_nothing_and_on_what_is_near() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, seeds) = (folder.path().join("kept"), folder.path().join("seeds"));
    fs::create_dir(&seeds).unwrap();
    fs::write(seeds.join("0"), b"").unwrap();
    fs::write(seeds.join("1"), b"{\"a\": [1, 2.5, \"b\"]}").unwrap();
    for (name, _) in TARGETS {
        let done = run(name, "0.05", "6144", &kept, &seeds);
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success() && said.ends_with("runs, nothing found\n"), "{name}: {said}");
    }
    assert!(!kept.exists());
}

#[test]
fn what_does_not_hold_is_kept_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let (kept, seeds) = (folder.path().join("kept"), folder.path().join("seeds"));
    fs::create_dir(&seeds).unwrap();
    fs::write(seeds.join("0"), b"anything").unwrap();
    // No program holds nothing at all.
    let done = run("conversation", "60", "0", &kept, &seeds);
    assert_eq!(done.status.code(), Some(1));
    assert!(kept.join("found").is_file());
    assert!(String::from_utf8(done.stderr).unwrap().contains("more than 0 MiB are held"));
    assert_eq!(run("nothing-like-it", "1", "6144", &kept, &seeds).status.code(), Some(2));
}

#[test]
fn chance_makes_the_same_inputs_each_time_and_many_of_them() {
    let seeds = [b"a seed of some length".to_vec(), b"another".to_vec()];
    let inputs = |beginning| {
        let mut chance = Chance::new(beginning);
        (0..1000).map(|_| chance.input(&seeds, 32)).collect::<Vec<_>>()
    };
    let all = inputs(1);
    assert_eq!(all, inputs(1));
    assert_ne!(all, inputs(2));
    assert!(all.iter().all(|input| input.len() <= 32));
    let different: std::collections::HashSet<_> = all.iter().collect();
    assert!(different.len() > 700, "{}", different.len());
}
