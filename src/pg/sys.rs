//! PostgreSQL as C sees it: types and variables from pgrx_pg_sys, functions as raw externs.
//!
//! pgrx_pg_sys's own functions are not used: each is wrapped in an error boundary that loses parts of an error.
//! The externs are bound from shim.h and externs.list by build.rs.

pub(super) use externs::*;
pub(super) use pgrx_pg_sys::{
    BackgroundWorkerHandle, ConditionVariable, DeadlockTimeout, FirstSnapshotSet, FunctionCallInfoBaseData, GucContext,
    InterruptHoldoffCount, InterruptPending, LOG, LWLock, LWLockMode, LWLockPadded, LockTimeout, MaxBackends,
    MemoryContext, MyDatabaseId, NullableDatum, PG_exception_stack, PGERROR as ERROR, SubTransactionId, SubXactEvent,
    WARNING, XactEvent, XactReadOnly, error_context_stack, process_shared_preload_libraries_in_progress,
    shmem_request_hook, shmem_startup_hook,
};
// In the signatures of the functions that pg_function! and worker! export.
pub use pgrx_pg_sys::{Datum, FunctionCallInfo, Pg_finfo_record};

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    unused_imports,
    clippy::all,
    clippy::pedantic
)]
mod externs {
    include!(concat!(env!("OUT_DIR"), "/externs.rs"));
}
