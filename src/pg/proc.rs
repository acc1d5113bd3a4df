//! Processes, and which transaction one is in.

use lease_core::Tx;

use super::sys;

fn to_c(tx: Tx) -> sys::PglTx {
    sys::PglTx { proc_: tx.proc, incarnation: tx.incarnation, lxid: tx.lxid }
}

/// This process's transaction: known from its first statement on, without a transaction id. In commit and abort
/// callbacks it is over already.
pub fn me() -> Tx {
    let mut tx = sys::PglTx { proc_: 0, incarnation: 0, lxid: 0 };
    // SAFETY: reads our own PGPROC.
    unsafe { sys::pgl_tx(&raw mut tx) };
    Tx { proc: tx.proc_, incarnation: tx.incarnation, lxid: tx.lxid }
}

/// False exactly from the moment the transaction's effects are visible, or it has aborted: PostgreSQL clears the
/// number together with the transaction id. Read without a lock: what is read after it must use a new snapshot.
pub fn running(tx: Tx) -> bool {
    let tx = to_c(tx);
    // SAFETY: the array of PGPROCs is fixed; out of range is answered with false.
    unsafe { sys::pgl_tx_running(&raw const tx) }
}

/// The process behind a number; 0: none.
pub fn pid(proc: u32) -> i32 {
    // SAFETY: as `running`.
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
