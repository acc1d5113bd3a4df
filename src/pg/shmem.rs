//! The shared memory of the module: one piece, of fixed size, and the LWLocks that go with it.
//!
//! PostgreSQL asks for sizes in one hook and lets itself be filled in another; both run in the postmaster, and every
//! process inherits the addresses by fork.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::error::Result;
use super::guard::{call, enter};
use super::{lwlock, sys};

pub struct Area {
    /// Of the memory and of the locks' tranche.
    pub name: &'static CStr,
    pub locks: usize,
    /// Runs when settings and MaxBackends are final.
    pub size: fn() -> usize,
    /// Runs once per start of shared memory, crash restarts included, on zeroed memory of that size, aligned to 128.
    pub init: fn(NonNull<u8>),
}

static AREA: OnceLock<Area> = OnceLock::new();
static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static PREVIOUS_REQUEST: OnceLock<Hook> = OnceLock::new();
static PREVIOUS_STARTUP: OnceLock<Hook> = OnceLock::new();

type Hook = Option<unsafe extern "C-unwind" fn()>;

/// The memory's alignment: a cache line of the widest machines.
const ALIGN: usize = 128;

/// Asks for the area. To be called once, while [`super::module::preloading`].
pub fn register(area: Area) {
    assert!(AREA.set(area).is_ok(), "shared memory is registered once");
    // SAFETY: the postmaster has one thread; the previous hooks are kept and called.
    unsafe {
        let _ = PREVIOUS_REQUEST.set(sys::shmem_request_hook);
        let _ = PREVIOUS_STARTUP.set(sys::shmem_startup_hook);
        sys::shmem_request_hook = Some(request_hook);
        sys::shmem_startup_hook = Some(startup_hook);
    }
}

/// None: we were not preloaded.
pub fn base() -> Option<NonNull<u8>> {
    NonNull::new(BASE.load(Ordering::Acquire))
}

fn area() -> &'static Area {
    AREA.get().expect("registered before the hooks")
}

fn run_previous(hook: &OnceLock<Hook>) -> Result<()> {
    match hook.get().copied().flatten() {
        // SAFETY: a hook of another module, called the way PostgreSQL would.
        Some(hook) => call(|| unsafe { hook() }),
        None => Ok(()),
    }
}

unsafe extern "C-unwind" fn request_hook() {
    enter(|| {
        run_previous(&PREVIOUS_REQUEST)?;
        let size = (area().size)() + ALIGN;
        let (name, locks) = (area().name.as_ptr(), area().locks as c_int);
        // SAFETY: inside shmem_request_hook, where both may be called.
        call(|| unsafe {
            sys::RequestAddinShmemSpace(size);
            sys::RequestNamedLWLockTranche(name, locks);
        })
    });
}

unsafe extern "C-unwind" fn startup_hook() {
    enter(|| {
        run_previous(&PREVIOUS_STARTUP)?;
        let size = (area().size)();
        let name = area().name.as_ptr();
        // SAFETY: inside shmem_startup_hook. AddinShmemInitLock is released by PostgreSQL should something raise, as
        // the postmaster then ends.
        let (memory, found, tranche) = call(|| unsafe {
            let mut found = false;
            sys::LWLockAcquire(sys::pgl_addin_shmem_init_lock(), sys::LWLockMode::LW_EXCLUSIVE);
            let memory = sys::ShmemInitStruct(name, size + ALIGN, &raw mut found);
            sys::LWLockRelease(sys::pgl_addin_shmem_init_lock());
            (memory.cast::<u8>(), found, sys::GetNamedLWLockTranche(name))
        })?;
        // SAFETY: at most ALIGN - 1 further, in a piece that is ALIGN longer than what is used.
        let base = unsafe { memory.add(memory.align_offset(ALIGN)) };
        lwlock::set_tranche(tranche, area().locks);
        if !found {
            // SAFETY: the piece is ours alone until the postmaster starts its first child.
            unsafe { base.write_bytes(0, size) };
            (area().init)(NonNull::new(base).expect("ShmemInitStruct raises rather than returning NULL"));
        }
        BASE.store(base, Ordering::Release);
        Ok(())
    });
}
