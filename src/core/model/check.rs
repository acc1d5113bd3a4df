//! What must hold: P1 to P8 of docs/ARCHITECTURE.md and what can be said of the contract's invariants I1 to I11.
//!
//! | property | looked at |
//! |---|---|
//! | P1, I1 | when a commit becomes visible: each row is the one its change was decided on, and no hold of another owner overlaps |
//! | P2, I2, I8 | when a commit becomes visible: a transition raises the epoch over all that was ever committed, nothing else changes epoch or owner; in every state: no epoch shown is below one committed before |
//! | P3, I3 | when a guarded commit becomes visible: right at its seal, and no transition visible since |
//! | P4, P6, P7, I5 | in every state: no sleeper could go on if it looked again; and where everybody sleeps, timers alone let everybody finish |
//! | P5, I6 | by construction of the world: a row changes only when a commit becomes visible, all rows of it at once |
//! | P8, I4 | at every answer: it is what the state committed at that instant makes of the request |
//! | I7 | by construction: no request carries a time |
//! | I9 | the same checks go on over a crash |
//! | I10, I11 | at every answer: a refusal leaves every claim, an answer on one key leaves the other keys alone |
//! | FIFO | at every grant: nobody is passed over whose turn began less than the grace ago |
//! | bookkeeping | in every state: claims agree with what their transactions have pending, lists are whole, nothing is left behind |

use super::world::{Checked, Doing, Key, Owner, Stored, TICK, World, check, process_in_words, ticks};
use crate::claim::{Ask, Change, Guard, Seen, Wait};
use crate::guard::{GuardAnswer, Guarding};
use crate::lease::{Kind, Lease, Refusal, Request, State, Status, Verdict, decide, holds};
use crate::operation::Answer;
use crate::queue::List;
use crate::table::{Claim, NONE, WaitsFor};
use crate::time::{GRACE, Time};

/// What a decision met.
pub struct Before {
    claim: Option<Claim<Owner>>,
    sealed_guard: bool,
    /// The head, if it is another process.
    head: Option<u32>,
    others: Vec<Option<Claim<Owner>>>,
}

