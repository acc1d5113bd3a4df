//! The four operations (S4). Each judges the latest committed state, and the caller's own uncommitted changes, at the lease
//! clock's time of the call, after any wait (I7); what it changes is written when the transaction commits (S8, I6).

use lease_core::Status;

use super::{input, output};
use crate::pg::Result;
use crate::pg::function::{Call, Reply};
use crate::pg::value::Value;
use crate::session::{self, Acquire, Grant};

/// `lease.acquire(key text, owner text, ttl interval, wait interval, payload jsonb)`
/// returns `(acquired boolean, epoch bigint, expires_at timestamptz)`: S4.1; I1, I2, I5.
///
/// - key, owner: 1 to 255 bytes. ttl: exact, greater than zero, counted in microseconds. payload: NULL, or up to 1024 bytes
///   as text. Else 22023; 22004 for a NULL key, owner or ttl.
/// - wait NULL: does not wait; a key that cannot be had now is `(false, NULL, NULL)` (`not_acquirable`).
/// - wait: exact, zero or more (else 22023): waits up to that long, then raises 57014 (`timeout`).
/// - expires_at is lease time: the clock at the grant, plus ttl.
pub fn acquire(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let grant = session::acquire(Acquire {
        key: input::name(call, 0, "key")?,
        owner: input::name(call, 1, "owner")?,
        ttl: input::ttl(call, 2)?,
        wait: input::wait(call, 3)?,
        payload: input::payload(call, 4)?,
    })?;
    granted(call, grant)
}

/// `lease.wait_acquire(key text, owner text, ttl interval, wait interval, INOUT acquired boolean, INOUT epoch bigint,
/// INOUT expires_at timestamptz)`, a procedure: S4.1; I1, I2, I5.
///
/// - As `acquire` with a wait, without a payload; a NULL wait is 22004.
/// - Commits the caller's transaction first and waits without a snapshot, a transaction id or locks. Where it cannot commit,
///   as in a transaction block or a function: 2D000.
/// - What it answers counts once the transaction that it leaves open has committed, as ever: CALL on its own does so.
pub fn wait_acquire(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let asked = Acquire {
        key: input::name(call, 0, "key")?,
        owner: input::name(call, 1, "owner")?,
        ttl: input::ttl(call, 2)?,
        wait: Some(input::needed_wait(call, 3)?),
        payload: None,
    };
    let grant = session::wait_acquire(asked, call.is_atomic())?;
    granted(call, grant)
}

fn granted<'a>(call: Call<'a>, grant: Option<Grant>) -> Result<Reply<'a>> {
    match grant {
        Some(grant) => call.row(&[Value::Bool(true), Value::Int8(grant.epoch), output::time(grant.expires_at)]),
        None => call.row(&[Value::Bool(false), Value::Null, Value::Null]),
    }
}

/// `lease.renew(key text, owner text, epoch bigint, ttl interval)` returns `(status text, expires_at timestamptz)`: S4.2; I8,
/// I10.
///
/// - Arguments as of `acquire`; a NULL is 22004.
/// - status: `ok`, `not_owner`, `lapsed`, `epoch_mismatch`, looked for in the order not_owner, lapsed, epoch_mismatch.
///   expires_at is NULL unless `ok`.
/// - Waits while another session's uncommitted change of the key stands, until that change's deadline at most.
pub fn renew(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let key = input::name(call, 0, "key")?;
    let owner = input::name(call, 1, "owner")?;
    let epoch = input::epoch(call, 2)?;
    let ttl = input::ttl(call, 3)?;
    let (status, expires_at) = session::renew(key, owner, epoch, ttl)?;
    call.row(&[output::status(status), output::or_null(expires_at, output::time)])
}

/// `lease.release(key text, owner text, epoch bigint)` returns `status text`: S4.3; I2, I10.
///
/// Arguments, status and waiting as of `renew`. `ok` raises the key's epoch by one and leaves it free.
pub fn release(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let key = input::name(call, 0, "key")?;
    let owner = input::name(call, 1, "owner")?;
    let epoch = input::epoch(call, 2)?;
    let status: Status = session::release(key, owner, epoch)?;
    call.value(output::status(status))
}

/// `lease.inspect(key text)` returns `(state text, owner text, epoch bigint, expires_at timestamptz, remaining interval,
/// payload jsonb, in_flight boolean)`, always one row: S4.4; I4, I6.
///
/// - key: 1 to 255 bytes, else 22023; NULL is 22004.
/// - state: `free`, `held` or `lapsed`, as of now, whether or not a lapse was written down yet. Unless held: owner, expires_at,
///   remaining and payload are NULL. epoch is the key's counter, the floor for a key never seen.
/// - remaining is expires_at less lease time, exact.
/// - in_flight: another session's uncommitted change of the key is under way.
/// - Changes nothing and never waits; works in a read-only transaction and on a standby.
pub fn inspect(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let found = session::inspect(input::name(call, 0, "key")?)?;
    call.row(&[
        output::state(found.state),
        output::or_null(found.owner.as_ref(), |owner| Value::Text(owner.as_bytes())),
        Value::Int8(found.epoch),
        output::or_null(found.expires_at, output::time),
        output::or_null(found.remaining, output::span),
        output::or_null(found.payload.as_deref(), Value::Varlena),
        Value::Bool(found.in_flight),
    ])
}

/// `lease.guard(key text, owner text, epoch bigint)` returns `expires_at timestamptz`: S8, S9; I3.
///
/// - Arguments as of `renew`.
/// - Raises LE003 (another holder, or none), LE001 (lapsed), LE002 (acquired again since), looked for in this order.
/// - The transaction's COMMIT raises the same unless the lease is still held so, and no takeover, release or force_release
///   becomes visible before the commit does.
/// - Does not wait. REPEATABLE READ and SERIALIZABLE: 40001 if the snapshot is from before this term.
/// - In a read-only transaction and on a standby it is judged at the call only.
pub fn guard(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let key = input::name(call, 0, "key")?;
    let owner = input::name(call, 1, "owner")?;
    let epoch = input::epoch(call, 2)?;
    call.value(output::time(session::guard(key, owner, epoch)?))
}
