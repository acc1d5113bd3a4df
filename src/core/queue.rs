//! Who waits for a key: acquirers in a first-come-first-served queue, everybody else beside it; the hand-off from one
//! acquirer to the next; deadlocks among waiters. Rules 11, 12 and 15.
//!
//! A waiter is linked before it looks and sleeps only after it has looked, and whoever changes what it looked at wakes it in
//! the same section: no wake-up is lost.
//!
//! A queue of any length is kept going by two timers. A key *comes up* when it can be acquired without anybody's doing: at
//! the end of its lease, or at the deadline of a claim. By then the head has to look, and by [`GRACE`] later somebody else,
//! should the head be frozen: the *watch*. It stays the watch while heads come and go, so a hand-off wakes one process, the
//! one that the key is handed to. The next head sleeps on, even without a timer of its own, if the watch has one for the
//! moment at which the key comes up: it then tells the head.

use crate::claim::{Ask, Outcome};
use crate::lease::Kind;
use crate::rules::{Rule, rule};
use crate::table::{Claim, Ends, Entry, Id, NONE, Section, Tx, Waiter, WaitsFor};
use crate::time::{GRACE, Time};

/// The two lists of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum List {
    /// Acquirers that wait for the lease.
    Queue,
    /// Renew, release, force_release and commits that met another transaction's claim, seal or guard.
    Conflicts,
}

