//! What one transaction has pending: its changes by key with their savepoints, its guards.
//!
//! Levels are PostgreSQL's nesting levels: 1 is the transaction itself, each open savepoint one more. A level is recorded
//! only while it is the innermost, so what a savepoint recorded is the end of the log.

use std::collections::{HashMap, TryReserveError};

use crate::claim::{Change, Guard, Restore, Stake};
use crate::lease::Lease;
use crate::table::Id;
use crate::time::{At, Time};

/// A key's latest change, with what the caller wants to write along (`extra`).
#[derive(Clone, Debug)]
pub struct Pending<O, X> {
    pub(crate) level: u32,
    pub change: Change<O>,
    pub extra: X,
}

/// A key, the committed row that its first change was decided on, and its latest change.
pub type Latest<'a, K, O, X> = (&'a K, Option<&'a Lease<O>>, &'a Pending<O, X>);

#[derive(Clone, Debug)]
pub(crate) struct Chain<K, O, X> {
    pub(crate) key: K,
    hash: u32,
    /// The committed row that the first change was decided on.
    base: Option<Lease<O>>,
    /// One change per level at most, innermost last.
    pub(crate) stack: Vec<Pending<O, X>>,
}

impl<K: Id, O: Id, X> Chain<K, O, X> {
    fn stake(&self, change: &Change<O>) -> Stake<K> {
        change.stake(self.key, self.hash)
    }
}

#[derive(Clone, Debug)]
pub struct Transaction<K, O, X> {
    pub(crate) chains: Vec<Chain<K, O, X>>,
    by_key: HashMap<K, usize>,
    /// Which chain got a change at which level, in order.
    log: Vec<(u32, usize)>,
    pub(crate) guards: Vec<(u32, Guard<K, O>)>,
    /// The latest guard of each guarded key, and for each guard the one before it on the same key.
    guard_by_key: HashMap<K, usize>,
    guard_before: Vec<Option<usize>>,
    /// For the next key's changes.
    spare: Vec<Pending<O, X>>,
}

impl<K: Id, O: Id, X> Default for Transaction<K, O, X> {
    fn default() -> Self {
        Transaction {
            chains: Vec::new(),
            by_key: HashMap::new(),
            log: Vec::new(),
            guards: Vec::new(),
            guard_by_key: HashMap::new(),
            guard_before: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl<K: Id, O: Id, X> Transaction<K, O, X> {
    pub fn is_empty(&self) -> bool {
        self.log.is_empty() && self.guards.is_empty()
    }

    /// How many keys have a change pending.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn pending(&self, key: &K) -> Option<&Pending<O, X>> {
        self.by_key.get(key).and_then(|i| self.chains[*i].stack.last())
    }

    /// Makes room for one more change, of that key, or guard: what follows cannot fail for want of memory.
    pub fn reserve(&mut self, key: &K) -> Result<(), TryReserveError> {
        match self.by_key.get(key) {
            Some(index) => self.chains[*index].stack.try_reserve(1)?,
            None => self.spare.try_reserve_exact(1)?,
        }
        self.chains.try_reserve(1)?;
        self.by_key.try_reserve(1)?;
        self.log.try_reserve(1)?;
        self.guards.try_reserve(1)?;
        self.guard_by_key.try_reserve(1)?;
        self.guard_before.try_reserve(1)
    }

    /// Adds a change. `base` is the committed row it was decided on; it matters for the first change of a key only.
    pub fn record(&mut self, level: u32, key: K, hash: u32, base: Option<Lease<O>>, change: Change<O>, extra: X) {
        let index = *self.by_key.entry(key).or_insert_with(|| {
            self.chains.push(Chain { key, hash, base, stack: std::mem::take(&mut self.spare) });
            self.chains.len() - 1
        });
        let pending = Pending { level, change, extra };
        let stack = &mut self.chains[index].stack;
        match stack.last_mut() {
            Some(top) if top.level == level => *top = pending,
            _ => {
                stack.push(pending);
                self.log.push((level, index));
            }
        }
    }

    /// A guard in a place that is known already is the same one, judged anew.
    pub fn add_guard(&mut self, level: u32, guard: Guard<K, O>) {
        let known = self.guards_of(&guard.key).find(|i| self.guards[*i].1.slot == guard.slot);
        if let Some(known) = known {
            self.guards[known].1 = guard;
            return;
        }
        self.guard_before.push(self.guard_by_key.insert(guard.key, self.guards.len()));
        self.guards.push((level, guard));
    }

    /// A key's guards, latest first.
    fn guards_of(&self, key: &K) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.guard_by_key.get(key).copied(), |i| self.guard_before[*i])
    }

