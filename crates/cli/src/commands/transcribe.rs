//! `pteron transcribe`: what is said in sound files.

use crate::aside::{Aside, check_place};
use crate::bench::machine;
use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::output::{Output, complain, size};
use crate::speech::load::{self, SpeechModel};
use crate::speech::transcript::{Format, Transcript, piece};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use pteron_runtime::{Options, Precision};
use pteron_speech::SpeechError;
use pteron_speech::sound::{RATE, RawFormat, SampleKind, Sound, SoundError};
use pteron_speech::voice::{Border, Silero, Spoken, VoiceOptions};
use pteron_speech::whisper::features::{Ceiling, Features, Samples};
use pteron_speech::whisper::transcribe::Event;
use pteron_speech::whisper::{Language, Segment, Settings, Task, Transcriber, Word};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sound that is looked through for its loudest before it is transcribed; of longer ones the rest is taken as it comes.
const LOOKED_THROUGH: u64 = 30 * 60 * RATE as u64;

/// Write down what is said in sound files
///
/// WAV, FLAC, MP3, OGG Vorbis, M4A and more, of any rate and number of channels, told by their content. The text goes to
/// standard output as it is found, what it took to standard error. MODEL is a program, a Whisper as Hugging Face or OpenAI
/// publish it (converted once, in 8 bits, and kept), a folder that ExecuTorch's exporter wrote, or a name that `pteron list`
/// shows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron transcribe interview.mp3
  pteron transcribe talk.m4a -o talk.srt
  pteron transcribe --model whisper-small --language de --translate rede.ogg
  arecord -f S16_LE -r 16000 -t raw | pteron transcribe --mic i16")]
pub(crate) struct Arguments {
    /// Sound files
    #[arg(value_name = "FILE", required_unless_present = "mic")]
    files: Vec<PathBuf>,
    /// The model
    #[arg(long, value_name = "MODEL", default_value = "whisper-tiny.en")]
    model: String,
    /// The language that is spoken, such as en or de [default: the model tells by the first 30 seconds]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Translate into English
    #[arg(long)]
    translate: bool,
    /// Write to a file; its ending says how: txt, srt, vtt, tsv or json
    #[arg(short, long, value_name = "FILE", conflicts_with = "format")]
    output: Option<PathBuf>,
    /// What standard output gets
    #[arg(long, value_enum, value_name = "FORM", default_value = "txt")]
    format: Format,
    /// Listen to samples from standard input, without a header: 32-bit floats (f32) or 16-bit integers (i16)
    #[arg(long, value_enum, value_name = "SAMPLES", conflicts_with = "files")]
    mic: Option<Microphone>,
    /// Samples a second of `--mic`
    #[arg(long, value_name = "N", default_value_t = RATE, requires = "mic")]
    rate: u32,
    /// Channels of `--mic`
    #[arg(long, value_name = "N", default_value_t = 1, requires = "mic")]
    channels: u8,
    /// Names and words that may be said, or what was said before
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Begin every window anew, without the text before it: a loop of words ends sooner, names may be spelled otherwise
    #[arg(long)]
    no_previous_text: bool,
    /// Temperatures that are tried until a text will do [default: 0, 0.2, 0.4, 0.6, 0.8, 1]
    #[arg(long, value_name = "T", value_delimiter = ',', value_parser = temperature)]
    temperature: Vec<f32>,
    /// Find the time of every word, and show them one by one
    #[arg(long)]
    words: bool,
    /// Give the model all of the sound, silence too; else `silero-vad` (1.2 MB, fetched once) leaves silence out
    #[arg(long)]
    no_vad: bool,
    /// The tokenizer, where the model carries none
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    #[command(flatten)]
    engine: Engine,
    /// Say nothing on standard error of what it took
    #[arg(long, short)]
    quiet: bool,
}

/// `--mic`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Microphone {
    F32,
    I16,
}

