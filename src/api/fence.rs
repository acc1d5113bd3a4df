//! `lease.fence()`, the trigger that lets a table be written only under a guard. Decodes what is written; whether it may be
//! is the session's to say.

use lease_core::{Name, NameError};

use crate::pg::function::{Call, Reply};
use crate::pg::trigger::{Column, Event, State, Trigger};
use crate::pg::value::Kind;
use crate::pg::{Error, Report, Result, sqlstate, text};
use crate::session::{self, Fenced};

/// Where a row's key is.
enum KeyIn {
    Column(Column),
    /// Boxed, as it is much larger than a column.
    Argument(Box<Name>),
}

/// `CREATE TRIGGER ... BEFORE INSERT OR UPDATE OR DELETE ... FOR EACH ROW EXECUTE FUNCTION lease.fence(key [, epoch column])`:
/// S9; I3.
///
/// - key: the name of a column of type text or varchar that holds the row's key, else the key itself. epoch column: of type
///   bigint; set to the epoch that the row is written under.
/// - LE003 unless this transaction has a guard, or its own grant, of the row's key; of both keys when an UPDATE changes it.
///   LE002 when its epoch is below the one stored in the row.
/// - Misuse: 39P01 (not BEFORE, not FOR EACH ROW, not a trigger), 22023 (number of arguments, key that cannot be one),
///   42703 (no such epoch column), 42804 (wrong type), 42P17 (generated column), 22004 (key is NULL).
pub fn fence(call: Call<'_>) -> Result<Reply<'_>> {
    session::ready()?;
    let trigger = call.trigger().filter(|t| t.is_before_row() && t.event() != Event::Truncate).ok_or_else(protocol)?;
    let key = key(&trigger)?;
    let epoch = if trigger.arguments() == 2 { Some(epoch_column(&trigger)?) } else { None };

    if trigger.event() == Event::Insert {
        let new = name(&trigger, State::New, &key)?;
        let written_under = may_write(&trigger, &key, &new, None)?;
        return go_on(call, &trigger, epoch, written_under);
    }
    let old = name(&trigger, State::Old, &key)?;
    let stored = epoch.map(|column| trigger.int8(State::Old, &column)).transpose()?.flatten();
    let mut written_under = may_write(&trigger, &key, &old, stored)?;
    if trigger.event() == Event::Delete {
        return Ok(call.go_on(trigger.row()));
    }
    let new = name(&trigger, State::New, &key)?;
    if new != old {
        written_under = may_write(&trigger, &key, &new, None)?;
    }
    go_on(call, &trigger, epoch, written_under)
}

fn go_on<'a>(call: Call<'a>, trigger: &Trigger<'a>, epoch: Option<Column>, written_under: i64) -> Result<Reply<'a>> {
    let Some(column) = epoch else { return Ok(call.go_on(trigger.row())) };
    if trigger.int8(State::New, &column)? == Some(written_under) {
        return Ok(call.go_on(trigger.row()));
    }
    Ok(call.go_on(trigger.row_with(&column, written_under)?))
}

fn may_write(trigger: &Trigger<'_>, key: &KeyIn, name: &Name, stored: Option<i64>) -> Result<i64> {
    session::may_write(name, stored, || Fenced {
        table: text::display(trigger.relation()),
        column: matches!(key, KeyIn::Column(_)).then(|| text::display(trigger.argument(0))),
    })
}

fn key(trigger: &Trigger<'_>) -> Result<KeyIn> {
    if !matches!(trigger.arguments(), 1 | 2) {
        return Err(Report::new(sqlstate::INVALID_PARAMETER_VALUE, "lease.fence() takes one or two arguments")
            .hint("The key, or the name of the column that holds it; and the name of a column for the epoch.")
            .into());
    }
    match trigger.column_named_by(0)? {
        Some(column) => {
            check(trigger, 0, column, Kind::Text, "text or varchar")?;
            Ok(KeyIn::Column(column))
        }
        None => {
            let key = Name::new(trigger.argument(0)).map_err(|error| no_key("argument of lease.fence()", error))?;
            Ok(KeyIn::Argument(key.into()))
        }
    }
}

fn epoch_column(trigger: &Trigger<'_>) -> Result<Column> {
    let column = trigger.column_named_by(1)?.ok_or_else(|| {
        let (column, table) = (text::display(trigger.argument(1)), text::display(trigger.relation()));
        let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
        Error::from(Report::new(sqlstate::UNDEFINED_COLUMN, message))
    })?;
    check(trigger, 1, column, Kind::Int8, "bigint")?;
    Ok(column)
}

fn check(trigger: &Trigger<'_>, argument: usize, column: Column, kind: Kind, types: &str) -> Result<()> {
    let name = || (text::display(trigger.argument(argument)), text::display(trigger.relation()));
    if column.kind() != Some(kind) {
        let (column, table) = name();
        let message = format!("column \"{column}\" of relation \"{table}\" is not of type {types}");
        return Err(Report::new(sqlstate::DATATYPE_MISMATCH, message).into());
    }
    if column.is_generated() {
        let (column, table) = name();
        let message = format!("lease.fence() cannot use generated column \"{column}\" of relation \"{table}\"");
        return Err(Report::new(sqlstate::INVALID_OBJECT_DEFINITION, message)
            .detail("Generated columns are computed after BEFORE triggers have run.")
            .into());
    }
    Ok(())
}

/// The row's key, before or after.
fn name(trigger: &Trigger<'_>, state: State, key: &KeyIn) -> Result<Name> {
    let column = match key {
        KeyIn::Argument(name) => return Ok(**name),
        KeyIn::Column(column) => column,
    };
    let shown = || format!("column \"{}\"", text::display(trigger.argument(0)));
    match trigger.text(state, column)? {
        Some(key) => Name::new(key).map_err(|error| no_key(&shown(), error)),
        None => {
            let table = text::display(trigger.relation());
            let message = format!("null value in {} of relation \"{table}\", which holds the lease's key", shown());
            Err(Report::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message).into())
        }
    }
}

fn no_key(place: &str, error: NameError) -> Error {
    let what = match error {
        NameError::Empty => "is empty",
        NameError::TooLong => "is too long",
    };
    Report::new(sqlstate::INVALID_PARAMETER_VALUE, format!("key in {place} {what}"))
        .detail("A key has 1 to 255 bytes.")
        .into()
}

fn protocol() -> Error {
    Report::new(
        sqlstate::TRIGGER_PROTOCOL_VIOLATED,
        "lease.fence() must be fired BEFORE INSERT, UPDATE or DELETE, FOR EACH ROW",
    )
    .into()
}
