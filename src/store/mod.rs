//! The lease table `lease.entry`: found, judged and written by key, as `lease_core` sees it.
//!
//! Nothing here decides anything about a lease or knows who else is at work: [`crate::session`] does, and calls these
//! functions in the order that the protocol asks for.

mod row;

use std::ops::Deref;

use lease_core::{Lease, Name};

use crate::pg::table::{self, Table, View};
use crate::pg::{Error, Report, Result, sqlstate, text};

pub use crate::pg::table::Outcome;
pub use row::Row;

/// What the table says of one key.
pub struct Found {
    pub row: Option<Row>,
    /// The epoch that a key without a row starts from; 0 when there is a row.
    pub floor: i64,
}

/// The latest committed row, or the floor if there is none (rule 3). The table is locked for the call only.
///
/// Beside a non-HOT update that is just committing a row can be missed: whoever decides on the answer finds out by the
/// version counter and the claim. For everybody else there is [`find_at_once`].
pub fn find(key: &Name) -> Result<Found> {
    find_in(key, View::Latest)
}

/// As `find`, but what it tells was so at one instant of the call. Costs a snapshot.
pub fn find_at_once(key: &Name) -> Result<Found> {
    find_in(key, View::Instant)
}

/// The row is read first: a purge raises the floor in the transaction that deletes the row, so whoever misses the row
/// meets the floor.
fn find_in(key: &Name, view: View) -> Result<Found> {
    match table::read(&row::ENTRY, |entries| entries.find(key.as_bytes(), view, Row::read))? {
        Some(row) => Ok(Found { row: Some(row), floor: 0 }),
        None => Ok(Found { row: None, floor: floor()? }),
    }
}

/// The greatest epoch that a key without a row may have had. At one instant: the floor is nobody's key, so no version
/// counter would tell that it was missed.
pub fn floor() -> Result<i64> {
    let floor = table::read(&row::FLOOR, |floors| floors.only(View::Instant, |row| Ok(row.int8(0))))?;
    Ok(floor.unwrap_or(0))
}

/// Whether the transaction's own snapshot shows the same lease as `row`, the latest one (rule 4; REPEATABLE READ and
/// SERIALIZABLE). Versions are compared by content; a row that only one of them has makes them differ.
pub fn snapshot_agrees(key: &Name, row: Option<&Row>) -> Result<bool> {
    Ok(find_in_snapshot(key)?.map(|row| row.lease) == row.map(|row| row.lease))
}

/// The row that the transaction's own snapshot shows.
pub fn find_in_snapshot(key: &Name) -> Result<Option<Row>> {
    table::read(&row::ENTRY, |entries| entries.find(key.as_bytes(), View::Transaction, Row::read))
}

/// Whether there is a table to look into: the extension is installed here, and its table is there.
pub fn exists() -> Result<bool> {
    table::exists(&row::ENTRY)
}

/// Whether that error came up because the table was gone.
pub fn is_gone(error: &Error) -> bool {
    table::is_missing(error)
}

/// Every row, under a snapshot taken now, for the views: unlike the rest it is what SERIALIZABLE tracks.
pub fn scan(mut visit: impl FnMut(&Name, Row) -> Result<()>) -> Result<()> {
    table::read(&row::ENTRY, |entries| entries.scan(|row| visit(&row::key(row)?, Row::read(row)?)))
}

