//! Repositories of the Hugging Face hub as models: whoever names one needs no entry of a data file.

use super::{Export, FileKind, Model, Variant};
use crate::Source;
use indexmap::IndexMap;

/// Endings of single files that are models, with what they are.
const FILES: [(&str, FileKind); 4] =
    [(".gguf", FileKind::Gguf), (".nemo", FileKind::Nemo), (".pt", FileKind::Pt), (".pte", FileKind::Pte)];

impl Model {
    /// The model that a text names by its place on the hub: `ORG/REPOSITORY`, or, with `hf:` before it, also a revision and a
    /// file, `hf:ORG/REPOSITORY@REVISION/FILE`.
    pub fn of_repository(text: &str) -> Option<Model> {
        let (place, is_marked) = match text.strip_prefix("hf:") {
            Some(place) => (place, true),
            None => (text, false),
        };
        let source: Source = format!("hf:{place}").parse().ok()?;
        let Source::Hub(hub) = &source else { return None };
        let kind_of = |file: &str| {
            let file = file.to_lowercase();
            FILES.iter().find(|(ending, _)| file.ends_with(ending)).map(|(_, kind)| *kind)
        };
        // What is not marked may be a path that leads nowhere, which is to be said and not looked for elsewhere.
        if !is_marked && (hub.file.is_some() || kind_of(place).is_some()) {
            return None;
        }
        let kind = match &hub.file {
            Some(file) => kind_of(file)?,
            None => FileKind::Folder,
        };
        // The store has a folder for each model and one in it for each form, in lower case, as the hub tells names apart.
        let folder_of = |text: &str| text.to_lowercase().replace('/', "--");
        let file = hub.file.as_deref();
        let name = format!("hf--{}", folder_of(&hub.repository));
        let form = [hub.revision(), file.unwrap_or_default()].join("/");
        let variant = Variant {
            model: name.clone(),
            name: folder_of(form.trim_end_matches('/')),
            backends: Vec::new(),
            kind,
            file: file.map(|file| file.rsplit('/').next().unwrap_or(file).to_owned()),
            size: None,
            sha256: None,
            files: IndexMap::new(),
            export: Export::default(),
            sources: vec![source.clone()],
        };
        super::tables::folder_name(&variant.name).ok()?;
        Some(Model {
            name,
            description: format!("{} of the Hugging Face hub", hub.repository),
            licence: "as its publisher says".to_owned(),
            licence_url: Some(format!("https://huggingface.co/{}", hub.repository)),
            aliases: vec![text.to_owned()],
            variants: vec![variant],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_and_their_files_are_models() {
        let cases = [
            ("Qwen/Qwen3-0.6B", "hf--qwen--qwen3-0.6b", "main", FileKind::Folder, None),
            ("hf:Qwen/Qwen3-0.6B", "hf--qwen--qwen3-0.6b", "main", FileKind::Folder, None),
            ("hf:a/b@v1/x/M-Q4.gguf", "hf--a--b", "v1--x--m-q4.gguf", FileKind::Gguf, Some("M-Q4.gguf")),
            ("hf:a/b/model.pte", "hf--a--b", "main--model.pte", FileKind::Pte, Some("model.pte")),
        ];
        for (text, name, form, kind, file) in cases {
            let model = Model::of_repository(text).unwrap();
            let variant = &model.variants[0];
            assert_eq!(
                (model.name.as_str(), variant.name.as_str(), variant.kind),
                (name, form, kind),
                "{text}"
            );
            assert_eq!((variant.file.as_deref(), variant.model.as_str()), (file, name));
        }
    }

    #[test]
    fn paths_names_and_nonsense_are_none() {
        for text in [
            "smollm2",
            "",
            "/",
            "a/",
            "/a",
            "./a",
            "../a",
            "a/b/c",
            "a/model.pte",
            "a/b.gguf",
            "hf:a",
            "hf:a/b/readme.md",
            "hf:a/../b",
            "C:\\a/b",
            "a/b c",
            "-a/b",
        ] {
            assert!(Model::of_repository(text).is_none(), "{text}");
        }
    }
}
