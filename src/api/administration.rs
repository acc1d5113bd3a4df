//! What only the DBA may call: EXECUTE is revoked from PUBLIC.
//!
//! Process: the backend that calls. Locks: none here; `session` takes the claims lock for force_release.

use super::{input, output};
use crate::pg::Result;
use crate::pg::function::{Call, Reply};
use crate::pg::value::Value;
use crate::session;

/// `lease.force_release(key text)` returns `(owner text, epoch bigint)`, as they were: S4.3; I2, I3.
///
/// - key: 1 to 255 bytes, else 22023; NULL is 22004.
/// - owner is NULL for an unowned key. A key never seen: NULL and the floor, and nothing is written.
/// - Ends the hold and raises the epoch by one when its transaction commits. Ends whoever's uncommitted change of the key at
///   once, and for good: that transaction's COMMIT raises LE001. Waits for one that is already committing.
/// - On an unowned key it gives way to whoever acquires it before the commit.
pub fn force_release(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let was = session::force_release(input::name(call, 0, "key")?)?;
    call.row(&[output::or_null(was.owner.as_ref(), |owner| Value::Text(owner.as_bytes())), Value::Int8(was.epoch)])
}

/// `lease.reset_stats() RETURNS void`: the counters of this database begin anew.
pub fn reset_stats(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    session::reset_stats();
    Ok(call.null())
}
