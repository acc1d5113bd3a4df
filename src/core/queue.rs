//! Who waits for a key: acquirers in a first-come-first-served queue, everybody else beside it; the hand-off from one
//! acquirer to the next; deadlocks among waiters. Rules 11, 12 and 15.
//!
//! A waiter is linked before it looks and sleeps only after it has looked, and whoever changes what it looked at wakes it in
//! the same section: no wake-up is lost.
//!
//! A queue of any length is kept going by two timers. A key *comes up* when it can be acquired without anybody's doing: at
//! the end of its lease, or at the deadline of a claim. By then the head has to look, and by [`GRACE`] later somebody else,
//! lest the head be frozen. That other is the *watch*. It stays the watch while heads come and go, so a hand-off costs one
//! wake-up, of the one whom the key is handed to: the next head is left asleep, without a timer of its own, as long as the
//! watch's timer is set for the moment the key comes up; the watch then wakes the head.

use crate::lease::Kind;
use crate::table::{Claim, Ends, Entry, Id, NONE, Section, Tx, Waiter};
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
        if list == List::Queue {
            if self.entry(entry).watch == proc {
                self.entry_mut(entry).watch = NONE;
            }
            self.appoint_watch(entry);
        }
    }

    /// Sees to it that somebody watches over the head, if there is anybody else: the last, who has longest to go.
    fn appoint_watch(&mut self, entry: u32) {
        let Entry { queue, watch, .. } = *self.entry(entry);
        if watch != NONE && watch != queue.first {
            return;
        }
        let watch = if queue.last == queue.first { NONE } else { queue.last };
        self.entry_mut(entry).watch = watch;
        if watch != NONE {
            self.wakes.push(watch);
        }
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
                Some(c) if c.kind == Kind::HandOff && c.tx == me => return self.end_claim(entry, Some(self.at.now)),
                Some(c) if c.sealed => {}
                Some(c) if c.deadline > self.at.now => self.comes_up(entry, c.deadline),
                // it may have come up already, and been the leaver's to take
                _ => self.tell_queue(entry),
            }
        }
        self.tidy(entry);
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

    /// The key may have come up, or come up at another time: those who have to know look, and the head has its turn from now.
    pub(crate) fn tell_queue(&mut self, entry: u32) {
        let Entry { queue, watch, .. } = *self.entry(entry);
        if queue.is_empty() {
            return;
        }
        self.entry_mut(entry).handed = self.at.now.plus(GRACE);
        self.wakes.push(queue.first);
        if watch != NONE {
            self.wakes.push(watch);
        }
    }

    /// A sealed guard has ended. Who waited for it has no timer.
    pub(crate) fn guard_ended(&mut self, entry: u32) {
        self.wake_conflicts(entry);
        let head = self.entry(entry).queue.first;
        if head != NONE && self.waiter(head).until == Time::NEVER {
            self.tell_queue(entry);
        }
    }

    /// The key comes up at `due`, as things stand now: wakes whoever would sleep through it.
    pub(crate) fn comes_up(&mut self, entry: u32, due: Time) {
        let Entry { queue, watch, .. } = *self.entry(entry);
        if queue.is_empty() {
            return;
        }
        let head = self.waiter(queue.first).until;
        if watch == NONE {
            if head > due {
                self.wakes.push(queue.first);
            }
        } else {
            // the watch alone will do: it wakes the head
            let enough = if head <= due { due.plus(GRACE) } else { due };
            if self.waiter(watch).until > enough {
                self.wakes.push(watch);
            }
        }
    }

    /// Somebody whose turn it is not finds that the key has come up: the head, if it has no timer, does not know.
    pub(crate) fn tell_head(&mut self, entry: u32) {
        let head = self.entry(entry).queue.first;
        if head != NONE && self.waiter(head).until > self.at.now {
            self.wakes.push(head);
        }
    }

    /// Sleeps in the queue, knowing that the key comes up at `due`; the past: it has, and the head has been told.
    pub(crate) fn wait_in_queue(&mut self, me: Tx, entry: u32, due: Time) -> Time {
        let head = self.entry(entry).queue.first;
        let until = if head == me.proc {
            due
        } else {
            if self.entry(entry).watch == NONE {
                self.entry_mut(entry).watch = me.proc;
            }
            let Entry { watch, handed, .. } = *self.entry(entry);
            // while hand-offs come in quick succession, one timer does for many
            let soon = if handed > self.at.now { handed } else { Time::NEVER };
            match () {
                () if watch != me.proc => Time::NEVER,
                () if due <= self.at.now || self.waiter(head).until <= due => due.plus(GRACE).min(soon),
                () => due.min(soon),
            }
        };
        self.waiter_mut(me.proc).until = until;
        until
    }

    pub(crate) fn is_head(&self, me: Tx, entry: u32) -> bool {
        self.entry(entry).queue.first == me.proc && self.waiter(me.proc).tx == me
    }

    /// Reserves an unclaimed key for the head of its queue, if any. The head still decides for itself.
    pub(crate) fn hand_over(&mut self, entry: u32, issued: i64) {
        let head = self.entry(entry).queue.first;
        if head == NONE {
            return;
        }
        let tx = self.waiter(head).tx;
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
        self.entry_mut(entry).handed = deadline;
        self.wakes.hand_offs += 1;
        self.wakes.push(head);
        let watch = self.entry(entry).watch;
        if watch != NONE && self.waiter(watch).until > deadline {
            self.wakes.push(watch);
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
        self.tidy(entry);
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
