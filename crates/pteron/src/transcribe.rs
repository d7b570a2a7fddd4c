//! What is said in sound: a speech model by path or name, sound in, text with times out.

mod open;

use crate::error::{Error, Lack, Reason, Result};
use crate::located::{self, ExportAs, Trouble};
use crate::options::{OpenOptions, Source, setters};
use crate::progress::Cancel;
use pteron_llm::tokenizer::Tokenizer;
use pteron_runtime::Precision;
use pteron_speech::SpeechError;
use pteron_speech::parakeet::{self, ParakeetProgram};
use pteron_speech::realtime::{self, RealtimeProgram};
use pteron_speech::segment::{Event as Step, Segment, Word};
use pteron_speech::sound::{RATE, RawFormat, SampleKind, Samples, Sound, SoundError};
use pteron_speech::voice::{Border, Silero, Spoken, TimeMap, VoiceOptions};
use pteron_speech::voxtral::prompt::Wanted;
use pteron_speech::voxtral::{self, VoxtralProgram};
use pteron_speech::whisper::features::{Ceiling, Features};
use pteron_speech::whisper::transcribe::RESET_ABOVE;
use pteron_speech::whisper::{self, Language, Settings, Task, WhisperProgram};
use std::cell::RefCell;
use std::fmt;
use std::io::{Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// How matrices of a speech model are packed unless somebody says otherwise.
pub const SPEECH_SCHEME: &str = "8w";

/// The name of the network that hears voices.
#[cfg(feature = "registry")]
const VOICES: &str = "silero-vad";
/// Larger than its file.
#[cfg(feature = "registry")]
const LARGEST_VOICES: u64 = 16 << 20;

/// Sound that is looked through for its loudest before it is transcribed; of longer ones the rest is taken as it comes.
const LOOKED_THROUGH: u64 = 30 * 60 * RATE as u64;

/// How sound becomes text.
///
/// ```
/// let options = pteron::TranscribeOptions::default().language("de").translate(true).words(true);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TranscribeOptions {
    language: Option<String>,
    translate: bool,
    prompt: Option<String>,
    forgets: bool,
    temperatures: Vec<f32>,
    beams: Option<usize>,
    words: bool,
    ask: Option<String>,
    cancel: Cancel,
}

setters! { TranscribeOptions:
    /// The language that is spoken, such as `en` or `de`; without, the model tells by the first 30 seconds.
    language(code: impl Into<String>) language = Some(code.into()), "\"en\"";
    /// Whether it is translated into English.
    translate(translate: bool) translate = translate, "true";
    /// Names and words that may be said, or what was said before.
    prompt(text: impl Into<String>) prompt = Some(text.into()), "\"Pteron, llama\"";
    /// Whether every window begins anew, without the text before it.
    forget(forget: bool) forgets = forget, "true";
    /// Temperatures that are tried until a text will do; without, 0 to 1 in steps of 0.2.
    temperatures(temperatures: Vec<f32>) temperatures = temperatures, "vec![0.0]";
    /// Beginnings of a text that Whisper keeps beside each other until it knows which goes on best; without, 3. With 1 it takes
    /// the likeliest word each time, which is faster and errs a little more. More than 32 are not kept.
    beams(beams: usize) beams = Some(beams), "1";
    /// Whether the time of every word is found.
    words(words: bool) words = words, "true";
    /// A question about the sound, which is answered in place of a transcript, by models that answer.
    ask(question: impl Into<String>) ask = Some(question.into()), "\"Who speaks?\"";
    /// Ends the transcript, within a window, when it is cancelled.
    cancel(cancel: &Cancel) cancel = cancel.clone(), "&pteron::Cancel::default()";
}

impl TranscribeOptions {
    fn settings(&self) -> Settings {
        let own = Settings::default();
        Settings {
            task: if self.translate { Task::Translate } else { Task::Transcribe },
            language: self.language.clone().map_or(Language::Detected, Language::Known),
            prompt: self.prompt.clone(),
            conditioned: !self.forgets,
            temperatures: match self.temperatures.is_empty() {
                true => own.temperatures,
                false => self.temperatures.clone(),
            },
            beams: self.beams.unwrap_or(own.beams),
            words: self.words,
            ..own
        }
    }
}

