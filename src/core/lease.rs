//! The lease row and what each request makes of it.
//!
//! `decide` is the whole contract of the operations: state x request x instant -> refusal or change. It runs inside the
//! claims section, so the instant is not older than any decision made before it (rule 1).

use crate::time::{At, Time};

/// What the row says. A `Held` row past its expiry is lapsed to everyone, swept or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Free,
    Held,
    Lapsed,
}

/// One key's row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lease<O> {
    pub state: State,
    pub epoch: i64,
    /// The holder; of a lapsed lease the last holder, who may still ask to renew; none once released.
    pub owner: Option<O>,
    /// Of the last grant or renewal, in microseconds.
    pub ttl: i64,
    pub granted_at: Time,
    pub renewed_at: Time,
    /// While held, the end of the lease; otherwise since when nobody owns the key.
    pub expires_at: Time,
    /// The server start that the times belong to.
    pub clock_base: Time,
}

impl<O: Copy + Eq> Lease<O> {
    /// When the lease ends, seen from this server start.
    ///
    /// A grant that lies ahead of this start was made before the wall clock was set back: it counts from the start, so no
    /// lease outlives one ttl after a restart.
    pub fn expiry(&self, at: At) -> Time {
        if self.clock_base != at.start && self.expires_at.minus(self.ttl) > at.start {
            at.start.plus(self.ttl)
        } else {
            self.expires_at
        }
    }

    /// The state as of now.
    pub fn state(&self, at: At) -> State {
        match self.state {
            State::Held if self.expiry(at) <= at.now => State::Lapsed,
            state => state,
        }
    }

    pub fn is_live(&self, at: At) -> bool {
        self.state(at) == State::Held
    }

    /// From when on an acquire by anybody can be granted.
    pub fn acquirable_from(&self, at: At) -> Time {
        match self.state {
            State::Held => self.expiry(at),
            State::Free | State::Lapsed => Time::PAST,
        }
    }
}

/// How renew, release and guard answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    Ok,
    NotOwner,
    Lapsed,
    EpochMismatch,
}

/// Judges a caller that says it holds the lease, in the contract's order: holder, lapse, epoch.
pub fn holds<O: Copy + Eq>(lease: Option<&Lease<O>>, owner: O, epoch: i64, at: At) -> Status {
    match lease {
        Some(lease) if lease.owner == Some(owner) => match lease.state(at) {
            State::Held if lease.epoch == epoch => Status::Ok,
            State::Held => Status::EpochMismatch,
            State::Lapsed => Status::Lapsed,
            State::Free => Status::NotOwner,
        },
        _ => Status::NotOwner,
    }
}

/// What is asked of one key. Times and idle are in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request<O> {
    Acquire {
        owner: O,
        ttl: i64,
    },
    Renew {
        owner: O,
        epoch: i64,
        ttl: i64,
    },
    Release {
        owner: O,
        epoch: i64,
    },
    ForceRelease,
    /// Write down that the lease is over.
    Lapse,
    /// Delete the row of a key unowned for that long.
    Purge {
        idle: i64,
    },
}

impl<O: Copy> Request<O> {
    /// On whose behalf it is made.
    pub fn owner(&self) -> Option<O> {
        match *self {
            Request::Acquire { owner, .. } | Request::Renew { owner, .. } | Request::Release { owner, .. } => {
                Some(owner)
            }
            Request::ForceRelease | Request::Lapse | Request::Purge { .. } => None,
        }
    }
}

/// What a pending change does to its key, and so what its claim keeps others from (rule 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Another epoch or owner: acquire, release, force_release of a live lease.
    Transition,
    /// A later or earlier end of the same term.
    Renewal,
    /// Nobody's term: lapse, purge, force_release of an unowned key. Has no deadline and gives way to everybody.
    Maintenance,
    /// No change: the key is kept for the head of its queue.
    HandOff,
}

