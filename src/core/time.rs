//! Lease time: microseconds since 2000-01-01 00:00 UTC, the unit and epoch of PostgreSQL's timestamps.

/// How long a hand-off reserves a key for the head of its queue, in microseconds.
pub const GRACE: i64 = 100_000;

/// A point in lease time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub i64);

impl Time {
    /// Later than every instant that occurs: "no deadline".
    pub const NEVER: Time = Time(i64::MAX);
    /// Earlier than every instant that occurs.
    pub const PAST: Time = Time(i64::MIN);
    /// The last instant that PostgreSQL's timestamps can show (294276-12-31), exclusive.
    pub const LIMIT: Time = Time(9_223_371_331_200_000_000);

    pub fn plus(self, micros: i64) -> Time {
        Time(self.0.saturating_add(micros))
    }

    pub fn minus(self, micros: i64) -> Time {
        Time(self.0.saturating_sub(micros))
    }

    /// Microseconds from `earlier` to `self`; negative when `earlier` is later.
    pub fn since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// So many microseconds in milliseconds, for a timer. Rounded up: one that fires early would only look in vain.
pub fn milliseconds(micros: i64) -> i64 {
    micros.max(0).saturating_add(999) / 1000
}

/// Fixes lease time to a clock that never steps: taken once, when the server starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Anchor {
    /// The wall clock at that moment.
    pub start: Time,
    /// The steady clock at that moment, in microseconds.
    pub steady: i64,
}

impl Anchor {
    /// Lease time when the steady clock shows `steady` microseconds.
    pub fn time(&self, steady: i64) -> Time {
        self.start.plus(steady.saturating_sub(self.steady))
    }
}

/// The instant at which something is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    pub now: Time,
    /// Since when this server may change leases, the start that rows name in `clock_base`: times of rows written under
    /// another start are read against it.
    pub start: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_time_follows_the_steady_clock_from_the_anchor() {
        let anchor = Anchor { start: Time(1_000_000), steady: 500 };
        assert_eq!(anchor.time(500), Time(1_000_000));
        assert_eq!(anchor.time(750), Time(1_000_250));
    }

    #[test]
    fn timers_are_rounded_up() {
        let expected = [(i64::MIN, 0), (0, 0), (1, 1), (1000, 1), (1001, 2), (i64::MAX, i64::MAX / 1000)];
        assert_eq!(expected.map(|(micros, _)| (micros, milliseconds(micros))), expected);
    }

    #[test]
    fn sums_stop_at_the_ends() {
        assert_eq!(Time::NEVER.plus(1), Time::NEVER);
        assert_eq!(Time::PAST.minus(1), Time::PAST);
        assert_eq!(Time::NEVER.since(Time::PAST), i64::MAX);
        assert_eq!(Time(5).since(Time(8)), -3);
    }
}
