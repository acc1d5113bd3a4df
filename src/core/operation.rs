//! One call on one key, from reading the row to its answer (rules 3 to 6 and 12).
//!
//! The caller does what [`Operation::next`] asks for and reports back; it is the same loop in the server, where reading a
//! row and sleeping are real, and in the model, where other processes may step in before each of them.

use crate::claim::{Ask, Change, Outcome, Seen};
use crate::lease::{Lease, Refusal};
use crate::table::{Id, Section};
use crate::time::Time;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Report the key's version counter: [`Operation::sampled`].
    Sample,
    /// Read the latest committed row: [`Operation::read`].
    Read,
    /// Call [`Operation::decide`] in a section.
    Decide,
    /// Sleep until woken or until then, and report [`Operation::awake`].
    Sleep {
        until: Time,
    },
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<O> {
    Granted(Change<O>),
    Refused(Refusal),
    Busy,
    Broken,
    Changed,
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase<O> {
    Enqueue,
    Sample,
    Read { version: u64 },
    Decide(Seen<O>),
    Sleep { until: Time },
    Done(Answer<O>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation<K, O> {
    ask: Ask<K, O>,
    pending: Option<Change<O>>,
    pub(crate) phase: Phase<O>,
}

impl<K: Id, O: Id> Operation<K, O> {
    /// `pending`: what the transaction already has pending on the key.
    pub fn new(ask: Ask<K, O>, pending: Option<Change<O>>) -> Operation<K, O> {
        let mut operation = Operation { ask, pending, phase: Phase::Enqueue };
        if !ask.is_queued() {
            operation.look();
        }
        operation
    }

    /// The transaction's own pending change is the state; else the row is.
    fn look(&mut self) {
        self.phase = match self.pending {
            Some(change) => Phase::Decide(Seen::Pending(change)),
            None => Phase::Sample,
        };
    }

    pub fn ask(&self) -> &Ask<K, O> {
        &self.ask
    }

    pub fn next(&self) -> Next {
        match self.phase {
            Phase::Sample => Next::Sample,
            Phase::Read { .. } => Next::Read,
            Phase::Enqueue | Phase::Decide(_) => Next::Decide,
            Phase::Sleep { until } => Next::Sleep { until },
            Phase::Done(_) => Next::Done,
        }
    }

    pub fn sampled(&mut self, version: u64) {
        debug_assert_eq!(self.phase, Phase::Sample);
        self.phase = Phase::Read { version };
    }

    /// `lease`: the latest committed row; `floor`: what to start from without one; `in_snapshot`: whether the
    /// transaction's snapshot shows the same.
    pub fn read(&mut self, lease: Option<Lease<O>>, floor: i64, in_snapshot: bool) {
        if let Phase::Read { version } = self.phase {
            self.phase = Phase::Decide(Seen::Row { lease, floor, version, in_snapshot });
        }
    }

    /// One section: joins the queue, or decides.
    pub fn decide(&mut self, section: &mut Section<'_, K, O>) {
        let seen = match self.phase {
            Phase::Enqueue => {
                if section.enqueue(self.ask.me, self.ask.request.owner(), &self.ask.key, self.ask.hash) {
                    self.look();
                    if self.phase == Phase::Sample {
                        self.sampled(section.version(self.ask.hash));
                    }
                } else {
                    self.phase = Phase::Done(Answer::Full);
                }
                return;
            }
            Phase::Decide(seen) => seen,
            _ => return,
        };
        self.phase = match section.operate(&self.ask, &seen) {
            Outcome::Again => match self.pending {
                Some(change) => Phase::Decide(Seen::Pending(change)),
                None => Phase::Read { version: section.version(self.ask.hash) },
            },
            Outcome::Wait { until } => Phase::Sleep { until },
            Outcome::Granted(change) => Phase::Done(Answer::Granted(change)),
            Outcome::Refused(refusal) => Phase::Done(Answer::Refused(refusal)),
            Outcome::Busy => Phase::Done(Answer::Busy),
            Outcome::Broken => Phase::Done(Answer::Broken),
            Outcome::Changed => Phase::Done(Answer::Changed),
            Outcome::Full => Phase::Done(Answer::Full),
        };
    }

    pub fn awake(&mut self) {
        self.look();
    }

    /// The answer, once [`Next::Done`].
    pub fn answer(&self) -> Option<Answer<O>> {
        match self.phase {
            Phase::Done(answer) => Some(answer),
            _ => None,
        }
    }
}
