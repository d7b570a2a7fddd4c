//! A map of bounded size that keeps what is used: when it is full, what nobody has asked for the longest makes room.

use std::collections::HashMap;
use std::hash::Hash;

/// At most `most` values by key.
pub(crate) struct Recent<K, V> {
    known: HashMap<K, (V, u64)>,
    most: usize,
    /// How often it was asked.
    asked: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    pub(crate) fn new(most: usize) -> Recent<K, V> {
        Recent { known: HashMap::new(), most, asked: 0 }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.asked += 1;
        let (value, used) = self.known.get_mut(key)?;
        *used = self.asked;
        Some(value.clone())
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.asked += 1;
        if self.known.len() >= self.most && !self.known.contains_key(&key) {
            let oldest = self.known.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            oldest.map(|key| self.known.remove(&key));
        }
        self.known.insert(key, (value, self.asked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes_one_by_one() {
        let mut recent = Recent::new(3);
        recent.insert(1, "decode");
        for length in 2..20 {
            recent.insert(length, "prefill");
            assert_eq!(recent.get(&1), Some("decode"), "{length}");
        }
        assert_eq!((recent.get(&19), recent.get(&18)), (Some("prefill"), Some("prefill")));
        assert_eq!(recent.get(&17), None);
        recent.insert(19, "again");
        assert_eq!((recent.get(&18), recent.get(&19)), (Some("prefill"), Some("again")));
    }
}
