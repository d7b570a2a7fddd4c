//! What was measured, kept by machine: `bench/results/MACHINE.json` has the tables of one, and `docs/speed.md` shows those of all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::machine;
use super::rows::aligned;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Rows of cells below names of columns. What a row is of stands in its first cells; measured again, it takes the place of
/// the old one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Table {
    title: String,
    /// The cells that say what a row is of.
    keys: usize,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    /// What the rows were measured with; the last time counts.
    measured: String,
}

/// All tables of a machine.
#[derive(Default, Deserialize, Serialize)]
struct Machine {
    about: String,
    tables: BTreeMap<String, Table>,
}

impl Table {
    /// A table of lines, of which the first has the names.
    pub(super) fn new<const N: usize>(title: &str, keys: usize, lines: &[[String; N]]) -> Table {
        let mut rows = lines.iter().map(|line| line.to_vec());
        let columns = rows.next().unwrap_or_default();
        Table { title: title.to_owned(), keys, columns, rows: rows.collect(), measured: String::new() }
    }

    /// Adds what was measured later.
    fn renew(&mut self, newer: Table) {
        if (self.keys, &self.columns) != (newer.keys, &newer.columns) {
            *self = newer;
            return;
        }
        self.measured = newer.measured;
        for row in newer.rows {
            match self.rows.iter_mut().find(|old| old[..self.keys] == row[..self.keys]) {
                Some(old) => *old = row,
                None => self.rows.push(row),
            }
        }
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let below: Vec<String> = (0..self.columns.len())
            .map(|column| if column == 0 { "---".to_owned() } else { "---:".to_owned() })
            .collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("### {}\n\n{}{}{rows}\n{}\n", self.title, line(&self.columns), line(&below), self.measured)
    }
}

/// Shows lines, and where a machine is named keeps them under that name and writes the page anew.
pub(super) fn show<const N: usize>(
    machine: Option<&str>,
    title: &str,
    keys: usize,
    lines: &[[String; N]],
) -> Result<()> {
    println!("{}", aligned(lines));
    machine.map_or(Ok(()), |name| keep(workspace::root(), name, Table::new(title, keys, lines)))
}

fn keep(root: &Path, name: &str, mut table: Table) -> Result<()> {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Err(Error::message(
            "a machine's name has small letters, digits and dashes, as in `xeon-2-cores`",
        ));
    }
    let load =
        machine::load().map_or_else(String::new, |load| format!(", load before and meanwhile {load:.1}"));
    table.measured = format!("Measured at commit {}{load}.", machine::commit());
    let folder = root.join("bench").join("results");
    fs::create_dir_all(&folder).doing("make", &folder)?;
    let file = folder.join(format!("{name}.json"));
    let mut known = if file.exists() { read(&file)? } else { Machine::default() };
    known.about = machine::about();
    match known.tables.get_mut(&table.title) {
        Some(old) => old.renew(table),
        None => drop(known.tables.insert(table.title.clone(), table)),
    }
    let text = serde_json::to_string_pretty(&known).map_err(|error| Error::content(&file, error))?;
    fs::write(&file, text + "\n").doing("write", &file)?;
    write_page(root)
}

fn read(file: &Path) -> Result<Machine> {
    let text = fs::read_to_string(file).doing("read", file)?;
    serde_json::from_str(&text).map_err(|error| Error::content(file, error))
}

/// Writes the page from what is kept of all machines.
fn write_page(root: &Path) -> Result<()> {
    let folder = root.join("bench").join("results");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .doing("read", &folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut page = "# Speed\n\nMade by `cargo xtask bench --record MACHINE` from `bench/results`; [how it is measured](../bench/README.md). \
                    Both sides of a row ran in one turn on the same machine; a ratio above 1 means that Pteron is the faster one.\n"
        .to_owned();
    for file in files {
        let machine = read(&file)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let _ = write!(page, "\n## {name}\n\n{}\n", machine.about);
        for table in machine.tables.values() {
            let _ = write!(page, "\n{}", table.markdown());
        }
    }
    let to = root.join("docs").join("speed.md");
    fs::write(&to, page).doing("write", &to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 3]]) -> Table {
        let mut lines = vec![["model".to_owned(), "threads".to_owned(), "ratio".to_owned()]];
        lines.extend(rows.iter().map(|row| row.map(str::to_owned)));
        Table::new("Decode", 2, &lines)
    }

    #[test]
    fn what_is_measured_again_takes_the_place_of_the_old_row() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("docs")).unwrap();
        keep(folder.path(), "one-machine", table(&[["a", "1", "1.10"], ["a", "2", "1.20"]])).unwrap();
        keep(folder.path(), "one-machine", table(&[["a", "2", "1.30"], ["b", "1", "0.90"]])).unwrap();
        keep(folder.path(), "other", table(&[["a", "1", "2.00"]])).unwrap();
        let page = fs::read_to_string(folder.path().join("docs/speed.md")).unwrap();
        let rows: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| a") || line.starts_with("| b")).collect();
        assert_eq!(rows, ["| a | 1 | 1.10 |", "| a | 2 | 1.30 |", "| b | 1 | 0.90 |", "| a | 1 | 2.00 |"]);
        assert!(
            page.contains("## one-machine\n")
                && page.contains("## other\n")
                && page.contains("| --- | ---: | ---: |")
        );
    }

    #[test]
    fn names_of_machines_are_names_of_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["", "../up", "With Space"] {
            let error = keep(folder.path(), name, table(&[])).unwrap_err().to_string();
            assert!(error.contains("small letters"), "{error}");
        }
    }
}
