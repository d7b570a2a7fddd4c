//! Objects as other languages use them: listeners that refuse and fail, disposal in mid-answer, two threads on one object.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron_bindings::{
    AnswerStream, Audio, Cancel, Chat, ChatOptions, DType, Embedder, Event, FinishReason, GenerateOptions,
    Heard, Keeper, LiveSound, Message, Model, Module, OpenOptions, PieceListener, ProgressListener,
    PteronError, SoundListener, Tensor, TranscribeOptions, Transcriber, Value, requirements,
};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tempfile::TempDir;

fn text(path: std::path::PathBuf) -> String {
    path.display().to_string()
}

fn one_thread() -> Option<OpenOptions> {
    Some(OpenOptions { threads: Some(1), ..OpenOptions::default() })
}

fn model() -> (TempDir, Arc<Model>) {
    let folder = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::talking(folder.path()).unwrap());
    let model = Model::open(path, one_thread(), None, None).unwrap();
    (folder, model)
}

/// A model whose answers last long enough to be interrupted.
fn slow() -> (TempDir, Arc<Model>) {
    let folder = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::talking(folder.path()).unwrap());
    let options =
        OpenOptions { backend: Some("reference".to_owned()), context: Some(1024), ..OpenOptions::default() };
    let model = Model::open(path, Some(options), None, None).unwrap();
    (folder, model)
}

fn brief() -> GenerateOptions {
    GenerateOptions { max_tokens: Some(8), temperature: Some(0.0), ..GenerateOptions::default() }
}

/// An answer that ends only when somebody ends it, or the context does.
fn endless() -> Option<ChatOptions> {
    let answering =
        GenerateOptions { ignore_end: true, temperature: Some(0.0), ..GenerateOptions::default() };
    Some(ChatOptions { answering: Some(answering), ..ChatOptions::default() })
}

/// A listener that is a function.
struct Listens<F>(F);

impl<F: Fn(String) -> Result<bool, PteronError> + Send + Sync> PieceListener for Listens<F> {
    fn piece(&self, text: String) -> Result<bool, PteronError> {
        (self.0)(text)
    }
}

fn listens(
    hear: impl Fn(String) -> Result<bool, PteronError> + Send + Sync + 'static,
) -> Option<Arc<dyn PieceListener>> {
    Some(Arc::new(Listens(hear)))
}

fn failure() -> PteronError {
    PteronError::Listener { reason: "a mistake of its own".to_owned() }
}

struct Watches(fn(Event) -> Result<bool, PteronError>);

impl ProgressListener for Watches {
    fn progress(&self, event: Event) -> Result<bool, PteronError> {
        (self.0)(event)
    }
}

/// Runs a future on this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn all_of(stream: &AnswerStream) -> Result<String, PteronError> {
    let mut whole = String::new();
    while let Some(piece) = wait(stream.next())? {
        whole += &piece;
    }
    Ok(whole)
}

#[test]
fn opening_tells_what_happens_and_ends_when_it_is_refused_or_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::talking(folder.path()).unwrap());
    let open = |listener: fn(Event) -> Result<bool, PteronError>| {
        Model::open(path.clone(), one_thread(), Some(Arc::new(Watches(listener))), None).map(drop)
    };
    assert_eq!(open(|event| Ok(event == Event::Loading)), Ok(()));
    assert_eq!(open(|_| Ok(false)), Err(PteronError::Cancelled));
    assert_eq!(open(|_| Err(failure())), Err(failure()));
    let cancel = Cancel::new();
    cancel.cancel();
    let cancelled = Model::open(path.clone(), None, None, Some(cancel)).map(drop);
    assert_eq!(cancelled, Err(PteronError::Cancelled));
    let needs = requirements(path, None).unwrap();
    assert_eq!(needs.total, needs.weights + needs.state + needs.run);
}

#[test]
fn what_cannot_be_opened_is_told_by_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = pteron::tiny::talking(folder.path()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let broken = folder.path().join("broken.pte");
    std::fs::write(&broken, &whole[..whole.len() / 2]).unwrap();
    let open = |path: String, options| Model::open(path, options, None, None).map(drop).unwrap_err();
    assert!(matches!(open(text(broken), None), PteronError::Damaged { .. }));
    assert!(matches!(open(text(folder.path().join("nothing.pte")), None), PteronError::NotFound { .. }));
    let limited = Some(OpenOptions { memory_limit: Some(1000), ..OpenOptions::default() });
    let error = open(text(path), limited);
    assert!(
        matches!(error, PteronError::NotEnoughMemory { needed, limit: 1000, .. } if needed > 1000),
        "{error}"
    );
}

