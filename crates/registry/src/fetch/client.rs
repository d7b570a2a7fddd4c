//! The machine's own package clients. They know which registry is meant and how to reach it; we ask them for files and
//! read those as data. Nothing is installed, no code of a package is run.

use super::{GLANCE, Network};
use crate::{Error, Event, Listener, Result};
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The end of a client's output that an error shows.
const TAIL: u64 = 2000;

/// How clients say that the disk is full.
const NO_SPACE: [&str; 3] = ["No space left on device", "[Errno 28]", "ENOSPC"];

/// A program with its first arguments.
pub(super) type Program = &'static [&'static str];

/// A kind of client: how it is started, and how it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    /// Programs with their first arguments, tried in order.
    programs: &'static [Program],
    /// How a file lands in a folder; the folder and the package follow.
    arguments: &'static [&'static str],
    /// Between name and version.
    separator: &'static str,
    /// How the names of its packages end.
    pub(super) ending: &'static str,
}

/// `pip`, for wheels only: a source package would run its own code.
pub(super) const PIP: Client = Client {
    name: "pip",
    programs: &[
        &["python3", "-m", "pip"],
        &["python", "-m", "pip"],
        &["pip3"],
        &["pip"],
        &["py", "-m", "pip"],
        &["uv", "tool", "run", "pip"],
    ],
    arguments: &[
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--ignore-requires-python",
        "--no-input",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--progress-bar",
        "off",
        "--dest",
    ],
    separator: "==",
    ending: ".whl",
};

/// `npm`, told to run no scripts.
pub(super) const NPM: Client = Client {
    name: "npm",
    programs: &[&["npm"], &["npm.cmd"]],
    arguments: &[
        "pack",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel",
        "error",
        "--pack-destination",
    ],
    separator: "@",
    ending: ".tgz",
};

impl Client {
    /// Fetches a package into a folder that is empty and ours, and says how far it is.
    pub(super) fn fetch(
        &self,
        program: Program,
        (name, number, of): (&str, usize, usize),
        version: &str,
        folder: &Path,
        network: &Network,
        listener: Listener<'_>,
    ) -> Result<PathBuf> {
        let temporary = folder.join("temporary");
        fs::create_dir(&temporary).map_err(Error::io(&temporary, "make the folder"))?;
        let said_path = folder.join("output");
        let said = fs::File::create_new(&said_path).map_err(Error::io(&said_path, "make"))?;
        let said_too = said.try_clone().map_err(Error::io(&said_path, "open"))?;
        let mut command = start(program, folder);
        command.args(self.arguments).arg(folder).arg(format!("{name}{}{version}", self.separator));
        // What a client leaves when it is ended in mid-work lies where it is found and removed.
        for variable in ["TMPDIR", "TEMP", "TMP"] {
            command.env(variable, &temporary);
        }
        command.stdout(said).stderr(said_too);
        let shown = format!("{} {}", program.join(" "), shown_arguments(self, name, version));
        let failed = |output: String| Error::Client { command: shown.clone(), output };
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut child = Ended(child);
        let mut bytes = 0;
        listener(Event::Package { name, number, of, bytes });
        let status = loop {
            match child.0.try_wait().map_err(|error| failed(error.to_string()))? {
                Some(status) => break status,
                // Whoever leaves with an error here ends the client, too.
                None => network.rest(GLANCE)?,
            }
            let now = largest_in(folder);
            if now != bytes {
                bytes = now;
                listener(Event::Package { name, number, of, bytes });
            }
        };
        if !status.success() {
            let said = tail(&said_path);
            if NO_SPACE.iter().any(|words| said.contains(words)) {
                return Err(Error::io(&said_path, "write")(std::io::ErrorKind::StorageFull.into()));
            }
            return Err(failed(last_words(&said)));
        }
        let entries = fs::read_dir(folder).map_err(Error::io(folder, "read the folder"))?.flatten();
        let mut packages = entries.map(|entry| entry.path()).filter(|path| {
            path.is_file()
                && path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(self.ending))
        });
        match (packages.next(), packages.next()) {
            (Some(package), None) => Ok(package),
            _ => Err(failed(format!("it left no single file that ends with {}", self.ending))),
        }
    }

    /// The command that would be used, if there is one.
    pub(super) fn command(&self, folder: &Path) -> Option<String> {
        self.find(folder).ok().map(|program| program.join(" "))
    }

    /// The first program that can be started and answers.
    pub(super) fn find(&self, folder: &Path) -> Result<Program> {
        let answers = |program: &&Program| {
            let mut command = start(program, folder);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let found = self.programs.iter().find(answers).copied();
        found.ok_or_else(|| Error::NoClient {
            what: self.name,
            tried: self.programs.iter().map(|program| program.join(" ")).collect::<Vec<_>>().join(", "),
        })
    }
}

