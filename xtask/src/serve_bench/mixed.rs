//! Mixed load: clients of many kinds, of whom some vanish and some send nonsense, for as long as is wished. Whatever is no
//! client's fault is an error; what the server holds is looked at all the while.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load::{messages, text};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::serving::{Client, Reply, Resident, Server};

/// More than the server writes answers at once, so that some wait.
const CLIENTS: usize = 12;
/// Of a hundred requests.
const VANISH: u64 = 5;
const NONSENSE: u64 = 1;

/// Seconds between two looks at memory, and lines that tell of them.
const LOOK: Duration = Duration::from_secs(5);
const LINES: usize = 12;

/// Growth of memory is judged in runs of at least so many minutes, after the first sixth: caches fill first.
const LONG: f64 = 30.0;
const MOST_GROWTH: f64 = 0.01;

/// What came of the requests.
#[derive(Clone, Debug, Default)]
struct Tally {
    answered: usize,
    vanished: usize,
    nonsense: usize,
    busy: usize,
    errors: Vec<String>,
}

pub(super) fn run(server: &Server, model: &str, minutes: f64) -> Result<Outcome> {
    let (tally, over) = (Mutex::new(Tally::default()), AtomicBool::new(false));
    let client = server.client();
    let began = Instant::now();
    let length = Duration::from_secs_f64(minutes * 60.0);
    let looks = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (client, tally, over) = (&client, &tally, &over);
            scope.spawn(move || {
                let mut turn = number as u64;
                while !over.load(Ordering::Relaxed) {
                    let told = request(client, model, turn);
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.note(turn, told);
                    turn += CLIENTS as u64;
                }
            });
        }
        let mut looks = Vec::new();
        while began.elapsed() < length {
            thread::sleep(LOOK.min(length.saturating_sub(began.elapsed())));
            looks.extend(server.resident().map(|held| (began.elapsed().as_secs_f64() / 60.0, held)));
        }
        over.store(true, Ordering::Relaxed);
        looks
    });
    let free = free(server)?;
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Tally { answered, vanished, nonsense, busy, errors } = &tally;
    for (minute, Resident { bytes, of_files }) in looks.iter().step_by(looks.len().div_ceil(LINES).max(1)) {
        let [all, files] = [bytes, of_files].map(|bytes| *bytes as f64 / 1e6);
        println!("{minute:7.1} min  {all:8.1} MB resident, {files:.1} MB of them of files");
    }
    for error in errors.iter().take(10) {
        println!("ERROR: {error}");
    }
    let growth = growth(&looks, minutes);
    println!(
        "mixed load, {minutes} min: {answered} answered, {vanished} vanished, {nonsense} of nonsense refused, {busy} told to come \
         back, {} errors; memory {}; slots {}",
        errors.len(),
        growth.map_or_else(
            || "not told".to_owned(),
            |growth| format!("{:+.2} % after the first sixth", 100.0 * growth)
        ),
        if free { "all free" } else { "NOT all free" },
    );
    let grew = minutes >= LONG && growth.is_none_or(|growth| growth >= MOST_GROWTH);
    Ok(if errors.is_empty() && free && !grew { Outcome::Good } else { Outcome::Bad })
}

/// How much the most of the last sixth is above the most of the second one.
fn growth(looks: &[(f64, Resident)], minutes: f64) -> Option<f64> {
    let most = |from: f64, to: f64| {
        let within = looks.iter().filter(|(minute, _)| *minute >= from * minutes && *minute <= to * minutes);
        within.map(|(_, held)| held.bytes as f64).reduce(f64::max)
    };
    Some(most(5.0 / 6.0, f64::INFINITY)? / most(1.0 / 6.0, 2.0 / 6.0)? - 1.0)
}

