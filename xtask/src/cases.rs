//! `cargo xtask cases`: makes the Python environment and the full case sets, once, in the cache folder. A set is made
//! aside and lands by rename, its stamp after it, so that an interrupted run leaves either a whole set or none.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::stamp::{self, Stamp};
use crate::workspace;

/// Make the full conformance sets that are not there yet, and print the folder they are in.
///
/// The folder is $PTERON_CASES, or else pteron/conformance in the platform's cache folder. It gets a Python environment
/// of its own (6 GB) and four sets: `ops` (1,028 cases, half an hour on two cores), `models` (33 cases, ten minutes),
/// `checkpoints` (43 cases, two minutes) and `vectors` of tokenizers, chat templates and samplers (two minutes). A set
/// is made again when its generator, the pinned packages or its options have changed. The last line on standard output
/// is the folder.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this set.
    #[arg(long, value_name = "SET")]
    only: Option<Only>,
    /// The ten huge GGUF cases too (690 MB), as a set `ops-large` of its own.
    #[arg(long)]
    large: bool,
    /// A llama.cpp checkout, such as the one inside the source package of `llama-cpp-python`: its chat templates and
    /// vocabulary tests become vectors too.
    #[arg(long, value_name = "DIR")]
    llama: Option<PathBuf>,
    /// Processes that make operator cases [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Make everything again.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    Ops,
    Models,
    Checkpoints,
    Vectors,
}

/// A set: how it is made, and how many cases that gives.
struct Recipe {
    name: &'static str,
    script: &'static str,
    /// What else the script is made of; a change in any of them makes the set again.
    modules: &'static [&'static str],
    options: &'static [&'static str],
    takes_jobs: bool,
    cases: usize,
}

const OPS: Recipe = Recipe {
    name: "ops",
    script: "make_ops.py",
    modules: &["et_env.py"],
    options: &[],
    takes_jobs: true,
    cases: 1028,
};
const OPS_LARGE: Recipe = Recipe {
    name: "ops-large",
    // The globs are those by which the script itself leaves these cases out without --large.
    options: &["--large", "--filter", "gguf_*_k5376*", "--filter", "gguf_*_k21504*"],
    cases: 10,
    ..OPS
};
const MODELS: Recipe = Recipe {
    name: "models",
    script: "make_models.py",
    modules: &["et_env.py", "model_kit.py", "model_llm.py", "model_misc.py"],
    options: &[],
    takes_jobs: false,
    cases: 33,
};
const CHECKPOINTS: Recipe = Recipe {
    name: "checkpoints",
    script: "make_checkpoints.py",
    modules: &[
        "case_files.py",
        "ckpt_families.py",
        "ckpt_formats.py",
        "ckpt_gguf.py",
        "ckpt_models.py",
        "ckpt_tokenizer.py",
    ],
    cases: 43,
    ..MODELS
};
const VECTORS: Recipe = Recipe {
    name: "vectors",
    script: "make_vectors.py",
    modules: &["case_files.py", "vec_sampling.py", "vec_templates.py", "vec_tokenizers.py"],
    cases: 17,
    ..MODELS
};
/// With what a llama.cpp checkout adds; its path is given beside.
const VECTORS_WITH_LLAMA: Recipe = Recipe { options: &["--llama"], cases: 32, ..VECTORS };

/// The names of all sets of programs that the cache folder may hold.
pub(crate) const SETS: [&str; 3] = [OPS.name, OPS_LARGE.name, MODELS.name];

/// The name of the set of checkpoints.
pub(crate) const CHECKPOINT_SET: &str = CHECKPOINTS.name;

const ENVIRONMENT: &str = "venv";

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let cache = Cache::locate()?;
    fs::create_dir_all(cache.root()).doing("make", cache.root())?;
    let _lock = lock(&cache)?;
    make_environment(&cache, arguments.force)?;

    let wanted = |set| arguments.only.is_none_or(|only| only == set);
    let mut recipes = vec![];
    if wanted(Only::Ops) {
        recipes.push(&OPS);
        recipes.extend(arguments.large.then_some(&OPS_LARGE));
    }
    recipes.extend(wanted(Only::Models).then_some(&MODELS));
    recipes.extend(wanted(Only::Checkpoints).then_some(&CHECKPOINTS));
    // Vectors that a checkout has added to are there for those who have none, too.
    let with_llama =
        arguments.llama.is_some() || is_whole(&cache, VECTORS.name, &stamp_of(&VECTORS_WITH_LLAMA)?);
    let vectors = if with_llama { &VECTORS_WITH_LLAMA } else { &VECTORS };
    recipes.extend(wanted(Only::Vectors).then_some(vectors));
    for recipe in recipes {
        let stamp = stamp_of(recipe)?;
        if !arguments.force && is_whole(&cache, recipe.name, &stamp) {
            eprintln!("{}: {} cases are there", recipe.name, stamp.cases);
        } else {
            make_set(&cache, recipe.name, &stamp, |folder| generator(&cache, recipe, arguments, folder))?;
        }
    }
    println!("{}", cache.root().display());
    Ok(Outcome::Good)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Held for a whole run: two at once would make the same set twice, and into the same folder.
