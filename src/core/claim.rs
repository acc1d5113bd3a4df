//! The claim on a key: taken by a call, sealed by the commit, ended with the transaction. Rules 3 to 11 and 13.
//!
//! Every function here is one section. It decides on a state that the caller read before, so it first makes sure that no
//! claim came and went in between (the version counter) and that the transaction's own claim was not broken (the serial).

use crate::lease::{Kind, Lease, Refusal, Request, Status, Verdict, decide, holds};
use crate::queue::List;
use crate::rules::{Rule, rule};
use crate::table::{Claim, GuardSlot, Id, NONE, Section, Tx, WaitsFor};
use crate::time::{GRACE, Time};

/// One call's question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask<K, O> {
    pub me: Tx,
    pub key: K,
    pub hash: u32,
    pub request: Request<O>,
    pub wait: Wait,
    /// Whether the transaction may have one more change: if not, nothing is granted. A change of a key that it has changed
    /// already is not one more.
    pub room: bool,
}

impl<K, O> Ask<K, O> {
    /// Whether it waits in the key's queue.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.request, Request::Acquire { .. }) && self.wait == Wait::Queue
    }
}

/// What acquire does when it cannot be granted at once. The other requests wait beside the queue, or skip the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Stand in the key's queue.
    Queue,
    /// Be refused; wait only for a commit that is already under way, and not past this instant.
    Brief(Time),
}

/// The state a decision is made on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen<O> {
    /// The latest committed row, and the version counter sampled before it was read.
    Row {
        lease: Option<Lease<O>>,
        floor: i64,
        version: u64,
        /// Whether the transaction's own snapshot shows the same (always, under READ COMMITTED).
        in_snapshot: bool,
    },
    /// What this transaction has pending on the key.
    Pending(Change<O>),
}

/// A change that was granted and is written when its transaction commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change<O> {
    /// The row as it will be; `None`: deleted.
    pub lease: Option<Lease<O>>,
    pub kind: Kind,
    pub deadline: Time,
    /// The claim it rests on.
    pub serial: u64,
    pub generation: u64,
    /// The highest epoch told under that claim so far: what the floor has to reach when the row is deleted.
    pub issued: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<O> {
    /// What was read may be stale: read again.
    Again,
    Refused(Refusal),
    Granted(Change<O>),
    /// The process is in a list of the key: sleep until woken, at the latest until then, and begin again.
    Wait {
        until: Time,
    },
    /// Maintenance met a claim: leave the key alone for now.
    Busy,
    /// The transaction's own claim on the key was broken.
    Broken,
    /// The key changed after the transaction's snapshot was taken.
    Changed,
    /// No room for another key, or not for this transaction.
    Full,
}

/// One pending change, as its commit and its end need it.
#[derive(Clone, Copy, Debug)]
pub struct Stake<K> {
    pub key: K,
    pub hash: u32,
    pub serial: u64,
    pub kind: Kind,
    pub deadline: Time,
    pub generation: u64,
    /// What the floor has to reach before the row is gone; 0 unless it goes.
    pub floor: i64,
}

impl<O> Change<O> {
    pub fn stake<K>(&self, key: K, hash: u32) -> Stake<K> {
        let Change { kind, deadline, serial, generation, .. } = *self;
        let floor = if self.lease.is_none() { self.issued } else { 0 };
        Stake { key, hash, serial, kind, deadline, generation, floor }
    }
}

/// One guard: what it demands, and the place reserved for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard<K, O> {
    pub key: K,
    pub hash: u32,
    pub owner: O,
    pub epoch: i64,
    pub slot: u32,
    /// The transaction's own pending change that it was judged on: its claim, and until when the lease is held by it.
    pub own: Option<(u64, Time)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GuardOutcome {
    Again,
    Reserved { slot: u32, expires_at: Time },
    Refused(Status),
    Broken,
    Full,
}

/// What became of a commit's attempt to seal all its claims and guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sealing<K> {
    Sealed,
    /// Another transaction is committing what this one must not pass by; nothing is sealed. Sleep and try again.
    Wait {
        until: Time,
    },
    /// The claim on that key was broken, or its deadline has passed.
    Broken(K),
    /// Epochs were advanced since that key was claimed.
    Stale(K),
}

/// What is left of a key's claim when a savepoint is rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restore {
    /// An earlier change of the same transaction, with its kind and deadline.
    Change { kind: Kind, deadline: Time },
    /// Nothing: the claim ends. Anybody can acquire the key from then on.
    Nothing { acquirable_from: Time },
}

/// What stops a request that could be granted otherwise.
struct Obstacle {
    waits_for: WaitsFor,
    /// Until when, as far as known.
    until: Time,
    /// Over so soon that who does not wait waits for it.
    brief: bool,
    /// An acquire that is to stand in the queue meanwhile.
    needs_turn: bool,
}

impl Obstacle {
    fn change(until: Time) -> Obstacle {
        Obstacle { waits_for: WaitsFor::Change, until, brief: false, needs_turn: false }
    }
}

