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

pub fn emit(level: Level, report: &Report) -> Result<()> {
    let level = match level {
        Level::Log => sys::LOG,
        Level::Notice => sys::NOTICE,
        Level::Warning => sys::WARNING,
    };
    guard::emit(level, report)
}
