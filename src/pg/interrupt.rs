//! Cancel, termination and the like, taken where the caller holds nothing that an error would leave behind.
//!
//! Not under an LWLock: PostgreSQL holds interrupts off there, and nothing would happen.

use super::error::Result;
use super::guard::call;
use super::sys;

/// CHECK_FOR_INTERRUPTS.
pub fn check() -> Result<()> {
    // SAFETY: a signal handler may set it at any time, hence the volatile read.
    if unsafe { (&raw const sys::InterruptPending).read_volatile() } == 0 {
        return Ok(());
    }
    // SAFETY: no conditions.
    call(|| unsafe { sys::pgl_check_for_interrupts() })
}
