//! Arguments. A wrong one is `invalid_input` (S7): 22004 for NULL, else 22023, and the message names it.
//!
//! Process: the backend that calls. Locks: none is held, as what is decoded may be detoasted and may be refused.

use lease_core::interval::{self, IntervalError};
use lease_core::{NAME_MAX_BYTES, Name, NameError};

use crate::pg::function::{Call, Jsonb};
use crate::pg::{Error, Report, Result, sqlstate};

/// The longest payload, as text.
const PAYLOAD_MAX_BYTES: usize = 1024;

/// What is stored in more bytes is longer than that as text, which takes at least a fifth as many.
const PAYLOAD_MAX_STORED: i32 = 16 * 1024;

/// A key or an owner: 1 to 255 bytes of the database's encoding.
pub fn name(call: Call<'_>, index: usize, argument: &str) -> Result<Name> {
    let bytes = call.text(index)?.ok_or_else(|| null(argument))?;
    Name::new(bytes).map_err(|error| match error {
        NameError::Empty => invalid(format!("{argument} must not be empty")).into(),
        NameError::TooLong => invalid(format!("{argument} must not be longer than {NAME_MAX_BYTES} bytes"))
            .detail(format!("It has {} bytes.", bytes.len()))
            .into(),
    })
}

/// Any value is an epoch; one that was never given is a mismatch, which is an answer and not an error.
pub fn epoch(call: Call<'_>, index: usize) -> Result<i64> {
    call.int8(index).ok_or_else(|| null("epoch"))
}

/// Microseconds, greater than zero.
pub fn ttl(call: Call<'_>, index: usize) -> Result<i64> {
    let span = call.interval(index).ok_or_else(|| null("ttl"))?;
    interval::ttl(span.months, span.days, span.micros).map_err(|error| wrong_span("ttl", error))
}

/// Microseconds, zero or more; NULL: do not wait.
pub fn wait(call: Call<'_>, index: usize) -> Result<Option<i64>> {
    let wait = call.interval(index).map(|span| interval::wait(span.months, span.days, span.micros));
    wait.transpose().map_err(|error| wrong_span("wait", error))
}

/// As `wait`, where there is no way not to wait.
pub fn needed_wait(call: Call<'_>, index: usize) -> Result<i64> {
    wait(call, index)?.ok_or_else(|| null("wait"))
}

/// A whole jsonb datum, not more than 1024 bytes as text.
pub fn payload(call: Call<'_>, index: usize) -> Result<Option<Box<[u8]>>> {
    let too_long = || invalid(format!("payload must not be longer than {PAYLOAD_MAX_BYTES} bytes as text"));
    match call.jsonb(index, PAYLOAD_MAX_STORED)? {
        None => Ok(None),
        Some(Jsonb::Stored { bytes, text_len }) if text_len <= PAYLOAD_MAX_BYTES => Ok(Some(bytes.into())),
        Some(Jsonb::Stored { text_len, .. }) => Err(too_long().detail(format!("It has {text_len} bytes.")).into()),
        Some(Jsonb::TooLong) => Err(too_long().into()),
    }
}

fn wrong_span(argument: &str, error: IntervalError) -> Error {
    match error {
        IntervalError::NotExact => invalid(format!("{argument} must be an exact elapsed time"))
            .detail("Months, years and infinity have no exact length.")
            .hint("Use days (24 hours each), hours, minutes and seconds.")
            .into(),
        IntervalError::TooSmall if argument == "wait" => invalid(format!("{argument} must not be negative")).into(),
        IntervalError::TooSmall => invalid(format!("{argument} must be greater than zero")).into(),
        IntervalError::TooLarge => invalid(format!("{argument} is out of range")).into(),
    }
}

fn null(argument: &str) -> Error {
    Report::new(sqlstate::NULL_VALUE_NOT_ALLOWED, format!("{argument} must not be null")).into()
}

fn invalid(message: String) -> Report {
    Report::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}