#[test]
fn chats_go_back_fork_and_are_kept() {
    let (folder, model) = model();
    let options = ChatOptions {
        system: Some("Be brief.".to_owned()),
        answering: Some(brief()),
        ..ChatOptions::default()
    };
    let chat = model.chat(Some(options)).unwrap();
    chat.send("Hello".to_owned(), None, None).unwrap();
    let answer = chat.send("Why?".to_owned(), None, None).unwrap();
    chat.rewind(1).unwrap();
    assert_eq!(chat.send("Why?".to_owned(), None, None).unwrap().tokens, answer.tokens);
    let fork = chat.fork().unwrap();
    fork.rewind(0).unwrap();
    assert_eq!((chat.turns().unwrap(), fork.turns().unwrap()), (2, 0));
    let file = text(folder.path().join("a.chat"));
    chat.save(file.clone()).unwrap();
    let restored = model.chat(None).unwrap();
    restored.restore(file).unwrap();
    assert_eq!(restored.history().unwrap(), chat.history().unwrap());
    assert_eq!(restored.undo().unwrap().as_deref(), Some("Why?"));
    let state = chat.cache_state().unwrap();
    assert!(state.position > 0 && Some(state.position) <= state.capacity);
}

#[test]
fn a_listener_that_fails_or_refuses_ends_the_answer_and_leaves_the_chat_whole() {
    let (_folder, model) = model();
    let chat = model.chat(endless()).unwrap();
    assert_eq!(chat.send("Hello".to_owned(), None, listens(|_| Err(failure()))), Err(failure()));
    assert_eq!(chat.turns(), Ok(1));
    let answer = chat.send("Why?".to_owned(), None, listens(|_| Ok(false))).unwrap();
    assert_eq!(answer.finish_reason, FinishReason::Cancelled);
    assert_eq!(chat.turns(), Ok(2));
}

#[test]
fn a_second_call_on_a_chat_is_told_that_it_is_busy() {
    let (_folder, model) = slow();
    let chat = model.chat(endless()).unwrap();
    let busy = PteronError::Busy { what: "chat".to_owned() };
    let stream = chat.stream("Hello".to_owned(), None).unwrap();
    assert_eq!(chat.send("Why?".to_owned(), None, None), Err(busy.clone()));
    assert_eq!(chat.history(), Err(busy.clone()));
    stream.stop();
    all_of(&stream).unwrap();
    assert_eq!(stream.answer().unwrap().unwrap().finish_reason, FinishReason::Cancelled);
    // A listener is such a second call too.
    let (again, told) = (chat.clone(), Arc::new(Mutex::new(None)));
    let heard = told.clone();
    let listener = listens(move |_| {
        *heard.lock().unwrap() = again.history().err();
        Ok(false)
    });
    chat.send("Why?".to_owned(), None, listener).unwrap();
    assert_eq!(*told.lock().unwrap(), Some(busy));
}

#[test]
fn two_chats_at_once_answer_as_each_alone() {
    let (_folder, model) = model();
    let questions = ["Hello", "Why is the sky blue?"];
    let chat =
        || model.chat(Some(ChatOptions { answering: Some(brief()), ..ChatOptions::default() })).unwrap();
    let chats = [chat(), chat()];
    let streams = [0, 1].map(|at| chats[at].stream(questions[at].to_owned(), None).unwrap());
    let together = streams.each_ref().map(|stream| all_of(stream).unwrap());
    let alone = questions.map(|question| chat().send(question.to_owned(), None, None).unwrap().text);
    assert_eq!(together, alone);
}

