//! Being told of utility commands before they run. What they raise is not touched.
//!
//! The hook (shim.c) is set in the postmaster and inherited; it runs in the backend of the command, inside its transaction,
//! before the command has locked anything.

use std::ffi::c_int;
use std::sync::OnceLock;

use super::guard::contain;
use super::sys;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Fails while anybody else is connected to that database: DROP DATABASE, CREATE DATABASE with it as template,
    /// ALTER DATABASE ... RENAME, SET TABLESPACE.
    NeedsDatabase(u32),
    /// CREATE EXTENSION, of ours or with CASCADE.
    CreatesExtension,
    /// May drop the extension, or fill its table: DROP EXTENSION, DROP SCHEMA, DROP OWNED, COPY FROM.
    TouchesExtension,
}

static WATCHER: OnceLock<fn(Command)> = OnceLock::new();

/// To be called once, while preloading. The watcher cannot raise; the command runs, whatever it does.
pub fn watch(watcher: fn(Command)) {
    unsafe extern "C-unwind" fn on_command(command: c_int, database: u32) {
        const NEEDS_DATABASE: c_int = sys::PglCommand::PGL_NEEDS_DATABASE as c_int;
        const CREATES_EXTENSION: c_int = sys::PglCommand::PGL_CREATES_EXTENSION as c_int;
        let command = match command {
            NEEDS_DATABASE => Command::NeedsDatabase(database),
            CREATES_EXTENSION => Command::CreatesExtension,
            _ => Command::TouchesExtension,
        };
        contain(|| {
            if let Some(watcher) = WATCHER.get() {
                watcher(command);
            }
        });
    }
    assert!(WATCHER.set(watcher).is_ok(), "one watcher");
    // SAFETY: the function lives as long as the process.
    unsafe { sys::pgl_watch_utility(Some(on_command)) };
}
