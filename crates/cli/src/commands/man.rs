//! `pteron man`: the help of every command as manual pages.

use crate::failure::{Answer, Failure};
use crate::output::Output;
use clap::CommandFactory;
use clap_mangen::Man;
use std::path::PathBuf;

/// Print the manual page, or write one for every command
///
/// Without a folder the page of `pteron` goes to standard output; with one, pteron.1, pteron-run.1 and all others are
/// written there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron man | man -l -
  pteron man ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// A folder for the pages of all commands; it must be there
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let command = crate::Arguments::command();
    if let Some(folder) = &arguments.folder {
        if !folder.is_dir() {
            return Err(Failure::in_file(folder, "there is no such folder"));
        }
        clap_mangen::generate_to(command, folder).map_err(|error| Failure::in_file(folder, error))?;
        return Ok(Answer::Yes);
    }
    let mut page = Vec::new();
    let rendered = Man::new(command.disable_help_subcommand(true)).render(&mut page);
    rendered.map_err(|error| Failure::new(format!("cannot make the page: {error}")))?;
    out.line(String::from_utf8_lossy(&page).trim_end())?;
    Ok(Answer::Yes)
}
