//! Text in the database's encoding.
//!
//! Keys, owners and what a function is given are text in it already. What the whole server shares is not: names of roles and
//! databases, and messages kept by another process. Nothing here raises or takes a lock.

use std::borrow::Cow;

use super::guard::c_text;
use super::sys;

/// What a user gave, fit for a message: as it is in a UTF-8 database, elsewhere with every byte beyond ASCII as \xNN
/// (a message is a Rust string, and reaches the client through a conversion from the database's encoding).
pub fn display(text: &[u8]) -> String {
    // SAFETY: reads a variable.
    if unsafe { sys::pgl_encoding_is_utf8() } { String::from_utf8_lossy(text).into_owned() } else { escaped(text) }
}

/// Text from elsewhere, fit to be stored and shown in this database: as it is where it is valid in its encoding, else with
/// every byte beyond ASCII as \xNN.
pub fn fit(text: &[u8]) -> Cow<'_, [u8]> {
    // SAFETY: raises nothing when it is not to.
    if unsafe { sys::pgl_text_is_valid(c_text(Some(text))) } {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(escaped(text).into_bytes())
    }
}

/// The beginning of at most so many bytes, without half a character at its end.
pub fn clip(text: &[u8], most: usize) -> &[u8] {
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    // SAFETY: raises nothing.
    let len = unsafe { sys::pgl_text_clip(c_text(Some(text)), most) };
    &text[..usize::try_from(len).unwrap_or(0)]
}

fn escaped(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii() {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("\\x{byte:02x}"));
        }
    }
    escaped
}
