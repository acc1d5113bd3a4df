//! Roles.

use std::ffi::CStr;

use super::error::Result;
use super::guard::call;
use super::sys;

/// The name of the role whose privileges hold now.
pub fn current_name() -> Result<Vec<u8>> {
    // SAFETY: inside a transaction.
    let name = call(|| unsafe { sys::pgl_role_name() })?;
    // SAFETY: a terminated string in the current memory context.
    Ok(unsafe { CStr::from_ptr(name) }.to_bytes().to_vec())
}