/// Sound to be transcribed.
///
/// ```
/// use pteron::Audio;
///
/// let file = Audio::File("interview.mp3".into());
/// let silence = Audio::Samples { samples: vec![0.0; 44_100], rate: 44_100 };
/// ```
#[non_exhaustive]
pub enum Audio {
    /// A file: WAV, FLAC, MP3, OGG Vorbis, Opus, M4A and more, told by its content.
    File(PathBuf),
    /// The content of such a file.
    Encoded(Arc<[u8]>),
    /// Samples of one channel, each from -1 to 1.
    Samples {
        /// The samples.
        samples: Vec<f32>,
        /// How many make a second.
        rate: u32,
    },
    /// Samples without a header, which come once, as a microphone gives them. Where silence is left out, what was said is
    /// written down at every pause.
    Stream(Box<dyn Read + Send>, RawFormat),
}

impl fmt::Debug for Audio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Audio::File(path) => f.debug_tuple("File").field(path).finish(),
            Audio::Encoded(bytes) => write!(f, "Encoded({} bytes)", bytes.len()),
            Audio::Samples { samples, rate } => write!(f, "Samples({} at {rate})", samples.len()),
            Audio::Stream(_, format) => f.debug_tuple("Stream").field(format).finish(),
        }
    }
}

impl From<&Path> for Audio {
    fn from(path: &Path) -> Audio {
        Audio::File(path.to_owned())
    }
}

/// What is found on the way through a sound, in its order.
///
/// ```
/// # use pteron::Heard;
/// let show = |heard: Heard<'_>| match heard {
///     Heard::Segment(segment) => println!("{:.1} s:{}", segment.start, segment.text),
///     Heard::Until { seconds, .. } => println!("{seconds:.0} s"),
///     _ => {}
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Heard<'e> {
    /// It begins; so many seconds long, where its file says so.
    Begins(Option<f64>),
    /// The language is known.
    Language(&'e str),
    /// A stretch of what was said.
    Segment(&'e Segment),
    /// All has been heard up to here.
    Until {
        /// Seconds of the sound.
        seconds: f64,
    },
}

/// What was said.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let model = pteron::tiny::hearing(folder.path())?;
/// # let options = pteron::OpenOptions::default().home(folder.path());
/// use pteron::{Audio, TranscribeOptions, Transcriber};
///
/// let mut transcriber = Transcriber::open(model.as_path(), options)?;
/// let sound = Audio::Samples { samples: vec![0.1; 16_000], rate: 16_000 };
/// let transcript = transcriber.transcribe(sound, &TranscribeOptions::default(), |_| {})?;
/// assert_eq!((transcript.text().as_str(), transcript.duration), ("A", 1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Transcript {
    /// The language that is spoken.
    pub language: String,
    /// Stretches with their times.
    pub segments: Vec<Segment>,
    /// Seconds of sound.
    pub duration: f64,
    /// Whether the sound stops in its middle.
    pub is_cut_off: bool,
}

impl Transcript {
    /// All that was said.
    ///
    /// ```
    /// assert_eq!(pteron::Transcript::default().text(), "");
    /// ```
    pub fn text(&self) -> String {
        let whole: String = self.segments.iter().map(|segment| segment.text.as_str()).collect();
        whole.trim().to_owned()
    }
}

/// A speech model that writes down what is said.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let model = pteron::tiny::hearing(folder.path())?;
/// # let source = model.as_path();
/// # let home = folder.path();
/// use pteron::{OpenOptions, Transcriber};
///
/// let transcriber = Transcriber::open(source, OpenOptions::default().home(home))?;
/// assert!(!transcriber.tells_word_times());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transcriber {
    name: String,
    program: Kind,
    tokenizer: Tokenizer,
    voices: Option<Silero>,
}

/// A program by its kind.
enum Kind {
    Whisper(Box<WhisperProgram>),
    Parakeet(Box<ParakeetProgram>),
    Voxtral(Box<VoxtralProgram>),
    Realtime(Box<RealtimeProgram>),
}

