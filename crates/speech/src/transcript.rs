//! A transcript in the forms that people want it in: plain text, subtitles (SRT and WebVTT), a table, JSON as the servers of
//! the field give it.

use crate::segment::Segment;
use crate::whisper::fallback::{Measures, compression};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// A form of transcripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text alone; with times before words where they are known.
    Txt,
    /// Subtitles.
    Srt,
    /// Subtitles of the web.
    Vtt,
    /// A table: start and end in milliseconds, text.
    Tsv,
    /// All that is known.
    Json,
}

impl Format {
    /// What they are called, and how files with them end.
    pub const NAMES: [&str; 5] = ["txt", "srt", "vtt", "tsv", "json"];

    /// The form of that name.
    pub fn of_name(name: &str) -> Option<Format> {
        let all = [Format::Txt, Format::Srt, Format::Vtt, Format::Tsv, Format::Json];
        let mut named = Format::NAMES.iter().zip(all);
        named.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, format)| format)
    }

    /// The form that a file's ending names.
    pub fn of_path(path: &Path) -> Option<Format> {
        Format::of_name(path.extension()?.to_str()?)
    }
}

/// What was said in one sound.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// The language that is spoken.
    pub language: String,
    /// Seconds of sound.
    pub duration: f64,
    /// Whether it is in English, whatever was spoken.
    pub translated: bool,
    /// Stretches with their times.
    pub segments: Vec<Segment>,
}

impl Transcript {
    /// All that was said.
    pub fn text(&self) -> String {
        let whole: String = self.segments.iter().map(|segment| segment.text.as_str()).collect();
        whole.trim().to_owned()
    }

    /// All of it.
    pub fn render(&self, format: Format) -> String {
        let head = match format {
            Format::Json => return format!("{:#}\n", self.json()),
            Format::Vtt => "WEBVTT\n\n",
            Format::Tsv => "start\tend\ttext\n",
            Format::Txt | Format::Srt => "",
        };
        let mut number = 0;
        self.segments
            .iter()
            .fold(head.to_owned(), |text, segment| text + &piece(segment, &mut number, format))
    }

    /// All that is known.
    pub fn json(&self) -> Value {
        let segments = self.segments.iter().enumerate().map(|(id, segment)| {
            let words = segment.words.iter().map(|word| {
                json!({"word": word.text, "start": hundredths(word.start), "end": hundredths(word.end)})
            });
            // Readers of this form expect numbers, also of models that tell none.
            let untold =
                || Measures { compression: compression(&segment.text), log_probability: 0.0, no_speech: 0.0 };
            let measures = segment.measures.unwrap_or_else(untold);
            json!({
                "words": words.collect::<Vec<_>>(),
                "id": id,
                "start": hundredths(segment.start),
                "end": hundredths(segment.end),
                "text": segment.text,
                "tokens": segment.tokens,
                "temperature": segment.temperature,
                "avg_logprob": measures.log_probability,
                "compression_ratio": measures.compression,
                "no_speech_prob": measures.no_speech,
            })
        });
        json!({
            "task": if self.translated { "translate" } else { "transcribe" },
            "language": self.language,
            "duration": hundredths(self.duration),
            "text": self.text(),
            "segments": segments.collect::<Vec<_>>(),
        })
    }
}

/// One segment in a form that has them one after another, word by word where their times are known; nothing in JSON, which
/// is one value. `number` counts what is shown.
pub fn piece(segment: &Segment, number: &mut usize, format: Format) -> String {
    let whole = [(segment.start, segment.end, segment.text.as_str())];
    let words: Vec<_> = segment.words.iter().map(|word| (word.start, word.end, word.text.as_str())).collect();
    let parts = if words.is_empty() { &whole[..] } else { &words };
    let mut piece = String::new();
    for &(start, end, text) in parts {
        *number += 1;
        let text = text.trim();
        // Subtitles take the arrow for one of theirs.
        let shown = text.replace("-->", "->");
        let written = match format {
            Format::Txt if words.is_empty() => writeln!(piece, "{text}"),
            Format::Txt => writeln!(piece, "{start:8.2} {end:8.2}  {text}"),
            Format::Srt => {
                writeln!(piece, "{number}\n{} --> {}\n{shown}\n", time(start, ','), time(end, ','))
            }
            Format::Vtt => writeln!(piece, "{} --> {}\n{shown}\n", time(start, '.'), time(end, '.')),
            Format::Tsv => {
                let text = text.replace('\t', " ");
                writeln!(piece, "{}\t{}\t{text}", milliseconds(start), milliseconds(end))
            }
            Format::Json => Ok(()),
        };
        // A string takes all that is written.
        let _ = written;
    }
    piece
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0).round() as u64
}

fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// `00:01:02,345`.
fn time(seconds: f64, point: char) -> String {
    let all = milliseconds(seconds);
    let (hours, minutes, seconds) = (all / 3_600_000, all / 60_000 % 60, all / 1000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}{point}{:03}", all % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Word;

    fn transcript() -> Transcript {
        let measures = Measures { compression: 1.25, log_probability: -0.5, no_speech: 0.0 };
        let segment = |start, end, text: &str| Segment {
            start,
            end,
            text: text.to_owned(),
            tokens: vec![1, 2],
            temperature: 0.0,
            measures: Some(measures),
            words: Vec::new(),
        };
        Transcript {
            language: "en".to_owned(),
            duration: 3725.5,
            translated: false,
            segments: vec![segment(0.0, 1.5, " Ask not"), segment(3661.234, 3725.5, " what --> is\tit?")],
        }
    }

    #[test]
    fn every_form_reads_as_its_readers_want_it() {
        let transcript = transcript();
        let cases = [
            (Format::Txt, "Ask not\nwhat --> is\tit?\n"),
            (
                Format::Srt,
                "1\n00:00:00,000 --> 00:00:01,500\nAsk not\n\n\
                 2\n01:01:01,234 --> 01:02:05,500\nwhat -> is\tit?\n\n",
            ),
            (
                Format::Vtt,
                "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nAsk not\n\n\
                 01:01:01.234 --> 01:02:05.500\nwhat -> is\tit?\n\n",
            ),
            (Format::Tsv, "start\tend\ttext\n0\t1500\tAsk not\n3661234\t3725500\twhat --> is it?\n"),
        ];
        for (format, wanted) in cases {
            assert_eq!(transcript.render(format), wanted);
        }
        let json: Value = serde_json::from_str(&transcript.render(Format::Json)).unwrap();
        assert_eq!((&json["text"], &json["language"]), (&json!("Ask not what --> is\tit?"), &json!("en")));
        assert_eq!((&json["segments"][1]["start"], &json["duration"]), (&json!(3661.23), &json!(3725.5)));
    }

    #[test]
    fn models_that_tell_nothing_of_a_text_give_numbers_too() {
        let mut transcript = transcript();
        transcript.segments[0].measures = None;
        let json: Value = serde_json::from_str(&transcript.render(Format::Json)).unwrap();
        let [told, untold] = [&json["segments"][1], &json["segments"][0]];
        assert_eq!(told["avg_logprob"], json!(-0.5));
        assert_eq!((&untold["avg_logprob"], &untold["no_speech_prob"]), (&json!(0.0), &json!(0.0)));
        assert!(untold["compression_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0 && ratio < 1.25));
    }

    #[test]
    fn words_are_shown_one_by_one() {
        let mut transcript = transcript();
        let word = |text: &str, start: f64| Word { text: text.to_owned(), start, end: start + 0.5 };
        transcript.segments[0].words = vec![word(" Ask", 0.0), word(" not", 1.0)];
        let srt = transcript.render(Format::Srt);
        assert!(srt.starts_with("1\n00:00:00,000 --> 00:00:00,500\nAsk\n\n2\n00:00:01,000"), "{srt}");
        assert!(srt.contains("\n3\n01:01:01,234"), "{srt}");
        assert!(transcript.render(Format::Txt).starts_with("    0.00     0.50  Ask\n"));
        let json: Value = serde_json::from_str(&transcript.render(Format::Json)).unwrap();
        assert_eq!(json["segments"][0]["words"][1], json!({"word": " not", "start": 1.0, "end": 1.5}));
    }

    #[test]
    fn forms_are_told_by_the_ending() {
        assert_eq!(Format::of_path(Path::new("a/out.SRT")), Some(Format::Srt));
        assert_eq!(Format::of_path(Path::new("out.doc")), None);
    }
}
