//! Parakeet's loop without a model: steps of decoders, windows that overlap, words and segments, over engines that say what
//! they are told to.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_companion::{Parakeet, TokenizerConfig, TokenizerFormat};
use pteron_llm::tokenizer::Tokenizer;
use pteron_speech::Result;
use pteron_speech::parakeet::decode::decode;
use pteron_speech::parakeet::merge::merge;
use pteron_speech::parakeet::words::{begins, segments, words};
use pteron_speech::parakeet::{Engine, Guess, Said, Transcriber};
use pteron_speech::segment::{Event, Segment};
use pteron_speech::sound::{Samples, SoundError};

const BLANK: u32 = 99;
const PIECES: [&str; 12] = ["<unk>", "▁a", "▁the", "▁cat", "▁sa", "t", "s", ".", ",", "▁dog", "▁ran", "?"];

fn tokenizer() -> Tokenizer {
    let pieces: Vec<_> = PIECES.iter().enumerate().map(|(at, piece)| (piece, -(at as f64))).collect();
    let space = serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": space, "post_processor": null, "decoder": space,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false},
    });
    let config = TokenizerConfig::default();
    Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &config).unwrap()
}

fn info(durations: &[usize]) -> Parakeet {
    Parakeet {
        mels: 4,
        frames: 12_000,
        subsampling: 8,
        blank: BLANK,
        durations: durations.into(),
        most_symbols: 3,
    }
}

fn said(token: u32, place: usize, lasts: usize) -> Said {
    Said { token, place, lasts }
}

/// Gives what stands in a table by place and tokens said there; many places at once, or one by one.
struct Table {
    rows: Vec<Vec<(u32, Option<usize>)>>,
    at_once: usize,
    /// Tokens said since the place changed.
    last: usize,
    here: usize,
    repeats: bool,
    asked: usize,
}

impl Table {
    fn new(rows: &[&[(u32, Option<usize>)]], at_once: usize, repeats: bool) -> Table {
        let rows = rows.iter().map(|row| row.to_vec()).collect();
        Table { rows, at_once, last: usize::MAX, here: 0, repeats, asked: 0 }
    }
}

impl Engine for Table {
    fn hear(&mut self, _: &[f32], _: usize) -> Result<usize> {
        Ok(self.rows.len())
    }

    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn say(&mut self, _: u32) -> Result<()> {
        self.here += 1;
        Ok(())
    }

    fn guess(&mut self, place: usize, out: &mut Vec<Guess>) -> Result<()> {
        if place != self.last {
            (self.last, self.here) = (place, 0);
        }
        self.asked += 1;
        out.clear();
        for (at, row) in self.rows.iter().enumerate().skip(place).take(self.at_once) {
            let number = if at == place { self.here } else { 0 };
            let (token, lasts) = *row.get(number).or(row.last()).unwrap();
            out.push(Guess { token, lasts });
        }
        Ok(())
    }

    fn repeats(&self) -> bool {
        self.repeats
    }
}

#[test]
fn durations_lead_from_place_to_place() {
    let d = |token, lasts| (token, Some(lasts));
    let rows: [&[_]; 8] = [
        &[d(1, 0), d(2, 2)],
        &[d(7, 1)], // passed over
        &[d(BLANK, 0)],
        &[d(BLANK, 3)],
        &[d(7, 1)],
        &[d(7, 1)],
        &[d(3, 0)], // does not stop: three times, then it is led on
        &[d(4, 9)], // beyond the end
    ];
    let wanted = [said(1, 0, 0), said(2, 0, 2), said(3, 6, 0), said(3, 6, 0), said(3, 6, 0), said(4, 7, 9)];
    let mut asked = Vec::new();
    for at_once in [1, 2, 3, 16] {
        let mut table = Table::new(&rows, at_once, false);
        assert_eq!(decode(&mut table, &info(&[0, 1, 2, 3, 9]), 8).unwrap(), wanted, "{at_once} at once");
        asked.push(table.asked);
    }
    assert!(asked[3] < asked[0], "places that are asked for together are asked for once: {asked:?}");
}

#[test]
fn without_durations_nothing_leads_on() {
    let d = |token| (token, None);
    let rows: [&[_]; 3] = [&[d(1), d(2), d(BLANK)], &[d(BLANK)], &[d(5)]];
    let wanted = [said(1, 0, 1), said(2, 0, 1), said(5, 2, 1), said(5, 2, 1), said(5, 2, 1)];
    for at_once in [1, 2, 16] {
        let mut table = Table::new(&rows, at_once, false);
        assert_eq!(decode(&mut table, &info(&[]), 3).unwrap(), wanted, "{at_once} at once");
    }
}

