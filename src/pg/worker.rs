//! Background workers: how they are asked for, and what one does with signals, its latch and its transactions.
//!
//! A worker is a function `fn(u32) -> Result<Exit>`, exported under its name by [`worker!`]. An error that comes out is
//! PostgreSQL's to report; the process then ends, which gives back whatever it held, and is started anew.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::condvar::WaitEvent;
use super::error::{Error, Result};
use super::guard::{OUT_OF_MEMORY, c_text, call, contain, enter};
use super::{memory, sys, text};

/// How a worker ends in an orderly way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// There is nothing more to do: it is not started again.
    Done,
    /// It was asked to end. One of [`register`] is started again.
    Asked,
}

/// Has the postmaster keep a worker running from the end of recovery on. To be called while preloading. In binary upgrade
/// mode nothing is run.
pub fn register(name: &'static CStr, function: &'static CStr, restart_seconds: i32) -> Result<()> {
    let (name, function) = (name.as_ptr(), function.as_ptr());
    // SAFETY: terminated strings; _PG_init is the place for it.
    call(|| unsafe {
        if !sys::pgl_binary_upgrade() {
            sys::pgl_worker_register(name, function, restart_seconds);
        }
    })
}

/// A worker that was asked for by this process.
pub struct Handle(NonNull<sys::BackgroundWorkerHandle>);

/// Has the postmaster start a worker, once. None: every worker slot is taken (max_worker_processes).
pub fn start(name: &str, kind: &'static CStr, function: &'static CStr, argument: u32) -> Result<Option<Handle>> {
    let (name, kind, function) = (c_text(Some(name.as_bytes())), kind.as_ptr(), function.as_ptr());
    // SAFETY: the texts outlive the call, which copies them.
    let handle = call(|| unsafe { sys::pgl_worker_start(name, kind, function, argument) })?;
    Ok(NonNull::new(handle).map(Handle))
}