/// Why nothing is changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// acquire: another owner holds the lease, or another transaction the key, until then as far as known.
    NotAcquirable { until: Time },
    /// renew, release.
    Status(Status),
    /// lapse, purge, force_release: there is nothing to do.
    NotDue,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict<O> {
    Refused(Refusal),
    /// The row as it will be (`None`: deleted), and until when the change may commit.
    Change {
        lease: Option<Lease<O>>,
        kind: Kind,
        deadline: Time,
    },
}

/// Decides a request on the state `lease` (`None`: no row, then `floor` is the epoch to start from).
///
/// `issued` is the highest epoch told under the claim that stands on the key, 0 if none.
pub fn decide<O: Copy + Eq>(
    lease: Option<&Lease<O>>,
    floor: i64,
    issued: i64,
    request: &Request<O>,
    at: At,
) -> Verdict<O> {
    let next_epoch = lease.map_or(floor, |l| l.epoch).max(issued) + 1;
    let live = lease.filter(|l| l.is_live(at));
    match *request {
        Request::Acquire { owner, ttl } => match live {
            Some(l) if l.owner != Some(owner) => Verdict::Refused(Refusal::NotAcquirable { until: l.expiry(at) }),
            _ => {
                let expires_at = at.now.plus(ttl);
                let lease = Lease {
                    state: State::Held,
                    epoch: next_epoch,
                    owner: Some(owner),
                    ttl,
                    granted_at: at.now,
                    renewed_at: at.now,
                    expires_at,
                    clock_base: at.start,
                };
                Verdict::Change { lease: Some(lease), kind: Kind::Transition, deadline: expires_at }
            }
        },
        Request::Renew { owner, epoch, ttl } => match (holds(lease, owner, epoch, at), live) {
            (Status::Ok, Some(l)) => {
                let expires_at = at.now.plus(ttl);
                let lease = Lease { ttl, renewed_at: at.now, expires_at, clock_base: at.start, ..*l };
                Verdict::Change { lease: Some(lease), kind: Kind::Renewal, deadline: expires_at }
            }
            (status, _) => Verdict::Refused(Refusal::Status(status)),
        },
        Request::Release { owner, epoch } => match (holds(lease, owner, epoch, at), live) {
            (Status::Ok, Some(l)) => Verdict::Change {
                lease: Some(freed(l, next_epoch, at)),
                kind: Kind::Transition,
                deadline: l.expiry(at),
            },
            (status, _) => Verdict::Refused(Refusal::Status(status)),
        },
        Request::ForceRelease => match (lease, live) {
            (_, Some(l)) => Verdict::Change {
                lease: Some(freed(l, next_epoch, at)),
                kind: Kind::Transition,
                deadline: l.expiry(at),
            },
            (Some(l), None) => Verdict::Change {
                lease: Some(freed(l, next_epoch, at)),
                kind: Kind::Maintenance,
                deadline: Time::NEVER,
            },
            (None, None) => Verdict::Refused(Refusal::NotDue),
        },
        Request::Lapse => match lease {
            Some(l) if l.state == State::Held && live.is_none() => {
                let lapsed = Lease { state: State::Lapsed, expires_at: l.expiry(at), clock_base: at.start, ..*l };
                Verdict::Change { lease: Some(lapsed), kind: Kind::Maintenance, deadline: Time::NEVER }
            }
            _ => Verdict::Refused(Refusal::NotDue),
        },
        Request::Purge { idle } => match lease {
            Some(l) if live.is_none() && l.expiry(at).plus(idle) <= at.now => {
                Verdict::Change { lease: None, kind: Kind::Maintenance, deadline: Time::NEVER }
            }
            _ => Verdict::Refused(Refusal::NotDue),
        },
    }
}

fn freed<O: Copy>(lease: &Lease<O>, epoch: i64, at: At) -> Lease<O> {
    Lease { state: State::Free, epoch, owner: None, expires_at: at.now, clock_base: at.start, ..*lease }
}
