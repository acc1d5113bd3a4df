//! Values on their way between Rust and PostgreSQL, in the form that shim.c takes and gives.
//!
//! They borrow their bytes, from the caller on the way out, from PostgreSQL's memory on the way in, and own nothing: an error
//! may leave a call that has them at any point. Plain data, in any process.

use std::marker::PhantomData;

use super::sys::{self, PglKind};

/// As PostgreSQL keeps it. 'infinity' (17 and later) has months of `i32::MAX`, '-infinity' of `i32::MIN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

/// One value, or NULL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int4(i32),
    Int8(i64),
    /// Microseconds since 2000-01-01 UTC.
    Timestamptz(i64),
    /// `"char"`
    Char(u8),
    Interval(Interval),
    /// In the database's encoding.
    Text(&'a [u8]),
    /// jsonb and the like as stored, with its header.
    Varlena(&'a [u8]),
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    Bool = PglKind::PGL_BOOL as i32,
    Int4 = PglKind::PGL_INT4 as i32,
    Int8 = PglKind::PGL_INT8 as i32,
    Timestamptz = PglKind::PGL_TIMESTAMPTZ as i32,
    Char = PglKind::PGL_CHAR as i32,
    Interval = PglKind::PGL_INTERVAL as i32,
    Text = PglKind::PGL_TEXT as i32,
    Jsonb = PglKind::PGL_VARLENA as i32,
}

/// A value as shim.c takes it, borrowing its bytes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct CValue<'a>(pub sys::PglValue, PhantomData<&'a [u8]>);

impl CValue<'_> {
    pub const NULL: CValue<'static> = CValue(
        sys::PglValue { kind: PglKind::PGL_NULL as i32, len: 0, days: 0, number: 0, data: std::ptr::null() },
        PhantomData,
    );
}

impl<'a> From<Value<'a>> for CValue<'a> {
    fn from(value: Value<'a>) -> CValue<'a> {
        let number = |kind: Kind, number: i64| sys::PglValue { kind: kind as i32, number, ..CValue::NULL.0 };
        let bytes = |kind: Kind, bytes: &[u8]| sys::PglValue {
            kind: kind as i32,
            len: i32::try_from(bytes.len()).expect("a value is shorter than 2 GB"),
            data: bytes.as_ptr().cast(),
            ..CValue::NULL.0
        };
        CValue(
            match value {
                Value::Null => CValue::NULL.0,
                Value::Bool(b) => number(Kind::Bool, b.into()),
                Value::Int4(n) => number(Kind::Int4, n.into()),
                Value::Int8(n) => number(Kind::Int8, n),
                Value::Timestamptz(t) => number(Kind::Timestamptz, t),
                Value::Char(c) => number(Kind::Char, c.into()),
                Value::Interval(i) => sys::PglValue { len: i.months, days: i.days, ..number(Kind::Interval, i.micros) },
                Value::Text(text) => bytes(Kind::Text, text),
                Value::Varlena(varlena) => bytes(Kind::Jsonb, varlena),
            },
            PhantomData,
        )
    }
}

/// A row as shim.c takes it, without allocating.
pub(super) struct CRow<'a> {
    values: [CValue<'a>; sys::PGL_COLUMNS_MAX as usize],
    count: usize,
}

impl<'a> CRow<'a> {
    pub fn new(row: &[Value<'a>]) -> CRow<'a> {
        let mut values = [CValue::NULL; sys::PGL_COLUMNS_MAX as usize];
        assert!(row.len() <= values.len(), "too many columns");
        for (to, from) in values.iter_mut().zip(row) {
            *to = CValue::from(*from);
        }
        CRow { values, count: row.len() }
    }

    pub fn as_ptr(&self) -> *const sys::PglValue {
        self.values.as_ptr().cast()
    }

    pub fn count(&self) -> i32 {
        self.count as i32
    }
}
