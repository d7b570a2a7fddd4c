//! Opening models: what is not there, what is none, what is too large, what is cancelled; each error by its kind.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron::{Cancel, Error, Event, Lack, Model, OpenOptions, requirements};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}

/// A checkpoint of the repository, unpacked.
fn checkpoint(folder: &Path) -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/checkpoints.zip");
    let mut archive = zip::ZipArchive::new(std::fs::File::open(packed).unwrap()).unwrap();
    let place = folder.join("checkpoint");
    std::fs::create_dir(&place).unwrap();
    for at in 0..archive.len() {
        let mut member = archive.by_index(at).unwrap();
        let name = member.name().unwrap().into_owned();
        if let Some(name) = name.strip_prefix("smollm2-bf16/checkpoint/") {
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).unwrap();
            std::fs::write(place.join(name), bytes).unwrap();
        }
    }
    place
}

fn lack(error: &Error) -> Option<&Lack> {
    error.reason()?.cause()?.downcast_ref()
}

#[test]
fn what_is_not_there_is_not_found() {
    let (_folder, home) = folder();
    let options = || OpenOptions::default().home(&home);
    for source in ["no-such-model", "no/such/file.pte", "missing.gguf"] {
        for error in
            [Model::open(source, options()).unwrap_err(), requirements(source, &options()).unwrap_err()]
        {
            assert!(matches!(error, Error::NotFound(_)), "{source}: {error:?}");
            assert!(error.to_string().contains(source), "{error}");
        }
    }
    let near = Model::open("smollm2-135n", options()).unwrap_err();
    assert!(near.to_string().contains("smollm2-135m"), "{near}");
    let homeless = Model::open("smollm2-135m", OpenOptions::default()).unwrap_err();
    assert!(matches!(homeless, Error::Invalid(_)) && lack(&homeless) == Some(&Lack::Home), "{homeless:?}");
}

#[test]
fn what_is_no_model_or_not_whole_is_told_apart() {
    let (_folder, home) = folder();
    let program = std::fs::read(pteron::tiny::talking(&home).unwrap()).unwrap();
    let open = |bytes: &[u8]| {
        let path = home.join("model.pte");
        std::fs::write(&path, bytes).unwrap();
        Model::open(path.as_path(), OpenOptions::default()).unwrap_err()
    };
    assert!(matches!(open(b""), Error::Damaged(_)));
    assert!(matches!(open(b"Dear reader,\n"), Error::Unsupported(_)));
    for length in [64, 4096, program.len() / 2, program.len() - 1] {
        let error = open(&program[..length]);
        assert!(matches!(error, Error::Damaged(_)), "{length}: {error:?}");
    }
    let mut spoiled = program.clone();
    spoiled[8..64].fill(0xff);
    assert!(matches!(open(&spoiled), Error::Damaged(_)));
    let broken = checkpoint(&home);
    std::fs::remove_file(broken.join("config.json")).unwrap();
    let error = Model::open(broken.as_path(), OpenOptions::default().home(&home)).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_) | Error::NotFound(_)), "{error:?}");
}

