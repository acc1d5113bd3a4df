//! Sleeping on this process's condition variable until somebody who changed what it waits for wakes it, or until a timer of
//! its own: the end of the lease or claim it waits for, and PostgreSQL's bounds on a statement.
//!
//! All waits are relative and on the steady clock, so a step of the wall clock changes none of them.

use lease_core::{Lease, Name, Time, milliseconds};

use super::fail;
use crate::pg::condvar::{Sleep, WaitEvent};
use crate::pg::{Result, clock, interrupt, xact};
use crate::shared::{self, Counter, Key, Section, Want};

/// The longest sleep, in microseconds. Wake-ups are not lost; should one be, this is what it costs.
const SAFETY_TICK: i64 = 1_000_000;

/// How long a process stands in a queue.
#[derive(Clone, Copy)]
pub struct Patience {
    pub since: Time,
    /// Microseconds.
    pub wait: i64,
}

impl Patience {
    /// An instant that cannot be shown will not come either.
    fn give_up(self) -> Time {
        Some(self.since.plus(self.wait)).filter(|end| *end < Time::LIMIT).unwrap_or(Time::NEVER)
    }
}

/// What a process waits for.
#[derive(Clone, Copy)]
pub enum Purpose<'a> {
    /// The lease of a key, in its queue.
    Acquire { key: &'a Key, patience: Patience },
    /// The end of another transaction's change of a key.
    Change { key: &'a Key },
    /// What keeps this transaction from committing.
    Commit,
}

impl Purpose<'_> {
    fn event(&self) -> &'static WaitEvent {
        static ACQUIRE: WaitEvent = WaitEvent::new(c"LeaseAcquire");
        static CHANGE: WaitEvent = WaitEvent::new(c"LeaseChange");
        static COMMIT: WaitEvent = WaitEvent::new(c"LeaseCommit");
        match self {
            Purpose::Acquire { .. } => &ACQUIRE,
            Purpose::Change { .. } => &CHANGE,
            Purpose::Commit => &COMMIT,
        }
    }

    fn give_up(&self) -> Time {
        match self {
            Purpose::Acquire { patience, .. } => patience.give_up(),
            Purpose::Change { .. } | Purpose::Commit => Time::NEVER,
        }
    }
}

/// A process on its way through a wait, if it comes to one.
pub struct Sleeper<'a> {
    purpose: Purpose<'a>,
    /// Present from the first wait on: whoever wakes us from then on is heard.
    sleep: Option<Sleep<'static>>,
    /// On the steady clock, in microseconds, like the next.
    began: i64,
    deadlock_check: i64,
    /// The last sleep ended for no reason that is known of, before this instant.
    ticked: Option<Time>,
}

impl<'a> Sleeper<'a> {
    pub fn new(purpose: Purpose<'a>) -> Sleeper<'a> {
        let deadline = Some(purpose.give_up()).filter(|end| *end != Time::NEVER);
        let since = match purpose {
            Purpose::Acquire { patience, .. } => patience.since,
            Purpose::Change { .. } | Purpose::Commit => shared::at().now,
        };
        shared::set_want(Want { since, deadline });
        Sleeper { purpose, sleep: None, began: 0, deadlock_check: 0, ticked: None }
    }

    /// A section in which to see how things stand.
    pub fn look<R>(&mut self, f: impl FnOnce(&mut Section<'_>) -> R) -> R {
        let (result, look) = shared::look(f);
        // meanwhile its own timer may have come due
        self.ticked = self.ticked.filter(|due| !look.was_told && look.at < *due);
        if look.wakes_others {
            self.acts();
        }
        result
    }

    /// Takes interrupts between two looks, as a sleep does.
    pub fn heed(&self) -> Result<()> {
        interrupt::check().inspect_err(|_| Counter::CancelledWaits.add(self.sleep.is_some().into()))
    }

    /// The wait is over, or there was none.
    pub fn done(mut self) {
        self.acts();
    }

    /// There was something to do: nobody but the safety tick had told.
    fn acts(&mut self) {
        if self.ticked.take().is_some() {
            Counter::SafetyTicksThatHelped.add(1);
        }
    }

    /// Sleeps once, at most until `until`; the caller looks again. `lease` is what it saw last, for the message.
    pub fn sleep(&mut self, until: Time, lease: Option<&Lease<Name>>) -> Result<()> {
        self.ticked = None;
        let now = shared::at().now;
        let give_up = self.purpose.give_up();
        if let Purpose::Acquire { key, patience } = self.purpose
            && give_up <= now
        {
            Counter::Timeouts.add(1);
            return Err(fail::timeout(key, patience.wait, lease));
        }
        let Some(sleep) = &self.sleep else {
            // what happened until now may have gone unheard: look once more before sleeping
            self.sleep = Some(shared::sleeper().prepare());
            self.began = clock::boottime_micros();
            self.deadlock_check = self.began + xact::deadlock_timeout_ms() * 1000;
            Counter::Waits.add(1);
            return Ok(());
        };

        let steady = clock::boottime_micros();
        let lock_timeout = match xact::lock_timeout_ms() {
            0 => i64::MAX,
            ms => self.began + ms * 1000,
        };
        let mut left = until.min(give_up).since(now).min(self.deadlock_check - steady).min(lock_timeout - steady);
        if let Some(ms) = self.statement_timeout_left() {
            left = left.min(ms * 1000);
        }
        // a look at the table may have taken one
        xact::release_catalog_snapshot();
        let timer = milliseconds(left.min(SAFETY_TICK)).max(1);
        let timed_out = sleep.timed(timer, self.purpose.event()).inspect_err(|_| Counter::CancelledWaits.add(1))?;

        if self.statement_timeout_left().is_some_and(|ms| ms <= 0) {
            Counter::CancelledWaits.add(1);
            return Err(fail::statement_timeout());
        }
        let steady = clock::boottime_micros();
        if steady >= lock_timeout {
            Counter::CancelledWaits.add(1);
            return Err(fail::lock_timeout(self.key().as_ref()));
        }
        if steady >= self.deadlock_check {
            let key = self.key();
            if shared::section(|section| section.breaks_deadlock(shared::me())) {
                Counter::Deadlocks.add(1);
                return Err(fail::deadlock(key.as_ref()));
            }
            // a ring is closed by whoever begins to wait last; again for one that was just looking
            self.deadlock_check = steady + SAFETY_TICK;
        }
        if timed_out && left > SAFETY_TICK {
            Counter::SafetyTicks.add(1);
        }
        self.ticked = timed_out.then(|| until.min(give_up));
        Ok(())
    }

    /// In a call PostgreSQL's own timer runs, or the setting is not in force: it was made inside the statement.
    fn statement_timeout_left(&self) -> Option<i64> {
        match self.purpose {
            Purpose::Commit => xact::statement_timeout_left(),
            Purpose::Acquire { .. } | Purpose::Change { .. } => None,
        }
    }

    fn key(&self) -> Option<Key> {
        match self.purpose {
            Purpose::Acquire { key, .. } | Purpose::Change { key } => Some(*key),
            Purpose::Commit => shared::section(|section| section.waits_for(shared::me()).copied()),
        }
    }
}
