//! `pteron completions`: what a shell needs to complete command lines of Pteron.

use crate::failure::{Answer, Failure};
use crate::output::Output;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a script that lets a shell complete commands and options
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron completions bash > ~/.local/share/bash-completion/completions/pteron
  pteron completions zsh > ~/.zfunc/_pteron
  pteron completions fish > ~/.config/fish/completions/pteron.fish")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "pteron", &mut script);
    out.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Answer::Yes)
}
