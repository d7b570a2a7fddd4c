//! A map of bounded size that keeps what is used: when it is full, what nobody has asked for the longest makes room.

use std::collections::HashMap;
use std::hash::Hash;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Values, at most.
    pub(crate) most: usize,
    /// Bytes of all of them, at most, but for so many values that are kept whatever they take.
    pub(crate) bytes: usize,
    pub(crate) least: usize,
}

/// Values by key, within bounds.
pub(crate) struct Recent<K, V> {
    known: HashMap<K, Entry<V>>,
    bounds: Bounds,
    bytes: usize,
    /// How often it was asked.
    asked: u64,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    pub(crate) fn new(bounds: Bounds) -> Recent<K, V> {
        Recent { known: HashMap::new(), bounds, bytes: 0, asked: 0 }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.asked += 1;
        let entry = self.known.get_mut(key)?;
        entry.used = self.asked;
        Some(entry.value.clone())
    }

    /// Adds a value that takes so many bytes.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.asked += 1;
        self.remove(&key);
        while self.is_full(bytes) {
            let oldest = self.known.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            match oldest {
                Some(oldest) => self.remove(&oldest),
                None => break,
            }
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.known.insert(key, Entry { value, bytes, used: self.asked });
    }

    fn is_full(&self, more: usize) -> bool {
        let Bounds { most, bytes, least } = self.bounds;
        let count = self.known.len();
        count >= most || count >= least && self.bytes.saturating_add(more) > bytes
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.known.remove(key) {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes_one_by_one() {
        let mut recent = Recent::new(Bounds { most: 3, bytes: usize::MAX, least: 0 });
        recent.insert(1, "decode", 1);
        for length in 2..20 {
            recent.insert(length, "prefill", 1);
            assert_eq!(recent.get(&1), Some("decode"), "{length}");
        }
        assert_eq!((recent.get(&19), recent.get(&18)), (Some("prefill"), Some("prefill")));
        assert_eq!(recent.get(&17), None);
        recent.insert(19, "again", 1);
        assert_eq!((recent.get(&18), recent.get(&19)), (Some("prefill"), Some("again")));
    }

    #[test]
    fn large_ones_make_room_by_their_bytes_and_a_few_are_always_kept() {
        let mut recent = Recent::new(Bounds { most: 64, bytes: 100, least: 2 });
        for length in 0..10 {
            recent.insert(length, "small", 10);
        }
        assert_eq!(recent.get(&0), Some("small"), "ten fit");
        recent.insert(10, "larger", 35);
        let kept: Vec<i32> = (0..11).filter(|length| recent.get(length).is_some()).collect();
        assert_eq!(kept, [0, 5, 6, 7, 8, 9, 10], "what was asked for last stays");
        recent.insert(11, "huge", 1000);
        recent.insert(12, "huge", 1000);
        let kept: Vec<i32> = (0..13).filter(|length| recent.get(length).is_some()).collect();
        assert_eq!(kept, [11, 12]);
        // One in the place of another of its key gives back what that took.
        recent.insert(12, "small", 10);
        recent.insert(11, "small", 10);
        recent.insert(13, "small", 10);
        assert_eq!([11, 12, 13].map(|length| recent.get(&length)), [Some("small"); 3]);
    }
}