impl Transcriber {
    /// Opens a speech model: a program, a Whisper, Parakeet or Voxtral as Hugging Face, OpenAI or NVIDIA publish it
    /// (converted once, in 8 bits, and kept), a folder that ExecuTorch's exporter wrote, or one that the registry knows by its name.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::hearing(folder.path())?;
    /// let options = pteron::OpenOptions::default().home(folder.path());
    /// let transcriber = pteron::Transcriber::open(model.as_path(), options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::open`](crate::Model::open).
    pub fn open(source: impl Into<Source>, options: OpenOptions) -> Result<Transcriber> {
        let source = source.into();
        let runtime = options.runtime_with(Precision::Fast)?;
        let folder = match &source {
            Source::Named(name) => Some(Path::new(name)),
            Source::Path(path) => Some(path.as_path()),
            Source::Usual | Source::Memory { .. } => None,
        };
        if let Some(folder) = folder.filter(|folder| open::has_parts(folder)) {
            options.cancel.check()?;
            return open::parts(folder, &options, &runtime);
        }
        located::opened(&source, ExportAs::SPEECH, &options, &runtime, |found| {
            open::whole(found, &options, &runtime).map_err(Trouble::any)
        })
    }

    /// Leaves silence out from now on: the network that hears voices (1.2 MB) is fetched the first time.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::hearing(folder.path())?;
    /// let options = pteron::OpenOptions::default().home(folder.path());
    /// let mut transcriber = pteron::Transcriber::open(model.as_path(), options.clone())?;
    /// # let cancel = pteron::Cancel::default();
    /// # cancel.cancel();
    /// # let options = options.cancel(&cancel);
    /// if let Err(error) = transcriber.leave_out_silence(&options) {
    ///     println!("silence is heard too: {error}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it cannot be fetched.
    #[cfg(feature = "registry")]
    pub fn leave_out_silence(&mut self, options: &OpenOptions) -> Result<()> {
        let runtime = options.runtime_with(Precision::Fast)?;
        let (path, _) = options.finding(&runtime, |finder| finder.source(VOICES))?;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path);
        let read = file.and_then(|file| file.take(LARGEST_VOICES).read_to_end(&mut bytes));
        read.map_err(|error| Error::storage(&path, error))?;
        self.voices = Some(Silero::read(&bytes).map_err(|error| in_file(&path, error))?);
        Ok(())
    }

    /// Whether the model can tell the times of words.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::hearing(folder.path())?;
    /// # let options = pteron::OpenOptions::default().home(folder.path());
    /// let transcriber = pteron::Transcriber::open(model.as_path(), options)?;
    /// assert!(!transcriber.tells_word_times());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tells_word_times(&self) -> bool {
        match &self.program {
            Kind::Whisper(program) => program.aligns(),
            Kind::Parakeet(_) | Kind::Realtime(_) => true,
            Kind::Voxtral(_) => false,
        }
    }

    /// Writes down what is said in a sound; the listener is told of each stretch as it is found.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let model = pteron::tiny::hearing(folder.path())?;
    /// # let options = pteron::OpenOptions::default().home(folder.path());
    /// use pteron::{Audio, Heard, Transcriber};
    ///
    /// let mut transcriber = Transcriber::open(model.as_path(), options)?;
    /// let sound = Audio::Samples { samples: vec![0.1; 16_000], rate: 16_000 };
    /// transcriber.transcribe(sound, &Default::default(), |heard| {
    ///     if let Heard::Segment(segment) = heard {
    ///         println!("{}", segment.text);
    ///     }
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the sound cannot be read, the model does not know the language, or a run fails.
    pub fn transcribe(
        &mut self,
        audio: impl Into<Audio>,
        options: &TranscribeOptions,
        mut listener: impl FnMut(Heard<'_>),
    ) -> Result<Transcript> {
        self.check(options)?;
        let audio = audio.into();
        let file = if let Audio::File(path) = &audio { Some(path.clone()) } else { None };
        let failed = |error: SpeechError| match (&error, &file) {
            (SpeechError::Sound(_), Some(path)) => in_file(path, error),
            _ => error.into(),
        };
        let mels = match &self.program {
            Kind::Whisper(program) => Some(program.info().mels),
            Kind::Parakeet(_) | Kind::Voxtral(_) | Kind::Realtime(_) => None,
        };
        // What comes as it is said is written down at every pause; a question is about all of it.
        let voice_options = match audio {
            Audio::Stream(..) if options.ask.is_none() => VoiceOptions::live(),
            _ => VoiceOptions::default(),
        };
        let (sound, ceiling) = opened(audio, mels).map_err(failed)?;
        listener(Heard::Begins(sound.seconds()));
        let mut counted = Counted { sound, samples: 0, cancel: &options.cancel };
        // A model that hears sound as it comes was trained with its silences, and would wait for what comes behind them.
        let voices = self.voices.as_mut().filter(|_| !matches!(self.program, Kind::Realtime(_)));
        let mut samples = match voices {
            None => Heeded::All(&mut counted),
            Some(voices) => Heeded::Speech(Spoken::new(&mut counted, voices, voice_options)),
        };
        let map = samples.map();
        let mut transcript = Transcript::default();
        if !matches!(self.program, Kind::Whisper(_))
            && let Some(code) = &options.language
        {
            // Others do not say which language they hear.
            transcript.language.clone_from(code);
            listener(Heard::Language(code));
        }
        let mut settings = options.settings();
        loop {
            let begun = samples.passed() as f64 / f64::from(RATE);
            let times = Times { map: map.as_deref(), begun };
            let mut tell = |step: Step<'_>| match step {
                Step::Language(code, _) if code == transcript.language => {}
                Step::Language(code, _) => {
                    transcript.language = code.to_owned();
                    listener(Heard::Language(code));
                }
                Step::Heard(seconds) => listener(Heard::Until { seconds: times.end(seconds) }),
                Step::Segment(segment) => {
                    let segment = times.of(segment);
                    listener(Heard::Segment(&segment));
                    transcript.segments.push(segment);
                }
            };
            let heard = (samples.as_mut(), ceiling);
            self.program.hear(heard, &self.tokenizer, options, &settings, &mut tell).map_err(failed)?;
            if samples.is_over() || options.cancel.is_cancelled() {
                break;
            }
            settings = following(settings, &transcript);
        }
        options.cancel.check()?;
        transcript.duration = counted.samples as f64 / f64::from(RATE);
        transcript.is_cut_off = counted.sound.is_cut_off();
        Ok(transcript)
    }
}