#[test]
fn a_token_that_goes_on_is_said_once() {
    let d = |token| (token, None);
    let rows = [BLANK, 1, 1, BLANK, 1, 2, 2, 2, BLANK].map(|token| [d(token)]);
    let rows: Vec<&[_]> = rows.iter().map(|row| &row[..]).collect();
    let wanted = [said(1, 1, 2), said(1, 4, 1), said(2, 5, 3)];
    for at_once in [1, 4, 16] {
        let mut table = Table::new(&rows, at_once, true);
        assert_eq!(decode(&mut table, &info(&[]), 9).unwrap(), wanted);
    }
    let mut nothing = Table::new(&[], 1, true);
    assert_eq!(decode(&mut nothing, &info(&[]), 0).unwrap(), []);
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn windows_that_hear_their_ends_badly_lose_nothing() {
    let mut dice = Dice(1);
    for round in 0..500 {
        // A text of tokens two to seven places apart.
        let mut place = 0;
        let mut truth = Vec::new();
        while place < 3000 {
            truth.push(said(1 + dice.roll(40) as u32, place, 2));
            place += 2 + dice.roll(6);
        }
        let overlap = 1312..1500;
        // Within a second of its end a window may say anything, or a little early or late; elsewhere it is right.
        let mut hear = |from: usize, to: usize, bad: std::ops::Range<usize>| -> Vec<Said> {
            let heard = truth.iter().filter(|said| (from..to).contains(&said.place));
            heard
                .filter_map(|token| match bad.contains(&token.place) {
                    true if dice.roll(3) == 0 => None,
                    true => Some(said(50 + dice.roll(40) as u32, token.place, 2)),
                    false => Some(Said { place: token.place + dice.roll(2), ..*token }),
                })
                .collect()
        };
        let mut before = hear(0, 1500, 1488..1500);
        let after = hear(1312, 3000, 1312..1324);
        merge(&mut before, &after, overlap, |_| true);
        let tokens = |list: &[Said]| list.iter().map(|said| said.token).collect::<Vec<_>>();
        assert_eq!(tokens(&before), tokens(&truth), "round {round}");
    }
}

#[test]
fn windows_that_agree_on_nothing_are_cut_between_words() {
    // Even tokens begin words.
    let begins = |token: u32| token.is_multiple_of(2);
    let mut before = vec![said(2, 90, 1), said(4, 104, 1), said(5, 108, 1), said(7, 112, 1), said(6, 116, 1)];
    let after = [said(8, 101, 1), said(9, 106, 1), said(10, 115, 1), said(12, 125, 1)];
    merge(&mut before, &after, 100..120, begins);
    // The middle, 110, is inside of words of both.
    let wanted = [
        said(2, 90, 1),
        said(4, 104, 1),
        said(5, 108, 1),
        said(7, 112, 1),
        said(10, 115, 1),
        said(12, 125, 1),
    ];
    assert_eq!(before, wanted);
    // Silence on one side takes nothing away from the other, but for a second at its own end.
    let mut silent = Vec::new();
    merge(&mut silent, &[said(8, 101, 1), said(9, 115, 1), said(10, 290, 1)], 100..300, begins);
    assert_eq!(silent, [said(9, 115, 1), said(10, 290, 1)]);
    merge(&mut silent, &[said(12, 320, 1)], 100..300, begins);
    assert_eq!(silent, [said(9, 115, 1), said(12, 320, 1)]);
    let mut alone = vec![said(2, 3, 1)];
    merge(&mut alone, &[], 100..120, begins);
    assert_eq!(alone, [said(2, 3, 1)]);
    let mut first = Vec::new();
    merge(&mut first, &after, 0..0, begins);
    assert_eq!(first, after);
}

#[test]
fn words_and_sentences_have_their_times() {
    let tokenizer = tokenizer();
    // "the cats. a dog? ran" with a pause of three seconds before the last.
    let tokens = [
        said(2, 0, 2),
        said(3, 5, 3),
        said(6, 8, 2),
        said(7, 14, 1), // a mark far behind its word is taken to be where that ends
        said(1, 20, 0),
        said(9, 22, 3),
        said(11, 25, 1),
        said(10, 65, 2),
    ];
    let spoken = words(&tokenizer, &tokens, 0.08);
    let shown: Vec<_> = spoken.iter().map(|spoken| (spoken.word.text.as_str(), spoken.tokens)).collect();
    assert_eq!(shown, [(" the", 1), (" cats.", 3), (" a", 1), (" dog?", 2), (" ran", 1)]);
    let times: Vec<_> = spoken.iter().map(|spoken| (spoken.word.start, spoken.word.end)).collect();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    for ((start, end), (wanted_start, wanted_end)) in
        times.iter().zip([(0.0, 0.16), (0.4, 0.8), (1.6, 1.68), (1.76, 2.0), (5.2, 5.36)])
    {
        assert!(near(*start, wanted_start) && near(*end, wanted_end), "{times:?}");
    }
    let told = segments(&spoken, &tokens);
    let texts: Vec<_> = told.iter().map(|segment| segment.text.as_str()).collect();
    assert_eq!(texts, [" the cats.", " a dog?", " ran"]);
    assert_eq!(told[0].tokens, [2, 3, 6, 7]);
    assert!(near(told[1].start, 1.6) && near(told[1].end, 2.0));
    assert_eq!(told[1].words.len(), 2);
    // Without marks a segment ends at a pause, or when it is long.
    let endless: Vec<Said> = (0..1000).map(|at| said(1, at * 10, 1)).collect();
    let told = segments(&words(&tokenizer, &endless, 0.08), &endless);
    assert!(
        told.len() > 20 && told.iter().all(|segment| segment.end - segment.start <= 30.0),
        "{}",
        told.len()
    );
    assert!(begins(&tokenizer, 2) && !begins(&tokenizer, 5));
}

/// Says a script by the place of the sound, whatever the features; windows come with the stride that the loop has.
struct Script {
    script: Vec<Said>,
    stride: usize,
    windows: usize,
    longest: usize,
    start: usize,
    places: usize,
}

impl Engine for Script {
    fn hear(&mut self, features: &[f32], frames: usize) -> Result<usize> {
        assert_eq!(features.len(), 4 * frames);
        (self.start, self.places) = (self.windows * self.stride, frames.div_ceil(8));
        self.windows += 1;
        self.longest = self.longest.max(frames);
        Ok(self.places)
    }

    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn say(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn guess(&mut self, place: usize, out: &mut Vec<Guess>) -> Result<()> {
        let at = |place: usize| self.script.iter().find(|said| said.place == self.start + place);
        let guess = at(place).map(|said| Guess { token: said.token, lasts: Some(said.lasts) });
        // What began before the window is heard as something else.
        let strange = Guess { token: 6, lasts: Some(1) };
        let guess = if place == 0 && self.start > 0 { Some(strange) } else { guess };
        *out = vec![guess.unwrap_or(Guess { token: BLANK, lasts: Some(1) })];
        Ok(())
    }

    fn repeats(&self) -> bool {
        false
    }
}

/// So many samples of something, and how many of them were held at once.
struct Noise(usize);

impl Samples for Noise {
    fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, SoundError> {
        let block = self.0.min(16_000);
        out.extend((0..block).map(|n| ((n * 7919 % 1000) as f32 / 1000.0 - 0.5) * 0.1));
        self.0 -= block;
        Ok(block > 0)
    }
}

fn run(script: &mut Script, samples: usize) -> (Vec<Segment>, f64) {
    let (mut told, mut heard) = (Vec::new(), 0.0);
    let (tokenizer, info) = (tokenizer(), info(&[0, 1, 2, 3, 4]));
    Transcriber::new(script, &info, &tokenizer, true)
        .run(&mut Noise(samples), &mut |event| match event {
            Event::Segment(segment) => {
                assert!(segment.start >= heard - 130.0, "told late");
                told.push(segment.clone());
            }
            Event::Heard(seconds) => heard = seconds,
            Event::Language(..) => {}
        })
        .unwrap();
    (told, heard)
}

fn script(script: Vec<Said>) -> Script {
    Script { script, stride: 1312, windows: 0, longest: 0, start: 0, places: 0 }
}

#[test]
fn ten_minutes_in_windows_are_told_once_and_in_order() {
    // Sentences of four words, with a minute of silence in every second one.
    let (mut place, mut dice, mut tokens) = (3usize, Dice(5), Vec::new());
    while place < 7400 {
        if (place / 750).is_multiple_of(2) {
            tokens.push(said([1, 2, 3, 9, 10][dice.roll(5)], place, 3));
            if tokens.len().is_multiple_of(5) {
                tokens.push(said(7, place + 3, 1));
            }
        }
        place += 5 + dice.roll(4);
    }
    let mut engine = script(tokens.clone());
    let (told, heard) = run(&mut engine, 600 * 16_000);
    let said: Vec<u32> = told.iter().flat_map(|segment| segment.tokens.clone()).collect();
    assert_eq!(said, tokens.iter().map(|said| said.token).collect::<Vec<_>>());
    assert_eq!((engine.windows, engine.longest, heard), (6, 12_000, 600.0));
    let words: Vec<_> = told.iter().flat_map(|segment| &segment.words).collect();
    assert!(words.windows(2).all(|pair| pair[0].start <= pair[1].start));
    let in_silence = |time: f64| !((time / 0.08) as usize / 750).is_multiple_of(2);
    assert!(!words.iter().any(|word| in_silence(word.start + 0.01)), "words where nobody speaks");
    assert!(told.len() > 50);
}

#[test]
fn short_sounds_are_one_window_or_none() {
    for (samples, windows) in
        [(0, 0), (159, 0), (160, 1), (16_000, 1), (120 * 16_000, 1), (120 * 16_000 + 160, 2)]
    {
        let mut engine = script(vec![said(2, 0, 1)]);
        let (told, heard) = run(&mut engine, samples);
        assert_eq!(engine.windows, windows, "{samples} samples");
        assert_eq!(told.len(), windows.min(1), "{samples} samples");
        assert_eq!(heard, samples as f64 / 16_000.0);
    }
}
