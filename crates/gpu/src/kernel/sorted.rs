//! Rows that pick matrices by number (experts), sorted by the matrix that they pick: a table of how many rows each matrix has, then
//! the numbers of the rows, matrix by matrix. Tiled products go over it, so that a matrix is read for all of its rows at once.

use super::copy::fault;
use super::source::{Source, THREADS, param, signed};
use pteron_tensor::DType;

/// The kernel that makes the table: a group a matrix, each thread a stretch of the rows. Parameters: rows, first pick, matrices,
/// first word of the table, the number of the dispatch.
pub(super) fn text(picks: DType) -> String {
    let mut source = Source::new();
    source.writes("out");
    source.reads_indices("picks", picks);
    source.writes_parts("faults");
    source.push(&format!("var<workgroup> counts: array<vec2<u32>, {THREADS}>;"));
    source.main(&format!(
        "if group >= {matrices} {{ return; }}\n\
         let each = ({rows} + {last}u) / {THREADS}u;\n\
         let begin = min(thread * each, {rows});\nlet end = min(begin + each, {rows});\n\
         var count = vec2<u32>();\n\
         for (var row = begin; row < end; row++) {{\n\
         let given = index_picks({first} + row);\n\
         if given < 0i || given >= {size} {{ {fault} continue; }}\n\
         count += vec2<u32>(select(0u, 1u, u32(given) == group), select(0u, 1u, u32(given) < group));\n}}\n\
         counts[thread] = count;\nworkgroupBarrier();\n\
         var all = 0u;\nvar place = 0u;\n\
         for (var t = 0u; t < {THREADS}u; t++) {{\n\
         let other = counts[t];\nall += other.x;\nplace += other.y + select(0u, other.x, t < thread);\n}}\n\
         if thread == 0u {{ out[{table} + group] = all; }}\n\
         for (var row = begin; row < end; row++) {{\n\
         if index_picks({first} + row) == i32(group) {{ out[{table} + {matrices} + place] = row; place += 1u; }}\n}}",
        rows = param(0),
        first = param(1),
        matrices = param(2),
        size = signed(2),
        table = param(3),
        fault = fault(&param(4), &param(2)),
        last = THREADS - 1,
    ));
    source.finish()
}

/// Where a tile's matrix and rows are, as text: over one matrix and all rows, or over a stack of matrices and rows that are sorted.
pub(super) struct Place {
    /// Statements that give `down`, the number of the tile among those of its matrix, and `rows` of that.
    pub(super) find: String,
    /// What stands before the number of a packed row.
    pub(super) lead: String,
    /// The row of activations, and the row of the result, of a row of the matrix.
    pub(super) left: fn(&str) -> String,
    pub(super) result: fn(&str) -> String,
}

/// Where a table's parameters begin in those of a tiled product: its first word, matrices, how many rows in turn have one row of
/// activations.
const TABLE: u32 = 12;

impl Place {
    /// Of tiles of so many rows; `down` is the number of a group's tile among all. A table is the next binding.
    pub(super) fn new(source: &mut Source, is_sorted: bool, tile: u32, down: &str) -> Place {
        if !is_sorted {
            let find = format!("let down = {down};\nlet rows = {};\n", param(0));
            return Place { find, lead: String::new(), left: str::to_owned, result: str::to_owned };
        }
        source.reads_words("table");
        // Groups that no tile is left for are done.
        let find = format!(
            "var matrix = 0u;\nvar down = {down};\nvar rows = 0u;\nvar sorted = {table} + {matrices};\n\
             for (; matrix < {matrices}; matrix++) {{\n\
             rows = table[{table} + matrix];\nlet tiles = (rows + {last}u) / {tile}u;\n\
             if down < tiles {{ break; }}\ndown -= tiles;\nsorted += rows;\n}}\n\
             if matrix == {matrices} {{ return; }}\n",
            table = param(TABLE),
            matrices = param(TABLE + 1),
            last = tile - 1,
        );
        Place {
            find,
            lead: format!("matrix * {} + ", param(1)),
            left: |row| format!("table[sorted + {row}] / {}", param(TABLE + 2)),
            result: |row| format!("table[sorted + {row}]"),
        }
    }
}
