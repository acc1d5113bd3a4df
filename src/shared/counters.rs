//! What is counted per database, for lease.stats: plain atomic numbers in its slot, each written where it happens.
//!
//! Changes are counted once they are committed, answers when they are given.

use super::databases;

/// In the order of lease.stats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Leases acquired.
    Grants,
    /// Of these: of a key whose last lease had lapsed.
    Takeovers,
    /// Of these: to the owner that held the lease.
    Regrants,
    /// Acquires that answered "not acquirable".
    Denials,
    Renewals,
    /// Live leases released, by their holder or by force.
    Releases,
    /// Renews and releases that were refused, by cause.
    NotOwner,
    Lapsed,
    EpochMismatch,
    /// Lapses written down by the sweeper.
    LapsesSwept,
    /// Lapses that a change of the key met before the sweeper did.
    LapsesFound,
    /// Sleeps of waiting sessions that somebody ended.
    WakeUps,
    /// Sleeps that ended by themselves although nothing was due.
    SafetyTicks,
    /// Waits that ended in 57014 `timeout`.
    Timeouts,
    /// Waits that ended in another error: cancelled, terminated, lock_timeout.
    CancelledWaits,
    /// Uncommitted changes of another transaction that lost their key to a call.
    BrokenClaims,
    /// Transactions that failed at their commit because of a lease.
    CommitRefusals,
    /// The sweeper's transactions, and the keys they looked at.
    SweepPasses,
    SweepRows,
    /// From a lease's expiry to its lapse being visible in the table, in microseconds: the latest, and the longest.
    SweepDelayLast,
    SweepDelayMax,
    /// How often commits outran the sweeper, and how often it read the whole table.
    RingOverflows,
    Rescans,
    /// Lease time since which all of this counts.
    Since,
}

impl Counter {
    pub const COUNT: usize = Counter::Since as usize + 1;
}

/// One more, in this process's database. Raises nothing.
pub fn count(counter: Counter) {
    add(counter, 1);
}

pub fn add(counter: Counter, n: u64) {
    databases::with_mine(|slot| slot.counter(counter).add(n));
}
