//! How we talk to PostgreSQL: one file per concept of it.
//!
//! The only home of `unsafe` calls into the server, of `extern`, of pgrx_pg_sys and of C. Knows nothing of leases.
//!
//! Rules of this layer:
//!
//! 1. A C function that can raise an ERROR is called through [`guard::call`] and nothing else; whatever is called
//!    otherwise has its reason written beside it.
//! 2. An error is a value ([`Error`]) until it reaches the entry guard, which alone hands it back to PostgreSQL.
//!    Nobody else consumes one.
//! 3. `Drop` never calls what can raise. What PostgreSQL's resource owners give back after an error is left to them.
//! 4. Nothing runs under an LWLock of ours that can raise, wait or allocate.
//! 5. What grows with the data is allocated by `try_reserve` ([`memory`] says why).
//! 6. Differences between PostgreSQL's versions are in shim.c.

pub mod clock;
pub mod condvar;
pub mod error;
pub mod function;
mod guard;
pub mod guc;
pub mod interrupt;
mod layout;
pub mod log;
pub mod lwlock;
pub mod memory;
pub mod module;
pub mod proc;
pub mod role;
pub mod shmem;
mod sys;
pub mod table;
pub mod test_points;
pub mod text;
pub mod trigger;
pub mod utility;
pub mod value;
pub mod worker;
pub mod xact;

pub use error::{Error, Report, Result, sqlstate};
pub(crate) use function::pg_function;
pub(crate) use test_points::test_point;
