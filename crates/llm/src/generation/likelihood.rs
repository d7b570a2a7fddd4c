//! How likely a token was, among which others, by the model's own scores: before biases, penalties, temperature and
//! grammars.

/// The log probability of a token, and those of the likeliest in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Likelihood {
    /// The token that was chosen.
    pub token: u32,
    /// Its natural logarithm of probability.
    pub log_probability: f32,
    /// The likeliest tokens with theirs, the likeliest first; of equals, the one with the smaller id.
    pub likeliest: Vec<(u32, f32)>,
}

impl Likelihood {
    /// Of a token, with so many of the likeliest.
    pub(super) fn of(token: u32, scores: &[f32], most: usize) -> Likelihood {
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = scores.iter().map(|&score| f64::from(score - largest).exp()).sum();
        let log = |score: f32| (f64::from(score - largest) - sum.ln()) as f32;
        let most = most.min(scores.len());
        let mut first: Vec<(u32, f32)> = Vec::with_capacity(most + 1);
        for (other, &score) in (0..).zip(scores) {
            if first.len() == most && first.last().is_none_or(|&(_, least)| score <= least) {
                continue;
            }
            let at = first.partition_point(|&(_, before)| before >= score);
            first.insert(at, (other, score));
            first.truncate(most);
        }
        first.iter_mut().for_each(|(_, score)| *score = log(*score));
        let chosen = scores.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        Likelihood { token, log_probability: log(chosen), likeliest: first }
    }
}

#[cfg(test)]
mod tests {
    use super::Likelihood;

    #[test]
    fn likelihoods_are_those_of_the_softmax_and_in_order() {
        let scores = [1.0f32, 3.0, -2.0, 3.0, 0.5];
        let sum: f64 = scores.iter().map(|&score| f64::from(score).exp()).sum();
        let log = |score: f32| (f64::from(score) - sum.ln()) as f32;
        let told = Likelihood::of(0, &scores, 3);
        let near = |found: f32, wanted: f32| (found - wanted).abs() < 1e-6;
        assert!(near(told.log_probability, log(1.0)), "{told:?}");
        let tokens: Vec<u32> = told.likeliest.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [1, 3, 0]);
        assert!(near(told.likeliest[0].1, log(3.0)) && near(told.likeliest[2].1, log(1.0)), "{told:?}");
        assert_eq!(Likelihood::of(2, &scores, 0).likeliest, []);
        let all = Likelihood::of(2, &scores, 100).likeliest;
        let total: f64 = all.iter().map(|(_, log)| f64::from(*log).exp()).sum();
        assert!(all.len() == 5 && (total - 1.0).abs() < 1e-6, "{all:?}");
    }
}
