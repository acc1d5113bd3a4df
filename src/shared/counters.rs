//! Counts of what has happened since the server started, crash restarts starting anew.
//!
//! Plain atomics beside the memory that the claims lock protects: whoever counts takes no lock, and two counts read one after
//! the other need not agree.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Calls and commits that had to sleep.
    Waits,
    /// Processes woken because something that they wait for has changed.
    WakeUps,
    /// Keys reserved for the head of their queue.
    HandOffs,
    /// Heads that let their turn pass.
    PassedOver,
    /// Sleeps that nobody and no timer of their own ended, but the safety tick.
    SafetyTicks,
    /// Those of them after which there was something to do: zero, unless a process is frozen.
    SafetyTicksThatHelped,
    /// Blocking acquires that ran out of time.
    Timeouts,
    /// Waits that ended because they closed a ring.
    Deadlocks,
}

impl Counter {
    pub const ALL: [(Counter, &'static str); 8] = [
        (Counter::Waits, "waits"),
        (Counter::WakeUps, "wake_ups"),
        (Counter::HandOffs, "hand_offs"),
        (Counter::PassedOver, "passed_over"),
        (Counter::SafetyTicks, "safety_ticks"),
        (Counter::SafetyTicksThatHelped, "safety_ticks_that_helped"),
        (Counter::Timeouts, "timeouts"),
        (Counter::Deadlocks, "deadlocks"),
    ];
    pub const COUNT: usize = Counter::ALL.len();

    pub fn add(self, n: u64) {
        if n == 0 {
            return;
        }
        self.place().fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(self) -> u64 {
        self.place().load(Ordering::Relaxed)
    }

    fn place(self) -> &'static AtomicU64 {
        layout::get().counter(self as usize)
    }
}
