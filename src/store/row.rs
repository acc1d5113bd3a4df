//! A row of `lease.entry` and the lease that it stands for: the one place that knows the table's columns.
//!
//! The table can be written past the library, and a dump be restored into it, so a row is checked as it is read, and copied:
//! it is in reach only while it is pinned. Takes no lock.

use std::ffi::CStr;

use lease_core::{Lease, Name, NameError, State, Time};

use crate::pg::table::{self, Shape};
use crate::pg::value::{Kind, Value};
use crate::pg::{Error, Report, Result, memory, sqlstate};

pub(super) static ENTRY: Shape =
    Shape { schema: c"lease", name: c"entry", extension: EXTENSION, columns: &COLUMNS, key: Some(KEY) };

const EXTENSION: &CStr = c"pg_lease";

/// As the install script creates them.
const COLUMNS: [Kind; 11] = {
    let mut columns = [Kind::Text; 11];
    columns[EPOCH] = Kind::Int8;
    columns[TTL] = Kind::Int8;
    columns[GRANTED_AT] = Kind::Timestamptz;
    columns[RENEWED_AT] = Kind::Timestamptz;
    columns[EXPIRES_AT] = Kind::Timestamptz;
    columns[CLOCK_BASE] = Kind::Timestamptz;
    columns[STATE] = Kind::Char;
    columns[PAYLOAD] = Kind::Jsonb;
    columns
};

const EPOCH: usize = 0;
const TTL: usize = 1;
const GRANTED_AT: usize = 2;
const RENEWED_AT: usize = 3;
const EXPIRES_AT: usize = 4;
const CLOCK_BASE: usize = 5;
const STATE: usize = 6;
const KEY: usize = 7;
const OWNER: usize = 8;
const GRANTED_TO: usize = 9;
const PAYLOAD: usize = 10;

pub(super) static FLOOR: Shape =
    Shape { schema: c"lease", name: c"epoch_floor", extension: EXTENSION, columns: &[Kind::Int8], key: None };

#[derive(Clone, Debug)]
pub struct Row {
    pub lease: Lease<Name>,
    /// The role that the last grant was made to.
    pub granted_to: Option<Box<[u8]>>,
    /// A whole jsonb datum.
    pub payload: Option<Box<[u8]>>,
}

impl Row {
    pub(super) fn read(row: &table::Row<'_>) -> Result<Row> {
        let state = match row.char(STATE) {
            b'f' => State::Free,
            b'h' => State::Held,
            b'l' => State::Lapsed,
            _ => return Err(foreign("state")),
        };
        let owner = row.text(OWNER).map(Name::new).transpose().map_err(|_: NameError| foreign("owner"))?;
        if owner.is_none() != (state == State::Free) {
            return Err(foreign("owner"));
        }
        Ok(Row {
            lease: Lease {
                state,
                epoch: row.int8(EPOCH),
                owner,
                ttl: row.int8(TTL),
                granted_at: Time(row.int8(GRANTED_AT)),
                renewed_at: Time(row.int8(RENEWED_AT)),
                expires_at: Time(row.int8(EXPIRES_AT)),
                clock_base: Time(row.int8(CLOCK_BASE)),
            },
            granted_to: row.text(GRANTED_TO).map(memory::copy).transpose()?,
            payload: row.varlena(PAYLOAD).map(memory::copy).transpose()?,
        })
    }
}

pub(super) fn key(row: &table::Row<'_>) -> Result<Name> {
    row.text(KEY).and_then(|key| Name::new(key).ok()).ok_or_else(|| foreign("key"))
}

/// For a row that the table's constraints forbid.
fn foreign(column: &str) -> Error {
    Report::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("lease.entry contains a row that pg_lease did not write: column \"{column}\""),
    )
    .into()
}

/// The row as it is written. An unowned lease publishes nothing, so only a held one has a payload.
pub(super) fn values<'a>(
    key: &'a Name,
    lease: &'a Lease<Name>,
    granted_to: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
) -> [Value<'a>; COLUMNS.len()] {
    let mut values = [Value::Null; COLUMNS.len()];
    values[EPOCH] = Value::Int8(lease.epoch);
    values[TTL] = Value::Int8(lease.ttl);
    values[GRANTED_AT] = Value::Timestamptz(lease.granted_at.0);
    values[RENEWED_AT] = Value::Timestamptz(lease.renewed_at.0);
    values[EXPIRES_AT] = Value::Timestamptz(lease.expires_at.0);
    values[CLOCK_BASE] = Value::Timestamptz(lease.clock_base.0);
    values[STATE] = Value::Char(match lease.state {
        State::Free => b'f',
        State::Held => b'h',
        State::Lapsed => b'l',
    });
    values[KEY] = Value::Text(key.as_bytes());
    values[OWNER] = lease.owner.as_ref().map_or(Value::Null, |owner| Value::Text(owner.as_bytes()));
    values[GRANTED_TO] = granted_to.map_or(Value::Null, Value::Text);
    values[PAYLOAD] = payload.filter(|_| lease.state == State::Held).map_or(Value::Null, Value::Varlena);
    values
}