impl<K: Id, O: Id> Section<'_, K, O> {
    /// Decides one request and, if it is granted, takes the claim (rules 3 to 6).
    pub fn operate(&mut self, ask: &Ask<K, O>, seen: &Seen<O>) -> Outcome<O> {
        if self.waits(ask.me) == Some(List::Conflicts) || !ask.is_queued() {
            // it decides anew whether to wait, and where
            self.leave(ask.me);
        }
        let outcome = self.judge(ask, seen);
        if !matches!(outcome, Outcome::Again | Outcome::Wait { .. }) {
            self.leave(ask.me);
        }
        outcome
    }

    fn judge(&mut self, ask: &Ask<K, O>, seen: &Seen<O>) -> Outcome<O> {
        let me = ask.me;
        let (lease, floor, pending, in_snapshot) = match seen {
            Seen::Pending(change) => {
                if rule(Rule::Serial) && !self.owns(me, &ask.key, ask.hash, change.serial) {
                    return Outcome::Broken;
                }
                (change.lease, 0, Some(*change), true)
            }
            Seen::Row { lease, floor, version, in_snapshot } => {
                if rule(Rule::Version) && self.version(ask.hash) != *version {
                    return Outcome::Again;
                }
                // what is shown of a floor that is being raised must not be undercut
                (*lease, self.memory.head.floor.max(*floor), None, *in_snapshot)
            }
        };

        let mut index = self.find(&ask.key, ask.hash);
        if let Some(i) = index {
            if self.reap(i) {
                return Outcome::Again;
            }
            index = self.find(&ask.key, ask.hash);
        }
        let claim = index.and_then(|i| self.entry(i).claim);
        let foreign = claim.filter(|c| c.tx != me);

        let live = lease.filter(|l| l.is_live(self.at));
        let own_change = claim.is_some_and(|c| c.tx == me && c.kind != Kind::HandOff);
        let own_lease =
            matches!(ask.request, Request::Acquire { owner, .. } if live.is_some_and(|l| l.owner == Some(owner)));
        let needs_turn = !own_change && !own_lease;

        let issued = claim.map_or(0, |c| c.issued);
        let (new, kind, deadline) = match decide(lease.as_ref(), floor, issued, &ask.request, self.at) {
            Verdict::Change { lease, kind, deadline } => (lease, kind, deadline),
            Verdict::Refused(Refusal::NotAcquirable { until }) if ask.is_queued() => {
                return self.wait_in_queue(ask, WaitsFor::Lease, until);
            }
            Verdict::Refused(refusal) => {
                // without a row there is nothing to free, but another transaction's change of the key ends
                if let (Some(i), Some(c), Request::ForceRelease) = (index, foreign, &ask.request) {
                    if c.sealed {
                        return self.stop(ask, i, Obstacle::change(Time::NEVER));
                    }
                    if c.kind != Kind::HandOff {
                        self.end_claim(i, Some(Time::PAST));
                        self.alert(c.tx.proc, self.at.now);
                    }
                }
                return Outcome::Refused(refusal);
            }
        };
        if !in_snapshot {
            return Outcome::Changed;
        }

        if let (Some(i), Some(c)) = (index, foreign) {
            let forced = !c.sealed && ask.request == Request::ForceRelease;
            if c.breakable_from() > self.at.now && !forced {
                let until = match c.kind {
                    _ if c.sealed => Time::NEVER,
                    // its deadline has the grace in it
                    Kind::HandOff => c.deadline.minus(GRACE),
                    _ => c.deadline,
                };
                // once the lease has lapsed the answer does not depend on that claim
                let until = until.min(live.map_or(Time::NEVER, |l| l.expiry(self.at)));
                // a lapsed key must not be called held because the lapse is being written down
                let brief = c.sealed && c.kind == Kind::Maintenance && rule(Rule::SealedMaintenance);
                return self.stop(ask, i, Obstacle { brief, needs_turn, ..Obstacle::change(until) });
            }
        }
        if let Some(i) = index
            && (kind == Kind::Maintenance || matches!(ask.request, Request::Acquire { .. }))
            && self.foreign_guard_is_sealed(i, me)
        {
            // a lease that ended under a sealed guard is not to be told over before what the guard protects is visible;
            // a guard sealed later fails, as the lease has ended
            let waits_for = WaitsFor::Guard;
            return self.stop(ask, i, Obstacle { waits_for, until: Time::NEVER, brief: true, needs_turn });
        }
        if let (Some(i), Request::Acquire { .. }, true) = (index, &ask.request, needs_turn) {
            let by_claim = match foreign {
                Some(c) if c.kind == Kind::HandOff => c.deadline.minus(GRACE),
                Some(c) => c.breakable_from(),
                None => Time::PAST,
            };
            let open_from = lease.map_or(Time::PAST, |l| l.acquirable_from(self.at)).max(by_claim);
            if let Some(outcome) = self.out_of_turn(ask, i, open_from) {
                return outcome;
            }
        }
        if !ask.room {
            return Outcome::Full;
        }
        let from = lease.map_or(floor, |l| l.epoch);
        self.grant(ask, pending, (lease, from), new, kind, deadline)
    }

    /// Whether `me` has the claim of that serial.
    pub fn owns(&self, me: Tx, key: &K, hash: u32, serial: u64) -> bool {
        self.claim(key, hash).is_some_and(|c| c.tx == me && c.serial == serial)
    }

    /// The counter of a key that has no row, where the committed floor is that high.
    ///
    /// A change of the key that is under way may have started from a lower floor than purges have left since: until it has
    /// ended the key shows what it started from, so that its counter is never seen to fall.
    pub fn shown_floor(&self, key: &K, hash: u32, floor: i64) -> i64 {
        self.claim(key, hash).map_or(floor, |c| c.from.min(floor))
    }

    /// For whoever only looks: removes what a transaction that has ended left on the key. The version counter then moves.
    pub fn settle(&mut self, key: &K, hash: u32) {
        if let Some(index) = self.find(key, hash) {
            self.reap(index);
        }
    }

    fn has_ended(&self, tx: Tx) -> bool {
        rule(Rule::Reap) && !(self.running)(tx)
    }

    /// Removes a claim whose transaction has ended before it could do so itself, and such guards.
    fn reap(&mut self, index: u32) -> bool {
        self.reap_guards(index);
        match self.entry(index).claim {
            Some(c) if self.has_ended(c.tx) => {
                self.wakes.reaped += 1;
                self.end_claim(index, None);
                true
            }
            _ => {
                self.drop_if_unused(index);
                false
            }
        }
    }

    /// An acquire that is not first in a non-empty queue waits for its turn, unless the head let its own pass.
    ///
    /// The head's turn begins when the key can be had (`open_from`) and the head was woken or its own timer went off.
    fn out_of_turn(&mut self, ask: &Ask<K, O>, index: u32, open_from: Time) -> Option<Outcome<O>> {
        if self.entry(index).queue.is_empty() || self.is_head(ask.me, index) {
            return None;
        }
        if open_from <= self.at.now {
            self.tell_head(index);
        }
        let turn = self.head_is_due(index)?.max(open_from);
        if turn.plus(GRACE) > self.at.now {
            let obstacle = Obstacle { waits_for: WaitsFor::Turn, until: turn, brief: false, needs_turn: true };
            return Some(self.stop(ask, index, obstacle));
        }
        if !ask.is_queued() {
            return None;
        }
        self.pass_over_head(index);
        Some(Outcome::Again)
    }

    fn stop(&mut self, ask: &Ask<K, O>, index: u32, obstacle: Obstacle) -> Outcome<O> {
        let Obstacle { waits_for, mut until, brief, needs_turn } = obstacle;
        match (&ask.request, ask.wait) {
            (Request::Acquire { .. }, Wait::Queue) if needs_turn => {
                return self.wait_in_queue(ask, waits_for, until);
            }
            (Request::Acquire { .. }, Wait::Brief(patience)) => {
                if !brief || self.at.now >= patience {
                    return Outcome::Refused(Refusal::NotAcquirable { until });
                }
                until = patience;
            }
            (Request::Lapse | Request::Purge { .. }, _) => return Outcome::Busy,
            _ => {}
        }
        self.wait_beside(ask.me, ask.request.owner(), index, waits_for, until);
        Outcome::Wait { until }
    }

    fn grant(
        &mut self,
        ask: &Ask<K, O>,
        pending: Option<Change<O>>,
        (old, from): (Option<Lease<O>>, i64),
        new: Option<Lease<O>>,
        kind: Kind,
        deadline: Time,
    ) -> Outcome<O> {
        let Some(index) = self.find_or_add(&ask.key, ask.hash) else { return Outcome::Full };
        if !self.occupy(index) {
            self.drop_if_unused(index);
            return Outcome::Full;
        }
        let before = self.entry(index).claim;
        let (kind, deadline) = match pending {
            Some(p) => add_up((p.kind, p.deadline), (kind, deadline)),
            None => (kind, deadline),
        };
        let broken = before.filter(|c| c.tx != ask.me);
        if let Some(c) = broken {
            self.bump(ask.hash);
            // its commit, should it wait for something, fails at once
            self.alert(c.tx.proc, self.at.now);
        }
        let epoch = new.or(old).map_or(0, |l| l.epoch);
        let issued = before.map_or(0, |c| c.issued).max(epoch);
        let (serial, generation, since, from) = match (pending, before) {
            (Some(p), Some(c)) => (p.serial, p.generation, c.since, c.from),
            _ => (self.new_serial(), self.memory.head.generation, self.at.now, from),
        };
        let claim = Claim {
            tx: ask.me,
            serial,
            kind,
            deadline,
            issued,
            from,
            sealed: false,
            raises: false,
            announced: false,
            generation,
            since,
            owner: new.or(old).and_then(|l| l.owner).or(old.and_then(|l| l.owner)),
            epoch,
        };
        self.entry_mut(index).claim = Some(claim);
        let lowered = rule(Rule::LoweredDeadline) && before.is_some_and(|c| deadline < c.deadline);
        if broken.is_some() || lowered {
            self.wake_conflicts(index);
            self.alert_head(index, claim.breakable_from());
        }
        Outcome::Granted(Change { lease: new, kind, deadline, serial, generation, issued })
    }

    /// Ends the claim; if anybody may acquire the key now, its queue's head gets it in hand (rule 11).
    ///
    /// `acquirable_from`: as the state that now stands says; `None` if the head has to find out.
    pub(crate) fn end_claim(&mut self, index: u32, acquirable_from: Option<Time>) {
        let hash = self.entry(index).hash;
        let claim = self.entry_mut(index).claim.take();
        if claim.is_some_and(|c| c.raises) {
            self.floor_is_raised();
        }
        let (issued, owner) = claim.map_or((0, None), |c| (c.issued, c.owner));
        self.bump(hash);
        self.wake_conflicts(index);
        match acquirable_from {
            Some(from) if from <= self.at.now => self.hand_over(index, issued),
            from => self.alert_head(index, from.unwrap_or(self.at.now)),
        }
        if let Some(owner) = owner {
            self.alert_owner(index, owner);
        }
        self.drop_if_unused(index);
    }

    /// Seals all claims and guards of a commit, or none (rule 9).
    pub(crate) fn seal(&mut self, me: Tx, stakes: &[Stake<K>], guards: &[Guard<K, O>]) -> Sealing<K> {
        self.leave(me);
        for s in stakes {
            if !self.owns(me, &s.key, s.hash, s.serial) || (s.kind != Kind::Maintenance && s.deadline <= self.at.now) {
                return Sealing::Broken(s.key);
            }
            if rule(Rule::Generation) && s.generation != self.memory.head.generation {
                return Sealing::Stale(s.key);
            }
        }
        let mut blocked = None;
        for s in stakes.iter().filter(|s| s.kind == Kind::Transition) {
            let Some(index) = self.find(&s.key, s.hash) else { continue };
            self.reap_guards(index);
            if self.foreign_guard_is_sealed(index, me) {
                blocked = Some((index, WaitsFor::Guard, Time::NEVER));
                // who guards nothing itself may ask for precedence: it waits for what is sealed and nothing else
                if guards.is_empty()
                    && let Some(claim) = self.entry_mut(index).claim.as_mut()
                {
                    claim.announced = true;
                }
            } else if !rule(Rule::AllOrNothing) && self.seal_claim(s) {
                return Sealing::Wait { until: self.at.now };
            }
        }
        for g in guards {
            let Some(mut index) = self.find(&g.key, g.hash) else { continue };
            if self.entry(index).claim.is_some_and(|c| self.has_ended(c.tx)) {
                self.end_claim(index, None);
                // the own guard keeps the entry
                index = self.find(&g.key, g.hash).unwrap_or(index);
            }
            match self.entry(index).claim {
                Some(c) if c.tx == me => {}
                Some(c) if c.sealed && matches!(c.kind, Kind::Transition | Kind::Maintenance) => {
                    blocked = Some((index, WaitsFor::Change, Time::NEVER));
                }
                Some(c) if c.announced && !c.sealed && c.deadline > self.at.now => {
                    blocked = Some((index, WaitsFor::Change, c.deadline));
                }
                _ => {}
            }
        }
        if let Some((index, waits_for, until)) = blocked {
            // its own deadlines end the wait, too
            let own = stakes.iter().filter(|s| s.kind != Kind::Maintenance).map(|s| s.deadline).min();
            let until = until.min(own.unwrap_or(Time::NEVER));
            self.wait_beside(me, None, index, waits_for, until);
            return Sealing::Wait { until };
        }
        for s in stakes {
            self.seal_claim(s);
            if s.floor > 0
                && let Some(index) = self.find(&s.key, s.hash)
                && let Some(claim) = self.entry_mut(index).claim.as_mut()
            {
                claim.raises = true;
                self.raise_floor(s.floor);
            }
        }
        for g in guards {
            self.memory.guards[g.slot as usize].sealed = true;
        }
        Sealing::Sealed
    }

    /// Whether it was not sealed before.
    fn seal_claim(&mut self, stake: &Stake<K>) -> bool {
        let index = self.find(&stake.key, stake.hash);
        let claim = index.and_then(|i| self.entry_mut(i).claim.as_mut());
        claim.is_some_and(|claim| !std::mem::replace(&mut claim.sealed, true))
    }

    /// Ends everything a transaction has here, once its commit or abort is visible (rule 11). Cannot fail.
    ///
    /// Each stake comes with the instant from which its key can be acquired in the state that now stands.
    pub fn finish(&mut self, me: Tx, stakes: impl Iterator<Item = (Stake<K>, Time)>, guards: &[Guard<K, O>]) {
        self.leave(me);
        for g in guards {
            self.drop_guard(me, g);
        }
        for (s, acquirable_from) in stakes {
            self.release_claim(me, &s, acquirable_from);
        }
    }

    fn release_claim(&mut self, me: Tx, stake: &Stake<K>, acquirable_from: Time) {
        if self.owns(me, &stake.key, stake.hash, stake.serial)
            && let Some(index) = self.find(&stake.key, stake.hash)
        {
            self.end_claim(index, Some(acquirable_from));
        }
    }

    /// All epochs are about to be raised, the floor to `floor` (rule 16): what was decided before cannot commit.
    ///
    /// To be called once the lease table is locked against commits; whatever comes of it, [`Section::advanced`] has to follow.
    pub fn advance(&mut self, floor: i64) {
        self.memory.head.generation += 1;
        self.raise_floor(floor);
    }

    /// The new epochs are visible, or will not come: what was decided since may have read the old ones.
    pub fn advanced(&mut self) {
        self.memory.head.generation += 1;
        self.floor_is_raised();
        self.move_versions();
        self.wake_all();
    }

    fn raise_floor(&mut self, floor: i64) {
        self.memory.head.raising += 1;
        self.memory.head.floor = self.memory.head.floor.max(floor);
    }

    /// One of those who raise a floor has ended. With the last of them, what was read of the floor before is out of date.
    fn floor_is_raised(&mut self) {
        self.memory.head.raising -= 1;
        if self.memory.head.raising == 0 {
            self.memory.head.floor = 0;
            self.move_versions();
        }
    }

    fn move_versions(&mut self) {
        self.memory.versions.iter_mut().for_each(|version| *version += 1);
    }

    /// A savepoint is rolled back: the claim goes back to what it was for the change now on top, or ends (rule 7).
    pub fn roll_back(&mut self, me: Tx, stake: &Stake<K>, restore: Restore) {
        if !rule(Rule::SavepointRestores) {
            return;
        }
        match restore {
            Restore::Nothing { acquirable_from } => self.release_claim(me, stake, acquirable_from),
            Restore::Change { kind, deadline } => {
                if !self.owns(me, &stake.key, stake.hash, stake.serial) {
                    return;
                }
                let Some(index) = self.find(&stake.key, stake.hash) else { return };
                if let Some(claim) = self.entry_mut(index).claim.as_mut() {
                    claim.kind = kind;
                    claim.deadline = deadline;
                    let breakable_from = claim.breakable_from();
                    if rule(Rule::SavepointWakes) {
                        self.wake_conflicts(index);
                        self.alert_head(index, breakable_from);
                    }
                }
            }
        }
    }

    /// Judges a guard and reserves its place (rule 8), unless the transaction has one for it (`slot`). The judgement is
    /// repeated at the commit.
    pub(crate) fn guard(
        &mut self,
        me: Tx,
        (key, hash): (&K, u32),
        (owner, epoch): (O, i64),
        seen: &Seen<O>,
        slot: Option<u32>,
    ) -> GuardOutcome {
        let lease = match seen {
            Seen::Pending(change) => {
                if !self.owns(me, key, hash, change.serial) {
                    return GuardOutcome::Broken;
                }
                change.lease
            }
            Seen::Row { lease, version, .. } => {
                // a change that is visible, but whose claim is not ended yet, may have hidden the row from the reader
                if self.version(hash) != *version || self.find(key, hash).is_some_and(|i| self.reap(i)) {
                    return GuardOutcome::Again;
                }
                *lease
            }
        };
        let status = holds(lease.as_ref(), owner, epoch, self.at);
        let Some(lease) = lease.filter(|_| status == Status::Ok) else {
            return GuardOutcome::Refused(status);
        };
        let expires_at = lease.expiry(self.at);
        if let Some(slot) = slot {
            return GuardOutcome::Reserved { slot, expires_at };
        }
        let slot = self.memory.head.free_guard;
        if slot == NONE {
            return GuardOutcome::Full;
        }
        let Some(entry) = self.find_or_add(key, hash) else { return GuardOutcome::Full };
        if !self.occupy(entry) {
            self.drop_if_unused(entry);
            return GuardOutcome::Full;
        }
        self.memory.head.free_guard = self.memory.guards[slot as usize].next;
        let next = self.entry(entry).guards;
        self.memory.guards[slot as usize] = GuardSlot { tx: me, sealed: false, entry, next };
        self.entry_mut(entry).guards = slot;
        GuardOutcome::Reserved { slot, expires_at }
    }

    /// Gives a guard's place back and lets those proceed who waited for it.
    pub fn drop_guard(&mut self, me: Tx, guard: &Guard<K, O>) {
        let slot = self.memory.guards[guard.slot as usize];
        // somebody may have reaped it, and another transaction may have the place since
        if slot.entry == NONE || slot.tx != me || self.entry(slot.entry).key != guard.key {
            return;
        }
        self.free_guard(guard.slot);
        if slot.sealed {
            self.alert_guarded(slot.entry);
        }
        self.drop_if_unused(slot.entry);
    }

    fn free_guard(&mut self, slot: u32) {
        let GuardSlot { entry, next, .. } = self.memory.guards[slot as usize];
        if self.entry(entry).guards == slot {
            self.entry_mut(entry).guards = next;
        } else {
            let mut before = self.entry(entry).guards;
            while self.memory.guards[before as usize].next != slot {
                before = self.memory.guards[before as usize].next;
            }
            self.memory.guards[before as usize].next = next;
        }
        let next = self.memory.head.free_guard;
        self.memory.guards[slot as usize] = GuardSlot { next, ..GuardSlot::default() };
        self.memory.head.free_guard = slot;
    }

    fn reap_guards(&mut self, index: u32) {
        let mut slot = self.entry(index).guards;
        let mut reaped = false;
        while slot != NONE {
            let GuardSlot { tx, sealed, next, .. } = self.memory.guards[slot as usize];
            if self.has_ended(tx) {
                self.free_guard(slot);
                reaped |= sealed;
            }
            slot = next;
        }
        if reaped {
            self.wakes.reaped += 1;
            self.alert_guarded(index);
        }
    }

    fn foreign_guard_is_sealed(&self, index: u32, me: Tx) -> bool {
        self.sealed_guard(index, me).is_some()
    }

    /// A transaction other than `me` with a sealed guard on the key.
    pub(crate) fn sealed_guard(&self, index: u32, me: Tx) -> Option<Tx> {
        let mut slot = self.entry(index).guards;
        while slot != NONE {
            let guard = &self.memory.guards[slot as usize];
            if guard.sealed && guard.tx != me {
                return Some(guard.tx);
            }
            slot = guard.next;
        }
        None
    }
}

