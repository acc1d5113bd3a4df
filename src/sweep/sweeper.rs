//! The sweeper of one database: sleeps until the earliest deadline it knows, then writes down what has lapsed.
//!
//! It knows deadlines from one scan of the table and, from then on, from the feed. It never believes them: at a deadline the
//! row is read, and if the lease was prolonged it is filed again. What comes into the table in ways that nobody tells it of,
//! it finds at the next scan. Outside its short transactions it holds nothing.
//!
//! Process: the sweeper. Locks: none of its own; the databases lock and the feed lock as `databases` and `feed` take them,
//! the claims lock as `session::lapse` does, one after the other.

use std::cell::Cell;

use lease_core::{Deadlines, Name, State, Time, milliseconds};

use crate::pg::condvar::WaitEvent;
use crate::pg::worker::{self, Exit};
use crate::pg::{Result, memory, test_point};
use crate::session::{self, Fate};
use crate::shared::Counter;
use crate::shared::databases::{self, Leaving};
use crate::shared::feed::{self, Cursor};
use crate::shared::{self, MAX_CLAIMS, SWEEP_BATCH};
use crate::store;

static WAIT_EVENT: WaitEvent = WaitEvent::new(c"LeaseSweeperMain");

/// After so long without anything to do it looks around, in microseconds.
const IDLE: i64 = 60_000_000;

/// Reading the table takes one part in so many of the time, at most.
const SCAN_SHARE: i64 = 10;

/// So often the table is read without a reason, in microseconds: an INSERT, as of a restore, is not told.
const RESCAN: i64 = 600_000_000;

/// When to come back to a key that somebody is changing, in microseconds.
const BUSY: i64 = 1_000_000;

thread_local! {
    static DATABASE: Cell<u32> = const { Cell::new(0) };
    static LEAVING: Cell<Option<End>> = const { Cell::new(None) };
}

/// Why this process ends, where it is not an error.
#[derive(Clone, Copy)]
enum End {
    NotInstalled,
    HeldOff,
    Asked,
}

/// `database`: which one.
pub fn main(database: u32) -> Result<Exit> {
    DATABASE.set(database);
    // before there is anything to undo
    worker::at_exit(leave)?;
    if !databases::attach(database) {
        return Ok(Exit::Done);
    }
    let end = match sweep(database) {
        // dropped in the middle of something: the process ends, and its transaction with it
        Err(error) if store::is_gone(&error) => End::NotInstalled,
        result => result?,
    };
    LEAVING.set(Some(end));
    // the launcher, not the postmaster, starts it again
    Ok(Exit::Done)
}

fn leave(error: Option<&[u8]>) {
    let leaving = match LEAVING.get() {
        Some(End::NotInstalled) => Leaving::NotInstalled,
        Some(End::HeldOff) => Leaving::HeldOff,
        Some(End::Asked) | None => Leaving::Failed(error),
    };
    databases::detach(DATABASE.get(), &leaving);
}

fn sweep(database: u32) -> Result<End> {
    // whoever needs the database to itself has asked before the first look into it
    if databases::asked_of(database).leave {
        return Ok(End::HeldOff);
    }
    worker::connect(Some(database))?;
    let mut cursor = Cursor::now();
    let mut deadlines: Deadlines<Box<[u8]>> = Deadlines::default();
    // when to read the table
    let mut scan_at = Time::PAST;
    // a server that outruns the sweeper again and again must not keep it from sweeping
    let mut no_scan_before = Time::PAST;
    loop {
        let asked = databases::asked_of(database);
        if asked.leave {
            return Ok(End::HeldOff);
        }
        if asked.rescan {
            scan_at = Time::PAST;
        }
        if !cursor.read(database, |key, deadline| file(&mut deadlines, key.as_bytes(), deadline))? {
            Counter::RingOverflows.add(1);
            scan_at = scan_at.min(no_scan_before);
        }
        let now = shared::at().now;
        if scan_at <= now {
            if !scan(&mut deadlines)? {
                return Ok(End::NotInstalled);
            }
            databases::set_running(database);
            let took = shared::at().now.since(now);
            no_scan_before = now.plus(took * SCAN_SHARE);
            scan_at = now.plus(rescan_after()).max(no_scan_before);
            // what was written meanwhile
            continue;
        }

        let due = deadlines.take_due(shared::at().now, batch())?;
        if !due.is_empty() {
            pass(&due, &mut deadlines)?;
            // signals are heeded between two passes, too
            if worker::sleep(0, &WAIT_EVENT)? {
                return Ok(End::Asked);
            }
            continue;
        }
        let next = deadlines.earliest();
        databases::show(next, deadlines.len());
        let until = next.unwrap_or(Time::NEVER).min(scan_at).min(now.plus(IDLE));
        worker::report_statistics()?;
        if !cursor.settle(until) {
            continue;
        }
        let asked_to_end = worker::sleep(milliseconds(until.since(now)), &WAIT_EVENT)?;
        feed::awake();
        if asked_to_end {
            return Ok(End::Asked);
        }
        if shared::at().now >= now.plus(IDLE) {
            // in a database that lost the extension unnoticed
            if !worker::transaction(c"lease sweep", store::exists)? {
                scan_at = Time::PAST;
            }
        }
    }
}

fn rescan_after() -> i64 {
    #[cfg(feature = "test-points")]
    if crate::pg::test_points::is_named("rescan-often") {
        return 500_000;
    }
    RESCAN
}

/// One transaction's worth, within what sessions need of the room for claims.
fn batch() -> usize {
    let most = (MAX_CLAIMS.get() / 4).max(1);
    usize::try_from(SWEEP_BATCH.get().min(most)).unwrap_or(1)
}

/// Files every lease that the table shows as held; false: there is no table.
fn scan(deadlines: &mut Deadlines<Box<[u8]>>) -> Result<bool> {
    deadlines.clear();
    let there = worker::transaction(c"lease scan", || {
        if !store::exists()? {
            return Ok(false);
        }
        let at = shared::at();
        store::scan(|key, row| {
            if row.lease.state == State::Held {
                file(deadlines, key.as_bytes(), row.lease.expiry(at))?;
            }
            Ok(())
        })?;
        Ok(true)
    })?;
    if there {
        Counter::Rescans.add(1);
    }
    Ok(there)
}

/// An error of this process where there is no memory for it: it starts anew with a scan.
fn file(deadlines: &mut Deadlines<Box<[u8]>>, key: &[u8], deadline: Time) -> Result<()> {
    deadlines.file(memory::copy(key)?, deadline, |key| memory::copy(key))
}

fn pass(due: &[Box<[u8]>], deadlines: &mut Deadlines<Box<[u8]>>) -> Result<()> {
    test_point!("sweep")?;
    let mut keys: Vec<Name> = Vec::new();
    keys.try_reserve_exact(due.len())?;
    keys.extend(due.iter().filter_map(|key| Name::new(key).ok()));
    let fates = session::lapse(&keys)?;
    let now = shared::at().now;
    Counter::SweepPasses.add(1);
    Counter::SweepRows.add(keys.len() as u64);
    for (key, fate) in due.iter().zip(fates) {
        match fate {
            Fate::Lapsed(over_since) => databases::count_lapse(now.since(over_since)),
            Fate::Live(until) => file(deadlines, key, until)?,
            Fate::Busy => file(deadlines, key, now.plus(BUSY))?,
            Fate::Unowned => (),
        }
    }
    Ok(())
}
