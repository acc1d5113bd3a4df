//! Processes, and which transaction one is in.
//!
//! PostgreSQL's array of PGPROCs is read without its locks: each of the numbers is written by its own process only, and what
//! may be concluded from them is said at each function.

use super::sys;

/// A transaction of a process. Never two at a time are alike, but after a while numbers come again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transaction {
    pub proc: u32,
    /// Which user of that process slot, where `lxid` alone does not tell.
    pub incarnation: u32,
    pub lxid: u32,
}

/// This process's transaction: known from its first statement on, without a transaction id. In commit and abort
/// callbacks it is over already.
pub fn my_transaction() -> Transaction {
    let mut tx = sys::PglTx { proc_: 0, incarnation: 0, lxid: 0 };
    // SAFETY: reads our own PGPROC.
    unsafe { sys::pgl_tx(&raw mut tx) };
    Transaction { proc: tx.proc_, incarnation: tx.incarnation, lxid: tx.lxid }
}

/// False exactly from the moment the transaction's effects are visible, or it has aborted: PostgreSQL clears the
/// number together with the transaction id. Read without a lock: what is read after it must use a new snapshot.
pub fn is_running(tx: Transaction) -> bool {
    let tx = sys::PglTx { proc_: tx.proc, incarnation: tx.incarnation, lxid: tx.lxid };
    // SAFETY: the array of PGPROCs is fixed; out of range is answered with false.
    unsafe { sys::pgl_tx_running(&raw const tx) }
}

/// The process behind a number; 0: none.
pub fn pid(proc: u32) -> i32 {
    // SAFETY: as `is_running`.
    unsafe { sys::pgl_pid(proc) }
}

pub fn my_number() -> u32 {
    // SAFETY: reads our own PGPROC.
    unsafe { sys::pgl_my_proc() }
}

/// Every process that can run a transaction has a number below this (prepared transactions are above). Final from
/// the shared memory request on.
pub fn capacity() -> usize {
    // SAFETY: PostgreSQL's processes have one thread.
    usize::try_from(unsafe { sys::MaxBackends }).unwrap_or(0)
}

/// The database this process is connected to; 0: none.
pub fn database() -> u32 {
    // SAFETY: as `capacity`.
    unsafe { sys::MyDatabaseId }.to_u32()
}