impl Kind {
    /// Hears a sound, or one stretch of speech, to its end.
    fn hear(
        &mut self,
        (samples, ceiling): (&mut dyn Samples, Ceiling),
        tokenizer: &Tokenizer,
        options: &TranscribeOptions,
        settings: &Settings,
        tell: &mut dyn FnMut(Step<'_>),
    ) -> Result<(), SpeechError> {
        match self {
            Kind::Whisper(program) => {
                let info = program.info().clone();
                let mut features = Features::new(samples, info.mels, ceiling);
                whisper::Transcriber::new(&mut **program, &info, tokenizer, settings.clone())?
                    .run(&mut features, tell)
            }
            Kind::Parakeet(program) => {
                let info = program.info().clone();
                parakeet::Transcriber::new(&mut **program, &info, tokenizer, options.words).run(samples, tell)
            }
            Kind::Realtime(program) => {
                let info = program.info().clone();
                realtime::Transcriber::new(&mut **program, &info, tokenizer, options.words)?
                    .run(samples, tell)
            }
            Kind::Voxtral(program) => {
                let (info, rows) = (program.info().clone(), program.rows());
                let wanted = match &options.ask {
                    Some(question) => Wanted::Answer(question.clone()),
                    None => Wanted::Transcript(options.language.clone()),
                };
                let settings = voxtral::Settings { wanted, rows };
                voxtral::Transcriber::new(&mut **program, &info, tokenizer, settings)?.run(samples, tell)
            }
        }
    }
}

/// What of a sound is heard: all of it, or speech.
enum Heeded<'s, 'c> {
    All(&'s mut Counted<'c>),
    Speech(Spoken<'s>),
}

impl Heeded<'_, '_> {
    fn as_mut(&mut self) -> &mut dyn Samples {
        match self {
            Heeded::All(sound) => *sound,
            Heeded::Speech(spoken) => spoken,
        }
    }

    fn map(&self) -> Option<Rc<RefCell<TimeMap>>> {
        match self {
            Heeded::All(_) => None,
            Heeded::Speech(spoken) => Some(spoken.map()),
        }
    }

    /// Samples of speech that have been heard.
    fn passed(&self) -> u64 {
        match self {
            Heeded::All(_) => 0,
            Heeded::Speech(spoken) => spoken.passed(),
        }
    }

