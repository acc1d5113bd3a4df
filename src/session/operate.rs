//! One call that may change a lease (rules 2 to 6): drives `lease_core::Operation`.
//!
//! Runs in a client's backend, inside a call, and in a sweeper's transaction. The claims lock is held for one section at a
//! time, shared for the look at a version counter; between sections the row is read and the process sleeps, with no lock of
//! ours. What was granted is filed in `pending` before anything that can fail: a claim that is not would be lost to its
//! transaction.

use lease_core::{Answer, Ask, Kind, Lease, Name, Next, Operation, Refusal, Request, Wait};

use super::wait::{Patience, Purpose, Sleeper};
use super::{fail, pending};
use crate::pg::{Result, proc, test_point, xact};
use crate::shared::Counter;
use crate::shared::{self, Key, Section};
use crate::store::{self, Edit};

/// What a call asks for.
pub struct Change {
    /// For messages.
    pub function: &'static str,
    pub key: Name,
    pub request: Request<Name>,
    pub wait: Wait,
    /// An acquire that stands in the queue.
    pub patience: Option<Patience>,
    pub granted_to: Edit<Box<[u8]>>,
    pub payload: Edit<Box<[u8]>>,
}

/// Granted or refused; every other answer is an error.
pub fn operate(change: Change) -> Result<Answer<Name>> {
    operate_on(change).map(|(answer, _)| answer)
}

/// The same, and the row that it was decided on if it was read.
pub fn operate_on(change: Change) -> Result<(Answer<Name>, Option<Lease<Name>>)> {
    let key = Key { database: proc::database(), name: change.key };
    let (answer, row) = attempt(change)?;
    match answer {
        Answer::Refused(Refusal::OutOfRange) => Err(fail::ttl_out_of_range()),
        Answer::Granted(_) | Answer::Refused(_) | Answer::Busy => Ok((answer, row)),
        Answer::Broken => Err(fail::broken(&key)),
        Answer::Changed => Err(fail::changed(&key)),
        Answer::Full => Err(pending::room_for(&key).err().unwrap_or_else(fail::no_room)),
    }
}

/// The answer, and the row that it was given on if it was read.
pub fn attempt(change: Change) -> Result<(Answer<Name>, Option<Lease<Name>>)> {
    may_change(change.function)?;
    let key = Key { database: proc::database(), name: change.key };
    let me = shared::me();
    pending::begin(me, &key)?;

    let (hash, room) = (shared::hash(&key), pending::room_for(&key).is_ok());
    let ask = Ask { me, key, hash, request: change.request, wait: change.wait, room };
    let mut operation = Operation::new(ask, pending::change_of(&key));
    let purpose = match change.patience {
        Some(patience) => Purpose::Acquire { key: &key, patience },
        None => Purpose::Change { key: &key },
    };
    let mut sleeper = Sleeper::new(purpose);
    let mut base: Option<Lease<Name>> = None;
    let answer = loop {
        match operation.next() {
            Next::Sample => operation.sampled(shared::version(ask.hash)),
            Next::Read => {
                test_point!(quiet "read");
                // nothing else bounds how often others' changes make it read again
                sleeper.heed()?;
                let found = store::find(&change.key)?;
                // a snapshot taken later shows what is read now, or the claim will have been in the way
                let in_snapshot = !xact::uses_transaction_snapshot()
                    || !xact::has_snapshot()
                    || store::snapshot_agrees(&change.key, found.row.as_ref())?;
                base = found.row.map(|row| row.lease);
                operation.read(base, found.floor, in_snapshot);
            }
            Next::Decide => sleeper.look(|section| decide(section, &mut operation)),
            Next::Sleep { until } => {
                sleeper.sleep(until, base.as_ref())?;
                operation.awake();
            }
            Next::Done => break operation.answer().expect("done"),
        }
    };
    sleeper.done();
    pending::done_waiting();
    if let Answer::Granted(granted) = answer {
        pending::record(key, ask.hash, base, granted, change.granted_to, change.payload);
    }
    Ok((answer, base))
}

fn decide(section: &mut Section<'_>, operation: &mut Operation<Key, Name>) {
    let Ask { me, key, hash, .. } = *operation.ask();
    let met = section.claim(&key, hash).is_some_and(|c| c.tx != me && c.kind != Kind::HandOff && shared::running(c.tx));
    operation.decide(section);
    if met && matches!(operation.answer(), Some(Answer::Granted(_))) {
        Counter::BrokenClaims.add(1);
    }
}

/// Rule 2.
pub fn may_change(function: &str) -> Result<()> {
    if xact::in_recovery() {
        Err(fail::in_recovery(function))
    } else if xact::is_read_only() {
        Err(fail::read_only(function))
    } else {
        may_take_part(function)
    }
}

/// Whether the commit is still to come, and will be this process's.
pub fn may_take_part(function: &str) -> Result<()> {
    if xact::is_parallel() {
        Err(fail::parallel(function))
    } else if pending::is_committing() {
        Err(fail::committing(function))
    } else {
        Ok(())
    }
}
