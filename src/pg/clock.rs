//! Clocks: the steady one that lease time and all waits go by, the wall clock, and a short pause.
//!
//! In any process, also where nothing may be raised; takes no lock.

use super::sys;

#[cfg(target_os = "linux")]
const ELAPSED: libc::clockid_t = libc::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const ELAPSED: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Microseconds since some start; never steps, and counts suspended time where the system can.
pub fn boottime_micros() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer and a clock that the system has.
    let result = unsafe { libc::clock_gettime(ELAPSED, &raw mut now) };
    assert_eq!(result, 0, "clock_gettime");
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// The wall clock as PostgreSQL counts: microseconds since 2000-01-01 UTC.
pub fn wall_micros() -> i64 {
    // SAFETY: raises nothing.
    unsafe { sys::GetCurrentTimestamp() }
}

/// Sleeps through whatever happens, so for moments only.
pub fn pause(micros: i64) {
    // SAFETY: raises nothing.
    unsafe { sys::pgl_pause(micros) };
}
