//! What is told about leases: inspect, the views, the clock. Changes nothing, never waits, works on a standby.
//!
//! In clients' backends, inside a transaction. The views look at the shared memory under the claims lock in shared mode, a
//! bounded part of it at a time, so that they neither stop others for long nor need more memory than what they show; they
//! promise that each key is shown once and as it was at one instant, not all keys at the same. inspect is a section.

use std::collections::HashMap;

use lease_core::{At, Blocker, Claim, Kind, Lease, List, Name, State, Time, Waiter};

use super::commit::Write;
use super::pending::{self, Extra};
use crate::pg::{Result, clock as steady, interrupt, proc};
use crate::shared::{self, Key, Want};
use crate::store::{self, Row};

pub struct Inspection {
    pub state: State,
    pub owner: Option<Name>,
    pub epoch: i64,
    pub expires_at: Option<Time>,
    /// Microseconds.
    pub remaining: Option<i64>,
    /// A whole jsonb datum.
    pub payload: Option<Box<[u8]>>,
    pub in_flight: bool,
}

pub struct LeaseRow {
    pub key: Name,
    pub state: State,
    pub owner: Option<Name>,
    pub epoch: i64,
    pub expires_at: Option<Time>,
    pub remaining: Option<i64>,
    pub ttl: i64,
    pub granted_at: Time,
    pub renewed_at: Time,
    pub granted_to: Option<Box<[u8]>>,
    pub payload: Option<Box<[u8]>>,
    pub in_flight: bool,
}

pub struct ClaimRow {
    pub key: Name,
    pub pid: Option<i32>,
    pub kind: Kind,
    pub owner: Option<Name>,
    pub epoch: Option<i64>,
    pub since: Time,
    pub deadline: Option<Time>,
    pub sealed: bool,
}

pub struct Clock {
    pub lease: Time,
    pub wall: Time,
}

pub fn clock() -> Result<Clock> {
    Ok(Clock { lease: shared::at().now, wall: Time(steady::wall_micros()) })
}

/// The latest committed state, or the transaction's own pending one while its claim stands (rule 8).
pub fn inspect(name: Name) -> Result<Inspection> {
    let key = Key { database: proc::database(), name };
    let hash = shared::hash(&key);
    let own = pending::of(&key);
    let (found, at, claim) = loop {
        let version = shared::version(hash);
        let found = store::find(&name)?;
        let (unchanged, at, claim) = shared::section(|section| {
            section.settle(&key, hash);
            (section.version(hash) == version, section.at, section.claim(&key, hash).copied())
        });
        // else the row may have been renewed since it was read, and must not be judged by this instant
        if unchanged {
            break (found, at, claim);
        }
        interrupt::check()?;
    };
    let own = own.filter(|(own, _)| claim.is_some_and(|c| c.serial == own.serial));
    let in_flight = own.is_none() && claim.is_some_and(|c| is_in_flight(&c));
    let (committed, committed_payload) = found.row.map_or((None, None), |row| (Some(row.lease), row.payload));
    let (lease, payload) = match own {
        Some((own, extra)) => (own.lease, extra.payload.over(committed_payload)),
        None => (committed, committed_payload),
    };
    let Some(lease) = lease else {
        return Ok(Inspection {
            state: State::Free,
            owner: None,
            epoch: found.floor,
            expires_at: None,
            remaining: None,
            payload: None,
            in_flight,
        });
    };
    let shown = Shown::of(&lease, at);
    Ok(Inspection {
        state: shown.state,
        owner: shown.owner,
        epoch: lease.epoch,
        expires_at: shown.expires_at,
        remaining: shown.remaining,
        payload: payload.filter(|_| shown.state == State::Held),
        in_flight,
    })
}

/// A hand-off changes nothing, and a transaction that has ended has nothing uncommitted.
fn is_in_flight(claim: &Claim<Name>) -> bool {
    claim.kind != Kind::HandOff && shared::running(claim.tx)
}

/// What only a held lease shows.
struct Shown {
    state: State,
    owner: Option<Name>,
    expires_at: Option<Time>,
    remaining: Option<i64>,
}

impl Shown {
    fn of(lease: &Lease<Name>, at: At) -> Shown {
        match lease.state(at) {
            State::Held => {
                let expiry = lease.expiry(at);
                Shown {
                    state: State::Held,
                    owner: lease.owner,
                    expires_at: Some(expiry),
                    remaining: Some(expiry.since(at.now)),
                }
            }
            state => Shown { state, owner: None, expires_at: None, remaining: None },
        }
    }
}

/// Every key of this database that has a row or a pending change of this transaction.
pub fn leases(mut visit: impl FnMut(LeaseRow) -> Result<()>) -> Result<()> {
    let found = this_database()?;
    let mut claims: HashMap<Name, Claim<Name>> = HashMap::new();
    claims.try_reserve(found.len())?;
    claims.extend(found);
    // own pending changes, while their claims stand
    let mut own: HashMap<Name, (Option<Lease<Name>>, Extra)> = HashMap::new();
    for Write { key, new, extra, .. } in (0..).map_while(pending::write) {
        let serial = pending::change_of(&key).map(|c| c.serial);
        if claims.get(&key.name).map(|c| c.serial) == serial {
            own.try_reserve(1)?;
            own.insert(key.name, (new, extra));
        }
    }
    let at = shared::at();
    let mut show = |key: Name, row: Row, in_flight: bool| {
        let shown = Shown::of(&row.lease, at);
        let held = shown.state == State::Held;
        visit(LeaseRow {
            key,
            state: shown.state,
            owner: shown.owner,
            epoch: row.lease.epoch,
            expires_at: shown.expires_at,
            remaining: shown.remaining,
            ttl: row.lease.ttl,
            granted_at: row.lease.granted_at,
            renewed_at: row.lease.renewed_at,
            granted_to: row.granted_to,
            payload: row.payload.filter(|_| held),
            in_flight,
        })
    };
    store::scan(|key, row| match own.remove(key) {
        Some((Some(lease), extra)) => show(*key, changed(lease, extra, Some(row)), false),
        Some((None, _)) => Ok(()),
        None => show(*key, row, claims.get(key).is_some_and(is_in_flight)),
    })?;
    for (key, (lease, extra)) in own {
        if let Some(lease) = lease {
            show(key, changed(lease, extra, None), false)?;
        }
    }
    Ok(())
}