/// What stands between a waiter and its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocker {
    /// Somebody's lease, or who came before.
    Lease,
    /// Another transaction, which has changed the key.
    Change(Tx),
    /// The same, while it commits.
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

    fn link(&mut self, tx: Tx, owner: Option<O>, entry: u32, list: List, since: Time, until: Time) {
        let last = self.ends_mut(entry, list).last;
        let waits_for = WaitsFor::Turn;
        *self.waiter_mut(tx.proc) = Waiter { tx, owner, waits_for, entry, list, prev: last, next: NONE, since, until };
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
            self.appoint_watch(entry, proc);
        }
    }

    /// One has left the queue: somebody else than the head watches over it, if there is anybody; the last has longest to go.
    fn appoint_watch(&mut self, entry: u32, gone: u32) {
        let Entry { queue, watch, .. } = *self.entry(entry);
        if watch != gone && watch != queue.first {
            return;
        }
        let next = if queue.last == queue.first { NONE } else { queue.last };
        self.entry_mut(entry).watch = next;
        self.alert(next, self.at.now);
        if watch == gone && next == NONE {
            // the head may have relied on it
            self.alert(queue.first, self.waiter(gone).until);
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

    /// Joins the key's queue at its end, about to look; `false` when there is no room for another key.
    pub fn enqueue(&mut self, me: Tx, owner: Option<O>, key: &K, hash: u32) -> bool {
        let Some(entry) = self.find_or_add(key, hash) else { return false };
        self.link(me, owner, entry, List::Queue, self.at.now, self.at.now);
        true
    }

    /// Sleeps beside the queue until woken, at the latest at `until`.
    pub(crate) fn wait_beside(&mut self, me: Tx, owner: Option<O>, entry: u32, waits_for: WaitsFor, until: Time) {
        if self.waits(me).is_some() {
            // it stood in the queue and needs no turn: `entry` stays, since a claim or guard is on it
            self.leave(me);
        }
        let list = if rule(Rule::BesideTheQueue) { List::Conflicts } else { List::Queue };
        self.link(me, owner, entry, list, self.at.now, until);
        self.waiter_mut(me.proc).waits_for = waits_for;
    }

    /// Sleeps in the queue, stopped by what ends at `until`. The head's timer is that; the watch's is that, too, or the end
    /// of the head's grace if the head looks by itself; the others are woken when they come to be one of the two.
    pub(crate) fn wait_in_queue(&mut self, ask: &Ask<K, O>, waits_for: WaitsFor, mut until: Time) -> Outcome<O> {
        let Ask { me, key, hash, .. } = *ask;
        if self.waits(me).is_none() && !self.enqueue(me, ask.request.owner(), &key, hash) {
            return Outcome::Full;
        }
        let Some(entry) = self.find(&key, hash) else { return Outcome::Again };
        let Waiter { until: appointment, .. } = *self.waiter(me.proc);
        self.waiter_mut(me.proc).waits_for = waits_for;
        if self.is_head(me, entry) {
            self.appoint(self.entry(entry).watch, until.plus(GRACE));
        } else {
            if self.entry(entry).watch == NONE {
                self.entry_mut(entry).watch = me.proc;
            }
            if self.entry(entry).watch != me.proc {
                until = Time::NEVER;
            } else {
                let head_looks = self.head_is_due(entry).is_some_and(|due| due <= until) || until <= self.at.now;
                until = if head_looks { until.plus(GRACE) } else { until };
                // one timer does for many hand-offs, where they come in quick succession
                until = if appointment > self.at.now { until.min(appointment) } else { until };
            }
        }
        self.waiter_mut(me.proc).until = until;
        Outcome::Wait { until }
    }

    /// Stops waiting, for whatever reason: passes on what was handed over, and the attention of the key's head.
    pub fn leave(&mut self, me: Tx) {
        let Waiter { entry, list, prev, waits_for, until, .. } = *self.waiter(me.proc);
        if entry == NONE {
            return;
        }
        self.unlink(me.proc);
        if list == List::Queue && prev == NONE && rule(Rule::PassTheTurn) {
            let next = self.entry(entry).queue.first;
            if next != NONE && waits_for == WaitsFor::Guard {
                // what stopped it stops the next, which may not have looked since
                self.waiter_mut(next).waits_for = waits_for;
            }
            match self.entry(entry).claim {
                Some(c) if c.kind == Kind::HandOff && c.tx == me => return self.end_claim(entry, Some(Time::PAST)),
                // should the claim end before that, whoever is the head by then is told
                Some(c) => self.alert_head(entry, until.max(c.breakable_from())),
                None => self.alert_head(entry, until),
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

    /// The same for the watch, whose timer is set to that instant.
    fn appoint(&mut self, watch: u32, at: Time) {
        if watch != NONE && self.waiter(watch).until > at {
            self.waiter_mut(watch).until = at;
            self.wakes.push(watch);
        }
    }

    /// The key comes up at `due` as things stand now: the head may have its turn from then on, and cannot have had it before
    /// now.
    pub(crate) fn alert_head(&mut self, entry: u32, due: Time) {
        let Entry { queue, watch, .. } = *self.entry(entry);
        if queue.is_empty() {
            return;
        }
        let due = due.max(self.at.now);
        if watch == NONE || due == self.at.now {
            self.alert(queue.first, due);
        }
        let until = self.waiter(queue.first).until.max(self.at.now);
        self.waiter_mut(queue.first).until = until;
        self.appoint(watch, if until <= due { due.plus(GRACE) } else { due });
    }

    /// The key has come up, finds somebody else: tells the head, whose own timer may not be set for it.
    pub(crate) fn tell_head(&mut self, entry: u32) {
        let Entry { queue, watch, .. } = *self.entry(entry);
        self.alert(queue.first, self.at.now);
        self.appoint(watch, self.at.now.plus(GRACE));
    }

    /// Whoever waits in the queue under the name of the lease's owner need not wait for the end of the lease.
    pub(crate) fn alert_owner(&mut self, entry: u32, owner: O) {
        let mut proc = self.entry(entry).queue.first;
        while proc != NONE {
            if self.waiter(proc).owner == Some(owner) {
                self.alert(proc, self.at.now);
            }
            proc = self.waiter(proc).next;
        }
    }

    /// A sealed guard has ended: so has the wait of whoever was stopped by it, and the head cannot have had its turn before.
    pub(crate) fn alert_guarded(&mut self, entry: u32) {
        self.wake_conflicts(entry);
        let Entry { queue, watch, .. } = *self.entry(entry);
        let stopped = |proc: u32| proc != NONE && self.waiter(proc).waits_for == WaitsFor::Guard;
        if stopped(queue.first) || stopped(watch) || self.head_is_due(entry).is_some_and(|due| due <= self.at.now) {
            self.alert_head(entry, self.at.now);
        }
    }

    /// Whether the watch over this process's queue is about to look: for the statistics.
    pub fn watch_is_due(&self, proc: u32) -> bool {
        let Waiter { entry, list, .. } = *self.waiter(proc);
        let watch = if entry != NONE && list == List::Queue { self.entry(entry).watch } else { NONE };
        watch != NONE && watch != proc && self.waiter(watch).until <= self.at.now
    }

    /// Since when the head of the queue, if there is one, has had to look, or when it will.
    pub(crate) fn head_is_due(&self, entry: u32) -> Option<Time> {
        let head = self.entry(entry).queue.first;
        (head != NONE).then(|| self.waiter(head).until)
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
            from: i64::MAX,
            sealed: false,
            raises: false,
            announced: false,
            generation: self.memory.head.generation,
            since: self.at.now,
            owner: None,
            epoch: 0,
        };
        self.entry_mut(entry).claim = Some(claim);
        self.wakes.hand_offs += 1;
        self.alert_head(entry, self.at.now);
    }

    /// The head let its turn pass: it goes to the end, and the next has its turn.
    pub(crate) fn pass_over_head(&mut self, entry: u32) {
        let head = self.entry(entry).queue.first;
        let Waiter { tx, owner, since, until, .. } = *self.waiter(head);
        self.wakes.passed_over += 1;
        self.unlink(head);
        self.link(tx, owner, entry, List::Queue, since, until);
        let hash = self.entry(entry).hash;
        let issued = self.entry_mut(entry).claim.take().map_or(0, |c| c.issued);
        self.bump(hash);
        self.hand_over(entry, issued);
        self.drop_if_unused(entry);
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
}

#[cfg(test)]
mod tests {
    use super::List;
    use crate::bench::{Bench, G, WOKEN, acquire, is_granted, lease, release, renew, until};
    use crate::claim::Outcome;
    use crate::lease::{Kind, Refusal, Request, State};
    use crate::table::WaitsFor;
    use crate::time::Time;

    /// Rule 12: the head's timer is the end of the lease, the watch's that and the grace; nobody else has one.
    #[test]
    fn first_come_first_served() {
        let mut bench = Bench::held(1000);
        assert_eq!(bench.wait(1, 0, 50), until(1000));
        assert_eq!(bench.wait(2, 0, 50), until(1000 + G));
        assert_eq!(bench.wait(3, 0, 50), WOKEN);
        assert_eq!(bench.queue(0), [1, 2, 3]);
        let places: Vec<(u32, u32)> =
            bench.section(|section| section.view().waiters().map(|(w, _, place)| (w.tx.proc, place)).collect());
        assert_eq!(places, [(1, 1), (2, 2), (3, 3)]);
        assert_eq!((bench.waits(1), bench.waits(0)), (Some(List::Queue), None));
        bench.now = 1000;
        assert_eq!(bench.again(2), until(1000 + G), "it is the head's turn");
        assert!(is_granted(bench.again(1)));
        assert_eq!(bench.queue(0), [2, 3]);
    }

    /// Rule 11: a release hands the key over in its own section, and wakes the head and whoever watches over it.
    #[test]
    fn a_release_hands_the_key_to_the_head() {
        let mut bench = Bench::held(1_000_000);
        bench.wait(1, 0, 50);
        bench.wait(2, 0, 50);
        bench.wait(3, 0, 50);
        bench.now = 10;
        assert!(is_granted(bench.ask(9, 0, release(0, 1))));
        bench.woken.clear();
        bench.commit(9);
        assert_eq!(bench.woken, [1, 2]);
        let claim = bench.claim(0).unwrap();
        assert_eq!((claim.kind, claim.tx, claim.deadline), (Kind::HandOff, bench.tx(1), Time(10 + G)));
        // nobody barges past the head, whether it waits or not
        assert_eq!(bench.ask(9, 0, acquire(9, 50)), Outcome::Refused(Refusal::NotAcquirable { until: Time(10) }));
        assert_eq!(bench.again(2), until(10 + G));
        assert!(is_granted(bench.again(1)));
        bench.commit(1);
        assert_eq!(bench.rows[&0].epoch, 3);
    }

    /// I2: what was told under the claim that ended is not told again by the one it is handed to.
    #[test]
    fn a_hand_off_carries_what_was_told() {
        let mut bench = Bench::new();
        assert!(is_granted(bench.ask(9, 0, acquire(9, 5000))));
        assert!(is_granted(bench.ask(9, 0, acquire(9, 5000))));
        bench.wait(1, 0, 50);
        bench.abort(9);
        let Outcome::Granted(change) = bench.again(1) else { panic!("not granted") };
        assert_eq!(change.lease.unwrap().epoch, 3);
    }

    /// A head that lets its turn pass goes to the end of the queue (rule 11).
    #[test]
    fn a_stopped_head_costs_the_grace() {
        let mut bench = Bench::held(1000);
        for proc in 1..4 {
            bench.wait(proc, 0, 50);
        }
        bench.now = 1000 + G - 1;
        assert_eq!(bench.again(2), until(1000 + G));
        bench.now = 1000 + G;
        assert!(is_granted(bench.again(2)));
        assert_eq!(bench.queue(0), [3, 1]);
        // the one that was passed over, should it go on, waits like everybody
        assert_eq!(bench.again(1), until(1000 + G + 50 + G));
        assert!(bench.claim(0).is_some_and(|c| c.kind == Kind::Transition));
    }

    #[test]
    fn a_newcomer_that_waits_may_pass_a_stopped_head_but_not_the_next() {
        let mut bench = Bench::held(1000);
        bench.wait(1, 0, 50);
        bench.wait(2, 0, 50);
        bench.now = 1000 + G;
        assert_eq!(bench.wait(3, 0, 50), until(1000 + 2 * G), "the second has its turn now");
        assert_eq!(bench.queue(0), [2, 3, 1]);
        assert!(is_granted(bench.again(2)));
    }

    #[test]
    fn a_newcomer_that_does_not_wait_may_pass_a_stopped_head() {
        let mut bench = Bench::held(1000);
        bench.wait(1, 0, 50);
        bench.now = 1000;
        assert!(!is_granted(bench.ask(9, 0, acquire(9, 50))));
        bench.now = 1000 + G;
        assert!(is_granted(bench.ask(9, 0, acquire(9, 50))));
        assert_eq!(bench.queue(0), [1], "it keeps its place");
    }

    /// Rule 12 (!): whoever leaves the head passes on what was handed to it, or the attention.
    #[test]
    fn leaving_passes_the_turn_on() {
        let mut bench = Bench::held(1_000_000);
        for proc in 1..4 {
            bench.wait(proc, 0, 50);
        }
        bench.ask(9, 0, release(0, 1));
        bench.commit(9);
        bench.woken.clear();
        bench.abort(1);
        let claim = bench.claim(0).unwrap();
        assert_eq!((claim.kind, claim.tx), (Kind::HandOff, bench.tx(2)));
        assert!(bench.woken.contains(&2));
        bench.abort(2);
        bench.abort(3);
        assert!(bench.is_clean());
    }

    #[test]
    fn leaving_a_held_key_wakes_whose_timer_is_too_late() {
        let mut bench = Bench::held(1000);
        for proc in 1..5 {
            bench.wait(proc, 0, 50);
        }
        bench.woken.clear();
        bench.abort(4);
        assert_eq!(bench.woken, [], "the last one concerns nobody");
        bench.abort(2);
        assert_eq!(bench.woken, [3], "the second's place is the third's now");
        assert_eq!(bench.again(3), until(1000 + G));
        bench.woken.clear();
        bench.abort(1);
        assert_eq!(bench.woken, [3], "its timer was the second's");
        assert_eq!(bench.again(3), until(1000));
    }

    /// An ordinary renewal is no news for those who wait for the end of the lease; one that brings it forward is.
    #[test]
    fn only_an_earlier_end_wakes_somebody() {
        let mut bench = Bench::held(1000);
        bench.wait(1, 0, 50);
        bench.wait(2, 0, 50);
        assert_eq!(bench.waiter(1).waits_for, WaitsFor::Lease);
        bench.woken.clear();
        bench.ask(9, 0, renew(0, 1, 5000));
        bench.commit(9);
        assert_eq!(bench.woken, []);
        bench.now = 1000;
        assert_eq!(bench.again(1), until(5000));
        bench.ask(9, 0, renew(0, 1, 500));
        bench.commit(9);
        assert_eq!(bench.woken, [2], "the watch, in the head's place");
        assert_eq!(bench.again(2), until(1500));
        bench.now = 1500;
        bench.woken.clear();
        bench.again(2);
        assert_eq!(bench.woken, [1]);
        assert!(is_granted(bench.again(1)));
    }

    /// The price of strict order: about one wake-up for each time the key changes hands, however many wait.
    #[test]
    fn a_hand_off_wakes_one() {
        let mut bench = Bench::held(1_000_000_000);
        let waiters = 100;
        for proc in 1..=waiters {
            bench.wait(proc, 0, 1_000_000_000);
        }
        bench.woken.clear();
        let (mut holder, mut epoch, mut wakes) = (0, 1, 0);
        for next in 1..=waiters {
            bench.now += 10;
            bench.ask(120, 0, release(holder, epoch));
            bench.commit(120);
            // everybody who is woken looks, and whom these wake
            let mut granted = Vec::new();
            while let Some(proc) = bench.woken.pop() {
                wakes += 1;
                if is_granted(bench.again(proc)) {
                    bench.commit(proc);
                    granted.push(proc);
                }
            }
            assert_eq!(granted, [next]);
            (holder, epoch) = (next as u8, bench.rows[&0].epoch);
        }
        assert!(bench.queue(0).is_empty());
        assert!(wakes < waiters + waiters / 10, "{wakes} for {waiters}");
    }

    fn ring(length: u32) -> Bench {
        let mut bench = Bench::new();
        for proc in 0..length {
            assert!(is_granted(bench.ask(proc, proc as u8, acquire(proc as u8, 1000))));
        }
        for proc in 0..length {
            assert_eq!(bench.wait(proc, ((proc + 1) % length) as u8, 50), until(1000));
        }
        bench
    }

    fn breaks_deadlock(bench: &mut Bench, proc: u32) -> bool {
        let me = bench.tx(proc);
        bench.section(|section| section.breaks_deadlock(me))
    }

    /// Rule 15: everybody in a ring sees it, and one error ends it.
    #[test]
    fn a_ring_costs_one_error() {
        for length in [2, 3, 8] {
            let mut bench = ring(length);
            assert!(breaks_deadlock(&mut bench, length - 1), "{length}");
            for proc in 0..length {
                assert!(!breaks_deadlock(&mut bench, proc), "{length}: {proc}");
            }
        }
    }

    #[test]
    fn no_ring_no_error() {
        // a chain; one that waits for a ring from outside; for itself; for a lease; past the deadline; behind a hand-off
        let mut bench = ring(3);
        bench.wait(7, 0, 50);
        assert!(!breaks_deadlock(&mut bench, 7));
        bench.abort(2);
        for proc in [0, 1, 7] {
            assert!(!breaks_deadlock(&mut bench, proc), "{proc}");
        }
        let mut bench = ring(3);
        bench.now = 1000;
        assert!(!breaks_deadlock(&mut bench, 0), "a claim past its deadline ends by itself");
        let mut bench = Bench::held(1000);
        bench.wait(1, 0, 50);
        assert!(!breaks_deadlock(&mut bench, 1));
        assert!(!breaks_deadlock(&mut bench, 5), "it does not wait");
    }

    /// Renewals and releases in a ring with acquirers.
    #[test]
    fn a_ring_through_both_lists() {
        let mut bench = Bench::held(1000);
        bench.rows.insert(1, lease(State::Held, 1, Some(0), 1000));
        bench.ask(1, 0, renew(0, 1, 5000));
        bench.ask(2, 1, renew(0, 1, 5000));
        assert_eq!(bench.ask(1, 1, release(0, 1)), until(1000));
        assert_eq!(bench.waits(1), Some(List::Conflicts));
        assert_eq!(bench.ask(2, 0, Request::Renew { owner: 0, epoch: 1, ttl: 9 }), until(1000));
        assert!(breaks_deadlock(&mut bench, 2));
        assert!(!breaks_deadlock(&mut bench, 1));
    }
}
