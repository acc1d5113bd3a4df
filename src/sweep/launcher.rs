//! The launcher: keeps one sweeper running in every database where the extension is used.
//!
//! It knows such databases from their first call and from CREATE EXTENSION; at a start it has a sweeper look into every
//! database, one after the other, which leaves again where there is nothing to sweep. What cannot be started is tried again
//! after a while, ever longer.
//!
//! Process: the launcher, connected to no database. Locks: the databases lock as `databases` takes it, never over a call that
//! can raise.

use std::collections::{HashMap, VecDeque};

use lease_core::milliseconds;

use crate::pg::condvar::WaitEvent;
use crate::pg::log;
use crate::pg::worker::{self, Exit, Handle};
use crate::pg::{Report, Result, clock, proc, sqlstate};
use crate::shared;
use crate::shared::databases::{self, Status, Sweeper};

static WAIT_EVENT: WaitEvent = WaitEvent::new(c"LeaseLauncherMain");

/// Microseconds on the steady clock, all of them.
const SECOND: i64 = 1_000_000;
/// The longest sleep.
const IDLE: i64 = 10 * SECOND;
/// While a command keeps a sweeper out of its database: nobody tells when it ends.
const HELD_OFF: i64 = SECOND / 4;
/// Between two attempts to start a sweeper: at first, and at most.
const RETRY: i64 = SECOND;
const RETRY_MOST: i64 = 60 * SECOND;
/// No slot for a worker: when somebody else's ends is not told either.
const NO_SLOT_MOST: i64 = 10 * SECOND;
/// A sweeper that ran for so long has not failed at once.
const SETTLED: i64 = 60 * SECOND;
/// How long a start may take that another launcher asked for.
const STARTING: i64 = 10 * SECOND;
/// The clocks' difference that is logged, and how often.
const CLOCK_DIFFERENCE: i64 = SECOND;
const CLOCK_LOG: i64 = 24 * 3600 * SECOND;

pub fn register() -> Result<()> {
    worker::register(c"pg_lease launcher", c"pg_lease_launcher", 1)
}

/// What this process knows of one database's sweeper beyond its slot.
#[derive(Default)]
struct Start {
    handle: Option<Handle>,
    /// When it was asked for, or seen running first.
    since: i64,
    failures: u32,
    /// Not before.
    retry_at: i64,
}

impl Start {
    fn put_off(&mut self, now: i64, most: i64) {
        self.handle = None;
        self.retry_at = now + (RETRY << self.failures.min(16)).min(most);
        self.failures += 1;
    }

    /// It found no extension, and now somebody says there is one: the first time one may believe that at once.
    fn believe(&mut self, now: i64) {
        if self.failures > 0 {
            self.put_off(now, NO_SLOT_MOST);
        } else {
            self.failures = 1;
        }
        self.handle = None;
    }
}

struct Launcher {
    starts: HashMap<u32, Start>,
    /// Databases that have not been looked into since the start of this process.
    unknown: VecDeque<u32>,
    /// The one of them that is being looked into, and when the next one can be: not before that, while no slot is free (else 0).
    looking: Option<u32>,
    look_at: i64,
    /// The log has the line about worker slots.
    told_no_slot: bool,
}

pub fn main(_: u32) -> Result<Exit> {
    worker::at_exit(|_| databases::set_launcher(None))?;
    databases::set_launcher(Some(proc::my_number()));
    worker::connect(None)?;
    let unknown = worker::transaction(c"lease launcher", worker::databases)?.into();
    let mut launcher = Launcher { starts: HashMap::new(), unknown, looking: None, look_at: 0, told_no_slot: false };
    loop {
        let wake_at = launcher.round()?;
        log_clock()?;
        worker::report_statistics()?;
        let sleep = (wake_at - clock::boottime_micros()).clamp(0, IDLE);
        if worker::sleep(milliseconds(sleep), &WAIT_EVENT)? {
            return Ok(Exit::Asked);
        }
    }
}

impl Launcher {
    /// Sees to every database; when to do so again at the latest.
    fn round(&mut self) -> Result<i64> {
        let now = clock::boottime_micros();
        let mut sweepers = databases::list();
        if now >= self.look_at
            && sweepers.iter().all(|s| self.is_settled(s, now))
            && let Some(database) = self.unknown.pop_front()
        {
            self.looking = Some(database).filter(|database| sweepers.iter().all(|s| s.database != *database));
            databases::announce(database, shared::at().now);
            sweepers = databases::list();
        }
        self.starts
            .retain(|database, start| now - start.since < SETTLED || sweepers.iter().any(|s| s.database == *database));

        self.told_no_slot &= self.look_at > 0 || sweepers.iter().any(|s| s.status == Status::NoSlot);

        let mut wake_at = now + IDLE;
        let mut due: Vec<u32> = Vec::new();
        for sweeper in &sweepers {
            let start = self.starts.entry(sweeper.database).or_default();
            match see_to(start, sweeper, now) {
                Next::Start => due.push(sweeper.database),
                Next::Later(then) => wake_at = wake_at.min(then),
            }
        }
        if due.is_empty() {
            return Ok(self.wake_at(now, wake_at));
        }

        let fit = worker::transaction(c"lease launcher", || {
            let connectable = worker::databases()?;
            let look = |d| Ok((d, connectable.contains(&d), worker::database_name(d)?.is_some()));
            due.into_iter().map(look).collect::<Result<Vec<(u32, bool, bool)>>>()
        })?;
        for (database, connectable, exists) in fit {
            if connectable {
                wake_at = wake_at.min(self.start(database, now)?);
            } else if exists {
                let start = self.starts.entry(database).or_default();
                start.put_off(now, RETRY_MOST);
                databases::set_status(database, Status::Failed);
                wake_at = wake_at.min(start.retry_at);
            } else {
                databases::forget(database);
                self.starts.remove(&database);
            }
        }
        Ok(self.wake_at(now, wake_at))
    }