fn temperature(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number| (0.0..=2.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is no temperature from 0 to 2"))
}

/// What a transcript took.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    sound: f64,
    all: Duration,
    first_words: Option<Duration>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let to_file = arguments.place()?;
    let begun = Instant::now();
    let options = arguments.engine.options(Precision::Fast)?;
    let mut model = load::load(&arguments.model, arguments.tokenizer.as_deref(), &options)?;
    if arguments.words && !model.program.aligns() {
        return Err(Failure::usage(format!("{} cannot tell the times of words", arguments.model))
            .hint("export it anew from a checkpoint that names its alignment heads"));
    }
    let mut voices = arguments.voices(&options);
    let loaded = begun.elapsed();
    let mut took = Took::default();
    let format = to_file.map_or(arguments.format, |(_, format)| format);
    let streams = to_file.is_none() && format != Format::Json;
    let mut heard = Vec::new();
    let inputs: Vec<Option<&Path>> = match arguments.mic {
        Some(_) => vec![None],
        None => arguments.files.iter().map(|file| Some(file.as_path())).collect(),
    };
    for &input in &inputs {
        if streams && inputs.len() > 1 {
            out.line(format!("{}:", input.unwrap_or(Path::new("-")).display()))?;
        }
        let shown = streams.then_some(&mut *out);
        heard.push(arguments.transcribe(input, &mut model, voices.as_mut(), shown, &mut took)?);
    }
    match to_file {
        Some((path, format)) => {
            let text: String = heard.iter().map(|transcript| transcript.render(format)).collect();
            Aside::write(path, |file| file.write_all(text.as_bytes()))?.land()?;
        }
        None if !streams => {
            for transcript in &heard {
                out.piece(&transcript.render(format))?;
            }
        }
        None => {}
    }
    out.flush()?;
    if !arguments.quiet {
        complain(&took.line(loaded));
    }
    Ok(Answer::Yes)
}

impl Arguments {
    /// The file that is written, and its form.
    fn place(&self) -> Result<Option<(&Path, Format)>, Failure> {
        let Some(path) = &self.output else { return Ok(None) };
        check_place(path, &self.files)?;
        if self.files.len() > 1 {
            return Err(Failure::usage("several sound files, and one file to write")
                .hint("transcribe them one by one, or to standard output"));
        }
        let format = Format::of_path(path).ok_or_else(|| {
            Failure::usage(format!("{}: its ending is none of txt, srt, vtt, tsv, json", path.display()))
        })?;
        Ok(Some((path, format)))
    }

    fn settings(&self) -> Settings {
        let own = Settings::default();
        Settings {
            task: if self.translate { Task::Translate } else { Task::Transcribe },
            language: self.language.clone().map_or(Language::Detected, Language::Known),
            prompt: self.prompt.clone(),
            conditioned: !self.no_previous_text,
            temperatures: match self.temperature.is_empty() {
                true => own.temperatures,
                false => self.temperature.clone(),
            },
            words: self.words,
            ..own
        }
    }

    /// What leaves silence out; nothing where that is not wanted, or cannot be had.
    fn voices(&self, options: &Options) -> Option<Silero> {
        if self.no_vad {
            return None;
        }
        let found = load::voices(options);
        if let Err(failure) = &found {
            complain(&format!("note: silence is not left out: {}\n", failure.message()));
        }
        found.ok()
    }

    /// The sound of a file, or of standard input, from its beginning.
    fn sound(&self, input: Option<&Path>) -> Result<Sound, Failure> {
        let failed = |error| Failure::in_file(input.unwrap_or(Path::new("standard input")), error);
        let opened = match (input, self.mic) {
            (Some(path), _) => Sound::open(path),
            (None, kind) => {
                let kind = match kind {
                    Some(Microphone::I16) => SampleKind::I16,
                    _ => SampleKind::F32,
                };
                let format = RawFormat { kind, rate: self.rate, channels: usize::from(self.channels) };
                Sound::raw(std::io::stdin(), format)
            }
        };
        opened.map_err(failed)
    }

