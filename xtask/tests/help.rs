//! Every command answers when it is asked for help. Having a test of the binary also makes `cargo test` build it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).arg("--help").output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_says_what_it_does() {
    let overview = help(&[]);
    let (_, commands) = overview.split_once("Commands:\n").unwrap();
    // What is wrapped stands further in than a command's name.
    let lines = commands.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|name| !name.starts_with(' ')));
    let commands: Vec<&str> = names.filter_map(|name| name.split_whitespace().next()).collect();
    assert!(commands.contains(&"cases") && commands.contains(&"fuzz"), "{overview}");
    for command in commands {
        assert!(help(&[command]).contains("Usage:"), "{command}");
    }
}