#[test]
fn too_little_memory_is_told_before_anything_is_loaded() {
    let (_folder, home) = folder();
    let path = pteron::tiny::talking(&home).unwrap();
    let needs = requirements(path.as_path(), &OpenOptions::default()).unwrap();
    assert!(needs.weights > 0 && needs.state > 0 && needs.run > 0 && !needs.is_estimate, "{needs:?}");
    let events = Arc::new(Mutex::new(0));
    let told = events.clone();
    let options = OpenOptions::default()
        .memory_limit(needs.total() - 1)
        .progress(move |_: Event<'_>| *told.lock().unwrap() += 1);
    let error = Model::open(path.as_path(), options).unwrap_err();
    let Error::NotEnoughMemory { needed, limit, .. } = error else { panic!("{error:?}") };
    assert_eq!((needed, limit), (needs.total(), needs.total() - 1));
    assert_eq!(*events.lock().unwrap(), 0);
    let twice = OpenOptions::default().memory_limit(4 * needs.total());
    Model::open(path.as_path(), twice).unwrap();
    let shorter = requirements(path.as_path(), &OpenOptions::default().context(64)).unwrap();
    assert_eq!(needs.state - shorter.state, (512 - 64) * needs.state_per_token);
}

#[test]
fn a_checkpoint_is_converted_once_and_a_conversion_can_be_cancelled() {
    let (_folder, home) = folder();
    let source = checkpoint(&home);
    let options = || OpenOptions::default().home(home.join("home"));
    let estimate = requirements(source.as_path(), &options()).unwrap();
    assert!(estimate.is_estimate && estimate.weights > 0);

    let cancel = Cancel::default();
    let own = cancel.clone();
    let stop = move |event: Event<'_>| {
        if let Event::Converting { .. } = event {
            own.cancel();
        }
    };
    let cancelled = Model::open(source.as_path(), options().progress(stop).cancel(&cancel));
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    assert!(requirements(source.as_path(), &options()).unwrap().is_estimate, "nothing was kept of it");

    let words = Arc::new(Mutex::new(Vec::new()));
    let open = || {
        let heard = words.clone();
        let listen = move |event: Event<'_>| {
            if let Event::Says(said) = event {
                heard.lock().unwrap().push(said.to_owned());
            }
        };
        Model::open(source.as_path(), options().progress(listen)).unwrap()
    };
    open();
    assert!(words.lock().unwrap()[0].starts_with("converting "), "{words:?}");
    open();
    assert_eq!(words.lock().unwrap().len(), 1, "{words:?}");
    assert!(!requirements(source.as_path(), &options()).unwrap().is_estimate);

    // What was kept is damaged: it is made again.
    let kept = find(&home.join("home/converted"), "model.pte");
    let whole = std::fs::read(&kept).unwrap();
    std::fs::write(&kept, &whole[..whole.len() / 2]).unwrap();
    open();
    assert!(words.lock().unwrap()[1].contains("is damaged"), "{words:?}");
    assert!(std::fs::read(&kept).unwrap() == whole);
}

/// The file of that name somewhere below a folder.
fn find(folder: &Path, name: &str) -> PathBuf {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false if path.file_name().unwrap() == name => return path,
                false => {}
            }
        }
    }
    panic!("there is no {name}")
}

/// A registry of one model whose bytes lie in a file.
fn registered(home: &Path, file: &Path) {
    let table = format!(
        "[models.own]\nlicence = 'MIT'\n[[models.own.variants]]\nname = 'v'\nkind = 'pte'\nfile = 'm.pte'\n\
         sources = ['path:{}']\n",
        file.display()
    );
    std::fs::write(home.join("models.toml"), table).unwrap();
}

#[test]
fn a_name_is_fetched_with_progress_and_can_be_cancelled() {
    let (_folder, home) = folder();
    let program = pteron::tiny::talking(&home).unwrap();
    registered(&home, &program);
    let options = || OpenOptions::default().home(&home);
    let before = requirements("own", &options()).unwrap();
    assert!(before.is_estimate);

    let cancel = Cancel::default();
    let own = cancel.clone();
    let stop = move |event: Event<'_>| {
        if let Event::Fetching { .. } = event {
            own.cancel();
        }
    };
    let cancelled = Model::open("own", options().progress(stop).cancel(&cancel));
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");

    let most = Arc::new(Mutex::new(0));
    let seen = most.clone();
    let listen = move |event: Event<'_>| {
        if let Event::Fetching { bytes, .. } = event {
            *seen.lock().unwrap() = bytes;
        }
    };
    let model = Model::open("own", options().progress(listen)).unwrap();
    assert_eq!(*most.lock().unwrap(), std::fs::metadata(&program).unwrap().len());
    assert_eq!(model.name(), "own");
    assert!(!requirements("own", &options()).unwrap().is_estimate);
}

#[test]
fn what_cannot_be_had_here_is_unsupported() {
    let (_folder, home) = folder();
    let path = pteron::tiny::talking(&home).unwrap();
    for backend in ["quantum", "cpu:7"] {
        let error = Model::open(path.as_path(), OpenOptions::default().backend(backend)).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    }
    let long = Model::open(path.as_path(), OpenOptions::default().context(1025)).unwrap();
    let error = long.chat(Default::default()).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
}
