//! For directed tests: processes that call, wait and commit on one shared memory, one step at a time.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::claim::{Ask, Change, Outcome, Seen, Wait};
use crate::commit::{Commit, CommitStep};
use crate::guard::{GuardAnswer, Guarding};
use crate::lease::{Lease, Request, State};
use crate::operation::Next;
use crate::queue::List;
use crate::table::{Claim, NONE, Section, Storage, Tx, Waiter, Wakes};
use crate::time::{At, GRACE, Time};
use crate::transaction::Transaction;

pub type Key = u8;
pub type Owner = u8;

const START: Time = Time(0);
pub const PROCESSES: usize = 128;

pub struct Bench {
    storage: Storage<Key, Owner>,
    pub rows: HashMap<Key, Lease<Owner>>,
    pub now: i64,
    /// Each process's transaction, if it runs one.
    running: RefCell<HashMap<u32, u32>>,
    next: u32,
    changes: HashMap<u32, Transaction<Key, Owner, ()>>,
    asks: HashMap<u32, Ask<Key, Owner>>,
    /// Who was woken, in order.
    pub woken: Vec<u32>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench {
            storage: Storage::new(8, 8, 8, PROCESSES),
            rows: HashMap::new(),
            now: 0,
            running: RefCell::default(),
            next: 1,
            changes: HashMap::new(),
            asks: HashMap::new(),
            woken: Vec::new(),
        }
    }

    /// Key 0 is held by owner 0 until then.
    pub fn held(until: i64) -> Bench {
        let mut bench = Bench::new();
        bench.rows.insert(0, lease(State::Held, 1, Some(0), until));
        bench
    }

    pub fn section<R>(&mut self, f: impl FnOnce(&mut Section<'_, Key, Owner>) -> R) -> R {
        let mut wakes = Wakes::with_capacity(PROCESSES);
        let running = &self.running;
        let runs = |tx: Tx| running.borrow().get(&tx.proc) == Some(&tx.lxid);
        let at = At { now: Time(self.now), start: START };
        let result = self.storage.section(at, &runs, &mut wakes, f);
        self.woken.extend(wakes.drain());
        result
    }

    pub fn tx(&mut self, proc: u32) -> Tx {
        let next = &mut self.next;
        let lxid = *self.running.borrow_mut().entry(proc).or_insert_with(|| {
            *next += 1;
            *next
        });
        Tx { proc, incarnation: 0, lxid }
    }

    /// One look: reads and decides, again while it has to.
    fn look(&mut self, proc: u32) -> Outcome<Owner> {
        let ask = self.asks[&proc];
        loop {
            let pending = self.pending(proc, ask.key);
            let row = self.rows.get(&ask.key).copied();
            let seen = match pending {
                Some(change) => Seen::Pending(change),
                None => {
                    let version = self.section(|section| section.version(ask.hash));
                    Seen::Row { lease: row, floor: 0, version, in_snapshot: true }
                }
            };
            match self.section(|section| section.operate(&ask, &seen)) {
                Outcome::Again => {}
                Outcome::Granted(change) => {
                    let changes = self.changes.entry(proc).or_default();
                    changes.record(1, ask.key, ask.hash, row, change, ());
                    return Outcome::Granted(change);
                }
                outcome => return outcome,
            }
        }
    }

    /// A call that does not stand in the queue. It bears with a commit under way for one unit of time.
    pub fn ask(&mut self, proc: u32, key: Key, request: Request<Owner>) -> Outcome<Owner> {
        let ask = Ask {
            me: self.tx(proc),
            key,
            hash: key.into(),
            request,
            wait: Wait::Brief(Time(self.now + 1)),
            room: true,
        };
        self.asks.insert(proc, ask);
        self.look(proc)
    }

    /// An acquire that waits, by the owner of the process's number.
    pub fn wait(&mut self, proc: u32, key: Key, ttl: i64) -> Outcome<Owner> {
        let request = Request::Acquire { owner: proc as u8, ttl };
        let ask = Ask { me: self.tx(proc), key, hash: key.into(), request, wait: Wait::Queue, room: true };
        self.asks.insert(proc, ask);
        self.section(|section| assert!(section.enqueue(ask.me, Some(proc as u8), &key, ask.hash)));
        self.look(proc)
    }

    /// A process that waits was woken, or its timer went off.
    pub fn again(&mut self, proc: u32) -> Outcome<Owner> {
        self.look(proc)
    }

    pub fn guard(&mut self, proc: u32, key: Key, owner: Owner, epoch: i64) -> bool {
        let me = self.tx(proc);
        let mut guarding = Guarding::new(me, key, key.into(), owner, epoch, self.pending(proc, key));
        loop {
            match guarding.next() {
                Next::Sample => guarding.sampled(self.section(|section| section.version(key.into()))),
                Next::Read => guarding.read(self.rows.get(&key).copied()),
                _ => self.section(|section| guarding.decide(section)),
            }
            match guarding.answer() {
                Some(GuardAnswer::Guarded { guard, .. }) => {
                    self.changes.entry(proc).or_default().add_guard(1, guard);
                    return true;
                }
                Some(_) => return false,
                None => {}
            }
        }
    }

    fn pending(&self, proc: u32, key: Key) -> Option<Change<Owner>> {
        self.changes.get(&proc).and_then(|changes| changes.pending(&key)).map(|pending| pending.change)
    }

    /// Up to where the rows are written, or to where it cannot go on.
    pub fn seal(&mut self, proc: u32) -> CommitStep<Key> {
        let me = self.tx(proc);
        let mut commit = Commit::new(me, self.changes.entry(proc).or_default());
        loop {
            match commit.next() {
                CommitStep::Seal => self.section(|section| commit.seal(section)),
                CommitStep::Check(key) => commit.checked(self.rows.get(&key)),
                step => return step,
            }
        }
    }

    /// Its commit becomes visible; what it has in shared memory stays.
    pub fn become_visible(&mut self, proc: u32) {
        for (key, _, pending) in self.changes.entry(proc).or_default().changes() {
            match pending.change.lease {
                Some(lease) => self.rows.insert(*key, lease),
                None => self.rows.remove(key),
            };
        }
        self.running.borrow_mut().remove(&proc);
    }

    /// The end of a transaction, as it became visible or as it was rolled back.
    pub fn finish(&mut self, me: Tx, committed: bool) {
        let changes = self.changes.remove(&me.proc).unwrap_or_default();
        let guards: Vec<_> = changes.guards().collect();
        self.section(|section| {
            let at = section.at;
            section.finish(me, changes.outcomes(committed, at), &guards);
        });
    }

    pub fn commit(&mut self, proc: u32) {
        let me = self.tx(proc);
        assert_eq!(self.seal(proc), CommitStep::Write);
        self.become_visible(proc);
        self.finish(me, true);
    }

    pub fn abort(&mut self, proc: u32) {
        let me = self.tx(proc);
        self.running.borrow_mut().remove(&proc);
        self.finish(me, false);
    }

    pub fn claim(&mut self, key: Key) -> Option<Claim<Owner>> {
        self.section(|section| section.claim(&key, key.into()).copied())
    }

    pub fn waiter(&self, proc: u32) -> &Waiter<Owner> {
        &self.storage.waiters[proc as usize]
    }

    pub fn waits(&mut self, proc: u32) -> Option<List> {
        let me = self.tx(proc);
        self.section(|section| section.waits(me))
    }

    /// A key's queue.
    pub fn queue(&mut self, key: Key) -> Vec<u32> {
        let first =
            self.section(|section| section.find(&key, key.into()).map_or(NONE, |i| section.entry(i).queue.first));
        let mut queue = Vec::new();
        let mut proc = first;
        while proc != NONE {
            queue.push(proc);
            proc = self.storage.waiters[proc as usize].next;
        }
        queue
    }

    /// Nothing is left of anybody.
    pub fn is_clean(&mut self) -> bool {
        self.section(|section| section.entries_in_use()) == 0
            && self.storage.guards.iter().all(|g| g.tx == Tx::default())
    }
}

pub fn lease(state: State, epoch: i64, owner: Option<Owner>, until: i64) -> Lease<Owner> {
    let (granted_at, expires_at) = (Time(0), Time(until));
    Lease { state, epoch, owner, ttl: until, granted_at, renewed_at: granted_at, expires_at, clock_base: START }
}

pub fn acquire(owner: Owner, ttl: i64) -> Request<Owner> {
    Request::Acquire { owner, ttl }
}

pub fn renew(owner: Owner, epoch: i64, ttl: i64) -> Request<Owner> {
    Request::Renew { owner, epoch, ttl }
}

pub fn release(owner: Owner, epoch: i64) -> Request<Owner> {
    Request::Release { owner, epoch }
}

pub fn until(time: i64) -> Outcome<Owner> {
    Outcome::Wait { until: Time(time) }
}

pub const WOKEN: Outcome<Owner> = Outcome::Wait { until: Time::NEVER };

pub fn is_granted(outcome: Outcome<Owner>) -> bool {
    matches!(outcome, Outcome::Granted(_))
}

/// The hand-off's grace.
pub const G: i64 = GRACE;
