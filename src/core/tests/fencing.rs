//! Guards and force_release, driven step by step as a session drives them.

use std::cell::RefCell;
use std::collections::HashMap;

use lease_core::*;

type Key = u8;
type Owner = char;

const START: Time = Time(1_000_000_000);
const SECOND: i64 = 1_000_000;

/// A server: shared memory, the committed rows, who runs, what time it is.
struct Server {
    storage: Storage<Key, Owner>,
    rows: HashMap<Key, Lease<Owner>>,
    running: RefCell<Vec<Tx>>,
    now: Time,
}

/// One transaction.
struct Session {
    me: Tx,
    changes: Transaction<Key, Owner, ()>,
    level: u32,
}

impl Server {
    fn new() -> Server {
        Server { storage: Storage::new(16, 8, 4, 8), rows: HashMap::new(), running: RefCell::default(), now: START }
    }

    fn begin(&mut self, proc: u32) -> Session {
        let me = Tx { proc, incarnation: 1, lxid: self.running.borrow().len() as u32 + 1 };
        self.running.borrow_mut().push(me);
        Session { me, changes: Transaction::default(), level: 1 }
    }

    fn section<R>(&mut self, f: impl FnOnce(&mut Section<'_, Key, Owner>) -> R) -> R {
        let running = &self.running;
        let runs = |tx| running.borrow().contains(&tx);
        let at = At { now: self.now, start: START };
        self.storage.section(at, &runs, &mut Wakes::with_capacity(8), f)
    }

    fn version(&mut self, key: Key) -> u64 {
        self.section(|section| section.version(hash(key)))
    }

    /// The answer, or nothing: it has to sleep.
    fn ask(&mut self, session: &mut Session, key: Key, request: Request<Owner>) -> Option<Answer<Owner>> {
        let ask = Ask { me: session.me, key, hash: hash(key), request, wait: Wait::Brief(self.now), room: true };
        let mut operation = Operation::new(ask, session.changes.pending(&key).map(|p| p.change));
        let mut base = None;
        loop {
            match operation.next() {
                Next::Sample => operation.sampled(self.version(key)),
                Next::Read => {
                    base = self.rows.get(&key).copied();
                    operation.read(base, 0, true);
                }
                Next::Decide => self.section(|section| operation.decide(section)),
                Next::Sleep { .. } => {
                    self.section(|section| section.leave(session.me));
                    return None;
                }
                Next::Done => break,
            }
        }
        let answer = operation.answer().unwrap();
        if let Answer::Granted(change) = answer {
            session.changes.record(session.level, key, hash(key), base, change, ());
        }
        Some(answer)
    }

    fn guard(&mut self, session: &mut Session, key: Key, owner: Owner, epoch: i64) -> GuardAnswer<Key, Owner> {
        let pending = session.changes.pending(&key).map(|p| p.change);
        let mut guarding = Guarding::new(session.me, key, hash(key), owner, epoch, pending);
        if let Some(same) = session.changes.same_guard(&key, owner, epoch) {
            guarding = guarding.again(same.slot);
        }
        loop {
            match guarding.next() {
                Next::Sample => guarding.sampled(self.version(key)),
                Next::Read => guarding.read(self.rows.get(&key).copied()),
                Next::Decide => self.section(|section| guarding.decide(section)),
                _ => break,
            }
        }
        let answer = guarding.answer().unwrap();
        if let GuardAnswer::Guarded { guard, .. } = answer {
            session.changes.add_guard(session.level, guard);
        }
        answer
    }

    /// Up to the point where the rows may be written.
    fn seal(&mut self, session: &Session) -> CommitStep<Key> {
        self.seal_without(session, &[])
    }

    fn seal_without(&mut self, session: &Session, left_out: &[Key]) -> CommitStep<Key> {
        let mut commit = Commit::new(session.me, &session.changes);
        left_out.iter().for_each(|key| commit.leave_out(key));
        loop {
            match commit.next() {
                CommitStep::Seal => self.section(|section| commit.seal(section)),
                CommitStep::Check(key) => commit.checked(self.rows.get(&key)),
                step => return step,
            }
        }
    }

    /// From the seal on until others can see it.
    fn become_visible(&mut self, session: &Session) {
        for (key, _, pending) in session.changes.changes() {
            match pending.change.lease {
                Some(lease) => self.rows.insert(*key, lease),
                None => self.rows.remove(key),
            };
        }
        self.running.borrow_mut().retain(|tx| *tx != session.me);
    }

    fn finish(&mut self, session: Session) {
        self.running.borrow_mut().retain(|tx| *tx != session.me);
        let guards: Vec<_> = session.changes.guards().collect();
        self.section(|section| {
            let at = section.at;
            section.finish(session.me, session.changes.outcomes(true, at), &guards);
        });
    }

    fn commit(&mut self, session: Session) {
        assert_eq!(self.seal(&session), CommitStep::Write);
        self.become_visible(&session);
        self.finish(session);
    }

    /// Has `owner` hold the key, committed.
    fn hold(&mut self, key: Key, owner: Owner, ttl: i64) {
        let mut session = self.begin(7);
        assert!(matches!(self.ask(&mut session, key, Request::Acquire { owner, ttl }), Some(Answer::Granted(_))));
        self.commit(session);
    }

    fn guards_in_use(&mut self) -> usize {
        self.storage.guards.iter().filter(|g| g.tx != Tx::default()).count()
    }
}

fn hash(key: Key) -> u32 {
    key.into()
}

fn is_guarded(answer: GuardAnswer<Key, Owner>) -> bool {
    matches!(answer, GuardAnswer::Guarded { .. })
}

/// I3. A renewal that is visible, but whose backend has not ended its claim yet, can have hidden the row from a reader who
/// began before: a refusal must not be made of that.
#[test]
fn a_row_missed_beside_a_renewal_is_read_again() {
    let mut server = Server::new();
    server.hold(1, 'a', SECOND);
    let mut renewer = server.begin(1);
    let renew = Request::Renew { owner: 'a', epoch: 1, ttl: 2 * SECOND };
    assert!(matches!(server.ask(&mut renewer, 1, renew), Some(Answer::Granted(_))));
    assert_eq!(server.seal(&renewer), CommitStep::Write);

    let me = server.begin(2).me;
    let mut guarding = Guarding::new(me, 1, hash(1), 'a', 1, None);
    guarding.sampled(server.version(1));
    server.become_visible(&renewer);
    guarding.read(None);
    server.section(|section| guarding.decide(section));
    assert_eq!(guarding.next(), Next::Read);
    guarding.read(server.rows.get(&1).copied());
    server.section(|section| guarding.decide(section));
    assert!(is_guarded(guarding.answer().unwrap()));
}

/// I5. A key that was never held has no row to free, but an open transaction can have claimed it, for as long as its ttl.
#[test]
fn force_release_ends_the_claim_on_a_key_never_held() {
    let mut server = Server::new();
    let mut idle = server.begin(1);
    let acquire = |owner| Request::Acquire { owner, ttl: 1000 * SECOND };
    assert!(matches!(server.ask(&mut idle, 1, acquire('a')), Some(Answer::Granted(_))));

    let mut dba = server.begin(2);
    assert_eq!(server.ask(&mut dba, 1, Request::ForceRelease), Some(Answer::Refused(Refusal::NotDue)));
    assert_eq!(server.seal(&idle), CommitStep::Failed(Failure::Broken(1)));
    server.hold(1, 'b', SECOND);
}

#[test]
fn force_release_waits_for_a_sealed_claim_on_a_key_never_held() {
    let mut server = Server::new();
    let mut committing = server.begin(1);
    server.ask(&mut committing, 1, Request::Acquire { owner: 'a', ttl: SECOND });
    assert_eq!(server.seal(&committing), CommitStep::Write);
    let mut dba = server.begin(2);
    assert_eq!(server.ask(&mut dba, 1, Request::ForceRelease), None);
    server.become_visible(&committing);
    assert!(matches!(server.ask(&mut dba, 1, Request::ForceRelease), Some(Answer::Granted(_))));
}

/// I3 (P3). The lease ends while a guard on it is sealed: nothing that says so may become visible before the guard does.
#[test]
fn maintenance_waits_for_a_sealed_guard() {
    let mut server = Server::new();
    server.hold(1, 'a', SECOND);
    let mut writer = server.begin(1);
    assert!(is_guarded(server.guard(&mut writer, 1, 'a', 1)));
    assert_eq!(server.seal(&writer), CommitStep::Write);
    server.now = server.now.plus(2 * SECOND);

    let mut dba = server.begin(2);
    assert_eq!(server.ask(&mut dba, 1, Request::ForceRelease), None);
    let mut sweeper = server.begin(3);
    assert_eq!(server.ask(&mut sweeper, 1, Request::Lapse), Some(Answer::Busy));
    assert_eq!(server.ask(&mut sweeper, 1, Request::Purge { idle: 0 }), Some(Answer::Busy));

    server.become_visible(&writer);
    server.finish(writer);
    assert!(matches!(server.ask(&mut dba, 1, Request::ForceRelease), Some(Answer::Granted(_))));
}

/// A transaction that guards a lease and renews it may take longer than the lease it began with.
#[test]
fn a_guard_is_kept_by_the_own_renewal() {
    let mut server = Server::new();
    server.hold(1, 'a', SECOND);
    let mut writer = server.begin(1);
    assert!(is_guarded(server.guard(&mut writer, 1, 'a', 1)));
    let renew = Request::Renew { owner: 'a', epoch: 1, ttl: 10 * SECOND };
    assert!(matches!(server.ask(&mut writer, 1, renew), Some(Answer::Granted(_))));
    server.now = server.now.plus(5 * SECOND);
    assert_eq!(server.seal(&writer), CommitStep::Write);
}

/// I3. Neither the guard nor the renewal outlives what was renewed.
#[test]
fn a_guard_ends_with_the_own_renewal() {
    let mut server = Server::new();
    server.hold(1, 'a', SECOND);
    let mut writer = server.begin(1);
    assert!(is_guarded(server.guard(&mut writer, 1, 'a', 1)));
    assert_eq!(server.seal(&writer), CommitStep::Write);
    server.now = server.now.plus(5 * SECOND);
    assert_eq!(server.seal(&writer), CommitStep::Failed(Failure::Guard(1, Status::Lapsed)));
}

/// Maintenance gives way to everybody; that somebody took the key from it is no reason to fail.
#[test]
fn maintenance_that_was_broken_is_dropped() {
    let mut server = Server::new();
    server.hold(1, 'a', SECOND);
    server.hold(2, 'a', 100 * SECOND);
    server.now = server.now.plus(2 * SECOND);
    let mut dba = server.begin(1);
    assert!(matches!(server.ask(&mut dba, 1, Request::ForceRelease), Some(Answer::Granted(_))));
    assert!(matches!(server.ask(&mut dba, 2, Request::ForceRelease), Some(Answer::Granted(_))));
    server.hold(1, 'b', SECOND);
    assert!(server.rows[&1].epoch > 2, "the epoch that was told for the forced release is not given again");

    assert_eq!(server.seal(&dba), CommitStep::Failed(Failure::Broken(1)));
    assert_eq!(server.seal_without(&dba, &[1]), CommitStep::Write);
    server.finish(dba);
    assert_eq!(server.rows[&1].owner, Some('b'));
}

/// One place for one demand, given back with the savepoint that took it; the guard before it counts again then.
#[test]
fn guards_follow_savepoints() {
    let mut server = Server::new();
    server.hold(1, 'a', 100 * SECOND);
    let mut writer = server.begin(1);
    assert!(is_guarded(server.guard(&mut writer, 1, 'a', 1)));
    writer.level = 2;
    assert!(is_guarded(server.guard(&mut writer, 1, 'a', 1)));
    assert_eq!(server.guards_in_use(), 1, "guarded twice, one place");
    server.ask(&mut writer, 1, Request::Acquire { owner: 'a', ttl: 100 * SECOND });
    assert!(is_guarded(server.guard(&mut writer, 1, 'a', 2)));
    assert_eq!(
        (writer.changes.guard_of(&1).unwrap().epoch, server.guards_in_use(), writer.changes.places()),
        (2, 2, 3)
    );

    let at = At { now: server.now, start: START };
    let (mut claims, mut gone) = (Vec::new(), Vec::new());
    writer.changes.roll_back(2, at, |stake, restore| claims.push((stake, restore)), |guard| gone.push(guard));
    server.section(|section| {
        claims.iter().for_each(|(stake, restore)| section.roll_back(writer.me, stake, *restore));
        gone.iter().for_each(|guard| section.drop_guard(writer.me, guard));
    });
    assert_eq!(
        (writer.changes.guard_of(&1).unwrap().epoch, server.guards_in_use(), writer.changes.places()),
        (1, 1, 1)
    );

    writer.level = 2;
    assert!(is_guarded(server.guard(&mut writer, 1, 'a', 1)), "the guard outside the savepoint is the one");
    writer.changes.roll_back(2, at, |_, _| (), |_| panic!("it was not the savepoint's"));
    assert!(writer.changes.guard_of(&1).is_some());
    server.commit(writer);
    assert_eq!(server.guards_in_use(), 0);
}
