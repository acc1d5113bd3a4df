//! lease.guard: makes the transaction's commit depend on a lease (rule 8); and what the fence asks of it.
//!
//! Runs in a client's backend, inside a call; what a guard demands is judged anew by `commit`. The call holds the claims lock
//! for one section at a time, which judges the lease and reserves the guard's place. The fence asks this process's own memory
//! and takes no lock.

use lease_core::{GuardAnswer, Guarding, Name, Next, State, Status, Time, holds};

use super::operate::may_take_part;
use super::{fail, pending};
use crate::pg::{Result, interrupt, proc, test_point, xact};
use crate::shared::{self, Key};
use crate::store;

const FUNCTION: &str = "lease.guard()";

/// When the lease ends. An error unless that owner holds the key with that epoch now.
pub fn guard(name: Name, owner: Name, epoch: i64) -> Result<Time> {
    let key = Key { database: proc::database(), name };
    let (status, expires_at) = if xact::in_recovery() {
        look(&key, owner, epoch)?
    } else {
        may_take_part(FUNCTION)?;
        // read-only may be so only for now: in a savepoint, or by a function's setting
        if !xact::is_read_only() {
            pending::set_guarded_for_writing();
        }
        promise(&key, owner, epoch)?
    };
    match status {
        Status::Ok => Ok(expires_at),
        status => Err(fail::guard_refused(&key, &owner, epoch, status)),
    }
}

/// On a standby nothing is written that would have to be protected at the commit: judged now, and that is all.
fn look(key: &Key, owner: Name, epoch: i64) -> Result<(Status, Time)> {
    let lease = store::find_at_once(&key.name)?.row.map(|row| row.lease);
    in_one_term(key, owner, epoch, lease.as_ref())?;
    let at = shared::at();
    Ok((holds(lease.as_ref(), owner, epoch, at), lease.map_or(Time::PAST, |lease| lease.expiry(at))))
}

fn promise(key: &Key, owner: Name, epoch: i64) -> Result<(Status, Time)> {
    let me = shared::me();
    let place = pending::begin_guard(me, key, owner, epoch)?;
    let hash = shared::hash(key);
    let mut guarding = Guarding::new(me, *key, hash, owner, epoch, pending::change_of(key));
    if let Some(place) = place {
        guarding = guarding.again(place);
    }
    let answer = loop {
        match guarding.next() {
            Next::Sample => guarding.sampled(shared::version(hash)),
            Next::Read => {
                test_point!(quiet "read");
                // nothing else bounds how often others' changes make it read again
                interrupt::check()?;
                let found = store::find(&key.name)?.row.map(|row| row.lease);
                in_one_term(key, owner, epoch, found.as_ref())?;
                guarding.read(found);
            }
            // nothing that can fail comes between the reservation and its record: it would be lost to its transaction
            Next::Decide => shared::section(|section| guarding.decide(section)),
            Next::Sleep { .. } | Next::Done => break guarding.answer().expect("done, as it never sleeps"),
        }
    };
    match answer {
        GuardAnswer::Guarded { guard, expires_at } => {
            pending::add_guard(guard);
            Ok((Status::Ok, expires_at))
        }
        GuardAnswer::Refused(status) => Ok((status, Time::PAST)),
        GuardAnswer::Broken => Err(fail::broken(key)),
        GuardAnswer::Full => Err(fail::no_room()),
    }
}

/// REPEATABLE READ and SERIALIZABLE: the snapshot must be of the term that is guarded, or the transaction would build on
/// what it saw of an earlier one. Renewals since do no harm.
fn in_one_term(key: &Key, owner: Name, epoch: i64, latest: Option<&lease_core::Lease<Name>>) -> Result<()> {
    let guarded = |lease: &lease_core::Lease<Name>| {
        lease.state == State::Held && lease.owner == Some(owner) && lease.epoch == epoch
    };
    if !xact::uses_transaction_snapshot() || !latest.is_some_and(guarded) {
        return Ok(());
    }
    match store::find_in_snapshot(&key.name)? {
        Some(seen) if guarded(&seen.lease) => Ok(()),
        _ => Err(fail::changed(key)),
    }
}

/// What is fenced, for messages.
pub struct Fenced {
    pub table: String,
    /// The column that holds the key; None: the key is the trigger's argument.
    pub column: Option<String>,
}

/// The epoch that the transaction may write a row of that key under: of its guard, or of its own grant. An error if it has
/// neither, or one from before the epoch that is stored in the row.
pub fn may_write(name: &Name, stored: Option<i64>, fenced: impl Fn() -> Fenced) -> Result<i64> {
    let key = Key { database: proc::database(), name: *name };
    let epoch = pending::writing_epoch(&key).ok_or_else(|| fail::unguarded(&key, fenced()))?;
    match stored {
        Some(stored) if stored > epoch => Err(fail::stale_write(&key, epoch, stored, fenced())),
        _ => Ok(epoch),
    }
}
