//! Tables of our own, read and written by the access methods' calls, without executor or SPI.
//!
//! A table has one text primary key, or none and at most one row that matters. Triggers, rules, constraints other
//! than NOT NULL and the key, row security and privileges are passed by: the table is closed to everybody else.

use std::ffi::CStr;
use std::marker::PhantomData;

use super::error::{Error, Report, Result, sqlstate};
use super::function::bytes;
use super::guard::{c_text, call};
use super::sys::{self, PglKind, PglOpen, PglOutcome, PglView};
use super::value::{CRow, Kind, Value};

/// What a table must be; checked each time it is opened.
pub struct Shape {
    pub schema: &'static CStr,
    pub name: &'static CStr,
    /// That it is part of: a table of that name which is not is nobody's business.
    pub extension: &'static CStr,
    pub columns: &'static [Kind],
    /// The column of the primary key, a text COLLATE "C".
    pub key: Option<usize>,
}

// Shape passes its columns to C as PglKind.
const _: () = assert!(size_of::<Kind>() == size_of::<i32>());
const _: () = assert!(size_of::<super::value::CValue<'static>>() == size_of::<sys::PglValue>());

/// Which version of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Committed now, or written by this transaction. No snapshot is built, and SERIALIZABLE does not track it. Beside
    /// a concurrent update that is not HOT it can find nothing at all: the caller must be able to tell.
    Latest,
    /// Committed at one instant of the call. A snapshot is built, so no row is ever missed; not tracked by SERIALIZABLE.
    Instant,
    /// What the transaction's snapshot sees; not tracked by SERIALIZABLE either.
    Transaction,
}

/// What came of a write.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Nothing written: the row is not any more, or already, what was looked at.
    Changed,
    /// Nothing written: a running transaction has the row locked, or is writing it.
    Locked,
}

/// An open table.
pub struct Table {
    raw: sys::PglTable,
}

/// Whether there is a table of that name in that extension. Waits for no lock on it.
pub fn exists(shape: &Shape) -> Result<bool> {
    let c_shape = CShape::new(shape);
    let to_shape = &raw const c_shape.0;
    // SAFETY: the shape outlives the call.
    call(|| unsafe { sys::pgl_table_exists(to_shape) })
}

/// Opens a table for reading, and locks it for that long only.
pub fn read<R>(shape: &Shape, f: impl FnOnce(&mut Table) -> Result<R>) -> Result<R> {
    with(shape, false, f)
}

/// Opens a table for writing. It and its indexes stay locked to the end of the transaction.
pub fn write<R>(shape: &Shape, f: impl FnOnce(&mut Table) -> Result<R>) -> Result<R> {
    with(shape, true, f)
}

fn with<R>(shape: &Shape, for_writing: bool, f: impl FnOnce(&mut Table) -> Result<R>) -> Result<R> {
    let c_shape = CShape::new(shape);
    let mut table = Table { raw: EMPTY };
    let (to_shape, to_table) = (&raw const c_shape.0, &raw mut table.raw);
    // SAFETY: both outlive the open table.
    let opened = call(|| unsafe { sys::pgl_table_open(to_shape, for_writing, to_table) })?;
    opened_or_error(opened, shape)?;
    let result = f(&mut table)?;
    let to_table = &raw mut table.raw;
    // SAFETY: open. After an error, above, the resource owner closes it.
    call(|| unsafe { sys::pgl_table_close(to_table, for_writing) })?;
    Ok(result)
}

/// Whether it is the error of a table that is not there.
pub fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Own(report) if report.table_is_missing)
}