    /// At once if another database can be looked into: nobody tells of what was settled in this round.
    fn wake_at(&self, now: i64, otherwise: i64) -> i64 {
        let can_look = !self.unknown.is_empty() && databases::list().iter().all(|s| self.is_settled(s, now));
        if can_look { self.look_at.max(now).min(otherwise) } else { otherwise }
    }

    /// It needs no worker slot but the one it may have, or has taken too long: another database can be looked into.
    fn is_settled(&self, sweeper: &Sweeper, now: i64) -> bool {
        match sweeper.status {
            Status::Running | Status::Failed | Status::HeldOff => true,
            // it may wait for a lock on its table
            Status::Starting => self.starts.get(&sweeper.database).is_some_and(|start| now - start.since >= STARTING),
            Status::Wanted | Status::NoSlot => false,
        }
    }

    fn start(&mut self, database: u32, now: i64) -> Result<i64> {
        let name = format!("pg_lease sweeper for database {database}");
        let handle = worker::start(&name, c"pg_lease sweeper", c"pg_lease_sweeper", database)?;
        let start = self.starts.entry(database).or_default();
        start.since = now;
        let looking = self.looking.take_if(|looking| *looking == database).is_some();
        if handle.is_some() {
            start.handle = handle;
            // unless it is there already, and says itself that it runs
            databases::set_status(database, Status::Starting);
            if looking {
                self.look_at = 0;
            }
            return Ok(now + STARTING);
        }
        let retry_at = if looking {
            // whether leases are used there is not known: nobody is to see it waiting. Another one is next.
            databases::forget(database);
            self.starts.remove(&database);
            self.unknown.push_back(database);
            self.look_at = now + NO_SLOT_MOST;
            self.look_at
        } else {
            start.put_off(now, NO_SLOT_MOST);
            databases::set_status(database, Status::NoSlot);
            start.retry_at
        };
        if !self.told_no_slot {
            self.told_no_slot = true;
            let what = if looking { "to look for leases in" } else { "for the lease sweeper of" };
            log::emit(
                &Report::new(
                    sqlstate::SUCCESSFUL_COMPLETION,
                    format!("no background worker slot is free {what} database {database}"),
                )
                .detail("Leases lapse all the same; until a slot is free their rows show it late.")
                .hint("You might need to increase max_worker_processes."),
            )?;
        }
        Ok(retry_at)
    }
}

enum Next {
    Start,
    /// Not before that, unless something happens.
    Later(i64),
}

fn see_to(start: &mut Start, sweeper: &Sweeper, now: i64) -> Next {
    if sweeper.pid.is_some() {
        if start.since == 0 {
            start.since = now;
        }
        if now - start.since >= SETTLED {
            start.failures = 0;
        }
        return Next::Later(now + IDLE);
    }
    if sweeper.held_off {
        databases::set_status(sweeper.database, Status::HeldOff);
        start.handle = None;
        return Next::Later(now + HELD_OFF);
    }
    match (&start.handle, sweeper.status) {
        (Some(handle), Status::Starting) if !handle.has_stopped() => Next::Later(now + STARTING),
        (None, Status::Starting) if now - start.since < STARTING => {
            // of the launcher before this one
            if start.since == 0 {
                start.since = now;
            }
            Next::Later(now + SECOND)
        }
        (_, Status::HeldOff) => Next::Start,
        (handle, status) => {
            if status == Status::Wanted && handle.is_some() {
                start.believe(now);
            } else if status == Status::Starting || handle.is_some() {
                // it came and went
                start.put_off(now, RETRY_MOST);
                databases::set_status(sweeper.database, Status::Failed);
            }
            if start.retry_at <= now { Next::Start } else { Next::Later(start.retry_at) }
        }
    }
}

/// Leases do not follow a step of the wall clock, which may surprise whoever compares.
fn log_clock() -> Result<()> {
    let difference = shared::at().now.0 - clock::wall_micros();
    if difference.abs() <= CLOCK_DIFFERENCE || !databases::clock_log_is_due(clock::boottime_micros(), CLOCK_LOG) {
        return Ok(());
    }
    let (seconds, way) = (difference.abs() as f64 / 1e6, if difference > 0 { "ahead of" } else { "behind" });
    log::emit(
        &Report::new(
            sqlstate::SUCCESSFUL_COMPLETION,
            format!("the lease clock is {seconds:.3} s {way} the wall clock, which was stepped"),
        )
        .detail("No lease ends earlier or later for it. See view lease.clock.")
        .hint("The two agree again after a restart of the server."),
    )
}