fn lock(cache: &Cache) -> Result<File> {
    let path = cache.root().join(".lock");
    let file = File::create(&path).doing("make", &path)?;
    if file.try_lock().is_err() {
        eprintln!("another run is making cases in {}; waiting for it", cache.root().display());
        file.lock().doing("lock", &path)?;
    }
    Ok(file)
}

/// The Python environment, by the set-up script.
fn make_environment(cache: &Cache, force: bool) -> Result<()> {
    let script = workspace::conformance().join("setup.sh");
    let fingerprint = stamp::fingerprint(std::slice::from_ref(&script), &[])?;
    let stamp = Stamp { fingerprint, options: vec![], cases: 0 };
    let stamp_path = cache.stamp(ENVIRONMENT);
    if !force && cache.python().exists() && Stamp::read(&stamp_path).as_ref() == Some(&stamp) {
        return Ok(());
    }
    eprintln!("{ENVIRONMENT}: installing the generators' packages");
    let log = cache.log(ENVIRONMENT);
    let mut command = Command::new("sh");
    command.arg(&script).arg(cache.environment());
    let status = logged(command, &log)?.wait().doing("wait for", &script)?;
    if !status.success() {
        return Err(failure(&script, status, &log));
    }
    stamp.write(&stamp_path)
}

/// What a set made from this checkout is stamped with.
fn stamp_of(recipe: &Recipe) -> Result<Stamp> {
    let folder = workspace::conformance();
    let setup = folder.join("setup.sh");
    let pins = stamp::pins(&fs::read_to_string(&setup).doing("read", &setup)?);
    let sources: Vec<PathBuf> =
        [recipe.script].iter().chain(recipe.modules).map(|name| folder.join(name)).collect();
    Ok(Stamp {
        fingerprint: stamp::fingerprint(&sources, &pins)?,
        options: recipe.options.iter().map(ToString::to_string).collect(),
        cases: recipe.cases,
    })
}

fn is_whole(cache: &Cache, name: &str, stamp: &Stamp) -> bool {
    Stamp::read(&cache.stamp(name)).as_ref() == Some(stamp) && count_cases(&cache.set(name)) == stamp.cases
}

/// Folders with a case in a set, or in a part of it.
fn count_cases(set: &Path) -> usize {
    let folders =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_case = |folder: &PathBuf| folder.join("case.json").exists();
    folders(set).map(|part| if is_case(&part) { 1 } else { folders(&part).filter(is_case).count() }).sum()
}

fn generator(cache: &Cache, recipe: &Recipe, arguments: &Arguments, folder: &Path) -> Command {
    let mut command = Command::new(cache.python());
    // -B: no compiled modules in the checkout.
    command.arg("-B").arg(recipe.script).arg(folder).args(recipe.options);
    if recipe.options.contains(&"--llama") {
        // Absolute, because the generators run in a folder of their own.
        command.args(arguments.llama.iter().map(|path| std::path::absolute(path).unwrap_or(path.clone())));
    }
    if recipe.takes_jobs {
        command.arg("--jobs").arg(arguments.jobs.map_or_else(cores, usize::from).to_string());
    }
    command.current_dir(workspace::conformance());
    command
}

/// Runs a generator into a folder aside, and puts that in the place of the set if it holds what it should.
fn make_set(
    cache: &Cache,
    name: &str,
    stamp: &Stamp,
    generator: impl FnOnce(&Path) -> Command,
) -> Result<()> {
    let (aside, replaced) =
        (cache.root().join(format!(".{name}.making")), cache.root().join(format!(".{name}.old")));
    for leftover in [&aside, &replaced] {
        remove(leftover)?; // of a run that was killed; nobody else is in here while we hold the lock
    }
    fs::create_dir(&aside).doing("make", &aside)?;
    let log = cache.log(name);
    let command = generator(&aside);
    let script = PathBuf::from(command.get_program());
    let status = watch(logged(command, &log)?, &aside, name, stamp.cases)?;
    let made = count_cases(&aside);
    if !status.success() || made != stamp.cases {
        remove(&aside)?;
        eprintln!("{name}: {made} of {} cases were made", stamp.cases);
        return Err(failure(&script, status, &log));
    }

    let (set, stamp_path) = (cache.set(name), cache.stamp(name));
    if stamp_path.exists() {
        fs::remove_file(&stamp_path).doing("remove", &stamp_path)?;
    }
    if set.exists() {
        fs::rename(&set, &replaced).doing("move away", &set)?;
    }
    fs::rename(&aside, &set).doing("move in", &set)?;
    stamp.write(&stamp_path)?;
    remove(&replaced)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() { fs::remove_dir_all(folder).doing("remove", folder) } else { Ok(()) }
}

