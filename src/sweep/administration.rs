//! Commands that the workers must not be in the way of, or have to hear of.
//!
//! A command that needs a database to itself asks its sweeper out for as long as its transaction runs. Nothing has to take
//! that back: whoever looks sees whether the transaction is still running.
//!
//! Process: clients' backends, before a utility command and in the commit callback, where nothing may be raised. Locks: the
//! databases lock, for as long as `databases` needs; none while a sweeper is waited for.

use std::cell::Cell;

use crate::pg::utility::{self, Command};
use crate::pg::xact::{self, Callbacks};
use crate::pg::{Result, clock, proc};
use crate::shared::{self, databases};

/// How long a command waits for a sweeper to leave, in microseconds. PostgreSQL itself then tries for 5 s.
const PATIENCE: i64 = 200_000;
const LOOK: i64 = 500;

#[derive(Clone, Copy, PartialEq, Eq)]
enum AtCommit {
    Nothing,
    Rescan,
    Announce,
}

thread_local! {
    /// What the transaction's commands make of the extension in this database.
    static AT_COMMIT: Cell<AtCommit> = const { Cell::new(AtCommit::Nothing) };
}

pub fn register() -> Result<()> {
    utility::watch(on_command);
    xact::register(&Callbacks {
        pre_commit: || Ok(()),
        pre_prepare: || Ok(()),
        committed,
        aborted: || AT_COMMIT.set(AtCommit::Nothing),
        sub_committed: || (),
        sub_aborted: || (),
    })
}

/// Before the command. Raises nothing.
fn on_command(command: Command) {
    if !shared::is_ready() {
        return;
    }
    match command {
        Command::NeedsDatabase(database) => {
            let until = clock::boottime_micros() + PATIENCE;
            if databases::hold_off(database, proc::me()) {
                while databases::has_sweeper(database) && clock::boottime_micros() < until {
                    clock::pause(LOOK);
                }
            }
        }
        Command::CreatesExtension => AT_COMMIT.set(AtCommit::Announce),
        Command::TouchesExtension if AT_COMMIT.get() == AtCommit::Nothing => AT_COMMIT.set(AtCommit::Rescan),
        Command::TouchesExtension => (),
    }
}

fn committed() {
    let at_commit = AT_COMMIT.replace(AtCommit::Nothing);
    if at_commit == AtCommit::Nothing {
        return;
    }
    let database = proc::database();
    if at_commit == AtCommit::Announce {
        databases::announce_mine(|| shared::at().now);
    }
    databases::ask_rescan(database);
}
