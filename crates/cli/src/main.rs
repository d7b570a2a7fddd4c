//! The `pteron` command line: arguments flow in, each command is one file under `commands`, text or JSON flows
//! out and the exit code says how it went.
//!
//! Knows of every crate; no crate knows of it. Nothing here computes: what is shown comes from the libraries.

mod aside;
mod bench;
mod commands;
mod conformance;
mod diff;
mod doctor;
mod engine;
mod failure;
mod file;
mod form;
mod home;
mod inspect;
mod log;
mod mlx;
mod output;
mod rewrite;
mod serving;
mod talk;
mod tensors;
mod usage;

use clap::{Parser, Subcommand};
use commands as command;
use failure::{Answer, Failure};
use output::Output;
use std::process::ExitCode;

/// Takes models as they are published, makes one file of each, and runs it on the machine at hand
#[derive(Debug, Parser)]
#[command(
    name = "pteron",
    version = command::version::SHORT,
    long_version = command::version::LONG,
    // Longer lines are hard to read, however wide the terminal.
    max_term_width = 100,
    after_help = "Examples:
  pteron run 'Why is the sky blue?'               an answer by the default model
  pteron chat                                     talk to it
  pteron transcribe speech.mp3                    what is said in it
  pteron export FOLDER -o model.pte --quantize 4w a published model as one program
  pteron inspect model.pte                        what it takes, gives, holds and needs
  pteron exec model.pte --input x.npy             run it and look at the outputs
  pteron exec model.pte --input x.npy --output y  write them to y/out.0.npy, ...
  pteron verify model.pte                         everything that is wrong with it
  pteron conformance cases/ops                    hold the runtime against PyTorch

Exit status: 0 done; 1 the answer is no, or the file or the run failed; 2 bad usage (for diff also trouble).
`pteron help COMMAND` says more about a command."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(command::run::Arguments),
    Chat(command::chat::Arguments),
    Serve(command::serve::Arguments),
    Transcribe(command::transcribe::Arguments),
    Embed(command::embed::Arguments),
    Perplexity(command::perplexity::Arguments),
    Pull(command::pull::Arguments),
    List(command::list::Arguments),
    Rm(command::rm::Arguments),
    Doctor(command::doctor::Arguments),
    Tokenize(command::tokenize::Arguments),
    Template(command::template::Arguments),
    Inspect(command::inspect::Arguments),
    Exec(command::exec::Arguments),
    Verify(command::verify::Arguments),
    Diff(command::diff::Arguments),
    Rewrite(command::rewrite::Arguments),
    Compile(command::compile::Arguments),
    Export(command::export::Arguments),
    Conformance(command::conformance::Arguments),
    Bench(command::bench::Arguments),
    Version(command::version::Arguments),
    Completions(command::completions::Arguments),
    Man(command::man::Arguments),
}

fn main() -> ExitCode {
    pteron_cpu::map_large_blocks();
    let mut out = Output::stdout();
    let given: Vec<_> = std::env::args_os().collect();
    let (arguments, tone) = match usage::parse::<Arguments>(&given, &mut out) {
        Ok(parsed) => parsed,
        Err(status) => return status,
    };
    log::listen();
    let answer = run(&arguments.command, &mut out).and_then(|answer| {
        out.flush()?;
        Ok(answer)
    });
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::FAILURE,
        Err(failure) => usage::end(&failure, tone, &mut out),
    }
}

fn run(command: &Command, out: &mut Output) -> Result<Answer, Failure> {
    match command {
        Command::Run(arguments) => command::run::run(arguments, out),
        Command::Chat(arguments) => command::chat::run(arguments, out),
        Command::Serve(arguments) => command::serve::run(arguments, out),
        Command::Transcribe(arguments) => command::transcribe::run(arguments, out),
        Command::Embed(arguments) => command::embed::run(arguments, out),
        Command::Perplexity(arguments) => command::perplexity::run(arguments, out),
        Command::Pull(arguments) => command::pull::run(arguments, out),
        Command::List(arguments) => command::list::run(arguments, out),
        Command::Rm(arguments) => command::rm::run(arguments, out),
        Command::Doctor(arguments) => command::doctor::run(arguments, out),
        Command::Tokenize(arguments) => command::tokenize::run(arguments, out),
        Command::Template(arguments) => command::template::run(arguments, out),
        Command::Inspect(arguments) => command::inspect::run(arguments, out),
        Command::Exec(arguments) => command::exec::run(arguments, out),
        Command::Verify(arguments) => command::verify::run(arguments, out),
        Command::Diff(arguments) => command::diff::run(arguments, out),
        Command::Rewrite(arguments) => command::rewrite::run(arguments),
        Command::Compile(arguments) => command::compile::run(arguments, out),
        Command::Export(arguments) => command::export::run(arguments, out),
        Command::Conformance(arguments) => command::conformance::run(arguments, out),
        Command::Bench(arguments) => command::bench::run(arguments, out),
        Command::Version(arguments) => command::version::run(arguments, out),
        Command::Completions(arguments) => command::completions::run(arguments, out),
        Command::Man(arguments) => command::man::run(arguments, out),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// Groups of options are shared by commands; two of the same name would first show when somebody uses one.
    #[test]
    fn options_of_every_command_agree() {
        super::Arguments::command().debug_assert();
    }
}
