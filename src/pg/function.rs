//! Functions that SQL calls: how a call's arguments are read, its result is made, and its symbol is exported.
//!
//! In whatever backend runs the statement. What is read lives as long as the call, in PostgreSQL's memory; an error comes out
//! through `guard::enter`. Takes no lock.

use std::marker::PhantomData;

use super::error::Result;
use super::guard::{call, enter};
use super::sys;
use super::trigger::{Row as TriggerRow, Trigger};
use super::value::{CRow, CValue, Interval, Value};

/// One call of a function: its arguments, and the makers of its result.
///
/// Argument types are those of the SQL declaration; nothing checks that the getters agree.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    fcinfo: sys::FunctionCallInfo,
    _arguments: PhantomData<&'a ()>,
}

/// A function's result; made by [`Call`].
pub struct Reply<'a> {
    datum: sys::Datum,
    null: bool,
    _call: PhantomData<&'a ()>,
}

#[derive(Clone, Copy, Debug)]
pub enum Jsonb<'a> {
    /// As it is stored, and the length of its text.
    Stored {
        bytes: &'a [u8],
        text_len: usize,
    },
    TooLong,
}

impl<'a> Call<'a> {
    fn argument(&self, i: usize) -> Option<sys::Datum> {
        // SAFETY: PostgreSQL passes a valid call of nargs arguments; the slice checks the index.
        let arguments = unsafe { (*self.fcinfo).args.as_slice((*self.fcinfo).nargs as usize) };
        let argument = &arguments[i];
        (!argument.isnull).then_some(argument.value)
    }

    /// Of a procedure: whether it may not commit.
    pub fn is_atomic(&self) -> bool {
        // SAFETY: PostgreSQL passes a valid call.
        unsafe { sys::pgl_is_atomic(self.fcinfo) }
    }

    pub fn text(&self, i: usize) -> Result<Option<&'a [u8]>> {
        // SAFETY: declared as text.
        self.argument(i).map(|datum| unsafe { text(datum) }).transpose()
    }

    #[cfg(feature = "test-points")]
    pub fn int4(&self, i: usize) -> Option<i32> {
        self.argument(i).map(|datum| datum.value() as i32)
    }

    pub fn int8(&self, i: usize) -> Option<i64> {
        self.argument(i).map(|datum| datum.value() as i64)
    }

    pub fn interval(&self, i: usize) -> Option<Interval> {
        self.argument(i).map(|datum| {
            let mut value = CValue::NULL.0;
            // SAFETY: declared as interval; a plain read.
            unsafe { sys::pgl_interval(datum, &raw mut value) };
            Interval { months: value.len, days: value.days, micros: value.number }
        })
    }

    /// What is stored in more than `stored_max` bytes is not looked at.
    pub fn jsonb(&self, i: usize, stored_max: i32) -> Result<Option<Jsonb<'a>>> {
        let Some(datum) = self.argument(i) else { return Ok(None) };
        let mut varlena = NO_TEXT;
        let mut text_len = 0;
        let (to_varlena, to_text_len) = (&raw mut varlena, &raw mut text_len);
        // SAFETY: declared as jsonb; both results are ours.
        if !call(|| unsafe { sys::pgl_jsonb(datum, stored_max, to_varlena, to_text_len) })? {
            return Ok(Some(Jsonb::TooLong));
        }
        // SAFETY: the argument itself, or a copy in the call's memory context.
        Ok(Some(Jsonb::Stored { bytes: unsafe { bytes(varlena) }, text_len: text_len as usize }))
    }

    /// NULL, or nothing from a function that returns void.
    pub fn null(&self) -> Reply<'a> {
        self.reply(sys::Datum::from(0usize), true)
    }

    pub fn value(&self, value: Value<'_>) -> Result<Reply<'a>> {
        if let Value::Null = value {
            return Ok(self.null());
        }
        let value = CValue::from(value);
        let value = &raw const value.0;
        // SAFETY: the value outlives the call, which copies it.
        Ok(self.reply(call(|| unsafe { sys::pgl_datum(value) })?, false))
    }

    /// One row, of a function with OUT arguments or a procedure with INOUT ones.
    pub fn row(&self, values: &[Value<'_>]) -> Result<Reply<'a>> {
        let row = CRow::new(values);
        let (fcinfo, values, count) = (self.fcinfo, row.as_ptr(), row.count());
        // SAFETY: the values outlive the call, which copies them; their types are checked.
        Ok(self.reply(call(|| unsafe { sys::pgl_row_datum(fcinfo, values, count) })?, false))
    }

    /// Begins a set of rows.
    pub fn rows(&self) -> Result<Rows<'a>> {
        let fcinfo = self.fcinfo;
        // SAFETY: PostgreSQL's own call; raises where a set is not expected.
        call(|| unsafe { sys::pgl_rows_begin(fcinfo) })?;
        Ok(Rows { call: *self })
    }

    /// How it was called as a trigger; None: it was called otherwise.
    pub fn trigger(&self) -> Option<Trigger<'a>> {
        Trigger::of(self.fcinfo)
    }

    /// The row that a trigger goes on with.
    pub fn go_on(&self, row: TriggerRow<'a>) -> Reply<'a> {
        self.reply(row.datum(), false)
    }

    fn reply(&self, datum: sys::Datum, null: bool) -> Reply<'a> {
        Reply { datum, null, _call: PhantomData }
    }
}

