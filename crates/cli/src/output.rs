//! Standard output and everything that makes it readable: aligned tables, sizes for people, JSON.
//!
//! The only room of the workspace that writes to standard output. Whatever comes from a file may hold control
//! characters, so that every byte passes through here and terminals see none of them.

use crate::failure::Failure;
pub(crate) use pteron::parts::machine::size;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// Standard output, buffered.
pub(crate) struct Output {
    out: BufWriter<Stdout>,
    /// Whether somebody looks at it as it comes.
    terminal: bool,
    /// A piece was printed, and its line has not ended.
    open_line: bool,
    /// A result in JSON was printed.
    told: bool,
}

impl Output {
    pub(crate) fn stdout() -> Output {
        let (out, terminal) = (BufWriter::with_capacity(1 << 16, io::stdout()), io::stdout().is_terminal());
        Output { out, terminal, open_line: false, told: false }
    }

    /// One line, or several where the text has line ends of its own.
    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        let text = text.to_string();
        self.open_line = false;
        writeln!(self.out, "{}", visible(&text)).map_err(failed)
    }

    /// A piece of a text that goes on, seen at once. A terminal sees no control characters of it; a file or a program gets
    /// the bytes as they are, for they may be what was asked for.
    pub(crate) fn piece(&mut self, text: &str) -> Result<(), Failure> {
        self.open_line = if text.is_empty() { self.open_line } else { !text.ends_with('\n') };
        let shown = if self.terminal { visible(text) } else { text.to_owned() };
        self.out.write_all(shown.as_bytes()).and_then(|()| self.out.flush()).map_err(failed)
    }

    /// Ends the line of a piece that broke off.
    pub(crate) fn end_line(&mut self) -> Result<(), Failure> {
        if self.open_line { self.blank() } else { Ok(()) }
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

    /// Columns that a line may have: those of the terminal. What goes to a file or a program may be of any length.
    pub(crate) fn columns(&self) -> usize {
        match self.terminal {
            true => console::Term::stdout().size_checked().map_or(80, |(_, columns)| columns.into()),
            false => usize::MAX,
        }
    }

    /// A value as JSON, on one line or indented.
    pub(crate) fn json(&mut self, value: &impl Serialize, style: Json) -> Result<(), Failure> {
        let text = match style {
            Json::OneLine => serde_json::to_string(value),
            Json::Indented => serde_json::to_string_pretty(value),
        };
        self.told = true;
        self.line(text.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?)
    }

    /// Whether a result in JSON was printed.
    pub(crate) fn has_told(&self) -> bool {
        self.told
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

/// Why standard output could not be written to.
pub(crate) fn failed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::closed_output(),
        _ => Failure::new(format!("cannot write to standard output: {error}")),
    }
}

/// Writes to standard error, with nothing to be done if that fails.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(visible(text).as_bytes());
}

/// The same for text that colours itself; whatever else is in it has been made visible.
pub(crate) fn complain_raw(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether standard error is a terminal whose user has not asked for plain text.
pub(crate) fn colours_wanted() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let plain = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    io::stderr().is_terminal() && !refused && !plain
}

/// The text with control characters as escapes, but for tabs and line ends.
pub(crate) fn visible(text: &str) -> String {
    let harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(harmless) {
        return text.to_owned();
    }
    text.chars().map(|c| if harmless(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
}

/// Blanks between two columns.
const GAP: usize = 2;
/// No column is made narrower.
const NARROWEST: usize = 8;

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
        self.render_within(indent, usize::MAX)
    }

    /// The same within so many columns: the cells of the widest column are cut in the middle until it fits.
    pub(crate) fn render_within(&self, indent: usize, columns: usize) -> String {
        // No cell has room for more than all of the line, however long a name in a file is.
        let fit = |row: &Vec<String>| row.iter().map(|cell| cut(cell, columns.max(NARROWEST))).collect();
        let mut table = Table { columns: self.columns.clone(), rows: self.rows.iter().map(fit).collect() };
        while let Some((column, narrower)) = table.too_wide(indent, columns) {
            for cell in table.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
                *cell = cut(cell, narrower);
            }
        }
        table.align(indent)
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        (0..self.columns.len()).map(|column| width(column).unwrap_or_default()).collect()
    }

    /// The widest column, where all of them are too wide together and it can do with less, and what it can have.
    fn too_wide(&self, indent: usize, columns: usize) -> Option<(usize, usize)> {
        let widths = self.widths();
        let shown = widths.iter().filter(|&&width| width > 0);
        let total = shown.fold(indent, |total, width| total.saturating_add(width + GAP)).saturating_sub(GAP);
        let (column, &widest) = widths.iter().enumerate().max_by_key(|(_, width)| **width)?;
        let second = widths.iter().enumerate().filter(|(at, _)| *at != column).map(|(_, width)| *width).max();
        let excess = total.checked_sub(columns).filter(|&excess| excess > 0 && widest > NARROWEST)?;
        // Not below the second widest at one go, so that two long ones share what is missing.
        let fair = second.unwrap_or(0).clamp(NARROWEST, widest - 1);
        Some((column, widest.saturating_sub(excess).max(fair)))
    }

    fn align(&self, indent: usize) -> String {
        let width = |text: &str| text.chars().count();
        let widths = self.widths();
        let render = |row: &Vec<String>| {
            let mut line = " ".repeat(indent);
            for (cell, (align, &wide)) in row.iter().zip(self.columns.iter().zip(&widths)) {
                let pad = " ".repeat(wide - width(cell));
                match align {
                    _ if wide == 0 => continue,
                    Align::Left => line += &format!("{cell}{pad}{:GAP$}", ""),
                    Align::Right => line += &format!("{pad}{cell}{:GAP$}", ""),
                }
            }
            line.trim_end().to_owned()
        };
        self.rows.iter().map(render).collect::<Vec<_>>().join("\n")
    }
}

/// A text of at most so many characters: what does not fit is left out of its middle, since both ends of a path or a name
/// say most.
fn cut(text: &str, characters: usize) -> String {
    let length = text.chars().count();
    if length <= characters {
        return text.to_owned();
    }
    let kept = characters.saturating_sub(1);
    let (start, end) = (kept / 3, kept - kept / 3);
    let start: String = text.chars().take(start).collect();
    let end: String = text.chars().skip(length - end).collect();
    format!("{start}\u{2026}{end}")
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
    fn tables_fit_the_terminal_by_their_widest_column() {
        let mut table = Table::new(&[Align::Left, Align::Right]);
        table.row(["/a/long/path/to/some/model.gguf", "12.3 MiB"]).row(["short", "1 B"]);
        assert_eq!(
            table.render_within(2, 30),
            "  /a/lo\u{2026}e/model.gguf  12.3 MiB\n  short                    1 B"
        );
        for columns in [18, 20, 40, 60, usize::MAX] {
            let shown = table.render_within(0, columns);
            assert!(shown.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{shown}");
        }
        // What cannot fit is shown as narrow as it may be.
        assert_eq!(table.render_within(0, 3).lines().next().unwrap().chars().count(), 18);
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
