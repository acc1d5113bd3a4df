//! When which key's lease is to be looked at: what a sweeper keeps in its own memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, TryReserveError};
use std::hash::Hash;

use crate::time::Time;

/// At most one deadline per key, the earliest it was filed under.
///
/// Whoever looks at a key at its deadline finds out whether the lease was prolonged since, and files it again. So only what
/// makes a deadline earlier has to be filed when it happens, and a renewal need not be.
#[derive(Debug)]
pub struct Deadlines<K> {
    /// Also what was filed later than the key's deadline is now: it is passed over.
    heap: BinaryHeap<Reverse<(Time, K)>>,
    filed: HashMap<K, Time>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Deadlines { heap: BinaryHeap::new(), filed: HashMap::new() }
    }
}

impl<K: Ord + Hash> Deadlines<K> {
    /// Fails, and files nothing, where there is no memory for it; `copy` makes another key like it, or fails for that reason.
    pub fn file<E: From<TryReserveError>>(
        &mut self,
        key: K,
        deadline: Time,
        copy: impl FnOnce(&K) -> Result<K, E>,
    ) -> Result<(), E> {
        if self.filed.get(&key).is_some_and(|filed| *filed <= deadline) {
            return Ok(());
        }
        self.filed.try_reserve(1)?;
        self.heap.try_reserve(1)?;
        self.filed.insert(copy(&key)?, deadline);
        self.heap.push(Reverse((deadline, key)));
        // a key whose deadline is lowered over and over must not fill the memory
        if self.heap.len() > 2 * self.filed.len() + 64 {
            let filed = &self.filed;
            self.heap.retain(|Reverse((deadline, key))| filed.get(key) == Some(deadline));
        }
        Ok(())
    }

    /// The earliest deadline.
    pub fn earliest(&mut self) -> Option<Time> {
        while let Some(Reverse((deadline, key))) = self.heap.peek() {
            if self.filed.get(key) == Some(deadline) {
                return Some(*deadline);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes out the keys whose deadlines have come, earliest first, `limit` at most.
    pub fn take_due(&mut self, now: Time, limit: usize) -> Result<Vec<K>, TryReserveError> {
        let mut due = Vec::new();
        while due.len() < limit && self.earliest().is_some_and(|deadline| deadline <= now) {
            due.try_reserve(1)?;
            if let Some(Reverse((_, key))) = self.heap.pop() {
                self.filed.remove(&key);
                due.push(key);
            }
        }
        Ok(due)
    }

    /// How many keys are filed.
    pub fn len(&self) -> usize {
        self.filed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.filed.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Deadlines::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn copy<K: Copy>(key: &K) -> Result<K, TryReserveError> {
        Ok(*key)
    }

    fn filed(entries: &[(&'static str, i64)]) -> Deadlines<&'static str> {
        let mut deadlines = Deadlines::default();
        for (key, deadline) in entries {
            deadlines.file(*key, Time(*deadline), copy).unwrap();
        }
        deadlines
    }

    #[test]
    fn due_keys_come_in_order_and_once() {
        let mut deadlines = filed(&[("c", 30), ("a", 10), ("b", 20)]);
        assert_eq!(deadlines.earliest(), Some(Time(10)));
        assert_eq!(deadlines.take_due(Time(9), 10).unwrap(), Vec::<&str>::new());
        assert_eq!(deadlines.take_due(Time(20), 10).unwrap(), ["a", "b"]);
        assert_eq!(deadlines.take_due(Time(20), 10).unwrap(), Vec::<&str>::new());
        assert_eq!((deadlines.len(), deadlines.earliest()), (1, Some(Time(30))));
    }

    #[test]
    fn a_deadline_is_due_at_its_instant() {
        let mut deadlines = filed(&[("a", 10)]);
        assert_eq!(deadlines.take_due(Time(10), 1).unwrap(), ["a"]);
    }

    #[test]
    fn a_batch_leaves_the_rest() {
        let mut deadlines = filed(&[("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!(deadlines.take_due(Time(5), 2).unwrap(), ["a", "b"]);
        assert_eq!(deadlines.take_due(Time(5), 2).unwrap(), ["c"]);
        assert!(deadlines.is_empty());
    }

    #[test]
    fn the_earliest_deadline_counts() {
        let mut deadlines = filed(&[("a", 10), ("a", 30), ("b", 30), ("b", 10)]);
        assert_eq!(deadlines.len(), 2);
        assert_eq!(deadlines.take_due(Time(10), 10).unwrap(), ["a", "b"]);
        // what "b" was filed under before is passed over
        assert_eq!(deadlines.earliest(), None);
        assert!(deadlines.is_empty());
    }

    #[test]
    fn what_was_taken_can_be_filed_later() {
        let mut deadlines = filed(&[("a", 10)]);
        deadlines.take_due(Time(10), 1).unwrap();
        deadlines.file("a", Time(50), copy).unwrap();
        assert_eq!(deadlines.earliest(), Some(Time(50)));
        assert_eq!(deadlines.take_due(Time(50), 1).unwrap(), ["a"]);
    }

    #[test]
    fn an_earlier_filing_does_not_hide_a_later_one_of_its_time() {
        // lowered, taken, and filed again under the very deadline of the entry that was passed over
        let mut deadlines = filed(&[("a", 30), ("a", 10)]);
        deadlines.take_due(Time(10), 1).unwrap();
        deadlines.file("a", Time(30), copy).unwrap();
        assert_eq!(deadlines.take_due(Time(30), 10).unwrap(), ["a"]);
        assert_eq!(deadlines.take_due(Time(30), 10).unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn memory_is_bounded_by_the_keys() {
        let mut deadlines = Deadlines::default();
        for deadline in (0..100_000).rev() {
            deadlines.file("a", Time(deadline), copy).unwrap();
        }
        assert!(deadlines.heap.len() <= 66, "{}", deadlines.heap.len());
        assert_eq!(deadlines.earliest(), Some(Time(0)));
    }

    /// Against a plain map of key to earliest deadline.
    #[test]
    fn agrees_with_a_plain_map() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut deadlines = Deadlines::default();
        let mut plain: HashMap<u64, i64> = HashMap::new();
        let mut now = 0;
        for _ in 0..200_000 {
            if random.below(4) > 0 {
                let (key, deadline) = (random.below(50), now + random.below(100) as i64);
                deadlines.file(key, Time(deadline), copy).unwrap();
                let filed = plain.entry(key).or_insert(deadline);
                *filed = deadline.min(*filed);
            } else {
                now += random.below(20) as i64;
                let due = deadlines.take_due(Time(now), 5).unwrap();
                for key in &due {
                    assert!(plain.remove(key).is_some_and(|deadline| deadline <= now));
                }
                if due.len() < 5 {
                    assert!(plain.values().all(|deadline| *deadline > now));
                }
            }
            assert_eq!(deadlines.len(), plain.len());
            assert_eq!(deadlines.earliest(), plain.values().min().map(|d| Time(*d)));
        }
    }
}