impl Handle {
    /// It has ended, or could not be started.
    pub fn has_stopped(&self) -> bool {
        // SAFETY: freed by Drop only.
        unsafe { sys::pgl_worker_stopped(self.0.as_ptr()) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: allocated for us by PostgreSQL; freeing raises nothing.
        unsafe { sys::pfree(self.0.as_ptr().cast()) };
    }
}

type Main = fn(u32) -> Result<Exit>;

static AT_EXIT: OnceLock<fn(Option<&[u8]>)> = OnceLock::new();
static FAILURE: OnceLock<Box<[u8]>> = OnceLock::new();

/// Has `f` called when this process ends, however it does: after it has left the database, with the message of the error
/// that ended it, if one did, in that database's encoding. To be called before anything that `f` is to undo.
pub fn at_exit(f: fn(Option<&[u8]>)) -> Result<()> {
    unsafe extern "C-unwind" fn run(_: c_int, _: sys::Datum) {
        contain(|| {
            if let Some(f) = AT_EXIT.get() {
                f(FAILURE.get().map(|message| &**message));
            }
        });
    }
    assert!(AT_EXIT.set(f).is_ok(), "one thing to do at exit");
    // SAFETY: on_shmem_exit runs what was registered last first, so this comes after what connecting will register.
    call(|| unsafe { sys::on_shmem_exit(Some(run), sys::Datum::from(0_usize)) })
}

#[doc(hidden)]
pub fn run(main: Main, argument: sys::Datum) {
    let exit = enter(|| {
        // SAFETY: the first thing in the process.
        unsafe { sys::pgl_worker_signals() };
        main(argument.value() as u32).map_err(|error| match message(&error) {
            Ok(message) => {
                let _ = FAILURE.set(message);
                error
            }
            // it lies above the other one on elog's stack: it is the one to be raised, and to end the process
            Err(second) => second,
        })
    });
    // SAFETY: ends the process from a frame that owns nothing.
    unsafe { sys::proc_exit(if exit == Exit::Done { 0 } else { 1 }) };
}

fn message(error: &Error) -> Result<Box<[u8]>> {
    match error {
        Error::Own(report) => memory::copy(report.message.as_bytes()),
        Error::OutOfMemory => memory::copy(OUT_OF_MEMORY.as_bytes()),
        Error::Pending(_) => {
            // SAFETY: such an error is on elog's stack.
            let text = call(|| unsafe { sys::pgl_pending_message() })?;
            // SAFETY: a terminated string, copied before anything is freed.
            memory::copy(unsafe { CStr::from_ptr(text) }.to_bytes())
        }
    }
}

/// Exports a worker's function.
macro_rules! worker {
    ($symbol:ident, $main:path) => {
        #[unsafe(no_mangle)]
        extern "C-unwind" fn $symbol(argument: $crate::pg::worker::Datum) {
            $crate::pg::worker::run($main, argument)
        }
    };
}
pub use sys::Datum;
pub(crate) use worker;

/// Connects to a database, or (None) to the shared catalogs only. PostgreSQL's settings that could get in a worker's way
/// are fixed, whatever the configuration says for this database.
pub fn connect(database: Option<u32>) -> Result<()> {
    // SAFETY: once, in a worker.
    call(|| unsafe { sys::pgl_worker_connect(database.unwrap_or(0)) })?;
    for (name, value) in [
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_isolation", c"read committed"),
        (c"statement_timeout", c"0"),
        (c"lock_timeout", c"0"),
        (c"transaction_timeout", c"0"),
        (c"idle_in_transaction_session_timeout", c"0"),
        (c"synchronous_commit", c"off"),
    ] {
        // SAFETY: terminated strings.
        call(|| unsafe { sys::pgl_set_option(name.as_ptr(), value.as_ptr()) })?;
    }
    Ok(())
}

/// Sleeps until somebody wakes this process, or for so many milliseconds; true: it was asked to end.
pub fn sleep(milliseconds: i64, event: &WaitEvent) -> Result<bool> {
    let event = event.id()?;
    // SAFETY: in a worker.
    call(|| unsafe { sys::pgl_worker_sleep(milliseconds.max(0), event) })
}

/// Runs a transaction of its own.
pub fn transaction<R>(activity: &'static CStr, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let activity = activity.as_ptr();
    // SAFETY: outside any transaction.
    call(|| unsafe { sys::pgl_worker_begin(activity) })?;
    let result = f()?;
    // SAFETY: in the transaction that was begun.
    call(|| unsafe { sys::pgl_worker_commit() })?;
    Ok(result)
}

/// Hands in what the process has counted for PostgreSQL's statistics.
pub fn report_statistics() -> Result<()> {
    // SAFETY: outside any transaction.
    call(|| unsafe { sys::pgl_worker_idle() })
}

/// Wakes a process that sleeps in [`sleep`]. Raises nothing; harmless if it is another process by now.
pub fn wake(proc: u32) {
    // SAFETY: within the array of PGPROCs, or nothing is done.
    unsafe { sys::pgl_wake(proc) };
}

/// The databases that can be connected to. Inside a transaction.
pub fn databases() -> Result<Vec<u32>> {
    let mut oids = std::ptr::null_mut();
    let to_oids = &raw mut oids;
    // SAFETY: in a transaction.
    let count = call(|| unsafe { sys::pgl_databases(to_oids) })?;
    // SAFETY: so many were written, and they live to the end of the transaction.
    let oids = unsafe { std::slice::from_raw_parts(oids, count as usize) };
    Ok(oids.iter().map(|oid| oid.to_u32()).collect())
}

/// Fit for this database, as the names are the whole server's. None: there is no such database. Inside a transaction.
pub fn database_name(database: u32) -> Result<Option<Vec<u8>>> {
    // SAFETY: in a transaction.
    let name = call(|| unsafe { sys::pgl_database_name(database) })?;
    // SAFETY: NULL or a terminated string.
    Ok((!name.is_null()).then(|| text::fit(unsafe { CStr::from_ptr(name) }.to_bytes()).into_owned()))
}
