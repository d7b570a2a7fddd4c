//! `cargo xtask bindings`: what an app does with models, in every language that there is a binding for, with the same
//! outcomes. The scenarios are described in `bindings/scenarios.json`; each language has a runner that prints what it found.

mod endure;
mod languages;
mod outcomes;
mod tools;
mod web;

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::workspace;
use languages::Language;
use outcomes::{Scenarios, Told};
use tools::succeed;

/// Run the same scenarios in Python, C, Kotlin, Node and a browser.
///
/// Builds the libraries and the command line, writes small random models, and runs the ten scenarios of
/// bindings/scenarios.json by each language's own runner: Python from the wheel in a fresh environment, C with cc, Kotlin on the
/// JVM, Node from the packed package, and the WebAssembly package in headless Chromium (PTERON_CHROMIUM names it where it is not in
/// its usual place). React Native's package is checked without a phone: its types, its C++ and its tests. Packages come by name and version into the cache folder (pip, npm, apt); a language whose tools cannot be had is named
/// with what is missing, and counts as failed. The last line sums up.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this language; may be repeated.
    #[arg(long, value_name = "LANGUAGE")]
    only: Vec<Language>,
    /// Only what there is for React Native.
    #[arg(long, conflicts_with = "only")]
    react_native: bool,
    /// Not the scenarios, but what endures: memory after so many models were opened, answered and were disposed of, and what a
    /// token takes through each binding beside Rust (not in browsers)
    #[arg(long, value_name = "LIVES", num_args = 0..=1, default_missing_value = "1000", value_parser = clap::value_parser!(u32).range(10..), conflicts_with = "react_native")]
    endure: Option<u32>,
    /// A folder with the libraries, the command line and `examples/models`, in place of building them.
    #[arg(long, value_name = "FOLDER")]
    built: Option<PathBuf>,
}

/// What runners work with.
pub(crate) struct Place {
    /// The libraries and the command line.
    built: PathBuf,
    /// The models.
    models: PathBuf,
    /// What is installed and made on the way.
    cache: PathBuf,
    /// Models that runners open one after the other, in place of running scenarios.
    lives: Option<u32>,
}

impl Place {
    fn scenarios() -> PathBuf {
        workspace::root().join("bindings/scenarios.json")
    }

    /// An empty folder for what a language keeps.
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let folder = self.cache.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).doing("empty", &folder)?;
        }
        fs::create_dir_all(&folder).doing("make", &folder)?;
        Ok(folder)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let languages = match arguments.only.as_slice() {
        _ if arguments.react_native => Vec::new(),
        [] => Language::ALL.to_vec(),
        only => only.to_vec(),
    };
    let scenarios = Scenarios::read(&Place::scenarios())?;
    let cache = Cache::locate()?.root().with_file_name("bindings");
    fs::create_dir_all(&cache).doing("make", &cache)?;
    let built = match &arguments.built {
        Some(folder) => std::path::absolute(folder).doing("find", folder)?,
        None => build()?,
    };
    let place = Place { models: cache.join("models"), built, cache, lives: arguments.endure };
    write_models(&place)?;
    if arguments.endure.is_some() {
        return endure::run(&place, &languages);
    }
    let mut told = Vec::new();
    for language in &languages {
        eprintln!("{}", language.name());
        let ran = language.run(&place).and_then(|text| Told::read(&text));
        told.push((*language, ran));
    }
    let (mut lines, mut good, mut all) = scenarios.judge(&told);
    if arguments.only.is_empty() {
        eprintln!("react-native");
        let checked = web::react_native(&place);
        (good, all) = (good + usize::from(checked.is_ok()), all + 1);
        let verdict = checked.err().map_or_else(|| "ok".to_owned(), |error| error.to_string());
        lines.push(format!("{:12} {:14} {verdict}", "react-native", "its tests"));
    }
    for line in lines {
        println!("{line}");
    }
    println!(
        "{} scenarios in {} languages: {good} of {all} outcomes as described",
        scenarios.count(),
        languages.len()
    );
    Ok(if good == all { Outcome::Good } else { Outcome::Bad })
}

/// Builds what runners load; the folder that it lies in.
fn build() -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--package", "pteron-cli"]);
    cargo.args([
        "--package",
        "pteron-capi",
        "--package",
        "pteron-bindings",
        "--lib",
        "--bins",
        "--example",
        "models",
        "--example",
        "endure",
    ]);
    succeed(&mut cargo, "cargo build")?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace::root().join("target"), PathBuf::from);
    Ok(target.join("release"))
}

fn write_models(place: &Place) -> Result<()> {
    let writer = place.built.join("examples").join("models");
    if !Path::new(&writer).exists() {
        return Err(Error::message(format!("there is no {}", writer.display())));
    }
    succeed(std::process::Command::new(&writer).arg(&place.models), "examples/models")
}
