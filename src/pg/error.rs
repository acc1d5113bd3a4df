//! Errors as values.
//!
//! What is raised is made here and in `guard`; everything between returns a [`Result`]. In any process; takes no lock.

use std::collections::TryReserveError;

/// What a call into PostgreSQL, or a decision of ours, comes to.
pub type Result<T> = std::result::Result<T, Error>;

/// On its way to the entry guard, which hands it to PostgreSQL. Pass it on; catching one would leave PostgreSQL in
/// the middle of a failed (sub)transaction.
#[must_use = "an error has to reach the entry guard"]
#[derive(Debug)]
pub enum Error {
    /// PostgreSQL raised it. It waits, whole, on elog's stack.
    Pending(Pending),
    /// We raise it.
    Own(Box<Report>),
    /// There is no memory for what Rust keeps: 53200. Holds nothing, as there may be none for it either.
    OutOfMemory,
}

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Error {
        Error::OutOfMemory
    }
}

/// Proof that an error is on elog's stack: made by `guard::call` alone, and not to be copied.
#[derive(Debug)]
pub struct Pending(());

impl Pending {
    pub(super) fn new() -> Pending {
        Pending(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlState(pub [u8; 5]);

/// Text in the database's encoding: pass what users gave through [`super::text::display`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub sqlstate: SqlState,
    pub message: String,
    pub detail: Option<String>,
    /// For the server log only.
    pub detail_log: Option<String>,
    pub hint: Option<String>,
    /// A table of ours is not there: for whoever can do without.
    pub(super) table_is_missing: bool,
}

impl Report {
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Report {
        Report {
            sqlstate,
            message: message.into(),
            detail: None,
            detail_log: None,
            hint: None,
            table_is_missing: false,
        }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Report {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Report {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Report> for Error {
    fn from(report: Report) -> Error {
        Error::Own(Box::new(report))
    }
}

pub mod sqlstate {
    use super::SqlState;

    pub const LAPSED: SqlState = SqlState(*b"LE001");
    pub const EPOCH_MISMATCH: SqlState = SqlState(*b"LE002");
    pub const NOT_OWNER: SqlState = SqlState(*b"LE003");

    pub const SUCCESSFUL_COMPLETION: SqlState = SqlState(*b"00000");
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState(*b"0A000");
    pub const NULL_VALUE_NOT_ALLOWED: SqlState = SqlState(*b"22004");
    pub const INVALID_PARAMETER_VALUE: SqlState = SqlState(*b"22023");
    pub const READ_ONLY_SQL_TRANSACTION: SqlState = SqlState(*b"25006");
    pub const INVALID_TRANSACTION_TERMINATION: SqlState = SqlState(*b"2D000");
    pub const SERIALIZATION_FAILURE: SqlState = SqlState(*b"40001");
    pub const DEADLOCK_DETECTED: SqlState = SqlState(*b"40P01");
    pub const TRIGGER_PROTOCOL_VIOLATED: SqlState = SqlState(*b"39P01");
    pub const UNDEFINED_COLUMN: SqlState = SqlState(*b"42703");
    pub const DATATYPE_MISMATCH: SqlState = SqlState(*b"42804");
    pub const INVALID_OBJECT_DEFINITION: SqlState = SqlState(*b"42P17");
    pub const OUT_OF_MEMORY: SqlState = SqlState(*b"53200");
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: SqlState = SqlState(*b"55000");
    pub const LOCK_NOT_AVAILABLE: SqlState = SqlState(*b"55P03");
    pub const QUERY_CANCELED: SqlState = SqlState(*b"57014");
    pub const INTERNAL_ERROR: SqlState = SqlState(*b"XX000");
}