/// Whether nothing is under way any more, soon after the last client has gone.
pub(super) fn free(server: &Server) -> Result<bool> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let left =
            server.counted("pteron:num_requests_running")? + server.counted("pteron:num_requests_waiting")?;
        if left == 0.0 {
            return Ok(true);
        }
        if Instant::now() > until {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// What a request was, where it was as it should be.
enum Told {
    Answered,
    Vanished,
    Nonsense,
    Busy,
}

impl Tally {
    fn note(&mut self, turn: u64, told: Result<Told>) {
        match told {
            Ok(Told::Answered) => self.answered += 1,
            Ok(Told::Vanished) => self.vanished += 1,
            Ok(Told::Nonsense) => self.nonsense += 1,
            Ok(Told::Busy) => self.busy += 1,
            Err(error) => self.errors.push(format!("request {turn}: {error}")),
        }
    }
}

/// A number that looks like chance and is the same every time.
fn chance(turn: u64) -> u64 {
    let mixed = (turn + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn request(client: &Client, model: &str, turn: u64) -> Result<Told> {
    let (kind, lot) = (chance(turn) % 100, chance(turn ^ 0xabcdef));
    if kind < NONSENSE {
        return nonsense(client, model, lot);
    }
    // Few beginnings, so that some find theirs in a cache.
    let words = text(lot % 7, 20 + (lot % 60) as usize);
    let new = 8 + lot % 40;
    let chat = json!({"model": model, "messages": messages(&words), "max_tokens": new});
    let (path, mut body) = match lot % 6 {
        0 => ("/v1/completions", json!({"model": model, "prompt": words, "max_tokens": new})),
        1 | 2 => ("/v1/messages", chat),
        3 => {
            let schema =
                json!({"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"]});
            let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
            let mut body = chat;
            body["response_format"] = format;
            ("/v1/chat/completions", body)
        }
        _ => ("/v1/chat/completions", chat),
    };
    let vanishes = kind < NONSENSE + VANISH;
    body["stream"] = (vanishes || lot % 4 != 0).into();
    let reply = client.post(path, &body)?;
    match reply.status {
        200 if vanishes => {
            // Gone in the middle, or before anything came.
            reply.events().take((lot % 5) as usize).try_for_each(|event| event.map(drop))?;
            Ok(Told::Vanished)
        }
        200 => whole(reply, body["stream"] == true),
        429 => Ok(Told::Busy),
        status => Err(Error::message(format!("{path}: status {status}: {}", reply.text()?))),
    }
}

/// Reads an answer to its end, which must be one.
fn whole(reply: Reply, stream: bool) -> Result<Told> {
    if !stream {
        return reply.json().map(|_| Told::Answered);
    }
    let mut last = String::new();
    for event in reply.events() {
        last = event?;
        let told: Value = serde_json::from_str(&last).unwrap_or_default();
        if told.get("error").is_some() {
            return Err(Error::message(last));
        }
    }
    match last == "[DONE]" || last.contains("message_stop") {
        true => Ok(Told::Answered),
        false => Err(Error::message(format!("a stream broke off behind {last}"))),
    }
}

fn nonsense(client: &Client, model: &str, lot: u64) -> Result<Told> {
    let bodies: [Vec<u8>; 6] = [
        b"{".to_vec(),
        vec![0xff; 100],
        b"[".repeat(100_000),
        json!({"model": "none", "messages": messages("a")}).to_string().into(),
        json!({"model": model, "messages": 7}).to_string().into(),
        json!({"model": model, "messages": messages(&"word ".repeat(50_000))}).to_string().into(),
    ];
    let reply = client.send("/v1/chat/completions", "POST", &bodies[lot as usize % bodies.len()])?;
    match reply.status {
        400..500 => Ok(Told::Nonsense),
        status => Err(Error::message(format!("nonsense has status {status}: {}", reply.text()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_sixth_over_the_second() {
        let look = |minute: i32, bytes: u64| (f64::from(minute), Resident { bytes, of_files: 0 });
        let looks: Vec<_> =
            (0..60).map(|minute| look(minute, if minute < 10 { 900 } else { 1000 })).collect();
        assert_eq!(growth(&looks, 60.0), Some(0.0));
        let grows: Vec<_> = (0..=60).map(|minute| look(minute, 1000 + minute as u64)).collect();
        assert_eq!(growth(&grows, 60.0), Some(1060.0 / 1020.0 - 1.0));
        assert_eq!(growth(&[], 60.0), None);
    }

    #[test]
    fn chance_gives_about_as_many_of_each_kind_as_it_should() {
        let few = (0..20_000).filter(|turn| chance(*turn) % 100 < VANISH).count();
        assert!((800..1200).contains(&few), "{few}");
    }
}
