//! Messages to the server log.

use super::error::{Report, Result};
use super::{guard, sys};

pub fn emit(report: &Report) -> Result<()> {
    guard::emit(sys::LOG, report)
}

/// Where nothing may be raised, as in commit callbacks: what goes wrong with it is forgotten.
pub fn emit_quietly(report: &Report) {
    guard::emit_quietly(sys::LOG, report);
}
