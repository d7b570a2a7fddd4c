//! Image files that are named on the command line or in a chat.

use crate::failure::Failure;
use pteron::Error;
use pteron_llm::{Eyes, LlmError, SeeError};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The bytes of an image file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = Eyes::MOST_BYTES as u64;
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::in_file(path, error))?;
    match bytes.len() as u64 > most {
        true => Err(Failure::in_file(path, format!("it has more than {} MiB", most >> 20))),
        false => Ok(bytes),
    }
}

/// What went wrong, with the name of the image where one of these is at fault.
pub(crate) fn named<P: AsRef<Path>>(error: Error, paths: &[P]) -> Failure {
    let cause = error.reason().and_then(|reason| reason.cause()?.downcast_ref());
    if let Some(LlmError::See(SeeError::Image { number, problem })) = cause
        && let Some(path) = paths.get(number.saturating_sub(1))
    {
        return Failure::in_file(path.as_ref(), problem);
    }
    Failure::from(error)
}

/// What is written behind `/image`: a file, in quotation marks where its name has spaces and more follows it, and what is asked
/// about it.
pub(crate) fn split(text: &str) -> (&str, &str) {
    if let Some((file, rest)) = text.strip_prefix('"').and_then(|text| text.split_once('"')) {
        return (file, rest.trim());
    }
    match Path::new(text).exists() {
        true => (text, ""),
        false => text.split_once(char::is_whitespace).map_or((text, ""), |(file, rest)| (file, rest.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_file_may_have_a_question_behind_it() {
        let cases = [
            ("a.png", ("a.png", "")),
            ("a.png  What is that? ", ("a.png", "What is that?")),
            ("\"my cat.png\" Whose?", ("my cat.png", "Whose?")),
            ("\"my cat.png\"", ("my cat.png", "")),
            ("\"open", ("\"open", "")),
            ("", ("", "")),
        ];
        for (text, meant) in cases {
            assert_eq!(split(text), meant, "{text}");
        }
    }
}
