//! What is run: sets of cases, the ways in which a program comes to them, the backends; and all of them with each other.

use std::path::PathBuf;

use super::Backend;
use crate::cache::Cache;
use crate::cases;
use crate::error::{Error, Result};
use crate::workspace;

/// A set of cases.
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    holds: Holds,
    /// The full sets that are not there, where this is a packed sample.
    in_place_of: Vec<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Programs,
    /// Without the `.pt2` files that they came from, which a clone would be large with.
    ProgramsAlone,
    Checkpoints,
}

/// The set that `cargo xtask cases` makes of checkpoints, and its packed sample.
const CHECKPOINTS: &str = "checkpoints";
/// The packed sample of operators and models.
const SAMPLE: &str = "sample";

impl Set {
    /// All sets, or the one that is asked for: full ones where they are there, else the packed samples.
    pub(super) fn find(quick: bool, only: Option<&str>) -> Result<Vec<Set>> {
        let cache = Cache::locate()?;
        let is_there = |name: &str| !quick && cache.set(name).is_dir();
        let all = choose(&is_there, |name| cache.set(name));
        let names: Vec<&str> = all.iter().map(|set| set.name).collect();
        let known = names.join(", ");
        let Some(only) = only else { return Ok(all) };
        let picked: Vec<Set> = all.into_iter().filter(|set| set.name == only).collect();
        match picked.is_empty() {
            true => Err(Error::message(format!("no set is called {only}; there are {known}"))),
            false => Ok(picked),
        }
    }

    /// Says that it is no full set, where it is none.
    pub(super) fn stands_for(&self) -> Option<String> {
        let full = self.in_place_of.join(" and ");
        let file = self.path.file_name()?.to_string_lossy();
        let lacks = if self.holds == Holds::ProgramsAlone { ", which has no .pt2 files" } else { "" };
        (!full.is_empty()).then(|| format!("{}: the packed {file}{lacks}, not all of {full}", self.name))
    }

    /// Arguments of every way in which this set's programs can be had, by name.
    fn variants(&self) -> &'static [(&'static str, &'static [&'static str])] {
        match self.holds {
            Holds::Programs => {
                &[("plain", &[]), ("round-trip", &["--round-trip"]), ("from pt2", &["--from", "pt2"])]
            }
            Holds::ProgramsAlone => &[("plain", &[]), ("round-trip", &["--round-trip"])],
            Holds::Checkpoints => &[
                ("from checkpoint", &["--from", "checkpoint"]),
                ("... round-trip", &["--from", "checkpoint", "--round-trip"]),
            ],
        }
    }
}

/// The sets to run, by which full ones are there. The sample holds operators and models together.
fn choose(is_there: &dyn Fn(&str) -> bool, folder: impl Fn(&str) -> PathBuf) -> Vec<Set> {
    let full = |name, holds| Set { name, path: folder(name), holds, in_place_of: vec![] };
    let there = cases::SETS.iter().filter(|name| is_there(name));
    let mut sets: Vec<Set> = there.map(|name| full(name, Holds::Programs)).collect();
    // Nobody has to have the large ones.
    let absent: Vec<_> = ["ops", "models"].into_iter().filter(|name| !is_there(name)).collect();
    if !absent.is_empty() {
        let path = workspace::sample();
        sets.push(Set { name: SAMPLE, path, holds: Holds::ProgramsAlone, in_place_of: absent });
    }
    sets.push(match is_there(CHECKPOINTS) {
        true => full(CHECKPOINTS, Holds::Checkpoints),
        false => Set {
            name: CHECKPOINTS,
            path: workspace::checkpoints(),
            holds: Holds::Checkpoints,
            in_place_of: vec![CHECKPOINTS],
        },
    });
    sets
}

/// One way to run programs: a backend with what it is told.
pub(super) struct Engine {
    backend: Backend,
    /// As the table names it.
    pub(super) name: String,
    options: Vec<String>,
    pub(super) is_fast: bool,
    /// Why it cannot be had here.
    pub(super) missing: Option<String>,
}

impl Engine {
    /// A backend that has no choices.
    pub(super) fn plain(backend: Backend) -> Engine {
        let name = backend.name().to_owned();
        Engine { backend, name, options: vec![], is_fast: false, missing: None }
    }

