//! The boundary between Rust's unwinding and PostgreSQL's longjmp, in both directions.
//!
//! Outwards, [`call`] runs one C call (or a few) under PG_TRY: an ERROR ends there and becomes a value, the error
//! itself staying on elog's stack with its SQLSTATE, DETAIL, HINT, CONTEXT, names and position. Inwards, [`enter`]
//! runs what PostgreSQL calls: it raises the error that comes out, by PG_RE_THROW, once every Rust frame below it has
//! been left in the ordinary way. So no longjmp ever passes a Rust frame that has something to drop.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::error::{Error, Pending, Report, Result, sqlstate};
use super::sys;

/// Calls C that can raise.
///
/// The closure is to be the bare call, with arguments at hand: a longjmp may leave it at any point. `Copy` keeps
/// values with a destructor out of it.
pub(super) fn call<R: Copy, F: FnOnce() -> R + Copy>(f: F) -> Result<R> {
    struct Frame<F, R> {
        f: F,
        result: MaybeUninit<R>,
    }
    unsafe extern "C-unwind" fn thunk<R: Copy, F: FnOnce() -> R + Copy>(frame: *mut c_void) {
        let frame = frame.cast::<Frame<F, R>>();
        // SAFETY: `call` passes its own frame, which nobody else touches meanwhile.
        unsafe { (*frame).result.write(((*frame).f)()) };
    }

    let mut frame = Frame { f, result: MaybeUninit::uninit() };
    // SAFETY: the thunk is the one for this frame; neither it nor `f` owns anything, so a longjmp out of it is sound.
    let ok = unsafe { sys::pgl_try(Some(thunk::<R, F>), (&raw mut frame).cast()) };
    if ok {
        // SAFETY: pgl_try came back in the ordinary way, so the thunk has written the result.
        Ok(unsafe { frame.result.assume_init() })
    } else {
        Err(Error::Pending(Pending::new()))
    }
}

/// Runs Rust code that PostgreSQL calls at a place where an ERROR may be raised.
pub(super) fn enter<R>(f: impl FnOnce() -> Result<R>) -> R {
    match settle(f) {
        Some(value) => value,
        // SAFETY: `settle` left an error on elog's stack; this frame and the `extern "C-unwind"` one above it own
        // nothing that would have to be dropped.
        None => unsafe {
            sys::pgl_rethrow();
            unreachable!("PG_RE_THROW does not return")
        },
    }
}

/// None: the error is on elog's stack. A function of its own so that `enter`'s frame is empty when it jumps.
#[inline(never)]
fn settle<R>(f: impl FnOnce() -> Result<R>) -> Option<R> {
    match run(f) {
        Ok(Ok(value)) => Some(value),
        Ok(Err(Error::Pending(_))) => None,
        Ok(Err(Error::Own(report))) => {
            push(&report);
            None
        }
        Ok(Err(Error::OutOfMemory)) => {
            raise(&CReport::OUT_OF_MEMORY);
            None
        }
        Err(payload) => {
            push(&internal_error(&*payload));
            None
        }
    }
}

/// Runs Rust code that PostgreSQL calls at a place where nothing may be raised: after the commit, in an abort.
pub(super) fn contain(f: impl FnOnce()) {
    if let Err(payload) = run(f) {
        emit_quietly(sys::WARNING, &internal_error(&*payload));
    }
}

/// Emits a report below ERROR where nothing may be raised.
pub(super) fn emit_quietly(level: u32, report: &Report) {
    let report = CReport::new(report);
    // SAFETY: raises nothing; the report outlives the call.
    unsafe { sys::pgl_report_quietly(level as c_int, &raw const report.0) };
}

type Payload = Box<dyn Any + Send>;

fn run<R>(f: impl FnOnce() -> R) -> std::result::Result<R, Payload> {
    // SAFETY: PostgreSQL's processes have one thread.
    let (exceptions, contexts) = unsafe { (sys::PG_exception_stack, sys::error_context_stack) };
    catch_unwind(AssertUnwindSafe(f)).inspect_err(|_| {
        // A panic may have unwound a `call`, and with it the PG_TRY whose frame these point into.
        // SAFETY: as above; the values were those of our caller, whose frames still stand.
        unsafe {
            sys::PG_exception_stack = exceptions;
            sys::error_context_stack = contexts;
        }
    })
}

/// Puts a report on elog's stack as an ERROR, without the jump.
fn push(report: &Report) {
    raise(&CReport::new(report));
}

fn raise(report: &CReport<'_>) {
    let report = &raw const report.0;
    // SAFETY: the report outlives the call.
    let raised = call(|| unsafe { sys::pgl_report(sys::ERROR as c_int, report) });
    debug_assert!(raised.is_err());
}

/// Emits a report below ERROR.
pub(super) fn emit(level: u32, report: &Report) -> Result<()> {
    let report = CReport::new(report);
    let report = &raw const report.0;
    // SAFETY: the report outlives the call.
    call(|| unsafe { sys::pgl_report(level as c_int, report) })
}

/// A report as C wants it, borrowing its texts.
struct CReport<'a>(sys::PglReport, std::marker::PhantomData<&'a Report>);

impl CReport<'_> {
    /// PostgreSQL's own message for it.
    const OUT_OF_MEMORY: CReport<'static> = CReport(
        sys::PglReport {
            sqlstate: sqlstate::OUT_OF_MEMORY.0.as_ptr().cast(),
            message: c_text(Some(OUT_OF_MEMORY.as_bytes())),
            detail: c_text(None),
            detail_log: c_text(None),
            hint: c_text(None),
        },
        std::marker::PhantomData,
    );

    fn new(report: &Report) -> CReport<'_> {
        let optional = |text: &Option<String>| text.as_ref().map_or(c_text(None), |text| c_text(Some(text.as_bytes())));
        CReport(
            sys::PglReport {
                sqlstate: report.sqlstate.0.as_ptr().cast(),
                message: c_text(Some(report.message.as_bytes())),
                detail: optional(&report.detail),
                detail_log: optional(&report.detail_log),
                hint: optional(&report.hint),
            },
            std::marker::PhantomData,
        )
    }
}

pub(super) const OUT_OF_MEMORY: &str = "out of memory";

pub(super) const fn c_text(text: Option<&[u8]>) -> sys::PglText {
    match text {
        Some(text) => {
            let len = if text.len() <= i32::MAX as usize { text.len() as i32 } else { i32::MAX };
            sys::PglText { data: text.as_ptr().cast(), len }
        }
        None => sys::PglText { data: std::ptr::null(), len: 0 },
    }
}

thread_local! {
    /// Where the last panic was, for the server log.
    static PANIC_PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics are reported by the entry guards, so the hook prints nothing (and takes no backtrace).
pub(super) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|place| format!("{}:{}", place.file(), place.line()));
        PANIC_PLACE.with(|cell| *cell.borrow_mut() = place);
    }));
}

fn internal_error(payload: &(dyn Any + Send)) -> Report {
    let what = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic");
    let mut report = Report::new(sqlstate::INTERNAL_ERROR, format!("pg_lease: internal error: {what}"));
    report.detail_log = PANIC_PLACE.with(RefCell::take).map(|place| format!("Panicked at {place}."));
    report
}
