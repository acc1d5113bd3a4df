//! The errors of a session, each with its SQLSTATE. Messages name the key; details are facts, hints say what to do.
//!
//! They are values, made where the failure is found, in whatever process runs a session: nothing here raises. Nothing runs
//! under a lock either, but that `timeout` and `deadlock` look up in a section what their message names, and write the
//! message after it.

use lease_core::{Blocker, Kind, Lease, Name, State, Status, Time, Tx};

use super::guard::Fenced;
use crate::pg::{Error, Report, proc, sqlstate, text};
use crate::shared::{self, Key};
use crate::store;

fn key_text(key: &Key) -> String {
    text::display(key.name.as_bytes())
}

pub fn not_preloaded() -> Error {
    Report::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "pg_lease must be loaded via shared_preload_libraries")
        .hint("Add pg_lease to shared_preload_libraries and restart the server.")
        .into()
}

pub fn in_recovery(function: &str) -> Error {
    let message = format!("cannot execute {function} during recovery");
    Report::new(sqlstate::READ_ONLY_SQL_TRANSACTION, message).into()
}

pub fn read_only(function: &str) -> Error {
    let message = format!("cannot execute {function} in a read-only transaction");
    Report::new(sqlstate::READ_ONLY_SQL_TRANSACTION, message).into()
}

pub fn parallel(function: &str) -> Error {
    let message = format!("cannot execute {function} during a parallel operation");
    Report::new(sqlstate::FEATURE_NOT_SUPPORTED, message).into()
}

/// As PostgreSQL says it of VACUUM and the like, with the SQLSTATE of a COMMIT where none may be.
pub fn in_transaction_block(function: &str) -> Error {
    let message = format!("{function} cannot run inside a transaction block");
    Report::new(sqlstate::INVALID_TRANSACTION_TERMINATION, message)
        .detail("It commits before it waits.")
        .hint("Call it on its own, or from a procedure or DO block that may COMMIT.")
        .into()
}

pub fn committing(function: &str) -> Error {
    let message = format!("cannot execute {function} in a transaction that is committing");
    Report::new(sqlstate::FEATURE_NOT_SUPPORTED, message).into()
}

pub fn prepare() -> Error {
    Report::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot PREPARE a transaction that has changed or guarded a lease")
        .into()
}

pub fn ttl_out_of_range() -> Error {
    Report::new(sqlstate::INVALID_PARAMETER_VALUE, "ttl is out of range")
        .detail("The lease would end after the last timestamp that can be represented.")
        .into()
}

/// The transaction's own change was broken, or is past its deadline.
pub fn broken(key: &Key) -> Error {
    Report::new(sqlstate::LAPSED, format!("lease of key \"{}\" lapsed before its change was committed", key_text(key)))
        .detail("A change of a lease must be committed before the lease expires; after that others may take the key.")
        .hint("Roll back, and acquire the lease again.")
        .into()
}

/// What a guard demands is not so at the commit.
pub fn guard(key: &Key, status: Status) -> Error {
    let key = key_text(key);
    let (state, message) = match status {
        Status::Lapsed => (sqlstate::LAPSED, format!("lease of key \"{key}\" lapsed before the guarded commit")),
        Status::EpochMismatch => {
            (sqlstate::EPOCH_MISMATCH, format!("lease of key \"{key}\" was acquired anew before the guarded commit"))
        }
        Status::Ok | Status::NotOwner => {
            (sqlstate::NOT_OWNER, format!("lease of key \"{key}\" was lost before the guarded commit"))
        }
    };
    Report::new(state, message).into()
}

/// A guard is refused at its call.
pub fn guard_refused(key: &Key, owner: &Name, epoch: i64, status: Status) -> Error {
    let (key, owner) = (key_text(key), text::display(owner.as_bytes()));
    match status {
        Status::Lapsed => {
            Report::new(sqlstate::LAPSED, format!("lease of key \"{key}\" has lapsed")).hint("Acquire the lease again.")
        }
        Status::EpochMismatch => {
            let message = format!("epoch {epoch} of key \"{key}\" is not the current one");
            Report::new(sqlstate::EPOCH_MISMATCH, message)
                .detail(format!("\"{owner}\" holds the lease under another epoch."))
        }
        Status::Ok | Status::NotOwner => {
            Report::new(sqlstate::NOT_OWNER, format!("lease of key \"{key}\" is not held by \"{owner}\""))
        }
    }
    .into()
}

/// A write to a fenced table that no guard covers.
pub fn unguarded(key: &Key, fenced: Fenced) -> Error {
    let (key, Fenced { table, column }) = (key_text(key), fenced);
    Report::new(
        sqlstate::NOT_OWNER,
        format!("writing to table \"{table}\" needs a guard on the lease of key \"{key}\""),
    )
    .detail(match column {
        Some(column) => format!("The key is the value of column \"{column}\"."),
        None => "The key is the trigger's argument: no column of the table has that name.".to_owned(),
    })
    .hint("Call lease.guard() in the same transaction first.")
    .into()
}

