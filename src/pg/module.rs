//! The loadable module: its magic and its start.
//!
//! Runs in the postmaster when we are preloaded, else in the first backend that calls a function of ours. Takes no lock.

use std::ffi::c_void;

use super::error::Result;
use super::{guard, sys};

/// Is the postmaster loading us by shared_preload_libraries?
pub fn preloading() -> bool {
    // SAFETY: PostgreSQL's processes have one thread.
    unsafe { sys::process_shared_preload_libraries_in_progress }
}

/// Which server this was compiled for; PostgreSQL refuses to load any other.
#[unsafe(no_mangle)]
extern "C" fn Pg_magic_func() -> *const c_void {
    // SAFETY: returns the address of a constant.
    unsafe { sys::pgl_magic() }
}

#[doc(hidden)]
pub fn start(init: fn() -> Result<()>) {
    guard::install_panic_hook();
    guard::enter(init);
}

/// Exports `_PG_init`, which runs the given `fn() -> pg::Result<()>`.
macro_rules! pg_module {
    ($init:path) => {
        #[unsafe(no_mangle)]
        extern "C-unwind" fn _PG_init() {
            $crate::pg::module::start($init)
        }
    };
}
pub(crate) use pg_module;