fn changed(lease: Lease<Name>, extra: Extra, row: Option<Row>) -> Row {
    let (granted_to, payload) = row.map_or((None, None), |row| (row.granted_to, row.payload));
    Row { lease, granted_to: extra.granted_to.over(granted_to), payload: extra.payload.over(payload) }
}

/// The uncommitted changes of this database's keys.
pub fn claims() -> Result<Vec<ClaimRow>> {
    let row = |(key, claim): (Name, Claim<Name>)| ClaimRow {
        key,
        pid: Some(proc::pid(claim.tx.proc)).filter(|pid| *pid != 0),
        kind: claim.kind,
        owner: claim.owner,
        epoch: Some(claim.epoch).filter(|_| claim.kind != Kind::HandOff),
        since: claim.since,
        deadline: Some(claim.deadline).filter(|d| *d != Time::NEVER),
        sealed: claim.sealed,
    };
    let mut claims = this_database()?;
    claims.retain(|(_, claim)| shared::running(claim.tx));
    collected(claims.len(), claims.into_iter().map(row))
}

pub struct WaiterRow {
    pub key: Name,
    pub pid: i32,
    pub owner: Option<Name>,
    /// In the queue, from 1; who does not wait for the lease itself has none.
    pub position: Option<i32>,
    pub since: Time,
    pub deadline: Option<Time>,
    pub waits_for: WaitsFor,
    pub blocker: Option<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    Lease,
    UncommittedChange,
    Commit,
    Guard,
}

/// Who waits for this database's keys, in the order of each key's queue.
pub fn waiters() -> Result<Vec<WaiterRow>> {
    let database = proc::database();
    let mut waiters = Vec::new();
    loop {
        // room before the look: nothing is allocated in it; and for some who come meanwhile
        let count = shared::view(|view| view.waiters().filter(|(_, key, _)| key.database == database).count());
        waiters.try_reserve_exact(count + 16)?;
        let all = shared::view(|view| {
            for (waiter, key, place) in view.waiters().filter(|(_, key, _)| key.database == database) {
                if waiters.len() == waiters.capacity() {
                    return false;
                }
                waiters.push((key.name, *waiter, place, shared::want(view, waiter.tx.proc), view.blocker(waiter)));
            }
            true
        });
        if all {
            break;
        }
        waiters.clear();
    }
    let row = |(key, waiter, place, want, blocker): (Name, Waiter<Name>, u32, Want, Blocker)| {
        let (waits_for, blocker) = match blocker {
            Blocker::Lease => (WaitsFor::Lease, None),
            Blocker::Change(tx) => (WaitsFor::UncommittedChange, Some(tx)),
            Blocker::Commit(tx) => (WaitsFor::Commit, Some(tx)),
            Blocker::Guard(tx) => (WaitsFor::Guard, Some(tx)),
        };
        WaiterRow {
            key,
            pid: proc::pid(waiter.tx.proc),
            owner: waiter.owner,
            position: (waiter.list == List::Queue).then_some(place as i32),
            since: want.since,
            deadline: want.deadline,
            waits_for,
            blocker: blocker.map(|tx| proc::pid(tx.proc)).filter(|pid| *pid != 0),
        }
    };
    collected(waiters.len(), waiters.into_iter().map(row))
}

/// How many buckets, and claims, one look at the shared memory goes through at most: others wait for it.
const BUCKETS: usize = 8192;
const CLAIMS: usize = 256;

/// The claims on this database's keys, each as it is at one instant of the call.
fn this_database() -> Result<Vec<(Name, Claim<Name>)>> {
    let database = proc::database();
    let mut claims = Vec::new();
    let (mut begun, mut room) = (0, CLAIMS);
    loop {
        interrupt::check()?;
        // before the look: nothing is allocated in it
        claims.try_reserve(room)?;
        let (end, done) = shared::view(|view| {
            let buckets = view.buckets.len();
            let end = buckets.min(begun + BUCKETS);
            for bucket in begun..end {
                let in_bucket = || view.claims(bucket..bucket + 1).filter(|(key, _)| key.database == database);
                // a bucket belongs to one look, or a key could be seen twice
                if in_bucket().count() > claims.capacity() - claims.len() {
                    return (bucket, false);
                }
                claims.extend(in_bucket().map(|(key, claim)| (key.name, *claim)));
            }
            (end, end == buckets)
        });
        if done {
            return Ok(claims);
        }
        room = if end == begun { room * 2 } else { CLAIMS };
        begun = end;
    }
}

/// So many, in a list that is as long.
fn collected<T>(count: usize, items: impl Iterator<Item = T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count)?;
    all.extend(items);
    Ok(all)
}
