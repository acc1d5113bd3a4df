//! Text in the database's encoding.

use super::sys;

/// What a user gave, fit for a message: as it is in a UTF-8 database, elsewhere with every byte beyond ASCII as \xNN
/// (a message is a Rust string, and reaches the client through a conversion from the database's encoding).
pub fn display(text: &[u8]) -> String {
    // SAFETY: reads a variable.
    if unsafe { sys::pgl_encoding_is_utf8() } {
        String::from_utf8_lossy(text).into_owned()
    } else {
        text.iter().map(|&b| if b.is_ascii() { char::from(b).to_string() } else { format!("\\x{b:02x}") }).collect()
    }
}