#[test]
fn disposal_in_mid_answer_cancels_and_waits() {
    let (_folder, model) = slow();
    let disposed = PteronError::Disposed { what: "chat".to_owned() };
    let chat = model.chat(endless()).unwrap();
    let stream = chat.stream("Count to a hundred.".to_owned(), None).unwrap();
    assert!(stream.wait_next().unwrap().is_some());
    chat.dispose();
    assert_eq!(chat.send("Hello".to_owned(), None, None), Err(disposed.clone()));
    assert_eq!(all_of(&stream).map(drop), Ok(()));
    assert_eq!(stream.answer().unwrap().unwrap().finish_reason, FinishReason::Cancelled);
    chat.dispose();

    // On a thread that calls a listener.
    let chat = model.chat(endless()).unwrap();
    let (begun, begins) = mpsc::channel();
    let asking = chat.clone();
    let asked = thread::spawn(move || {
        let listener = listens(move |_| {
            let _ = begun.send(());
            Ok(true)
        });
        asking.send("Count to a hundred.".to_owned(), None, listener)
    });
    begins.recv().unwrap();
    chat.dispose();
    assert_eq!(asked.join().unwrap().unwrap().finish_reason, FinishReason::Cancelled);
    assert_eq!(chat.history(), Err(disposed.clone()));

    // By the listener itself.
    let chat = model.chat(endless()).unwrap();
    let own = chat.clone();
    let listener = listens(move |_| {
        own.dispose();
        Ok(true)
    });
    let answer = chat.send("Count to a hundred.".to_owned(), None, listener).unwrap();
    assert_eq!(answer.finish_reason, FinishReason::Cancelled);
    assert_eq!(chat.history(), Err(disposed));
}

#[test]
fn a_model_takes_what_was_made_of_it_along() {
    let (_folder, model) = slow();
    let (chat, generation) = (model.chat(endless()).unwrap(), model.generation(None).unwrap());
    let stream = chat.stream("Count to a hundred.".to_owned(), None).unwrap();
    model.dispose();
    all_of(&stream).unwrap();
    let of = |what: &str| PteronError::Disposed { what: what.to_owned() };
    assert_eq!(chat.fork().map(drop), Err(of("chat")));
    assert_eq!(generation.generate(vec![], None).map(drop), Err(of("generation")));
    assert_eq!(model.chat(None).map(drop), Err(of("model")));
    assert_eq!(model.name(), Err(of("model")));
}

#[test]
fn a_stream_that_nobody_holds_gives_its_chat_back() {
    let (_folder, model) = slow();
    let chat = model.chat(endless()).unwrap();
    drop(chat.stream("Count to a hundred.".to_owned(), None).unwrap());
    let free = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        chat.turns().is_ok()
    });
    assert!(free);
}

