//! What the backends share, as plain data: one entry per key in use, its claim, guards and waiters, and version counters.
//!
//! In the server this memory is shared and one lock (the claims lock) protects all of it; a [`Section`] is one holding of
//! that lock. In tests and in the model the memory is a few vectors. Nothing here can wait, allocate or fail halfway.

use std::fmt::Debug;
use std::hash::Hash;

use crate::lease::Kind;
use crate::queue::List;
use crate::time::{At, Time};

/// A key or owner as the tables hold it.
pub trait Id: Copy + Eq + Hash + Debug + Default {}
impl<T: Copy + Eq + Hash + Debug + Default> Id for T {}

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// A transaction of a process: it has ended once the process runs another one, or none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tx {
    /// Which process, an index below the number of waiters.
    pub proc: u32,
    /// Which user of that process slot, where `lxid` alone does not tell.
    pub incarnation: u32,
    /// Which transaction of it.
    pub lxid: u32,
}

/// The right to be the only one to change a key (rules 4 to 7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claim<O> {
    pub tx: Tx,
    /// Names this claim for ever: never reused, so a broken claim is not mistaken for its successor.
    pub serial: u64,
    pub kind: Kind,
    /// From then on anybody may break it, unless sealed. Maintenance may be broken at any time.
    pub deadline: Time,
    /// The highest epoch told under it, and under the claims it was carried over from.
    pub issued: i64,
    /// The epoch, or floor, that its transaction started from: what the key shows as long as it has no row.
    pub from: i64,
    /// Its transaction is committing: nobody may break it while that transaction runs.
    pub sealed: bool,
    /// Its commit raises the floor.
    pub(crate) raises: bool,
    /// Its commit waits for sealed guards; no new guard of the key is sealed before it (rule 9).
    pub announced: bool,
    /// What `Head::generation` was when it was taken (rule 16).
    pub generation: u64,
    /// For the eye only: since when, for whom, under which epoch.
    pub since: Time,
    pub owner: Option<O>,
    pub epoch: i64,
}

/// One key in use.
#[derive(Clone, Copy, Debug)]
pub struct Entry<K, O> {
    pub key: K,
    pub(crate) hash: u32,
    /// Next in the same bucket, or in the free list.
    pub(crate) next: u32,
    pub claim: Option<Claim<O>>,
    /// First of the guards on this key.
    pub(crate) guards: u32,
    /// A transaction changes or guards the key: it counts against [`Head::limit`].
    pub(crate) occupied: bool,
    /// Acquirers, in order of arrival.
    pub(crate) queue: Ends,
    /// Who of them, the head aside, has its timer set for the key.
    pub(crate) watch: u32,
    /// Everybody else who met a claim or a seal, in no order.
    pub(crate) conflicts: Ends,
}

/// Both ends of a list of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub first: u32,
    pub last: u32,
}

impl Ends {
    pub const EMPTY: Ends = Ends { first: NONE, last: NONE };

    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

impl<K: Id, O: Id> Default for Entry<K, O> {
    fn default() -> Self {
        Entry {
            key: K::default(),
            hash: 0,
            next: NONE,
            claim: None,
            guards: NONE,
            occupied: false,
            queue: Ends::EMPTY,
            watch: NONE,
            conflicts: Ends::EMPTY,
        }
    }
}

/// A place for one transaction's guard on one key.
#[derive(Clone, Copy, Debug)]
pub struct GuardSlot {
    pub tx: Tx,
    pub sealed: bool,
    pub(crate) entry: u32,
    /// Next guard of the key, or next in the free list.
    pub(crate) next: u32,
}

impl Default for GuardSlot {
    fn default() -> Self {
        GuardSlot { tx: Tx::default(), sealed: false, entry: NONE, next: NONE }
    }
}

/// What a process that waits was stopped by when it looked last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitsFor {
    /// Its turn: others stand before it.
    Turn,
    /// The end of another owner's lease.
    Lease,
    /// Another transaction's change of the key, uncommitted or being committed.
    Change,
    /// The commit of a transaction that guards the key.
    Guard,
}

