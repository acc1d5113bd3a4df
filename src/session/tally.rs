//! The statistics: what a commit adds to the counters, and tells the sweeper, and what is shown of both.

use lease_core::{At, Lease, Name, State, Time};

use super::lapse;
use crate::pg::{Result, proc, worker};
use crate::shared::counters::{Counter, count};
use crate::shared::databases::{self, Status};
use crate::shared::{self, Key, feed};

/// One key's change.
pub struct Done {
    key: Key,
    base: Option<Lease<Name>>,
    new: Option<Lease<Name>>,
}

impl Done {
    pub fn new(key: Key, base: Option<Lease<Name>>, new: Option<Lease<Name>>) -> Done {
        Done { key, base, new }
    }

    /// The deadline that the sweeper, which knows of the lease before, has to be told of.
    fn earlier_end(&self) -> Option<(Key, Time)> {
        let new = self.new.filter(|new| new.state == State::Held)?;
        let earlier = self.base.is_none_or(|base| {
            base.state != State::Held || base.epoch != new.epoch || new.expires_at < base.expires_at
        });
        earlier.then_some((self.key, new.expires_at))
    }
}

/// Once the commit is visible: cannot fail.
pub fn committed(changes: &[Done]) {
    if changes.is_empty() {
        return;
    }
    let start = shared::at().start;
    for Done { key, base, new } in changes {
        if let Some(new) = new {
            tally(key, base.as_ref(), new, start);
        }
    }
    feed::publish(changes.iter().filter_map(Done::earlier_end));
}

fn tally(key: &Key, base: Option<&Lease<Name>>, new: &Lease<Name>, start: Time) {
    // the instant of the decision
    let now = match new.state {
        State::Held => new.granted_at,
        State::Free => new.expires_at,
        State::Lapsed => return,
    };
    let before = base.map(|base| (base.state(At { now, start }), base));
    match new.state {
        State::Held if base.is_some_and(|base| base.state == State::Held && base.epoch == new.epoch) => {
            count(Counter::Renewals);
            return;
        }
        State::Held => {
            count(Counter::Grants);
            match before {
                Some((State::Lapsed, _)) => count(Counter::Takeovers),
                Some((State::Held, _)) => count(Counter::Regrants),
                _ => (),
            }
        }
        State::Free if matches!(before, Some((State::Held, _))) => count(Counter::Releases),
        _ => (),
    }
    if let Some((State::Lapsed, base)) = before
        && base.state == State::Held
    {
        count(Counter::LapsesFound);
        lapse::log_quietly(&key.name, base);
    }
}

/// In the order of the view's columns.
const SHOWN: [Counter; 21] = [
    Counter::Grants,
    Counter::Takeovers,
    Counter::Regrants,
    Counter::Denials,
    Counter::Renewals,
    Counter::Releases,
    Counter::NotOwner,
    Counter::Lapsed,
    Counter::EpochMismatch,
    Counter::LapsesSwept,
    Counter::LapsesFound,
    Counter::WakeUps,
    Counter::SafetyTicks,
    Counter::Timeouts,
    Counter::CancelledWaits,
    Counter::BrokenClaims,
    Counter::CommitRefusals,
    Counter::SweepPasses,
    Counter::SweepRows,
    Counter::RingOverflows,
    Counter::Rescans,
];

pub struct Stats {
    pub counts: [u64; SHOWN.len()],
    /// Microseconds.
    pub delay_last: i64,
    pub delay_max: i64,
    pub since: Time,
}

/// Of this database.
pub fn stats() -> Stats {
    let counters = databases::counters();
    let signed = |counter: Counter| i64::try_from(counters[counter as usize]).unwrap_or(i64::MAX);
    Stats {
        counts: SHOWN.map(|counter| counters[counter as usize]),
        delay_last: signed(Counter::SweepDelayLast),
        delay_max: signed(Counter::SweepDelayMax),
        since: Time(signed(Counter::Since)),
    }
}

pub fn reset_stats() {
    databases::reset_counters(shared::at().now);
}

pub struct SweeperRow {
    /// None: it was dropped just now.
    pub database: Option<Vec<u8>>,
    pub pid: Option<i32>,
    pub status: &'static str,
    pub next_deadline: Option<Time>,
    pub leases: Option<u64>,
    pub last_error: Option<Vec<u8>>,
}

pub fn sweepers() -> Result<Vec<SweeperRow>> {
    let row = |s: databases::Sweeper| {
        Ok(SweeperRow {
            database: worker::database_name(s.database)?,
            pid: s.pid,
            status: match s.status {
                Status::Wanted | Status::Starting => "starting",
                Status::Running => "running",
                Status::NoSlot => "no worker slot",
                Status::Failed => "restarting",
                Status::HeldOff => "held off",
            },
            next_deadline: s.next_deadline,
            leases: s.pid.map(|_| s.leases),
            last_error: s.last_error.filter(|_| s.database == proc::database()),
        })
    };
    databases::list().into_iter().map(row).collect()
}
