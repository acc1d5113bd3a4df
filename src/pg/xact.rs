//! Transactions: what ours is like, and being told when it ends.
//!
//! The callbacks are registered in the postmaster and run in every process that has transactions, background workers
//! included. What is asked about a transaction is this process's own state, so none of it takes a lock.

use std::ffi::c_void;

use super::error::Result;
use super::guard::{call, contain, enter};
use super::{memory, sys};

pub struct Callbacks {
    /// The last place where the transaction can fail. Runs with what PostgreSQL allocates living until its end.
    pub pre_commit: fn() -> Result<()>,
    pub pre_prepare: fn() -> Result<()>,
    /// Visible to others. From here on nothing can be raised: a panic becomes a WARNING.
    pub committed: fn(),
    /// As `committed`. Also when the process ends in the middle of a transaction.
    pub aborted: fn(),
    /// At the level of the savepoint that ends, like the next.
    pub sub_committed: fn(),
    pub sub_aborted: fn(),
}

/// To be called once per process, or in the postmaster for all: PostgreSQL runs callbacks last registered first, so
/// ours come last when we register before anybody else.
pub fn register(callbacks: &'static Callbacks) -> Result<()> {
    let callbacks: *const Callbacks = callbacks;
    // SAFETY: both functions and what they are given live as long as the process.
    call(|| unsafe {
        sys::RegisterXactCallback(Some(on_xact), callbacks.cast_mut().cast());
        sys::RegisterSubXactCallback(Some(on_subxact), callbacks.cast_mut().cast());
    })
}

unsafe extern "C-unwind" fn on_xact(event: sys::XactEvent::Type, callbacks: *mut c_void) {
    // SAFETY: what `register` gave.
    let callbacks: &'static Callbacks = unsafe { &*callbacks.cast_const().cast() };
    match event {
        sys::XactEvent::XACT_EVENT_PRE_COMMIT => enter(|| memory::in_transaction(callbacks.pre_commit)),
        sys::XactEvent::XACT_EVENT_PRE_PREPARE => enter(|| memory::in_transaction(callbacks.pre_prepare)),
        sys::XactEvent::XACT_EVENT_COMMIT => contain(callbacks.committed),
        sys::XactEvent::XACT_EVENT_ABORT => contain(callbacks.aborted),
        // a transaction with anything of ours never gets to PREPARE; parallel workers never have anything of ours
        _ => (),
    }
}

unsafe extern "C-unwind" fn on_subxact(
    event: sys::SubXactEvent::Type,
    _mine: sys::SubTransactionId,
    _parent: sys::SubTransactionId,
    callbacks: *mut c_void,
) {
    // SAFETY: what `register` gave.
    let callbacks: &'static Callbacks = unsafe { &*callbacks.cast_const().cast() };
    match event {
        sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => contain(callbacks.sub_committed),
        sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => contain(callbacks.sub_aborted),
        _ => (),
    }
}

/// 1 in the transaction itself, 0 outside any.
pub fn nest_level() -> i32 {
    // SAFETY: reads the transaction state.
    unsafe { sys::GetCurrentTransactionNestLevel() }
}

/// REPEATABLE READ or SERIALIZABLE: one snapshot for the whole transaction.
pub fn uses_transaction_snapshot() -> bool {
    // SAFETY: reads a variable.
    unsafe { sys::pgl_uses_transaction_snapshot() }
}

/// The transaction has taken a snapshot. Any statement does; a procedure that has just committed has none.
pub fn has_snapshot() -> bool {
    // SAFETY: PostgreSQL's processes have one thread.
    unsafe { sys::FirstSnapshotSet }
}

/// COMMIT, inside a procedure that may. The new transaction has no snapshot.
pub fn commit_and_begin() -> Result<()> {
    // SAFETY: PostgreSQL's own way for procedures; raises where it is not allowed, and when the commit fails.
    call(|| unsafe { sys::pgl_commit_and_begin() })
}

pub fn is_read_only() -> bool {
    // SAFETY: PostgreSQL's processes have one thread.
    unsafe { sys::XactReadOnly }
}

/// Whether the transaction, savepoints included, has written anything.
pub fn has_written() -> bool {
    // SAFETY: reads the transaction state. A savepoint gets an id only after the transaction has one; 0 is none.
    unsafe { sys::GetTopTransactionIdIfAny() }.into_inner() != 0
}

pub fn in_recovery() -> bool {
    // SAFETY: reads shared memory; raises nothing.
    unsafe { sys::RecoveryInProgress() }
}

pub fn is_parallel() -> bool {
    // SAFETY: reads the transaction state.
    unsafe { sys::IsInParallelMode() }
}

/// Makes the current transaction's commit wait for its flush even under synchronous_commit = off. Not by
/// ForceSyncCommit, which would make every standby fsync its control file for each such commit.
pub fn force_local_flush() -> Result<()> {
    // SAFETY: reads a variable.
    if unsafe { sys::pgl_synchronous_commit_off() } {
        // SAFETY: sets the setting for the transaction only.
        call(|| unsafe { sys::pgl_synchronous_commit_local() })?;
    }
    Ok(())
}

/// Before a wait in pre-commit: the catalog snapshot, if it is the only one left, would hold back VACUUM.
pub fn release_catalog_snapshot() {
    // SAFETY: raises nothing.
    unsafe { sys::InvalidateCatalogSnapshot() };
}

/// From now on statement_timeout is counted for this transaction's commit. PostgreSQL has put its timer away by now, and does not
/// tell for how long it ran: a message can have several statements, each with a time of its own.
pub fn commit_begins() {
    // SAFETY: reads the clock.
    unsafe { sys::pgl_commit_begins() };
}

/// What is left of statement_timeout, in milliseconds (0: it is over), in a commit that has begun. None: it is off, PostgreSQL's
/// own timer runs, or the process has no such timer.
pub fn statement_timeout_left() -> Option<i64> {
    // SAFETY: reads settings and the clock.
    let left = unsafe { sys::pgl_statement_timeout_left() };
    (left >= 0).then_some(left)
}

/// How long a wait may last before it is looked at for a deadlock, in milliseconds.
pub fn deadlock_timeout_ms() -> i64 {
    // SAFETY: PostgreSQL's processes have one thread.
    i64::from(unsafe { sys::DeadlockTimeout })
}

/// How long a wait for a lock may last, in milliseconds; 0: for ever.
pub fn lock_timeout_ms() -> i64 {
    // SAFETY: as above.
    i64::from(unsafe { sys::LockTimeout })
}
