//! `pteron transcribe`: what is said in sound files.

use crate::aside::{Aside, check_place};
use crate::bench::machine;
use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::home;
use crate::output::{Output, complain, size};
use crate::talk::load::source;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use pteron::{Audio, Heard, OpenOptions, TranscribeOptions, Transcriber};
use pteron_speech::sound::{RATE, RawFormat, SampleKind};
use pteron_speech::transcript::{Format, Transcript, piece};
use pteron_speech::whisper::beams::MOST_BEAMS;
use pteron_speech::whisper::transcribe::USUAL_BEAMS;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Write down what is said in sound files
///
/// WAV, FLAC, MP3, OGG Vorbis, Opus, M4A and more, of any rate and number of channels, told by their content. The text goes to
/// standard output as it is found, what it took to standard error. MODEL is a program, a Whisper, Parakeet or Voxtral as
/// Hugging Face, OpenAI or NVIDIA (.nemo) publish it (converted once, in 8 bits, and kept), a folder that ExecuTorch's
/// exporter wrote, or a name that `pteron list` shows.
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
    #[arg(long, value_name = "FORM", default_value = "txt", value_parser = format())]
    format: Format,
    /// Listen to samples from standard input, without a header: 32-bit floats (f32) or 16-bit integers (i16); without
    /// `--no-vad`, what was said is written at every pause
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
    /// Answer a question about the sound, in place of a transcript, by models that answer (Voxtral)
    #[arg(long, value_name = "QUESTION", conflicts_with_all = ["translate", "words", "prompt"])]
    ask: Option<String>,
    /// Begin every window anew, without the text before it: a loop of words ends sooner, names may be spelled otherwise
    #[arg(long)]
    no_previous_text: bool,
    /// Temperatures that are tried until a text will do [default: 0, 0.2, 0.4, 0.6, 0.8, 1]
    #[arg(long, value_name = "T", value_delimiter = ',', value_parser = temperature)]
    temperature: Vec<f32>,
    /// Beginnings of a text that Whisper keeps until it knows which goes on best; 1 is fastest, and errs a little more
    #[arg(long, value_name = "N", default_value_t = USUAL_BEAMS, value_parser = beams())]
    beams: usize,
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

fn format() -> impl TypedValueParser<Value = Format> {
    // Names that are possible have a form.
    PossibleValuesParser::new(Format::NAMES).map(|name| Format::of_name(&name).unwrap_or(Format::Txt))
}

fn temperature(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number| (0.0..=2.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is no temperature from 0 to 2"))
}

fn beams() -> impl TypedValueParser<Value = usize> {
    let range = 1..=MOST_BEAMS as i64;
    clap::value_parser!(u32).range(range).map(|beams| beams as usize)
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
    let options = home::options().engine(arguments.engine.for_library()?);
    let options = arguments.tokenizer.iter().fold(options, OpenOptions::tokenizer);
    let mut model = Transcriber::open(source(Some(&arguments.model)), options.clone())?;
    if !arguments.no_vad
        && let Err(error) = model.leave_out_silence(&options)
    {
        complain(&format!("note: silence is not left out: {error}\n"));
    }
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
        heard.push(arguments.transcribe(input, &mut model, shown, &mut took)?);
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

    fn options(&self) -> TranscribeOptions {
        let options = TranscribeOptions::default()
            .translate(self.translate)
            .forget(self.no_previous_text)
            .temperatures(self.temperature.clone())
            .beams(self.beams)
            .words(self.words);
        let options = self.language.iter().fold(options, TranscribeOptions::language);
        let options = self.ask.iter().fold(options, TranscribeOptions::ask);
        self.prompt.iter().fold(options, TranscribeOptions::prompt)
    }

    /// A file, or standard input.
    fn audio(&self, input: Option<&Path>) -> Audio {
        let Some(path) = input else {
            let kind = match self.mic {
                Some(Microphone::I16) => SampleKind::I16,
                _ => SampleKind::F32,
            };
            let format = RawFormat { kind, rate: self.rate, channels: usize::from(self.channels) };
            return Audio::Stream(Box::new(std::io::stdin()), format);
        };
        Audio::File(path.to_owned())
    }

    fn transcribe(
        &self,
        input: Option<&Path>,
        model: &mut Transcriber,
        mut shown: Option<&mut Output>,
        took: &mut Took,
    ) -> Result<Transcript, Failure> {
        let begun = Instant::now();
        let mut transcript = Transcript { translated: self.translate, ..Transcript::default() };
        let (mut trouble, mut number, mut bar) = (None, 0, ProgressBar::hidden());
        let heard = model.transcribe(self.audio(input), &self.options(), |heard| match heard {
            Heard::Begins(seconds) => bar = self::bar(seconds),
            Heard::Until { seconds } => bar.set_position(seconds as u64),
            Heard::Segment(segment) => {
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
            _ => {}
        });
        bar.finish_and_clear();
        let heard = heard?;
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        (transcript.language, transcript.duration) = (heard.language, heard.duration);
        took.sound += transcript.duration;
        took.all += begun.elapsed();
        if heard.is_cut_off {
            let name = input.unwrap_or(Path::new("standard input")).display();
            complain(&format!("note: {name} stops in the middle of its sound\n"));
        }
        Ok(transcript)
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
