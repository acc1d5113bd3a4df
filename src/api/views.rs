//! The lease clock and the views. All of it changes no lease, and works in a read-only transaction and on a standby.
//!
//! Process: the backend that calls. Locks: those of what is read, each for its own time: the claims lock for claims and
//! waiters, and the table for leases. The statistics are read without one.

use super::output;
use crate::pg::Result;
use crate::pg::function::{Call, Reply};
use crate::pg::value::Value;
use crate::session;

/// `lease.now()` returns `timestamptz`: the lease clock, which every expiry is judged by (I7).
pub fn now(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    call.value(output::time(session::clock()?.lease))
}

/// View `lease.clock`: `(lease_time timestamptz, wall_time timestamptz)`, both read at one moment.
pub fn read_clock(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let clock = session::clock()?;
    call.row(&[output::time(clock.lease), output::time(clock.wall)])
}

/// View `lease.leases`: one row per key that has a row or an uncommitted change of the caller's, as of now.
///
/// Unless held, owner, expires_at, remaining and payload are NULL. ttl, granted_at and renewed_at are those of the last
/// grant or renewal; granted_to is the role that the last grant was made to, NULL once released.
pub fn list_leases(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let mut rows = call.rows()?;
    session::leases(|lease| {
        rows.push(&[
            Value::Text(lease.key.as_bytes()),
            output::state(lease.state),
            output::or_null(lease.owner.as_ref(), |owner| Value::Text(owner.as_bytes())),
            Value::Int8(lease.epoch),
            output::or_null(lease.expires_at, output::time),
            output::or_null(lease.remaining, output::span),
            output::span(lease.ttl),
            output::time(lease.granted_at),
            output::time(lease.renewed_at),
            output::or_null(lease.granted_to.as_deref(), Value::Text),
            output::or_null(lease.payload.as_deref(), Value::Varlena),
            Value::Bool(lease.in_flight),
        ])
    })?;
    Ok(rows.finish())
}

/// View `lease.claims`: the uncommitted changes of this database's keys, by whatever session.
pub fn list_claims(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let mut rows = call.rows()?;
    for claim in session::claims()? {
        rows.push(&[
            Value::Text(claim.key.as_bytes()),
            output::or_null(claim.pid, Value::Int4),
            output::kind(claim.kind),
            output::or_null(claim.owner.as_ref(), |owner| Value::Text(owner.as_bytes())),
            output::or_null(claim.epoch, Value::Int8),
            output::time(claim.since),
            output::or_null(claim.deadline, output::time),
            Value::Bool(claim.sealed),
        ])?;
    }
    Ok(rows.finish())
}

/// View `lease.waiters`: who waits for this database's keys.
///
/// waits_for and blocker_pid say what stands in the way now. position is NULL for who does not queue for the lease but waits
/// for another transaction's change of it to end; deadline is NULL for who does not give up by itself.
pub fn list_waiters(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let mut rows = call.rows()?;
    for waiter in session::waiters()? {
        rows.push(&[
            Value::Text(waiter.key.as_bytes()),
            Value::Int4(waiter.pid),
            output::or_null(waiter.owner.as_ref(), |owner| Value::Text(owner.as_bytes())),
            output::or_null(waiter.position, Value::Int4),
            output::time(waiter.since),
            output::or_null(waiter.deadline, output::time),
            output::waits_for(waiter.waits_for),
            output::or_null(waiter.blocker, Value::Int4),
        ])?;
    }
    Ok(rows.finish())
}

/// View `lease.stats`: what is counted for this database, in the order of `shared::Counter`; NULLs where nothing is counted.
pub fn read_stats(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let Some(stats) = session::stats() else { return call.row(&[Value::Null; session::COUNTERS + 3]) };
    let counts = stats.counts.iter().map(|count| Value::Int8(i64::try_from(*count).unwrap_or(i64::MAX)));
    let delays = [output::span(stats.sweep_delay_last), output::span(stats.sweep_delay_max)];
    let values: Vec<Value<'_>> = counts.chain(delays).chain([output::time(stats.since)]).collect();
    call.row(&values)
}

/// View `lease.sweepers`: every database in which the extension is used, and how it stands with its sweeper.
///
/// last_error, which can name a key, is shown for the caller's database only.
pub fn list_sweepers(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let mut rows = call.rows()?;
    for sweeper in session::sweepers()? {
        rows.push(&[
            output::or_null(sweeper.database.as_deref(), Value::Text),
            output::or_null(sweeper.pid, Value::Int4),
            Value::Text(sweeper.status.as_bytes()),
            output::or_null(sweeper.next_deadline, output::time),
            output::or_null(sweeper.leases, |leases| Value::Int8(i64::try_from(leases).unwrap_or(i64::MAX))),
            output::or_null(sweeper.last_error.as_deref(), Value::Text),
        ])?;
    }
    Ok(rows.finish())
}
