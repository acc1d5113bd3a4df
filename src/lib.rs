//! pg_lease: leases with epochs, waiting and fencing for PostgreSQL.
//!
//! | module | is |
//! |---|---|
//! | `lease_core` (src/core) | what a lease is: pure decisions, no PostgreSQL |
//! | [`pg`] | how we talk to PostgreSQL: the only home of unsafe calls, C and version differences |
//! | [`shared`] | what lives in shared memory, and its locks |
//! | [`store`] | the lease table |
//! | [`session`] | this backend's transaction: pending changes, waits, commit |
//! | [`sweep`] | the background workers |
//! | [`api`] | the SQL functions: decode, call, encode |
//!
//! Imports point one way: api, sweep -> session -> store, shared -> pg; lease_core is used by all above pg and uses nothing.

#![deny(unsafe_op_in_unsafe_fn)]
// Into C only by `pg`, which is there to be the boundary.
#![warn(ffi_unwind_calls)]

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must unwind to the entry guard: build with panic = \"unwind\"");

mod api;
#[allow(ffi_unwind_calls)]
mod pg;
mod session;
mod shared;
mod store;
mod sweep;

use pg::guc;

pg::module::pg_module!(init);

static MAX_CLAIMS: guc::Spec = guc::Spec {
    name: c"pg_lease.max_claims",
    description: c"Sets how many keys open transactions can be changing or guarding at once.",
    details: Some(c"One session may use half of them."),
    change: guc::Change::Restart,
};

static SWEEP_BATCH: guc::Spec = guc::Spec {
    name: c"pg_lease.sweep_batch",
    description: c"Sets how many lapsed leases are written down in one transaction.",
    details: None,
    change: guc::Change::Reload,
};

static LOG_LAPSES: guc::Spec = guc::Spec {
    name: c"pg_lease.log_lapses",
    description: c"Logs each lapse of a lease.",
    details: None,
    change: guc::Change::Reload,
};

/// Runs in the postmaster when the library is in shared_preload_libraries, else in the first backend that calls a
/// function: then there is no shared memory, and the functions say so.
fn init() -> pg::Result<()> {
    #[cfg(feature = "test-points")]
    pg::test_points::define()?;
    if !pg::module::preloading() {
        return Ok(());
    }
    shared::MAX_CLAIMS.define(&MAX_CLAIMS, 16, 1 << 22)?;
    shared::SWEEP_BATCH.define(&SWEEP_BATCH, 1, 100_000)?;
    shared::LOG_LAPSES.define(&LOG_LAPSES)?;
    guc::reserve_prefix(c"pg_lease")?;
    shared::register();
    session::register()?;
    sweep::register()
}
