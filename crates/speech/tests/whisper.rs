//! Whisper's loop without a model: rules token by token, and windows over an engine that says what it is told to.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_companion::{TokenizerConfig, TokenizerFormat, Whisper, WhisperTokens};
use pteron_llm::tokenizer::Tokenizer;
use pteron_speech::segment::Event;
use pteron_speech::sound::Samples;
use pteron_speech::sound::SoundError;
use pteron_speech::whisper::beams::Beams;
use pteron_speech::whisper::cut::{Cut, Piece, cut};
use pteron_speech::whisper::draws::Draws;
use pteron_speech::whisper::fallback::{Measures, Thresholds, compression};
use pteron_speech::whisper::features::{Ceiling, Features};
use pteron_speech::whisper::rules::Rules;
use pteron_speech::whisper::search::{Branch, Search, Text};
use pteron_speech::whisper::{Engine, Language, Settings, Task, Transcriber};
use pteron_speech::{Result, SpeechError};

/// Ten words, then the marks, then times.
fn tokens() -> WhisperTokens {
    WhisperTokens {
        end: 10,
        start: 11,
        languages: ["en", "de"].map(str::to_owned).into(),
        translate: 14,
        transcribe: 15,
        previous: 17,
        no_speech: 18,
        no_times: 19,
        first_time: 20,
    }
}

const VOCABULARY: usize = 20 + 1501;

/// The ids that may follow a text, words as they are, times by their number behind 20.
fn allowed(rules: &Rules, text: &[u32]) -> Vec<u32> {
    let mut logits = vec![0.0; VOCABULARY];
    // All times together must not outweigh the words here.
    logits[20..].fill(-20.0);
    rules.apply(text, &mut logits);
    (0..VOCABULARY as u32).filter(|&id| logits[id as usize] > f32::NEG_INFINITY).collect()
}

#[test]
fn times_come_in_pairs_and_never_go_back() {
    let rules = Rules::plain(&tokens(), vec![7, 14, 15, 11, 17, 18, 16], vec![3, 10], true);
    let words = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13];
    let times = |from: u32, to: u32| (from..=to).collect::<Vec<u32>>();
    // A window begins with a time of its first second.
    assert_eq!(allowed(&rules, &[]), times(20, 70));
    // Behind that come words, never another time.
    assert_eq!(allowed(&rules, &[25]), words);
    // Then words or a later time.
    let after_word = [&words[..], &times(26, 1520)[..]].concat();
    assert_eq!(allowed(&rules, &[25, 4]), after_word);
    // A time behind words has a twin, which may be the same, or is the end.
    assert_eq!(allowed(&rules, &[25, 4, 30]), [&[10, 12, 13][..], &times(30, 1520)].concat());
    assert_eq!(allowed(&rules, &[25, 4, 30, 31]), words);
    assert_eq!(allowed(&rules, &[25, 4, 30, 31, 5])[12], 32);
}

#[test]
fn times_that_outweigh_every_word_are_taken() {
    let rules = Rules::plain(&tokens(), vec![], vec![], true);
    let mut logits = vec![f32::NEG_INFINITY; VOCABULARY];
    logits[4] = 1.0;
    logits[100..110].fill(0.0); // ten of them together weigh e^2.3
    rules.apply(&[20, 5], &mut logits);
    assert_eq!(logits[4], f32::NEG_INFINITY);
    logits[4] = 3.0;
    rules.apply(&[20, 5], &mut logits);
    assert_eq!(logits[4], 3.0);
}

#[test]
fn texts_without_times_begin_with_words() {
    let rules = Rules::plain(&tokens(), vec![7], vec![3, 10], false);
    let first = allowed(&rules, &[]);
    assert!(!first.contains(&3) && !first.contains(&10) && !first.contains(&7) && first.contains(&4));
    assert!(allowed(&rules, &[4]).contains(&10));
}