/// Starts a command whose every word goes into a log.
fn logged(mut command: Command, log: &Path) -> Result<Child> {
    let file = File::create(log).doing("make", log)?;
    let errors = file.try_clone().doing("open", log)?;
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    command.spawn().doing("start", command.get_program())
}

fn failure(script: &Path, status: ExitStatus, log: &Path) -> Error {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(15)..].join("\n");
    Error::message(format!("{} ended with {status}; its log is {}\n{tail}", script.display(), log.display()))
}

/// Waits for a generator and says now and then how far it is.
fn watch(mut child: Child, folder: &Path, name: &str, wanted: usize) -> Result<ExitStatus> {
    const EVERY: Duration = Duration::from_secs(10);
    let start = Instant::now();
    let (mut told, mut told_at) = (0, start);
    loop {
        if let Some(status) = child.try_wait().doing("wait for the generator of", name)? {
            eprintln!("{name}: {} of {wanted} cases, {} s", count_cases(folder), start.elapsed().as_secs());
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(100));
        if told_at.elapsed() >= EVERY {
            let made = count_cases(folder);
            if made != told {
                eprintln!("{name}: {made} of {wanted} cases, {} s", start.elapsed().as_secs());
            }
            (told, told_at) = (made, Instant::now());
        }
    }
}

#[cfg(test)]
#[cfg(unix)] // the generators that stand in are shell
mod tests {
    use super::*;

    fn shell(script: &'static str) -> impl FnOnce(&Path) -> Command {
        move |folder| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).current_dir(folder);
            command
        }
    }

    fn two_cases() -> Stamp {
        Stamp { fingerprint: "f".into(), options: vec![], cases: 2 }
    }

    const WHOLE: &str = "mkdir a b; touch a/case.json b/case.json; echo 2 written, 0 skipped";

    fn entries(cache: &Cache) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(cache.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_whole_set_lands_with_its_stamp_and_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        fs::create_dir_all(cache.set("ops").join("old")).unwrap();
        fs::create_dir_all(folder.path().join(".ops.making").join("half")).unwrap();
        assert!(!is_whole(&cache, "ops", &two_cases()));
        make_set(&cache, "ops", &two_cases(), shell(WHOLE)).unwrap();
        assert!(is_whole(&cache, "ops", &two_cases()));
        assert_eq!(entries(&cache), ["ops", "ops.log", "ops.stamp.json"]);
        assert!(!cache.set("ops").join("old").exists());
    }

    #[test]
    fn a_failed_or_short_run_leaves_the_old_set_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        make_set(&cache, "ops", &two_cases(), shell(WHOLE)).unwrap();
        for script in ["mkdir a b; touch a/case.json b/case.json; exit 3", "mkdir a b; touch a/case.json"] {
            let error = make_set(&cache, "ops", &two_cases(), shell(script)).unwrap_err();
            assert!(error.to_string().contains("ops.log"), "{error}");
            assert!(is_whole(&cache, "ops", &two_cases()));
            assert_eq!(entries(&cache), ["ops", "ops.log", "ops.stamp.json"]);
        }
    }

    #[test]
    fn a_set_is_made_again_when_its_origin_changes_or_a_case_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        make_set(&cache, "ops", &two_cases(), shell(WHOLE)).unwrap();
        let newer = Stamp { fingerprint: "g".into(), ..two_cases() };
        assert!(!is_whole(&cache, "ops", &newer));
        let larger = Stamp { options: vec!["--large".into()], ..two_cases() };
        assert!(!is_whole(&cache, "ops", &larger));
        fs::remove_dir_all(cache.set("ops").join("a")).unwrap();
        assert!(!is_whole(&cache, "ops", &two_cases()));
    }

    #[test]
    fn recipes_name_files_that_exist() {
        for recipe in [&OPS, &OPS_LARGE, &MODELS, &CHECKPOINTS, &VECTORS, &VECTORS_WITH_LLAMA] {
            let stamp = stamp_of(recipe).unwrap();
            assert_eq!(stamp.cases, recipe.cases);
        }
    }
}
