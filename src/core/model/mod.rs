//! The protocol, searched exhaustively: every interleaving of a few processes that run the very steps of the server.
//!
//! | module | holds |
//! |---|---|
//! | `world` | processes with scripts, committed rows, one shared memory, one clock; what can happen next and what it does |
//! | `check` | what must hold, and where it is looked at |
//! | `search` | breadth-first or depth-first over all that can happen; the shortest way to a violation, in words |
//! | `encode` | when two states are the same |
//! | `scenarios` | the scenarios and bounds; each rule switched off, and what breaks then |
//! | `faults` | ways to the faults found so far |
//! | `simulator` | the same steps at random, with more processes and keys |
//!
//! A step is what nobody can look into: sampling a version counter, reading a row, one section (deciding, queueing up,
//! sealing, rolling back to a savepoint, dropping what a transaction had), checking a guard, writing, becoming visible. In
//! between, others may run, the clock may advance, a transaction may be rolled back or cancelled, a process may stop for ever,
//! the server may crash. `decide`, `Operation`, `Guarding`, `Commit`, `Transaction` and all of `Section` are the server's own;
//! `world` does what `session` and `store` do between them.
//!
//! Where this and the running server can differ:
//!
//! - Order of calls. `world` drives the steps as session/operate.rs, commit.rs and pending.rs do; a change there has to be made
//!   here, too.
//! - Reading a row is one step here. In the server it is a scan, and may miss a row that is updated at that moment (`Miss`).
//! - A transaction ends for all at once, when its commit or abort is visible. The server reads another process's transaction
//!   number without a lock.
//! - A process that is to sleep hears every wake-up from its last look on. The server gets there by looking once more after it
//!   has prepared to sleep.
//! - Instants are whole ticks, one of them the hand-off's grace; timers go off on time or late, never early. The safety tick
//!   exists only where somebody has stopped. No wait for the claims lock, no fairness among those who can run.
//! - Waits for locks of PostgreSQL: only the lease table's own (commits beside advance_epochs), the purge's and the floor's.
//!   A row locked by hand, DDL, NOTIFY's lock, synchronous standbys: as a process that stops between its seal and its commit.
//! - Timeouts, cancels, errors and lost clients: as a rollback at any step. The deadlock detector is asked in every state and
//!   has to be right, but does not act: rings end at a deadline.
//! - A crash keeps all commits up to the last flushed one, and of those under way all or none. Lease time goes on, as it does
//!   while the postmaster lives. Another start of the server, with another clock, is the business of the tests in `lease`.
//! - Payloads, names, arguments and limits do not occur; a client calls for one owner.
//! - States are told apart by 128-bit fingerprints.

mod check;
mod encode;
mod faults;
mod scenarios;
mod search;
mod simulator;
mod world;