    /// The CPU backend on each of its paths, plainest first, in both precisions; and on the best of them with every
    /// value in memory of its own, which shows overlaps, where the binary can do that.
    pub(super) fn of_cpu(paths: &[String], can_separate: bool) -> Vec<Engine> {
        let mut engines = Vec::new();
        let mut add = |path: &str, memory: &[&str]| {
            for precision in ["exact", "fast"] {
                let mut options = vec!["--cpu", path, "--precision", precision];
                options.extend(memory);
                let apart = if memory.is_empty() { "" } else { " separate" };
                engines.push(Engine {
                    name: format!("cpu {path} {precision}{apart}"),
                    options: options.into_iter().map(str::to_owned).collect(),
                    is_fast: precision == "fast",
                    ..Engine::plain(Backend::Cpu)
                });
            }
        };
        paths.iter().rev().for_each(|path| add(path, &[]));
        if let (Some(best), true) = (paths.last(), can_separate) {
            add(best, &["--memory", "separate"]);
        }
        engines
    }
}

/// One row of the table.
pub(super) struct Run<'a> {
    pub(super) set: &'a Set,
    pub(super) variant: &'static str,
    source: &'static [&'static str],
    pub(super) engine: &'a Engine,
}

impl Run<'_> {
    /// What `pteron conformance SET` is told.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let options = self.engine.options.iter().map(String::as_str);
        self.source.iter().copied().chain(["--backend", self.engine.backend.name()]).chain(options).collect()
    }
}

/// Every set in every variant on every engine.
pub(super) fn runs<'a>(sets: &'a [Set], engines: &'a [Engine]) -> Vec<Run<'a>> {
    let variants = sets.iter().flat_map(|set| set.variants().iter().map(move |variant| (set, variant)));
    let each = variants.flat_map(|(set, &(variant, source))| {
        engines.iter().map(move |engine| Run { set, variant, source, engine })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn chosen(there: &[&str]) -> Vec<(&'static str, String)> {
        let sets = choose(&|name| there.contains(&name), folder);
        sets.iter().map(|set| (set.name, set.stands_for().unwrap_or_default())).collect()
    }

    #[test]
    fn samples_stand_in_for_what_is_not_there_and_say_so() {
        let full = |name| (name, String::new());
        let sample = |of: &str| {
            (SAMPLE, format!("sample: the packed sample.zip, which has no .pt2 files, not all of {of}"))
        };
        let packed = "checkpoints: the packed checkpoints.zip, not all of checkpoints".to_owned();
        assert_eq!(chosen(&[]), [sample("ops and models"), (CHECKPOINTS, packed.clone())]);
        assert_eq!(
            chosen(&["ops", "models", "checkpoints"]),
            [full("ops"), full("models"), full(CHECKPOINTS)]
        );
        assert_eq!(
            chosen(&["ops", "ops-large"]),
            [full("ops"), full("ops-large"), sample("models"), (CHECKPOINTS, packed)]
        );
    }

    #[test]
    fn every_set_meets_every_backend_in_every_variant() {
        let sets = choose(&|_| true, folder);
        let paths = ["scalar", "avx2"].map(str::to_owned);
        let mut engines = Engine::of_cpu(&paths, true);
        engines.push(Engine::plain(Backend::Reference));
        engines.push(Engine::plain(Backend::Mlx));
        let names: Vec<&str> = engines.iter().map(|engine| engine.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "cpu avx2 exact",
                "cpu avx2 fast",
                "cpu scalar exact",
                "cpu scalar fast",
                "cpu avx2 exact separate",
                "cpu avx2 fast separate",
                "reference",
                "mlx"
            ]
        );
        let runs = runs(&sets, &engines);
        // Three sets of programs in three variants, one of checkpoints in two.
        assert_eq!(runs.len(), (3 * 3 + 2) * engines.len());
        let mut seen = std::collections::HashSet::new();
        assert!(runs.iter().all(|run| seen.insert((run.set.name, run.arguments().join(" ")))));
        assert!(seen.contains(&("checkpoints", "--from checkpoint --backend mlx".to_owned())));
        assert!(seen.contains(&(
            "models",
            "--from pt2 --backend cpu --cpu avx2 --precision fast --memory separate".to_owned()
        )));
    }

    #[test]
    fn without_the_option_no_run_asks_for_separate_memory() {
        let engines = Engine::of_cpu(&["scalar".to_owned()], false);
        assert!(engines.iter().all(|engine| !engine.options.contains(&"--memory".to_owned())));
        assert_eq!(engines.len(), 2);
    }
}
