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
    /// acquire, renew: the lease would end at an instant that PostgreSQL cannot show.
    OutOfRange,
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
    let in_range = |ttl| at.now.plus(ttl) < Time::LIMIT;
    match *request {
        Request::Acquire { owner, ttl } => match live {
            Some(l) if l.owner != Some(owner) => Verdict::Refused(Refusal::NotAcquirable { until: l.expiry(at) }),
            _ if !in_range(ttl) => Verdict::Refused(Refusal::OutOfRange),
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
            (Status::Ok, Some(_)) if !in_range(ttl) => Verdict::Refused(Refusal::OutOfRange),
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

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time(1000);
    const EXPIRY: Time = Time(2000);
    const TTL: i64 = 500;

    fn row(state: State) -> Lease<char> {
        Lease {
            state,
            epoch: 7,
            owner: (state != State::Free).then_some('A'),
            ttl: TTL,
            granted_at: Time(1400),
            renewed_at: Time(1500),
            expires_at: EXPIRY,
            clock_base: START,
        }
    }

    fn at(now: i64) -> At {
        At { now: Time(now), start: START }
    }

    /// One letter: g granted, d denied, o ok, n not_owner, l lapsed, e epoch_mismatch, m maintenance, r out of range, -
    /// nothing to do.
    fn letter(verdict: &Verdict<char>) -> char {
        match verdict {
            Verdict::Change { kind: Kind::Transition, lease: Some(l), .. } if l.state == State::Held => 'g',
            Verdict::Change { kind: Kind::Transition | Kind::Renewal, .. } => 'o',
            Verdict::Change { .. } => 'm',
            Verdict::Refused(Refusal::NotAcquirable { .. }) => 'd',
            Verdict::Refused(Refusal::Status(Status::NotOwner)) => 'n',
            Verdict::Refused(Refusal::Status(Status::Lapsed)) => 'l',
            Verdict::Refused(Refusal::Status(Status::EpochMismatch)) => 'e',
            Verdict::Refused(Refusal::Status(Status::Ok)) => panic!("refused with ok"),
            Verdict::Refused(Refusal::OutOfRange) => 'r',
            Verdict::Refused(Refusal::NotDue) => '-',
        }
    }

    /// Every state, at every instant that matters, with every request: the contract's sections 4 and 7 (I1, I3, I10).
    #[test]
    fn every_state_request_and_instant() {
        let renew = |owner, epoch| Request::Renew { owner, epoch, ttl: TTL };
        let release = |owner, epoch| Request::Release { owner, epoch };
        let requests = [
            Request::Acquire { owner: 'A', ttl: TTL },
            Request::Acquire { owner: 'B', ttl: TTL },
            renew('A', 7),
            renew('A', 6),
            renew('A', 8),
            renew('B', 7),
            release('A', 7),
            release('A', 6),
            release('A', 8),
            release('B', 7),
            Request::ForceRelease,
            Request::Lapse,
            Request::Purge { idle: 0 },
            Request::Purge { idle: 1 },
        ];
        let none: Option<Lease<char>> = None;
        let states = [
            // state, instant                          acquire A B, renew 7 6 8 B, release 7 6 8 B, force, lapse, purge 0 1
            (none, 2000, "gg nnnn nnnn - - --"),
            (Some(row(State::Free)), 1999, "gg nnnn nnnn m - --"),
            (Some(row(State::Free)), 2000, "gg nnnn nnnn m - m-"),
            (Some(row(State::Free)), 2001, "gg nnnn nnnn m - mm"),
            (Some(row(State::Held)), 1999, "gd oeen oeen o - --"),
            (Some(row(State::Held)), 2000, "gg llln llln m m m-"),
            (Some(row(State::Held)), 2001, "gg llln llln m m mm"),
            (Some(row(State::Lapsed)), 2000, "gg llln llln m - m-"),
            (Some(row(State::Lapsed)), 2001, "gg llln llln m - mm"),
        ];
        for (lease, now, expected) in states {
            let answers: String =
                requests.iter().map(|request| letter(&decide(lease.as_ref(), 3, 0, request, at(now)))).collect();
            assert_eq!(answers, expected.replace(' ', ""), "{:?} at {now}", lease.map(|l| l.state));
        }
    }

    /// No lease ends where PostgreSQL's timestamps do: not even when the instant of the decision is the last before it.
    #[test]
    fn a_lease_ends_before_timestamps_do() {
        let held = Lease { expires_at: Time::LIMIT.minus(1), ..row(State::Held) };
        let limit = Time::LIMIT.0;
        for (now, ttl, expected) in
            [(2000, limit - 2000, "rdr"), (1999, limit - 2000, "gdo"), (limit - 2, 2, "rdr"), (limit - 2, 1, "gdo")]
        {
            let asked = |lease: Option<&Lease<char>>, request| letter(&decide(lease, 0, 0, &request, at(now)));
            let answers = [
                asked(None, Request::Acquire { owner: 'B', ttl }),
                asked(Some(&held), Request::Acquire { owner: 'B', ttl }),
                asked(Some(&held), Request::Renew { owner: 'A', epoch: 7, ttl }),
            ];
            assert_eq!(String::from_iter(answers), expected, "{ttl} at {now}");
        }
    }

    fn change(lease: Option<Lease<char>>, floor: i64, issued: i64, request: Request<char>, now: i64) -> Lease<char> {
        match decide(lease.as_ref(), floor, issued, &request, at(now)) {
            Verdict::Change { lease: Some(lease), .. } => lease,
            verdict => panic!("{verdict:?}"),
        }
    }

    /// I2: above the row, else the floor, and above what was told under the claim that stands.
    #[test]
    fn a_grant_is_above_row_floor_and_what_was_told() {
        let acquire = Request::Acquire { owner: 'B', ttl: 30 };
        assert_eq!(change(None, 0, 0, acquire, 2000).epoch, 1);
        assert_eq!(change(None, 41, 0, acquire, 2000).epoch, 42);
        assert_eq!(change(None, 41, 50, acquire, 2000).epoch, 51);
        // a row counts from itself, whatever the floor: the floor is about rows that are gone
        assert_eq!(change(Some(row(State::Free)), 41, 0, acquire, 2000).epoch, 8);
        assert_eq!(change(Some(row(State::Held)), 0, 9, acquire, 2000).epoch, 10);
    }

    #[test]
    fn acquire_begins_a_term_now() {
        let expected = Lease {
            state: State::Held,
            epoch: 8,
            owner: Some('B'),
            ttl: 30,
            granted_at: Time(2000),
            renewed_at: Time(2000),
            expires_at: Time(2030),
            clock_base: START,
        };
        assert_eq!(change(Some(row(State::Held)), 0, 0, Request::Acquire { owner: 'B', ttl: 30 }, 2000), expected);
        // by the holder itself: a new term with a new epoch (4.1)
        let again = change(Some(row(State::Held)), 0, 0, Request::Acquire { owner: 'A', ttl: 30 }, 1600);
        assert_eq!((again.epoch, again.granted_at, again.expires_at), (8, Time(1600), Time(1630)));
    }

    /// I8.
    #[test]
    fn renew_moves_the_end_and_nothing_else() {
        let renewed = change(Some(row(State::Held)), 0, 99, Request::Renew { owner: 'A', epoch: 7, ttl: 30 }, 1600);
        let expected = Lease { ttl: 30, renewed_at: Time(1600), expires_at: Time(1630), ..row(State::Held) };
        assert_eq!(renewed, expected);
    }

    #[test]
    fn release_and_force_release_free_the_key_under_a_new_epoch() {
        let freed =
            |epoch, now| Lease { state: State::Free, epoch, owner: None, expires_at: Time(now), ..row(State::Held) };
        assert_eq!(
            change(Some(row(State::Held)), 0, 0, Request::Release { owner: 'A', epoch: 7 }, 1600),
            freed(8, 1600)
        );
        assert_eq!(change(Some(row(State::Held)), 0, 9, Request::ForceRelease, 1600), freed(10, 1600));
        assert_eq!(change(Some(row(State::Lapsed)), 0, 0, Request::ForceRelease, 3000), freed(8, 3000));
    }

    #[test]
    fn a_lapse_keeps_epoch_and_former_owner() {
        let lapsed = change(Some(row(State::Held)), 0, 99, Request::Lapse, 5000);
        assert_eq!(lapsed, Lease { state: State::Lapsed, ..row(State::Held) });
    }

    /// Rule 6.
    #[test]
    fn a_change_has_until_the_end_of_the_lease_to_commit() {
        let deadline = |request| match decide(Some(&row(State::Held)), 0, 0, &request, at(1600)) {
            Verdict::Change { deadline, .. } => deadline,
            verdict => panic!("{verdict:?}"),
        };
        assert_eq!(deadline(Request::Acquire { owner: 'A', ttl: 30 }), Time(1630));
        assert_eq!(deadline(Request::Renew { owner: 'A', epoch: 7, ttl: 30 }), Time(1630));
        assert_eq!(deadline(Request::Release { owner: 'A', epoch: 7 }), EXPIRY);
        assert_eq!(deadline(Request::ForceRelease), EXPIRY);
        for request in [Request::Lapse, Request::Purge { idle: 0 }, Request::ForceRelease] {
            let verdict = decide(Some(&row(State::Held)), 0, 0, &request, at(2000));
            assert!(
                matches!(verdict, Verdict::Change { kind: Kind::Maintenance, deadline: Time::NEVER, .. }),
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn a_denial_tells_until_when() {
        let verdict = decide(Some(&row(State::Held)), 0, 0, &Request::Acquire { owner: 'B', ttl: 30 }, at(1600));
        assert_eq!(verdict, Verdict::Refused(Refusal::NotAcquirable { until: EXPIRY }));
    }

    /// The order of the checks: holder, lapse, epoch (7).
    #[test]
    fn holds_checks_holder_then_lapse_then_epoch() {
        let held = row(State::Held);
        for (lease, owner, epoch, now, status) in [
            (None, 'A', 7, 1600, Status::NotOwner),
            (Some(&held), 'B', 6, 3000, Status::NotOwner),
            (Some(&held), 'A', 6, 3000, Status::Lapsed),
            (Some(&held), 'A', 6, 1600, Status::EpochMismatch),
            (Some(&held), 'A', 7, 1999, Status::Ok),
            (Some(&held), 'A', 7, 2000, Status::Lapsed),
            (Some(&row(State::Lapsed)), 'A', 7, 1600, Status::Lapsed),
            (Some(&row(State::Free)), 'A', 7, 1600, Status::NotOwner),
        ] {
            assert_eq!(holds(lease, owner, epoch, at(now)), status, "{lease:?} {owner} {epoch} {now}");
        }
    }

    /// D3, R1: what ran out while the server was down is over; a row of another start counts by its own times.
    #[test]
    fn a_restart_does_not_prolong_a_lease() {
        let now = At { now: Time(2000), start: Time(1800) };
        assert_eq!(row(State::Held).state(now), State::Lapsed);
        assert_eq!(row(State::Held).expiry(now), EXPIRY);
    }

    /// The wall clock was set back between two starts: the grant lies ahead of this start.
    #[test]
    fn a_clock_set_back_costs_one_ttl_at_most() {
        let earlier = At { now: Time(100), start: Time(90) };
        assert_eq!(row(State::Held).expiry(earlier), Time(90 + TTL));
        assert!(row(State::Held).is_live(At { now: Time(90 + TTL - 1), ..earlier }));
        assert!(!row(State::Held).is_live(At { now: Time(90 + TTL), ..earlier }));
        // granted exactly at this start: not ahead of it
        let start = EXPIRY.minus(TTL);
        assert_eq!(row(State::Held).expiry(At { now: start, start }), EXPIRY);
        // in recovery, times are taken as they are
        assert_eq!(row(State::Held).expiry(At { now: Time(100), start: Time::NEVER }), EXPIRY);
    }

    #[test]
    fn what_is_written_belongs_to_this_start() {
        let at = At { now: Time(90 + TTL), start: Time(90) };
        let Verdict::Change { lease: Some(lapsed), .. } = decide(Some(&row(State::Held)), 0, 0, &Request::Lapse, at)
        else {
            panic!("not lapsed");
        };
        // the end that was judged, so that an idle time counts from it
        assert_eq!((lapsed.clock_base, lapsed.expires_at), (Time(90), Time(90 + TTL)));
        let live = At { now: Time(91), start: Time(90) };
        let renew = Request::Renew { owner: 'A', epoch: 7, ttl: 30 };
        let Verdict::Change { lease: Some(renewed), .. } = decide(Some(&row(State::Held)), 0, 0, &renew, live) else {
            panic!("not renewed");
        };
        assert_eq!((renewed.clock_base, renewed.expires_at), (Time(90), Time(121)));
    }

    #[test]
    fn acquirable_by_anybody_once_the_lease_is_over() {
        assert_eq!(row(State::Held).acquirable_from(at(1600)), EXPIRY);
        assert_eq!(row(State::Lapsed).acquirable_from(at(1600)), Time::PAST);
        assert_eq!(row(State::Free).acquirable_from(at(1600)), Time::PAST);
    }
}
