//! Who waits for a key: acquirers in a first-come-first-served queue, everybody else beside it; the hand-off from one
//! acquirer to the next; deadlocks among waiters. Rules 11, 12 and 15.
//!
//! A waiter is linked before it looks and sleeps only after it has looked, and whoever changes what it looked at wakes it in
//! the same section: no wake-up is lost.

use crate::lease::Kind;
use crate::table::{Claim, Ends, Id, NONE, Section, Tx, Waiter};
use crate::time::{GRACE, Time};

/// The two lists of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum List {
    /// Acquirers that wait for the lease.
    Queue,
    /// Renew, release, force_release and commits that met another transaction's claim, seal or guard.
    Conflicts,
}

/// What a waiter waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// The end of somebody's lease, or its turn.
    Lease,
    /// The end of another transaction that has changed the key.
    Change(Tx),
    /// The same, which is committing.
    Commit(Tx),
    /// A guarded transaction that is committing.
    Guard(Tx),
}

impl<K: Id, O: Id> Section<'_, K, O> {
    fn ends_mut(&mut self, entry: u32, list: List) -> &mut Ends {
        match list {
            List::Queue => &mut self.entry_mut(entry).queue,
            List::Conflicts => &mut self.entry_mut(entry).conflicts,
        }
    }

    fn link(&mut self, tx: Tx, entry: u32, list: List, since: Time, until: Time) {
        let last = self.ends_mut(entry, list).last;
        *self.waiter_mut(tx.proc) = Waiter { tx, entry, list, prev: last, next: NONE, since, until };
        match last {
            NONE => self.ends_mut(entry, list).first = tx.proc,
            _ => self.waiter_mut(last).next = tx.proc,
        }
        self.ends_mut(entry, list).last = tx.proc;
    }

    fn unlink(&mut self, proc: u32) {
        let Waiter { entry, list, prev, next, .. } = *self.waiter(proc);
        match prev {
            NONE => self.ends_mut(entry, list).first = next,
            _ => self.waiter_mut(prev).next = next,
        }
        match next {
            NONE => self.ends_mut(entry, list).last = prev,
            _ => self.waiter_mut(next).prev = prev,
        }
        self.waiter_mut(proc).entry = NONE;
    }

    /// Whether this process stands in a list, and in which.
    pub fn waits(&self, me: Tx) -> Option<List> {
        let waiter = self.waiter(me.proc);
        (waiter.entry != NONE).then_some(waiter.list)
    }

    /// The key that this process waits for.
    pub fn waits_for(&self, me: Tx) -> Option<&K> {
        let waiter = self.waiter(me.proc);
        (waiter.entry != NONE && waiter.tx == me).then(|| &self.entry(waiter.entry).key)
    }

    /// Joins the key's queue at its end; `false` when there is no room for another key.
    pub fn enqueue(&mut self, me: Tx, key: &K, hash: u32) -> bool {
        let Some(entry) = self.find_or_add(key, hash) else { return false };
        self.link(me, entry, List::Queue, self.at.now, Time::NEVER);
        true
    }

    /// Sleeps beside the queue until woken, at the latest at `until`.
    pub(crate) fn wait_beside(&mut self, me: Tx, entry: u32, until: Time) {
        self.link(me, entry, List::Conflicts, self.at.now, until);
    }

    /// Stops waiting, for whatever reason: passes on what was handed over, and the attention of the key's head.
    pub fn leave(&mut self, me: Tx) {
        let Waiter { entry, list, .. } = *self.waiter(me.proc);
        if entry == NONE {
            return;
        }
        let was_head = list == List::Queue && self.entry(entry).queue.first == me.proc;
        self.unlink(me.proc);
        if was_head {
            match self.entry(entry).claim {
                Some(c) if c.kind == Kind::HandOff && c.tx == me => return self.end_claim(entry, true),
                _ => self.wake_head(entry),
            }
        }
        self.drop_if_unused(entry);
    }

    /// Leaves the conflict list, if in it: whoever looks again decides anew whether to wait.
    pub(crate) fn leave_conflicts(&mut self, me: Tx) {
        if self.waits(me) == Some(List::Conflicts) {
            self.leave(me);
        }
    }

    pub(crate) fn wake_conflicts(&mut self, entry: u32) {
        let mut proc = self.entry(entry).conflicts.first;
        while proc != NONE {
            self.wakes.push(proc);
            proc = self.waiter(proc).next;
        }
    }

    pub(crate) fn wake_head(&mut self, entry: u32) {
        let head = self.entry(entry).queue.first;
        if head != NONE {
            self.wakes.push(head);
        }
    }

    pub(crate) fn is_head(&self, me: Tx, entry: u32) -> bool {
        self.entry(entry).queue.first == me.proc && self.waiter(me.proc).tx == me
    }

    pub(crate) fn is_second(&self, me: Tx, entry: u32) -> bool {
        let head = self.entry(entry).queue.first;
        head != NONE && self.waiter(head).next == me.proc && self.waiter(me.proc).tx == me
    }

    /// Reserves an unclaimed key for the head of its queue, if any. The head still decides for itself.
    pub(crate) fn hand_over(&mut self, entry: u32, issued: i64) {
        let head = self.entry(entry).queue.first;
        if head == NONE {
            return;
        }
        let Waiter { tx, next: second, .. } = *self.waiter(head);
        let deadline = self.at.now.plus(GRACE);
        let claim = Claim {
            tx,
            serial: self.new_serial(),
            kind: Kind::HandOff,
            deadline,
            issued,
            sealed: false,
            announced: false,
            generation: self.memory.head.generation,
            since: self.at.now,
            owner: None,
            epoch: 0,
        };
        self.entry_mut(entry).claim = Some(claim);
        self.wakes.hand_offs += 1;
        self.wakes.push(head);
        // the second watches over the head
        if second != NONE && self.waiter(second).until > deadline {
            self.wakes.push(second);
        }
    }

    /// The head let its turn pass: it goes to the end, and the next has its turn.
    pub(crate) fn pass_over_head(&mut self, entry: u32) {
        let head = self.entry(entry).queue.first;
        let Waiter { tx, since, until, .. } = *self.waiter(head);
        self.wakes.passed_over += 1;
        self.unlink(head);
        self.link(tx, entry, List::Queue, since, until);
        let hash = self.entry(entry).hash;
        let issued = self.entry_mut(entry).claim.take().map_or(0, |c| c.issued);
        self.bump(hash);
        self.hand_over(entry, issued);
    }

    /// Records when this process's own timer shall wake it.
    pub(crate) fn set_timer(&mut self, me: Tx, until: Time) {
        self.waiter_mut(me.proc).until = until;
    }

    /// Whether this process waits in a ring of claims that only an error can end; if so it stops waiting at once, so that
    /// one ring costs one error.
    ///
    /// A claim past its deadline, or a hand-off, ends by itself and closes no ring.
    pub fn breaks_deadlock(&mut self, me: Tx) -> bool {
        let mut waiter = me;
        for _ in 0..self.memory.waiters.len() {
            let Waiter { tx, entry, .. } = *self.waiter(waiter.proc);
            if tx != waiter || entry == NONE {
                return false;
            }
            let Some(claim) = self.entry(entry).claim else { return false };
            if claim.kind == Kind::HandOff || claim.deadline <= self.at.now {
                return false;
            }
            if claim.tx == me {
                if waiter == me {
                    return false;
                }
                self.leave(me);
                return true;
            }
            waiter = claim.tx;
        }
        false
    }

    /// Everybody who waits, list by list: process, key, place in the list from 1.
    pub fn waiters(&self) -> impl Iterator<Item = (&Waiter, &K, u32)> + '_ {
        let firsts = self.memory.waiters.iter().filter(|w| w.entry != NONE && w.prev == NONE);
        firsts.flat_map(|first| {
            let list = std::iter::successors(Some(first), |w| (w.next != NONE).then(|| self.waiter(w.next)));
            (1..).zip(list).map(|(place, w)| (w, &self.entry(w.entry).key, place))
        })
    }

    /// What keeps somebody waiting, as it stands now. For the eye only.
    pub fn obstacle(&self, waiter: &Waiter) -> Obstacle {
        let entry = self.entry(waiter.entry);
        let in_queue = waiter.list == List::Queue;
        let foreign = entry.claim.filter(|c| c.tx != waiter.tx && c.kind != Kind::HandOff && (self.running)(c.tx));
        match foreign {
            // a renewal leaves an acquirer where it is
            Some(c) if in_queue && c.kind == Kind::Renewal => Obstacle::Lease,
            Some(c) if c.sealed => Obstacle::Commit(c.tx),
            Some(c) => Obstacle::Change(c.tx),
            // the head of the queue has no timer while it waits for a guard: a lease would have an end
            None if in_queue && self.waiter(entry.queue.first).until != Time::NEVER => Obstacle::Lease,
            None => self.sealed_guard(waiter.entry, waiter.tx).map_or(Obstacle::Lease, Obstacle::Guard),
        }
    }
}
