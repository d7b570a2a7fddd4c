//! Exported programs compiled: whatever an archive says, there is a program or an error.
//!
//! What begins as an archive is read as one; anything else is taken for the JSON of a program and wrapped in an
//! archive without weights, since random bytes seldom make a zip.

use pteron_format::{Limits, WriteOptions};
use pteron_import::compile::{Compiled, Options, Source, compile};
use pteron_import::pt2::{self, Package};
use pteron_tensor::Bytes;
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn wrapped(json: &[u8]) -> Option<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let members: [(&str, &[u8]); 3] =
        [("p/archive_format", b"pt2"), ("p/archive_version", b"0"), ("p/models/model.json", json)];
    for (name, content) in members {
        writer.start_file(name, stored).ok()?;
        writer.write_all(content).ok()?;
    }
    Some(writer.finish().ok()?.into_inner())
}

/// One input.
pub fn run(data: &[u8]) {
    let archive = if Package::recognises(data) { Some(data.to_vec()) } else { wrapped(data) };
    let Some(archive) = archive else { return };
    let Ok(package) = pt2::read(Bytes::copy_of(&archive), &Limits::untrusted()) else { return };
    for program in package.programs() {
        if let Ok(Compiled { writer, .. }) =
            compile(&[Source { name: "forward", program }], &Options::default())
        {
            let _ = writer.write(&WriteOptions::default(), &mut std::io::sink());
        }
    }
}
