//! The command line before any command sees it: what clap makes of it, and how that is told where it makes no sense.
//!
//! Arguments flow in; the command and how it wants its errors, or the exit status of a process that has said all that
//! there is to say, flow out.

use crate::failure::Failure;
use crate::output::{self, Output};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// How a command says that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// In words, on standard error.
    Words,
    /// As a JSON object, where its result would have been.
    Json,
}

/// The command that a line asks for. Help, the version and what is wrong with the line are told here.
pub(crate) fn parse<A: CommandFactory + FromArgMatches>(
    given: &[OsString],
    out: &mut Output,
) -> Result<(A, Tone), ExitCode> {
    let parsed = A::command().try_get_matches_from(given).and_then(|matches| {
        // Every command that has such an option calls it so.
        let json = matches
            .subcommand()
            .and_then(|(_, command)| command.try_get_one::<bool>("json").ok().flatten().copied());
        let tone = if json == Some(true) { Tone::Json } else { Tone::Words };
        A::from_arg_matches(&matches).map(|arguments| (arguments, tone))
    });
    parsed.map_err(|error| refuse(&error, given, out))
}

fn refuse(error: &clap::Error, given: &[OsString], out: &mut Output) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        return match printed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => end(&output::failed(error), Tone::Words, out),
        };
    }
    let hint = quoting(error, given);
    if given.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
        let failure = Failure::usage(message(error));
        let failure = match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        };
        return end(&failure, Tone::Json, out);
    }
    // Nothing is to be done if this fails.
    let _ = error.print();
    if let Some(hint) = hint {
        output::complain(&format!("\nhint: {hint}\n"));
    }
    ExitCode::from(2)
}

/// Says why there is no result, and what the process ends with.
pub(crate) fn end(failure: &Failure, tone: Tone, out: &mut Output) -> ExitCode {
    // What was printed before comes first, also where both go to one place.
    let _ = out.end_line().and_then(|()| out.flush());
    if tone == Tone::Json && !out.has_told() && failure.says_something() {
        let told = out.json(&failure.as_json(), output::Json::OneLine).and_then(|()| out.flush());
        if told.is_ok() {
            return failure.exit_code();
        }
    }
    failure.complain();
    failure.exit_code()
}

/// What is wrong, without clap's usage and tips.
fn message(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.split("\n\n").next().unwrap_or(text).trim().to_owned()
}

/// A prompt of several words without quotes is the first thing that people type.
fn quoting(error: &clap::Error, given: &[OsString]) -> Option<String> {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return None,
    };
    let is_run = given.get(1).is_some_and(|command| command == "run");
    (is_run && !word.starts_with('-')).then(|| {
        "a prompt of several words stands between quotes: pteron run \"Why is the sky blue?\"".to_owned()
    })
}
