//! One slot per database in which the extension is used: what its sweeper does, and its counters.
//!
//! All of it is atomic numbers that are valid when zero. The databases lock protects which slot is whose, and a sweeper's
//! coming and going; what only informs is read without it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use lease_core::{Time, Tx};

use super::{Counter, DATABASES_LOCK, memory};
use crate::pg::{Report, log, lwlock, proc, sqlstate, text, worker};

/// Databases beyond that have leases, but no sweeper and no counters.
pub const DATABASES: usize = 256;

/// The longest error that is kept, in bytes.
const ERROR: usize = 240;

/// What the databases' slots have in common, and the slots.
pub struct Databases {
    /// The launcher's process number and one; 0: there is none.
    launcher: AtomicU32,
    /// What the lease clock's times are read against: 0 until somebody asks for it outside recovery.
    pub(super) start: AtomicI64,
    /// When the difference of the clocks was last logged, on the steady clock.
    clock_logged: AtomicI64,
    /// The log has the line about too many databases.
    told_full: AtomicBool,
    slots: [Slot; DATABASES],
}

/// A transaction that needs a database to itself, in force as long as it runs: nobody takes it back.
#[derive(Default)]
struct Hold {
    proc: AtomicU32,
    incarnation: AtomicU32,
    /// 0: there is none.
    lxid: AtomicU32,
}

/// So many of them at once are remembered for one database: one more is, too, for as long as it keeps others company.
const HOLDS: usize = 16;

impl Hold {
    fn tx(&self) -> Tx {
        let [proc, incarnation, lxid] = [&self.proc, &self.incarnation, &self.lxid].map(|word| word.load(Relaxed));
        Tx { proc, incarnation, lxid }
    }

    fn is_in_force(&self) -> bool {
        let tx = self.tx();
        tx.lxid != 0 && super::running(tx)
    }

    fn set(&self, by: Tx) {
        self.proc.store(by.proc, Relaxed);
        self.incarnation.store(by.incarnation, Relaxed);
        self.lxid.store(by.lxid, Relaxed);
    }
}

#[repr(align(128))]
pub struct Slot {
    /// 0: nobody's.
    database: AtomicU32,
    status: AtomicU32,
    /// The sweeper's; 0: none is there.
    pid: AtomicI32,
    proc: AtomicU32,
    /// Something happened to the table that the feed does not tell.
    rescan: AtomicBool,
    holds: [Hold; HOLDS],
    /// Until when the sweeper sleeps, `Time::PAST` while it is awake. It goes to sleep, and is woken for the feed, under the
    /// feed's lock.
    pub(super) wakes_at: AtomicI64,
    next_deadline: AtomicI64,
    leases: AtomicU64,
    counters: [AtomicU64; Counter::COUNT],
    /// Microseconds.
    sweep_delay_last: AtomicI64,
    sweep_delay_max: AtomicI64,
    /// Lease time from which on all this counts.
    since: AtomicI64,
    error_len: AtomicU32,
    error: [AtomicU8; ERROR],
}

/// What is counted of one database.
pub struct Stats {
    /// In the order of [`Counter::ALL`].
    pub counts: [u64; Counter::COUNT],
    /// From a lease's expiry to its lapse being visible in the table, in microseconds: the latest, and the longest.
    pub sweep_delay_last: i64,
    pub sweep_delay_max: i64,
    pub since: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Status {
    /// The launcher has not come to it yet.
    Wanted,
    Starting,
    Running,
    /// Every worker slot of the server is taken.
    NoSlot,
    /// It failed, and is started again after a while.
    Failed,
    /// It left for a command that needs the database to itself.
    HeldOff,
}

impl Status {
    fn from(number: u32) -> Status {
        const ALL: [Status; 6] =
            [Status::Wanted, Status::Starting, Status::Running, Status::NoSlot, Status::Failed, Status::HeldOff];
        ALL.get(number as usize).copied().unwrap_or(Status::Wanted)
    }
}

/// What is known about one database's sweeper.
#[derive(Clone, Debug)]
pub struct Sweeper {
    pub database: u32,
    pub pid: Option<i32>,
    pub status: Status,
    pub next_deadline: Option<Time>,
    pub leases: u64,
    /// Fit for this process's database.
    pub last_error: Option<Vec<u8>>,
    /// A command that needs the database to itself is under way.
    pub held_off: bool,
}

impl Slot {
    pub(super) fn count(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].fetch_add(n, Relaxed);
    }

