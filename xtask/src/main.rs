//! What the developers of Pteron run: `cargo xtask COMMAND`. One file a command; each prints for a person to read
//! and ends with one line that sums up. Nothing that users get lives here, and no other crate knows of this one.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what these commands are for")]

mod aarch64;
mod bench;
mod bindings;
mod cache;
mod case;
mod cases;
mod conformance;
mod engine;
mod error;
mod fuzz;
mod interop;
mod language;
mod mlx_setup;
mod mutate;
mod parallel;
mod real_models;
mod release;
mod sample;
mod sanitize;
mod schemas;
mod serve_bench;
mod serve_conformance;
mod serving;
mod stamp;
mod start;
mod tidy;
mod vectors;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What the developers of Pteron run.
#[derive(Parser)]
#[command(name = "cargo xtask", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Cases(cases::Arguments),
    Conformance(conformance::Arguments),
    Interop(interop::Arguments),
    Sample(sample::Arguments),
    Mutate(mutate::Arguments),
    MutateWorker(mutate::WorkerArguments),
    Fuzz(fuzz::Arguments),
    Sanitize(sanitize::Arguments),
    Tidy(tidy::Arguments),
    MlxSetup(mlx_setup::Arguments),
    Parallel(parallel::Arguments),
    Bench(bench::Arguments),
    Bindings(bindings::Arguments),
    Aarch64(aarch64::Arguments),
    RealModels(real_models::Arguments),
    Release(release::Arguments),
    Schemas(schemas::Arguments),
    ServeConformance(serve_conformance::Arguments),
    ServeBench(serve_bench::Arguments),
    Vectors(vectors::Arguments),
}

/// Whether a command that ran to its end found what it hoped for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Good,
    Bad,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Cases(arguments) => cases::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Interop(arguments) => interop::run(&arguments),
        Command::Sample(arguments) => sample::run(&arguments),
        Command::Mutate(arguments) => mutate::run(&arguments),
        Command::MutateWorker(arguments) => mutate::work(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Sanitize(arguments) => sanitize::run(&arguments),
        Command::Tidy(arguments) => tidy::run(&arguments),
        Command::MlxSetup(arguments) => mlx_setup::run(&arguments),
        Command::Parallel(arguments) => parallel::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Bindings(arguments) => bindings::run(&arguments),
        Command::Aarch64(arguments) => aarch64::run(&arguments),
        Command::RealModels(arguments) => real_models::run(&arguments),
        Command::Release(arguments) => release::run(&arguments),
        Command::Schemas(arguments) => schemas::run(&arguments),
        Command::ServeConformance(arguments) => serve_conformance::run(&arguments),
        Command::ServeBench(arguments) => serve_bench::run(&arguments),
        Command::Vectors(arguments) => vectors::run(&arguments),
    };
    match outcome {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
