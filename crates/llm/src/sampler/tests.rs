//! Laws of the sampler; the distributions themselves are held against vectors in `tests/vectors.rs`.

use super::*;

fn sampler(settings: SamplerSettings) -> Sampler {
    Sampler::new(settings, 7).unwrap()
}

/// Logits without a pattern, some of them equal.
pub(super) fn logits(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 / 512.0 - 4.0).collect()
}

#[test]
fn greedy_takes_the_first_of_the_largest() {
    let mut greedy = sampler(SamplerSettings::greedy());
    assert_eq!(greedy.sample(&[1.0, 3.0, 2.0, 3.0], &[]), Ok(1));
    assert_eq!(greedy.sample(&[f32::NEG_INFINITY, -1.0], &[]), Ok(1));
    let penalised = SamplerSettings { presence_penalty: 1.0, ..SamplerSettings::greedy() };
    assert_eq!(sampler(penalised).sample(&[1.0, 3.0, 2.5], &[1]), Ok(2));
}

#[test]
fn penalties_tell_what_was_read_from_what_was_said() {
    let logits = [1.0, 3.0, 2.5, 2.0];
    let with = |settings: SamplerSettings| sampler(settings).after_prompt(2);
    let presence = SamplerSettings { presence_penalty: 1.0, ..SamplerSettings::greedy() };
    assert_eq!(with(presence.clone()).sample(&logits, &[1, 1]), Ok(1));
    assert_eq!(with(presence).sample(&logits, &[1, 1, 1]), Ok(2));
    let frequency = SamplerSettings { frequency_penalty: 0.4, ..SamplerSettings::greedy() };
    assert_eq!(with(frequency.clone()).sample(&logits, &[1, 1, 1]), Ok(1));
    assert_eq!(with(frequency).sample(&logits, &[1, 1, 1, 1]), Ok(2));
    let repetition = SamplerSettings { repetition_penalty: 2.0, ..SamplerSettings::greedy() };
    assert_eq!(with(repetition).sample(&logits, &[1]), Ok(2));
}

#[test]
fn what_cannot_be_sampled_is_an_error() {
    let mut any = sampler(SamplerSettings::default());
    assert_eq!(any.sample(&[], &[]), Err(SamplerError::Empty));
    assert!(matches!(any.sample(&[0.0, f32::NAN], &[]), Err(SamplerError::NotANumber { token: 1, .. })));
    assert!(matches!(any.sample(&[f32::INFINITY], &[]), Err(SamplerError::NotANumber { token: 0, .. })));
    assert_eq!(any.sample(&[f32::NEG_INFINITY; 3], &[]), Err(SamplerError::NothingLeft));
    assert_eq!(
        sampler(SamplerSettings::greedy()).sample(&[f32::NEG_INFINITY; 3], &[]),
        Err(SamplerError::NothingLeft)
    );
    // A history may hold tokens that this model does not have.
    let penalised = SamplerSettings { repetition_penalty: 2.0, ..SamplerSettings::default() };
    assert!(sampler(penalised).sample(&[0.0, 1.0], &[7, u32::MAX]).is_ok());
}

#[test]
fn settings_out_of_range_are_refused() {
    let with = |change: fn(&mut SamplerSettings)| {
        let mut settings = SamplerSettings::default();
        change(&mut settings);
        Sampler::new(settings, 0).map(|_| ()).unwrap_err().to_string()
    };
    assert!(with(|s| s.temperature = -1.0).contains("temperature is -1"));
    assert!(with(|s| s.top_p = 1.5).contains("top_p is 1.5"));
    assert!(with(|s| s.min_p = f64::NAN).contains("min_p is NaN"));
    assert!(with(|s| s.repetition_penalty = 0.0).contains("repetition_penalty is 0"));
    assert!(with(|s| s.presence_penalty = f64::INFINITY).contains("presence_penalty is inf"));
}

#[test]
fn a_seed_gives_the_same_tokens_for_ever() {
    let settings = SamplerSettings { temperature: 0.8, top_k: 40, top_p: 0.95, ..SamplerSettings::default() };
    let mut sampler = Sampler::new(settings, 42).unwrap();
    let logits = logits(1000);
    let tokens: Vec<u32> = (0..8).map(|_| sampler.sample(&logits, &[]).unwrap()).collect();
    assert_eq!(tokens, SEED_42);
}

/// Part of what users rely on: these change only with a note in the changelog.
const SEED_42: [u32; 8] = [809, 343, 987, 720, 809, 597, 131, 631];

#[test]
fn draws_follow_the_distribution() {
    let settings = SamplerSettings { top_p: 0.8, temperature: 1.3, ..SamplerSettings::default() };
    let mut sampler = sampler(settings);
    let logits = logits(32);
    let expected = sampler.probabilities(&logits, &[]).unwrap();
    assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    let draws = 20_000;
    let mut counts = vec![0.0; logits.len()];
    for _ in 0..draws {
        counts[sampler.sample(&logits, &[]).unwrap() as usize] += 1.0 / f64::from(draws);
    }
    for (token, (count, probability)) in counts.iter().zip(&expected).enumerate() {
        assert!((count - probability).abs() < 0.015, "token {token}: {count} for {probability}");
    }
}
