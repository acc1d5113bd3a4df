//! A state as bytes, without what makes no difference to what can happen from it on: serials are named by the order in which
//! they are met, versions by whether they still are the current ones, places in the memory by what they hold.

use super::world::{Doing, Owner, Stored, TICK, World};
use crate::claim::{Change, Seen};
use crate::commit::Phase as CommitPhase;
use crate::guard::Phase as GuardPhase;
use crate::lease::{Kind, Lease};
use crate::operation::Phase;
use crate::queue::List;
use crate::table::{Claim, NONE, Tx};
use crate::time::Time;

/// Two independent 64-bit hashes of the bytes.
pub fn fingerprint(bytes: &[u8]) -> u128 {
    let (mut a, mut b) = (0x9e37_79b9_7f4a_7c15_u64, 0xc2b2_ae3d_27d4_eb4f_u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u64::from_le_bytes(word);
        a = fold(a ^ word, 0xff51_afd7_ed55_8ccd);
        b = fold(b.wrapping_add(word), 0xc4ce_b9fe_1a85_ec53).rotate_left(23);
    }
    let length = bytes.len() as u64;
    (u128::from(fold(a ^ length, 0x2545_f491_4f6c_dd1d)) << 64) | u128::from(fold(b ^ length, 0x9fb2_1c65_1e98_df25))
}

fn fold(value: u64, by: u64) -> u64 {
    let product = u128::from(value ^ (value >> 32)) * u128::from(by);
    (product as u64) ^ (product >> 64) as u64
}

#[derive(Default)]
pub struct Encoder {
    pub bytes: Vec<u8>,
    serials: Vec<u64>,
}

impl Encoder {
    pub fn encode(&mut self, world: &World<'_>) -> &[u8] {
        self.bytes.clear();
        self.serials.clear();
        self.put(world.now);
        self.put(world.floor);
        self.put(world.shared.head.floor);
        self.put(world.shared.head.raising.into());
        for key in world.keys().map(usize::from) {
            self.row(&world.rows[key]);
            self.flag(world.durable[key] == world.rows[key]);
            if world.durable[key] != world.rows[key] {
                self.row(&world.durable[key]);
            }
            self.put(world.top[key]);
            self.key(world, key as u8);
            match world.turns[key] {
                Some(turn) => self.put(turn.since),
                None => self.bytes.push(255),
            }
        }
        self.put(world.durable_floor);
        self.bytes.extend([world.aborts, world.freezes, world.crashes]);
        for lock in [world.table_lock, world.purge_lock, world.floor_lock] {
            self.bytes.push(lock.unwrap_or(255));
        }
        for p in 0..world.processes.len() {
            self.process(world, p);
        }
        &self.bytes
    }

    /// Everything counted here stays small.
    fn put(&mut self, n: i64) {
        self.bytes.push(u8::try_from(n).expect("small"));
    }

    fn flag(&mut self, flag: bool) {
        self.bytes.push(u8::from(flag));
    }

    fn time(&mut self, time: Time) {
        self.bytes.push(match time {
            Time::NEVER => 255,
            Time::PAST => 254,
            Time(t) => u8::try_from(t.div_euclid(TICK) + 8).expect("near"),
        });
    }

    fn serial(&mut self, serial: u64) {
        let name = self.serials.iter().position(|s| *s == serial).unwrap_or_else(|| {
            self.serials.push(serial);
            self.serials.len() - 1
        });
        self.bytes.push(name as u8);
    }

    fn row(&mut self, row: &Stored) {
        self.lease(row.lease.as_ref());
    }

    /// ttl, granted_at and renewed_at decide nothing under one clock; the checks look at versions.
    fn lease(&mut self, lease: Option<&Lease<Owner>>) {
        let Some(l) = lease else { return self.bytes.push(255) };
        self.bytes.push(l.state as u8);
        self.put(l.epoch);
        self.bytes.push(l.owner.unwrap_or(255));
        self.time(l.expires_at);
    }

    fn tx(&mut self, world: &World<'_>, tx: Tx) {
        self.bytes.push(tx.proc as u8 * 2 + u8::from(world.processes[tx.proc as usize].lxid == tx.lxid));
    }

    fn key(&mut self, world: &World<'_>, key: u8) {
        match world.claim(key) {
            Some(claim) => self.claim(world, key, &claim),
            None => self.bytes.push(255),
        }
        let mut guards: Vec<(u32, bool)> = world.guards(key).iter().map(|(tx, sealed)| (tx.proc, *sealed)).collect();
        guards.sort_unstable();
        for (proc, sealed) in guards {
            self.bytes.push(proc as u8 * 2 + u8::from(sealed));
        }
        let mut conflicts = world.list(key, List::Conflicts);
        conflicts.sort_unstable();
        for list in [world.list(key, List::Queue), conflicts] {
            self.bytes.push(254);
            for proc in list {
                let waiter = &world.shared.waiters[proc as usize];
                self.tx(world, waiter.tx);
                self.bytes.push(waiter.waits_for as u8);
                self.time(waiter.until);
            }
        }
        self.bytes.push(253);
        self.bytes.push(world.watch(key).map_or(255, |watch| watch as u8));
    }

    fn claim(&mut self, world: &World<'_>, key: u8, claim: &Claim<Owner>) {
        self.tx(world, claim.tx);
        self.serial(claim.serial);
        self.kind(claim.kind);
        self.time(claim.deadline);
        self.put(claim.issued);
        if world.rows[key as usize].lease.is_none() && claim.kind != Kind::HandOff {
            self.put(claim.from);
        }
        self.bytes.push(claim.owner.unwrap_or(255));
        let current = claim.generation == world.shared.head.generation;
        let flags = [claim.sealed, claim.announced, current, claim.raises];
        self.bytes.push(flags.iter().fold(0, |bits, flag| 2 * bits + u8::from(*flag)));
    }

