//! What the backends share: the memory behind `lease_core`'s sections, the lease clock's anchor, the sleepers' condition
//! variables, what they wait for as others see it, the counters.
//!
//! Locks, none of which is taken under another one of them:
//!
//! - the claims lock (an LWLock): all of `layout` but the condition variables and the seats. Held exclusively for one section,
//!   shared for a look: no waiting, no PostgreSQL call that can raise, no allocation inside.
//! - the databases lock (an LWLock): whose slot is whose in `databases`, and a sweeper's coming and going.
//! - the feed lock (an LWLock): `feed`.
//! - a condition variable's spinlock, taken by PostgreSQL when sleepers are woken, after the section.
//!
//! The counters, and whatever else is a single atomic number, are read and written without a lock.
//!
//! The memory is laid out by the postmaster and is of one size for its life; a crash restart lays it out anew. The anchor is
//! taken once, when the library is loaded, and inherited by every process, so lease time goes on over a crash restart.

mod counters;
pub mod databases;
pub mod feed;
mod layout;
mod memory;

pub use counters::Counter;

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use lease_core::{Anchor, At, Name, Time, Tx, Wakes};

use crate::pg::condvar::ConditionVariable;
use crate::pg::shmem::{self, Area};
use crate::pg::{clock, guc, lwlock, proc, xact};

/// Keys live in one namespace per database.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key {
    pub database: u32,
    pub name: Name,
}

pub type Section<'a> = lease_core::Section<'a, Key, Name>;
pub type View<'a> = lease_core::View<'a, Key, Name>;

/// This process's transaction, as [`proc::my_transaction`].
pub fn me() -> Tx {
    let proc::Transaction { proc, incarnation, lxid } = proc::my_transaction();
    Tx { proc, incarnation, lxid }
}

/// As [`proc::is_running`].
pub fn running(Tx { proc, incarnation, lxid }: Tx) -> bool {
    proc::is_running(proc::Transaction { proc, incarnation, lxid })
}

/// How many keys open transactions can be changing or guarding at once.
pub static MAX_CLAIMS: guc::Int = guc::Int::new(16384);

/// How many rows one transaction of a sweeper writes at most.
pub static SWEEP_BATCH: guc::Int = guc::Int::new(1000);

/// Whether each lapse is logged.
pub static LOG_LAPSES: guc::Bool = guc::Bool::new(false);

const CLAIMS_LOCK: usize = 0;
const DATABASES_LOCK: usize = 1;
const FEED_LOCK: usize = 2;
const LOCKS: usize = 3;

/// Set in the postmaster, inherited by every process.
struct Inherited {
    anchor: Anchor,
    /// Seeded per start, so that nobody can choose keys that collide.
    hasher: RandomState,
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// In the postmaster, while the library is loaded: asks for the memory and takes the clock's anchor.
pub fn register() {
    let anchor = Anchor { start: Time(clock::wall_micros()), steady: clock::boottime_micros() };
    if INHERITED.set(Inherited { anchor, hasher: RandomState::new() }).is_ok() {
        shmem::register(Area { name: c"pg_lease", locks: LOCKS, size: memory::size, init: memory::init });
    }
}

/// The library was preloaded, and the memory is there.
pub fn is_ready() -> bool {
    INHERITED.get().is_some() && shmem::base().is_some()
}

fn inherited() -> &'static Inherited {
    INHERITED.get().expect("every entry point asks whether the library is ready")
}

pub fn hash(key: &Key) -> u32 {
    // the low half of a SipHash is as good as the whole
    inherited().hasher.hash_one(key) as u32
}

/// Lease time, and what the times of rows are read against: the moment from which this server may change leases.
///
/// In recovery the rows are those of a primary, with a start of its own: taken as they are. After a start, a crash restart or
/// a promotion it is the first moment that anybody asks (the launcher does at once): nothing was granted in between.
pub fn at() -> At {
    let now = inherited().anchor.time(clock::boottime_micros());
    if xact::in_recovery() {
        return At { now, start: Time::NEVER };
    }
    let start = &memory::databases().start;
    let known = start.load(Relaxed);
    let known =
        if known != 0 { known } else { start.compare_exchange(0, now.0, Relaxed, Relaxed).err().unwrap_or(now.0) };
    At { now, start: Time(known) }
}