    pub(super) fn counted(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }

    fn held_off(&self) -> bool {
        self.holds.iter().any(Hold::is_in_force)
    }

    /// Under the databases lock. A place whose transaction is over is free.
    fn hold_off(&self, by: Tx) {
        if self.holds.iter().any(|hold| hold.tx() == by) {
            return;
        }
        if let Some(hold) = self.holds.iter().find(|hold| !hold.is_in_force()) {
            hold.set(by);
        }
    }

    fn reset(&self, database: u32, now: Time) {
        self.status.store(Status::Wanted as u32, Relaxed);
        self.rescan.store(false, Relaxed);
        self.holds.iter().for_each(|hold| hold.lxid.store(0, Relaxed));
        self.forget_deadlines();
        self.reset_counters(now);
        self.error_len.store(0, Relaxed);
        self.database.store(database, Relaxed);
    }

    fn forget_deadlines(&self) {
        self.next_deadline.store(Time::NEVER.0, Relaxed);
        self.wakes_at.store(Time::PAST.0, Relaxed);
        self.leases.store(0, Relaxed);
    }

    fn reset_counters(&self, now: Time) {
        for counter in &self.counters {
            counter.store(0, Relaxed);
        }
        self.sweep_delay_last.store(0, Relaxed);
        self.sweep_delay_max.store(0, Relaxed);
        self.since.store(now.0, Relaxed);
    }

    /// In the encoding of the database, which this process is or was connected to.
    fn keep_error(&self, message: &[u8]) {
        let message = text::clip(message, ERROR);
        for (place, byte) in self.error.iter().zip(message) {
            place.store(*byte, Relaxed);
        }
        self.error_len.store(message.len() as u32, Relaxed);
    }

    /// Wakes the sweeper, if there is one.
    pub(super) fn wake(&self) {
        if self.pid.load(Relaxed) != 0 {
            worker::wake(self.proc.load(Relaxed));
        }
    }

    fn sweeper(&self) -> Sweeper {
        let len = self.error_len.load(Relaxed) as usize;
        let error: Vec<u8> = self.error[..len].iter().map(|byte| byte.load(Relaxed)).collect();
        Sweeper {
            database: self.database.load(Relaxed),
            pid: Some(self.pid.load(Relaxed)).filter(|pid| *pid != 0),
            status: Status::from(self.status.load(Relaxed)),
            next_deadline: Some(Time(self.next_deadline.load(Relaxed))).filter(|t| *t != Time::NEVER),
            leases: self.leases.load(Relaxed),
            last_error: (len > 0).then(|| text::fit(&error).into_owned()),
            held_off: self.held_off(),
        }
    }
}

impl Databases {
    /// Another database can have the slot.
    fn give_up(&self, slot: &Slot) {
        slot.database.store(0, Relaxed);
        self.told_full.store(false, Relaxed);
    }
}

fn locked<R>(f: impl FnOnce(&'static Databases) -> R) -> R {
    let databases = memory::databases();
    lwlock::get(DATABASES_LOCK).exclusive(|| f(databases))
}

fn slot_of(database: u32) -> Option<&'static Slot> {
    memory::databases().slots.iter().find(|slot| slot.database.load(Relaxed) == database)
}

pub(super) fn slots() -> &'static [Slot] {
    &memory::databases().slots
}

