//! The Hugging Face hub as an origin: files of a repository, or the checkpoint in it.
//!
//! The hub states the SHA-256 of large files, in the list of a repository and in the headers of a file. Where the
//! registry knows a hash too, other bytes are refused before they are fetched.

use super::http::{Client, REDIRECTS, download, refused, text};
use super::incoming::{Resume, Sink};
use super::{Network, Origin, Wanted};
use crate::{Error, Hub, Listener, Result, Sha256};
use serde::Deserialize;
use std::io::Read;
use std::time::Duration;
use ureq::http::header::LOCATION;

/// The list of a repository's files is never longer.
const MAX_LIST: u64 = 16 << 20;

/// Files that belong to a checkpoint, by their ends.
const WANTED: [&str; 6] = [".safetensors", ".json", ".jinja", ".model", ".tiktoken", ".txt"];

/// Files of a repository that an error lists.
const SHOWN: usize = 12;

/// Where templates beside the default one lie.
const TEMPLATES: &str = "additional_chat_templates";

/// A repository.
pub(super) struct HubOrigin<'a> {
    hub: &'a Hub,
    endpoint: String,
    client: Client,
    /// The commit that a list was made of, so that all files are of one version.
    commit: Option<String>,
}

/// The hub's answer about a repository, as far as it is read here.
#[derive(Deserialize)]
struct Repository {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Stored>,
}

#[derive(Deserialize)]
struct Stored {
    sha256: String,
    size: u64,
}

impl<'a> HubOrigin<'a> {
    pub(super) fn new(hub: &'a Hub, network: &Network) -> HubOrigin<'a> {
        let endpoint = network.hub.trim_end_matches('/').to_owned();
        HubOrigin { hub, endpoint, client: Client::new(network, network.hub_token.as_deref()), commit: None }
    }

    fn revision(&self) -> &str {
        self.commit.as_deref().unwrap_or_else(|| self.hub.revision())
    }

    fn address(&self, file: &str) -> String {
        let Hub { repository, .. } = self.hub;
        format!("{}/{repository}/resolve/{}/{}", self.endpoint, self.revision(), escape(file))
    }

    /// Size and hash that the hub states of a file, where it does: those of large files. It answers for them itself, and
    /// may first send to where a repository has moved.
    fn stated(&self, address: &str) -> Result<(Option<u64>, Option<Sha256>)> {
        let mut place = address.to_owned();
        for _ in 0..REDIRECTS {
            let answer = self.client.head(&place)?;
            let size = text(&answer, "x-linked-size").and_then(|size| size.parse().ok());
            let hash = text(&answer, "x-linked-etag").and_then(|tag| tag.trim_matches('"').parse().ok());
            let moved = text(&answer, LOCATION).and_then(|place| self.inside(place));
            match (answer.status().as_u16(), moved) {
                (400.., _) => return Err(refused(address, &answer)),
                (300.., Some(moved)) if size.is_none() && hash.is_none() => place = moved,
                _ => return Ok((size, hash)),
            }
        }
        Err(Error::Answer {
            address: address.to_owned(),
            problem: "it is sent from place to place".to_owned(),
        })
    }

    /// Whether the hub answers in time; what it says is somebody else's matter.
    pub(super) fn check_answers(&self, patience: Duration) -> Result<()> {
        let address = match &self.hub.file {
            Some(file) => self.address(file),
            None => self.list_address(),
        };
        self.client.head_within(&address, patience).map(drop)
    }

    fn list_address(&self) -> String {
        let Hub { repository, .. } = self.hub;
        format!("{}/api/models/{repository}/revision/{}?blobs=true", self.endpoint, self.hub.revision())
    }

    /// A place on the hub's own host, as an address.
    fn inside(&self, place: &str) -> Option<String> {
        let (scheme, rest) = self.endpoint.split_once("://")?;
        let host = format!("{scheme}://{}", rest.split('/').next()?);
        match place.strip_prefix(&host).unwrap_or(place) {
            path if path.starts_with('/') && !path.starts_with("//") => Some(format!("{host}{path}")),
            _ => None,
        }
    }

    /// Refuses a file that the hub itself says is another one.
    fn check_stated(&self, wanted: &Wanted, address: &str) -> Result<()> {
        let (size, hash) = self.stated(address)?;
        let (file, from) = (wanted.path.clone(), address.to_owned());
        if let (Some(wanted), Some(found)) = (wanted.size, size)
            && wanted != found
        {
            return Err(Error::WrongSize { file, from, wanted, found });
        }
        if let (Some(wanted), Some(found)) = (wanted.sha256, hash)
            && wanted != found
        {
            return Err(Error::WrongHash { file, from, wanted, found });
        }
        Ok(())
    }

    /// The file of a source that names one.
    fn named_file(&self) -> Result<&str> {
        let from = || format!("hf:{}", self.hub.repository);
        let problem = "is a repository; name the file in it";
        self.hub.file.as_deref().ok_or_else(|| Error::Unfit { from: from(), problem })
    }
}

impl Origin for HubOrigin<'_> {
    fn list(&mut self, _: Listener<'_>) -> Result<Vec<Wanted>> {
        let address = self.list_address();
        let answer = self.client.get(&address, &[])?;
        if answer.status().as_u16() != 200 {
            return Err(refused(&address, &answer));
        }
        let wrong = |problem: String| Error::Answer { address: address.clone(), problem };
        let mut bytes = Vec::new();
        let mut body = answer.into_body().into_reader().take(MAX_LIST);
        body.read_to_end(&mut bytes).map_err(|error| Error::Network {
            address: address.clone(),
            problem: format!("the connection broke: {error}"),
        })?;
        let repository: Repository =
            serde_json::from_slice(&bytes).map_err(|error| wrong(format!("not a list of files: {error}")))?;
        crate::source::plain_word(&repository.sha).map_err(wrong)?;
        self.commit = Some(repository.sha);
        let names = || repository.siblings.iter().map(|file| file.rfilename.as_str());
        if !names().any(|name| name.ends_with(".safetensors")) {
            return Err(wrong(without_weights(&self.hub.repository, names())));
        }
        let files = repository.siblings.into_iter().filter(|file| is_of_checkpoint(&file.rfilename));
        files
            .map(|Sibling { rfilename: path, size, lfs }| {
                let sha256: Option<Sha256> = lfs.as_ref().map(|stored| stored.sha256.parse()).transpose()?;
                Ok(Wanted { path, size: lfs.map(|stored| stored.size).or(size), sha256 })
            })
            .collect()
    }

