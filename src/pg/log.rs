//! Messages that are not errors.

use super::error::{Report, Result};
use super::{guard, sys};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// To the server log.
    Log,
    Notice,
    Warning,
}

impl Level {
    fn to_c(self) -> u32 {
        match self {
            Level::Log => sys::LOG,
            Level::Notice => sys::NOTICE,
            Level::Warning => sys::WARNING,
        }
    }
}

pub fn emit(level: Level, report: &Report) -> Result<()> {
    guard::emit(level.to_c(), report)
}

/// Where nothing may be raised, as in commit callbacks: what goes wrong with it is forgotten.
pub fn emit_quietly(level: Level, report: &Report) {
    guard::emit_quietly(level.to_c(), report);
}
