//! A small world that the real steps run in: processes with scripts, committed rows, one shared memory, one clock.

use std::rc::Rc;

use crate::claim::{Ask, Change, Wait};
use crate::commit::{Commit, CommitStep, Failure};
use crate::guard::{GuardAnswer, Guarding};
use crate::lease::{Kind, Lease, Request, State};
use crate::operation::{Answer, Next, Operation};
use crate::rules::{Rule, rule};
use crate::table::{Section, Storage, Tx, Wakes};
use crate::time::{At, GRACE, Time};
use crate::transaction::Transaction;

pub type Key = u8;
pub type Owner = u8;

/// How many keys there can be.
pub const KEYS: usize = 5;

/// One value for each key.
pub type ByKey<T> = [T; KEYS];

/// One step of the clock: the grace that a hand-off is given.
pub const TICK: i64 = GRACE;
/// By how much advance_epochs raises every epoch.
const ADVANCE: i64 = 10;
const START: Time = Time(0);
/// For how long an acquire that does not wait bears with a commit under way.
const PATIENCE: i64 = TICK;

pub const fn ticks(n: i64) -> Time {
    Time(n * TICK)
}

/// What a client sends. Owner and epoch are the ones of its process and of its last grant; ttl is in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statement {
    Acquire { key: Key, ttl: i64 },
    WaitAcquire { key: Key, ttl: i64 },
    Renew { key: Key, ttl: i64 },
    Release { key: Key },
    ForceRelease { key: Key },
    Lapse { key: Key },
    Purge { key: Key },
    Guard { key: Key },
    Savepoint,
    ReleaseSavepoint,
    RollBackTo,
    AdvanceEpochs,
}

impl Statement {
    /// The same on another key.
    pub fn on(self, key: Key) -> Statement {
        match self {
            Statement::Acquire { ttl, .. } => Statement::Acquire { key, ttl },
            Statement::WaitAcquire { ttl, .. } => Statement::WaitAcquire { key, ttl },
            Statement::Renew { ttl, .. } => Statement::Renew { key, ttl },
            Statement::Release { .. } => Statement::Release { key },
            Statement::ForceRelease { .. } => Statement::ForceRelease { key },
            Statement::Lapse { .. } => Statement::Lapse { key },
            Statement::Purge { .. } => Statement::Purge { key },
            Statement::Guard { .. } => Statement::Guard { key },
            of_none => of_none,
        }
    }
}

/// One client: its owner's name and the transactions that it runs, one after the other.
#[derive(Clone, Debug)]
pub struct Client {
    pub owner: Owner,
    /// It runs its transactions under REPEATABLE READ, not READ COMMITTED.
    pub repeatable: bool,
    pub transactions: Vec<Vec<Statement>>,
}

/// Where everything begins, and what may happen to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// Each key's row at the start.
    pub rows: Vec<Option<Lease<Owner>>>,
    pub clients: Vec<Client>,
    /// When the clock stops.
    pub last_tick: i64,
    /// How many transactions may be rolled back, by an error or a cancel, at any step.
    pub aborts: u8,
    /// How many processes may stop for ever, at any step.
    pub freezes: u8,
    /// How often the server may crash.
    pub crashes: u8,
}

/// A property that does not hold, and what shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: &'static str,
    pub what: String,
}

pub type Checked = Result<(), Violation>;

thread_local! {
    /// The only properties to look at, where that is not all of them.
    static ONLY: std::cell::Cell<&'static [&'static str]> = const { std::cell::Cell::new(&[]) };
}

/// Runs `f` with no other properties looked at than these.
pub fn only<R>(properties: &'static [&'static str], f: impl FnOnce() -> R) -> R {
    ONLY.set(properties);
    let result = f();
    ONLY.set(&[]);
    result
}

pub fn counts(property: &str) -> bool {
    let only = ONLY.get();
    only.is_empty() || only.contains(&property)
}

macro_rules! check {
    ($holds:expr, $property:literal, $($what:tt)*) => {
        if !$holds && $crate::model::world::counts($property) {
            return Err($crate::model::world::Violation { property: $property, what: format!($($what)*) });
        }
    };
}
pub(crate) use check;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    pub lease: Option<Lease<Owner>>,
    /// How many times it was written: for the checks only.
    pub version: u32,
}

