//! Condition variables in shared memory, and the names that waits on them show.
//!
//! A process prepares its sleep, looks at what it waits for, and sleeps: whoever changes that afterwards broadcasts, and is
//! heard. Each variable has a spinlock of PostgreSQL's, so none of this belongs under an LWLock of ours. Backends only.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_long};
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::Result;
use super::guard::call;
use super::sys;

/// Lives in shared memory.
#[repr(transparent)]
pub struct ConditionVariable(UnsafeCell<sys::ConditionVariable>);

// SAFETY: shared by design; PostgreSQL's functions on it take its spinlock.
unsafe impl Sync for ConditionVariable {}

thread_local! {
    /// PostgreSQL keeps one prepared sleep per process, and silently cancels it when a second is prepared.
    static PREPARED: Cell<bool> = const { Cell::new(false) };
}

impl ConditionVariable {
    /// To be called once, before anybody else can see it.
    pub fn init(&self) {
        // SAFETY: raises nothing.
        unsafe { sys::ConditionVariableInit(self.0.get()) };
    }

    /// Wakes all. Raises nothing, so it may stand in commit and abort callbacks.
    ///
    /// PostgreSQL takes this process off the variable that it has prepared to sleep on itself, if any. No wake-up is lost by
    /// that: its next [`Sleep::timed`] finds the sleep unprepared, joins the sleepers again and returns at once, as if woken.
    /// So the caller looks once more, after it has joined, before it sleeps.
    pub fn broadcast(&self) {
        // SAFETY: raises nothing; initialised at the start of shared memory.
        unsafe { sys::ConditionVariableBroadcast(self.0.get()) };
    }

    /// Joins the sleepers, so that no wake-up after this is missed. Look at the condition, then [`Sleep::timed`], and so on
    /// in turn: it may return although nobody has woken this process.
    pub fn prepare(&self) -> Sleep<'_> {
        assert!(!PREPARED.replace(true), "a process sleeps on one condition variable at a time");
        // SAFETY: raises nothing; no other sleep is prepared.
        unsafe { sys::ConditionVariablePrepareToSleep(self.0.get()) };
        Sleep { on: self }
    }
}

/// A prepared sleep; dropping it leaves the sleepers.
pub struct Sleep<'a> {
    on: &'a ConditionVariable,
}

impl Sleep<'_> {
    /// Sleeps until woken (false) or for that long (true). Takes interrupts, so a cancel or termination ends it.
    pub fn timed(&self, milliseconds: i64, event: &WaitEvent) -> Result<bool> {
        let event = event.id()?;
        let variable = self.on.0.get();
        // SAFETY: prepared, on this variable.
        call(|| unsafe { sys::ConditionVariableTimedSleep(variable, milliseconds.max(0) as c_long, event) })
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        PREPARED.set(false);
        // SAFETY: raises nothing, also after an error; cancelling what is no longer prepared does nothing.
        unsafe { sys::pgl_cancel_sleep() };
    }
}

/// What pg_stat_activity shows for a wait: the name where the server can (17 and later), else "Extension".
pub struct WaitEvent {
    name: &'static CStr,
    id: AtomicU32,
}

impl WaitEvent {
    pub const fn new(name: &'static CStr) -> WaitEvent {
        WaitEvent { name, id: AtomicU32::new(0) }
    }

    pub(super) fn id(&self) -> Result<u32> {
        let known = self.id.load(Ordering::Relaxed);
        if known != 0 {
            return Ok(known);
        }
        let name = self.name.as_ptr();
        // SAFETY: a terminated string.
        let id = call(|| unsafe { sys::pgl_wait_event(name) })?;
        self.id.store(id, Ordering::Relaxed);
        Ok(id)
    }
}
