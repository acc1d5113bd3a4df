//! What a lease is: pure decisions over plain data.
//!
//! Nothing here reads a clock, waits, allocates shared memory or knows PostgreSQL. Every step is a function from the
//! state it is given to a new state and an answer, so the server and the exhaustive model drive the same code.
//!
//! | module | holds |
//! |---|---|
//! | `time` | lease time, the clock's anchor, the bounds |
//! | `name` | keys and owners: 1 to 255 bytes |
//! | `interval` | ttl and wait as exact microseconds |
//! | `lease` | the lease row and what each request makes of it |
//! | `table` | what the backends share: claims, guards, waiters, version counters |
//! | `claim` | rules of a claim: taking, breaking, sealing, ending |
//! | `queue` | who waits for a key, the hand-off, deadlocks |
//! | `view` | the same memory, to be looked at only |
//! | `operation` | one call, from reading the row to its answer, step by step |
//! | `guard` | a call that makes the commit depend on a lease |
//! | `commit` | one commit, from its seal to the rows that it may write |
//! | `transaction` | what one transaction has pending, with its savepoints |
//! | `deadline` | when a sweeper looks at which key |
//!
//! Rule numbers in comments are those of docs/ARCHITECTURE.md, "The protocol".
#![forbid(unsafe_code)]

#[cfg(test)]
mod bench;
mod claim;
mod commit;
mod deadline;
mod guard;
pub mod interval;
mod lease;
#[cfg(test)]
mod model;
mod name;
mod operation;
mod queue;
#[cfg(test)]
mod random;
mod rules;
mod table;
mod time;
mod transaction;
mod view;

pub use claim::{Ask, Change, Guard, Outcome, Restore, Seen, Stake, Wait};
pub use commit::{Commit, CommitStep, Failure};
pub use deadline::Deadlines;
pub use guard::{GuardAnswer, Guarding};
pub use lease::{Kind, Lease, Refusal, Request, State, Status, Verdict, decide, holds};
pub use name::{MAX_BYTES as NAME_MAX_BYTES, Name, NameError};
pub use operation::{Answer, Next, Operation};
pub use queue::{Blocker, List};
pub use table::{Claim, Entry, GuardSlot, Head, Id, Memory, Section, Storage, Tx, Waiter, WaitsFor, Wakes};
pub use time::{Anchor, At, GRACE, Time, milliseconds};
pub use transaction::{Latest, Pending, Transaction};
pub use view::View;
