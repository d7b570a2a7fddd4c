//! Which operator cases go into the sample: few, small, and yet every node kind. Pure: candidates in, names out, the
//! same for the same candidates in whatever order they come.

use std::collections::{BTreeMap, BTreeSet};

/// A case that may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    /// What taking it costs, in packed bytes.
    pub(crate) size: u64,
    /// What the sample must have one of: node kinds, portable operators.
    pub(crate) features: BTreeSet<String>,
    /// Cases of one family are configurations of one test.
    pub(crate) family: String,
    /// The dtypes of its inputs and outputs, as one word.
    pub(crate) dtypes: String,
}

/// Takes `count` cases, none above `largest` unless a feature has no smaller one: first what covers all features, the
/// cheapest by feature first, then a spread over families and, within them, dtypes.
pub(crate) fn select(candidates: &[Candidate], count: usize, largest: u64) -> BTreeSet<String> {
    let mut pool: Vec<&Candidate> = candidates.iter().collect();
    pool.sort_by_key(|candidate| (candidate.size, &candidate.name));
    let mut taken = cover(&pool);
    spread(&pool, &mut taken, count, largest);
    taken.into_iter().map(|candidate| candidate.name.clone()).collect()
}

/// The greedy set cover: again and again the most new features for the fewest bytes.
fn cover<'a>(pool: &[&'a Candidate]) -> Vec<&'a Candidate> {
    let mut missing: BTreeSet<&str> =
        pool.iter().flat_map(|candidate| &candidate.features).map(String::as_str).collect();
    let mut taken = vec![];
    while !missing.is_empty() {
        let gain = |candidate: &Candidate| {
            candidate.features.iter().filter(|feature| missing.contains(feature.as_str())).count() as u64
        };
        // Smallest price per feature; the pool's order breaks ties. Scaled, so that integers do.
        let price = |candidate: &Candidate| candidate.size.saturating_mul(1 << 20) / gain(candidate);
        let best =
            pool.iter().filter(|candidate| gain(candidate) > 0).min_by_key(|candidate| price(candidate));
        let Some(best) = best else { break };
        taken.push(*best);
        for feature in &best.features {
            missing.remove(feature.as_str());
        }
    }
    taken
}

fn spread<'a>(pool: &[&'a Candidate], taken: &mut Vec<&'a Candidate>, count: usize, largest: u64) {
    let mut families: BTreeMap<&str, usize> = BTreeMap::new();
    let mut buckets: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for candidate in taken.iter() {
        note(candidate, &mut families, &mut buckets, &mut names);
    }
    while taken.len() < count {
        let best = pool
            .iter()
            .filter(|candidate| candidate.size <= largest && !names.contains(candidate.name.as_str()))
            .min_by_key(|candidate| {
                let family = families.get(candidate.family.as_str()).copied().unwrap_or(0);
                let bucket = (candidate.family.as_str(), candidate.dtypes.as_str());
                // The pool is sorted by size, and the first of equals is taken.
                (buckets.get(&bucket).copied().unwrap_or(0), family)
            });
        let Some(best) = best else { return };
        note(best, &mut families, &mut buckets, &mut names);
        taken.push(best);
    }
}

fn note<'a>(
    candidate: &'a Candidate,
    families: &mut BTreeMap<&'a str, usize>,
    buckets: &mut BTreeMap<(&'a str, &'a str), usize>,
    names: &mut BTreeSet<&'a str>,
) {
    *families.entry(&candidate.family).or_default() += 1;
    *buckets.entry((&candidate.family, &candidate.dtypes)).or_default() += 1;
    names.insert(&candidate.name);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, size: u64, features: &[&str], family: &str, dtypes: &str) -> Candidate {
        Candidate {
            name: name.into(),
            size,
            features: features.iter().map(ToString::to_string).collect(),
            family: family.into(),
            dtypes: dtypes.into(),
        }
    }

    fn some() -> Vec<Candidate> {
        vec![
            candidate("add_big", 90, &["Add"], "add", "F32"),
            candidate("add_small", 10, &["Add"], "add", "F32"),
            candidate("add_half", 11, &["Add"], "add", "F16"),
            candidate("both", 15, &["Add", "Mul"], "both", "F32"),
            candidate("rare", 5000, &["Rare"], "rare", "F32"),
            candidate("mul", 12, &["Mul"], "mul", "F32"),
            candidate("mul_again", 12, &["Mul"], "mul", "F32"),
        ]
    }

    fn chosen(count: usize) -> Vec<String> {
        select(&some(), count, 100).into_iter().collect()
    }

    #[test]
    fn selection_covers_every_feature_whatever_it_costs() {
        assert_eq!(chosen(0), ["both", "rare"], "the cheapest per feature, and the only one of its kind");
    }

    #[test]
    fn the_rest_spreads_over_families_then_dtypes_then_size() {
        assert_eq!(chosen(3), ["add_small", "both", "rare"]);
        assert_eq!(chosen(4), ["add_small", "both", "mul", "rare"]);
        let five = chosen(5);
        assert!(five.contains(&"add_small".into()) && five.contains(&"add_half".into()), "{five:?}");
        assert_eq!(chosen(100).len(), some().len());
    }

    #[test]
    fn selection_does_not_depend_on_order() {
        let mut reversed = some();
        reversed.reverse();
        for count in 0..8 {
            assert_eq!(select(&some(), count, 100), select(&reversed, count, 100));
        }
    }
}
