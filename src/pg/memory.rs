//! Memory contexts.

use super::sys;

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
