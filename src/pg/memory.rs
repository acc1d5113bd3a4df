//! Memory: PostgreSQL's contexts, and what is Rust's own.
//!
//! A Rust allocation that fails aborts the process, which takes the whole server down; nor can the allocator be made to
//! raise: it may not unwind, and the hook for such failures is not in stable Rust. So whatever grows with the data or the
//! settings is asked for by `try_reserve`, whose error is an [`super::Error`] (53200). Small things of fixed size are not.

use super::error::Result;
use super::sys;

/// A copy of what the caller does not bound.
pub fn copy(bytes: &[u8]) -> Result<Box<[u8]>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy.into_boxed_slice())
}

struct Restore(sys::MemoryContext);

impl Drop for Restore {
    fn drop(&mut self) {
        // SAFETY: the context was current when the closure began, and callers keep theirs until we return.
        unsafe { sys::pgl_switch_to(self.0) };
    }
}

/// Runs a closure with what PostgreSQL allocates living until the end of the transaction.
pub fn in_transaction<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: callers are inside a transaction, where TopTransactionContext exists.
    let _restore = Restore(unsafe { sys::pgl_switch_to_transaction_context() });
    f()
}
