//! What endures in an app that runs for long: the memory that models leave behind when they are disposed of, and the time that
//! the border between languages takes of every token.

use std::process::Command;

use super::Place;
use super::languages::Language;
use super::outcomes::Told;
use super::tools::output;
use crate::Outcome;
use crate::error::{Error, Result};

/// KiB that a model may leave behind: allocators and collectors move by so much, and what a model holds is larger.
const MOST_LEFT: f64 = 16.0;
/// Microseconds that a token may take more than in Rust: 2 % of one of SmolLM2, which takes 5 ms or longer.
const MOST_MORE: f64 = 100.0;

/// What a language's runner has found.
struct Found {
    language: Language,
    /// KiB a model, of the second half of them: until then a language may still be warming up.
    left: f64,
    late_mib: f64,
    /// Microseconds.
    token: f64,
}

pub(super) fn run(place: &Place, languages: &[Language]) -> Result<Outcome> {
    let measured: Vec<_> = languages.iter().filter(|&&language| language != Language::Browser).collect();
    if measured.is_empty() {
        return Err(Error::message("a page cannot look at the memory of its process: name another language"));
    }
    let mut rust = Command::new(place.built.join("examples").join("endure"));
    let text = output(rust.arg(place.models.join("talking.pte")), "examples/endure")?;
    let own: f64 =
        text.trim().parse().map_err(|_| Error::message(format!("examples/endure told: {text}")))?;
    let mut is_good = true;
    println!(
        "{:8} {:>14} {:>10} {:>12} {:>14}",
        "", "left per model", "at the end", "a token", "more than Rust"
    );
    println!("{:8} {:>14} {:>10} {own:>9.1} us", "rust", "", "");
    for language in measured {
        eprintln!("{}", language.name());
        match language.run(place).and_then(|text| found(*language, &Told::read(&text)?)) {
            Ok(Found { language, left, late_mib, token }) => {
                let more = token - own;
                let is_fine = left <= MOST_LEFT && more <= MOST_MORE;
                is_good &= is_fine;
                let verdict = if is_fine { "" } else { "  too much" };
                let name = language.name();
                println!(
                    "{name:8} {left:>10.2} KiB {late_mib:>6.0} MiB {token:>9.1} us {more:>11.1} us{verdict}"
                );
            }
            Err(error) => {
                is_good = false;
                println!("{:8} {error}", language.name());
            }
        }
    }
    println!("at the most {MOST_LEFT} KiB and {MOST_MORE} us: {}", if is_good { "kept" } else { "not kept" });
    Ok(if is_good { Outcome::Good } else { Outcome::Bad })
}

fn found(language: Language, told: &Told) -> Result<Found> {
    let number = |fact: &str| {
        let found = told.fact("endure", fact).and_then(serde_json::Value::as_f64);
        found.ok_or_else(|| Error::message(format!("`{fact}` is not told")))
    };
    let (lives, early, late) = (number("lives")?, number("early_kib")?, number("late_kib")?);
    let behind = lives - (lives / 2.0).floor();
    let (left, late_mib) = ((late - early) / behind, late / 1024.0);
    Ok(Found { language, left, late_mib, token: number("token_microseconds")? })
}