/// A write to a row that a later term has written already.
pub fn stale_write(key: &Key, epoch: i64, stored: i64, fenced: Fenced) -> Error {
    let message =
        format!("epoch {epoch} of key \"{}\" is older than the row of table \"{}\"", key_text(key), fenced.table);
    Report::new(sqlstate::EPOCH_MISMATCH, message).detail(format!("The row was written under epoch {stored}.")).into()
}

pub fn changed(key: &Key) -> Error {
    store::changed(&key.name).into()
}

pub fn stale(key: &Key) -> Error {
    Report::new(
        sqlstate::SERIALIZATION_FAILURE,
        format!("could not commit the change of the lease of key \"{}\": epochs were advanced", key_text(key)),
    )
    .hint("The transaction might succeed if retried.")
    .into()
}

pub fn no_room() -> Error {
    Report::new(sqlstate::OUT_OF_MEMORY, "out of shared memory for lease claims")
        .hint("You might need to increase pg_lease.max_claims.")
        .into()
}

pub fn too_many(most: usize) -> Error {
    Report::new(sqlstate::OUT_OF_MEMORY, "too many lease changes and guards in one transaction")
        .detail(format!("One session may change or guard {most} keys at once, half of pg_lease.max_claims."))
        .hint("You might need to increase pg_lease.max_claims, or to use shorter transactions.")
        .into()
}

pub fn statement_timeout() -> Error {
    Report::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout").into()
}

/// `key`: what was waited for, if still known.
pub fn lock_timeout(key: Option<&Key>) -> Error {
    let report = Report::new(sqlstate::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout");
    match key {
        Some(key) => report.detail(format!("It waited for the lease of key \"{}\".", key_text(key))),
        None => report,
    }
    .into()
}

pub fn deadlock(key: Option<&Key>) -> Error {
    let key = key.map_or_else(String::new, |key| format!(" of key \"{}\"", key_text(key)));
    Report::new(sqlstate::DEADLOCK_DETECTED, "deadlock detected")
        .detail(format!(
            "Process {} waits for the lease{key}, which is being changed by a transaction that waits, directly or through \
             others, for this one.",
            proc::pid(proc::my_number()),
        ))
        .hint("Acquire several keys in one order everywhere.")
        .into()
}

/// A blocking acquire ran out of time. `lease`: as it was seen last.
pub fn timeout(key: &Key, wait: i64, lease: Option<&Lease<Name>>) -> Error {
    let report = Report::new(
        sqlstate::QUERY_CANCELED,
        format!("timed out after {} waiting for the lease of key \"{}\"", seconds(wait), key_text(key)),
    );
    let (at, claim, guard, in_company) = shared::section(|section| {
        let claim = section.claim(key, shared::hash(key)).copied();
        let waiters = || section.waiters().filter(|(_, waited_for, _)| *waited_for == key).map(|(waiter, _, _)| waiter);
        let me = waiters().find(|waiter| waiter.tx == proc::me());
        let guard = me.and_then(|me| match section.blocker(me) {
            Blocker::Guard(tx) => Some(tx),
            _ => None,
        });
        (section.at, claim, guard, waiters().count() > 1)
    });
    let pid = |tx: Tx| proc::pid(tx.proc);
    let holder = |lease: &Lease<Name>| lease.owner.map_or_else(String::new, |o| text::display(o.as_bytes()));
    let detail = match (claim.filter(|c| c.kind != Kind::HandOff), lease.filter(|l| l.state == State::Held)) {
        (Some(claim), _) => {
            let until = match claim.deadline {
                Time::NEVER => String::new(),
                deadline => format!(", whose deadline is in {}", seconds(deadline.since(at.now).max(0))),
            };
            format!("Process {} has an uncommitted change of it{until}.", pid(claim.tx))
        }
        (None, Some(lease)) if lease.is_live(at) => {
            format!("It is held by \"{}\" and expires in {}.", holder(lease), seconds(lease.expiry(at).since(at.now)))
        }
        (None, lease) => match (guard, lease) {
            (Some(tx), _) => format!("Process {} is committing what it has done under a guard of it.", pid(tx)),
            (None, _) if in_company => "Other sessions wait for it, too.".to_owned(),
            (None, Some(lease)) => format!("It was held by \"{}\" until just now.", holder(lease)),
            (None, None) => return report.into(),
        },
    };
    report.detail(detail).into()
}

/// `2500000` as `2.5 s`.
fn seconds(micros: i64) -> String {
    let fraction = format!("{:06}", micros % 1_000_000);
    match fraction.trim_end_matches('0') {
        "" => format!("{} s", micros / 1_000_000),
        digits => format!("{}.{digits} s", micros / 1_000_000),
    }
}