impl<O> Claim<O> {
    /// From when on anybody who needs the key may break it.
    pub(crate) fn breakable_from(&self) -> Time {
        match self.kind {
            _ if self.sealed => Time::NEVER,
            Kind::Maintenance => Time::PAST,
            Kind::Transition | Kind::Renewal | Kind::HandOff => self.deadline,
        }
    }
}

/// What a later change of the same transaction makes of an earlier one's kind and deadline (the end of rule 3's table).
fn add_up(old: (Kind, Time), new: (Kind, Time)) -> (Kind, Time) {
    match (old.0, new.0) {
        (Kind::Transition, Kind::Renewal) => (Kind::Transition, new.1),
        (Kind::Maintenance | Kind::HandOff, _) | (_, Kind::Transition | Kind::Renewal | Kind::HandOff) => new,
        // what a live change turned into nothing still ends when it would have
        (Kind::Transition | Kind::Renewal, Kind::Maintenance) => (Kind::Transition, old.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, G, WOKEN, acquire, is_granted, lease, release, renew, until};
    use crate::commit::{CommitStep, Failure};
    use crate::lease::State;

    const DENIED: fn(i64) -> Outcome<u8> = |until| Outcome::Refused(Refusal::NotAcquirable { until: Time(until) });

    /// I1, P4: an open transaction keeps the key until its deadline and no longer.
    #[test]
    fn a_claim_is_broken_at_its_deadline() {
        let mut bench = Bench::new();
        assert!(is_granted(bench.ask(1, 0, acquire(1, 100))));
        bench.now = 99;
        assert_eq!(bench.ask(2, 0, acquire(2, 100)), DENIED(100));
        bench.now = 100;
        let Outcome::Granted(change) = bench.ask(2, 0, acquire(2, 100)) else { panic!("not broken") };
        assert_eq!(change.lease.unwrap().epoch, 2, "the epoch told before is not told again");
        // the former owner cannot go on, nor commit (rules 3 and 9)
        assert_eq!(bench.ask(1, 0, renew(1, 1, 100)), Outcome::Broken);
        assert_eq!(bench.seal(1), CommitStep::Failed(Failure::Broken(0)));
        bench.commit(2);
        bench.abort(1);
        assert_eq!(bench.rows[&0].owner, Some(2));
        assert!(bench.is_clean());
    }

    /// I2: nor is it by whoever broke the claim with a change of another kind.
    #[test]
    fn what_was_told_is_carried_over_a_broken_claim() {
        let mut bench = Bench::held(1000);
        assert!(is_granted(bench.ask(1, 0, acquire(0, 100))));
        bench.now = 100;
        let Outcome::Granted(renewed) = bench.ask(2, 0, renew(0, 1, 500)) else { panic!() };
        assert_eq!((renewed.lease.unwrap().epoch, renewed.issued), (1, 2));
        let Outcome::Granted(anew) = bench.ask(2, 0, acquire(0, 100)) else { panic!() };
        assert_eq!(anew.lease.unwrap().epoch, 3);
    }

    /// Rule 9: past its deadline a change does not commit, broken or not.
    #[test]
    fn a_change_does_not_commit_late() {
        let mut bench = Bench::new();
        bench.ask(1, 0, acquire(1, 100));
        bench.now = 99;
        assert_eq!(bench.seal(1), CommitStep::Write);
        let mut bench = Bench::new();
        bench.ask(1, 0, acquire(1, 100));
        bench.now = 100;
        assert_eq!(bench.seal(1), CommitStep::Failed(Failure::Broken(0)));
    }

    /// Rule 13: a sealed claim stands past its deadline, until its transaction has ended.
    #[test]
    fn a_sealed_claim_is_not_broken() {
        let mut bench = Bench::new();
        bench.ask(1, 0, acquire(1, 100));
        assert_eq!(bench.seal(1), CommitStep::Write);
        bench.now = 500;
        assert_eq!(bench.ask(2, 0, acquire(2, 100)), DENIED(i64::MAX));
        assert_eq!(bench.ask(2, 0, Request::ForceRelease), WOKEN, "it waits for the commit");
        // visible: whoever meets what is left of it removes it and looks again (rule 5)
        bench.become_visible(1);
        assert!(is_granted(bench.again(2)));
        assert_eq!(bench.claim(0).unwrap().issued, 2);
    }

    /// The same for one that was rolled back.
    #[test]
    fn what_an_ended_transaction_left_is_removed() {
        let mut bench = Bench::held(1000);
        bench.ask(1, 0, release(0, 1));
        bench.wait(2, 0, 50);
        let me = bench.tx(1);
        bench.become_visible(1);
        assert_eq!(bench.rows[&0].state, State::Free);
        assert_eq!(bench.ask(3, 0, acquire(3, 50)), DENIED(0), "the head's turn began when the claim was removed");
        assert!(is_granted(bench.again(2)));
        // the end of it, late: nothing of others is touched
        let claim = bench.claim(0);
        bench.finish(me, true);
        assert_eq!(bench.claim(0), claim);
    }

    /// Maintenance gives way to everybody until it is sealed; then an acquire waits for it, one that does not wait for a
    /// little while (rule 5).
    #[test]
    fn maintenance_gives_way() {
        let mut bench = Bench::held(100);
        bench.now = 100;
        assert!(is_granted(bench.ask(1, 0, Request::Lapse)));
        assert_eq!(bench.ask(5, 0, renew(0, 1, 10)), Outcome::Refused(Refusal::Status(Status::Lapsed)));
        assert!(is_granted(bench.ask(2, 0, acquire(2, 50))));
        assert_eq!(bench.seal(1), CommitStep::Failed(Failure::Broken(0)));
        assert_eq!(bench.ask(3, 0, Request::Lapse), Outcome::Busy);
        bench.abort(2);
        assert!(is_granted(bench.ask(3, 0, Request::Lapse)));
        assert_eq!(bench.seal(3), CommitStep::Write, "it has no deadline");
        assert_eq!(bench.ask(2, 0, acquire(2, 50)), until(101));
        bench.now = 101;
        assert_eq!(bench.again(2), DENIED(i64::MAX));
    }

    /// What a later change of one transaction makes of an earlier one.
    #[test]
    fn kinds_and_deadlines_add_up() {
        use Kind::{HandOff, Maintenance, Renewal, Transition};
        let sum = |old, new| add_up((old, Time(1)), (new, Time(2)));
        assert_eq!(sum(Transition, Renewal), (Transition, Time(2)));
        assert_eq!(sum(Transition, Transition), (Transition, Time(2)));
        assert_eq!(sum(Renewal, Renewal), (Renewal, Time(2)));
        assert_eq!(sum(Renewal, Transition), (Transition, Time(2)));
        assert_eq!(sum(Maintenance, Transition), (Transition, Time(2)));
        assert_eq!(sum(Maintenance, Maintenance), (Maintenance, Time(2)));
        assert_eq!(sum(Transition, Maintenance), (Transition, Time(1)), "it still ends when it would have");
        assert_eq!(sum(Renewal, Maintenance), (Transition, Time(1)));
        assert_eq!(sum(HandOff, Renewal), (Renewal, Time(2)));
    }

    /// Rule 7, on the claim.
    #[test]
    fn a_rollback_gives_back_kind_and_deadline_or_ends_the_claim() {
        let mut bench = Bench::held(1000);
        let Outcome::Granted(first) = bench.ask(1, 0, renew(0, 1, 2000)) else { panic!() };
        let Outcome::Granted(second) = bench.ask(1, 0, release(0, 1)) else { panic!() };
        assert_eq!((first.serial, second.kind), (second.serial, Kind::Transition));
        assert_eq!(bench.ask(2, 0, renew(0, 1, 9)), until(1000));
        let me = bench.tx(1);
        let stake = Stake {
            key: 0,
            hash: 0,
            serial: first.serial,
            kind: second.kind,
            deadline: second.deadline,
            generation: 0,
            floor: 0,
        };
        bench.woken.clear();
        let restore = Restore::Change { kind: first.kind, deadline: first.deadline };
        bench.section(|section| section.roll_back(me, &stake, restore));
        let claim = bench.claim(0).unwrap();
        assert_eq!((claim.kind, claim.deadline, claim.issued), (Kind::Renewal, Time(2000), 2));
        assert_eq!(bench.woken, [2]);
        let version = bench.section(|section| section.version(0));
        let nothing = Restore::Nothing { acquirable_from: Time(1000) };
        bench.section(|section| section.roll_back(me, &stake, nothing));
        assert!(bench.claim(0).is_none());
        assert_eq!(bench.section(|section| section.version(0)), version + 1);
        // of a claim that is not its own any more it leaves alone what it finds
        bench.ask(3, 0, renew(0, 1, 9));
        let claim = bench.claim(0);
        bench.section(|section| section.roll_back(me, &stake, restore));
        bench.section(|section| section.roll_back(me, &stake, nothing));
        assert_eq!(bench.claim(0), claim);
    }

    /// Rule 9: all or nothing.
    #[test]
    fn a_commit_that_waits_has_sealed_nothing() {
        let mut bench = Bench::held(1000);
        assert!(bench.guard(1, 0, 0, 1));
        assert!(bench.guard(9, 0, 0, 1));
        assert_eq!(bench.seal(1), CommitStep::Write);
        bench.ask(2, 0, release(0, 1));
        bench.ask(2, 1, acquire(2, 300));
        assert_eq!(bench.seal(2), CommitStep::Sleep { until: Time(300) }, "no longer than its own deadlines");
        assert!([0, 1].iter().all(|key| !bench.claim(*key).unwrap().sealed));
        // a guard that comes now lets the release go first, which guards nothing itself
        assert_eq!(bench.seal(9), CommitStep::Sleep { until: Time(1000) });
        bench.woken.clear();
        let me = bench.tx(1);
        bench.become_visible(1);
        bench.finish(me, true);
        assert!(bench.woken.contains(&2));
        assert_eq!(bench.seal(2), CommitStep::Write);
        assert_eq!(bench.seal(9), CommitStep::Sleep { until: Time::NEVER }, "a transition is being committed");
        let me = bench.tx(2);
        bench.become_visible(2);
        bench.finish(me, true);
        assert_eq!(bench.seal(9), CommitStep::Failed(Failure::Guard(0, Status::NotOwner)));
        bench.abort(9);
        assert_eq!(bench.rows[&0].epoch, 2);
        bench.now = 10;
        assert!(bench.is_clean());
    }

    /// P4: precedence over guards ends with the claim that announced it, at its deadline at the latest.
    #[test]
    fn a_stopped_commit_does_not_keep_guards_away() {
        let mut bench = Bench::held(1000);
        bench.rows.insert(1, lease(State::Held, 1, Some(0), 5000));
        bench.guard(1, 0, 0, 1);
        bench.seal(1);
        bench.ask(2, 0, release(0, 1));
        assert_eq!(bench.seal(2), CommitStep::Sleep { until: Time(1000) });
        bench.ask(3, 0, renew(0, 1, 4000));
        assert!(bench.guard(4, 0, 0, 1));
        assert_eq!(bench.seal(4), CommitStep::Sleep { until: Time(1000) });
        // 2 has stopped; its deadline comes
        bench.now = 1000;
        assert_ne!(bench.seal(4), CommitStep::Sleep { until: Time(1000) });
    }

    /// P3: guards keep transitions from committing, not renewals, and not each other.
    #[test]
    fn renewals_pass_guards() {
        let mut bench = Bench::held(1000);
        bench.guard(1, 0, 0, 1);
        bench.guard(2, 0, 0, 1);
        assert_eq!(bench.seal(1), CommitStep::Write);
        assert_eq!(bench.seal(2), CommitStep::Write);
        bench.ask(3, 0, renew(0, 1, 5000));
        bench.commit(3);
        // an acquire waits for the guards' commits, so that what it reads includes them
        bench.now = 5000;
        assert_eq!(bench.ask(4, 0, acquire(4, 9)), until(5001));
        bench.abort(1);
        assert_eq!(bench.again(4), until(5001));
        bench.abort(2);
        assert!(is_granted(bench.again(4)));
    }

    /// Its own guards and changes do not stop a transaction.
    #[test]
    fn own_guards_do_not_stop_own_changes() {
        let mut bench = Bench::held(1000);
        assert!(bench.guard(1, 0, 0, 1));
        assert!(is_granted(bench.ask(1, 0, acquire(0, 500))));
        assert!(bench.guard(1, 0, 0, 2), "on its own new term");
        assert!(!bench.guard(1, 0, 0, 1));
        assert!(is_granted(bench.ask(1, 0, release(0, 2))));
        bench.commit(1);
        assert_eq!((bench.rows[&0].state, bench.rows[&0].epoch), (State::Free, 3));
        assert!(bench.is_clean());
    }

    /// Rule 16.
    #[test]
    fn what_was_decided_before_epochs_were_advanced_does_not_commit() {
        let mut bench = Bench::held(1000);
        bench.ask(1, 0, renew(0, 1, 5000));
        bench.section(|section| section.advance(50));
        assert_eq!(bench.seal(1), CommitStep::Failed(Failure::Stale(0)));
        // a key without a row starts above the new floor at once, and does not commit on the old epochs
        let Outcome::Granted(change) = bench.ask(2, 1, acquire(2, 900)) else { panic!() };
        assert_eq!(change.lease.unwrap().epoch, 51);
        bench.woken.clear();
        bench.wait(3, 1, 50);
        bench.section(|section| section.advanced());
        assert_eq!(bench.woken, [3]);
        assert_eq!(bench.seal(2), CommitStep::Failed(Failure::Stale(1)));
    }

    /// force_release ends any unsealed change, with a row or without.
    #[test]
    fn force_release_breaks_what_is_not_sealed() {
        let mut bench = Bench::held(1000);
        bench.ask(1, 0, renew(0, 1, 5000));
        assert!(is_granted(bench.ask(2, 0, Request::ForceRelease)));
        assert_eq!(bench.seal(1), CommitStep::Failed(Failure::Broken(0)));
        let mut bench = Bench::new();
        bench.ask(1, 0, acquire(1, 5000));
        bench.wait(3, 0, 50);
        bench.woken.clear();
        assert_eq!(bench.ask(2, 0, Request::ForceRelease), Outcome::Refused(Refusal::NotDue));
        assert_eq!(bench.seal(1), CommitStep::Failed(Failure::Broken(0)));
        assert!(bench.woken.contains(&3));
        assert!(is_granted(bench.again(3)));
        assert_eq!(bench.rows.get(&0), None, "nothing is written");
    }

    /// I10: without room for the transaction nothing is granted, nor does the call leave any other trace.
    #[test]
    fn who_has_no_room_breaks_nothing() {
        let mut bench = Bench::held(1000);
        bench.ask(1, 0, renew(0, 1, 5000));
        let before = (bench.claim(0), bench.section(|section| section.version(0)));
        let me = bench.tx(2);
        let ask = Ask { me, key: 0, hash: 0, request: Request::ForceRelease, wait: Wait::Brief(Time(0)), room: false };
        let seen = Seen::Row { lease: bench.rows.get(&0).copied(), floor: 0, version: before.1, in_snapshot: true };
        assert_eq!(bench.section(|section| section.operate(&ask, &seen)), Outcome::Full);
        assert_eq!((bench.claim(0), bench.section(|section| section.version(0))), before);
        // a refusal is answered all the same
        let ask = Ask { request: release(9, 1), ..ask };
        let not_owner = Outcome::Refused(Refusal::Status(Status::NotOwner));
        assert_eq!(bench.section(|section| section.operate(&ask, &seen)), not_owner);
        bench.commit(1);
        assert_eq!(bench.rows[&0].expires_at, Time(5000));
    }

    /// The holder's own calls wait beside the queue, and not past the end of the lease, when the answer is known anyway.
    #[test]
    fn a_holder_does_not_stand_behind_those_who_want_its_lease() {
        let mut bench = Bench::held(1000);
        bench.wait(1, 0, 50);
        bench.ask(2, 0, renew(0, 1, 5000));
        assert_eq!(bench.ask(3, 0, release(0, 1)), until(1000));
        assert_eq!((bench.waits(3), bench.queue(0)), (Some(List::Conflicts), vec![1]));
        bench.woken.clear();
        bench.commit(2);
        assert!(bench.woken.contains(&3));
        assert!(is_granted(bench.again(3)));
        // behind a commit under way, too
        let mut bench = Bench::held(1000);
        bench.ask(2, 0, renew(0, 1, 5000));
        bench.seal(2);
        assert_eq!(bench.ask(3, 0, release(0, 1)), until(1000));
        bench.now = 1000;
        assert_eq!(bench.again(3), Outcome::Refused(Refusal::Status(Status::Lapsed)));
    }

    /// An acquire of one's own lease passes the queue: it takes nothing from those who wait.
    #[test]
    fn a_holder_acquires_past_the_queue() {
        let mut bench = Bench::held(1000);
        bench.wait(1, 0, 50);
        assert!(is_granted(bench.ask(9, 0, acquire(0, 700))));
        bench.commit(9);
        assert_eq!((bench.rows[&0].epoch, bench.again(1)), (2, until(700)));
    }

    /// A change that comes to an earlier end than before wakes the head (rule 6).
    #[test]
    fn a_lowered_deadline_wakes_the_head() {
        let mut bench = Bench::new();
        bench.ask(1, 0, acquire(1, 5000));
        assert_eq!(bench.wait(2, 0, 50), until(5000));
        bench.woken.clear();
        bench.ask(1, 0, renew(1, 1, 300));
        assert_eq!(bench.woken, [2]);
        assert_eq!(bench.again(2), until(300));
        assert_eq!(bench.wait(3, 0, 50), until(300 + G));
    }

    /// Rule 4: what was read before a claim ended does not count.
    #[test]
    fn a_claim_that_came_and_went_is_noticed() {
        let mut bench = Bench::new();
        let me = bench.tx(2);
        let ask = Ask { me, key: 0, hash: 0, request: acquire(2, 50), wait: Wait::Queue, room: true };
        let version = bench.section(|section| section.version(0));
        let seen = Seen::Row { lease: None, floor: 0, version, in_snapshot: true };
        bench.ask(1, 0, acquire(1, 50));
        bench.commit(1);
        assert_eq!(bench.section(|section| section.operate(&ask, &seen)), Outcome::Again);
    }

    /// Rule 4: under REPEATABLE READ a change needs the row that the snapshot shows; a denial does not.
    #[test]
    fn a_row_that_the_snapshot_does_not_show_is_not_changed() {
        let mut bench = Bench::held(1000);
        let me = bench.tx(1);
        let mut outcome = |request, now| {
            bench.now = now;
            let ask = Ask { me, key: 0, hash: 0, request, wait: Wait::Brief(Time(now)), room: true };
            let version = bench.section(|section| section.version(0));
            let seen = Seen::Row { lease: bench.rows.get(&0).copied(), floor: 0, version, in_snapshot: false };
            bench.section(|section| section.operate(&ask, &seen))
        };
        assert_eq!(outcome(renew(0, 1, 50), 10), Outcome::Changed);
        assert_eq!(outcome(acquire(1, 50), 10), DENIED(1000));
        assert_eq!(outcome(acquire(1, 50), 1000), Outcome::Changed);
        assert_eq!(outcome(renew(0, 2, 50), 10), Outcome::Refused(Refusal::Status(Status::EpochMismatch)));
    }

    /// No room is an answer, and leaves nothing behind.
    #[test]
    fn no_room_for_another_key_or_guard() {
        let mut bench = Bench::new();
        for key in 0..8 {
            assert!(is_granted(bench.ask(1, key, acquire(1, 50))));
        }
        assert_eq!(bench.ask(2, 8, acquire(2, 50)), Outcome::Full);
        assert_eq!(bench.waits(2), None);
        for _ in 0..8 {
            assert!(bench.guard(1, 0, 1, 1));
        }
        assert!(!bench.guard(1, 0, 1, 1));
        bench.abort(1);
        assert!(bench.is_clean());
    }

    /// I2: a key without a row shows what a change under way started from, not what purges have made of the floor since.
    #[test]
    fn the_floor_is_not_shown_over_an_older_grant() {
        let mut bench = Bench::new();
        bench.rows.insert(0, lease(State::Free, 9, None, 0));
        bench.ask(1, 1, acquire(1, 50));
        assert!(is_granted(bench.ask(2, 0, Request::Purge { idle: 0 })));
        assert_eq!(bench.seal(2), CommitStep::Write);
        let shown = |bench: &mut Bench, key: u8, floor| bench.section(|s| s.shown_floor(&key, key.into(), floor));
        assert_eq!((shown(&mut bench, 1, 9), shown(&mut bench, 2, 9)), (0, 9));
        // who comes after the purge's seal starts above it
        let Outcome::Granted(change) = bench.ask(3, 2, acquire(3, 50)) else { panic!() };
        assert_eq!(change.lease.unwrap().epoch, 10);
        bench.commit(1);
        assert_eq!(bench.rows[&1].epoch, 1);
        // when the purge has ended, the floor in the table is what counts
        let (me, version) = (bench.tx(2), bench.section(|section| section.version(3)));
        bench.become_visible(2);
        bench.finish(me, true);
        assert_ne!(bench.section(|section| section.version(3)), version, "who read it before reads it again");
        let Outcome::Granted(change) = bench.ask(2, 4, acquire(2, 50)) else { panic!() };
        assert_eq!(change.lease.unwrap().epoch, 1, "this table has no floor");
    }
}
