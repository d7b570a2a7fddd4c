//! What a file is, told by how it begins: the one place where readers learn whether they were given what they read, and
//! what to say where they were not.
//!
//! A path flows in, a [`Form`] or a refusal in words flows out. Only the first few kilobytes are looked at, so that a file
//! of any size is told at once; whether the rest of it is sound is for its reader to say.

use crate::error::{Error, Reason};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// As much of a file as is looked at.
const START: u64 = 4096;

/// How a GGUF file begins.
const GGUF: &[u8] = b"GGUF";
/// How a zip archive begins, and where the name of its first file stands.
const ZIP: &[u8] = b"PK\x03\x04";
const ZIP_NAME: usize = 30;
/// How the header of a tar archive goes on.
const TAR: &[u8] = b"ustar";
const TAR_AT: usize = 257;
/// What `torch.save` puts first into its archive.
const PICKLED: &str = "data.pkl";
/// How what Git leaves in place of a large file begins.
const POINTER: &str = "version https://git-lfs.github.com/spec/";

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A folder.
    Folder,
    /// No bytes at all.
    Empty,
    /// A `.pte`.
    Program,
    /// A `.ptd`.
    Data,
    /// A `.bpte`.
    Bundle,
    /// A GGUF file.
    Gguf,
    /// Weights without their configuration.
    Safetensors,
    /// A zip, such as a `.pt2`.
    Archive,
    /// What `torch.save` writes: a zip with a pickle in it.
    Saved,
    /// A pickle alone, as it wrote long ago.
    Pickle,
    /// A tar, as NVIDIA's NeMo writes.
    Tar,
    /// An ONNX model.
    Onnx,
    /// A tokenizer's own file.
    Tokenizer,
    /// A `config.json`, or the index of a checkpoint's files.
    Configuration,
    /// A `.npy`.
    Array,
    /// What a server gave in place of the file.
    WebPage,
    /// What Git leaves in place of a large file.
    LfsPointer,
    /// Any other text.
    Text,
    /// None of these, or nothing that can be looked at; a reader says best what is wrong with it.
    Unknown,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// What can be talked to.
    Model,
    /// What can be run or looked into as it is.
    Program,
    /// What a program can be made of.
    Checkpoint,
    /// Whatever there is something to tell about.
    Known,
}

impl Wanted {
    fn words(self) -> &'static str {
        match self {
            Wanted::Model => "a program (.pte), a GGUF file, a checkpoint folder, or the name of a model",
            Wanted::Program => "a program (.pte, .bpte) or its data (.ptd)",
            Wanted::Checkpoint => "a checkpoint folder, a GGUF file, or the name of a model",
            Wanted::Known => {
                "a .pte, .ptd, .bpte, .pt2 or GGUF file, a checkpoint folder, or the name of a model"
            }
        }
    }

    fn of(self, path: &Path, form: Form) -> Result<Form, WrongForm> {
        match self.takes(form) {
            true => Ok(form),
            false => Err(WrongForm { path: path.to_owned(), form, wanted: self }),
        }
    }

    fn takes(self, form: Form) -> bool {
        match form {
            Form::Unknown => true,
            Form::Program | Form::Bundle => self != Wanted::Checkpoint,
            Form::Data => matches!(self, Wanted::Program | Wanted::Known),
            Form::Archive => self == Wanted::Known,
            Form::Folder | Form::Gguf => self != Wanted::Program,
            Form::Saved | Form::Tar => matches!(self, Wanted::Checkpoint | Wanted::Model),
            _ => false,
        }
    }
}

impl Form {
    /// What lies at a path.
    pub fn of(path: &Path) -> io::Result<Form> {
        let about = std::fs::metadata(path)?;
        if about.is_dir() {
            return Ok(Form::Folder);
        }
        // To open a pipe would wait for somebody who writes to it.
        if !about.is_file() {
            return Ok(Form::Unknown);
        }
        let mut start = Vec::new();
        File::open(path)?.take(START).read_to_end(&mut start)?;
        Ok(Form::of_start(&start))
    }

    fn of_start(start: &[u8]) -> Form {
        let text = readable(start);
        match start {
            [] => Form::Empty,
            _ if start.starts_with(GGUF) => Form::Gguf,
            [_, _, _, _, b'E', b'T', b'0'..=b'9', b'0'..=b'9', ..] => Form::Program,
            [_, _, _, _, b'F', b'T', b'0'..=b'9', b'0'..=b'9', ..] => Form::Data,
            [_, _, _, _, b'B', b'P', b'0'..=b'9', b'0'..=b'9', ..] => Form::Bundle,
            _ if start.starts_with(ZIP) => {
                if first_name(start).ends_with(PICKLED) {
                    Form::Saved
                } else {
                    Form::Archive
                }
            }
            // The length of a header, and the header: JSON.
            [_, _, _, _, _, 0, 0, 0, b'{', ..] => Form::Safetensors,
            [0x80, 2..=5, ..] => Form::Pickle,
            _ if start.starts_with(b"\x93NUMPY") => Form::Array,
            // A vocabulary's first piece, as SentencePiece writes it.
            [0x0a, _, 0x0a, 5, b'<', b'u', b'n', b'k', b'>', ..] => Form::Tokenizer,
            // The version of the format, then who wrote it.
            [8, 1..=31, 0x12, length, name @ ..]
                if name.get(..usize::from(*length)).is_some_and(|name| name.is_ascii()) =>
            {
                Form::Onnx
            }
            _ if start.get(TAR_AT..).is_some_and(|rest| rest.starts_with(TAR)) => Form::Tar,
            _ => text.map_or(Form::Unknown, Form::of_text),
        }
    }

