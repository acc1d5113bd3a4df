//! Messages to the server log, from any process; their text is as [`Report`] says.
//!
//! Writing one can fail, and takes interrupts when it is done: hence the second form for commit and abort callbacks. Neither
//! belongs under an LWLock.

use super::error::{Report, Result};
use super::{guard, sys};

pub fn emit(report: &Report) -> Result<()> {
    guard::emit(sys::LOG, report)
}

/// Where nothing may be raised, as in commit callbacks: what goes wrong with it is forgotten.
pub fn emit_quietly(report: &Report) {
    guard::emit_quietly(sys::LOG, report);
}