/// Opens the table for writing. Its locks are kept to the end of the transaction, so that what comes later in it never
/// waits for them (rule 2).
pub fn write<R>(body: impl FnOnce(&mut Writer<'_>) -> Result<R>) -> Result<R> {
    table::write(&row::ENTRY, |entries| body(&mut Writer { entries }))
}

/// The same for who has nothing to write and only looks.
pub fn look<R>(body: impl FnOnce(&mut Writer<'_>) -> Result<R>) -> Result<R> {
    table::read(&row::ENTRY, |entries| body(&mut Writer { entries }))
}

/// What becomes of a column that no decision depends on.
#[derive(Clone, Copy, Debug)]
pub enum Edit<T> {
    Keep,
    Set(Option<T>),
}

impl<T> Edit<T> {
    /// The value, where `old` stood.
    pub fn over(self, old: Option<T>) -> Option<T> {
        match self {
            Edit::Keep => old,
            Edit::Set(new) => new,
        }
    }

    /// Both in one: `before`, then this.
    pub fn after(self, before: Edit<T>) -> Edit<T> {
        match self {
            Edit::Keep => before,
            set => set,
        }
    }
}

impl<T: Deref> Edit<T> {
    pub fn as_deref(&self) -> Edit<&T::Target> {
        match self {
            Edit::Keep => Edit::Keep,
            Edit::Set(value) => Edit::Set(value.as_deref()),
        }
    }
}

pub struct Writer<'a> {
    entries: &'a mut Table,
}

impl Writer<'_> {
    /// The row as it was committed at one instant of the call, without a look at the floor. A snapshot is built only for a
    /// row that seems not to be there.
    pub fn find(&mut self, key: &Name) -> Result<Option<Row>> {
        match self.entries.find(key.as_bytes(), View::Latest, Row::read)? {
            Some(row) => Ok(Some(row)),
            None => self.entries.find(key.as_bytes(), View::Instant, Row::read),
        }
    }

    /// Writes `new` (`None`: deletes the row) over `base`, the lease that it was decided on (`None`: there was no row).
    ///
    /// Never waits. Fails when the row is another one by now (40001), which only a write past the library can bring about, or
    /// when it is locked by hand, or inserted by hand in a transaction still open (55P03).
    ///
    /// `payload` is a whole jsonb datum; it goes with the hold, whatever is asked for.
    pub fn write(
        &mut self,
        key: &Name,
        base: Option<&Lease<Name>>,
        new: Option<&Lease<Name>>,
        granted_to: Edit<&[u8]>,
        payload: Edit<&[u8]>,
    ) -> Result<()> {
        match self.try_write(key, base, new, granted_to, payload)? {
            Outcome::Done => Ok(()),
            Outcome::Changed => {
                let detail = "The row in lease.entry is no longer the one that the change was decided on.";
                Err(changed(key).detail(detail).into())
            }
            Outcome::Locked => Err(locked(key)),
        }
    }

    /// The same, for whom it is no failure that the row is another one or locked.
    pub fn try_write(
        &mut self,
        key: &Name,
        base: Option<&Lease<Name>>,
        new: Option<&Lease<Name>>,
        granted_to: Edit<&[u8]>,
        payload: Edit<&[u8]>,
    ) -> Result<Outcome> {
        self.entries.change(key.as_bytes(), |slot| {
            let found = slot.row().as_ref().map(Row::read).transpose()?;
            if found.as_ref().map(|row| &row.lease) != base {
                return Ok(Outcome::Changed);
            }
            match new {
                Some(lease) => {
                    let old = found.as_ref();
                    let granted_to = granted_to.over(old.and_then(|row| row.granted_to.as_deref()));
                    let payload = payload.over(old.and_then(|row| row.payload.as_deref()));
                    slot.put(&row::values(key, lease, granted_to, payload))
                }
                None => slot.delete(),
            }
        })
    }
}

/// 40001.
pub fn changed(key: &Name) -> Report {
    let key = text::display(key.as_bytes());
    Report::new(
        sqlstate::SERIALIZATION_FAILURE,
        format!("could not serialize access to the lease of key \"{key}\" due to a concurrent change"),
    )
    .hint("The transaction might succeed if retried.")
}

fn locked(key: &Name) -> Error {
    let key = text::display(key.as_bytes());
    Report::new(sqlstate::LOCK_NOT_AVAILABLE, format!("could not change the lease of key \"{key}\""))
        .detail("Another transaction has locked or written its row in lease.entry directly.")
        .into()
}
