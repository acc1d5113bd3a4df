//! Answers as SQL values: what core's states, times and spans are called in SQL.
//!
//! Process: the backend that calls. Locks: none is held or needed.

use lease_core::{Kind, State, Status, Time};

use crate::pg::value::{Interval, Value};
use crate::session::WaitsFor;

pub fn state(state: State) -> Value<'static> {
    Value::Text(match state {
        State::Free => b"free",
        State::Held => b"held",
        State::Lapsed => b"lapsed",
    })
}

pub fn status(status: Status) -> Value<'static> {
    Value::Text(match status {
        Status::Ok => b"ok",
        Status::NotOwner => b"not_owner",
        Status::Lapsed => b"lapsed",
        Status::EpochMismatch => b"epoch_mismatch",
    })
}

/// Lease time.
pub fn time(time: Time) -> Value<'static> {
    Value::Timestamptz(time.0)
}

/// Microseconds as hours, minutes and seconds: without days, which are not 24 hours in every time zone.
pub fn span(micros: i64) -> Value<'static> {
    Value::Interval(Interval { months: 0, days: 0, micros })
}

/// NULL for what is absent.
pub fn or_null<'a, T>(value: Option<T>, encode: impl FnOnce(T) -> Value<'a>) -> Value<'a> {
    value.map_or(Value::Null, encode)
}

pub fn kind(kind: Kind) -> Value<'static> {
    Value::Text(match kind {
        Kind::Transition => b"transition",
        Kind::Renewal => b"renewal",
        Kind::Maintenance => b"maintenance",
        Kind::HandOff => b"hand-off",
    })
}

pub fn waits_for(what: WaitsFor) -> Value<'static> {
    Value::Text(match what {
        WaitsFor::Lease => b"lease",
        WaitsFor::UncommittedChange => b"uncommitted change",
        WaitsFor::Commit => b"commit",
        WaitsFor::Guard => b"guard",
    })
}