fn opened_or_error(opened: i32, shape: &Shape) -> Result<()> {
    let name = || format!("{}.{}", shape.schema.to_string_lossy(), shape.name.to_string_lossy());
    const MISSING: i32 = PglOpen::PGL_MISSING as i32;
    const FOREIGN: i32 = PglOpen::PGL_FOREIGN as i32;
    const MISSHAPEN: i32 = PglOpen::PGL_MISSHAPEN as i32;
    match opened {
        MISSING => {
            let message = format!("table \"{}\" does not exist", name());
            let report = Report::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            Err(Report { table_is_missing: true, ..report.detail("It is part of the extension.") }.into())
        }
        FOREIGN => Err(Error::from(
            Report::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("table \"{}\" is not part of extension {}", name(), shape.extension.to_string_lossy()),
            )
            .detail("It was made by somebody else, or taken out of the extension.")
            .hint("If it is the one that the extension made, put it back with ALTER EXTENSION ... ADD TABLE."),
        )),
        MISSHAPEN => Err(Error::from(
            Report::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("table \"{}\" is not as the extension made it", name()),
            )
            .detail("Its columns, storage or indexes were changed, or the extension's version is not the library's.")
            .hint("Undo the change, or update the extension with ALTER EXTENSION ... UPDATE."),
        )),
        _ => Ok(()),
    }
}

