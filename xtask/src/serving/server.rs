//! A server under test: a process that listens at a free port of this machine, and ends with its owner.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::Client;
use crate::error::{Doing, Error, Result};

/// How a server is started.
pub(crate) struct Start<'a> {
    pub(crate) pteron: &'a Path,
    pub(crate) models: &'a [&'a str],
    pub(crate) threads: usize,
    /// Who may ask; everybody where there is none.
    pub(crate) key: Option<&'a str>,
    /// Answers that a model writes at the same time.
    pub(crate) parallel: usize,
    /// Connections at once; the usual number where nothing is said.
    pub(crate) connections: Option<usize>,
    /// Where the file with the key goes.
    pub(crate) folder: &'a Path,
}

/// A server that runs.
pub(crate) struct Server {
    child: Child,
    address: String,
    key: Option<String>,
}

impl Server {
    /// Starts one and waits until it listens.
    pub(crate) fn start(start: &Start<'_>) -> Result<Server> {
        let mut command = Command::new(start.pteron);
        command.arg("serve").args(start.models).args(["--port", "0"]);
        command.args(["--threads", &start.threads.to_string(), "--parallel", &start.parallel.to_string()]);
        if let Some(connections) = start.connections {
            command.args(["--connections", &connections.to_string()]);
        }
        if let Some(key) = start.key {
            let file = start.folder.join("keys.txt");
            fs::write(&file, format!("{key}\n")).doing("write", &file)?;
            command.arg("--api-key-file").arg(&file);
        }
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().doing("start", start.pteron)?;
        let mut server = Server { child, address: String::new(), key: start.key.map(str::to_owned) };
        let output = server.child.stdout.take().map(BufReader::new);
        for line in output.into_iter().flat_map(BufReader::lines) {
            let line = line.doing("read what it says", start.pteron)?;
            if let Some((_, url)) = line.split_once("http://") {
                server.address = url.split('/').next().unwrap_or_default().trim().to_owned();
                return Ok(server);
            }
        }
        Err(Error::message("`pteron serve` ended before it listened"))
    }

    /// Its URL, without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address, self.key.as_deref())
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What of it is in memory, where the system tells.
    pub(crate) fn resident(&self) -> Option<Resident> {
        Resident::read(&fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?)
    }

    /// A figure that it counts, summed over its models.
    pub(crate) fn counted(&self, name: &str) -> Result<f64> {
        let text = self.client().get("/metrics")?.text()?;
        Ok(counted(&text, name))
    }

    /// Whether it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// Bytes of a process that are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) bytes: u64,
    /// Of these, pages of mapped files, which the system takes back when it wants to.
    pub(crate) of_files: u64,
}

impl Resident {
    fn read(status: &str) -> Option<Resident> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
        };
        Some(Resident { bytes: bytes("VmRSS:")?, of_files: bytes("RssFile:")? })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sum of a figure over its labels in Prometheus' text.
fn counted(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest,
        };
        value.trim().parse::<f64>().ok()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_with_the_part_of_files() {
        let status = "Name:\tx\nVmRSS:\t    12 kB\nRssAnon:\t 8 kB\nRssFile:\t   4 kB\n";
        assert_eq!(Resident::read(status), Some(Resident { bytes: 12 << 10, of_files: 4 << 10 }));
        assert_eq!(Resident::read("VmRSS: many"), None);
    }

    #[test]
    fn figures_are_summed_over_labels_and_told_from_longer_names() {
        let text = "# HELP a b\na{m=\"x\"} 2\na{m=\"y} 7\"} 3\na_total{m=\"x\"} 50\nb 4\n";
        assert_eq!([counted(text, "a"), counted(text, "b"), counted(text, "c")], [5.0, 4.0, 0.0]);
    }
}