/// Logits of shares, all others impossible.
fn shares(of: &[(usize, f32)]) -> Vec<f32> {
    let mut logits = vec![f32::NEG_INFINITY; VOCABULARY];
    of.iter().for_each(|&(id, share)| logits[id] = share.ln());
    logits
}

fn branch(from: usize, token: u32) -> Branch {
    Branch { from, token }
}

#[test]
fn a_text_sums_what_it_says_and_ends() {
    let rules = Rules::plain(&tokens(), vec![], vec![], false);
    let mut beams = Beams::new(&rules, 1, 10);
    let likely = |id: usize| [shares(&[(id, 0.75), (9, 0.25)])];
    assert_eq!(beams.next(&mut likely(4)), [branch(0, 4)]);
    assert_eq!(beams.next(&mut likely(5)), [branch(0, 5)]);
    assert_eq!(beams.next(&mut likely(10)), []);
    let text = beams.finish();
    assert_eq!(text.tokens, [4, 5]);
    assert!((text.mean_log_probability() - 0.75f32.ln()).abs() < 1e-6);
}

#[test]
fn a_second_best_beginning_wins_by_what_follows_it() {
    let rules = Rules::plain(&tokens(), vec![], vec![], false);
    let mut beams = Beams::new(&rules, 2, 10);
    assert_eq!(beams.next(&mut [shares(&[(1, 0.6), (2, 0.4)])]), [branch(0, 1), branch(0, 2)]);
    // 0.6 goes on with 0.3 at most, 0.4 with 0.9.
    let behind = [shares(&[(3, 0.3), (4, 0.3), (5, 0.2), (6, 0.2)]), shares(&[(7, 0.9), (10, 0.1)])];
    assert_eq!(beams.next(&mut behind.clone()), [branch(1, 7), branch(0, 3)]);
    // Both end, and no third is asked for.
    assert_eq!(beams.next(&mut [shares(&[(10, 1.0)]), shares(&[(10, 1.0)])]), []);
    let text = beams.finish();
    assert_eq!(text.tokens, [2, 7]);
    assert!((text.log_probability - (0.4f64 * 0.9).ln()).abs() < 1e-6);
    // One beam takes the likeliest each time.
    let mut greedy = Beams::new(&rules, 1, 10);
    assert_eq!(greedy.next(&mut [shares(&[(1, 0.6), (2, 0.4)])]), [branch(0, 1)]);
    assert_eq!(greedy.next(&mut behind[..1].to_vec()), [branch(0, 3)]);
}

#[test]
fn a_text_that_is_cut_off_stands_in_for_ends_that_were_not_reached() {
    let rules = Rules::plain(&tokens(), vec![], vec![], false);
    let mut beams = Beams::new(&rules, 2, 2);
    beams.next(&mut [shares(&[(1, 0.9), (10, 0.1)])]);
    // The end was among the two best then, and has a share of 0.1.
    assert_eq!(beams.next(&mut [shares(&[(2, 1.0)])]), []);
    assert_eq!(beams.finish().tokens, [1, 2]);
    // Where nothing but ends may follow, no text without one counts.
    let mut beams = Beams::new(&rules, 3, 9);
    beams.next(&mut [shares(&[(1, 0.9), (2, 0.1)])]);
    assert_eq!(beams.next(&mut [shares(&[(10, 1.0)]), shares(&[(10, 1.0)])]), []);
    let text = beams.finish();
    assert_eq!(text.tokens, [1]);
    assert!((text.log_probability - 0.9f64.ln()).abs() < 1e-6);
}

