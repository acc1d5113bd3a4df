//! The SQL functions: decode the arguments, call the session, encode its answer. Decisions are made below.
//!
//! | module | functions |
//! |---|---|
//! | `operations` | acquire, wait_acquire, renew, release, inspect, guard |
//! | `fence` | the trigger fence |
//! | `administration` | force_release, reset_stats |
//! | `views` | now, what the views are made of |
//! | `input` | arguments and what is said about wrong ones |
//! | `output` | states, times and spans as SQL values |
//!
//! The symbols are what sql/pg_lease--*.sql names. None of the functions is STRICT: a NULL where a value is needed is an
//! error like any other wrong argument. Each first asks for `session::ready()`: 55000 unless the library was preloaded.
//!
//! Spec items (S: SEMANTICS, I: INVARIANTS) stand beside each function. What every one of them can raise besides what it
//! says itself: 55000 (not preloaded, or the table is not the one that the install script made) and what any statement can
//! raise. Every one that changes a lease: 25006 (read-only transaction, standby), 0A000 (from a parallel worker, or once the
//! transaction has begun to commit), 40001 (REPEATABLE READ and SERIALIZABLE: the key changed after the snapshot; at
//! COMMIT: its row was written directly), 53200 (no room for another claim), LE001 (here or at COMMIT: the transaction's own
//! change of the key is past its deadline or was broken).

mod administration;
mod fence;
mod input;
mod operations;
mod output;
mod views;

use crate::pg::pg_function;

pg_function!(lease_acquire, operations::acquire);
pg_function!(lease_wait_acquire, operations::wait_acquire);
pg_function!(lease_renew, operations::renew);
pg_function!(lease_release, operations::release);
pg_function!(lease_inspect, operations::inspect);

pg_function!(lease_guard, operations::guard);
pg_function!(lease_fence, fence::fence);

pg_function!(lease_force_release, administration::force_release);
pg_function!(lease_reset_stats, administration::reset_stats);

pg_function!(lease_now, views::now);
pg_function!(lease_list_leases, views::list_leases);
pg_function!(lease_list_claims, views::list_claims);
pg_function!(lease_list_waiters, views::list_waiters);
pg_function!(lease_read_clock, views::read_clock);
pg_function!(lease_read_stats, views::read_stats);
pg_function!(lease_list_sweepers, views::list_sweepers);
