//! What is counted per database, for lease.stats: plain atomic numbers in its slot, each written where it happens. Whoever
//! counts takes no lock, and two counts read one after the other need not agree.
//!
//! Changes are counted once they are committed, answers when they are given.

use super::databases;

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
    /// Calls and commits that had to sleep.
    Waits,
    /// Processes woken because something that they wait for has changed.
    WakeUps,
    /// Keys reserved for the head of their queue.
    HandOffs,
    /// Heads that let their turn pass.
    PassedOver,
    /// Sleeps that nobody and no timer of their own ended, but the safety tick.
    SafetyTicks,
    /// Those of them after which there was something to do: zero, unless a process is frozen.
    SafetyTicksThatHelped,
    /// Blocking acquires that ran out of time.
    Timeouts,
    /// Waits that ended because they closed a ring.
    Deadlocks,
    /// Waits that ended in another error: cancelled, statement_timeout, lock_timeout. Termination raises none.
    CancelledWaits,
    /// Uncommitted changes of another transaction that lost their key to a call.
    BrokenClaims,
    /// Transactions that failed at their commit because of a lease.
    CommitRefusals,
    /// Lapses written down by the sweeper.
    LapsesSwept,
    /// Lapses that a change of the key met before the sweeper did.
    LapsesFound,
    /// The sweeper's transactions, and the keys they looked at.
    SweepPasses,
    SweepRows,
    /// How often commits outran the sweeper, and how often it read the whole table.
    RingOverflows,
    Rescans,
}

impl Counter {
    /// With their names, in the order of lease.stats.
    pub const ALL: [(Counter, &'static str); 26] = [
        (Counter::Grants, "grants"),
        (Counter::Takeovers, "takeovers"),
        (Counter::Regrants, "regrants"),
        (Counter::Denials, "denials"),
        (Counter::Renewals, "renewals"),
        (Counter::Releases, "releases"),
        (Counter::NotOwner, "refused_not_owner"),
        (Counter::Lapsed, "refused_lapsed"),
        (Counter::EpochMismatch, "refused_epoch_mismatch"),
        (Counter::Waits, "waits"),
        (Counter::WakeUps, "wake_ups"),
        (Counter::HandOffs, "hand_offs"),
        (Counter::PassedOver, "passed_over"),
        (Counter::SafetyTicks, "safety_ticks"),
        (Counter::SafetyTicksThatHelped, "safety_ticks_that_helped"),
        (Counter::Timeouts, "timeouts"),
        (Counter::Deadlocks, "deadlocks"),
        (Counter::CancelledWaits, "cancelled_waits"),
        (Counter::BrokenClaims, "broken_claims"),
        (Counter::CommitRefusals, "commit_refusals"),
        (Counter::LapsesSwept, "lapses_swept"),
        (Counter::LapsesFound, "lapses_found"),
        (Counter::SweepPasses, "sweep_passes"),
        (Counter::SweepRows, "sweep_rows"),
        (Counter::RingOverflows, "ring_overflows"),
        (Counter::Rescans, "rescans"),
    ];
    pub const COUNT: usize = Counter::ALL.len();

    /// In this process's database. Raises nothing.
    pub fn add(self, n: u64) {
        if n > 0 {
            databases::with_mine(|slot| slot.count(self, n));
        }
    }
}
