//! Who waits for a key: acquirers in a first-come-first-served queue, everybody else beside it; the hand-off from one
//! acquirer to the next; deadlocks among waiters. Rules 11, 12 and 15.
//!
//! A waiter is linked before it looks and sleeps only after it has looked, and whoever changes what it looked at wakes it in
//! the same section: no wake-up is lost.

use crate::claim::Outcome;
use crate::lease::Kind;
use crate::rules::{Rule, rule};
use crate::table::{Claim, Ends, Id, NONE, Section, Tx, Waiter, WaitsFor};
use crate::time::{GRACE, Time};

/// The two lists of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum List {
    /// Acquirers that wait for the lease.
    Queue,
    /// Renew, release, force_release and commits that met another transaction's claim, seal or guard.
    Conflicts,
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
        let waits_for = WaitsFor::Turn;
        *self.waiter_mut(tx.proc) = Waiter { tx, waits_for, entry, list, prev: last, next: NONE, since, until };
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

    /// Joins the key's queue at its end, about to look; `false` when there is no room for another key.
    pub fn enqueue(&mut self, me: Tx, key: &K, hash: u32) -> bool {
        let Some(entry) = self.find_or_add(key, hash) else { return false };
        self.link(me, entry, List::Queue, self.at.now, self.at.now);
        true
    }

    /// Sleeps beside the queue until woken, at the latest at `until`.
    pub(crate) fn wait_beside(&mut self, me: Tx, entry: u32, waits_for: WaitsFor, until: Time) {
        if self.waits(me).is_some() {
            // it stood in the queue and needs no turn: `entry` stays, since a claim or guard is on it
            self.leave(me);
        }
        let list = if rule(Rule::BesideTheQueue) { List::Conflicts } else { List::Queue };
        self.link(me, entry, list, self.at.now, until);
        self.waiter_mut(me.proc).waits_for = waits_for;
    }

    /// Sleeps in the queue. The head's timer is the end of what it waits for; the second's is that and the grace that the
    /// head is given; the others are woken when they come to be one of the two.
    pub(crate) fn wait_in_queue(
        &mut self,
        me: Tx,
        key: &K,
        hash: u32,
        waits_for: WaitsFor,
        mut until: Time,
    ) -> Outcome<O> {
        if self.waits(me).is_none() && !self.enqueue(me, key, hash) {
            return Outcome::Full;
        }
        self.waiter_mut(me.proc).waits_for = waits_for;
        match self.find(key, hash) {
            Some(entry) if self.is_head(me, entry) => {
                self.waiter_mut(me.proc).until = until;
                self.alert_second(entry);
            }
            Some(entry) if self.is_second(me, entry) => until = until.plus(GRACE),
            _ => until = Time::NEVER,
        }
        self.waiter_mut(me.proc).until = until;
        Outcome::Wait { until }
    }

    /// Stops waiting, for whatever reason: passes on what was handed over, and the attention of the key's head.
    pub fn leave(&mut self, me: Tx) {
        let Waiter { entry, list, prev, until, .. } = *self.waiter(me.proc);
        if entry == NONE {
            return;
        }
        self.unlink(me.proc);
        if list == List::Queue && rule(Rule::PassTheTurn) {
            match (prev, self.entry(entry).claim) {
                (NONE, Some(c)) if c.kind == Kind::HandOff && c.tx == me => {
                    return self.end_claim(entry, Some(Time::PAST));
                }
                // should the claim end before that, whoever is the head by then is told
                (NONE, Some(c)) => self.alert_head(entry, until.max(c.breakable_from())),
                (NONE, None) => self.alert_head(entry, until),
                _ => self.alert_second(entry),
            }
        }
        self.drop_if_unused(entry);
    }

    /// Everybody who waits looks again.
    pub(crate) fn wake_all(&mut self) {
        for proc in 0..self.memory.waiters.len() as u32 {
            self.alert(proc, self.at.now);
        }
    }

    pub(crate) fn wake_conflicts(&mut self, entry: u32) {
        let mut proc = self.entry(entry).conflicts.first;
        while proc != NONE {
            self.wakes.push(proc);
            proc = self.waiter(proc).next;
        }
    }

    /// Makes sure that a waiter looks again at that instant at the latest: wakes it if its own timer is later.
    pub(crate) fn alert(&mut self, proc: u32, due: Time) {
        if proc != NONE && self.waiter(proc).entry != NONE && self.waiter(proc).until > due {
            self.waiter_mut(proc).until = self.at.now;
            self.wakes.push(proc);
        }
    }

    /// The head may have its turn from `due` on, and cannot have had it before now.
    pub(crate) fn alert_head(&mut self, entry: u32, due: Time) {
        let head = self.entry(entry).queue.first;
        if head == NONE {
            return;
        }
        self.alert(head, due);
        if self.waiter(head).until <= self.at.now {
            self.waiter_mut(head).until = self.at.now;
            self.alert_second(entry);
        }
    }

    /// The second watches over the head: it looks when the head's turn is over.
    fn alert_second(&mut self, entry: u32) {
        let head = self.entry(entry).queue.first;
        if head != NONE {
            let Waiter { next: second, until, .. } = *self.waiter(head);
            self.alert(second, until.plus(GRACE));
        }
    }

    /// Since when the head of the queue, if there is one, has had to look, or when it will.
    pub(crate) fn head_is_due(&self, entry: u32) -> Option<Time> {
        let head = self.entry(entry).queue.first;
        (head != NONE).then(|| self.waiter(head).until)
    }

    pub(crate) fn head_waits_for_lease(&self, entry: u32) -> bool {
        let head = self.entry(entry).queue.first;
        head != NONE && self.waiter(head).waits_for == WaitsFor::Lease
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
        let tx = self.waiter(head).tx;
        let deadline = self.at.now.plus(GRACE);
        let claim = Claim {
            tx,
            serial: self.new_serial(),
            kind: Kind::HandOff,
            deadline,
            issued,
            from: i64::MAX,
            sealed: false,
            announced: false,
            generation: self.memory.head.generation,
            since: self.at.now,
            owner: None,
            epoch: 0,
        };
        self.entry_mut(entry).claim = Some(claim);
        self.alert_head(entry, self.at.now);
    }

    /// The head let its turn pass: it goes to the end, and the next has its turn.
    pub(crate) fn pass_over_head(&mut self, entry: u32) {
        let head = self.entry(entry).queue.first;
        let Waiter { tx, since, until, .. } = *self.waiter(head);
        self.unlink(head);
        self.link(tx, entry, List::Queue, since, until);
        let hash = self.entry(entry).hash;
        let issued = self.entry_mut(entry).claim.take().map_or(0, |c| c.issued);
        self.bump(hash);
        self.hand_over(entry, issued);
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

    /// Everybody who waits: process, key, list, place in the queue from 1.
    pub fn waiters(&self) -> impl Iterator<Item = (&Waiter, &K, u32)> + '_ {
        self.memory.waiters.iter().filter(|w| w.entry != NONE).map(|w| {
            let mut place = 1;
            let mut prev = w.prev;
            while prev != NONE {
                place += 1;
                prev = self.waiter(prev).prev;
            }
            (w, &self.entry(w.entry).key, place)
        })
    }
}