/// Logits behind a text of a model that has four words and the end, by a hash of the text.
fn chance(text: &[u32], seed: u64) -> Vec<f32> {
    let mut logits = vec![f32::NEG_INFINITY; VOCABULARY];
    for id in [0, 1, 2, 3, 10] {
        let folded = text.iter().chain([&id]).fold(seed, |hash, &id| {
            let mixed = (hash ^ u64::from(id + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        });
        logits[id as usize] = (folded % 1000) as f32 / 250.0;
    }
    logits
}

/// Every text of at most three tokens that ends by itself, and those that are cut off there.
fn every(rules: &Rules, seed: u64, text: &Text, all: &mut Vec<Text>) {
    let mut logits = chance(&text.tokens, seed);
    rules.apply(&text.tokens, &mut logits);
    let total: f32 = logits.iter().map(|logit| logit.exp()).sum::<f32>().ln();
    for id in [0, 1, 2, 3, 10] {
        let mut longer = text.clone();
        longer.log_probability += f64::from(logits[id as usize] - total);
        match id {
            10 => all.push(longer),
            _ => {
                longer.tokens.push(id);
                if longer.tokens.len() == 3 { all.push(longer) } else { every(rules, seed, &longer, all) }
            }
        }
    }
}

#[test]
fn wide_beams_find_the_best_of_all_texts() {
    let rules = Rules::plain(&tokens(), vec![], vec![], false);
    let share = |text: &Text| text.log_probability / text.tokens.len().max(1) as f64;
    let mut unlike_greedy = 0;
    for seed in 0..100 {
        let found = |width: usize| {
            let mut beams = Beams::new(&rules, width, 3);
            let mut texts = vec![vec![]];
            loop {
                let mut logits: Vec<Vec<f32>> = texts.iter().map(|text| chance(text, seed)).collect();
                let branches = beams.next(&mut logits);
                if branches.is_empty() {
                    return beams.finish();
                }
                texts = branches.iter().map(|to| [&texts[to.from][..], &[to.token]].concat()).collect();
            }
        };
        let mut all = Vec::new();
        every(&rules, seed, &Text::default(), &mut all);
        let best = all.iter().max_by(|a, b| share(a).total_cmp(&share(b))).unwrap();
        let wide = found(32);
        assert_eq!(wide.tokens, best.tokens, "seed {seed}");
        assert!((wide.log_probability - best.log_probability).abs() < 1e-4);
        unlike_greedy += usize::from(found(1).tokens != wide.tokens);
    }
    assert!(unlike_greedy > 20, "the likeliest token is always right here: {unlike_greedy}");
}

#[test]
fn numbers_that_are_none_end_a_text() {
    fn check(mut search: impl FnMut() -> Box<dyn FnMut(Vec<f32>) -> Vec<Branch>>) {
        assert_eq!(search()(vec![f32::NAN; VOCABULARY]), []);
        let mut logits = vec![0.0; VOCABULARY];
        logits[30] = f32::NAN;
        let branches = search()(logits);
        assert!(!branches.is_empty() && branches.iter().all(|branch| branch.token != 30));
        assert_eq!(search()(vec![]), []);
    }
    let rules: &'static Rules = Box::leak(Box::new(Rules::plain(&tokens(), vec![], vec![], true)));
    for width in [1, 5] {
        check(|| {
            let mut beams = Beams::new(rules, width, 10);
            Box::new(move |logits| beams.next(&mut [logits]))
        });
        check(|| {
            let mut draws = Draws::new(rules, 0.6, 0..width as u64, 10);
            Box::new(move |logits| draws.next(&mut [logits]))
        });
    }
}

#[test]
fn the_same_seed_draws_the_same_text_alone_and_beside_others() {
    let rules = Rules::plain(&tokens(), vec![], vec![], false);
    let draw = |seeds: &[u64]| {
        let mut draws = Draws::new(&rules, 1.0, seeds.iter().copied(), 30);
        let mut texts: Vec<Vec<u32>> = vec![vec![]; seeds.len()];
        let mut count = 1;
        for _ in 0..20 {
            let branches = draws.next(&mut vec![vec![0.0; 10]; count]);
            // None of these tokens is the end: all go on, in their order.
            texts.iter_mut().zip(&branches).for_each(|(text, branch)| text.push(branch.token));
            count = branches.len();
        }
        texts
    };
    let [first, second, both] = [draw(&[1]), draw(&[2]), draw(&[1, 2])];
    assert_eq!(both, [&first[..], &second[..]].concat());
    assert_ne!(first, second);
}

#[test]
fn windows_are_cut_where_times_meet() {
    let piece = |start: f64, end: f64, tokens: &[u32]| Piece { start, end, tokens: tokens.to_vec() };
    // Two segments, and the beginning of a third that is heard again.
    assert_eq!(
        cut(&[20, 1, 70, 70, 2, 120, 120, 3], 20, 3000),
        Cut {
            pieces: vec![piece(0.0, 1.0, &[20, 1, 70]), piece(1.0, 2.0, &[70, 2, 120])],
            advance: 200,
            ends_open: true
        }
    );
    // A single time at the end: nothing is said behind it.
    assert_eq!(
        cut(&[20, 1, 70, 70, 2, 120], 20, 3000),
        Cut {
            pieces: vec![piece(0.0, 1.0, &[20, 1, 70]), piece(1.0, 2.0, &[70, 2, 120])],
            advance: 3000,
            ends_open: false
        }
    );
    // No pair: one segment, up to the last time or to the end.
    assert_eq!(
        cut(&[20, 1, 2, 70], 20, 3000),
        Cut { pieces: vec![piece(0.0, 1.0, &[20, 1, 2, 70])], advance: 3000, ends_open: false }
    );
    assert_eq!(
        cut(&[20, 1, 2], 20, 1234),
        Cut { pieces: vec![piece(0.0, 12.34, &[20, 1, 2])], advance: 1234, ends_open: true }
    );
    // Times beyond the window, and times that go nowhere, do not leave it and do not stay.
    assert_eq!(cut(&[20, 1, 1500, 1500, 2], 20, 100).advance, 100);
    assert_eq!(cut(&[20, 20, 1], 20, 500).advance, 500);
    assert_eq!(cut(&[], 20, 700), Cut { pieces: vec![piece(0.0, 7.0, &[])], advance: 700, ends_open: true });
}

#[test]
fn loops_and_guesses_are_tried_again_and_silence_is_not() {
    let thresholds = Thresholds::default();
    let text = |compression, log_probability, no_speech| Measures { compression, log_probability, no_speech };
    assert!(thresholds.accept(&text(1.5, -0.3, 0.0)));
    assert!(thresholds.accept(&text(1.5, -0.3, 0.9)) && !thresholds.is_silent(&text(1.5, -0.3, 0.9)));
    assert!(!thresholds.accept(&text(2.5, -0.3, 0.0)) && !thresholds.accept(&text(1.5, -1.1, 0.0)));
    assert!(thresholds.accept(&text(1.5, -1.1, 0.9)) && thresholds.is_silent(&text(1.5, -1.1, 0.9)));
    let tried = [text(9.0, -0.1, 0.0), text(1.0, -3.0, 0.0), text(1.0, -2.0, 0.0)];
    assert_eq!(thresholds.least_bad(&tried, |text| *text), Some(&tried[2]));
    assert_eq!(thresholds.least_bad(&tried[..1], |text| *text), Some(&tried[0]));
    assert!(compression(&"and so on ".repeat(20)) > 2.4);
    assert!(compression("ask not what your country can do for you") < 1.5 && compression("") == 0.0);
}

/// Words are bytes `a` to `j`.
fn tokenizer() -> Tokenizer {
    let words = ["YQ==", "Yg==", "Yw==", "IA==", "ZQ==", "Zg==", "Zw==", "aA==", "aQ==", "ag=="];
    let lines: String = words.iter().enumerate().map(|(id, word)| format!("{word} {id}\n")).collect();
    // Marks that this vocabulary cannot spell are no reason to fail; every byte else is a word behind the times.
    let rest = (0u32..=255).filter(|byte| !b"abc efghij".contains(&(*byte as u8)));
    let lines = rest.enumerate().fold(lines, |lines, (n, byte)| {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (high, low) =
            (alphabet[(byte >> 2) as usize] as char, alphabet[((byte & 3) << 4) as usize] as char);
        format!("{lines}{high}{low}== {}\n", VOCABULARY + n)
    });
    Tokenizer::load(TokenizerFormat::Tiktoken, lines.as_bytes(), &TokenizerConfig::default()).unwrap()
}

fn info() -> Whisper {
    Whisper { mels: 80, frames: 3000, positions: 64, tokens: tokens(), alignment_heads: Vec::new() }
}

/// Says prepared texts, one a window and temperature, and notes what it was asked.
#[derive(Default)]
struct Parrot {
    texts: Vec<Vec<u32>>,
    windows: usize,
    prompts: Vec<Vec<u32>>,
    prompt: Vec<u32>,
    no_speech: bool,
    unsure: bool,
}

impl Parrot {
    fn new(texts: &[&[u32]]) -> Parrot {
        Parrot { texts: texts.iter().map(|text| text.to_vec()).collect(), ..Parrot::default() }
    }
}

impl Engine for Parrot {
    fn hear(&mut self, features: &[f32]) -> Result<()> {
        assert_eq!(features.len(), 80 * 3000);
        self.windows += 1;
        Ok(())
    }

    fn read(&mut self, tokens: &[u32], position: usize, logits: &mut Vec<f32>) -> Result<()> {
        if position == 0 {
            self.prompt = tokens.to_vec();
        } else {
            assert_eq!(position, self.prompt.len());
            self.prompt.extend(tokens);
        }
        self.prompts.push(self.prompt.clone());
        self.say(0, logits);
        Ok(())
    }

    fn follow(&mut self, branches: &[Branch], position: usize, logits: &mut Vec<Vec<f32>>) -> Result<()> {
        logits.resize_with(branches.len(), Vec::new);
        logits.iter_mut().for_each(|logits| self.say(position + 1 - self.prompt.len(), logits));
        Ok(())
    }
}

impl Parrot {
    /// What follows so many tokens.
    fn say(&self, said: usize, logits: &mut Vec<f32>) {
        *logits = vec![-10.0; VOCABULARY];
        logits[13] = 5.0; // it hears German
        if self.no_speech {
            logits[18] = 30.0;
        }
        let window = self.texts.get(self.windows - 1).map_or(&[][..], Vec::as_slice);
        let next = window.get(said).copied().unwrap_or(10);
        logits[next as usize] = if self.unsure { -8.0 } else { 20.0 };
    }
}

/// So many seconds of something.
struct Noise(usize);

impl Samples for Noise {
    fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, SoundError> {
        let block = self.0.min(16_000);
        out.extend((0..block).map(|n| ((n * 7919 % 1000) as f32 / 1000.0 - 0.5) * 0.1));
        self.0 -= block;
        Ok(block > 0)
    }
}

/// Segments with their times, and the language.
type Said = (Vec<(f64, f64, String)>, String);

fn run(parrot: &mut Parrot, seconds: usize, settings: Settings) -> Result<Said> {
    let (tokenizer, info) = (tokenizer(), info());
    let mut noise = Noise(seconds * 16_000);
    let mut features = Features::new(&mut noise, 80, Ceiling::of_stream());
    let (mut segments, mut language) = (Vec::new(), String::new());
    Transcriber::new(parrot, &info, &tokenizer, settings)?.run(&mut features, &mut |event| match event {
        Event::Language(code, _) => language = code.to_owned(),
        Event::Segment(segment) => segments.push((segment.start, segment.end, segment.text.clone())),
        Event::Heard(_) => {}
    })?;
    Ok((segments, language))
}

#[test]
fn windows_follow_the_times_and_go_on_from_the_text_before() {
    // Heard up to 20 s, then 30 s from there on, then the rest.
    let mut parrot = Parrot::new(&[&[20, 0, 1, 520, 520, 2, 1020, 1020, 4], &[20, 5, 1520], &[20, 6, 70]]);
    let (segments, language) = run(&mut parrot, 55, Settings::default()).unwrap();
    let wanted = [(0.0, 10.0, "ab"), (10.0, 20.0, "c"), (20.0, 50.0, "f"), (50.0, 51.0, "g")];
    assert_eq!(segments, wanted.map(|(start, end, text)| (start, end, text.to_owned())));
    assert_eq!((parrot.windows, language.as_str()), (3, "de"));
    // Language, then each window: what was said before, the start, German, the task.
    assert_eq!(parrot.prompts[1], [11]);
    let before = [17, 20, 0, 1, 520, 520, 2, 1020, 11];
    assert!(parrot.prompts.contains(&before.to_vec()), "{:?}", parrot.prompts);
}

#[test]
fn each_window_may_begin_anew_and_with_a_prompt() {
    let settings = Settings { conditioned: false, prompt: Some("abc".to_owned()), ..Settings::default() };
    let mut parrot = Parrot::new(&[&[20, 0, 1520], &[20, 1, 70]]);
    run(&mut parrot, 40, settings).unwrap();
    assert!(parrot.prompts.contains(&vec![17, 3, 0, 1, 2, 11]), "{:?}", parrot.prompts);
    assert!(!parrot.prompts.iter().any(|prompt| prompt.contains(&1520)));
}

#[test]
fn silence_says_nothing() {
    let mut parrot =
        Parrot { no_speech: true, unsure: true, ..Parrot::new(&[&[20, 0, 1520], &[20, 1, 1520]]) };
    let (segments, _) = run(&mut parrot, 60, Settings::default()).unwrap();
    assert!(segments.is_empty() && parrot.windows == 2, "{segments:?}");
}

#[test]
fn no_sound_is_no_text() {
    let mut parrot = Parrot::new(&[]);
    assert_eq!(run(&mut parrot, 0, Settings::default()).unwrap().0, []);
    assert_eq!(parrot.windows, 0);
}

#[test]
fn a_language_that_nobody_knows_is_refused() {
    let known = |code: &str| Settings { language: Language::Known(code.to_owned()), ..Settings::default() };
    let refused = run(&mut Parrot::new(&[]), 1, known("tlh"));
    assert!(matches!(refused, Err(SpeechError::Language { .. })));
    let mut parrot = Parrot::new(&[&[20, 0, 50]]);
    let settings = Settings { task: Task::Translate, ..known("en") };
    assert_eq!(run(&mut parrot, 1, settings).unwrap().1, "en");
    assert!(parrot.prompts.iter().any(|prompt| prompt.ends_with(&[11, 12, 14])), "{:?}", parrot.prompts);
}

mod words {
    use super::{Measures, tokenizer};
    use pteron_speech::segment::Segment;
    use pteron_speech::whisper::words::{Scores, Timing, cheapest, place, split, timed, token_places};

    #[test]
    fn the_cheapest_way_goes_through_the_valleys() {
        #[rustfmt::skip]
        let costs = [
            0.0, 0.0, 9.0, 9.0, 9.0,
            9.0, 9.0, 0.0, 9.0, 9.0,
            9.0, 9.0, 9.0, 0.0, 0.0,
        ];
        assert_eq!(cheapest(&costs, 5), [(0, 0), (0, 1), (1, 2), (2, 3), (2, 4)]);
        assert_eq!(cheapest(&[1.0; 3], 1), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(cheapest(&[1.0; 3], 3), [(0, 0), (0, 1), (0, 2)]);
        assert_eq!(cheapest(&[], 3), []);
    }

    /// Heads that look at a band of places, each token at its own.
    fn scores(bands: &[std::ops::Range<usize>], places: usize) -> Scores {
        let row = |band: &std::ops::Range<usize>| {
            let band = band.clone();
            (0..places).map(move |place| if band.contains(&place) { 6.0 } else { 0.0 })
        };
        let head: Vec<f32> = bands.iter().flat_map(row).collect();
        Scores { heads: vec![head.clone(), head], places }
    }

    #[test]
    fn tokens_begin_where_their_heads_begin_to_look() {
        let bands = [0..1, 0..20, 20..50, 50..80, 80..100, 99..100];
        let found = token_places(&scores(&bands, 100), 6, 1, 100);
        assert_eq!(found.len(), 4);
        for (found, band) in found.iter().zip(&bands[1..]) {
            assert!(found.abs_diff(band.start) <= 3, "{found} for {band:?}");
        }
        // Places without sound do not count, and nothing at all is no reason to fail.
        assert!(token_places(&scores(&bands, 100), 6, 1, 60).iter().all(|&place| place < 60));
        assert_eq!(token_places(&Scores::default(), 4, 1, 100), [0, 0]);
        assert_eq!(token_places(&scores(&bands, 100), 6, 1, 0), [0; 4]);
        let broken = Scores { heads: vec![vec![f32::NAN; 600]], places: 100 };
        assert_eq!(token_places(&broken, 6, 1, 100).len(), 4);
    }

    #[test]
    fn words_begin_with_spaces_and_marks() {
        let tokenizer = tokenizer();
        let id = |text: &str| tokenizer.id_of(text).unwrap();
        let tokens: Vec<u32> = ["a", "b", " ", "c", "a", ".", " ", "b"].iter().map(|text| id(text)).collect();
        let words = |language| split(&tokenizer, &tokens, language);
        let spaced = [("ab", 2), (" ca", 3), (".", 1), (" b", 2)];
        assert_eq!(words("en"), spaced.map(|(word, count)| (word.to_owned(), count)));
        assert_eq!(words("ja").len(), 8);
    }

    fn segment(start: f64, end: f64, tokens: &[u32]) -> Segment {
        Segment {
            start,
            end,
            text: String::new(),
            tokens: tokens.to_vec(),
            temperature: 0.0,
            measures: Some(Measures { compression: 1.0, log_probability: 0.0, no_speech: 0.0 }),
            words: Vec::new(),
        }
    }

    #[test]
    fn words_go_to_their_segments_with_their_marks() {
        let words = [(" Ask", 1), (" not", 1), (".", 1), (" What", 1), (" \"", 1), ("if", 1)];
        let words = words.map(|(word, count)| (word.to_owned(), count)).to_vec();
        let timings = timed(words, &[0, 10, 25, 30, 50, 60, 65, 80]);
        assert_eq!(timings[1], Timing { word: " not".to_owned(), tokens: 1, start: 0.2, end: 0.5 });
        let mut segments =
            [segment(100.0, 100.6, &[20, 1, 2, 3, 50]), segment(100.6, 101.4, &[50, 4, 5, 6, 90])];
        let mut last_end = 100.0;
        place(&mut segments, timings, 10, 100.0, &mut last_end);
        let told = |segment: &Segment| segment.words.iter().map(|word| word.text.clone()).collect::<Vec<_>>();
        assert_eq!(told(&segments[0]), [" Ask", " not."]);
        assert_eq!(told(&segments[1]), [" What", " \"if"]);
        assert_eq!((segments[0].start, segments[0].end), (100.0, 100.5));
        assert!((last_end - segments[1].end).abs() < 1e-9);
        assert!(segments[1].words.iter().all(|word| word.start <= word.end));
    }

    #[test]
    fn a_first_word_does_not_take_the_pause_before_it() {
        let words =
            [(" Well", 1), (" so", 1), (" it", 1), (" is", 1)].map(|(word, count)| (word.to_owned(), count));
        // The first seems to last eight seconds.
        let timings = timed(words.to_vec(), &[0, 400, 410, 420, 430]);
        let mut segments = [segment(0.0, 9.0, &[20, 1, 2, 3, 4, 70])];
        place(&mut segments, timings, 10, 0.0, &mut 0.0);
        let first = &segments[0].words[0];
        assert!(first.end - first.start < 1.0 && first.start > 7.0, "{first:?}");
        assert_eq!(segments[0].start, first.start);
    }
}
