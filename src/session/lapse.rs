//! What the sweeper does with keys whose deadline has come: writes down which leases are over.
//!
//! It goes the way of every other change, with a claim that gives way to everybody until it is sealed. What cannot be had at
//! once is left for later, and never makes the others fail.

use lease_core::{Answer, Lease, Name, Refusal, Request, State, Time, Wait};

use super::operate::{Change, attempt};
use super::pending;
use crate::pg::log;
use crate::pg::{Report, Result, interrupt, proc, sqlstate, text, worker};
use crate::shared::{self, Key, LOG_LAPSES};
use crate::store::Edit;

/// What became of a key.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// Its lease is over since then, and the table shows it.
    Lapsed(Time),
    /// It is live until then.
    Live(Time),
    /// Somebody is changing the key, or has its row.
    Busy,
    /// Nobody holds it.
    Unowned,
}

/// One transaction for these keys. No flush is waited for: a lapse that a crash undoes is found again.
pub fn lapse(keys: &[Name]) -> Result<Vec<Fate>> {
    let mut leases: Vec<Option<Lease<Name>>> = Vec::with_capacity(keys.len());
    let mut fates: Vec<Fate> = Vec::with_capacity(keys.len());
    worker::transaction(c"lease sweep", || {
        for key in keys {
            interrupt::check()?;
            let (fate, lease) = judge(*key)?;
            fates.push(fate);
            leases.push(lease);
        }
        Ok(())
    })?;
    let skipped = pending::take_skipped();
    if !skipped.is_empty() {
        let database = proc::database();
        for (key, fate) in keys.iter().zip(&mut fates) {
            if skipped.contains(&Key { database, name: *key }) {
                *fate = Fate::Busy;
            }
        }
    }
    for ((key, fate), lease) in keys.iter().zip(&fates).zip(leases) {
        if let (Fate::Lapsed(_), Some(lease)) = (fate, lease) {
            log_quietly(key, &lease);
        }
    }
    Ok(fates)
}

fn judge(key: Name) -> Result<(Fate, Option<Lease<Name>>)> {
    let change = Change {
        function: "the lease sweeper",
        key,
        request: Request::Lapse,
        wait: Wait::Brief(Time::PAST),
        patience: None,
        granted_to: Edit::Keep,
        payload: Edit::Set(None),
    };
    let (answer, lease) = attempt(change)?;
    let at = shared::at();
    let fate = match (answer, &lease) {
        (Answer::Granted(_), Some(lease)) => Fate::Lapsed(lease.expiry(at)),
        (Answer::Refused(Refusal::NotDue), Some(lease)) if lease.is_live(at) => Fate::Live(lease.expiry(at)),
        (Answer::Refused(Refusal::NotDue), Some(lease)) if lease.state == State::Held => Fate::Busy,
        (Answer::Refused(_), _) => Fate::Unowned,
        _ => Fate::Busy,
    };
    Ok((fate, lease))
}

/// pg_lease.log_lapses. Raises nothing.
pub fn log_quietly(key: &Name, lease: &Lease<Name>) {
    if !LOG_LAPSES.get() {
        return;
    }
    let owner = lease.owner.map_or_else(String::new, |owner| text::display(owner.as_bytes()));
    let message = format!("lease of key \"{}\" lapsed", text::display(key.as_bytes()));
    let report = Report::new(sqlstate::SUCCESSFUL_COMPLETION, message)
        .detail(format!("It was held by \"{owner}\" with epoch {}.", lease.epoch));
    log::emit_quietly(&report);
}