thread_local! {
    /// Where this process's database was found last.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// This process's database, if it has a slot.
pub fn with_mine<R>(f: impl FnOnce(&Slot) -> R) -> Option<R> {
    let database = proc::database();
    let slots = slots();
    let cached = &slots[MINE.get()];
    if cached.database.load(Relaxed) == database {
        return Some(f(cached));
    }
    let index = slots.iter().position(|slot| slot.database.load(Relaxed) == database)?;
    MINE.set(index);
    Some(f(&slots[index]))
}

/// The extension is used in this process's database: it is to have a sweeper. Cheap when it has a slot already. Raises
/// nothing.
pub fn announce_mine(now: impl FnOnce() -> Time) {
    if with_mine(|_| ()).is_some() {
        return;
    }
    let database = proc::database();
    if !announce(database, now()) && !memory::databases().told_full.swap(true, Relaxed) {
        log::emit_quietly(
            &Report::new(
                sqlstate::SUCCESSFUL_COMPLETION,
                format!(
                    "leases are used in more than {DATABASES} databases: {database} gets no sweeper and no counters"
                ),
            )
            .detail("Leases lapse all the same; their rows show it once somebody takes the key.")
            .hint("It gets them when another database, or the extension there, is dropped."),
        );
    }
}

/// A database is to have a sweeper; false: there is no slot for another one.
pub fn announce(database: u32, now: Time) -> bool {
    // a sweeper that is still leaving keeps its slot
    let is_free = |slot: &&Slot| slot.database.load(Relaxed) == 0 && slot.pid.load(Relaxed) == 0;
    if !slots().iter().any(|slot| is_free(&slot)) {
        return slot_of(database).is_some();
    }
    let (known, announced) = locked(|databases| {
        let known = databases.slots.iter().any(|slot| slot.database.load(Relaxed) == database);
        let slot = databases.slots.iter().find(is_free).filter(|_| !known);
        (known, slot.inspect(|slot| slot.reset(database, now)).is_some())
    });
    if announced {
        wake_launcher();
    }
    known || announced
}

/// The table may have other rows than the sweeper knows, or be gone.
pub fn ask_rescan(database: u32) {
    locked(|databases| {
        for slot in databases.slots.iter().filter(|slot| slot.database.load(Relaxed) == database) {
            slot.rescan.store(true, Relaxed);
            slot.wake();
        }
    });
}

/// Asks the sweeper out of a database for as long as the transaction runs; false: there is none.
pub fn hold_off(database: u32, by: Tx) -> bool {
    let there = locked(|databases| {
        let slot = databases.slots.iter().find(|slot| slot.database.load(Relaxed) == database)?;
        slot.hold_off(by);
        slot.wake();
        Some(slot.pid.load(Relaxed) != 0)
    });
    there.unwrap_or(false)
}

/// Whether a database's sweeper is there.
pub fn has_sweeper(database: u32) -> bool {
    slot_of(database).is_some_and(|slot| slot.pid.load(Relaxed) != 0)
}

/// Every database that has a slot.
pub fn list() -> Vec<Sweeper> {
    slots().iter().filter(|slot| slot.database.load(Relaxed) != 0).map(Slot::sweeper).collect()
}

/// Of this process's database; `None`: it has no slot, and nothing is counted.
pub fn stats() -> Option<Stats> {
    with_mine(|slot| Stats {
        counts: Counter::ALL.map(|(counter, _)| slot.counted(counter)),
        sweep_delay_last: slot.sweep_delay_last.load(Relaxed),
        sweep_delay_max: slot.sweep_delay_max.load(Relaxed),
        since: Time(slot.since.load(Relaxed)),
    })
}

pub fn reset_stats(now: Time) {
    with_mine(|slot| slot.reset_counters(now));
}

// ---- for the launcher

pub fn set_launcher(proc: Option<u32>) {
    memory::databases().launcher.store(proc.map_or(0, |proc| proc + 1), Relaxed);
}

pub fn wake_launcher() {
    match memory::databases().launcher.load(Relaxed) {
        0 => (),
        proc => worker::wake(proc - 1),
    }
}

/// Only while no sweeper is there: one that came says itself what it does.
pub fn set_status(database: u32, status: Status) {
    locked(|databases| {
        for slot in databases.slots.iter().filter(|slot| slot.database.load(Relaxed) == database) {
            if slot.pid.load(Relaxed) == 0 {
                slot.status.store(status as u32, Relaxed);
            }
        }
    });
}

/// The database is gone.
pub fn forget(database: u32) {
    locked(|databases| {
        for slot in databases.slots.iter().filter(|slot| slot.database.load(Relaxed) == database) {
            if slot.pid.load(Relaxed) == 0 {
                databases.give_up(slot);
            }
        }
    });
}

/// True, at most once in that time: `every` and `now` in microseconds on the steady clock.
pub fn clock_log_is_due(now: i64, every: i64) -> bool {
    let logged = &memory::databases().clock_logged;
    let last = logged.load(Relaxed);
    (last == 0 || now - last >= every) && logged.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
}

// ---- for a sweeper

/// This process is a database's sweeper from now on; false: another one is there, or nobody wants one.
pub fn attach(database: u32) -> bool {
    let (pid, proc) = (std::process::id() as i32, proc::my_number());
    let attached = locked(|databases| {
        let slot = databases.slots.iter().find(|slot| slot.database.load(Relaxed) == database)?;
        if slot.pid.load(Relaxed) != 0 {
            return None;
        }
        slot.forget_deadlines();
        slot.proc.store(proc, Relaxed);
        slot.pid.store(pid, Relaxed);
        slot.status.store(Status::Starting as u32, Relaxed);
        Some(())
    });
    attached.is_some()
}

/// This process, attached, has found leases to sweep.
pub fn set_running(database: u32) {
    if let Some(slot) = slot_of(database).filter(|slot| slot.status.load(Relaxed) != Status::Running as u32) {
        slot.status.store(Status::Running as u32, Relaxed);
        // it may have other databases to look into
        wake_launcher();
    }
}

/// How a sweeper leaves.
pub enum Leaving<'a> {
    /// The database has no extension: it is forgotten, unless somebody said otherwise meanwhile.
    NotInstalled,
    HeldOff,
    Failed(Option<&'a [u8]>),
}

/// Cannot fail. `database` is the one this process has attached to.
pub fn detach(database: u32, leaving: &Leaving<'_>) {
    let pid = std::process::id() as i32;
    locked(|databases| {
        let mine = |slot: &&Slot| slot.database.load(Relaxed) == database && slot.pid.load(Relaxed) == pid;
        let Some(slot) = databases.slots.iter().find(mine) else { return };
        slot.forget_deadlines();
        slot.pid.store(0, Relaxed);
        let status = match leaving {
            Leaving::NotInstalled if slot.rescan.load(Relaxed) => Status::Wanted,
            Leaving::NotInstalled => {
                databases.give_up(slot);
                Status::Wanted
            }
            Leaving::HeldOff => Status::HeldOff,
            Leaving::Failed(message) => {
                if let Some(message) = message {
                    slot.keep_error(message);
                }
                Status::Failed
            }
        };
        slot.status.store(status as u32, Relaxed);
    });
    wake_launcher();
}

/// What is asked of a database's sweeper.
pub struct Asked {
    pub leave: bool,
    pub rescan: bool,
}

pub fn asked_of(database: u32) -> Asked {
    match slot_of(database) {
        Some(slot) => Asked { leave: slot.held_off(), rescan: slot.rescan.swap(false, Relaxed) },
        None => Asked { leave: true, rescan: false },
    }
}

/// A lapse was written down, so long after it.
pub fn count_lapse(delay: i64) {
    with_mine(|slot| {
        slot.count(Counter::LapsesSwept, 1);
        slot.sweep_delay_last.store(delay, Relaxed);
        slot.sweep_delay_max.fetch_max(delay, Relaxed);
    });
}

/// For the eye.
pub fn show(next_deadline: Option<Time>, leases: usize) {
    with_mine(|slot| {
        slot.next_deadline.store(next_deadline.unwrap_or(Time::NEVER).0, Relaxed);
        slot.leases.store(leases as u64, Relaxed);
    });
}

/// `lease_test_fill_databases(count integer)`: announces so many databases that are not there.
#[cfg(feature = "test-points")]
mod test {
    use crate::pg::function::{Call, Reply};
    use crate::pg::{Result, pg_function};

    pg_function!(lease_test_fill_databases, fill);

    fn fill(call: Call<'_>) -> Result<Reply<'_>> {
        for i in 0..call.int4(0).unwrap_or(0).unsigned_abs() {
            super::announce(u32::MAX - i, crate::shared::at().now);
        }
        Ok(call.null())
    }
}
