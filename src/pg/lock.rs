//! Heavyweight locks that stand for nothing in the catalogs.

use super::error::Result;
use super::guard::call;
use super::sys;

/// Takes an exclusive lock of this database, to the end of the transaction; false: another transaction has it. The
/// numbers are our own, apart from those of SQL's advisory locks.
pub fn try_exclusive(class: u32, object: u32) -> Result<bool> {
    // SAFETY: inside a transaction.
    call(|| unsafe { sys::pgl_try_exclusive(class, object) })
}
