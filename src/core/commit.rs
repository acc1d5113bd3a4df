//! One commit, from its seal to the point where its rows may be written (rules 9 and 10).
//!
//! The caller does what [`Commit::next`] asks for and reports back, as for an [`crate::Operation`].

use std::collections::TryReserveError;

use crate::claim::{Guard, Sealing, Stake};
use crate::lease::{Lease, Status, holds};
use crate::rules::{Rule, rule};
use crate::table::{Id, Section, Tx};
use crate::time::{At, Time};
use crate::transaction::Transaction;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitStep<K> {
    /// Call [`Commit::seal`] in a section.
    Seal,
    /// Sleep until woken or until then, and report [`Commit::awake`].
    Sleep {
        until: Time,
    },
    /// Read the latest committed row of that key anew: [`Commit::checked`].
    Check(K),
    /// Everything is sealed and checked: write the rows.
    Write,
    Failed(Failure<K>),
}

/// Why a transaction cannot commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure<K> {
    /// The claim on that key was broken, or its deadline has passed.
    Broken(K),
    /// Epochs were advanced since that key was claimed.
    Stale(K),
    /// What a guard demands is not so (never with `Status::Ok`).
    Guard(K, Status),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase<K> {
    Seal,
    Sleep {
        until: Time,
    },
    /// The next guard to check, and the instant of the seal.
    Check {
        next: usize,
        sealed: At,
    },
    Failed(Failure<K>),
}

fn collected<T>(items: impl Iterator<Item = T>) -> Result<Vec<T>, TryReserveError> {
    let mut all = Vec::new();
    for item in items {
        all.try_reserve(1)?;
        all.push(item);
    }
    Ok(all)
}

#[derive(Clone, Debug)]
pub struct Commit<K, O> {
    me: Tx,
    stakes: Vec<Stake<K>>,
    pub(crate) guards: Vec<Guard<K, O>>,
    /// For each guard, what the transaction itself makes of the key.
    own: Vec<Option<Lease<O>>>,
    pub(crate) phase: Phase<K>,
}

impl<K: Id, O: Id> Commit<K, O> {
    /// Fails where there is no memory for it.
    pub fn new<X>(me: Tx, changes: &Transaction<K, O, X>) -> Result<Commit<K, O>, TryReserveError> {
        let guards: Vec<Guard<K, O>> = collected(changes.guards())?;
        let own = collected(guards.iter().map(|g| changes.pending(&g.key).and_then(|p| p.change.lease)))?;
        Ok(Commit { me, stakes: collected(changes.stakes())?, guards, own, phase: Phase::Seal })
    }

    pub fn next(&self) -> CommitStep<K> {
        match self.phase {
            Phase::Seal => CommitStep::Seal,
            Phase::Sleep { until } => CommitStep::Sleep { until },
            Phase::Check { next, .. } => match self.guards.get(next).filter(|_| rule(Rule::GuardsAnew)) {
                Some(guard) => CommitStep::Check(guard.key),
                None => CommitStep::Write,
            },
            Phase::Failed(failure) => CommitStep::Failed(failure),
        }
    }

    /// One section: everything is sealed, or nothing.
    pub fn seal(&mut self, section: &mut Section<'_, K, O>) {
        self.phase = match section.seal(self.me, &self.stakes, &self.guards) {
            Sealing::Sealed => Phase::Check { next: 0, sealed: section.at },
            Sealing::Wait { until } => Phase::Sleep { until },
            Sealing::Broken(key) => Phase::Failed(Failure::Broken(key)),
            Sealing::Stale(key) => Phase::Failed(Failure::Stale(key)),
        };
    }

    pub fn awake(&mut self) {
        self.phase = Phase::Seal;
    }

    /// Seals again without that key's change, which the caller then does not write.
    pub fn leave_out(&mut self, key: &K) {
        self.stakes.retain(|s| s.key != *key);
        self.phase = Phase::Seal;
    }

    /// Judges one guard by a row read after the seal. No takeover can become visible any more, so what the row says now it
    /// said at the seal; a grant or renewal of the transaction's own does as well, since its claim is sealed with it.
    pub fn checked(&mut self, row: Option<&Lease<O>>) {
        let Phase::Check { next, sealed } = self.phase else { return };
        let Some(guard) = self.guards.get(next) else { return };
        let own = guard.own.is_some_and(|(serial, until)| {
            sealed.now < until && self.stakes.iter().any(|s| s.key == guard.key && s.serial == serial)
        });
        let held = self.own.get(next).copied().flatten();
        let own = own || holds(held.as_ref(), guard.owner, guard.epoch, sealed) == Status::Ok;
        let status = if own { Status::Ok } else { holds(row, guard.owner, guard.epoch, sealed) };
        self.phase = match status {
            Status::Ok => Phase::Check { next: next + 1, sealed },
            status => Phase::Failed(Failure::Guard(guard.key, status)),
        };
    }
}
