//! `cargo xtask sample`: packs the cut of the full sets that lives in the repository, so that a clone alone can test
//! itself: operator cases that cover every node kind, and models that cover every way a program can be built.

mod checkpoints;
mod pack;
mod select;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;

use safetensors::SafeTensors;

use self::pack::Members;
use self::select::Candidate;
use crate::Outcome;
use crate::cache::Cache;
use crate::case::{self, Case};
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Pack conformance/sample.zip and conformance/checkpoints.zip from the full sets.
///
/// The sample: 250 operator cases and 10 models, which together hold every node kind and every portable operator that occurs in the
/// full sets; at most 4 MB. The checkpoints: one of each family and kind of file; at most 2 MB. The same bytes for the same
/// sets, and no path of this machine in them.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Say what would be packed, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

const LIMIT: usize = 4_000_000;
const OPERATORS: usize = 250;
/// Packed bytes that a case taken only for variety may have.
const LARGEST: u64 = 280000;

/// One for each way that a program can be built, and the two that alone hold some portable operator.
const MODELS: [&str; 10] = [
    "llama_f32",
    "llama_4w_tied",
    "llama_offgraph",
    "gemma3_ring",
    "gemma4_31b_sample",
    "shared_state",
    "external_data",
    "whisper",
    "bert",
    "delegate_sandwich",
];

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let cache = Cache::locate()?;
    let operators = case::find(&cache.set("ops"))?;
    let models = case::find(&cache.set("models"))?;
    let candidates = operators.iter().map(candidate).collect::<Result<Vec<_>>>()?;
    let chosen = select::select(&candidates, OPERATORS, LARGEST);
    let sampled: Vec<&Case> = operators
        .iter()
        .filter(|case| chosen.contains(case.name()))
        .chain(models.iter().filter(|case| MODELS.contains(&case.name())))
        .collect();
    require_all(&operators, &models, &sampled)?;

    let archive = packed(&cache, &members(&sampled)?, LIMIT)?;
    let checkpoints = packed(&cache, &checkpoints::members(&cache.set("checkpoints"))?, checkpoints::LIMIT)?;
    if arguments.dry_run {
        sampled.iter().for_each(|case| println!("{}", case.name()));
    } else {
        write(&workspace::sample(), &archive)?;
        write(&workspace::checkpoints(), &checkpoints)?;
    }
    let (operators, models) = (chosen.len(), sampled.len() - chosen.len());
    println!(
        "{}: {operators} operator cases, {models} models, {} bytes",
        workspace::sample().display(),
        archive.len()
    );
    println!("{}: {} bytes", workspace::checkpoints().display(), checkpoints.len());
    Ok(Outcome::Good)
}

/// An archive of these members, once it is known to be small and free of this machine's paths.
fn packed(cache: &Cache, members: &Members, limit: usize) -> Result<Vec<u8>> {
    let places = [cache.root(), workspace::root()].map(|place| place.display().to_string());
    pack::require_no_machine_paths(members, &places)?;
    let archive = pack::archive(members)?;
    if archive.len() > limit {
        return Err(Error::message(format!("{} bytes; at most {limit} may be packed", archive.len())));
    }
    Ok(archive)
}

/// Names must not clash in one archive, all models must be there, and nothing that occurs may be missing.
fn require_all(operators: &[Case], models: &[Case], sampled: &[&Case]) -> Result<()> {
    let names: BTreeSet<&str> = sampled.iter().map(|case| case.name()).collect();
    if names.len() != sampled.len() {
        return Err(Error::message("an operator case and a model have the same name"));
    }
    if let Some(model) = MODELS.iter().find(|model| !names.contains(*model)) {
        return Err(Error::message(format!("the set of models has no case {model}")));
    }
    let everything: BTreeSet<String> = operators.iter().chain(models).flat_map(features).collect();
    let present: BTreeSet<String> = sampled.iter().copied().flat_map(features).collect();
    let missing: Vec<&str> = everything.difference(&present).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::message(format!("only models that are not in the sample hold {}", missing.join(", "))))
}

fn features(case: &Case) -> BTreeSet<String> {
    let description = &case.description;
    description.nodes.keys().chain(description.portable.keys()).cloned().collect()
}

fn candidate(case: &Case) -> Result<Candidate> {
    let size = pack::archive(&members(&[case])?)?.len() as u64;
    let source = &case.description.source;
    Ok(Candidate {
        name: case.name().to_string(),
        size,
        features: features(case),
        // "AddTest(shape=...)": the test's class.
        family: source.split('(').next().unwrap_or(source).to_string(),
        dtypes: dtypes(&case.folder.join("io.safetensors"))?,
    })
}

fn dtypes(path: &Path) -> Result<String> {
    let bytes = fs::read(path).doing("read", path)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| Error::content(path, error))?;
    let found: BTreeSet<String> = tensors.iter().map(|(_, tensor)| format!("{:?}", tensor.dtype())).collect();
    Ok(found.into_iter().collect::<Vec<_>>().join("+"))
}

fn members(cases: &[&Case]) -> Result<Members> {
    let mut members = Members::new();
    for case in cases {
        for file in case.files() {
            let path = case.folder.join(&file);
            members.insert(format!("{}/{file}", case.name()), fs::read(&path).doing("read", &path)?);
        }
    }
    Ok(members)
}

fn write(path: &Path, archive: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).doing("make a file in", folder)?;
    file.write_all(archive).doing("write", path)?;
    // A temporary file is private; this one is for every reader of the checkout.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let readable = fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(readable).doing("open up", path)?;
    }
    file.persist(path).map_err(|error| error.error).doing("write", path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;
    use crate::case::Description;

    #[test]
    fn the_packed_sample_is_small_whole_and_free_of_machine_paths() {
        let packed = fs::read(workspace::sample()).unwrap();
        assert!(packed.len() <= LIMIT, "{} bytes", packed.len());
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(packed)).unwrap();
        let mut members = Members::new();
        for index in 0..archive.len() {
            let mut member = archive.by_index(index).unwrap();
            let name = member.name().unwrap().into_owned();
            let mut content = vec![];
            member.read_to_end(&mut content).unwrap();
            members.insert(name, content);
        }
        pack::require_no_machine_paths(&members, &[]).unwrap();

        let mut cases = BTreeMap::new();
        for (name, content) in members.iter().filter(|(name, _)| name.ends_with("/case.json")) {
            let description: Description = serde_json::from_slice(content).unwrap();
            assert_eq!(*name, format!("{}/case.json", description.name));
            let case = Case { folder: description.name.clone().into(), description };
            for file in case.files() {
                assert!(members.contains_key(&format!("{}/{file}", case.name())), "{name} lacks {file}");
            }
            cases.insert(case.name().to_string(), case);
        }
        assert_eq!(cases.len(), OPERATORS + MODELS.len());
        assert!(MODELS.iter().all(|model| cases.contains_key(*model)));
        // The schema has 136 node kinds; no exporter here emits Noop, Tri and Median.
        let kinds: BTreeSet<&String> =
            cases.values().flat_map(|case| case.description.nodes.keys()).collect();
        assert_eq!(kinds.len(), 133);
    }
}
