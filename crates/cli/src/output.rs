//! Standard output and everything that makes it readable: aligned tables, sizes for people, JSON.
//!
//! The only room of the workspace that writes to standard output. Whatever comes from a file may hold control
//! characters, so that every byte passes through here and terminals see none of them.

use crate::failure::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write};

/// Standard output, buffered.
pub(crate) struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn stdout() -> Output {
        Output { out: BufWriter::with_capacity(1 << 16, io::stdout()) }
    }

    /// One line, or several where the text has line ends of its own.
    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        let text = text.to_string();
        writeln!(self.out, "{}", visible(&text)).map_err(failed)
    }

    /// A piece of a text that goes on, seen at once.
    pub(crate) fn piece(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(visible(text).as_bytes()).and_then(|()| self.out.flush()).map_err(failed)
    }

    /// An empty line.
    pub(crate) fn blank(&mut self) -> Result<(), Failure> {
        self.line("")
    }

    /// A heading with a table below it; nothing at all if the table is empty.
    pub(crate) fn section(&mut self, heading: &str, table: &Table) -> Result<(), Failure> {
        if table.rows.is_empty() {
            return Ok(());
        }
        self.blank()?;
        self.line(heading)?;
        self.line(table.render(2))
    }

    /// A value as JSON, on one line or indented.
    pub(crate) fn json(&mut self, value: &impl Serialize, style: Json) -> Result<(), Failure> {
        let text = match style {
            Json::OneLine => serde_json::to_string(value),
            Json::Indented => serde_json::to_string_pretty(value),
        };
        self.line(text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?)
    }

    /// Hands over what is still buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(failed)
    }
}

/// How JSON is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    OneLine,
    Indented,
}

fn failed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::closed_output(),
        _ => Failure::new(format!("cannot write to standard output: {error}")),
    }
}

/// Writes to standard error, with nothing to be done if that fails.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(visible(text).as_bytes());
}

/// The text with control characters as escapes, but for tabs and line ends.
pub(crate) fn visible(text: &str) -> String {
    let harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(harmless) {
        return text.to_owned();
    }
    text.chars().map(|c| if harmless(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
}

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of text in aligned columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[Align]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing at its end stay empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Display>) -> &mut Table {
        // A line end inside a cell would tear the table apart.
        self.rows.push(cells.into_iter().map(|cell| cell.to_string().replace('\n', "\\n")).collect());
        self
    }

    /// The table as text without a line end at the end; empty columns take no room.
    pub(crate) fn render(&self, indent: usize) -> String {
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max())
            .map(Option::unwrap_or_default)
            .collect();
        let render = |row: &Vec<String>| {
            let mut line = " ".repeat(indent);
            for (cell, (align, &wide)) in row.iter().zip(self.columns.iter().zip(&widths)) {
                let pad = " ".repeat(wide - width(cell));
                match align {
                    _ if wide == 0 => continue,
                    Align::Left => line += &format!("{cell}{pad}  "),
                    Align::Right => line += &format!("{pad}{cell}  "),
                }
            }
            line.trim_end().to_owned()
        };
        self.rows.iter().map(render).collect::<Vec<_>>().join("\n")
    }
}

/// A number of bytes as people say it: `512 B`, `1.5 KiB`, `18 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would show as 1024.0.
    while amount >= 1023.95 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// A bar as long as `part` is of `whole`.
pub(crate) fn bar(part: u64, whole: u64, width: usize) -> String {
    if part == 0 || whole == 0 {
        return String::new();
    }
    let length = (part as f64 / whole as f64 * width as f64).round() as usize;
    "\u{2588}".repeat(length.clamp(1, width))
}

/// `1 method`, `2 methods`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_leave_out_empty_columns() {
        let mut table = Table::new(&[Align::Left, Align::Left, Align::Right]);
        table.row(["a", "", "1"]).row(["long", "", "100"]).row(["one\ntwo"]);
        assert_eq!(table.render(2), "  a           1\n  long      100\n  one\\ntwo");
    }

    #[test]
    fn sizes_read_well() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1 << 34, "16.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(visible("plain\tü\n"), "plain\tü\n");
        assert_eq!(visible("\u{1b}[2Jx\r\u{9b}"), "\\u{1b}[2Jx\\r\\u{9b}");
    }
}
