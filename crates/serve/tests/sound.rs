//! Sounds in forms become text in every form that is asked for; forms that are none, and sounds that are too large, do not.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_serve::{HearError, Hearing, Hears, Loaded, Models, OpenError, Served};
use pteron_speech::segment::{Segment, Word};
use pteron_speech::transcript::Transcript;
use pteron_speech::whisper::fallback::Measures;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Reply, TEMPLATE, chat, question, receive, send, serve_models, tiny_model};

/// Says back what it was asked for; what it hears is the content of the file.
#[derive(Default)]
struct Parrot {
    asked: Mutex<Vec<Hearing>>,
    /// Goes on until nobody waits.
    endless: bool,
    given_up: AtomicBool,
}

impl Hears for Parrot {
    fn bytes(&self) -> u64 {
        1
    }

    fn tells_word_times(&self) -> bool {
        true
    }

    fn hear(
        &self,
        sound: Vec<u8>,
        hearing: &Hearing,
        cancel: &Arc<AtomicBool>,
        tell: &mut dyn FnMut(&Segment),
    ) -> Result<Transcript, HearError> {
        self.asked.lock().unwrap().push(hearing.clone());
        if self.endless {
            while !cancel.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.given_up.store(true, Ordering::Relaxed);
            return Err(HearError::Failed("given up".to_owned()));
        }
        let text = String::from_utf8(sound).map_err(|error| HearError::Sound(error.to_string()))?;
        let word = |text: &str, start: f64| Word { text: text.to_owned(), start, end: start + 0.5 };
        let words = if hearing.words { vec![word(" a", 1.0), word(" b", 2.0)] } else { Vec::new() };
        let measures = Measures { compression: 1.0, log_probability: -0.5, no_speech: 0.0 };
        let segment = Segment {
            start: 1.0,
            end: 2.5,
            text,
            tokens: vec![1],
            temperature: 0.0,
            measures: Some(measures),
            words,
        };
        // A bar cuts what is heard in two.
        let pieces = segment.text.split('|').map(|text| Segment { text: text.to_owned(), ..segment.clone() });
        let segments: Vec<Segment> = pieces.collect();
        segments.iter().for_each(tell);
        if segments.iter().any(|segment| segment.text.contains("broken")) {
            return Err(HearError::Failed("it fell over".to_owned()));
        }
        Ok(Transcript { language: "en".to_owned(), duration: 2.5, translated: hearing.translate, segments })
    }
}

struct Both(Arc<Parrot>);

impl Models for Both {
    fn list(&self) -> Vec<Served> {
        vec![Served::new("parrot", 1), Served::new("tiny", 1)]
    }

    fn load(&self, name: &str) -> Result<Loaded, OpenError> {
        Ok(match name {
            "parrot" => Loaded::Hears(self.0.clone()),
            _ => Loaded::Talks(tiny_model(name, TEMPLATE, |_| ())),
        })
    }
}

/// A field of a form, and what it says.
type Field<'f> = (&'f str, &'f [u8]);

