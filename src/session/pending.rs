//! What this backend's transaction has pending, and the ends of transactions and savepoints (rules 7 and 11).
//!
//! The state is this process's own. It is borrowed for moments only: PostgreSQL may end the process from inside any call
//! into it, and the abort callback then has to reach the state.

use std::cell::RefCell;
use std::collections::HashSet;

use lease_core::{At, Change, Commit, Guard, Kind, Lease, Name, Restore, Stake, State as LeaseState, Transaction, Tx};

use super::commit::{self, Write};
use super::{fail, tally};
use crate::pg::xact::{self, Callbacks};
use crate::pg::{Result, proc, test_point};
use crate::shared::{self, Key, MAX_CLAIMS};
use crate::store::Edit;

/// What is written along with a lease.
#[derive(Clone)]
pub struct Extra {
    pub granted_to: Edit<Box<[u8]>>,
    pub payload: Edit<Box<[u8]>>,
}

#[derive(Default)]
struct State {
    /// The transaction, once it has called anything that can leave something in shared memory.
    me: Option<Tx>,
    /// It may stand in a list of waiters.
    waiting: bool,
    /// Pre-commit has begun.
    committing: bool,
    /// It has a guard that was asked for where it may write.
    guarded_for_writing: bool,
    changes: Transaction<Key, Name, Extra>,
    /// Lapses that are left for later after all: their keys' claims or rows are somebody else's for now.
    skipped: HashSet<Key>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
    /// `State::skipped` of the transaction that ended last.
    static SKIPPED: RefCell<HashSet<Key>> = RefCell::new(HashSet::new());
}

fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(f)
}

/// In the postmaster: every backend inherits the registration. PostgreSQL calls what was registered last first, so ours
/// come after those of libraries loaded later, and the time between seal and commit is short.
pub fn register() -> Result<()> {
    xact::register(&Callbacks {
        pre_commit: commit::pre_commit,
        pre_prepare: commit::pre_prepare,
        committed: || end(true),
        aborted: || end(false),
        sub_committed,
        sub_aborted,
    })
}

/// An operation begins: makes sure that whatever it leaves in shared memory is cleared at the transaction's end.
pub fn begin(me: Tx) {
    with(|state| {
        state.me = Some(me);
        state.waiting = true;
    });
}

/// An error if one more change, of `key`, would be more than one session may have.
pub fn room_for(key: &Key) -> Result<()> {
    let full = with(|state| state.changes.places() >= most() && state.changes.pending(key).is_none());
    if full { Err(fail::too_many(most())) } else { Ok(()) }
}

/// How many keys one session may change or guard at once, so that none can keep all others out.
fn most() -> usize {
    MAX_CLAIMS.get() as usize / 2
}

/// As `begin`, for a guard; the place it has already, if the same was guarded before.
pub fn begin_guard(me: Tx, key: &Key, owner: Name, epoch: i64) -> Result<Option<u32>> {
    with(|state| {
        let place = state.changes.same_guard(key, owner, epoch).map(|guard| guard.slot);
        if place.is_none() && state.changes.places() >= most() {
            return Err(fail::too_many(most()));
        }
        state.me = Some(me);
        Ok(place)
    })
}

pub fn set_guarded_for_writing() {
    with(|state| state.guarded_for_writing = true);
}

/// Whether there is anything for the commit to do. Guards of a transaction that was read-only throughout, and has written
/// nothing, were judged at their calls.
pub fn matters() -> bool {
    with(|state| {
        let only_looked = !state.guarded_for_writing && state.changes.changes().next().is_none();
        let looked = only_looked && xact::is_read_only() && !xact::has_written();
        !looked && !state.changes.is_empty()
    })
}

pub fn add_guard(guard: Guard<Key, Name>) {
    let level = level();
    with(|state| state.changes.add_guard(level, guard));
}

/// The epoch that this transaction may write under: of its guard on the key, or of its own grant. `None`: neither.
pub fn writing_epoch(key: &Key) -> Option<i64> {
    with(|state| {
        let guarded = state.changes.guard_of(key).map(|guard| guard.epoch);
        let granted = state.changes.pending(key).and_then(|p| p.change.lease);
        let granted = granted.filter(|lease| lease.state == LeaseState::Held).map(|lease| lease.epoch);
        guarded.max(granted)
    })
}

pub fn done_waiting() {
    with(|state| state.waiting = false);
}

pub fn change_of(key: &Key) -> Option<Change<Name>> {
    with(|state| state.changes.pending(key).map(|p| p.change))
}

/// What is pending on a key.
pub fn of(key: &Key) -> Option<(Change<Name>, Extra)> {
    with(|state| state.changes.pending(key).map(|p| (p.change, p.extra.clone())))
}