    fn complete(&mut self, wanted: &Wanted) -> Result<Wanted> {
        let (size, sha256) = self.stated(&self.address(self.named_file()?))?;
        Ok(Wanted { path: wanted.path.clone(), size: wanted.size.or(size), sha256 })
    }

    fn pour(&mut self, wanted: &Wanted, resume: &Resume, sink: &mut Sink<'_>) -> Result<()> {
        let listed = self.commit.is_some();
        let address = self.address(if listed { &wanted.path } else { self.named_file()? });
        if !listed && resume.at == 0 {
            self.check_stated(wanted, &address)?;
        }
        download(&self.client, &address, resume, sink)
    }
}

/// What to do about a repository that has no weights which are read as a folder.
fn without_weights<'n>(repository: &str, names: impl Iterator<Item = &'n str>) -> String {
    let is_model = |name: &&str| [".gguf", ".nemo", ".pte"].iter().any(|end| name.ends_with(end));
    let mut models = names.filter(is_model);
    let shown: Vec<String> =
        models.by_ref().take(SHOWN).map(|name| format!("hf:{repository}/{}", name.escape_debug())).collect();
    match (shown.is_empty(), models.count()) {
        (true, _) => "it has no .safetensors, and no file that is read in their place".to_owned(),
        (false, 0) => format!("it has no .safetensors; name one of its files: {}", shown.join(", ")),
        (false, more) => {
            format!("it has no .safetensors; name one of its files: {} or {more} others", shown.join(", "))
        }
    }
}

/// Whether a file is one that a checkpoint is read from.
fn is_of_checkpoint(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    // Some repositories hold the same weights twice.
    (folder.is_empty() || folder == TEMPLATES || is_module(folder))
        && WANTED.iter().any(|end| name.ends_with(end))
        && !name.starts_with("consolidated")
}

/// Whether a folder is one that sentence-transformers keeps for what follows an encoder, such as `1_Pooling`.
fn is_module(folder: &str) -> bool {
    let number = folder.split_once('_').map_or("", |(number, _)| number);
    !folder.contains('/') && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// A path inside an address: what has a meaning there is escaped.
fn escape(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => {
                text.push(byte as char)
            }
            _ => text += &format!("%{byte:02X}"),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_its_weights_and_what_reads_them() {
        let files = [
            ("config.json", true),
            ("model-00001-of-00002.safetensors", true),
            ("tokenizer.model", true),
            ("additional_chat_templates/tools.jinja", true),
            ("1_Pooling/config.json", true),
            ("a/1_Pooling/config.json", false),
            ("README.md", false),
            ("pytorch_model.bin", false),
            ("onnx/config.json", false),
            ("consolidated.safetensors", false),
            (".gitattributes", false),
        ];
        for (path, wanted) in files {
            assert_eq!(is_of_checkpoint(path), wanted, "{path}");
        }
        assert_eq!(escape("a b/ü?.json"), "a%20b/%C3%BC%3F.json");
    }
}
