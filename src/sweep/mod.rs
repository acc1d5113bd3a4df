//! The background workers: what makes the table show a lapse that nobody asked about.
//!
//! Nothing depends on them. Every call judges expiry itself; without a sweeper lapses are only written down later.
//!
//! | module | is |
//! |---|---|
//! | `launcher` | one process: keeps a sweeper running in every database where the extension is used |
//! | `sweeper` | one process per such database: writes lapses when their time comes |
//! | `administration` | in clients' backends: has the sweeper leave a database, or look again, when a command needs it |
//!
//! What they share lies in `shared::databases` and `shared::feed`, each under a lock of its own. None of them keeps one for
//! longer than a call of those takes.

mod administration;
mod launcher;
mod sweeper;

use crate::pg::{Result, worker};

worker::worker!(pg_lease_launcher, launcher::main);
worker::worker!(pg_lease_sweeper, sweeper::main);

/// While preloading.
pub fn register() -> Result<()> {
    administration::register()?;
    launcher::register()
}