// boxing the large ones would cost an allocation per step
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Doing {
    /// Between two statements.
    Nothing,
    Calling {
        operation: Operation<Key, Owner>,
        /// What it read.
        read: Stored,
        /// When it began: what stands for the clock where rule 1 is off.
        began: i64,
    },
    Guarding {
        guarding: Guarding<Key, Owner>,
        read: Stored,
    },
    /// In pre-commit, until the rows are written.
    Committing(Commit<Key, Owner>),
    /// About to become visible.
    Written,
    /// Visible; what it has in shared memory is still there.
    Ending {
        committed: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Process {
    /// Which transaction of its script, and which statement of that.
    pub transaction: usize,
    pub statement: usize,
    pub lxid: u32,
    /// It has a transaction that is running.
    pub open: bool,
    pub level: u32,
    pub changes: Transaction<Key, Owner, ()>,
    /// By key: the version of the row that its pending change was decided on.
    pub bases: ByKey<u32>,
    /// By key: the epoch it was told, and the one it goes back to when its transaction rolls back.
    pub told: ByKey<i64>,
    pub told_before: ByKey<i64>,
    pub doing: Doing,
    /// By key: the version that its transaction's snapshot shows, under REPEATABLE READ.
    pub snapshot: Option<ByKey<u32>>,
    pub woken: bool,
    pub frozen: bool,
    /// By its last seal: every guard was right at that instant, and no transition has become visible since.
    pub guards_right: bool,
    pub guards_overtaken: bool,
    /// What it is to write into the floor.
    pub floor: i64,
    /// By key: its commit has left that change out.
    pub left_out: ByKey<bool>,
    pub advancing: bool,
}

/// Since when the head of a queue could have had its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    pub head: u32,
    pub since: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Step(u8),
    /// A read that sees neither the old version of a row nor the new one, because the row changes beside it.
    Miss(u8),
    /// The transaction is rolled back: an error, a cancel, a client that went away.
    Abort(u8),
    /// The innermost savepoint is rolled back by an error, a cancel included.
    Fail(u8),
    Freeze(u8),
    Tick,
    /// `flushed`: commits that have written their rows had reached the disk.
    Crash {
        flushed: bool,
    },
}

pub struct World<'a> {
    pub scenario: &'a Scenario,
    pub now: i64,
    pub rows: ByKey<Stored>,
    pub floor: i64,
    /// What a crash leaves: all commits up to the last one that was flushed.
    pub durable: ByKey<Stored>,
    pub durable_floor: i64,
    /// Shared between states that agree in it, as is each process.
    pub shared: Rc<Storage<Key, Owner>>,
    pub processes: Vec<Rc<Process>>,
    pub aborts: u8,
    pub freezes: u8,
    pub crashes: u8,
    /// Heavyweight locks: the table's exclusive one, the purge's, the floor's row.
    pub table_lock: Option<u8>,
    pub purge_lock: Option<u8>,
    pub floor_lock: Option<u8>,
    /// By key: the highest epoch that was ever committed, and whose turn it is.
    pub top: ByKey<i64>,
    pub turns: ByKey<Option<Turn>>,
    /// The last answer that anybody got.
    pub answer: Option<Answer<Owner>>,
    /// The last step was one that only the process itself can see.
    pub private: bool,
    /// The last step in words, where somebody listens.
    pub words: Option<String>,
}

impl Clone for World<'_> {
    fn clone(&self) -> Self {
        World {
            scenario: self.scenario,
            shared: self.shared.clone(),
            processes: self.processes.clone(),
            words: None,
            ..*self
        }
    }
}