    fn of_text(text: &str) -> Form {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let begins =
            |start: &str| text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
        let has = |keys: &[&str]| keys.iter().any(|key| text.contains(&format!("\"{key}\"")));
        match () {
            () if begins(POINTER) => Form::LfsPointer,
            () if begins("<!doctype html") || begins("<html") => Form::WebPage,
            () if begins("{") && has(&["added_tokens", "pre_tokenizer", "default_vocab_size"]) => {
                Form::Tokenizer
            }
            () if begins("{") && has(&["model_type", "architectures", "weight_map"]) => Form::Configuration,
            () => Form::Text,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Form::Folder => "a folder",
            Form::Empty => "the file is empty",
            Form::Program => "a program (.pte)",
            Form::Data => "external data (.ptd)",
            Form::Bundle => "a bundled program (.bpte)",
            Form::Gguf => "a GGUF file",
            Form::Safetensors => "a file of weights without their configuration (safetensors)",
            Form::Archive => "a zip archive, as torch.export.save writes (.pt2)",
            Form::Saved | Form::Pickle => "a pickled PyTorch checkpoint",
            Form::Tar => "a tar archive, as NVIDIA publishes (.nemo)",
            Form::Onnx => "an ONNX model",
            Form::Tokenizer => "a tokenizer",
            Form::Configuration => "the configuration of a checkpoint",
            Form::Array => "a NumPy array",
            Form::WebPage => "a web page",
            Form::LfsPointer => "a Git LFS pointer, not the file that it stands for",
            Form::Text => "a text",
            Form::Unknown => "a file of no kind that is known",
        }
    }
}

/// What lies at a path, if it is what is wanted. What cannot be looked at is left to its reader.
pub fn check(path: &Path, wanted: Wanted) -> Result<Form, WrongForm> {
    wanted.of(path, Form::of(path).unwrap_or(Form::Unknown))
}

/// The same of a program that is to be run, which may be in memory.
pub(crate) fn check_program(path: &Path, bytes: Option<&[u8]>) -> crate::Result<()> {
    let form = match bytes {
        Some(bytes) => {
            let start = bytes.get(..START as usize).unwrap_or(bytes);
            Wanted::Program.of(path, Form::of_start(start))?
        }
        None => check(path, Wanted::Program)?,
    };
    if form != Form::Data {
        return Ok(());
    }
    let message = format!("{}: external data, not a program", path.display());
    Err(Error::Unsupported(Reason::new(message)))
}

/// A file of another kind than is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongForm {
    /// The file.
    pub path: PathBuf,
    /// What it is.
    pub form: Form,
    /// What would do.
    pub wanted: Wanted,
}

impl WrongForm {
    /// What is wrong, without the file's name.
    pub fn problem(&self) -> String {
        match self.form {
            Form::Empty => Form::Empty.words().to_owned(),
            form => format!("this is {}; wanted is {}", form.words(), self.wanted.words()),
        }
    }

    /// Whether it is what is left of something that would have done.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.form, Form::Empty | Form::LfsPointer | Form::WebPage)
    }
}

impl fmt::Display for WrongForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem())
    }
}

impl std::error::Error for WrongForm {}

/// The name of the first file in a zip archive, as far as it was read.
fn first_name(start: &[u8]) -> String {
    let length = start.get(26..28).map_or(0, |bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
    let name = start.get(ZIP_NAME..(ZIP_NAME + length).min(start.len()));
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}

/// The start of a file as text, if it is one; a character that was cut at the end does not count against it.
fn readable(start: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(start.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let is_text = |c: char| !c.is_control() || c.is_ascii_whitespace();
    text.chars().all(is_text).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_what_they_begin_with() {
        let mut pickled = b"PK\x03\x04".to_vec();
        pickled.resize(26, 0);
        pickled.extend([16, 0, 0, 0]);
        pickled.extend(b"archive/data.pkl");
        let cases: [(&[u8], Form); 22] = [
            (b"", Form::Empty),
            (b"GGUF\x03\0\0\0", Form::Gguf),
            (b"\x30\0\0\0ET12", Form::Program),
            (b"\x30\0\0\0FT01", Form::Data),
            (b"\x30\0\0\0BP08", Form::Bundle),
            (b"\x40\x10\0\0\0\0\0\0{\"a\":{}", Form::Safetensors),
            (b"PK\x03\x04", Form::Archive),
            (&pickled, Form::Saved),
            (b"\x80\x02}q\0.", Form::Pickle),
            (b"\x93NUMPY\x01\0", Form::Array),
            (b"\x0a\x0e\x0a\x05<unk>\x15\0\0", Form::Tokenizer),
            (b"\x08\x08\x12\x07pytorch\x1a\x052.1.0", Form::Onnx),
            (b"{\"version\":\"1.0\",\"added_tokens\":[]", Form::Tokenizer),
            (b"{\n  \"architectures\": [\"LlamaForCausalLM\"]", Form::Configuration),
            (b"<!DOCTYPE html>\n<html>", Form::WebPage),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:", Form::LfsPointer),
            (b"Dear reader,\n", Form::Text),
            (b"HEY ET!", Form::Text),
            (b"{}", Form::Text),
            // The first half of a character that goes on.
            (b"caf\xc3", Form::Text),
            (b"caf\xc3(", Form::Unknown),
            (b"\0\x01\x02\x03", Form::Unknown),
        ];
        for (start, form) in cases {
            assert_eq!(Form::of_start(start), form, "{start:?}");
        }
    }
}