/// The rows of a set-returning function.
#[must_use]
pub struct Rows<'a> {
    call: Call<'a>,
}

impl<'a> Rows<'a> {
    pub fn push(&mut self, values: &[Value<'_>]) -> Result<()> {
        let row = CRow::new(values);
        let (fcinfo, values, count) = (self.call.fcinfo, row.as_ptr(), row.count());
        // SAFETY: `rows` has set up the result; the values outlive the call, which copies them.
        call(|| unsafe { sys::pgl_rows_push(fcinfo, values, count) })
    }

    pub fn finish(self) -> Reply<'a> {
        self.call.null()
    }
}

const NO_TEXT: sys::PglText = sys::PglText { data: std::ptr::null(), len: 0 };

/// # Safety
/// The datum is a text that lives as long as the call.
unsafe fn text<'a>(datum: sys::Datum) -> Result<&'a [u8]> {
    let mut text = NO_TEXT;
    let to_text = &raw mut text;
    // SAFETY: a text, says the caller; only the second can raise.
    unsafe {
        if !sys::pgl_text_in_place(datum, to_text) {
            call(|| sys::pgl_text_detoast(datum, to_text))?;
        }
        Ok(bytes(text))
    }
}

/// # Safety
/// Points to that many bytes that live as long as the call.
pub(super) unsafe fn bytes<'a>(text: sys::PglText) -> &'a [u8] {
    // SAFETY: says the caller.
    unsafe { std::slice::from_raw_parts(text.data.cast(), text.len as usize) }
}

#[doc(hidden)]
pub mod exported {
    //! What [`super::pg_function`] expands to.

    pub use super::super::sys::{Datum, FunctionCallInfo, Pg_finfo_record};
    use super::*;

    pub type Function = for<'a> fn(Call<'a>) -> Result<Reply<'a>>;

    /// # Safety
    /// PostgreSQL's call of a function whose SQL declaration fits it.
    pub unsafe fn run(fcinfo: FunctionCallInfo, function: Function) -> Datum {
        enter(|| {
            let reply = function(Call { fcinfo, _arguments: PhantomData })?;
            // SAFETY: PostgreSQL's call structure, ours to write its flag into.
            unsafe { (*fcinfo).isnull = reply.null };
            Ok(reply.datum)
        })
    }
}

/// Exports a C function, and what tells PostgreSQL how to call it: `pg_function!(lease_now, clock::now)`.
macro_rules! pg_function {
    ($symbol:ident, $function:path) => {
        const _: () = {
            #[unsafe(export_name = concat!("pg_finfo_", stringify!($symbol)))]
            extern "C" fn finfo() -> *const $crate::pg::function::exported::Pg_finfo_record {
                static RECORD: $crate::pg::function::exported::Pg_finfo_record =
                    $crate::pg::function::exported::Pg_finfo_record { api_version: 1 };
                &raw const RECORD
            }

            #[unsafe(export_name = stringify!($symbol))]
            unsafe extern "C-unwind" fn call(
                fcinfo: $crate::pg::function::exported::FunctionCallInfo,
            ) -> $crate::pg::function::exported::Datum {
                // SAFETY: PostgreSQL calls it, as the extension's script declares it.
                unsafe { $crate::pg::function::exported::run(fcinfo, $function) }
            }
        };
    };
}
pub(crate) use pg_function;
