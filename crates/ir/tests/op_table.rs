//! `docs/ops.md` is the catalogue, and stays it: `PTERON_BLESS=1` writes the page anew.
#![cfg(not(miri))]

use pteron_ir::text::op_table;
use std::path::Path;

#[test]
fn the_page_of_ops_is_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md");
    let table = op_table();
    if std::env::var_os("PTERON_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &table).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    let differ = page.lines().zip(table.lines()).find(|(page, table)| page != table);
    assert!(page == table, "docs/ops.md is old, run with PTERON_BLESS=1; the first difference: {differ:?}");
}