impl<'a> World<'a> {
    pub fn new(scenario: &'a Scenario) -> World<'a> {
        let at_start = |key: usize| scenario.rows.get(key).copied().flatten();
        let rows: ByKey<Stored> = std::array::from_fn(|key| Stored { lease: at_start(key), version: 0 });
        let processes = scenario.clients.iter().map(|client| {
            let told = |row: &Option<Lease<Owner>>| match row {
                Some(l) if l.owner == Some(client.owner) => l.epoch,
                _ => 0,
            };
            let told: ByKey<i64> = std::array::from_fn(|key| told(&at_start(key)));
            Process {
                transaction: 0,
                statement: 0,
                lxid: 0,
                open: false,
                level: 1,
                changes: Transaction::default(),
                bases: [0; KEYS],
                told_before: told,
                told,
                doing: Doing::Nothing,
                snapshot: None,
                woken: false,
                frozen: false,
                guards_right: true,
                guards_overtaken: false,
                floor: 0,
                left_out: [false; KEYS],
                advancing: false,
            }
        });
        World {
            scenario,
            now: 0,
            durable: rows,
            top: rows.map(|row| row.lease.map_or(0, |l| l.epoch)),
            rows,
            floor: 0,
            durable_floor: 0,
            shared: Rc::new(World::memory(scenario)),
            processes: processes.map(Rc::new).collect(),
            aborts: scenario.aborts,
            freezes: scenario.freezes,
            crashes: scenario.crashes,
            table_lock: None,
            purge_lock: None,
            floor_lock: None,
            turns: [None; KEYS],
            answer: None,
            private: false,
            words: None,
        }
    }

    fn memory(scenario: &Scenario) -> Storage<Key, Owner> {
        Storage::new(2, scenario.rows.len(), 2 * scenario.clients.len(), scenario.clients.len())
    }

    pub fn at(&self) -> At {
        At { now: ticks(self.now), start: START }
    }

    /// What a process samples.
    fn version(&self, key: Key) -> u64 {
        self.shared.versions[World::hash(key) as usize & (self.shared.versions.len() - 1)]
    }

    pub fn keys(&self) -> std::ops::Range<Key> {
        0..self.scenario.rows.len() as Key
    }

    pub fn hash(key: Key) -> u32 {
        u32::from(key)
    }

    pub fn tx(&self, p: u8) -> Tx {
        Tx { proc: u32::from(p), incarnation: 0, lxid: self.processes[p as usize].lxid }
    }

    pub fn running(&self, tx: Tx) -> bool {
        self.processes[tx.proc as usize].runs(tx)
    }

    pub fn section<R>(&mut self, f: impl FnOnce(&mut Section<'_, Key, Owner>) -> R) -> R {
        self.section_at(self.now, f)
    }

    fn section_at<R>(&mut self, now: i64, f: impl FnOnce(&mut Section<'_, Key, Owner>) -> R) -> R {
        let at = At { now: ticks(now), start: START };
        let mut wakes = Wakes::default();
        let processes = &self.processes;
        let result =
            Rc::make_mut(&mut self.shared).section(at, &|tx| processes[tx.proc as usize].runs(tx), &mut wakes, f);
        for woken in wakes.drain() {
            self.process(woken as u8).woken = true;
        }
        result
    }

    pub fn process(&mut self, p: u8) -> &mut Process {
        Rc::make_mut(&mut self.processes[p as usize])
    }

    /// Whether the snapshot of a process shows the same row (it is so for who has none).
    pub fn in_snapshot(&self, p: u8, key: Key, row: &Stored) -> bool {
        self.processes[p as usize].snapshot.is_none_or(|versions| versions[key as usize] == row.version)
    }

    /// The transaction that a process runs or will run next.
    fn script(&self, p: u8) -> Option<&'a [Statement]> {
        let scenario = self.scenario;
        scenario.clients[p as usize].transactions.get(self.processes[p as usize].transaction).map(Vec::as_slice)
    }

    pub fn is_done(&self, p: u8) -> bool {
        let process = &self.processes[p as usize];
        matches!(process.doing, Doing::Nothing) && !process.open && self.script(p).is_none()
    }

    /// What a sleeping process sleeps until.
    pub fn sleeps(&self, p: u8) -> Option<Time> {
        match &self.processes[p as usize].doing {
            Doing::Calling { operation, .. } => match operation.next() {
                Next::Sleep { until } => Some(until),
                _ => None,
            },
            Doing::Committing(commit) => match commit.next() {
                CommitStep::Sleep { until } => Some(until),
                _ => None,
            },
            _ => None,
        }
    }

    /// It sleeps, and neither its timer nor anybody else has woken it.
    pub fn is_asleep(&self, p: u8) -> bool {
        !self.processes[p as usize].woken && self.sleeps(p).is_some_and(|until| until > ticks(self.now))
    }

    /// In pre-commit or after: it has the lease table locked.
    fn locks_table(&self, p: u8) -> bool {
        matches!(
            self.processes[p as usize].doing,
            Doing::Committing(_) | Doing::Written | Doing::Ending { committed: true }
        )
    }

    pub fn is_sealed(&self, p: u8) -> bool {
        match &self.processes[p as usize].doing {
            Doing::Committing(commit) => matches!(commit.next(), CommitStep::Check(_) | CommitStep::Write),
            Doing::Written => true,
            _ => false,
        }
    }

    /// Whether a process can take its next step now.
    pub fn can_step(&self, p: u8) -> bool {
        let process = &self.processes[p as usize];
        if process.frozen || self.is_done(p) || self.is_asleep(p) {
            return false;
        }
        match &process.doing {
            Doing::Nothing if self.script(p).is_some_and(|s| process.open && process.statement >= s.len()) => {
                process.advancing || self.can_lock_table(p)
            }
            Doing::Committing(commit) if commit.next() == CommitStep::Write && !rule(Rule::OnePurge) => {
                !self.deletes(p) || self.floor_lock.is_none()
            }
            _ => true,
        }
    }

    /// Whether a process takes a lease away from its holder in its transaction.
    pub fn forces(&self, p: u8, key: Key) -> bool {
        self.script(p).is_some_and(|script| script.contains(&Statement::ForceRelease { key }))
    }

    fn deletes(&self, p: u8) -> bool {
        self.writes(p).any(|(_, change)| change.lease.is_none())
    }

    /// The changes that a commit writes.
    pub fn writes(&self, p: u8) -> impl Iterator<Item = (Key, Change<Owner>)> + '_ {
        let process = &self.processes[p as usize];
        let changes = process.changes.changes().map(|(key, _, pending)| (*key, pending.change));
        changes.filter(|(key, _)| !process.left_out[*key as usize])
    }

    /// Whether a process is reading a row that has changed since it sampled the version.
    fn can_miss(&self, p: u8) -> bool {
        match &self.processes[p as usize].doing {
            Doing::Calling { operation, read, .. } if operation.next() == Next::Read => {
                read.version != self.rows[operation.ask().key as usize].version
            }
            Doing::Guarding { guarding, read } if guarding.next() == Next::Read => {
                read.version != self.rows[guarding.key as usize].version
            }
            _ => false,
        }
    }

    /// The lock that a commit takes first of all.
    fn can_lock_table(&self, p: u8) -> bool {
        let process = &self.processes[p as usize];
        if process.advancing {
            self.table_lock.is_none() && (0..self.processes.len() as u8).all(|q| q == p || !self.locks_table(q))
        } else {
            process.changes.is_empty() || self.table_lock.is_none_or(|holder| holder == p)
        }
    }

    /// Everything that can happen next.
    pub fn actions(&self, actions: &mut Vec<Action>) {
        actions.clear();
        for p in 0..self.processes.len() as u8 {
            let process = &self.processes[p as usize];
            if process.frozen {
                continue;
            }
            if self.can_step(p) {
                actions.push(Action::Step(p));
            }
            if self.can_miss(p) {
                actions.push(Action::Miss(p));
            }
            if process.open && self.aborts > 0 {
                actions.push(Action::Abort(p));
                if process.level > 1 && matches!(process.doing, Doing::Nothing | Doing::Calling { .. }) {
                    actions.push(Action::Fail(p));
                }
            }
            if self.freezes > 0 && (process.open || matches!(process.doing, Doing::Ending { .. })) {
                actions.push(Action::Freeze(p));
            }
        }
        if self.now < self.scenario.last_tick {
            actions.push(Action::Tick);
        }
        if self.crashes > 0 {
            actions.push(Action::Crash { flushed: false });
            if self.processes.iter().any(|process| matches!(process.doing, Doing::Written)) {
                actions.push(Action::Crash { flushed: true });
            }
        }
    }

    pub fn apply(&mut self, action: Action) -> Checked {
        self.private = false;
        match action {
            Action::Step(p) => self.step(p)?,
            Action::Miss(p) => self.miss(p),
            Action::Abort(p) => {
                self.aborts -= 1;
                self.say(p, || "is cancelled or rolls back: its transaction has ended".into());
                self.abort(p);
            }
            Action::Fail(p) => {
                self.aborts -= 1;
                self.say(p, || "meets an error that rolls back its savepoint".into());
                self.roll_back(p);
                let script = self.script(p).unwrap_or_default();
                let process = self.process(p);
                process.doing = Doing::Nothing;
                // goes on after the savepoint
                let ends = |s: &Statement| matches!(s, Statement::RollBackTo | Statement::ReleaseSavepoint);
                let rest = script[process.statement..].iter().position(ends);
                process.statement = rest.map_or(script.len(), |i| process.statement + i + 1);
            }
            Action::Freeze(p) => {
                self.freezes -= 1;
                self.process(p).frozen = true;
                self.say(p, || "stops for ever".into());
            }
            Action::Tick => {
                self.now += 1;
                let now = self.now;
                self.tell(|| format!("the clock shows {now}"));
            }
            Action::Crash { flushed } => {
                self.tell(|| {
                    format!("the server crashes{}", if flushed { ", what was written is on disk" } else { "" })
                });
                self.crash(flushed)?;
            }
        }
        self.settle();
        Ok(())
    }

    fn step(&mut self, p: u8) -> Checked {
        match self.processes[p as usize].doing.clone() {
            Doing::Nothing => self.next_statement(p),
            Doing::Calling { operation, read, began } => self.call(p, operation, read, began),
            Doing::Guarding { guarding, read } => self.guard(p, guarding, read),
            Doing::Committing(commit) => self.commit(p, commit),
            Doing::Written => {
                self.become_visible(p)?;
                self.say(p, || "has committed: it is visible".into());
                Ok(())
            }
            Doing::Ending { committed } => {
                self.finish(p, committed);
                Ok(())
            }
        }
    }

    fn miss(&mut self, p: u8) {
        let floor = self.floor;
        let missed = Stored { lease: None, version: u32::MAX };
        match &mut self.process(p).doing {
            Doing::Calling { operation, read, .. } => {
                *read = missed;
                operation.read(None, floor, true);
            }
            Doing::Guarding { guarding, read } => {
                *read = missed;
                guarding.read(None);
            }
            _ => {}
        }
        self.private = true;
        self.say(p, || "reads, and misses the row that changes at this moment".into());
    }

    fn next_statement(&mut self, p: u8) -> Checked {
        let Some(script) = self.script(p) else { return Ok(()) };
        let client = &self.scenario.clients[p as usize];
        if !self.processes[p as usize].open {
            let versions = self.rows.map(|row| row.version);
            let process = self.process(p);
            process.snapshot = client.repeatable.then_some(versions);
            process.open = true;
            process.lxid += 1;
            process.told_before = process.told;
        }
        loop {
            let Some(statement) = script.get(self.processes[p as usize].statement).copied() else {
                return self.begin_commit(p);
            };
            let told = |key: Key| self.processes[p as usize].told[key as usize];
            let owner = client.owner;
            let patience = Wait::Brief(ticks(self.now).plus(PATIENCE));
            let (key, request, wait) = match statement {
                Statement::Acquire { key, ttl } => (key, Request::Acquire { owner, ttl: ttl * TICK }, patience),
                Statement::WaitAcquire { key, ttl } => (key, Request::Acquire { owner, ttl: ttl * TICK }, Wait::Queue),
                Statement::Renew { key, ttl } => {
                    (key, Request::Renew { owner, epoch: told(key), ttl: ttl * TICK }, patience)
                }
                Statement::Release { key } => (key, Request::Release { owner, epoch: told(key) }, patience),
                Statement::ForceRelease { key } => (key, Request::ForceRelease, patience),
                Statement::Lapse { key } => (key, Request::Lapse, patience),
                Statement::Purge { key } => {
                    if rule(Rule::OnePurge) && self.purge_lock.is_some_and(|holder| holder != p) {
                        self.say(p, || "finds another purge running".into());
                        return self.refused(p);
                    }
                    self.purge_lock = Some(p);
                    (key, Request::Purge { idle: 0 }, patience)
                }
                Statement::Guard { key } => {
                    let pending = self.processes[p as usize].changes.pending(&key).map(|pending| pending.change);
                    let mut guarding = Guarding::new(self.tx(p), key, World::hash(key), owner, told(key), pending);
                    if let Some(known) = self.processes[p as usize].changes.same_guard(&key, owner, told(key)) {
                        guarding = guarding.again(known.slot);
                    }
                    if guarding.next() == Next::Sample {
                        guarding.sampled(self.version(key));
                        self.process(p).doing = Doing::Guarding { guarding, read: self.rows[key as usize] };
                        self.private = true;
                        self.say(p, || format!("guard(k{key}) samples the version"));
                        return Ok(());
                    }
                    return self.guard(p, guarding, self.rows[key as usize]);
                }
                Statement::Savepoint => {
                    let process = self.process(p);
                    process.level += 1;
                    process.statement += 1;
                    continue;
                }
                Statement::ReleaseSavepoint => {
                    let process = self.process(p);
                    process.changes.release(process.level);
                    process.level -= 1;
                    process.statement += 1;
                    continue;
                }
                Statement::RollBackTo => {
                    self.roll_back(p);
                    self.process(p).statement += 1;
                    self.say(p, || "rolls back to its savepoint".into());
                    return Ok(());
                }
                Statement::AdvanceEpochs => {
                    let process = self.process(p);
                    process.advancing = true;
                    process.statement += 1;
                    self.say(p, || "asks for all epochs to be advanced".into());
                    return Ok(());
                }
            };
            let ask = Ask { me: self.tx(p), key, hash: World::hash(key), request, wait, room: true };
            let pending = self.processes[p as usize].changes.pending(&key).map(|pending| pending.change);
            let operation = Operation::new(ask, pending);
            return self.call(p, operation, self.rows[key as usize], self.now);
        }
    }

    fn call(&mut self, p: u8, mut operation: Operation<Key, Owner>, mut read: Stored, began: i64) -> Checked {
        let ask = *operation.ask();
        let key = ask.key as usize;
        if let Next::Sleep { .. } = operation.next() {
            operation.awake();
            self.process(p).woken = false;
        }
        match operation.next() {
            Next::Sample => {
                operation.sampled(self.version(ask.key));
                read = self.rows[key];
                self.private = true;
                self.say(p, || format!("{} samples the version", call_in_words(&ask)));
            }
            Next::Read => {
                read = self.rows[key];
                operation.read(read.lease, self.floor, self.in_snapshot(p, ask.key, &read));
                let floor = self.floor;
                self.private = true;
                self.say(p, || format!("{} reads: {}", call_in_words(&ask), row_in_words(&read, floor)));
            }
            Next::Decide => return self.decide(p, operation, read, began),
            Next::Sleep { .. } | Next::Done => unreachable!("not asked for"),
        }
        self.process(p).doing = Doing::Calling { operation, read, began };
        Ok(())
    }

    fn decide(&mut self, p: u8, mut operation: Operation<Key, Owner>, read: Stored, began: i64) -> Checked {
        let ask = *operation.ask();
        let key = ask.key;
        let now = if rule(Rule::InstantInSection) { self.now } else { began };
        let before = self.before(p, key);
        self.process(p).woken = false;
        let phase = operation.phase;
        self.section_at(now, |section| operation.decide(section));
        self.say(p, || format!("{} decides: {}", call_in_words(&ask), next_in_words(&operation)));
        let Some(answer) = operation.answer() else {
            // it samples the version in the same section
            let read = if operation.next() == Next::Read { self.rows[key as usize] } else { read };
            self.process(p).doing = Doing::Calling { operation, read, began };
            return Ok(());
        };
        let seen = match phase {
            crate::operation::Phase::Decide(seen) => Some(seen),
            _ => None,
        };
        self.answer = Some(answer);
        self.check_answer(p, &ask, seen, &read, &answer, &before)?;
        self.process(p).doing = Doing::Nothing;
        match answer {
            Answer::Granted(change) => {
                let floor = self.floor;
                let process = self.process(p);
                if process.changes.pending(&key).is_none() {
                    process.bases[key as usize] = read.version;
                }
                process.floor = floor;
                if let (Some(lease), Request::Acquire { .. }) = (change.lease, ask.request) {
                    process.told[key as usize] = lease.epoch;
                }
                process.changes.record(process.level, key, ask.hash, read.lease, change, ());
                process.statement += 1;
                Ok(())
            }
            Answer::Refused(_) | Answer::Busy => self.refused(p),
            Answer::Broken | Answer::Changed | Answer::Full => {
                self.abort(p);
                Ok(())
            }
        }
    }

    /// A client that did not get what it asked for commits what it has.
    fn refused(&mut self, p: u8) -> Checked {
        let end = self.script(p).map_or(0, <[Statement]>::len);
        self.process(p).statement = end;
        Ok(())
    }

    fn guard(&mut self, p: u8, mut guarding: Guarding<Key, Owner>, mut read: Stored) -> Checked {
        let key = guarding.key;
        match guarding.next() {
            Next::Read => {
                read = self.rows[key as usize];
                guarding.read(read.lease);
                self.process(p).doing = Doing::Guarding { guarding, read };
                self.private = true;
                self.say(p, || format!("guard(k{key}) reads the row"));
                return Ok(());
            }
            Next::Decide => self.section(|section| guarding.decide(section)),
            _ => unreachable!("not asked for"),
        }
        self.check_guard_answer(p, &guarding, &read)?;
        self.say(p, || format!("guard(k{key}) decides: {:?}", guarding.answer()));
        self.process(p).doing = Doing::Nothing;
        match guarding.answer() {
            None => self.process(p).doing = Doing::Guarding { guarding, read: self.rows[key as usize] },
            Some(GuardAnswer::Guarded { guard, .. }) => {
                let process = self.process(p);
                process.changes.add_guard(process.level, guard);
                process.statement += 1;
            }
            Some(_) => self.abort(p),
        }
        Ok(())
    }

    fn begin_commit(&mut self, p: u8) -> Checked {
        if !self.can_lock_table(p) {
            if self.processes[p as usize].advancing {
                self.say(p, || "gives up waiting for the table's lock".into());
                self.abort(p);
            }
            return Ok(());
        }
        if self.processes[p as usize].advancing {
            self.table_lock = Some(p);
            self.process(p).doing = Doing::Written;
            let floor = self.floor + ADVANCE;
            self.section(|section| section.advance(floor));
            self.say(p, || "locks the table and raises every epoch".into());
            return Ok(());
        }
        if self.processes[p as usize].changes.is_empty() {
            self.process(p).open = false;
            self.say(p, || "ends its transaction, which changes nothing".into());
            self.next_transaction(p);
            return Ok(());
        }
        let commit = Commit::new(self.tx(p), &self.processes[p as usize].changes);
        self.commit(p, commit)
    }

    fn commit(&mut self, p: u8, mut commit: Commit<Key, Owner>) -> Checked {
        if let CommitStep::Sleep { .. } = commit.next() {
            commit.awake();
        }
        match commit.next() {
            CommitStep::Seal => {
                self.process(p).woken = false;
                let right = commit.guards.iter().all(|g| self.guard_is_right(p, g));
                self.section(|section| commit.seal(section));
                self.say(p, || format!("commits, seals: {:?}", commit.next()));
                let process = self.process(p);
                process.guards_right = right;
                process.guards_overtaken = false;
            }
            CommitStep::Check(key) => {
                let row = self.rows[key as usize];
                commit.checked(row.lease.as_ref());
                let floor = self.floor;
                self.say(p, || {
                    format!("checks its guard of k{key}: {}: {:?}", row_in_words(&row, floor), commit.next())
                });
            }
            CommitStep::Write => {
                self.check_bases(p)?;
                if self.deletes(p) {
                    self.floor_lock = Some(p);
                    let deleted = self.writes(p).filter(|(_, change)| change.lease.is_none());
                    let issued = deleted.map(|(_, change)| change.issued).max().unwrap_or(0);
                    let current = if rule(Rule::FloorGreatest) { self.floor } else { self.processes[p as usize].floor };
                    self.process(p).floor = current.max(issued);
                }
                self.process(p).doing = Doing::Written;
                self.private = true;
                self.say(p, || "writes its rows".into());
                return Ok(());
            }
            CommitStep::Sleep { .. } | CommitStep::Failed(_) => unreachable!("not asked for"),
        }
        if let CommitStep::Failed(failure) = commit.next() {
            let changes = &self.processes[p as usize].changes;
            let gives_way = |key: &Key| changes.pending(key).is_some_and(|c| c.change.kind == Kind::Maintenance);
            match failure {
                // maintenance gives way to whoever took the key
                Failure::Broken(key) | Failure::Stale(key) if gives_way(&key) => {
                    self.say(p, || format!("leaves k{key} out of its commit"));
                    self.process(p).left_out[key as usize] = true;
                    commit.leave_out(&key);
                    return self.commit(p, commit);
                }
                _ => self.abort(p),
            }
        } else {
            self.process(p).doing = Doing::Committing(commit);
        }
        Ok(())
    }

    /// The end of a transaction that does not commit: its error is raised, and others see that it does not run any more.
    fn abort(&mut self, p: u8) {
        let process = self.process(p);
        process.open = false;
        process.told = process.told_before;
        process.doing = Doing::Ending { committed: false };
    }

    fn roll_back(&mut self, p: u8) {
        let (me, at) = (self.tx(p), self.at());
        let process = self.process(p);
        let (mut claims, mut guards) = (Vec::new(), Vec::new());
        process.changes.roll_back(
            process.level,
            at,
            |stake, restore| claims.push((stake, restore)),
            |g| guards.push(g),
        );
        process.level -= 1;
        self.section(|section| {
            section.leave(me);
            claims.iter().for_each(|(stake, restore)| section.roll_back(me, stake, *restore));
            guards.iter().for_each(|guard| section.drop_guard(me, guard));
        });
    }

    fn become_visible(&mut self, p: u8) -> Checked {
        if self.processes[p as usize].advancing {
            self.floor += ADVANCE;
            for (row, top) in self.rows.iter_mut().zip(&mut self.top) {
                if let Some(lease) = &mut row.lease {
                    lease.epoch += ADVANCE;
                    *top = lease.epoch;
                }
                row.version += 1;
            }
        } else {
            self.check_bases(p)?;
            self.check_guards(p)?;
            let changes: Vec<(Key, Change<Owner>)> = self.writes(p).collect();
            if self.deletes(p) {
                self.floor = self.processes[p as usize].floor;
                self.floor_lock = None;
            }
            for (key, change) in &changes {
                self.check_write(p, *key, change)?;
                let row = &mut self.rows[*key as usize];
                *row = Stored { lease: change.lease, version: row.version + 1 };
            }
        }
        let process = self.process(p);
        process.open = false;
        process.doing = Doing::Ending { committed: true };
        if !self.only_lapses(p) {
            self.durable = self.rows;
            self.durable_floor = self.floor;
        }
        Ok(())
    }

    /// Its commit is not flushed.
    fn only_lapses(&self, p: u8) -> bool {
        let process = &self.processes[p as usize];
        let lapses = |lease: Option<Lease<Owner>>| lease.is_some_and(|l| l.state == State::Lapsed);
        !process.advancing && self.writes(p).all(|(_, change)| lapses(change.lease))
    }

    fn finish(&mut self, p: u8, committed: bool) {
        let (me, at) = (self.tx(p), self.at());
        let changes = std::mem::take(&mut self.process(p).changes);
        // what it began it ends, committed or not
        let advanced = self.processes[p as usize].advancing && self.table_lock == Some(p);
        let guards: Vec<_> = changes.guards().collect();
        self.section(|section| {
            if advanced {
                section.advanced();
            }
            section.finish(me, changes.outcomes(committed, at), &guards);
        });
        self.say(p, || format!("drops what it had, {}", if committed { "committed" } else { "rolled back" }));
        self.next_transaction(p);
    }

    fn next_transaction(&mut self, p: u8) {
        for lock in [&mut self.table_lock, &mut self.purge_lock, &mut self.floor_lock] {
            if *lock == Some(p) {
                *lock = None;
            }
        }
        let process = self.process(p);
        process.changes.clear();
        process.transaction += 1;
        process.statement = 0;
        process.level = 1;
        process.doing = Doing::Nothing;
        process.woken = false;
        process.advancing = false;
        process.guards_right = true;
        process.guards_overtaken = false;
        process.floor = 0;
        process.bases.fill(0);
        process.snapshot = None;
        process.left_out = [false; KEYS];
    }

    fn crash(&mut self, flushed: bool) -> Checked {
        self.crashes -= 1;
        for p in 0..self.processes.len() as u8 {
            if flushed && matches!(self.processes[p as usize].doing, Doing::Written) {
                self.become_visible(p)?;
            }
        }
        self.rows = self.durable;
        self.floor = self.durable_floor;
        self.shared = Rc::new(World::memory(self.scenario));
        for p in 0..self.processes.len() as u8 {
            let process = self.process(p);
            let begun = process.open || !matches!(process.doing, Doing::Nothing);
            process.frozen = false;
            if process.open {
                process.told = process.told_before;
            }
            process.open = false;
            if begun {
                self.next_transaction(p);
            }
        }
        Ok(())
    }

    /// Brings the ghosts up to date after a step.
    fn settle(&mut self) {
        for key in self.keys() {
            // no observation may be taken back, made or not
            self.top[key as usize] = self.top[key as usize].max(self.shown(key));
            let head = self.head(key);
            let turn = head.filter(|head| self.is_open_to(key, *head));
            let before = self.turns[key as usize];
            self.turns[key as usize] = turn.map(|head| match before {
                Some(before) if before.head == head => before,
                _ => Turn { head, since: self.now },
            });
        }
    }

    pub fn say(&mut self, p: u8, what: impl FnOnce() -> String) {
        self.tell(|| format!("{} {}", process_in_words(p), what()));
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(words) = &mut self.words {
            *words = what();
        }
    }
}

impl Process {
    pub fn runs(&self, tx: Tx) -> bool {
        self.open && self.lxid == tx.lxid
    }
}

pub fn process_in_words(p: u8) -> char {
    char::from(b'A' + p)
}

fn call_in_words(ask: &Ask<Key, Owner>) -> String {
    let key = ask.key;
    match ask.request {
        Request::Acquire { ttl, .. } => {
            let wait = if ask.wait == Wait::Queue { ", waiting" } else { "" };
            format!("acquire(k{key}, ttl {}{wait})", ttl / TICK)
        }
        Request::Renew { ttl, epoch, .. } => format!("renew(k{key}, epoch {epoch}, ttl {})", ttl / TICK),
        Request::Release { epoch, .. } => format!("release(k{key}, epoch {epoch})"),
        Request::ForceRelease => format!("force_release(k{key})"),
        Request::Lapse => format!("lapse(k{key})"),
        Request::Purge { .. } => format!("purge(k{key})"),
    }
}

fn next_in_words(operation: &Operation<Key, Owner>) -> String {
    match (operation.next(), operation.answer()) {
        (_, Some(Answer::Granted(change))) => format!(
            "granted {:?}, {}, claim {} until {}",
            change.kind,
            change.lease.map_or("no row".into(), |l| lease_in_words(&l)),
            change.serial,
            time_in_words(change.deadline)
        ),
        (_, Some(answer)) => format!("{answer:?}"),
        (Next::Sleep { until }, _) => format!("sleep until {}", time_in_words(until)),
        (next, _) => format!("{next:?}"),
    }
}

pub fn time_in_words(time: Time) -> String {
    match time {
        Time::NEVER => "woken".into(),
        Time(t) if t % TICK == 0 => format!("{}", t / TICK),
        Time(t) => format!("{t} us"),
    }
}

fn lease_in_words(lease: &Lease<Owner>) -> String {
    let owner = lease.owner.map_or("nobody".into(), |o| format!("owner {o}"));
    format!("{:?} by {owner}, epoch {}, expires {}", lease.state, lease.epoch, time_in_words(lease.expires_at))
}

fn row_in_words(row: &Stored, floor: i64) -> String {
    row.lease.map_or_else(|| format!("no row, floor {floor}"), |l| lease_in_words(&l))
}