#[test]
fn schemas_and_tools() {
    let (_folder, model) = model();
    let function = r#"{"name": "weather", "parameters": {"type": "object"}}"#;
    let tools = format!(r#"[{{"type": "function", "function": {function}}}]"#);
    let options = ChatOptions { tools: Some(tools), answering: Some(brief()), ..ChatOptions::default() };
    let chat = model.chat(Some(options)).unwrap();
    let call = r#"{"const": {"name": "weather", "arguments": {"city": "Oslo"}}}"#;
    let forced = GenerateOptions { schema: Some(call.to_owned()), ..GenerateOptions::default() };
    let answer = chat.send("How warm is it?".to_owned(), Some(forced), None).unwrap();
    assert_eq!(answer.tool_calls.len(), 1, "{}", answer.text);
    assert_eq!(answer.tool_calls[0].name, "weather");
    chat.send_result("14 degrees".to_owned(), None).unwrap();
    let roles: Vec<String> = chat.history().unwrap().into_iter().map(|message| message.role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let broken = GenerateOptions { schema: Some("{".to_owned()), ..GenerateOptions::default() };
    let error = chat.send("Hello".to_owned(), Some(broken), None).unwrap_err();
    assert!(matches!(error, PteronError::Invalid { .. }), "{error}");
}

#[test]
fn generations_keep_nothing() {
    let (_folder, model) = model();
    let generation = model.generation(Some(GenerateOptions { answers: Some(2), ..brief() })).unwrap();
    let asked = || vec![Message { role: "user".to_owned(), content: "Hello".to_owned(), tool_calls: None }];
    let answers = generation.generate(asked(), None).unwrap();
    assert_eq!(answers.len(), 2);
    let stream = generation.stream(asked(), None).unwrap();
    assert_eq!(all_of(&stream).unwrap(), answers[0].text);
    assert_eq!(generation.respond(asked(), None, None).unwrap().tokens, answers[0].tokens);
    let nobody = Message { role: "nobody".to_owned(), content: "Hello".to_owned(), tool_calls: None };
    assert!(matches!(generation.respond(vec![nobody], None, None), Err(PteronError::Invalid { .. })));
}

/// Counts those that are still held.
struct Kept(#[expect(dead_code, reason = "it is held, not looked at")] Arc<Vec<i64>>);

impl Keeper for Kept {
    fn what(&self) -> String {
        "three numbers".to_owned()
    }
}

#[test]
fn modules_run_on_memory_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::silent(folder.path()).unwrap());
    let module = Module::load(path, vec![], one_thread()).unwrap();
    assert_eq!(module.method_names(), ["forward"]);
    assert_eq!(module.method_metadata("forward".to_owned()).unwrap().inputs.len(), 2);
    let numbers = Arc::new(vec![5i64, 6, 7]);
    let held: Weak<Vec<i64>> = Arc::downgrade(&numbers);
    let over = |shape: Vec<u64>, address: u64, bytes: u64, keeper: Arc<Vec<i64>>| {
        Tensor::over(DType::I64, shape, address, bytes, Arc::new(Kept(keeper)))
    };
    let address = numbers.as_ptr() as usize as u64;
    for (shape, address, bytes) in
        [(vec![1, 4], address, 24), (vec![1, 3], 0, 24), (vec![1, 2], address + 1, 16)]
    {
        let error = over(shape, address, bytes, numbers.clone()).unwrap_err();
        assert!(matches!(error, PteronError::Invalid { .. }), "{error}");
    }
    let tensor = over(vec![1, 3], address, 24, numbers).unwrap();
    assert_eq!(tensor.address(), address);
    let inputs = |tensor: Arc<Tensor>| vec![Value::Tensor { tensor }, Value::Int { value: 0 }];
    let outputs = module.forward(inputs(tensor.clone())).unwrap();
    let copied = Tensor::new(DType::I64, vec![1, 3], tensor.bytes()).unwrap();
    module.reset().unwrap();
    let again = module.execute("forward".to_owned(), inputs(copied)).unwrap();
    let [Value::Tensor { tensor: one }] = outputs.as_slice() else { panic!("{outputs:?}") };
    let [Value::Tensor { tensor: other }] = again.as_slice() else { panic!("{again:?}") };
    assert_eq!((one.shape(), one.bytes()), (other.shape(), other.bytes()));
    assert!(held.upgrade().is_some());
    drop((tensor, outputs));
    assert!(held.upgrade().is_none(), "what was lent is let go");
    assert!(matches!(module.forward(vec![]), Err(PteronError::Invalid { .. })));
    assert!(matches!(module.execute("backward".to_owned(), vec![]), Err(PteronError::Unsupported { .. })));
    module.dispose();
    assert!(matches!(module.reset(), Err(PteronError::Disposed { .. })));
}

#[test]
fn encoders_give_vectors_until_they_are_disposed_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::embedding(folder.path()).unwrap());
    let options = OpenOptions { home: Some(text(folder.path().join("home"))), ..OpenOptions::default() };
    let embedder = Embedder::open(path, Some(options), None, None).unwrap();
    let vectors = embedder.embed(vec!["a".to_owned(), "a".to_owned()]).unwrap();
    assert_eq!(vectors[0], vectors[1]);
    assert_eq!(embedder.dimensions(), Ok(32));
    embedder.dispose();
    assert_eq!(embedder.dimensions(), Err(PteronError::Disposed { what: "embedder".to_owned() }));
}

struct Hears(AtomicUsize, AtomicBool);

impl SoundListener for Hears {
    fn heard(&self, _: Heard) -> Result<bool, PteronError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(self.1.load(Ordering::SeqCst))
    }
}

fn transcriber() -> (TempDir, Arc<Transcriber>) {
    let folder = tempfile::tempdir().unwrap();
    let path = text(pteron::tiny::hearing(folder.path()).unwrap());
    let options = OpenOptions { home: Some(text(folder.path().join("home"))), ..OpenOptions::default() };
    let transcriber = Transcriber::open(path, Some(options), None, None).unwrap();
    (folder, transcriber)
}

