//! Roles.
//!
//! Their names are the whole server's, in the encoding of whatever database they were given in. For backends, inside a
//! transaction; takes no lock of ours.

use std::ffi::CStr;

use super::error::Result;
use super::guard::call;
use super::{memory, sys, text};

/// The name of the role whose privileges hold now, fit for this database.
pub fn current_name() -> Result<Box<[u8]>> {
    // SAFETY: inside a transaction.
    let name = call(|| unsafe { sys::pgl_role_name() })?;
    // SAFETY: a terminated string in the current memory context.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    memory::copy(&text::fit(name))
}