/// Where one process waits: a process waits for one key at most.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<O> {
    pub tx: Tx,
    /// On whose behalf; `None`: a commit, or nobody's.
    pub owner: Option<O>,
    pub waits_for: WaitsFor,
    pub(crate) entry: u32,
    pub list: List,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub since: Time,
    /// When it looks at the latest: its own timer, or when it was woken, or appointed to.
    pub until: Time,
}

impl<O> Default for Waiter<O> {
    fn default() -> Self {
        Waiter {
            tx: Tx::default(),
            owner: None,
            waits_for: WaitsFor::Turn,
            entry: NONE,
            list: List::Conflicts,
            prev: NONE,
            next: NONE,
            since: Time::PAST,
            until: Time::NEVER,
        }
    }
}

/// The counters and list heads of a [`Memory`].
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub(crate) next_serial: u64,
    /// Raised by advance_epochs: a change decided under an older one cannot commit (rule 16).
    pub generation: u64,
    /// While commits raise a floor: how many claims and advances, and to what at most. No key without a row starts below it
    /// meanwhile, as the new floor may be visible already.
    pub(crate) raising: u32,
    pub(crate) floor: i64,
    /// How many keys transactions are changing or guarding, and how many may be at once. There are more entries than that:
    /// one for each process, which may wait for a key that nobody is changing.
    pub(crate) occupied: u32,
    pub(crate) limit: u32,
    pub(crate) free_entry: u32,
    pub(crate) free_guard: u32,
}

impl Default for Head {
    fn default() -> Self {
        Head {
            next_serial: 1,
            generation: 0,
            raising: 0,
            floor: 0,
            occupied: 0,
            limit: 0,
            free_entry: NONE,
            free_guard: NONE,
        }
    }
}

/// The shared memory itself. `versions` and `buckets` have a power of two of elements.
pub struct Memory<'a, K, O> {
    pub head: &'a mut Head,
    pub versions: &'a mut [u64],
    pub buckets: &'a mut [u32],
    pub entries: &'a mut [Entry<K, O>],
    pub guards: &'a mut [GuardSlot],
    pub waiters: &'a mut [Waiter<O>],
}

impl<K: Id, O: Id> Memory<'_, K, O> {
    /// Makes all places free, for at most `limit` keys under change or guard. To be called once, on elements that hold their
    /// defaults.
    pub fn format(&mut self, limit: u32) {
        *self.head = Head { limit, ..Head::default() };
        self.versions.fill(0);
        self.buckets.fill(NONE);
        for (i, entry) in self.entries.iter_mut().enumerate().rev() {
            *entry = Entry { next: self.head.free_entry, ..Entry::default() };
            self.head.free_entry = i as u32;
        }
        for (i, guard) in self.guards.iter_mut().enumerate().rev() {
            *guard = GuardSlot { next: self.head.free_guard, ..GuardSlot::default() };
            self.head.free_guard = i as u32;
        }
        self.waiters.fill(Waiter::default());
    }
}

/// The processes to wake once the section is over, and what it did that is counted.
#[derive(Default)]
pub struct Wakes {
    procs: Vec<u32>,
    /// Keys reserved for the head of their queue.
    pub hand_offs: u32,
    /// Heads that were sent to the end of their queue.
    pub passed_over: u32,
    /// Claims and guards of transactions that had ended and were about to say so.
    pub reaped: u32,
}

impl Wakes {
    /// Room for `waiters` processes, so that no section has to allocate.
    pub fn with_capacity(waiters: usize) -> Wakes {
        Wakes { procs: Vec::with_capacity(waiters), ..Wakes::default() }
    }

    pub(crate) fn push(&mut self, proc: u32) {
        if !self.procs.contains(&proc) {
            self.procs.push(proc);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.procs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.procs.iter().copied()
    }

    /// Takes one off that need not be woken.
    pub fn forget(&mut self, proc: u32) {
        self.procs.retain(|p| *p != proc);
    }

    pub fn drain(&mut self) -> impl Iterator<Item = u32> + '_ {
        (self.hand_offs, self.passed_over, self.reaped) = (0, 0, 0);
        self.procs.drain(..)
    }
}

