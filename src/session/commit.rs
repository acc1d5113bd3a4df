//! Pre-commit (rules 9 and 10): seals every claim of the transaction, or none, and writes the rows.
//!
//! Nothing waits for a claim or a relation lock once the claims are sealed.

use lease_core::{CommitStep, Failure, Lease, Name};

use super::wait::{Purpose, Sleeper};
use super::{fail, pending};
use crate::pg::{Result, test_point, xact};
use crate::shared::Key;
use crate::store::{self, Writer};
use pending::Extra;

/// One row to write.
pub struct Write {
    pub key: Key,
    pub base: Option<Lease<Name>>,
    pub new: Option<Lease<Name>>,
    pub extra: Extra,
}

/// Registered with PostgreSQL as the last thing that a transaction does before it becomes durable.
pub fn pre_commit() -> Result<()> {
    if !pending::has_any() {
        return Ok(());
    }
    pending::set_committing();
    store::write(|table| {
        xact::force_local_flush()?;
        test_point!("before-seal")?;
        seal()?;
        test_point!("sealed")?;
        for write in pending::writes() {
            write_row(table, &write)?;
        }
        test_point!("written")
    })
}

fn write_row(table: &mut Writer<'_>, write: &Write) -> Result<()> {
    table.write(
        &write.key.name,
        write.base.as_ref(),
        write.new.as_ref(),
        write.extra.granted_to.as_deref(),
        write.extra.payload.as_deref(),
    )
}

fn seal() -> Result<()> {
    let mut commit = pending::commit();
    let mut sleeper = Sleeper::new(Purpose::Commit, None);
    loop {
        match commit.next() {
            CommitStep::Seal => sleeper.look(|section| commit.seal(section)),
            CommitStep::Sleep { until } => {
                sleeper.sleep(until, None)?;
                commit.awake();
            }
            CommitStep::Check(key) => {
                // a renewal by another session may be committing at this moment: it must not hide the row
                let found = store::find_at_once(&key.name)?;
                commit.checked(found.row.map(|row| row.lease).as_ref());
            }
            CommitStep::Write => break,
            CommitStep::Failed(Failure::Broken(key)) => return Err(fail::broken(&key)),
            CommitStep::Failed(Failure::Stale(key)) => return Err(fail::stale(&key)),
            CommitStep::Failed(Failure::Guard(key, status)) => return Err(fail::guard(&key, status)),
        }
    }
    sleeper.done();
    pending::done_waiting();
    Ok(())
}

/// PREPARE TRANSACTION would leave claims behind that no backend ends.
pub fn pre_prepare() -> Result<()> {
    if pending::has_any() { Err(fail::prepare()) } else { Ok(()) }
}
