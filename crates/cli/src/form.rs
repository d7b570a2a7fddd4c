//! What to do with a file of another kind than a command reads; what it is, the library tells.

use crate::failure::Failure;
use pteron::parts::form::WrongForm;
use std::path::{Path, PathBuf};

pub(crate) use pteron::parts::form::{Form, Wanted};

/// Refuses a file of another kind than a command reads; what it is otherwise. What cannot be looked at is left to its reader.
pub(crate) fn check(path: &Path, wanted: Wanted) -> Result<Form, Failure> {
    pteron::parts::form::check(path, wanted).map_err(|wrong| refused(&wrong))
}

/// What is wrong with a file of another kind than a command reads, and what would help; `None` where it may be right, or
/// cannot be looked at.
pub(crate) fn mismatch(path: &Path, wanted: Wanted) -> Option<(String, Option<String>)> {
    let wrong = pteron::parts::form::check(path, wanted).err()?;
    Some((wrong.problem(), advice(wrong.form, path)))
}

/// The same as a failure.
pub(crate) fn refused(wrong: &WrongForm) -> Failure {
    let failure = Failure::new(wrong);
    match advice(wrong.form, &wrong.path) {
        Some(advice) => failure.hint(advice),
        None => failure,
    }
}

/// What to do with such a file instead.
fn advice(form: Form, path: &Path) -> Option<String> {
    let shown = path.display();
    match form {
        Form::Empty => Some("compare the file's size with that of its source, and copy it again".to_owned()),
        Form::Folder => {
            Some(format!("`pteron export {shown} -o model.pte` makes a program of a checkpoint"))
        }
        Form::Gguf => Some(format!(
            "`pteron run --model {shown}` talks to it; `pteron export {shown} -o model.pte` makes a program of it"
        )),
        Form::Safetensors | Form::Configuration | Form::Tokenizer => {
            let folder = folder_of(path);
            Some(match folder.join("config.json").is_file() {
                true => format!("name the folder that it lies in: {}", folder.display()),
                false => "a checkpoint is a folder that has a config.json beside its weights; name that"
                    .to_owned(),
            })
        }
        Form::Archive => {
            Some(format!("`pteron compile {shown} -o model.pte` makes a program of a .pt2"))
        }
        Form::Saved => Some(format!(
            "`pteron export {shown} -o model.pte` makes a program of a Whisper that OpenAI publishes so; of others, take \
             the model's safetensors or GGUF form"
        )),
        Form::Tar => Some(format!(
            "`pteron export {shown} -o model.pte` makes a program of a Parakeet that NVIDIA publishes so (.nemo)"
        )),
        Form::Pickle => Some(
            "pickles can run code when they are read, so that they are not: take the model's safetensors or GGUF form"
                .to_owned(),
        ),
        Form::Onnx => {
            Some("take the checkpoint that it was made from, or save the model with torch.export".to_owned())
        }
        Form::Array => Some(format!("`pteron exec PROGRAM --input {shown}` runs a program on it")),
        Form::WebPage => Some("a download gave a page in place of the file: fetch it again".to_owned()),
        Form::LfsPointer => Some("`git lfs pull` in its folder fetches the file itself".to_owned()),
        Form::Data => {
            Some(format!("name its program; `--data {shown}` gives it to commands that take external data"))
        }
        Form::Program | Form::Bundle => Some(format!("`pteron inspect {shown}` shows what is in it")),
        Form::Text | Form::Unknown => None,
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_alone_lead_to_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("model.safetensors");
        std::fs::write(&weights, b"\x02\0\0\0\0\0\0\0{}").unwrap();
        let advice = |wanted| mismatch(&weights, wanted).unwrap().1.unwrap();
        assert!(advice(Wanted::Model).contains("has a config.json"));
        std::fs::write(folder.path().join("config.json"), b"{}").unwrap();
        let named = format!("name the folder that it lies in: {}", folder.path().display());
        assert_eq!(advice(Wanted::Model), named);
        assert_eq!(mismatch(folder.path(), Wanted::Model), None);
        assert!(advice_for_program(folder.path()).contains("pteron export"));
    }

    fn advice_for_program(path: &Path) -> String {
        mismatch(path, Wanted::Program).unwrap().1.unwrap()
    }
}