    /// Whether the last stretch has been heard.
    fn is_over(&self) -> bool {
        match self {
            Heeded::All(_) => true,
            Heeded::Speech(spoken) => spoken.is_over(),
        }
    }
}

/// What the next stretch of speech is heard with: the language that is known by now, and what was said before.
fn following(settings: Settings, transcript: &Transcript) -> Settings {
    let language = match transcript.language.as_str() {
        "" => settings.language,
        code => Language::Known(code.to_owned()),
    };
    let is_sure = |segment: &&Segment| segment.temperature <= RESET_ABOVE;
    let before = transcript.segments.last().filter(is_sure).filter(|_| settings.conditioned);
    let prompt = before.map(|segment| segment.text.clone()).or(settings.prompt);
    Settings { language, prompt, ..settings }
}

impl Transcriber {
    /// Whether what is asked for can be had of the model.
    fn check(&self, options: &TranscribeOptions) -> Result<()> {
        if options.words && !self.tells_word_times() {
            return Err(Error::lacks(&self.name, Lack::WordTimes));
        }
        let is_whisper = matches!(self.program, Kind::Whisper(_));
        let problem = if options.ask.is_some() && !matches!(self.program, Kind::Voxtral(_)) {
            "writes down what is said, and answers no questions"
        } else if options.translate && !is_whisper {
            "writes down what is said as it is said, and translates nothing"
        } else if options.prompt.is_some() && !is_whisper {
            "takes no prompt"
        } else {
            return Ok(());
        };
        Err(Error::Unsupported(Reason::new(format_args!("{}: the model {problem}", self.name))))
    }
}

impl fmt::Debug for Transcriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcriber").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Sound from its beginning, and, for models that scale what they hear by it, the loudest of it as far as that can be known.
fn opened(audio: Audio, mels: Option<usize>) -> Result<(Sound, Ceiling), SpeechError> {
    let twice = |sound: &dyn Fn() -> Result<Sound, SoundError>| {
        let Some(mels) = mels else { return Ok((sound()?, Ceiling::of_stream())) };
        let ceiling = Ceiling::of_beginning(&mut sound()?, mels, LOOKED_THROUGH)?;
        Ok((sound()?, ceiling))
    };
    match audio {
        Audio::File(path) => twice(&|| Sound::open(&path)),
        Audio::Encoded(bytes) => twice(&|| Sound::encoded(bytes.clone())),
        Audio::Samples { samples, rate } => {
            let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            let format = RawFormat { kind: SampleKind::F32, rate, channels: 1 };
            twice(&|| Sound::raw(Cursor::new(bytes.clone()), format))
        }
        Audio::Stream(stream, format) => Ok((Sound::raw(stream, format)?, Ceiling::of_stream())),
    }
}

/// An error about a file, with its name.
fn in_file(path: &Path, error: SpeechError) -> Error {
    let message = format!("{}: {error}", path.display());
    let is_missing =
        matches!(&error, SpeechError::Sound(SoundError::Io(io)) if io.kind() == ErrorKind::NotFound);
    let kind = if is_missing { Error::NotFound } else { Error::Damaged };
    kind(Reason::new(message).by(error))
}

/// Sound that is counted on its way, and ends where nobody wants to hear more of it.
struct Counted<'c> {
    sound: Sound,
    samples: u64,
    cancel: &'c Cancel,
}

impl Samples for Counted<'_> {
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError> {
        if self.cancel.is_cancelled() {
            return Ok(false);
        }
        let before = out.len();
        let goes_on = self.sound.read(out)?;
        self.samples += (out.len() - before) as u64;
        Ok(goes_on)
    }
}

/// Times in the sound of times in what of it was heard.
#[derive(Clone, Copy)]
struct Times<'m> {
    map: Option<&'m RefCell<TimeMap>>,
    /// Where the stretch begins that is heard, in seconds of speech.
    begun: f64,
}

impl Times<'_> {
    fn end(self, seconds: f64) -> f64 {
        self.map.map_or(seconds, |map| map.borrow().original(self.begun + seconds, Border::End))
    }

    /// A segment with the times that it has in the sound.
    fn of(self, segment: &Segment) -> Segment {
        let Some(map) = self.map else { return segment.clone() };
        let map = map.borrow();
        let words = segment.words.iter().map(|word| {
            let (start, end) = map.word(self.begun + word.start, self.begun + word.end);
            Word { text: word.text.clone(), start, end }
        });
        let words = words.collect();
        let (start, end) = map.sentence(self.begun + segment.start, self.begun + segment.end);
        Segment { start, end, words, ..segment.clone() }
    }
}
