//! This backend's side of the protocol: it runs the calls, keeps what its transaction has pending, writes it at the commit
//! and ends its claims after.
//!
//! | module | does |
//! |---|---|
//! | `operate` | one call that may change a lease, from reading the row to its answer |
//! | `guard` | lease.guard, and what lease.fence asks |
//! | `wait` | sleeping until woken, and what ends a wait |
//! | `commit` | sealing and writing, in pre-commit |
//! | `pending` | what the transaction has pending; the ends of transactions and savepoints |
//! | `lapse` | what the sweeper does: writing down that leases are over |
//! | `tally` | what a commit adds to the counters and to the feed |
//! | `report` | inspect, the views, the clock |
//! | `fail` | the errors |
//!
//! Everything runs in a client's backend, or in a sweeper. Shared state is reached through [`crate::shared::section`] only; nothing that can
//! raise runs inside a section, and no state of this module is borrowed while PostgreSQL is called.

mod commit;
mod fail;
mod guard;
mod lapse;
mod operate;
mod pending;
mod report;
mod tally;
mod wait;

use lease_core::{Answer, At, Name, Refusal, Request, Status, Time, Wait};

use crate::pg::{Result, proc, role, xact};
use crate::shared::Counter;
use crate::shared::{self, Key, databases};
use crate::store::{Edit, floor};
use operate::{Change, may_change, operate, operate_on};
use wait::Patience;

pub use guard::{Fenced, guard, may_write};
pub use lapse::{Fate, lapse};
pub use pending::register;
pub use report::{WaitsFor, claims, clock, inspect, leases, waiters};
pub use tally::{COUNTERS, reset_stats, stats, sweepers};

/// How long an acquire that was not asked to wait waits for a commit that is already under way, in microseconds.
const COMMIT_PATIENCE: i64 = 1_000_000;

/// 55000 unless the library was preloaded. Every call begins here, so a database where leases are used has a sweeper.
pub fn ready() -> Result<()> {
    if !shared::is_ready() {
        return Err(fail::not_preloaded());
    }
    databases::announce_mine(|| shared::at().now);
    Ok(())
}

pub struct Acquire {
    pub key: Name,
    pub owner: Name,
    /// Microseconds.
    pub ttl: i64,
    /// Microseconds; `None`: answer at once.
    pub wait: Option<i64>,
    /// A whole jsonb datum.
    pub payload: Option<Box<[u8]>>,
}

pub struct Grant {
    pub epoch: i64,
    pub expires_at: Time,
}

/// `None`: not acquirable (only without a wait).
pub fn acquire(asked: Acquire) -> Result<Option<Grant>> {
    acquire_in("lease.acquire()", asked)
}

/// Acquires with a wait that holds no snapshot: commits, and waits at the start of a new transaction.
///
/// The other way to let go of the snapshot, to pop it and stay in the transaction, would keep a transaction id or locks that
/// the caller has, which hold VACUUM back or deadlock as well, and under REPEATABLE READ the snapshot itself.
///
/// `atomic`: the caller's transaction cannot be committed here.
pub fn wait_acquire(asked: Acquire, atomic: bool) -> Result<Option<Grant>> {
    let function = "lease.wait_acquire()";
    may_change(function)?;
    if atomic {
        return Err(fail::in_transaction_block(function));
    }
    check_ttl(shared::at().now, asked.ttl)?;
    xact::commit_and_begin()?;
    acquire_in(function, asked)
}

fn acquire_in(function: &'static str, asked: Acquire) -> Result<Option<Grant>> {
    let Acquire { key, owner, ttl, wait, payload } = asked;
    let now = shared::at().now;
    check_ttl(now, ttl)?;
    let change = Change {
        function,
        key,
        request: Request::Acquire { owner, ttl },
        wait: if wait.is_some() { Wait::Queue } else { Wait::Brief(now.plus(COMMIT_PATIENCE)) },
        patience: wait.map(|wait| Patience { since: now, wait }),
        granted_to: Edit::Set(Some(role::current_name()?.into())),
        payload: Edit::Set(payload),
    };
    match operate(change)? {
        Answer::Granted(change) => Ok(change.lease.map(|l| Grant { epoch: l.epoch, expires_at: l.expires_at })),
        _ => {
            Counter::Denials.add(1);
            Ok(None)
        }
    }
}

/// The new expiry comes with `Status::Ok` only.
pub fn renew(key: Name, owner: Name, epoch: i64, ttl: i64) -> Result<(Status, Option<Time>)> {
    let now = shared::at().now;
    check_ttl(now, ttl)?;
    let change = Change {
        function: "lease.renew()",
        key,
        request: Request::Renew { owner, epoch, ttl },
        wait: Wait::Brief(now),
        patience: None,
        granted_to: Edit::Keep,
        payload: Edit::Keep,
    };
    Ok(match operate(change)? {
        Answer::Granted(change) => (Status::Ok, change.lease.map(|l| l.expires_at)),
        answer => (status(answer), None),
    })
}

pub fn release(key: Name, owner: Name, epoch: i64) -> Result<Status> {
    let change = Change {
        function: "lease.release()",
        key,
        request: Request::Release { owner, epoch },
        wait: Wait::Brief(shared::at().now),
        patience: None,
        granted_to: Edit::Set(None),
        payload: Edit::Set(None),
    };
    operate(change).map(status)
}

/// What a key was before it was forced free.
pub struct Forced {
    pub owner: Option<Name>,
    pub epoch: i64,
}

/// Ends whatever hold there is, and whoever's uncommitted change of the key.
pub fn force_release(key: Name) -> Result<Forced> {
    let change = Change {
        function: "lease.force_release()",
        key,
        request: Request::ForceRelease,
        wait: Wait::Brief(shared::at().now),
        patience: None,
        granted_to: Edit::Set(None),
        payload: Edit::Set(None),
    };
    let own = pending::change_of(&Key { database: proc::database(), name: key });
    let (answer, row) = operate_on(change)?;
    let Some(before) = own.map_or(row, |own| own.lease) else { return Ok(Forced { owner: None, epoch: floor()? }) };
    // the row that was granted is free since the instant of the decision
    let live = match answer {
        Answer::Granted(granted) => {
            granted.lease.is_some_and(|freed| before.is_live(At { now: freed.expires_at, start: freed.clock_base }))
        }
        _ => false,
    };
    Ok(Forced { owner: before.owner.filter(|_| live), epoch: before.epoch })
}

fn status(answer: Answer<Name>) -> Status {
    let status = match answer {
        Answer::Granted(_) => Status::Ok,
        Answer::Refused(Refusal::Status(status)) => status,
        _ => Status::NotOwner,
    };
    match status {
        Status::Ok => (),
        Status::NotOwner => Counter::NotOwner.add(1),
        Status::Lapsed => Counter::Lapsed.add(1),
        Status::EpochMismatch => Counter::EpochMismatch.add(1),
    }
    status
}

/// The end of the lease must be an instant that PostgreSQL can show: told before anything is done or waited for. The
/// decision, which comes later, looks again.
fn check_ttl(now: Time, ttl: i64) -> Result<()> {
    if now.plus(ttl) < Time::LIMIT { Ok(()) } else { Err(fail::ttl_out_of_range()) }
}