impl Table {
    /// Finds the row with that key. It is in reach only inside the closure.
    pub fn find<R>(&mut self, key: &[u8], view: View, f: impl FnOnce(&Row<'_>) -> Result<R>) -> Result<Option<R>> {
        let found = self.look(Some(key), view)?;
        self.with_row(found, f)
    }

    /// The one row of a table without a key.
    pub fn only<R>(&mut self, view: View, f: impl FnOnce(&Row<'_>) -> Result<R>) -> Result<Option<R>> {
        let found = self.look(None, view)?;
        self.with_row(found, f)
    }

    /// Visits every row that a snapshot taken now sees.
    pub fn scan(&mut self, mut f: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        let mut scan = sys::PglScan { scan: std::ptr::null_mut(), visible: std::ptr::null_mut() };
        let (table, to_scan) = (&raw mut self.raw, &raw mut scan);
        // SAFETY: open.
        call(|| unsafe { sys::pgl_table_scan(table, to_scan) })?;
        loop {
            let (table, to_scan) = (&raw mut self.raw, &raw mut scan);
            // SAFETY: open, and the scan has not come to its end.
            if !call(|| unsafe { sys::pgl_table_next(table, to_scan) })? {
                return Ok(());
            }
            f(&self.row())?;
        }
    }

    /// Looks at the latest row with that key, to write over it.
    pub fn change<R>(&mut self, key: &[u8], f: impl FnOnce(Slot<'_>) -> Result<R>) -> Result<R> {
        let found = self.look(Some(key), View::Latest)?;
        self.with_slot(found, f)
    }

    fn look(&mut self, key: Option<&[u8]>, view: View) -> Result<bool> {
        let view = match view {
            View::Latest => PglView::PGL_LATEST,
            View::Instant => PglView::PGL_INSTANT,
            View::Transaction => PglView::PGL_TRANSACTION,
        } as i32;
        let table = &raw mut self.raw;
        match key {
            Some(key) => {
                assert!(self.raw.indexes_open > 0, "a table without a key is not searched by key");
                let key = c_text(Some(key));
                // SAFETY: open, with the index on its key first.
                call(|| unsafe { sys::pgl_table_find(table, key, view) })
            }
            // SAFETY: open.
            None => call(|| unsafe { sys::pgl_table_first(table, view) }),
        }
    }

    fn with_row<R>(&mut self, found: bool, f: impl FnOnce(&Row<'_>) -> Result<R>) -> Result<Option<R>> {
        if !found {
            return Ok(None);
        }
        let result = f(&self.row())?;
        self.let_go()?;
        Ok(Some(result))
    }

    fn with_slot<R>(&mut self, found: bool, f: impl FnOnce(Slot<'_>) -> Result<R>) -> Result<R> {
        let result = f(Slot { table: self, found })?;
        self.let_go()?;
        Ok(result)
    }

    fn row(&self) -> Row<'_> {
        Row { values: self.raw.values.as_ptr(), columns: self.columns(), _pinned: PhantomData }
    }

    fn columns(&self) -> usize {
        // SAFETY: set by pgl_table_open to the shape that `with` keeps.
        unsafe { (*self.raw.shape).columns as usize }
    }

    fn let_go(&mut self) -> Result<()> {
        let table = &raw mut self.raw;
        // SAFETY: open.
        call(|| unsafe { sys::pgl_table_let_go(table) })
    }
}

/// A row that stays where it is as long as this lives.
pub struct Row<'a> {
    values: *const sys::PglValue,
    columns: usize,
    _pinned: PhantomData<&'a Table>,
}

impl Row<'_> {
    /// Of a bigint or timestamptz column that is not NULL.
    pub fn int8(&self, column: usize) -> i64 {
        let value = self.raw(column);
        assert!(value.kind == Kind::Int8 as i32 || value.kind == Kind::Timestamptz as i32);
        value.number
    }

    /// Of a `"char"` column that is not NULL.
    pub fn char(&self, column: usize) -> u8 {
        let value = self.raw(column);
        assert!(value.kind == Kind::Char as i32);
        value.number as u8
    }

    pub fn text(&self, column: usize) -> Option<&[u8]> {
        self.bytes(column, Kind::Text)
    }

    /// As stored, with its header.
    pub fn varlena(&self, column: usize) -> Option<&[u8]> {
        self.bytes(column, Kind::Jsonb)
    }

    fn bytes(&self, column: usize, kind: Kind) -> Option<&[u8]> {
        let value = self.raw(column);
        if value.kind == PglKind::PGL_NULL as i32 {
            return None;
        }
        assert!(value.kind == kind as i32);
        // SAFETY: in the pinned row, or a copy of what was compressed there.
        Some(unsafe { bytes(sys::PglText { data: value.data, len: value.len }) })
    }

    fn raw(&self, column: usize) -> &sys::PglValue {
        assert!(column < self.columns, "no column {column}");
        // SAFETY: within the table's array, of which so many are filled.
        unsafe { &*self.values.add(column) }
    }
}

/// Where a row is, or would be: to be written over or left.
pub struct Slot<'a> {
    table: &'a mut Table,
    found: bool,
}

impl Slot<'_> {
    pub fn row(&self) -> Option<Row<'_>> {
        self.found.then(|| self.table.row())
    }

    /// Writes the row, as an update (HOT where it can be) or, when there was none, an insert. Waits for nobody.
    pub fn put(self, values: &[Value<'_>]) -> Result<Outcome> {
        assert_eq!(values.len(), self.table.columns());
        let row = CRow::new(values);
        let (table, values, found) = (&raw mut self.table.raw, row.as_ptr(), self.found);
        // SAFETY: open for writing, or PostgreSQL raises; the values outlive the call.
        call(|| unsafe {
            if found { sys::pgl_table_update(table, values) } else { sys::pgl_table_insert(table, values) }
        })
        .map(outcome)
    }

    /// Deletes the row that was found. Waits for nobody.
    pub fn delete(self) -> Result<Outcome> {
        assert!(self.found, "no row to delete");
        let table = &raw mut self.table.raw;
        // SAFETY: as `put`.
        call(|| unsafe { sys::pgl_table_delete(table) }).map(outcome)
    }
}

fn outcome(outcome: i32) -> Outcome {
    const CHANGED: i32 = PglOutcome::PGL_CHANGED as i32;
    const LOCKED: i32 = PglOutcome::PGL_LOCKED as i32;
    match outcome {
        CHANGED => Outcome::Changed,
        LOCKED => Outcome::Locked,
        _ => Outcome::Done,
    }
}

/// A shape as C wants it, borrowing it.
struct CShape<'a>(sys::PglShape, PhantomData<&'a Shape>);

impl CShape<'_> {
    fn new(shape: &Shape) -> CShape<'_> {
        assert!(shape.columns.len() <= sys::PGL_COLUMNS_MAX as usize);
        CShape(
            sys::PglShape {
                schema: shape.schema.as_ptr(),
                name: shape.name.as_ptr(),
                extension: shape.extension.as_ptr(),
                kinds: shape.columns.as_ptr().cast(),
                columns: shape.columns.len() as i32,
                key: shape.key.map_or(-1, |key| key as i32),
            },
            PhantomData,
        )
    }
}

// SAFETY: all its fields are pointers, integers and arrays of such, for which zero is a value.
const EMPTY: sys::PglTable = unsafe { std::mem::zeroed() };
