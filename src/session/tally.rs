//! The statistics: what a commit adds to the counters, and tells the sweeper, and what is shown of both.
//!
//! `committed` is called by the commit callback, in whatever process has committed, once the change is visible and its claims
//! are ended: nothing in it can raise. Counters are atomics without a lock; the sweeper is told under the feed lock. The views
//! read the counters as they are, and who sweeps what under the databases lock.

use lease_core::{At, Lease, Name, State, Time};

use super::lapse;
use crate::pg::{Result, proc, worker};
use crate::shared::Counter;
use crate::shared::databases::{self, Stats, Status};
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
            Counter::Renewals.add(1);
            return;
        }
        State::Held => {
            Counter::Grants.add(1);
            match before {
                Some((State::Lapsed, _)) => Counter::Takeovers.add(1),
                Some((State::Held, _)) => Counter::Regrants.add(1),
                _ => (),
            }
        }
        State::Free if matches!(before, Some((State::Held, _))) => Counter::Releases.add(1),
        _ => (),
    }
    if let Some((State::Lapsed, base)) = before
        && base.state == State::Held
    {
        Counter::LapsesFound.add(1);
        lapse::log_quietly(&key.name, base);
    }
}

pub const COUNTERS: usize = Counter::COUNT;

/// Of this database; `None`: nothing is counted in it.
pub fn stats() -> Option<Stats> {
    databases::stats()
}

pub fn reset_stats() {
    databases::reset_stats(shared::at().now);
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
