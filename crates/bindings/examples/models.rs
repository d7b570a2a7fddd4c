//! Writes the small random models that scenarios in other languages are run with.
//!
//! `cargo run --release -p pteron-bindings --example models -- FOLDER`

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: models FOLDER")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let talking = std::fs::read(pteron::tiny::talking(folder)?)?;
    std::fs::write(folder.join("broken.pte"), &talking[..talking.len() / 2])?;
    std::fs::write(folder.join("text.txt"), "Dear reader,\n")?;
    pteron::tiny::silent(folder)?;
    pteron::tiny::embedding(folder)?;
    pteron::tiny::hearing(folder)?;
    Ok(())
}
