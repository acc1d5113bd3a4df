//! Row triggers: which row is written, and what goes on in its place.
//!
//! In the backend whose statement fired it, once per row, so what every row needs is read without the catalogs. Rows and
//! names live as long as the call. Takes no lock.

use std::ffi::CStr;
use std::marker::PhantomData;

use super::error::Result;
use super::function::bytes;
use super::guard::{c_text, call};
use super::sys::{self, PglEvent, PglKind};
use super::value::{CValue, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Insert,
    Update,
    Delete,
    Truncate,
}

/// One firing of a trigger.
pub struct Trigger<'a> {
    raw: sys::PglTrigger,
    _call: PhantomData<&'a ()>,
}

/// A column of the table that the trigger is on.
#[derive(Clone, Copy)]
pub struct Column {
    raw: sys::PglColumn,
}

/// The two states of a row that is written. An insert has a new one only, a delete an old one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Old,
    New,
}

/// What the write goes on with.
pub struct Row<'a> {
    datum: sys::Datum,
    _call: PhantomData<&'a ()>,
}

impl Row<'_> {
    pub(super) fn datum(&self) -> sys::Datum {
        self.datum
    }
}

impl Column {
    /// Its type, below a domain, if it is text (or varchar) or bigint.
    pub fn kind(&self) -> Option<Kind> {
        match self.raw.kind {
            kind if kind == PglKind::PGL_TEXT as i32 => Some(Kind::Text),
            kind if kind == PglKind::PGL_INT8 as i32 => Some(Kind::Int8),
            _ => None,
        }
    }

    /// Computed only after BEFORE triggers have run.
    pub fn is_generated(&self) -> bool {
        self.raw.generated
    }
}

impl<'a> Trigger<'a> {
    pub(super) fn of(fcinfo: sys::FunctionCallInfo) -> Option<Trigger<'a>> {
        let mut raw = sys::PglTrigger {
            data: std::ptr::null_mut(),
            event: 0,
            before_row: false,
            arguments: 0,
            relation: std::ptr::null(),
        };
        // SAFETY: PostgreSQL's call structure; raises nothing.
        unsafe { sys::pgl_trigger(fcinfo, &raw mut raw) }.then_some(Trigger { raw, _call: PhantomData })
    }

    pub fn event(&self) -> Event {
        match self.raw.event {
            event if event == PglEvent::PGL_INSERT as i32 => Event::Insert,
            event if event == PglEvent::PGL_UPDATE as i32 => Event::Update,
            event if event == PglEvent::PGL_DELETE as i32 => Event::Delete,
            _ => Event::Truncate,
        }
    }

    pub fn is_before_row(&self) -> bool {
        self.raw.before_row
    }

    pub fn relation(&self) -> &'a [u8] {
        // SAFETY: the name of the relation, which stays open for the call.
        unsafe { CStr::from_ptr(self.raw.relation) }.to_bytes()
    }

    pub fn arguments(&self) -> usize {
        self.raw.arguments as usize
    }

    pub fn argument(&self, i: usize) -> &'a [u8] {
        assert!(i < self.arguments(), "no argument {i}");
        // SAFETY: in range; the text lives as long as the relation is open.
        unsafe { bytes(sys::pgl_trigger_argument(&raw const self.raw, i as i32)) }
    }

    /// The column that an argument names, if the table has it.
    pub fn column_named_by(&self, argument: usize) -> Result<Option<Column>> {
        let name = c_text(Some(self.argument(argument)));
        let mut column = sys::PglColumn { number: 0, kind: PglKind::PGL_NULL as i32, generated: false };
        let (trigger, to_column) = (&raw const self.raw, &raw mut column);
        // SAFETY: a trigger's argument, so it is terminated as the C side needs it.
        call(|| unsafe { sys::pgl_trigger_column(trigger, name, to_column) })?;
        Ok((column.number > 0).then_some(Column { raw: column }))
    }

    /// Of a text column; None: NULL.
    pub fn text(&self, state: State, column: &Column) -> Result<Option<&'a [u8]>> {
        assert_eq!(column.kind(), Some(Kind::Text));
        let value = self.value(state, column)?;
        // SAFETY: in the row, or a copy in the memory of the call.
        Ok(value.map(|value| unsafe { bytes(sys::PglText { data: value.data, len: value.len }) }))
    }

    /// Of a bigint column; None: NULL.
    pub fn int8(&self, state: State, column: &Column) -> Result<Option<i64>> {
        assert_eq!(column.kind(), Some(Kind::Int8));
        Ok(self.value(state, column)?.map(|value| value.number))
    }

    fn value(&self, state: State, column: &Column) -> Result<Option<sys::PglValue>> {
        let absent = match state {
            State::Old => Event::Insert,
            State::New => Event::Delete,
        };
        assert!(self.is_before_row() && self.event() != absent && self.event() != Event::Truncate);
        let mut value = CValue::NULL.0;
        let (trigger, column, to_value) = (&raw const self.raw, &raw const column.raw, &raw mut value);
        let old = state == State::Old;
        // SAFETY: the row has that state, and the column is one of this trigger's table.
        call(|| unsafe { sys::pgl_trigger_value(trigger, old, column, to_value) })?;
        Ok((value.kind != PglKind::PGL_NULL as i32).then_some(value))
    }

    /// The row as it is.
    pub fn row(&self) -> Row<'a> {
        // SAFETY: raises nothing.
        Row { datum: unsafe { sys::pgl_trigger_row(&raw const self.raw) }, _call: PhantomData }
    }

    /// The new row with that bigint column set.
    pub fn row_with(&self, column: &Column, value: i64) -> Result<Row<'a>> {
        assert!(self.event() != Event::Delete && column.kind() == Some(Kind::Int8));
        let (trigger, column) = (&raw const self.raw, &raw const column.raw);
        // SAFETY: the column is one of this trigger's table.
        let datum = call(|| unsafe { sys::pgl_trigger_row_with(trigger, column, value) })?;
        Ok(Row { datum, _call: PhantomData })
    }
}
