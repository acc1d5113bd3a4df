//! PostgreSQL's structs and numbers that Rust reads or keeps by itself are what the server's headers say.
//!
//! pgrx_pg_sys has read the headers once, when it was built; shim.h includes them now. Where the two differ, or a version
//! of PostgreSQL has changed what we rely on, this does not compile. (Our own structs in shim.h are checked in the same
//! way by what bindgen generates.)

use std::mem::{align_of, offset_of, size_of};

use super::sys;

macro_rules! same {
    ($($ours:expr => $headers:path,)*) => { $(assert!($ours as i64 == $headers as i64, stringify!($headers));)* };
}

const _: () = {
    use sys::PglLayout::*;
    same! {
        size_of::<sys::ConditionVariable>() => PGL_SIZE_CONDITION_VARIABLE,
        align_of::<sys::ConditionVariable>() => PGL_ALIGN_CONDITION_VARIABLE,
        size_of::<sys::LWLockPadded>() => PGL_SIZE_LWLOCK_PADDED,
        size_of::<sys::Pg_finfo_record>() => PGL_SIZE_FINFO_RECORD,
        size_of::<sys::Datum>() => PGL_SIZE_DATUM,
        size_of::<sys::NullableDatum>() => PGL_SIZE_NULLABLE_DATUM,
        offset_of!(sys::NullableDatum, value) => PGL_OFFSET_DATUM_VALUE,
        offset_of!(sys::NullableDatum, isnull) => PGL_OFFSET_DATUM_ISNULL,
        offset_of!(sys::FunctionCallInfoBaseData, isnull) => PGL_OFFSET_CALL_ISNULL,
        offset_of!(sys::FunctionCallInfoBaseData, nargs) => PGL_OFFSET_CALL_NARGS,
        offset_of!(sys::FunctionCallInfoBaseData, args) => PGL_OFFSET_CALL_ARGS,
    }
};

const _: () = {
    use sys::PglNumbers::*;
    use sys::{GucContext, LWLockMode, SubXactEvent, XactEvent};
    same! {
        sys::ERROR => PGL_IS_ERROR,
        sys::WARNING => PGL_IS_WARNING,
        sys::LOG => PGL_IS_LOG,
        LWLockMode::LW_EXCLUSIVE => PGL_IS_LW_EXCLUSIVE,
        LWLockMode::LW_SHARED => PGL_IS_LW_SHARED,
        XactEvent::XACT_EVENT_COMMIT => PGL_IS_COMMIT,
        XactEvent::XACT_EVENT_ABORT => PGL_IS_ABORT,
        XactEvent::XACT_EVENT_PRE_COMMIT => PGL_IS_PRE_COMMIT,
        XactEvent::XACT_EVENT_PRE_PREPARE => PGL_IS_PRE_PREPARE,
        SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => PGL_IS_COMMIT_SUB,
        SubXactEvent::SUBXACT_EVENT_ABORT_SUB => PGL_IS_ABORT_SUB,
        GucContext::PGC_POSTMASTER => PGL_IS_POSTMASTER,
        GucContext::PGC_SIGHUP => PGL_IS_SIGHUP,
        GucContext::PGC_USERSET => PGL_IS_USERSET,
    }
};