impl World<'_> {
    fn index(&self, key: Key) -> Option<usize> {
        self.shared.entries.iter().position(|e| e.hash == World::hash(key) && e.key == key && self.is_used(e))
    }

    /// Free entries look like key 0 with nothing in it.
    fn is_used(&self, entry: &crate::table::Entry<Key, Owner>) -> bool {
        entry.claim.is_some() || entry.guards != NONE || !entry.queue.is_empty() || !entry.conflicts.is_empty()
    }

    pub fn claim(&self, key: Key) -> Option<Claim<Owner>> {
        self.index(key).and_then(|i| self.shared.entries[i].claim)
    }

    pub fn list(&self, key: Key, list: List) -> Vec<u32> {
        let mut procs = Vec::new();
        if let Some(i) = self.index(key) {
            let entry = &self.shared.entries[i];
            let mut proc = if list == List::Queue { entry.queue.first } else { entry.conflicts.first };
            while proc != NONE {
                procs.push(proc);
                proc = self.shared.waiters[proc as usize].next;
            }
        }
        procs
    }

    pub fn head(&self, key: Key) -> Option<u32> {
        self.index(key).map(|i| self.shared.entries[i].queue.first).filter(|head| *head != NONE)
    }

    pub fn watch(&self, key: Key) -> Option<u32> {
        self.index(key).map(|i| self.shared.entries[i].watch).filter(|watch| *watch != NONE)
    }

    /// Process and whether sealed, of each guard on a key.
    pub fn guards(&self, key: Key) -> Vec<(crate::table::Tx, bool)> {
        let mut guards = Vec::new();
        if let Some(i) = self.index(key) {
            let mut slot = self.shared.entries[i].guards;
            while slot != NONE {
                let guard = &self.shared.guards[slot as usize];
                guards.push((guard.tx, guard.sealed));
                slot = guard.next;
            }
        }
        guards
    }

    fn sealed_guard(&self, key: Key, but: u32) -> bool {
        self.guards(key).iter().any(|(tx, sealed)| *sealed && tx.proc != but && self.running(*tx))
    }

    fn acquirable(&self, key: Key) -> bool {
        self.rows[key as usize].lease.is_none_or(|l| l.acquirable_from(self.at()) <= ticks(self.now))
    }

    /// Whether the head of a key's queue would get the key if it asked now.
    pub fn is_open_to(&self, key: Key, head: u32) -> bool {
        let free = match self.claim(key) {
            None => true,
            // what is left of an ended transaction stops nobody who looks
            Some(c) if !self.running(c.tx) => !self.is_asleep(head as u8),
            Some(c) => c.tx.proc == head || c.kind == Kind::HandOff || self.gives_way(&c),
        };
        free && self.acquirable(key) && !self.sealed_guard(key, head)
    }

    /// The epoch that inspect shows.
    pub fn shown(&self, key: Key) -> i64 {
        match (self.rows[key as usize].lease, self.claim(key)) {
            (Some(lease), _) => lease.epoch,
            (None, Some(claim)) if self.running(claim.tx) => claim.from.min(self.floor),
            (None, _) => self.floor,
        }
    }

    /// All epochs were raised, and the one who did it has yet to say so.
    fn has_just_advanced(&self) -> bool {
        self.processes.iter().any(|q| q.advancing && matches!(q.doing, Doing::Ending { committed: true }))
    }

    fn gives_way(&self, claim: &Claim<Owner>) -> bool {
        !claim.sealed && (claim.deadline <= ticks(self.now) || claim.kind == Kind::Maintenance)
    }

    pub fn before(&self, p: u8, key: Key) -> Before {
        let others = self.keys().map(|k| if k == key { None } else { self.claim(k) }).collect();
        Before {
            claim: self.claim(key),
            sealed_guard: self.sealed_guard(key, u32::from(p)),
            head: self.head(key).filter(|head| *head != u32::from(p)),
            others,
        }
    }

    /// P8, I10, I11 and the order of the queue.
    pub fn check_answer(
        &self,
        p: u8,
        ask: &Ask<Key, Owner>,
        seen: Option<Seen<Owner>>,
        read: &Stored,
        answer: &Answer<Owner>,
        before: &Before,
    ) -> Checked {
        let (at, key) = (self.at(), ask.key);
        let others = self.keys().map(|k| if k == key { None } else { self.claim(k) });
        check!(others.eq(before.others.iter().copied()), "I11", "an answer on k{key} changed another key's claim");
        let foreign = before.claim.filter(|c| c.tx.proc != u32::from(p));
        if !matches!(answer, Answer::Granted(_)) && ask.request != Request::ForceRelease {
            let stands = foreign.filter(|c| c.kind != Kind::HandOff && self.running(c.tx));
            check!(
                stands.is_none_or(|c| self.claim(key) == Some(c)),
                "I10",
                "a refusal changed the claim {stands:?} into {:?}",
                self.claim(key)
            );
        }
        let lease = match seen {
            Some(Seen::Row { lease, .. }) => {
                // between the visibility of an advance and the end of it a change can still be decided, but not commit
                if self.has_just_advanced() && read.version != self.rows[key as usize].version {
                    return Ok(());
                }
                check!(
                    read.version == self.rows[key as usize].version,
                    "P8",
                    "the answer {answer:?} is about a row that is not the committed one any more"
                );
                lease
            }
            Some(Seen::Pending(change)) => change.lease,
            None => return Ok(()),
        };
        let floor = match seen {
            Some(Seen::Row { floor, .. }) => floor,
            _ => 0,
        };
        let verdict = decide(lease.as_ref(), floor, 0, &ask.request, at);
        match answer {
            Answer::Granted(change) => {
                let visible = matches!(seen, Some(Seen::Pending(_))) || self.in_snapshot(p, key, read);
                check!(visible, "P8", "granted on a row that the transaction's snapshot does not show");
                let same = matches!(verdict, Verdict::Change { lease, kind, .. }
                    if like(lease, change.lease) && (change.kind == kind || change.kind == Kind::Transition));
                check!(same, "P8", "granted {change:?}, but the state at that instant says {verdict:?}");
                if let Request::Acquire { owner, .. } = ask.request {
                    self.check_turn(p, key, lease.as_ref(), owner, before)?;
                }
            }
            Answer::Refused(Refusal::NotAcquirable { .. }) if matches!(verdict, Verdict::Change { .. }) => {
                let patient = matches!(ask.wait, Wait::Brief(until) if at.now < until);
                let claimed = foreign.is_some_and(|c| {
                    self.running(c.tx) && !self.gives_way(&c) && !(c.sealed && c.kind == Kind::Maintenance && patient)
                });
                let guarded = before.sealed_guard && !patient;
                check!(
                    claimed || guarded || before.head.is_some(),
                    "P8",
                    "denied k{key}, which could have been had at that instant (met {:?})",
                    before.claim
                );
            }
            Answer::Refused(refusal) => {
                let same = matches!(verdict, Verdict::Refused(r) if like_refusal(&r, refusal));
                check!(same, "P8", "refused {refusal:?}, but the state at that instant says {verdict:?}");
            }
            Answer::Changed => {
                let changed = matches!(verdict, Verdict::Change { .. }) && !self.in_snapshot(p, key, read);
                check!(changed, "P8", "refused a change of k{key} as not serializable without need");
            }
            Answer::Busy | Answer::Broken => {}
            Answer::Full => check!(false, "bookkeeping", "no room for k{key}"),
        }
        Ok(())
    }

    /// P8 for guards.
    pub fn check_guard_answer(&self, p: u8, guarding: &Guarding<Key, Owner>, read: &Stored) -> Checked {
        let (key, owner) = (guarding.key, self.scenario.clients[p as usize].owner);
        let process = &self.processes[p as usize];
        let lease = match process.changes.pending(&key) {
            Some(pending) => pending.change.lease,
            None if self.has_just_advanced() => return Ok(()),
            None => self.rows[key as usize].lease,
        };
        let status = match guarding.answer() {
            Some(GuardAnswer::Guarded { .. }) => Status::Ok,
            Some(GuardAnswer::Refused(status)) => status,
            _ => return Ok(()),
        };
        let now = holds(lease.as_ref(), owner, process.told[key as usize], self.at());
        check!(status == now, "P8", "guard(k{key}) answers {status:?} where it is {now:?} (it read {read:?})");
        Ok(())
    }

    /// An acquire was granted: was it its turn?
    fn check_turn(&self, p: u8, key: Key, lease: Option<&Lease<Owner>>, owner: Owner, before: &Before) -> Checked {
        let own_lease = lease.is_some_and(|l| l.is_live(self.at()) && l.owner == Some(owner));
        let own_claim = before.claim.is_some_and(|c| c.tx == self.tx(p));
        let Some(head) = before.head.filter(|_| !own_lease && !own_claim) else { return Ok(()) };
        let turn = self.turns[key as usize].filter(|turn| turn.head == head);
        let passed = turn.is_some_and(|turn| (turn.since + 1) * TICK <= ticks(self.now).0 && TICK == GRACE);
        check!(
            passed,
            "FIFO",
            "{} got k{key} before {}, whose turn it was ({:?})",
            process_in_words(p),
            process_in_words(head as u8),
            self.turns[key as usize]
        );
        Ok(())
    }

    /// Whether what a guard demands is so now: by the committed row, by a renewal of it under way, or by an own grant.
    pub fn guard_is_right(&self, p: u8, guard: &Guard<Key, Owner>) -> bool {
        let now = ticks(self.now);
        let own = self.processes[p as usize].changes.pending(&guard.key).map(|pending| pending.change);
        let by_own = guard.own.is_some_and(|(serial, until)| own.is_some_and(|c| c.serial == serial) && now < until);
        let pending = own.and_then(|change| change.lease);
        let by_own = by_own || holds(pending.as_ref(), guard.owner, guard.epoch, self.at()) == Status::Ok;
        let row = self.rows[guard.key as usize].lease;
        match holds(row.as_ref(), guard.owner, guard.epoch, self.at()) {
            Status::Ok => true,
            // a renewal that was granted in time and commits keeps the term whole
            Status::Lapsed => {
                by_own || self.claim(guard.key).is_some_and(|c| c.kind == Kind::Renewal && self.running(c.tx))
            }
            _ => by_own,
        }
    }

    pub fn check_bases(&self, p: u8) -> Checked {
        let process = &self.processes[p as usize];
        for (key, _) in self.writes(p) {
            let row = &self.rows[key as usize];
            check!(
                process.bases[key as usize] == row.version,
                "P1",
                "{} writes k{key} over a version that its change was not decided on",
                process_in_words(p)
            );
        }
        Ok(())
    }

    pub fn check_guards(&self, p: u8) -> Checked {
        let process = &self.processes[p as usize];
        if process.changes.guards().next().is_some() {
            check!(
                process.guards_right,
                "P3",
                "{} commits although a guard was wrong at its seal",
                process_in_words(p)
            );
            check!(
                !process.guards_overtaken,
                "P3",
                "a transition became visible between the seal of {} and its commit",
                process_in_words(p)
            );
        }
        Ok(())
    }

    /// One row of a commit becomes visible.
    pub fn check_write(&mut self, p: u8, key: Key, change: &Change<Owner>) -> Checked {
        let (old, new) = (self.rows[key as usize].lease, change.lease);
        if change.kind != Kind::Renewal {
            // P3 is about transitions; it holds for lapses and purges, too
            for q in 0..self.processes.len() as u8 {
                let guards = self.processes[q as usize].changes.guards().any(|g| g.key == key);
                if q != p && guards && self.is_sealed(q) {
                    self.process(q).guards_overtaken = true;
                }
            }
        }
        let Some(new) = new else {
            check!(
                change.kind != Kind::Maintenance
                    || old.is_none_or(|old| !old.is_live(crate::time::At { now: ticks(self.now), start: Time(0) })),
                "P1",
                "the row of a live lease of k{key} is deleted"
            );
            return Ok(());
        };
        let transition = old.is_none_or(|old| old.epoch != new.epoch);
        if transition {
            let top = self.top[key as usize];
            check!(new.epoch > top, "P2", "k{key} gets epoch {} after {top} was committed", new.epoch);
            self.top[key as usize] = new.epoch;
            if let Some(old) =
                old.filter(|old| old.state == State::Held && old.owner != new.owner && new.owner.is_some())
            {
                check!(
                    old.expires_at <= new.granted_at || self.forces(p, key),
                    "P1",
                    "k{key} is granted to {:?} at {:?} while {:?} holds it until {:?}",
                    new.owner,
                    new.granted_at,
                    old.owner,
                    old.expires_at
                );
            }
        } else {
            check!(
                old.is_none_or(|old| old.owner == new.owner),
                "I8",
                "k{key} changes its owner within epoch {}",
                new.epoch
            );
        }
        Ok(())
    }

    /// What holds in every state.
    pub fn check_state(&self) -> Checked {
        for key in self.keys().map(usize::from) {
            let shown = self.shown(key as Key);
            check!(
                shown >= self.top[key],
                "P2",
                "k{key} shows epoch {shown} after {} was committed or shown",
                self.top[key]
            );
        }
        if self.private {
            return Ok(());
        }
        self.check_memory()?;
        self.check_claims()?;
        self.check_sleepers()?;
        self.check_rings()?;
        self.check_commits()
    }

    /// The lists are whole and nothing is left of anybody who has ended.
    fn check_memory(&self) -> Checked {
        let mut linked = 0;
        for key in self.keys() {
            for list in [List::Queue, List::Conflicts] {
                let mut prev = NONE;
                for proc in self.list(key, list) {
                    let waiter = &self.shared.waiters[proc as usize];
                    let whole =
                        waiter.prev == prev && waiter.list == list && Some(waiter.entry as usize) == self.index(key);
                    check!(whole, "bookkeeping", "the {list:?} of k{key} is broken at {waiter:?}");
                    prev = proc;
                    linked += 1;
                    check!(linked <= self.processes.len(), "bookkeeping", "the {list:?} of k{key} is a ring");
                    self.check_alive(waiter.tx, "a place in a list")?;
                    check!(
                        self.processes[proc as usize].frozen
                            || !matches!(self.processes[proc as usize].doing, Doing::Nothing),
                        "bookkeeping",
                        "{} stands in the {list:?} of k{key} and does not wait",
                        process_in_words(proc as u8)
                    );
                }
            }
            for (tx, _) in self.guards(key) {
                self.check_alive(tx, "a guard")?;
            }
            if let Some(claim) = self.claim(key) {
                self.check_alive(claim.tx, "a claim")?;
            }
        }
        let waiting = self.shared.waiters.iter().filter(|w| w.entry != NONE).count();
        check!(waiting == linked, "bookkeeping", "{waiting} processes wait, {linked} are in lists");
        let used = self.shared.entries.iter().filter(|e| self.is_used(e)).count();
        let mut free = 0;
        let mut next = self.shared.head.free_entry;
        while next != NONE {
            free += 1;
            next = self.shared.entries[next as usize].next;
        }
        check!(used + free == self.shared.entries.len(), "bookkeeping", "{used} entries used, {free} free");
        Ok(())
    }

    fn check_alive(&self, tx: crate::table::Tx, what: &str) -> Checked {
        let process = &self.processes[tx.proc as usize];
        let ending = process.lxid == tx.lxid && matches!(process.doing, Doing::Ending { .. });
        check!(
            process.runs(tx) || ending,
            "bookkeeping",
            "{what} is left behind by a transaction of {} that is gone",
            process_in_words(tx.proc as u8)
        );
        Ok(())
    }

    /// Claims agree with what their transactions have pending (rule 7).
    fn check_claims(&self) -> Checked {
        for key in self.keys() {
            let Some(claim) = self.claim(key) else { continue };
            if claim.kind == Kind::HandOff {
                check!(
                    self.head(key) == Some(claim.tx.proc),
                    "bookkeeping",
                    "k{key} is handed to {}, who is not the head",
                    process_in_words(claim.tx.proc as u8)
                );
                continue;
            }
            let process = &self.processes[claim.tx.proc as usize];
            if !process.runs(claim.tx) {
                continue;
            }
            let pending = process.changes.pending(&key).map(|pending| pending.change);
            check!(
                pending
                    .is_some_and(|c| c.serial == claim.serial && c.kind == claim.kind && c.deadline == claim.deadline),
                "bookkeeping",
                "the claim {claim:?} does not agree with what is pending: {pending:?}"
            );
        }
        Ok(())
    }

    /// Nobody sleeps who could go on (P6); nor behind a process that has stopped once its deadline has passed (P4).
    fn check_sleepers(&self) -> Checked {
        for p in 0..self.processes.len() as u8 {
            if self.processes[p as usize].frozen || !self.is_asleep(p) || self.is_about_to_be_woken(p) {
                continue;
            }
            if self.watch_over(p).is_some_and(|watch| !self.is_asleep(watch)) {
                // it tells the head, unless it has stopped: then there is the safety tick
                continue;
            }
            let mut look = self.clone();
            look.process(p).woken = true;
            look.answer = None;
            let mut steps = 0;
            while look.can_step(p) && look.answer.is_none() && steps < 16 {
                look.apply(super::world::Action::Step(p))?;
                steps += 1;
            }
            // that somebody else took the key meanwhile it learns soon enough
            let denied = matches!(look.answer, Some(Answer::Refused(Refusal::NotAcquirable { .. })));
            check!(look.is_asleep(p) || denied, "P6", "{} sleeps although it could go on", process_in_words(p));
            self.check_blocker(p)?;
        }
        Ok(())
    }

    /// Who watches over the head of a queue.
    fn watch_over(&self, p: u8) -> Option<u8> {
        self.keys().find(|key| self.head(*key) == Some(u32::from(p))).and_then(|key| self.watch(key)).map(|w| w as u8)
    }

    /// An open transaction delays nobody past the deadline of the change that it has pending (P4).
    fn check_blocker(&self, p: u8) -> Checked {
        let waiter = &self.shared.waiters[p as usize];
        let Some(entry) = self.shared.entries.get(waiter.entry as usize) else { return Ok(()) };
        let looks_itself = waiter.list == List::Conflicts || entry.queue.first == u32::from(p);
        // what it saw when it looked last may have become a lease that it was not told of: its timer is right
        let waits_for_lease = waiter.list == List::Queue && !self.acquirable(entry.key);
        if waiter.waits_for != WaitsFor::Change || !looks_itself || waits_for_lease {
            return Ok(());
        }
        let Some(claim) = entry.claim.filter(|c| self.running(c.tx) && !c.sealed && c.kind != Kind::HandOff) else {
            return Ok(());
        };
        let pending = self.processes[claim.tx.proc as usize].changes.pending(&entry.key).map(|pending| pending.change);
        check!(
            claim.tx.proc == u32::from(p) || pending.is_some_and(|c| c.deadline > ticks(self.now)),
            "P4",
            "{} sleeps behind a claim of {} that has nothing pending, or is past its deadline: {pending:?}",
            process_in_words(p),
            process_in_words(claim.tx.proc as u8)
        );
        Ok(())
    }

    /// Who commits waits for nobody who waits, directly or through others, for it (P7).
    fn check_commits(&self) -> Checked {
        let waits =
            |p: u32| matches!(self.processes[p as usize].doing, Doing::Committing(_)) && self.is_asleep(p as u8);
        let blockers = |p: u32| {
            let mut blockers: Vec<u32> = Vec::new();
            if let Some(entry) = self.shared.entries.get(self.shared.waiters[p as usize].entry as usize) {
                blockers.extend(entry.claim.filter(|c| c.sealed || c.announced).map(|c| c.tx.proc));
                blockers.extend(self.guards(entry.key).iter().filter(|(_, sealed)| *sealed).map(|(tx, _)| tx.proc));
            }
            blockers.retain(|q| *q != p && waits(*q));
            blockers
        };
        for p in (0..self.processes.len() as u32).filter(|p| waits(*p)) {
            let mut reached = blockers(p);
            for _ in 0..self.processes.len() {
                let more: Vec<u32> = reached.iter().flat_map(|q| blockers(*q)).collect();
                reached.extend(more);
                reached.sort_unstable();
                reached.dedup();
            }
            check!(!reached.contains(&p), "P7", "{} waits in its commit for itself", process_in_words(p as u8));
        }
        Ok(())
    }

    /// Somebody who runs has yet to do what will wake it, or the safety tick does: one who stopped after its commit became
    /// visible, or a head that stopped before it had looked.
    fn is_about_to_be_woken(&self, p: u8) -> bool {
        let waiter = &self.shared.waiters[p as usize];
        let Some(entry) = self.shared.entries.get(waiter.entry as usize) else { return false };
        let key = entry.key;
        if !self.in_snapshot(p, key, &self.rows[key as usize]) {
            // whatever it waits for, it can only fail
            return true;
        }
        if self.has_just_advanced() {
            return true;
        }
        let ending = |proc: u32| matches!(self.processes[proc as usize].doing, Doing::Ending { .. });
        let queue = self.list(key, List::Queue);
        let ahead = queue.iter().take_while(|q| **q != u32::from(p)).copied();
        let ahead: Vec<u32> = if queue.contains(&u32::from(p)) { ahead.collect() } else { Vec::new() };
        entry.claim.is_some_and(|c| ending(c.tx.proc) && !self.running(c.tx))
            || self.guards(key).iter().any(|(tx, _)| !self.running(*tx) && ending(tx.proc))
            || ahead.iter().any(|q| ending(*q))
            || ahead.iter().any(|q| !self.processes[*q as usize].frozen && !self.is_asleep(*q as u8))
            || waiter.until == Time::NEVER && ahead.first().is_some_and(|head| self.processes[*head as usize].frozen)
    }

    /// The deadlock detector finds every ring of waiters, and nothing else (rule 15).
    fn check_rings(&self) -> Checked {
        let blocker = |p: u32| {
            let waiter = &self.shared.waiters[p as usize];
            let claim = self.shared.entries.get(waiter.entry as usize)?.claim?;
            (claim.kind != Kind::HandOff && claim.deadline > ticks(self.now) && claim.tx.proc != p)
                .then_some(claim.tx.proc)
        };
        for p in 0..self.processes.len() as u8 {
            if self.sleeps(p).is_none() || blocker(u32::from(p)).is_none() {
                continue;
            }
            let mut ring = false;
            let mut next = blocker(u32::from(p));
            for _ in 0..self.processes.len() {
                ring |= next == Some(u32::from(p));
                next = next.and_then(blocker);
            }
            let me = self.tx(p);
            let found = self.clone().section(|section| section.breaks_deadlock(me));
            check!(found == ring, "rule 15", "{} is in a ring: {ring}, found: {found}", process_in_words(p));
        }
        Ok(())
    }
}

/// The same change, but for the epoch, which may be higher.
fn like(a: Option<Lease<Owner>>, b: Option<Lease<Owner>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.epoch <= b.epoch && Lease { epoch: b.epoch, ..a } == b,
        (a, b) => a == b,
    }
}

fn like_refusal(a: &Refusal, b: &Refusal) -> bool {
    match (a, b) {
        (Refusal::NotAcquirable { .. }, Refusal::NotAcquirable { .. }) => true,
        (a, b) => a == b,
    }
}