    fn transcribe(
        &self,
        input: Option<&Path>,
        model: &mut SpeechModel,
        voices: Option<&mut Silero>,
        mut shown: Option<&mut Output>,
        took: &mut Took,
    ) -> Result<Transcript, Failure> {
        let begun = Instant::now();
        let failed = |error: SpeechError| match (error, input) {
            (error @ SpeechError::Sound(_), Some(path)) => Failure::in_file(path, error),
            (SpeechError::Run(error), _) => error.into(),
            (error @ SpeechError::Language { .. }, _) => Failure::usage(error),
            (error, _) => Failure::new(error),
        };
        let mels = model.program.info().mels;
        let mut sound = self.sound(input)?;
        let ceiling = match input {
            Some(_) => Ceiling::of_beginning(&mut sound, mels, LOOKED_THROUGH).map_err(failed)?,
            None => Ceiling::of_stream(),
        };
        if input.is_some() {
            sound = self.sound(input)?;
        }
        let bar = bar(sound.seconds());
        let counted = &mut Counted { sound, samples: 0 };
        let mut spoken = None;
        let (samples, map): (&mut dyn Samples, _) = match voices {
            None => (counted, None),
            Some(voices) => {
                let spoken = spoken.insert(Spoken::new(counted, voices, VoiceOptions::default()));
                let map = spoken.map();
                (spoken, Some(map))
            }
        };
        let original = |seconds: f64, border: Border| match &map {
            Some(map) => map.borrow().original(seconds, border),
            None => seconds,
        };
        let mut features = Features::new(samples, mels, ceiling);
        let mut transcript = Transcript { translated: self.translate, ..Transcript::default() };
        let info = model.program.info().clone();
        let (mut trouble, mut number) = (None, 0);
        let mut transcriber =
            Transcriber::new(&mut model.program, &info, &model.tokenizer, self.settings()).map_err(failed)?;
        transcriber
            .run(&mut features, &mut |event| match event {
                Event::Language(code, _) => transcript.language = code.to_owned(),
                Event::Heard(seconds) => bar.set_position(original(seconds, Border::End) as u64),
                Event::Segment(segment) => {
                    let segment = &in_sound(segment, &original);
                    took.first_words.get_or_insert_with(|| begun.elapsed());
                    transcript.segments.push(segment.clone());
                    if let Some(out) = shown.as_deref_mut() {
                        let is_first = transcript.segments.len() == 1;
                        let piece = piece(segment, &mut number, self.format);
                        // The first comes behind the form's own beginning.
                        let text = if is_first { transcript.render(self.format) } else { piece };
                        let told = bar.suspend(|| out.piece(&text).and_then(|()| out.flush()));
                        trouble = trouble.take().or(told.err());
                    }
                }
            })
            .map_err(failed)?;
        bar.finish_and_clear();
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        transcript.duration = counted.samples as f64 / f64::from(RATE);
        took.sound += transcript.duration;
        took.all += begun.elapsed();
        if counted.sound.is_cut_off() {
            let name = input.unwrap_or(Path::new("standard input")).display();
            complain(&format!("note: {name} stops in the middle of its sound\n"));
        }
        Ok(transcript)
    }
}

/// Sound that is counted on its way.
struct Counted {
    sound: Sound,
    samples: u64,
}

impl Samples for Counted {
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError> {
        let before = out.len();
        let goes_on = self.sound.read(out)?;
        self.samples += (out.len() - before) as u64;
        Ok(goes_on)
    }
}

/// A segment with the times that it has in the sound.
fn in_sound(segment: &Segment, original: &dyn Fn(f64, Border) -> f64) -> Segment {
    let words = segment.words.iter().map(|word| Word {
        text: word.text.clone(),
        start: original(word.start, Border::Start),
        end: original(word.end, Border::End),
    });
    Segment {
        start: original(segment.start, Border::Start),
        end: original(segment.end, Border::End),
        words: words.collect(),
        ..segment.clone()
    }
}

impl Took {
    fn line(&self, loaded: Duration) -> String {
        let seconds = self.all.as_secs_f64();
        let times = self.sound / seconds.max(1e-9);
        let first = self
            .first_words
            .map_or("no words".to_owned(), |first| format!("first words after {:.2} s", first.as_secs_f64()));
        let memory =
            machine::peak_bytes().map_or(String::new(), |peak| format!("; {} of memory", size(peak)));
        format!(
            "{:.1} s of sound in {seconds:.2} s: {times:.1} times as fast as it was said; loaded in {:.2} s, {first}{memory}\n",
            self.sound,
            loaded.as_secs_f64()
        )
    }
}

/// A bar on standard error; hidden where that is no terminal.
fn bar(seconds: Option<f64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    match seconds {
        Some(seconds) => {
            let style = ProgressStyle::with_template("{bar:20} {pos} of {len} s, {eta} left");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(seconds as u64).with_style(style)
        }
        None => ProgressBar::new_spinner(),
    }
}