#[test]
fn transcribers_write_down_what_is_said_until_a_listener_refuses() {
    let (_folder, transcriber) = transcriber();
    let sound = || Audio::Samples { samples: vec![0.1; 16_000], rate: 16_000 };
    let hears = Arc::new(Hears(AtomicUsize::new(0), AtomicBool::new(true)));
    let transcript = transcriber.transcribe(sound(), None, Some(hears.clone())).unwrap();
    assert_eq!((transcript.text.as_str(), transcript.duration), ("A", 1.0));
    assert!(hears.0.load(Ordering::SeqCst) > 1);
    hears.1.store(false, Ordering::SeqCst);
    assert_eq!(transcriber.transcribe(sound(), None, Some(hears)).map(drop), Err(PteronError::Cancelled));
    let words = TranscribeOptions { words: true, ..TranscribeOptions::default() };
    let refused = transcriber.transcribe(sound(), Some(words), None).map(drop);
    assert!(matches!(refused, Err(PteronError::Unsupported { .. })));
}

#[test]
fn live_sound_is_heard_while_it_is_said_until_it_ends_or_nobody_wants_it() {
    let (_folder, transcriber) = transcriber();
    let live = |sound: &Arc<LiveSound>| Audio::Live { sound: sound.clone() };
    let sound = LiveSound::new(16_000).unwrap();
    let said = sound.clone();
    let microphone = thread::spawn(move || {
        for _ in 0..10 {
            said.push(vec![0.1; 1600]).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        said.finish();
    });
    let transcript = transcriber.transcribe(live(&sound), None, None).unwrap();
    microphone.join().unwrap();
    assert_eq!((transcript.text.as_str(), transcript.duration), ("A", 1.0));
    assert!(matches!(sound.push(vec![0.1]), Err(PteronError::Invalid { .. })), "it is finished");
    assert!(matches!(LiveSound::new(0), Err(PteronError::Invalid { .. })));

    // Nobody hears it: ten minutes wait, and no more.
    let unheard = LiveSound::new(8000).unwrap();
    let minute = || vec![0.0; 60 * 8000];
    assert!((0..10).all(|_| unheard.push(minute()).is_ok()));
    assert!(matches!(unheard.push(vec![0.0]), Err(PteronError::Invalid { .. })));

    // Nothing is said, and whoever waits for it is told to stop.
    let silent = LiveSound::new(16_000).unwrap();
    let ends: [fn(&Transcriber); 2] = [Transcriber::stop, Transcriber::dispose];
    for end in ends {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| transcriber.transcribe(live(&silent), None, None).map(drop));
            while !waiting.is_finished() {
                thread::sleep(Duration::from_millis(20));
                end(&transcriber);
            }
            assert_eq!(waiting.join().unwrap(), Err(PteronError::Cancelled));
        });
    }
}

#[test]
fn memory_does_not_grow_with_chats_that_come_and_go() {
    let (_folder, model) = model();
    let turn = |chat: Arc<Chat>| {
        chat.send("Hello".to_owned(), Some(brief()), None).unwrap();
        chat.dispose();
    };
    turn(model.chat(None).unwrap());
    let before = model.memory().unwrap().cache;
    (0..50).for_each(|_| turn(model.chat(None).unwrap()));
    assert_eq!(model.memory().unwrap().cache, before);
}

/// A tiny model that sees, from a folder as it is published.
fn seeing() -> (TempDir, Arc<Model>) {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data");
    let home = tempfile::tempdir().unwrap();
    let options = OpenOptions { home: Some(text(home.path().to_owned())), ..one_thread().unwrap() };
    let model = Model::open(text(data.join("gemma3")), Some(options), None, None).unwrap();
    (home, model)
}

#[test]
fn images_are_shown_with_the_next_question() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data/images");
    let image = |name: &str| std::fs::read(data.join(name)).unwrap();
    let (_home, model) = seeing();
    assert!(model.sees().unwrap());
    let said = |shown: Option<&str>| {
        let chat = model.chat(None).unwrap();
        shown.into_iter().for_each(|name| chat.show(image(name)).unwrap());
        chat.send("What is that?".to_owned(), Some(brief()), None).unwrap()
    };
    let (none, noise, wide) = (said(None), said(Some("noise.png")), said(Some("wide.png")));
    assert!(noise.stats.prompt_tokens > none.stats.prompt_tokens);
    assert_ne!(noise.tokens, wide.tokens);
    let chat = model.chat(None).unwrap();
    assert!(matches!(chat.show(vec![1, 2, 3]), Err(PteronError::Invalid { .. })));
    let (_folder, blind) = self::model();
    assert!(!blind.sees().unwrap());
    let refused = blind.chat(None).unwrap().show(image("noise.png")).unwrap_err();
    assert!(matches!(refused, PteronError::Unsupported { .. }), "{refused:?}");
}
