//! Tokens of a window, each in its place: the likeliest of every step, as the published decoders take them.

use pteron_companion::Parakeet;

use super::{Engine, Said};
use crate::Result;

/// The tokens of the window that was heard last.
pub fn decode(engine: &mut dyn Engine, info: &Parakeet, places: usize) -> Result<Vec<Said>> {
    match engine.repeats() {
        true => collapsed(engine, info, places),
        false => transduced(engine, info, places),
    }
}

/// CTC: a token that is guessed in places side by side is said once.
fn collapsed(engine: &mut dyn Engine, info: &Parakeet, places: usize) -> Result<Vec<Said>> {
    let (mut said, mut guesses): (Vec<Said>, _) = (Vec::new(), Vec::new());
    let mut last = info.blank;
    let mut place = 0;
    while place < places {
        engine.guess(place, &mut guesses)?;
        for guess in guesses.iter().take(places - place) {
            match said.last_mut() {
                Some(before) if guess.token == last && last != info.blank => before.lasts += 1,
                _ if guess.token == info.blank => {}
                _ => said.push(Said { token: guess.token, place, lasts: 1 }),
            }
            last = guess.token;
            place += 1;
        }
    }
    Ok(said)
}

/// Transducers: a token changes what follows it; nothing moves on by its duration, and by one place where that is none.
fn transduced(engine: &mut dyn Engine, info: &Parakeet, places: usize) -> Result<Vec<Said>> {
    let (mut said, mut guesses): (Vec<Said>, _) = (Vec::new(), Vec::new());
    engine.begin()?;
    let (mut place, mut here) = (0, 0);
    while place < places {
        engine.guess(place, &mut guesses)?;
        let from = place;
        // Guesses hold until the text changes.
        while let Some(guess) = guesses.get(place - from).filter(|_| place < places) {
            if guess.token == info.blank {
                place += guess.lasts.unwrap_or(1).max(1);
                here = 0;
                continue;
            }
            let lasts = guess.lasts.unwrap_or(0);
            // Without durations a token is as long as its place.
            said.push(Said { token: guess.token, place, lasts: guess.lasts.unwrap_or(1) });
            engine.say(guess.token)?;
            here = if lasts == 0 { here + 1 } else { 0 };
            place += lasts;
            if here >= info.most_symbols {
                // A model that does not stop talking in one place is led on.
                place += 1;
                here = 0;
            }
            break;
        }
    }
    Ok(said)
}
