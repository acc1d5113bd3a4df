//! Sleeping on this process's condition variable until somebody who changed what it waits for wakes it, or until a timer of
//! its own: the end of the lease or claim it waits for, and PostgreSQL's bounds on a statement.
//!
//! All waits are relative and on the steady clock, so a step of the wall clock changes none of them.

use lease_core::{Lease, Name, Time};

use super::fail;
use crate::pg::condvar::{Sleep, WaitEvent};
use crate::pg::{Result, clock, proc, xact};
use crate::shared::{self, Key};

static WAIT_EVENT: WaitEvent = WaitEvent::new(c"LeaseWait");

/// The longest sleep, in microseconds. Wake-ups are not lost; should one be, this is what it costs.
const SAFETY_TICK: i64 = 1_000_000;

pub struct Sleeper<'a> {
    key: &'a Key,
    /// When to give the wait up, and how long it was to be.
    give_up: Option<(Time, i64)>,
    /// Present from the first wait on: whoever wakes us from then on is heard.
    sleep: Option<Sleep<'static>>,
    /// On the steady clock, in microseconds.
    began: i64,
    deadlock_check: i64,
}

impl<'a> Sleeper<'a> {
    pub fn new(key: &'a Key, give_up: Option<(Time, i64)>) -> Sleeper<'a> {
        Sleeper { key, give_up, sleep: None, began: 0, deadlock_check: 0 }
    }

    /// Sleeps once, at most until `until`; the caller looks again. `lease` is what it saw last, for the message.
    pub fn sleep(&mut self, until: Time, lease: Option<&Lease<Name>>) -> Result<()> {
        let now = shared::at().now;
        if let Some((end, wait)) = self.give_up.filter(|(end, _)| *end <= now) {
            debug_assert!(end <= now);
            return Err(fail::timeout(self.key, wait, lease));
        }
        let Some(sleep) = &self.sleep else {
            // what happened until now may have gone unheard: look once more before sleeping
            self.sleep = Some(shared::sleeper().prepare());
            self.began = clock::boottime_micros();
            self.deadlock_check = self.began + xact::deadlock_timeout_ms() * 1000;
            xact::release_catalog_snapshot();
            return Ok(());
        };

        let steady = clock::boottime_micros();
        let lock_timeout = match xact::lock_timeout_ms() {
            0 => i64::MAX,
            ms => self.began + ms * 1000,
        };
        let mut left = until.since(now).min(SAFETY_TICK).min(self.deadlock_check - steady).min(lock_timeout - steady);
        if let Some((end, _)) = self.give_up {
            left = left.min(end.since(now));
        }
        if let Some(ms) = xact::statement_timeout_left() {
            left = left.min(ms * 1000);
        }
        // round up: a timer that fires early would only look in vain
        sleep.timed((left + 999).max(1000) / 1000, &WAIT_EVENT)?;

        if xact::statement_timeout_left().is_some_and(|ms| ms <= 0) {
            return Err(fail::statement_timeout());
        }
        let steady = clock::boottime_micros();
        if steady >= lock_timeout {
            return Err(fail::lock_timeout(self.key));
        }
        if steady >= self.deadlock_check {
            let me = proc::me();
            if shared::section(|section| section.breaks_deadlock(me)) {
                return Err(fail::deadlock(self.key));
            }
            self.deadlock_check = steady + xact::deadlock_timeout_ms() * 1000;
        }
        Ok(())
    }
}