/// The operation was granted.
pub fn record(
    key: Key,
    hash: u32,
    base: Option<Lease<Name>>,
    change: Change<Name>,
    granted_to: Edit<Box<[u8]>>,
    payload: Edit<Box<[u8]>>,
) {
    let level = level();
    with(|state| {
        let before = state.changes.pending(&key).map(|p| p.extra.clone());
        let extra = match before {
            Some(before) => {
                Extra { granted_to: granted_to.after(before.granted_to), payload: payload.after(before.payload) }
            }
            None => Extra { granted_to, payload },
        };
        state.changes.record(level, key, hash, base, change, extra);
    });
}

fn level() -> u32 {
    xact::nest_level().unsigned_abs()
}

pub fn has_any() -> bool {
    with(|state| !state.changes.is_empty())
}

/// Whether the commit has to be flushed. Guards write nothing, and lapses follow from what is there.
pub fn must_flush() -> bool {
    let lapse = |lease: Option<Lease<Name>>| lease.is_some_and(|lease| lease.state == LeaseState::Lapsed);
    with(|state| state.changes.changes().any(|(_, _, p)| !lapse(p.change.lease)))
}

/// Leaves maintenance out of the commit, which gives way to whoever took the key; false: what is pending on that key is
/// something else.
pub fn give_way(key: &Key) -> bool {
    with(|state| {
        let maintenance = state.changes.pending(key).is_some_and(|p| p.change.kind == Kind::Maintenance);
        if maintenance {
            state.skipped.insert(*key);
        }
        maintenance
    })
}

/// What the last commit left out.
pub fn take_skipped() -> HashSet<Key> {
    SKIPPED.take()
}

pub fn has_changes() -> bool {
    with(|state| state.changes.changes().next().is_some())
}

pub fn is_committing() -> bool {
    with(|state| state.committing)
}

pub fn set_committing() {
    with(|state| {
        state.committing = true;
        state.waiting = true;
    });
}

/// The commit of what is pending.
pub fn commit() -> Commit<Key, Name> {
    with(|state| Commit::new(state.me.unwrap_or_else(proc::me), &state.changes))
}

/// The rows to write, copied: the state must not be borrowed while they are written.
pub fn writes() -> Vec<Write> {
    with(|state| {
        let write = |(key, base, pending): (&Key, Option<&Lease<Name>>, &lease_core::Pending<Name, Extra>)| Write {
            key: *key,
            base: base.copied(),
            new: pending.change.lease,
            extra: pending.extra.clone(),
        };
        state.changes.changes().filter(|(key, _, _)| !state.skipped.contains(key)).map(write).collect()
    })
}

/// The transaction has committed or aborted, visibly. Cannot fail.
fn end(committed: bool) {
    if committed && has_any() {
        test_point!(quiet "visible");
    }
    let mut done: Vec<tally::Done> = Vec::new();
    with(|state| {
        let State { me, waiting, changes, skipped, .. } = state;
        if let Some(me) = *me
            && (*waiting || !changes.is_empty())
        {
            let guards: Vec<Guard<Key, Name>> = changes.guards().collect();
            shared::section(|section| {
                let at = section.at;
                section.finish(me, changes.outcomes(committed, at), &guards);
            });
        }
        if committed {
            let written = changes.changes().filter(|(key, _, _)| !skipped.contains(key));
            done.extend(written.map(|(key, base, p)| tally::Done::new(*key, base.copied(), p.change.lease)));
        }
        if me.is_some() {
            SKIPPED.set(std::mem::take(&mut state.skipped));
            *state = State::default();
        }
    });
    tally::committed(&done);
}

fn sub_committed() {
    let level = level();
    with(|state| {
        if !state.changes.is_empty() {
            state.changes.release(level);
        }
    });
}

/// A savepoint was rolled back. Cannot fail.
fn sub_aborted() {
    let level = level();
    let at: Option<At> = shared::is_ready().then(shared::at);
    with(|state| {
        let (Some(me), Some(at)) = (state.me, at) else { return };
        if !state.waiting && state.changes.is_empty() {
            return;
        }
        let mut claims: Vec<(Stake<Key>, Restore)> = Vec::new();
        let mut guards: Vec<Guard<Key, Name>> = Vec::new();
        state.changes.roll_back(level, at, |stake, restore| claims.push((stake, restore)), |g| guards.push(g));
        shared::section(|section| {
            section.leave(me);
            for (stake, restore) in &claims {
                section.roll_back(me, stake, *restore);
            }
            for guard in &guards {
                section.drop_guard(me, guard);
            }
        });
        state.waiting = false;
    });
}