fn form(fields: &[Field<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in fields {
        let file = if *name == "file" { "; filename=\"a.wav\"" } else { "" };
        body.extend(format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--XX--\r\n");
    body
}

fn head(path: &str, length: usize) -> String {
    support::head("POST", path, "", length).replace("application/json", "multipart/form-data; boundary=XX")
}

fn send_form(server: &support::Running, path: &str, fields: &[Field<'_>]) -> Reply {
    let body = form(fields);
    receive(send(server.address, &head(path, body.len()), &body))
}

const PATH: &str = "/v1/audio/transcriptions";

#[test]
fn a_sound_becomes_text_in_every_form() {
    let parrot = Arc::new(Parrot::default());
    let server = serve_models(Arc::new(Both(parrot.clone())), |_| ());
    let ask = |more: &[Field<'_>]| {
        let fields = [&[("file", &b" Hello."[..]), ("model", b"parrot")], more].concat();
        send_form(&server, PATH, &fields)
    };
    let reply = ask(&[]);
    assert_eq!((reply.status, &reply.json()["text"]), (200, &json!("Hello.")), "{reply:?}");
    assert_eq!(reply.json()["usage"], json!({"type": "duration", "seconds": 3.0}));
    assert_eq!(ask(&[("response_format", b"text")]).body, "Hello.\n");
    let srt = ask(&[("response_format", b"srt")]);
    assert_eq!(srt.body, "1\n00:00:01,000 --> 00:00:02,500\nHello.\n\n");
    let vtt = ask(&[("response_format", b"vtt")]);
    assert_eq!(vtt.body, "WEBVTT\n\n00:00:01.000 --> 00:00:02.500\nHello.\n\n");
    assert!(vtt.headers["content-type"].starts_with("text/vtt"));
    let verbose = ask(&[("response_format", b"verbose_json")]).json();
    assert_eq!(
        (&verbose["language"], &verbose["duration"], &verbose["task"]),
        (&json!("en"), &json!(2.5), &json!("transcribe"))
    );
    let segment = &verbose["segments"][0];
    assert_eq!((&segment["seek"], &segment["text"]), (&json!(100), &json!(" Hello.")));
    assert!(verbose.get("words").is_none() && segment.get("words").is_none());
    let word = ("timestamp_granularities[]", &b"word"[..]);
    let words = ask(&[("response_format", b"verbose_json"), word]).json();
    assert_eq!(words["words"][1], json!({"word": " b", "start": 2.0, "end": 2.5}));
    assert!(words.get("segments").is_none());
    let both =
        ask(&[("response_format", b"verbose_json"), word, ("timestamp_granularities[]", b"segment")]).json();
    assert!(both["segments"].is_array() && both["words"].is_array());
    // What is asked of it reaches the model.
    ask(&[("language", b"de"), ("prompt", b"names"), ("temperature", b"0.5")]);
    let asked = parrot.asked.lock().unwrap().last().unwrap().clone();
    assert_eq!((asked.language.as_deref(), asked.prompt.as_deref()), (Some("de"), Some("names")));
    assert_eq!((asked.temperature, asked.translate), (Some(0.5), false));
    let fields: [(&str, &[u8]); 2] = [("file", b" Hi"), ("model", b"parrot")];
    assert_eq!(send_form(&server, "/v1/audio/translations", &fields).status, 200);
    assert!(parrot.asked.lock().unwrap().last().unwrap().translate);
}

#[test]
fn a_stream_tells_stretch_by_stretch() {
    let server = serve_models(Arc::new(Both(Arc::default())), |_| ());
    let ask = |sound: &[u8]| {
        send_form(&server, PATH, &[("file", sound), ("model", b"parrot"), ("stream", b"true")])
    };
    let events = |reply: &Reply| -> Vec<Value> {
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let reply = ask(b" Hello.| And| more. ");
    assert_eq!((reply.status, reply.headers["content-type"].as_str()), (200, "text/event-stream"));
    let delta = |text: &str| json!({"type": "transcript.text.delta", "delta": text});
    let usage = json!({"type": "duration", "seconds": 3.0});
    let done = json!({"type": "transcript.text.done", "text": "Hello. And more.", "usage": usage});
    assert_eq!(events(&reply), [delta("Hello."), delta(" And"), delta(" more. "), done]);
    // What goes wrong behind the first words ends the stream.
    let events = events(&ask(b" Hello.|broken"));
    assert_eq!(events.len(), 3);
    assert_eq!(events[2]["error"]["message"], json!("it fell over"));
    let fields: [Field<'_>; 3] = [("file", b" Hi"), ("model", b"parrot"), ("stream", b"true")];
    let translated = send_form(&server, "/v1/audio/translations", &fields);
    assert_eq!((translated.status, translated.json()["error"]["param"].as_str()), (400, Some("stream")));
}

#[test]
fn what_cannot_be_heard_is_said() {
    let server = serve_models(Arc::new(Both(Arc::default())), |options| options.longest_sound = 10_000);
    let file = ("file", &b" Hello."[..]);
    let model = ("model", &b"parrot"[..]);
    let cases: Vec<(Vec<Field<'_>>, u16, &str)> = vec![
        (vec![model], 400, "file"),
        (vec![("file", b""), model], 400, "file"),
        (vec![file], 400, "model"),
        (vec![file, ("model", b"other")], 404, "model"),
        (vec![file, ("model", b"tiny")], 400, "model"),
        (vec![file, model, ("response_format", b"xml")], 400, "response_format"),
        (vec![file, model, ("temperature", b"hot")], 400, "temperature"),
        (vec![file, model, ("temperature", b"3")], 400, "temperature"),
        (vec![file, model, ("timestamp_granularities[]", b"word")], 400, "timestamp_granularities"),
        (vec![file, model, ("timestamp_granularities[]", b"day")], 400, "timestamp_granularities[]"),
        (vec![file, model, ("stream", b"yes")], 400, "stream"),
        (vec![file, model, ("stream", b"true"), ("response_format", b"srt")], 400, "response_format"),
        (vec![("file", b"\xff\xfe"), model, ("stream", b"true")], 400, "file"),
        (vec![file, model, ("unheard", b"1")], 400, "unheard"),
        (vec![file, model, ("language", b"\xff")], 400, "language"),
        (vec![("file", b"\xff\xfe"), model], 400, "file"),
    ];
    for (fields, status, param) in cases {
        let reply = send_form(&server, PATH, &fields);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, error["param"].as_str()), (status, Some(param)), "{fields:?}: {error}");
    }
    let huge = vec![b'a'; 12_000];
    assert_eq!(send_form(&server, PATH, &[("file", &huge), model]).status, 413);
    let broken = |body: &[u8]| receive(send(server.address, &head(PATH, body.len()), body)).status;
    assert_eq!((broken(b""), broken(b"--XX"), broken(b"--XX\r\n\r\nx")), (400, 400, 400));
    let plain = support::head("POST", PATH, "", 2);
    assert_eq!(receive(send(server.address, &plain, b"{}")).status, 415);
    let talk = chat(server.address, &question("hello", json!({"model": "parrot"})));
    assert_eq!((talk.status, talk.json()["error"]["param"].as_str()), (400, Some("model")));
}

#[test]
fn a_client_that_vanishes_is_not_written_for() {
    let parrot = Arc::new(Parrot { endless: true, ..Parrot::default() });
    let server = serve_models(Arc::new(Both(parrot.clone())), |_| ());
    let body = form(&[("file", b" Hello."), ("model", b"parrot")]);
    let ask = || send(server.address, &head(PATH, body.len()), &body);
    let clients: Vec<_> = (0..8).map(|_| ask()).collect();
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while parrot.asked.lock().unwrap().len() < 8 {
        assert!(std::time::Instant::now() < end, "they are not heard");
        std::thread::sleep(Duration::from_millis(2));
    }
    // As many as may be.
    let refused = receive(ask());
    assert_eq!((refused.status, refused.headers["retry-after"].as_str()), (429, "1"));
    drop(clients);
    while !parrot.given_up.load(Ordering::Relaxed) {
        assert!(std::time::Instant::now() < end, "it goes on for nobody");
        std::thread::sleep(Duration::from_millis(2));
    }
}