/// One holding of the claims lock: the memory, the instant sampled inside, who still runs, and whom to wake after.
pub struct Section<'a, K, O> {
    pub memory: Memory<'a, K, O>,
    pub at: At,
    /// Whether that transaction is still running: false from the moment its commit or abort is visible.
    pub running: &'a dyn Fn(Tx) -> bool,
    pub wakes: &'a mut Wakes,
}

impl<K: Id, O: Id> Section<'_, K, O> {
    /// The counter that moves whenever a claim on a key of this hash ends or is broken.
    pub fn version(&self, hash: u32) -> u64 {
        self.memory.versions[hash as usize & (self.memory.versions.len() - 1)]
    }

    pub(crate) fn bump(&mut self, hash: u32) {
        let slot = hash as usize & (self.memory.versions.len() - 1);
        self.memory.versions[slot] += 1;
    }

    pub(crate) fn entry(&self, index: u32) -> &Entry<K, O> {
        &self.memory.entries[index as usize]
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut Entry<K, O> {
        &mut self.memory.entries[index as usize]
    }

    pub(crate) fn waiter(&self, proc: u32) -> &Waiter<O> {
        &self.memory.waiters[proc as usize]
    }

    pub(crate) fn waiter_mut(&mut self, proc: u32) -> &mut Waiter<O> {
        &mut self.memory.waiters[proc as usize]
    }

    pub(crate) fn new_serial(&mut self) -> u64 {
        let serial = self.memory.head.next_serial;
        self.memory.head.next_serial += 1;
        serial
    }

    pub(crate) fn find(&self, key: &K, hash: u32) -> Option<u32> {
        let mut index = self.memory.buckets[hash as usize & (self.memory.buckets.len() - 1)];
        while index != NONE {
            let entry = self.entry(index);
            if entry.hash == hash && entry.key == *key {
                return Some(index);
            }
            index = entry.next;
        }
        None
    }

    /// The key's entry, made if need be; `None` when all are in use.
    pub(crate) fn find_or_add(&mut self, key: &K, hash: u32) -> Option<u32> {
        if let Some(index) = self.find(key, hash) {
            return Some(index);
        }
        let index = self.memory.head.free_entry;
        if index == NONE {
            return None;
        }
        let bucket = hash as usize & (self.memory.buckets.len() - 1);
        self.memory.head.free_entry = self.entry(index).next;
        let next = self.memory.buckets[bucket];
        *self.entry_mut(index) = Entry { key: *key, hash, next, ..Entry::default() };
        self.memory.buckets[bucket] = index;
        Some(index)
    }

    /// Makes room for a transaction's claim or guard on the key; `false` when as many keys as may be have one.
    pub(crate) fn occupy(&mut self, index: u32) -> bool {
        if self.entry(index).occupied {
            return true;
        }
        if self.memory.head.occupied >= self.memory.head.limit {
            return false;
        }
        self.memory.head.occupied += 1;
        self.entry_mut(index).occupied = true;
        true
    }

    /// After something was taken off a key: gives its room back once no transaction changes or guards it, and the entry once
    /// nothing refers to it.
    pub(crate) fn drop_if_unused(&mut self, index: u32) {
        let entry = self.entry(index);
        let occupied = entry.guards != NONE || entry.claim.is_some_and(|c| c.kind != Kind::HandOff);
        if entry.occupied && !occupied {
            self.memory.head.occupied -= 1;
            self.entry_mut(index).occupied = false;
        }
        let entry = self.entry(index);
        let unused =
            entry.claim.is_none() && entry.guards == NONE && entry.queue.is_empty() && entry.conflicts.is_empty();
        if !unused {
            return;
        }
        let (hash, after) = (entry.hash, entry.next);
        let bucket = hash as usize & (self.memory.buckets.len() - 1);
        if self.memory.buckets[bucket] == index {
            self.memory.buckets[bucket] = after;
        } else {
            let mut before = self.memory.buckets[bucket];
            while self.entry(before).next != index {
                before = self.entry(before).next;
            }
            self.entry_mut(before).next = after;
        }
        let next = self.memory.head.free_entry;
        *self.entry_mut(index) = Entry { next, ..Entry::default() };
        self.memory.head.free_entry = index;
    }

    /// The claim on a key.
    pub fn claim(&self, key: &K, hash: u32) -> Option<&Claim<O>> {
        self.find(key, hash).and_then(|i| self.entry(i).claim.as_ref())
    }

    /// How many keys are in use: none when nothing is claimed, guarded or waited for.
    pub fn entries_in_use(&self) -> usize {
        let mut free = 0;
        let mut index = self.memory.head.free_entry;
        while index != NONE {
            free += 1;
            index = self.entry(index).next;
        }
        self.memory.entries.len() - free
    }
}

