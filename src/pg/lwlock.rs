//! Lightweight locks in shared memory, in one tranche of our own: which protects what is said in `shared`.
//!
//! One is held for a closure and given back when it ends, a panic included. PostgreSQL knows no deadlocks among them, and
//! takes no interrupts while one is held. Any process that is attached to the shared memory may take one.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::sys;

/// One of the locks asked for by [`super::shmem::register`].
#[repr(transparent)]
pub struct LwLock(std::cell::UnsafeCell<sys::LWLockPadded>);

// SAFETY: a lock is there to be shared; it is touched only through PostgreSQL's functions.
unsafe impl Sync for LwLock {}

static TRANCHE: AtomicPtr<sys::LWLockPadded> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// The locks are there: called once, in the postmaster.
pub(super) fn set_tranche(tranche: *mut sys::LWLockPadded, count: usize) {
    COUNT.store(count, Ordering::Relaxed);
    TRANCHE.store(tranche, Ordering::Release);
}

/// The i-th lock. Panics beyond the number asked for, and without shared memory.
pub fn get(i: usize) -> &'static LwLock {
    assert!(i < COUNT.load(Ordering::Relaxed), "no LWLock {i}");
    // SAFETY: within the tranche, which lives as long as the process; LwLock has the layout of LWLockPadded.
    unsafe { &*TRANCHE.load(Ordering::Acquire).add(i).cast::<LwLock>() }
}

impl LwLock {
    /// Runs a closure under the lock. It must not raise, wait, allocate in PostgreSQL or return an
    /// [`super::Error::Pending`] from within; a panic releases the lock.
    pub fn exclusive<R>(&self, f: impl FnOnce() -> R) -> R {
        self.with(sys::LWLockMode::LW_EXCLUSIVE, f)
    }

    /// The same for readers.
    pub fn shared<R>(&self, f: impl FnOnce() -> R) -> R {
        self.with(sys::LWLockMode::LW_SHARED, f)
    }

    fn with<R>(&self, mode: sys::LWLockMode::Type, f: impl FnOnce() -> R) -> R {
        let lock = self.0.get().cast::<sys::LWLock>();
        // Unguarded: raises only when a process holds 200 locks. It holds off interrupts until the release.
        // SAFETY: a lock of our tranche.
        unsafe { sys::LWLockAcquire(lock, mode) };
        let _held = Held(lock);
        f()
    }
}

struct Held(*mut sys::LWLock);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: we hold it, and releasing raises nothing. An ERROR raised under the lock, against the rule, has
        // zeroed the count of holds that the release is going to lower.
        unsafe {
            debug_assert!(sys::InterruptHoldoffCount > 0, "an error was raised under an LWLock");
            if sys::InterruptHoldoffCount == 0 {
                sys::pgl_hold_interrupts();
            }
            sys::LWLockRelease(self.0);
        }
    }
}
