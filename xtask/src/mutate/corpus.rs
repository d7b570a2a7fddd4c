//! The real files that mutants are made of, and which mutant a number stands for.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::mutator::{self, Mutant, Random};
use crate::case::{self, Case};
use crate::error::{Doing, Error, Result};

/// Larger files are left alone: their tables are like those of small ones, and running them takes the time of many.
const LARGEST: u64 = 1 << 20;

/// All files under a folder of cases that can be damaged.
pub(crate) struct Corpus {
    seed: u64,
    cases: Vec<Case>,
    /// One a file: the case that it belongs to, its name, its bytes once they were needed.
    specimens: Vec<Specimen>,
}

struct Specimen {
    case: usize,
    file: String,
    bytes: OnceLock<Vec<u8>>,
}

/// One damaged file in place of the sound one of its case.
pub(crate) struct Damaged<'a> {
    pub(crate) case: &'a Case,
    /// The name of the file that is damaged, `model.pte` or one of the case's data files.
    pub(crate) file: &'a str,
    pub(crate) mutant: Mutant,
}

impl Corpus {
    pub(crate) fn open(folder: &Path, seed: u64) -> Result<Corpus> {
        let cases = case::find(folder)?;
        let mut specimens = vec![];
        for (index, case) in cases.iter().enumerate() {
            for file in case.files() {
                let is_program =
                    Path::new(&file).extension().is_some_and(|kind| kind == "pte" || kind == "ptd");
                let path = case.folder.join(&file);
                if is_program && fs::metadata(&path).doing("look at", &path)?.len() <= LARGEST {
                    specimens.push(Specimen { case: index, file, bytes: OnceLock::new() });
                }
            }
        }
        if specimens.is_empty() {
            return Err(Error::content(
                folder,
                "holds no case; `cargo xtask cases` makes them and prints where",
            ));
        }
        Ok(Corpus { seed, cases, specimens })
    }

    /// The mutant of that number.
    pub(crate) fn mutant(&self, index: u64) -> Result<Damaged<'_>> {
        let mut random = Random::of(self.seed, index);
        let specimen = &self.specimens[random.below(self.specimens.len())];
        let other = &self.specimens[random.below(self.specimens.len())];
        let mutant = mutator::mutate(self.bytes(specimen)?, self.bytes(other)?, &mut random);
        Ok(Damaged { case: &self.cases[specimen.case], file: &specimen.file, mutant })
    }

    fn bytes<'a>(&'a self, specimen: &'a Specimen) -> Result<&'a [u8]> {
        if let Some(bytes) = specimen.bytes.get() {
            return Ok(bytes);
        }
        let path = self.cases[specimen.case].folder.join(&specimen.file);
        let bytes = fs::read(&path).doing("read", &path)?;
        Ok(specimen.bytes.get_or_init(|| bytes))
    }
}
