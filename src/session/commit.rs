//! Pre-commit (rules 9 and 10): seals every claim of the transaction, or none, and writes the rows.
//!
//! Nothing waits for a claim or a relation lock once the claims are sealed.

use lease_core::{CommitStep, Failure, Lease, Name, State};

use super::wait::{Purpose, Sleeper};
use super::{fail, pending};
use crate::pg::{Error, Result, interrupt, test_point, xact};
use crate::shared::{Counter, Key};
use crate::store::{self, Outcome, Writer};
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
    if !pending::matters() {
        return Ok(());
    }
    pending::set_committing();
    xact::commit_begins();
    let commit = |table: &mut Writer<'_>| {
        if pending::must_flush() {
            xact::force_local_flush()?;
        }
        test_point!("before-seal")?;
        seal(table)?;
        test_point!("sealed")?;
        for write in (0..).map_while(pending::write) {
            if pending::gives_way(&write.key) {
                continue;
            }
            test_point!(quiet "write");
            // sealed as it is, the transaction still aborts like any other
            interrupt::check()?;
            write_row(table, &write)?;
        }
        test_point!("written")
    };
    let done = if pending::has_changes() { store::write(commit) } else { store::look(commit) };
    if let Err(Error::Own(_)) = done {
        Counter::CommitRefusals.add(1);
    }
    done
}

fn write_row(table: &mut Writer<'_>, write: &Write) -> Result<()> {
    let Write { key, base, new, extra } = write;
    let (granted_to, payload) = (extra.granted_to.as_deref(), extra.payload.as_deref());
    if new.is_some_and(|lease| lease.state == State::Lapsed) {
        // it can wait, if somebody has the row in hand
        if table.try_write(&key.name, base.as_ref(), new.as_ref(), granted_to, payload)? != Outcome::Done {
            pending::give_way(key)?;
        }
        return Ok(());
    }
    table.write(&key.name, base.as_ref(), new.as_ref(), granted_to, payload)
}

fn seal(table: &mut Writer<'_>) -> Result<()> {
    let mut commit = pending::commit()?;
    let mut sleeper = Sleeper::new(Purpose::Commit);
    loop {
        match commit.next() {
            CommitStep::Seal => sleeper.look(|section| commit.seal(section)),
            CommitStep::Sleep { until } => {
                sleeper.sleep(until, None)?;
                commit.awake();
            }
            CommitStep::Check(key) => {
                test_point!("check")?;
                interrupt::check()?;
                // a renewal by another session may be committing at this moment: it must not hide the row
                let row = table.find(&key.name)?;
                commit.checked(row.map(|row| row.lease).as_ref());
            }
            CommitStep::Write => break,
            CommitStep::Failed(Failure::Broken(key) | Failure::Stale(key)) if pending::give_way(&key)? => {
                commit.leave_out(&key);
            }
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
