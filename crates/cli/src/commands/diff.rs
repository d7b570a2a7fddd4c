//! `pteron diff`: what two files say differently.

use crate::diff;
use crate::failure::{Answer, Failure};
use crate::file::File;
use crate::output::{Output, count};
use std::path::PathBuf;

/// Compare two programs, table by table and node by node
///
/// Prints nothing if both say the same. Otherwise every difference with its place, `-` what the first file has
/// and `+` what the second has. Weights are compared by content; where things lie in the file does not matter.
/// Works on .ptd and .bpte files too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron diff old.pte new.pte

Exit status: 0 equal; 1 different; 2 trouble.")]
pub(crate) struct Arguments {
    /// The first file
    #[arg(value_name = "A")]
    first: PathBuf,
    /// The second file
    #[arg(value_name = "B")]
    second: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let open = |path| File::open(path).map_err(Failure::into_trouble);
    let (first, second) = (open(&arguments.first)?, open(&arguments.second)?);
    let found = diff::compare(&first, &second).map_err(Failure::into_trouble)?;
    for file in [&first, &second] {
        file.check_unchanged().map_err(Failure::into_trouble)?;
    }
    if found.count() == 0 {
        return Ok(Answer::Yes);
    }
    for line in found.lines() {
        out.line(line)?;
    }
    out.blank()?;
    out.line(count(found.count(), "difference"))?;
    Ok(Answer::No)
}