thread_local! {
    /// Filled in a section, emptied after it. Reserved once, so that a section allocates nothing.
    static WAKES: RefCell<Wakes> = RefCell::new(Wakes::with_capacity(proc::capacity()));
}

/// One section: `f` under the claims lock, at an instant sampled under it (rule 1). Sleepers are woken after.
pub fn section<R>(f: impl FnOnce(&mut Section<'_>) -> R) -> R {
    let layout = layout::get();
    WAKES.with_borrow_mut(|wakes| {
        let result = lwlock::get(CLAIMS_LOCK).exclusive(|| {
            // SAFETY: the claims lock is held exclusively until the closure ends, and `layout` is the only way here.
            let memory = unsafe { layout.memory() };
            let result = f(&mut Section { memory, at: at(), running: &running, wakes: &mut *wakes });
            // who is awake looks again anyway, or has what it came for
            wakes.forget(proc::my_number());
            for proc in wakes.iter() {
                layout.seat(proc).woken.store(true, Relaxed);
            }
            result
        });
        Counter::WakeUps.add(wakes.iter().count() as u64);
        Counter::HandOffs.add(wakes.hand_offs.into());
        Counter::PassedOver.add(wakes.passed_over.into());
        for proc in wakes.drain() {
            layout.sleeper(proc).broadcast();
        }
        result
    })
}

/// A look at what the claims lock protects that changes nothing, and can be taken by many at a time. To be short, as it keeps
/// sections out; `f` must not allocate either.
pub fn view<R>(f: impl FnOnce(View<'_>) -> R) -> R {
    let layout = layout::get();
    lwlock::get(CLAIMS_LOCK).shared(|| {
        // SAFETY: the claims lock is held, so nobody writes until the closure ends, which keeps nothing of the view.
        f(unsafe { layout.view(&running) })
    })
}

/// A section of a process that may have slept, with what the statistics ask of it.
pub fn look<R>(f: impl FnOnce(&mut Section<'_>) -> R) -> (R, Look) {
    section(|section| {
        let me = proc::my_number();
        let was_woken = layout::get().seat(me).woken.swap(false, Relaxed);
        let about_to_be = section.watch_is_due(me);
        let result = f(section);
        let wakes = &section.wakes;
        let was_told = was_woken || about_to_be || wakes.reaped > 0;
        (result, Look { at: section.at.now, was_told, wakes_others: !wakes.is_empty() })
    })
}

pub struct Look {
    pub at: Time,
    /// Somebody had decided to wake this process since it last looked, or was just about to.
    pub was_told: bool,
    /// The section changed what others wait for.
    pub wakes_others: bool,
}

/// What a waiting process wants, for others to see.
#[derive(Clone, Copy)]
pub struct Want {
    pub since: Time,
    /// When it gives up by itself.
    pub deadline: Option<Time>,
}

/// Says what this process is about to wait for. To be called before it stands in any list.
pub fn set_want(want: Want) {
    let seat = layout::get().seat(proc::my_number());
    seat.since.store(want.since.0, Relaxed);
    seat.deadline.store(want.deadline.unwrap_or(Time::NEVER).0, Relaxed);
}

/// What a process that stands in a list wants. Under the claims lock, under which it came there and leaves.
pub fn want(_: View<'_>, proc: u32) -> Want {
    let seat = layout::get().seat(proc);
    let deadline = Time(seat.deadline.load(Relaxed));
    Want { since: Time(seat.since.load(Relaxed)), deadline: Some(deadline).filter(|t| *t != Time::NEVER) }
}

/// The version counter of a hash, which moves whenever a claim on a key of it ends or is broken.
pub fn version(hash: u32) -> u64 {
    let layout = layout::get();
    lwlock::get(CLAIMS_LOCK).shared(|| {
        // SAFETY: the claims lock is held, so nobody writes until the closure ends.
        let versions = unsafe { layout.versions() };
        versions[hash as usize & (versions.len() - 1)]
    })
}

/// Where this process sleeps.
pub fn sleeper() -> &'static ConditionVariable {
    layout::get().sleeper(proc::my_number())
}
