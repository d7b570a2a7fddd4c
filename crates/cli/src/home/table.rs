//! Models as `list` shows them: a table that fits the terminal, and what else lies in the store in words.

use crate::output::{Align, Table, count, size};
use indexmap::IndexMap;

/// What is shown of one variant of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) model: String,
    pub(crate) variant: String,
    /// Where anybody states it.
    pub(crate) bytes: Option<u64>,
    pub(crate) licence: Option<String>,
    /// Those that it is for; empty for any.
    pub(crate) backends: Vec<String>,
    pub(crate) here: bool,
    /// It was fetched and is not whole any more.
    pub(crate) damaged: bool,
    /// Of a download that was begun.
    pub(crate) partial_bytes: Option<u64>,
    /// Of all programs that were made of it.
    pub(crate) converted_bytes: u64,
}

impl Row {
    fn state(&self, room: Room) -> String {
        let mut parts = Vec::new();
        match (self.here, self.partial_bytes) {
            (true, _) => parts.push("here".to_owned()),
            (false, Some(bytes)) => parts.push(format!("{} fetched", size(bytes))),
            (false, None) if self.damaged => parts.push("damaged".to_owned()),
            (false, None) => {}
        }
        if self.converted_bytes > 0 && room != Room::Little {
            parts.push(format!("{} converted", size(self.converted_bytes)));
        }
        if !self.backends.is_empty() {
            parts.push(format!("for {}", self.backends.join(", ")));
        }
        parts.join(", ")
    }
}

/// How much of a row is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// All of it.
    Enough,
    /// No licence.
    Less,
    /// Nor what was converted.
    Little,
}

/// The models, within so many columns; where there is little room licences and conversions are left out.
pub(crate) fn models(rows: &[Row], columns: usize) -> String {
    let fits = |text: &String| text.lines().all(|line| line.chars().count() <= columns);
    let roomy = [Room::Enough, Room::Less].into_iter().map(|room| table(rows, room).render(0)).find(fits);
    roomy.unwrap_or_else(|| table(rows, Room::Little).render_within(0, columns))
}

fn table(rows: &[Row], room: Room) -> Table {
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Right, Align::Left, Align::Left]);
    let licence = |text: &str| if room == Room::Enough { text.to_owned() } else { String::new() };
    table.row(["MODEL", "VARIANT", "SIZE", &licence("LICENCE"), "STATE"]);
    for row in rows {
        table.row([
            row.model.clone(),
            row.variant.clone(),
            row.bytes.map_or_else(|| "?".to_owned(), size),
            licence(row.licence.as_deref().unwrap_or("unknown")),
            row.state(room),
        ]);
    }
    table
}

/// What was made of files outside the store: a line for each of those, with what all that was made of it takes.
pub(crate) fn conversions<'a>(made: impl IntoIterator<Item = (&'a str, u64)>) -> Table {
    let mut sums: IndexMap<&str, (usize, u64)> = IndexMap::new();
    for (from, bytes) in made {
        let (files, sum) = sums.entry(from).or_default();
        *files += 1;
        *sum = sum.saturating_add(bytes);
    }
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Right]);
    for (from, (files, bytes)) in sums {
        table.row([from.to_owned(), count(files, "file"), size(bytes)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |model: &str, bytes| Row {
            model: model.to_owned(),
            variant: "q4_k_m".to_owned(),
            bytes,
            licence: Some("Apache-2.0".to_owned()),
            ..Row::default()
        };
        vec![
            Row { here: true, converted_bytes: 98_000_000, ..row("smollm2-135m", Some(98_362_432)) },
            Row { partial_bytes: Some(12_900_000), ..row("qwen2.5-coder-1.5b", Some(1_117_320_768)) },
            Row { backends: vec!["mlx".to_owned()], ..row("gemma4_e2b", None) },
        ]
    }

    #[test]
    fn the_table_says_what_is_here_and_fits_the_terminal() {
        let wide = models(&rows(), 80);
        assert_eq!(
            wide,
            "MODEL               VARIANT      SIZE  LICENCE     STATE\n\
             smollm2-135m        q4_k_m   93.8 MiB  Apache-2.0  here, 93.5 MiB converted\n\
             qwen2.5-coder-1.5b  q4_k_m    1.0 GiB  Apache-2.0  12.3 MiB fetched\n\
             gemma4_e2b          q4_k_m          ?  Apache-2.0  for mlx"
        );
        for columns in [80, 70, 60] {
            let shown = models(&rows(), columns);
            assert!(shown.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{shown}");
            for word in ["smollm2-135m", "qwen2.5-coder-1.5b", "q4_k_m", "93.8 MiB", "here"] {
                assert!(shown.contains(word), "{columns}: {word} is missing in\n{shown}");
            }
        }
    }

    #[test]
    fn what_was_made_of_one_file_is_one_line() {
        let table = conversions([("a.gguf", 1 << 20), ("b.gguf", 1 << 20), ("a.gguf", 3 << 20)]);
        assert_eq!(table.render(0), "a.gguf  2 files  4.0 MiB\nb.gguf   1 file  1.0 MiB");
        let long = format!("/{}/model.gguf", "folder/".repeat(20));
        let shown = conversions([(long.as_str(), 1)]).render_within(2, 60);
        assert!(shown.chars().count() <= 60 && shown.contains("model.gguf"), "{shown}");
    }
}