    /// The latest guard of a key.
    pub fn guard_of(&self, key: &K) -> Option<&Guard<K, O>> {
        self.guard_by_key.get(key).map(|i| &self.guards[*i].1)
    }

    /// The guard that demands exactly this.
    pub fn same_guard(&self, key: &K, owner: O, epoch: i64) -> Option<&Guard<K, O>> {
        self.guards_of(key).map(|i| &self.guards[i].1).find(|g| g.owner == owner && g.epoch == epoch)
    }

    /// How many places it takes in what is shared: one for each key changed, one for each guard.
    pub fn places(&self) -> usize {
        self.by_key.len() + self.guards.len()
    }

    pub fn guards(&self) -> impl Iterator<Item = Guard<K, O>> + '_ {
        self.guards.iter().map(|(_, g)| *g)
    }

    /// Every key's latest change, in the order in which the keys were first changed, with the row it was decided on.
    pub fn changes(&self) -> impl Iterator<Item = Latest<'_, K, O, X>> + Clone + '_ {
        self.chains.iter().filter_map(|c| c.stack.last().map(|top| (&c.key, c.base.as_ref(), top)))
    }

    /// The n-th of these, for whoever cannot keep hold of them all; `None`: there are not so many.
    pub fn change(&self, n: usize) -> Option<Latest<'_, K, O, X>> {
        // chains without a change have only been left behind by a rollback, at the end
        self.chains.get(n).and_then(|c| c.stack.last().map(|top| (&c.key, c.base.as_ref(), top)))
    }

    /// What the commit has to seal.
    pub fn stakes(&self) -> impl Iterator<Item = Stake<K>> + '_ {
        self.chains.iter().filter_map(|c| c.stack.last().map(|top| c.stake(&top.change)))
    }

    /// What [`crate::Section::finish`] needs: each stake and from when its key can be acquired.
    pub fn outcomes(&self, committed: bool, at: At) -> impl Iterator<Item = (Stake<K>, Time)> + '_ {
        self.chains.iter().filter_map(move |c| {
            let top = c.stack.last()?;
            let lease = if committed { top.change.lease } else { c.base };
            Some((c.stake(&top.change), lease.map_or(Time::PAST, |l| l.acquirable_from(at))))
        })
    }

    /// A savepoint is rolled back: takes off what it and the ones inside it recorded. Tells for each key what its claim
    /// goes back to, and which guards go.
    pub fn roll_back(
        &mut self,
        level: u32,
        at: At,
        mut claim: impl FnMut(Stake<K>, Restore),
        mut guard: impl FnMut(Guard<K, O>),
    ) {
        while let Some(&(l, index)) = self.log.last() {
            if l < level {
                break;
            }
            self.log.pop();
            let chain = &mut self.chains[index];
            let Some(gone) = chain.stack.pop() else { continue };
            let restore = match chain.stack.last() {
                Some(top) => Restore::Change { kind: top.change.kind, deadline: top.change.deadline },
                None => Restore::Nothing { acquirable_from: chain.base.map_or(Time::PAST, |l| l.acquirable_from(at)) },
            };
            claim(chain.stake(&gone.change), restore);
            if chain.stack.is_empty() {
                // the log had the chain's first entry: no later chain is in use
                self.by_key.remove(&chain.key);
            }
        }
        while self.chains.last().is_some_and(|c| c.stack.is_empty()) {
            self.chains.pop();
        }
        while self.guards.last().is_some_and(|(l, _)| *l >= level) {
            if let Some((_, g)) = self.guards.pop() {
                match self.guard_before.pop().flatten() {
                    Some(before) => self.guard_by_key.insert(g.key, before),
                    None => self.guard_by_key.remove(&g.key),
                };
                guard(g);
            }
        }
    }

    /// A savepoint is released: what it recorded belongs to the level around it.
    pub fn release(&mut self, level: u32) {
        let outer = level - 1;
        let first = self.log.partition_point(|(l, _)| *l < level);
        let mut kept = first;
        for i in first..self.log.len() {
            let index = self.log[i].1;
            let stack = &mut self.chains[index].stack;
            let below = stack.len().checked_sub(2).map(|i| stack[i].level);
            if let Some(top) = stack.last_mut() {
                top.level = outer;
            }
            if below == Some(outer) {
                let covered = stack.len() - 2;
                stack.remove(covered);
            } else {
                self.log[kept] = (outer, index);
                kept += 1;
            }
        }
        self.log.truncate(kept);
        for (l, _) in self.guards.iter_mut().rev().take_while(|(l, _)| *l >= level) {
            *l = outer;
        }
    }

    pub fn clear(&mut self) {
        *self = Transaction::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Kind, State};
    use crate::random::Random;

    const AT: At = At { now: Time(0), start: Time(0) };

    fn lease(epoch: i64) -> Lease<char> {
        let (granted_at, expires_at) = (Time(0), Time(epoch * 100));
        let state = State::Held;
        Lease {
            state,
            epoch,
            owner: Some('A'),
            ttl: 1,
            granted_at,
            renewed_at: granted_at,
            expires_at,
            clock_base: Time(0),
        }
    }

    /// A change is known by its epoch, also as serial and deadline.
    fn change(n: i64) -> Change<char> {
        let deadline = Time(n * 100);
        Change { lease: Some(lease(n)), kind: Kind::Transition, deadline, serial: n as u64, generation: 0, issued: n }
    }

    fn guard(slot: u32) -> Guard<char, char> {
        Guard { key: 'k', hash: 0, owner: 'A', epoch: 1, slot, own: None }
    }

    type Changes = Transaction<char, char, ()>;

    fn record(changes: &mut Changes, level: u32, key: char, n: i64) {
        changes.record(level, key, key as u32, Some(lease(n - 1)), change(n), ());
    }

    /// Key, base and latest change of each key, in order.
    fn pending(changes: &Changes) -> Vec<(char, i64, i64)> {
        changes.changes().map(|(k, base, top)| (*k, base.unwrap().epoch, top.change.issued)).collect()
    }

    /// What a rollback tells: keys with serials and what they go back to (0: nothing), then guards.
    fn roll_back(changes: &mut Changes, level: u32) -> (Vec<(char, u64, i64)>, Vec<u32>) {
        let (mut claims, mut guards) = (Vec::new(), Vec::new());
        let told = |stake: Stake<char>, restore| {
            let to = match restore {
                Restore::Change { deadline, .. } => deadline.0 / 100,
                Restore::Nothing { .. } => 0,
            };
            claims.push((stake.key, stake.serial, to));
        };
        changes.roll_back(level, AT, told, |g| guards.push(g.slot));
        (claims, guards)
    }

    #[test]
    fn the_first_base_and_the_last_change_of_a_key_count() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 1);
        record(&mut changes, 1, 'b', 2);
        record(&mut changes, 1, 'a', 3);
        assert_eq!(pending(&changes), [('a', 0, 3), ('b', 1, 2)]);
        assert_eq!(changes.pending(&'a').unwrap().change.issued, 3);
        assert!(changes.pending(&'c').is_none());
        assert_eq!((changes.len(), changes.is_empty()), (2, false));
        let stakes: Vec<_> = changes.stakes().map(|s| (s.key, s.hash, s.serial, s.deadline)).collect();
        assert_eq!(stakes, [('a', 'a' as u32, 3, Time(300)), ('b', 'b' as u32, 2, Time(200))]);
    }

    /// Rule 7: each level goes back to what was there before it.
    #[test]
    fn a_rollback_uncovers_the_outer_change() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 1);
        record(&mut changes, 2, 'a', 2);
        record(&mut changes, 2, 'b', 3);
        record(&mut changes, 3, 'a', 4);
        assert_eq!(roll_back(&mut changes, 3).0, [('a', 4, 2)]);
        assert_eq!(pending(&changes), [('a', 0, 2), ('b', 2, 3)]);
        assert_eq!(roll_back(&mut changes, 2).0, [('b', 3, 0), ('a', 2, 1)]);
        assert_eq!(pending(&changes), [('a', 0, 1)]);
    }

    #[test]
    fn a_rollback_takes_inner_levels_along() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 1);
        record(&mut changes, 2, 'a', 2);
        record(&mut changes, 3, 'a', 3);
        assert_eq!(roll_back(&mut changes, 2).0, [('a', 3, 2), ('a', 2, 1)]);
        assert_eq!(pending(&changes), [('a', 0, 1)]);
    }

    #[test]
    fn a_rollback_to_a_level_that_changed_nothing_tells_nothing() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 1);
        assert_eq!(roll_back(&mut changes, 2), (vec![], vec![]));
        assert_eq!(pending(&changes), [('a', 0, 1)]);
    }

    /// After its only change was rolled back, a key starts anew with the row read then.
    #[test]
    fn a_key_can_come_again_after_a_rollback() {
        let mut changes = Changes::default();
        record(&mut changes, 2, 'a', 1);
        record(&mut changes, 2, 'b', 2);
        assert_eq!(roll_back(&mut changes, 2).0, [('b', 2, 0), ('a', 1, 0)]);
        assert!(changes.is_empty());
        assert_eq!(changes.len(), 0);
        record(&mut changes, 1, 'b', 5);
        record(&mut changes, 1, 'a', 6);
        assert_eq!(pending(&changes), [('b', 4, 5), ('a', 5, 6)]);
    }

    /// A key that is rolled back in the middle leaves the others' places alone.
    #[test]
    fn a_rollback_keeps_keys_of_outer_levels() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 1);
        record(&mut changes, 2, 'b', 2);
        changes.release(2);
        record(&mut changes, 2, 'c', 3);
        record(&mut changes, 2, 'b', 4);
        assert_eq!(roll_back(&mut changes, 2).0, [('b', 4, 2), ('c', 3, 0)]);
        record(&mut changes, 1, 'd', 5);
        assert_eq!(pending(&changes), [('a', 0, 1), ('b', 1, 2), ('d', 4, 5)]);
    }

    #[test]
    fn a_release_merges_into_the_outer_level() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 1);
        record(&mut changes, 2, 'a', 2);
        record(&mut changes, 2, 'b', 3);
        changes.release(2);
        assert_eq!(pending(&changes), [('a', 0, 2), ('b', 2, 3)]);
        // one change per level: the next one replaces it
        record(&mut changes, 1, 'a', 4);
        assert_eq!(roll_back(&mut changes, 2).0, []);
        assert_eq!(pending(&changes), [('a', 0, 4), ('b', 2, 3)]);
    }

    /// With nothing pending any more, the committed row tells from when on the key can be had.
    #[test]
    fn a_rollback_tells_the_end_of_the_committed_lease() {
        let mut changes = Changes::default();
        record(&mut changes, 2, 'a', 4);
        record(&mut changes, 2, 'a', 5);
        let told = |_, restore| assert_eq!(restore, Restore::Nothing { acquirable_from: Time(300) });
        changes.roll_back(2, AT, told, |_| ());
    }

    #[test]
    fn what_was_released_goes_with_the_outer_savepoint() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 1);
        record(&mut changes, 3, 'a', 2);
        changes.release(3);
        assert_eq!(roll_back(&mut changes, 3).0, []);
        assert_eq!(roll_back(&mut changes, 2).0, [('a', 2, 1)]);
    }

    #[test]
    fn guards_follow_their_savepoints() {
        let mut changes = Changes::default();
        changes.add_guard(1, guard(1));
        changes.add_guard(2, guard(2));
        changes.add_guard(3, guard(3));
        changes.release(3);
        changes.add_guard(3, guard(4));
        assert_eq!(roll_back(&mut changes, 3).1, [4]);
        assert_eq!(changes.guards().map(|g| g.slot).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(roll_back(&mut changes, 2).1, [3, 2]);
        assert!(!changes.is_empty());
        assert_eq!(roll_back(&mut changes, 1).1, [1]);
        assert!(changes.is_empty());
    }

    /// Rule 11: from when on a key can be had, by what is committed now.
    #[test]
    fn outcomes_tell_from_when_a_key_can_be_had() {
        let mut changes = Changes::default();
        record(&mut changes, 1, 'a', 2);
        let mut freed = change(3);
        freed.lease = Some(Lease { state: State::Free, owner: None, ..lease(3) });
        changes.record(1, 'b', 0, None, freed, ());
        let mut purged = change(4);
        purged.lease = None;
        changes.record(1, 'c', 0, Some(lease(3)), purged, ());
        let from = |committed| changes.outcomes(committed, AT).map(|(s, from)| (s.key, from)).collect::<Vec<_>>();
        assert_eq!(from(true), [('a', Time(200)), ('b', Time::PAST), ('c', Time::PAST)]);
        assert_eq!(from(false), [('a', Time(100)), ('b', Time::PAST), ('c', Time(300))]);
    }

    /// Against a plain copy of everything at each savepoint.
    #[test]
    fn agrees_with_copies() {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        for _ in 0..2000 {
            let mut changes = Changes::default();
            let mut copies: Vec<Vec<(char, i64)>> = vec![Vec::new()];
            for n in 1..40 {
                match random.below(8) {
                    0 => copies.push(copies.last().unwrap().clone()),
                    1 if copies.len() > 1 => {
                        let level = copies.len() as u32;
                        let top = copies.pop().unwrap();
                        *copies.last_mut().unwrap() = top;
                        changes.release(level);
                    }
                    2 if copies.len() > 1 => {
                        let level = copies.len() as u32;
                        let undone = copies.pop().unwrap();
                        let back = copies.last().unwrap();
                        let mut ended = Vec::new();
                        changes.roll_back(
                            level,
                            AT,
                            |stake, restore| {
                                if let Restore::Nothing { .. } = restore {
                                    ended.push(stake.key);
                                }
                            },
                            |_| (),
                        );
                        // exactly the keys that have nothing pending any more give their claims back
                        let mut expected: Vec<char> = undone.iter().map(|(k, _)| *k).collect();
                        expected.retain(|k| !back.iter().any(|(b, _)| b == k));
                        expected.sort_unstable();
                        ended.sort_unstable();
                        assert_eq!(ended, expected);
                    }
                    _ => {
                        let key = char::from(b'a' + random.below(4) as u8);
                        record(&mut changes, copies.len() as u32, key, n);
                        let copy = copies.last_mut().unwrap();
                        copy.retain(|(k, _)| *k != key);
                        copy.push((key, n));
                    }
                }
                let mut now: Vec<(char, i64)> = changes.changes().map(|(k, _, top)| (*k, top.change.issued)).collect();
                let mut expected = copies.last().unwrap().clone();
                now.sort_unstable();
                expected.sort_unstable();
                assert_eq!(now, expected);
                assert_eq!(changes.len(), expected.len());
            }
        }
    }
}
