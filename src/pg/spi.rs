//! SQL from within, for paths where a microsecond does not matter.

use super::error::Result;
use super::guard::{c_text, call};
use super::sys;

/// Runs a statement; the number of rows it processed.
pub fn execute(sql: &str) -> Result<u64> {
    let sql = c_text(Some(sql.as_bytes()));
    // SAFETY: inside a transaction that has a snapshot.
    call(|| unsafe { sys::pgl_spi_execute(sql) })
}
