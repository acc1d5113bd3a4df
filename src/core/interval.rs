//! A ttl or a wait: PostgreSQL's interval (months, days, microseconds) as an exact elapsed time.
//!
//! A day counts 24 hours whatever the session's time zone. A month has no fixed length, so an interval that names one is
//! refused even where months and days would cancel out. PostgreSQL 17 and later write 'infinity' as the extreme values of
//! all three fields: it has months, and is refused with them.

const DAY: i64 = 86_400_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntervalError {
    /// It names months or years, or is infinite.
    NotExact,
    /// Not greater than zero (ttl), or negative (wait).
    TooSmall,
    /// More microseconds than can be counted.
    TooLarge,
}

/// A ttl in microseconds: greater than zero.
pub fn ttl(months: i32, days: i32, micros: i64) -> Result<i64, IntervalError> {
    match exact(months, days, micros)? {
        micros @ 1.. => Ok(micros),
        _ => Err(IntervalError::TooSmall),
    }
}

/// A wait, or an idle time, in microseconds: zero or more.
pub fn wait(months: i32, days: i32, micros: i64) -> Result<i64, IntervalError> {
    match exact(months, days, micros)? {
        micros @ 0.. => Ok(micros),
        _ => Err(IntervalError::TooSmall),
    }
}

fn exact(months: i32, days: i32, micros: i64) -> Result<i64, IntervalError> {
    if months != 0 {
        return Err(IntervalError::NotExact);
    }
    i64::from(days).checked_mul(DAY).and_then(|d| d.checked_add(micros)).ok_or(IntervalError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_24_hours_and_add_up_exactly() {
        assert_eq!(ttl(0, 1, 0), Ok(DAY));
        assert_eq!(ttl(0, 1, -3_600_000_000), Ok(DAY - 3_600_000_000));
        assert_eq!(ttl(0, 0, 1), Ok(1));
        assert_eq!(ttl(0, -1, DAY + 1), Ok(1));
        assert_eq!(wait(0, 100_000, 0), Ok(100_000 * DAY));
    }

    #[test]
    fn what_has_no_exact_length_is_refused() {
        assert_eq!(ttl(1, 0, 0), Err(IntervalError::NotExact));
        assert_eq!(ttl(1, -29, 0), Err(IntervalError::NotExact));
        assert_eq!(ttl(i32::MAX, i32::MAX, i64::MAX), Err(IntervalError::NotExact));
        assert_eq!(wait(-12, 0, 0), Err(IntervalError::NotExact));
    }

    #[test]
    fn zero_is_a_wait_but_no_ttl() {
        assert_eq!(ttl(0, 0, 0), Err(IntervalError::TooSmall));
        assert_eq!(ttl(0, -1, 0), Err(IntervalError::TooSmall));
        assert_eq!(wait(0, 0, 0), Ok(0));
        assert_eq!(wait(0, 0, -1), Err(IntervalError::TooSmall));
    }

    #[test]
    fn overflow_is_refused() {
        assert_eq!(ttl(0, i32::MAX, i64::MAX), Err(IntervalError::TooLarge));
        assert_eq!(wait(0, i32::MIN, i64::MIN), Err(IntervalError::TooLarge));
    }
}
