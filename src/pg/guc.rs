//! Settings: defined once in the postmaster (`_PG_init`), inherited by every process, and read as plain variables, which
//! PostgreSQL alone writes: in this process's one thread, so without a lock.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};

use super::error::Result;
use super::guard::call;
use super::sys;

/// What a setting is called and where it may be changed.
pub struct Spec {
    pub name: &'static CStr,
    pub description: &'static CStr,
    pub details: Option<&'static CStr>,
    pub change: Change,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Only in the configuration, with a restart; to be defined while preloading.
    Restart,
    /// Only in the configuration, with a reload.
    Reload,
    /// By everybody.
    #[cfg(feature = "test-points")]
    Session,
}

impl Change {
    fn context(self) -> sys::GucContext::Type {
        match self {
            Change::Restart => sys::GucContext::PGC_POSTMASTER,
            Change::Reload => sys::GucContext::PGC_SIGHUP,
            #[cfg(feature = "test-points")]
            Change::Session => sys::GucContext::PGC_USERSET,
        }
    }
}

impl Spec {
    fn details(&self) -> *const std::ffi::c_char {
        self.details.map_or(std::ptr::null(), CStr::as_ptr)
    }
}

pub struct Int {
    value: UnsafeCell<c_int>,
    default: c_int,
}

// SAFETY: PostgreSQL's processes have one thread.
unsafe impl Sync for Int {}

impl Int {
    pub const fn new(default: i32) -> Int {
        Int { value: UnsafeCell::new(default), default }
    }

    pub fn get(&self) -> i32 {
        // SAFETY: written by PostgreSQL only, in this thread.
        unsafe { *self.value.get() }
    }

    pub fn define(&'static self, spec: &'static Spec, min: i32, max: i32) -> Result<()> {
        let (value, default) = (self.value.get(), self.default);
        // SAFETY: everything given lives as long as the process.
        call(|| unsafe {
            sys::DefineCustomIntVariable(
                spec.name.as_ptr(),
                spec.description.as_ptr(),
                spec.details(),
                value,
                default,
                min,
                max,
                spec.change.context(),
                0,
                None,
                None,
                None,
            );
        })
    }
}

pub struct Bool {
    value: UnsafeCell<bool>,
    default: bool,
}

// SAFETY: as Int.
unsafe impl Sync for Bool {}

impl Bool {
    pub const fn new(default: bool) -> Bool {
        Bool { value: UnsafeCell::new(default), default }
    }

    pub fn get(&self) -> bool {
        // SAFETY: as Int.
        unsafe { *self.value.get() }
    }

    pub fn define(&'static self, spec: &'static Spec) -> Result<()> {
        let (value, default) = (self.value.get(), self.default);
        // SAFETY: as Int.
        call(|| unsafe {
            sys::DefineCustomBoolVariable(
                spec.name.as_ptr(),
                spec.description.as_ptr(),
                spec.details(),
                value,
                default,
                spec.change.context(),
                0,
                None,
                None,
                None,
            );
        })
    }
}

/// After the last definition: what else begins with `prefix.` in the configuration is a mistake, warned of.
pub fn reserve_prefix(prefix: &'static CStr) -> Result<()> {
    // SAFETY: a terminated string.
    call(|| unsafe { sys::MarkGUCPrefixReserved(prefix.as_ptr()) })
}

#[cfg(feature = "test-points")]
pub struct Text {
    value: UnsafeCell<*mut std::ffi::c_char>,
}

// SAFETY: as Int.
#[cfg(feature = "test-points")]
unsafe impl Sync for Text {}

#[cfg(feature = "test-points")]
impl Text {
    pub const fn new() -> Text {
        Text { value: UnsafeCell::new(std::ptr::null_mut()) }
    }

    /// Until the setting changes, which it does not while a function of ours looks.
    pub fn get(&self) -> &[u8] {
        // SAFETY: as Int; a terminated string once defined.
        unsafe {
            let value = *self.value.get();
            if value.is_null() { b"" } else { CStr::from_ptr(value).to_bytes() }
        }
    }

    pub fn define(&'static self, spec: &'static Spec) -> Result<()> {
        let value = self.value.get();
        // SAFETY: as Int.
        call(|| unsafe {
            sys::DefineCustomStringVariable(
                spec.name.as_ptr(),
                spec.description.as_ptr(),
                spec.details(),
                value,
                c"".as_ptr(),
                spec.change.context(),
                0,
                None,
                None,
                None,
            );
        })
    }
}
