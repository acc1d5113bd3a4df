//! One call of guard: judges that an owner holds a key and makes the commit depend on it (rule 8).
//!
//! Driven like an [`crate::Operation`]; it never sleeps.

use crate::claim::{Change, Guard, GuardOutcome, Seen};
use crate::lease::{Lease, Status};
use crate::operation::Next;
use crate::table::{Id, Section, Tx};
use crate::time::Time;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardAnswer<K, O> {
    /// To be kept with [`crate::Transaction::add_guard`].
    Guarded { guard: Guard<K, O>, expires_at: Time },
    /// Never with `Status::Ok`.
    Refused(Status),
    /// The transaction's own claim on the key was broken.
    Broken,
    /// No room for another guard.
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase<K, O> {
    Sample,
    Read { version: u64 },
    Decide(Seen<O>),
    Done(GuardAnswer<K, O>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarding<K, O> {
    me: Tx,
    pub(crate) key: K,
    hash: u32,
    owner: O,
    epoch: i64,
    slot: Option<u32>,
    pub(crate) phase: Phase<K, O>,
}

impl<K: Id, O: Id> Guarding<K, O> {
    /// `pending`: what the transaction already has pending on the key.
    pub fn new(me: Tx, key: K, hash: u32, owner: O, epoch: i64, pending: Option<Change<O>>) -> Guarding<K, O> {
        let phase = pending.map_or(Phase::Sample, |change| Phase::Decide(Seen::Pending(change)));
        Guarding { me, key, hash, owner, epoch, slot: None, phase }
    }

    /// The transaction has guarded the same already, and has that place for it.
    pub fn again(self, slot: u32) -> Guarding<K, O> {
        Guarding { slot: Some(slot), ..self }
    }

    pub fn next(&self) -> Next {
        match self.phase {
            Phase::Sample => Next::Sample,
            Phase::Read { .. } => Next::Read,
            Phase::Decide(_) => Next::Decide,
            Phase::Done(_) => Next::Done,
        }
    }

    pub fn sampled(&mut self, version: u64) {
        self.phase = Phase::Read { version };
    }

    /// `lease`: the latest committed row.
    pub fn read(&mut self, lease: Option<Lease<O>>) {
        if let Phase::Read { version } = self.phase {
            self.phase = Phase::Decide(Seen::Row { lease, floor: 0, version, in_snapshot: true });
        }
    }

    /// One section.
    pub fn decide(&mut self, section: &mut Section<'_, K, O>) {
        let Phase::Decide(seen) = self.phase else { return };
        let Guarding { me, key, hash, owner, epoch, slot, .. } = *self;
        self.phase = match section.guard(me, (&key, hash), (owner, epoch), &seen, slot) {
            GuardOutcome::Again => Phase::Read { version: section.version(hash) },
            GuardOutcome::Reserved { slot, expires_at } => {
                let own = match seen {
                    Seen::Pending(change) => Some((change.serial, expires_at)),
                    Seen::Row { .. } => None,
                };
                let guard = Guard { key, hash, owner, epoch, slot, own };
                Phase::Done(GuardAnswer::Guarded { guard, expires_at })
            }
            GuardOutcome::Refused(status) => Phase::Done(GuardAnswer::Refused(status)),
            GuardOutcome::Broken => Phase::Done(GuardAnswer::Broken),
            GuardOutcome::Full => Phase::Done(GuardAnswer::Full),
        };
    }

    /// The answer, once [`Next::Done`].
    pub fn answer(&self) -> Option<GuardAnswer<K, O>> {
        match self.phase {
            Phase::Done(answer) => Some(answer),
            _ => None,
        }
    }
}