/// Owned memory for tests and models.
#[derive(Clone, Debug)]
pub struct Storage<K, O> {
    pub head: Head,
    pub versions: Vec<u64>,
    pub buckets: Vec<u32>,
    pub entries: Vec<Entry<K, O>>,
    pub guards: Vec<GuardSlot>,
    pub waiters: Vec<Waiter<O>>,
}

impl<K: Id, O: Id> Storage<K, O> {
    /// Room for that many keys under change or guard, guards and processes; `slots` (a power of two) version counters and buckets.
    pub fn new(slots: usize, keys: usize, guards: usize, procs: usize) -> Storage<K, O> {
        let mut storage = Storage {
            head: Head::default(),
            versions: vec![0; slots],
            buckets: vec![NONE; slots],
            entries: vec![Entry::default(); keys + procs],
            guards: vec![GuardSlot::default(); guards],
            waiters: vec![Waiter::default(); procs],
        };
        storage.memory().format(keys as u32);
        storage
    }

    pub fn memory(&mut self) -> Memory<'_, K, O> {
        Memory {
            head: &mut self.head,
            versions: &mut self.versions,
            buckets: &mut self.buckets,
            entries: &mut self.entries,
            guards: &mut self.guards,
            waiters: &mut self.waiters,
        }
    }

    /// One section.
    pub fn section<R>(
        &mut self,
        at: At,
        running: &dyn Fn(Tx) -> bool,
        wakes: &mut Wakes,
        f: impl FnOnce(&mut Section<'_, K, O>) -> R,
    ) -> R {
        f(&mut Section { memory: self.memory(), at, running, wakes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    type Memory = Storage<u16, u8>;

    fn with<R>(memory: &mut Memory, f: impl FnOnce(&mut Section<'_, u16, u8>) -> R) -> R {
        let at = At { now: Time(0), start: Time(0) };
        memory.section(at, &|_| true, &mut Wakes::default(), f)
    }

    fn claim() -> Claim<u8> {
        Claim {
            tx: Tx::default(),
            serial: 1,
            kind: Kind::Transition,
            deadline: Time(1),
            issued: 0,
            from: 0,
            sealed: false,
            raises: false,
            announced: false,
            generation: 0,
            since: Time(0),
            owner: None,
            epoch: 0,
        }
    }

    /// I11: keys in one bucket, even with one hash, do not meet.
    #[test]
    fn keys_that_collide_are_kept_apart() {
        let mut memory = Memory::new(4, 8, 0, 0);
        with(&mut memory, |section| {
            // one bucket; the last two share the hash, too
            let keys = [(1, 0), (2, 4), (3, 8), (4, 8)];
            for (key, hash) in keys {
                assert_eq!(section.find(&key, hash), None);
                let index = section.find_or_add(&key, hash).unwrap();
                section.entry_mut(index).claim = Some(claim());
                assert_eq!(section.find_or_add(&key, hash), Some(index));
            }
            let places: Vec<_> = keys.iter().map(|(key, hash)| section.find(key, *hash).unwrap()).collect();
            let mut distinct = places.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), keys.len());
            assert_eq!(section.view().claims(0..4).count(), keys.len());
            // out of the middle, the end and the front of the chain
            for (gone, (key, hash)) in [1, 0, 3].map(|i| keys[i]).into_iter().enumerate() {
                let index = section.find(&key, hash).unwrap();
                section.entry_mut(index).claim = None;
                section.drop_if_unused(index);
                assert_eq!(section.find(&key, hash), None);
                assert_eq!(section.entries_in_use(), keys.len() - gone - 1);
            }
            assert_eq!(section.find(&3, 8), Some(places[2]));
        });
    }

    /// Full is an answer, and what is given back can be used again.
    #[test]
    fn entries_run_out_and_come_back() {
        let mut memory = Memory::new(2, 3, 0, 0);
        with(&mut memory, |section| {
            for key in 0..3 {
                let index = section.find_or_add(&key, 0).unwrap();
                section.entry_mut(index).claim = Some(claim());
            }
            assert_eq!(section.find_or_add(&7, 0), None);
            let index = section.find(&1, 0).unwrap();
            section.drop_if_unused(index);
            assert_eq!(section.find(&1, 0), Some(index), "it is in use");
            section.entry_mut(index).claim = None;
            section.drop_if_unused(index);
            assert_eq!(section.find_or_add(&7, 0), Some(index));
            assert!(section.claim(&7, 0).is_none());
        });
    }

    /// Adds and drops at random against a plain list.
    #[test]
    fn agrees_with_a_list() {
        let mut random = Random(88_172_645_463_325_252);
        let mut memory = Memory::new(4, 16, 0, 0);
        let mut list: Vec<u16> = Vec::new();
        let hash = |key: u16| u32::from(key) / 3;
        for _ in 0..20_000 {
            let key = random.below(40) as u16;
            with(&mut memory, |section| match list.iter().position(|k| *k == key) {
                Some(i) if random.below(2) == 0 => {
                    list.remove(i);
                    let index = section.find(&key, hash(key)).unwrap();
                    section.entry_mut(index).claim = None;
                    section.drop_if_unused(index);
                }
                found => match section.find_or_add(&key, hash(key)) {
                    Some(index) => {
                        section.entry_mut(index).claim = Some(claim());
                        if found.is_none() {
                            list.push(key);
                        }
                    }
                    None => assert_eq!((list.len(), found), (16, None)),
                },
            });
            with(&mut memory, |section| {
                assert_eq!(section.entries_in_use(), list.len());
                assert!((0..40).all(|k| section.find(&k, hash(k)).is_some() == list.contains(&k)));
                // in two parts, as whoever shows many of them does
                let in_buckets = |buckets| section.view().claims(buckets).map(|(k, _)| *k);
                let mut claimed: Vec<u16> = in_buckets(0..1).chain(in_buckets(1..4)).collect();
                let mut expected = list.clone();
                claimed.sort_unstable();
                expected.sort_unstable();
                assert_eq!(claimed, expected);
            });
        }
    }

    #[test]
    fn a_serial_is_never_used_twice() {
        let mut memory = Memory::new(1, 1, 0, 0);
        let serials: Vec<u64> = (0..3).map(|_| with(&mut memory, |section| section.new_serial())).collect();
        assert_eq!(serials, [1, 2, 3]);
    }

    /// Two hashes of one slot share a counter: that costs a second look, no more.
    #[test]
    fn versions_count_by_slot() {
        let mut memory = Memory::new(4, 1, 0, 0);
        with(&mut memory, |section| {
            section.bump(1);
            section.bump(5);
            assert_eq!([0, 1, 2, 5, 9].map(|hash| section.version(hash)), [0, 2, 0, 2, 2]);
        });
    }

    #[test]
    fn each_process_is_woken_once() {
        let mut wakes = Wakes::with_capacity(2);
        wakes.push(3);
        wakes.push(5);
        wakes.push(3);
        assert_eq!(wakes.drain().collect::<Vec<_>>(), [3, 5]);
        assert_eq!(wakes.drain().count(), 0);
    }
}