/// A client that is ended with us, where we end in good order.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In a folder of our own: settings of a project that we happen to be started in are not for us.
fn start(program: &[&str], folder: &Path) -> Command {
    let mut words = program.iter().map(OsString::from);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

fn shown_arguments(client: &Client, name: &str, version: &str) -> String {
    format!("{} {name}{}{version}", client.arguments.first().copied().unwrap_or_default(), client.separator)
}

/// The size of the largest file: clients copy what they fetched, so that a sum would count it twice.
fn largest_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => largest_in(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.map(size).max().unwrap_or(0)
}

/// The last lines of what a client printed.
fn tail(path: &Path) -> String {
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        file.take(TAIL).read_to_end(&mut text)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&text).trim().to_owned(),
        Err(error) => format!("(its output is lost: {error})"),
    }
}

/// What is worth quoting of a client's output: its errors, or else its last lines; of a traceback the line that says what
/// happened.
fn last_words(said: &str) -> String {
    let errors: Vec<&str> =
        said.lines().filter(|line| line.starts_with("ERROR:") || line.starts_with("npm error")).collect();
    match (said.contains("Traceback (most recent call last)"), errors.is_empty()) {
        (true, true) => {
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
        }
        (_, false) => errors.join("\n"),
        (false, true) => said.to_owned(),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    /// A client that is a line of shell; `$0` is its first argument.
    const fn shell(programs: &'static [Program]) -> Client {
        Client { name: "shell", programs, arguments: &["get", "--to"], separator: "==", ending: ".whl" }
    }

    fn fetch(client: Client) -> (Result<Vec<u8>>, Vec<u64>) {
        let (folder, network) = (tempfile::tempdir().unwrap(), &Network::default());
        let mut told = Vec::new();
        let fetched = client.find(folder.path()).and_then(|program| {
            client.fetch(program, ("name", 1, 1), "2.0", folder.path(), network, &mut |event| match event {
                Event::Package { bytes, .. } => told.push(bytes),
                other => panic!("{other:?}"),
            })
        });
        (fetched.map(|path| fs::read(path).unwrap()), told)
    }

    #[test]
    fn the_first_client_that_answers_is_asked_for_one_file() {
        let client = shell(&[
            &["/nowhere/to/be/found"],
            &["sh", "-c", "exit 1"],
            &[
                "sh",
                "-c",
                "[ $0 = --version ] || { sleep 0.3; printf \"$3 $TMPDIR\" > $2/some.whl; sleep 0.3; }",
            ],
        ]);
        let (fetched, told) = fetch(client);
        let text = String::from_utf8(fetched.unwrap()).unwrap();
        assert!(text.starts_with("name==2.0 ") && text.ends_with("/temporary"), "{text}");
        assert!(told.len() > 1 && told[0] == 0, "{told:?}");
    }

    #[test]
    fn a_client_without_room_is_a_full_disk_and_tracebacks_are_not_shown() {
        let full = shell(&[&[
            "sh",
            "-c",
            "[ $0 = --version ] || { echo 'ERROR: Could not install: [Errno 28] No space left on device' >&2; exit 1; }",
        ]]);
        let error = fetch(full).0.unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        let said =
            "Traceback (most recent call last):\n  File \"x.py\", line 1\n    raise\nValueError: no\n\n";
        assert_eq!(last_words(said), "ValueError: no");
        assert_eq!(last_words("Looking\nERROR: none\nbye"), "ERROR: none");
        assert_eq!(last_words("one\ntwo"), "one\ntwo");
    }

    #[test]
    fn a_client_that_fails_is_quoted() {
        let refuses = shell(&[&["sh", "-c", "[ $0 = --version ] || { echo no such package >&2; exit 3; }"]]);
        let message = fetch(refuses).0.unwrap_err().to_string();
        assert!(message.contains("get name==2.0") && message.ends_with("no such package"), "{message}");
        let empty = shell(&[&["sh", "-c", "true"]]);
        assert!(fetch(empty).0.unwrap_err().to_string().contains("no single file"));
        let missing = shell(&[&["/nowhere/to/be/found", "-m", "pip"]]);
        assert!(fetch(missing).0.unwrap_err().to_string().contains("tried /nowhere/to/be/found -m pip"));
    }
}
