//! What the backends share, to be looked at only, for whoever shows it. Nothing is changed, so any number of processes can
//! look at a time, under the claims lock in shared mode.

use std::iter::successors;
use std::ops::Range;

use crate::lease::Kind;
use crate::queue::{Blocker, List};
use crate::table::{Claim, Entry, GuardSlot, Id, NONE, Section, Tx, Waiter, WaitsFor};

pub struct View<'a, K, O> {
    pub buckets: &'a [u32],
    pub entries: &'a [Entry<K, O>],
    pub guards: &'a [GuardSlot],
    pub waiters: &'a [Waiter<O>],
    /// Whether that transaction is still running.
    pub running: &'a dyn Fn(Tx) -> bool,
}

impl<K, O> Clone for View<'_, K, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, O> Copy for View<'_, K, O> {}

impl<K: Id, O: Id> Section<'_, K, O> {
    pub fn view(&self) -> View<'_, K, O> {
        View {
            buckets: self.memory.buckets,
            entries: self.memory.entries,
            guards: self.memory.guards,
            waiters: self.memory.waiters,
            running: self.running,
        }
    }
}

impl<'a, K: Id, O: Id> View<'a, K, O> {
    fn entry(self, index: u32) -> &'a Entry<K, O> {
        &self.entries[index as usize]
    }

    fn waiter(self, proc: u32) -> &'a Waiter<O> {
        &self.waiters[proc as usize]
    }

    /// The claims on keys of these buckets. A key stays in its bucket: who goes through all of them, even in several views,
    /// meets no key twice, and each as it is at one instant.
    pub fn claims(self, buckets: Range<usize>) -> impl Iterator<Item = (&'a K, &'a Claim<O>)> {
        // by way of the buckets, which are few bytes: most entries are not in use
        let chains = self.buckets[buckets].iter().filter(|first| **first != NONE);
        let entries = chains.flat_map(move |first| {
            successors(Some(self.entry(*first)), move |e| (e.next != NONE).then(|| self.entry(e.next)))
        });
        entries.filter_map(|e| e.claim.as_ref().map(|c| (&e.key, c)))
    }

    /// Everybody who waits, list by list: process, key, place in the list from 1.
    pub fn waiters(self) -> impl Iterator<Item = (&'a Waiter<O>, &'a K, u32)> {
        let firsts = self.waiters.iter().filter(|w| w.entry != NONE && w.prev == NONE);
        firsts.flat_map(move |first| {
            let list = successors(Some(first), move |w| (w.next != NONE).then(|| self.waiter(w.next)));
            (1..).zip(list).map(move |(place, w)| (w, &self.entry(w.entry).key, place))
        })
    }

    /// What stands between a waiter and its key now. For the eye only.
    pub fn blocker(self, waiter: &Waiter<O>) -> Blocker {
        let entry = self.entry(waiter.entry);
        let queued = waiter.list == List::Queue;
        let foreign = entry.claim.filter(|c| c.tx != waiter.tx && c.kind != Kind::HandOff && (self.running)(c.tx));
        match foreign {
            // a renewal leaves an acquirer where it is
            Some(c) if queued && c.kind == Kind::Renewal => Blocker::Lease,
            Some(c) if c.sealed => Blocker::Commit(c.tx),
            Some(c) => Blocker::Change(c.tx),
            None if queued && self.waiter(entry.queue.first).waits_for != WaitsFor::Guard => Blocker::Lease,
            None => self.sealed_guard(waiter.entry, waiter.tx).map_or(Blocker::Lease, Blocker::Guard),
        }
    }

    /// A transaction other than `me` with a sealed guard on the key.
    pub(crate) fn sealed_guard(self, index: u32, me: Tx) -> Option<Tx> {
        let mut slot = self.entry(index).guards;
        while slot != NONE {
            let guard = &self.guards[slot as usize];
            if guard.sealed && guard.tx != me {
                return Some(guard.tx);
            }
            slot = guard.next;
        }
        None
    }
}