    fn kind(&mut self, kind: Kind) {
        self.bytes.push(kind as u8);
    }

    fn change(&mut self, world: &World<'_>, change: &Change<Owner>) {
        self.lease(change.lease.as_ref());
        if let Some(lease) = change.lease {
            self.time(lease.granted_at);
        }
        self.kind(change.kind);
        self.time(change.deadline);
        self.serial(change.serial);
        self.put(change.issued);
        self.flag(change.generation == world.shared.head.generation);
    }

    fn version(&mut self, world: &World<'_>, key: u8, version: u64) -> bool {
        let slot = key as usize & (world.shared.versions.len() - 1);
        let current = world.shared.versions[slot] == version;
        self.flag(current);
        current
    }

    fn seen(&mut self, world: &World<'_>, key: u8, seen: &Seen<Owner>) {
        match seen {
            Seen::Row { lease, floor, version, in_snapshot } => {
                self.bytes.push(1 + 4 * u8::from(*in_snapshot));
                if self.version(world, key, *version) || !crate::rules::rule(crate::rules::Rule::Version) {
                    self.lease(lease.as_ref());
                    self.put(*floor);
                }
            }
            Seen::Pending(_) => self.bytes.push(2),
        }
    }

    fn process(&mut self, world: &World<'_>, p: usize) {
        let process = &world.processes[p];
        self.bytes.extend([process.transaction as u8, process.statement as u8]);
        if world.is_done(p as u8) {
            return;
        }
        self.bytes.push(
            u8::from(process.open)
                + 2 * u8::from(process.frozen)
                + 4 * u8::from(process.woken && !process.frozen)
                + 8 * u8::from(process.guards_right)
                + 16 * u8::from(process.guards_overtaken)
                + 32 * u8::from(process.advancing),
        );
        for key in world.keys() {
            self.flag(process.left_out[key as usize]);
        }
        self.bytes.push(process.level as u8);
        self.put(process.floor);
        for key in world.keys().map(usize::from) {
            self.put(process.told[key]);
            self.flag(world.in_snapshot(p as u8, key as u8, &world.rows[key]));
            if process.open {
                self.put(process.told_before[key]);
            }
        }
        for chain in process.changes.chains.iter().filter(|c| !c.stack.is_empty()) {
            self.bytes.push(chain.key);
            self.flag(process.bases[chain.key as usize] == world.rows[chain.key as usize].version);
            for pending in &chain.stack {
                self.bytes.push(pending.level as u8);
                self.change(world, &pending.change);
            }
            self.bytes.push(255);
        }
        self.bytes.push(254);
        for (level, guard) in &process.changes.guards {
            self.bytes.extend([*level as u8, guard.key]);
            self.put(guard.epoch);
            if let Some((serial, until)) = guard.own {
                self.serial(serial);
                self.time(until);
            }
        }
        self.doing(world, p);
    }

    fn doing(&mut self, world: &World<'_>, p: usize) {
        match &world.processes[p].doing {
            Doing::Nothing => self.bytes.push(0),
            Doing::Calling { operation, read, began } => {
                self.bytes.push(1);
                let key = operation.ask().key;
                if !crate::rules::rule(crate::rules::Rule::InstantInSection) {
                    self.put(*began);
                }
                if let crate::claim::Wait::Brief(until) = operation.ask().wait {
                    self.time(until);
                }
                match operation.phase {
                    Phase::Enqueue => self.bytes.push(0),
                    Phase::Sample => self.bytes.push(1),
                    Phase::Read { version } => {
                        self.bytes.push(2);
                        self.version(world, key, version);
                        self.flag(read.version == world.rows[key as usize].version);
                    }
                    Phase::Decide(seen) => {
                        self.bytes.push(3);
                        self.seen(world, key, &seen);
                        self.flag(read.version == world.rows[key as usize].version);
                    }
                    Phase::Sleep { until } => {
                        self.bytes.push(4);
                        self.time(until);
                    }
                    Phase::Done(_) => self.bytes.push(5),
                }
                self.bytes.push(u8::from(world.shared.waiters[p].entry != NONE));
            }
            Doing::Guarding { guarding, read } => {
                self.bytes.push(2);
                match guarding.phase {
                    GuardPhase::Sample => self.bytes.push(1),
                    GuardPhase::Read { version } => {
                        self.bytes.push(2);
                        self.version(world, guarding.key, version);
                        self.flag(read.version == world.rows[guarding.key as usize].version);
                    }
                    GuardPhase::Decide(seen) => {
                        self.bytes.push(3);
                        self.seen(world, guarding.key, &seen);
                        self.flag(read.version == world.rows[guarding.key as usize].version);
                    }
                    GuardPhase::Done(_) => self.bytes.push(4),
                }
            }
            Doing::Committing(commit) => {
                self.bytes.push(3);
                match commit.phase {
                    CommitPhase::Seal => self.bytes.push(1),
                    CommitPhase::Sleep { until } => {
                        self.bytes.push(2);
                        self.time(until);
                    }
                    CommitPhase::Check { next, sealed } => {
                        self.bytes.extend([3, next as u8]);
                        self.time(sealed.now);
                    }
                    CommitPhase::Failed(_) => self.bytes.push(4),
                }
            }
            Doing::Written => self.bytes.push(4),
            Doing::Ending { committed } => self.bytes.push(5 + u8::from(*committed)),
        }
    }
}
