//! What one transaction has pending: its changes by key with their savepoints, its guards.
//!
//! Levels are PostgreSQL's nesting levels: 1 is the transaction itself, each open savepoint one more. A level is recorded
//! only while it is the innermost, so what a savepoint recorded is the end of the log.

use std::collections::HashMap;

use crate::claim::{Change, Guard, Restore, Stake};
use crate::lease::Lease;
use crate::table::Id;
use crate::time::{At, Time};

/// A key's latest change, with what the caller wants to write along (`extra`).
#[derive(Clone, Debug)]
pub struct Pending<O, X> {
    pub(crate) level: u32,
    pub change: Change<O>,
    pub extra: X,
}

#[derive(Clone, Debug)]
pub(crate) struct Chain<K, O, X> {
    pub(crate) key: K,
    hash: u32,
    /// The committed row that the first change was decided on.
    base: Option<Lease<O>>,
    /// One change per level at most, innermost last.
    pub(crate) stack: Vec<Pending<O, X>>,
}

impl<K: Id, O: Id, X> Chain<K, O, X> {
    fn stake(&self, change: &Change<O>) -> Stake<K> {
        change.stake(self.key, self.hash)
    }
}

#[derive(Clone, Debug)]
pub struct Transaction<K, O, X> {
    pub(crate) chains: Vec<Chain<K, O, X>>,
    by_key: HashMap<K, usize>,
    /// Which chain got a change at which level, in order.
    log: Vec<(u32, usize)>,
    pub(crate) guards: Vec<(u32, Guard<K, O>)>,
    /// The latest guard of each guarded key, and for each guard the one before it on the same key.
    guard_by_key: HashMap<K, usize>,
    guard_before: Vec<Option<usize>>,
}

impl<K: Id, O: Id, X> Default for Transaction<K, O, X> {
    fn default() -> Self {
        Transaction {
            chains: Vec::new(),
            by_key: HashMap::new(),
            log: Vec::new(),
            guards: Vec::new(),
            guard_by_key: HashMap::new(),
            guard_before: Vec::new(),
        }
    }
}

impl<K: Id, O: Id, X> Transaction<K, O, X> {
    pub fn is_empty(&self) -> bool {
        self.log.is_empty() && self.guards.is_empty()
    }

    /// How many keys have a change pending.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn pending(&self, key: &K) -> Option<&Pending<O, X>> {
        self.by_key.get(key).and_then(|i| self.chains[*i].stack.last())
    }

    /// Adds a change. `base` is the committed row it was decided on; it matters for the first change of a key only.
    pub fn record(&mut self, level: u32, key: K, hash: u32, base: Option<Lease<O>>, change: Change<O>, extra: X) {
        let index = *self.by_key.entry(key).or_insert_with(|| {
            self.chains.push(Chain { key, hash, base, stack: Vec::new() });
            self.chains.len() - 1
        });
        let pending = Pending { level, change, extra };
        let stack = &mut self.chains[index].stack;
        match stack.last_mut() {
            Some(top) if top.level == level => *top = pending,
            _ => {
                stack.push(pending);
                self.log.push((level, index));
            }
        }
    }

    /// A guard in a place that is known already is the same one, judged anew.
    pub fn add_guard(&mut self, level: u32, guard: Guard<K, O>) {
        let known = self.guards_of(&guard.key).find(|i| self.guards[*i].1.slot == guard.slot);
        if let Some(known) = known {
            self.guards[known].1 = guard;
            return;
        }
        self.guard_before.push(self.guard_by_key.insert(guard.key, self.guards.len()));
        self.guards.push((level, guard));
    }

    /// A key's guards, latest first.
    fn guards_of(&self, key: &K) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.guard_by_key.get(key).copied(), |i| self.guard_before[*i])
    }

    /// The latest guard of a key.
    pub fn guard_of(&self, key: &K) -> Option<&Guard<K, O>> {
        self.guard_by_key.get(key).map(|i| &self.guards[*i].1)
    }

    /// The guard that demands exactly this.
    pub fn same_guard(&self, key: &K, owner: O, epoch: i64) -> Option<&Guard<K, O>> {
        self.guards_of(key).map(|i| &self.guards[i].1).find(|g| g.owner == owner && g.epoch == epoch)
    }

    /// How many places it takes in what is shared: one for each key changed, one for each guard.
    pub fn places(&self) -> usize {
        self.by_key.len() + self.guards.len()
    }

    pub fn guards(&self) -> impl Iterator<Item = Guard<K, O>> + '_ {
        self.guards.iter().map(|(_, g)| *g)
    }

    /// Every key's latest change, in the order in which the keys were first changed, with the row it was decided on.
    pub fn changes(&self) -> impl Iterator<Item = (&K, Option<&Lease<O>>, &Pending<O, X>)> + '_ {
        self.chains.iter().filter_map(|c| c.stack.last().map(|top| (&c.key, c.base.as_ref(), top)))
    }

    /// What the commit has to seal.
    pub fn stakes(&self) -> impl Iterator<Item = Stake<K>> + '_ {
        self.chains.iter().filter_map(|c| c.stack.last().map(|top| c.stake(&top.change)))
    }

    /// What [`crate::Section::finish`] needs: each stake and from when its key can be acquired.
    pub fn outcomes(&self, committed: bool, at: At) -> impl Iterator<Item = (Stake<K>, Time)> + '_ {
        self.chains.iter().filter_map(move |c| {
            let top = c.stack.last()?;
            let lease = if committed { top.change.lease } else { c.base };
            Some((c.stake(&top.change), lease.map_or(Time::PAST, |l| l.acquirable_from(at))))
        })
    }

    /// A savepoint is rolled back: takes off what it and the ones inside it recorded. Tells for each key what its claim
    /// goes back to, and which guards go.
    pub fn roll_back(
        &mut self,
        level: u32,
        at: At,
        mut claim: impl FnMut(Stake<K>, Restore),
        mut guard: impl FnMut(Guard<K, O>),
    ) {
        while let Some(&(l, index)) = self.log.last() {
            if l < level {
                break;
            }
            self.log.pop();
            let chain = &mut self.chains[index];
            let Some(gone) = chain.stack.pop() else { continue };
            let restore = match chain.stack.last() {
                Some(top) => Restore::Change { kind: top.change.kind, deadline: top.change.deadline },
                None => Restore::Nothing { acquirable_from: chain.base.map_or(Time::PAST, |l| l.acquirable_from(at)) },
            };
            claim(chain.stake(&gone.change), restore);
            if chain.stack.is_empty() {
                // the log had the chain's first entry: no later chain is in use
                self.by_key.remove(&chain.key);
            }
        }
        while self.chains.last().is_some_and(|c| c.stack.is_empty()) {
            self.chains.pop();
        }
        while self.guards.last().is_some_and(|(l, _)| *l >= level) {
            if let Some((_, g)) = self.guards.pop() {
                match self.guard_before.pop().flatten() {
                    Some(before) => self.guard_by_key.insert(g.key, before),
                    None => self.guard_by_key.remove(&g.key),
                };
                guard(g);
            }
        }
    }

    /// A savepoint is released: what it recorded belongs to the level around it.
    pub fn release(&mut self, level: u32) {
        let outer = level - 1;
        let first = self.log.partition_point(|(l, _)| *l < level);
        let inner: Vec<(u32, usize)> = self.log.drain(first..).collect();
        for (_, index) in inner {
            let stack = &mut self.chains[index].stack;
            let below = stack.len().checked_sub(2).map(|i| stack[i].level);
            if let Some(top) = stack.last_mut() {
                top.level = outer;
            }
            if below == Some(outer) {
                let covered = stack.len() - 2;
                stack.remove(covered);
            } else {
                self.log.push((outer, index));
            }
        }
        for (l, _) in self.guards.iter_mut().rev().take_while(|(l, _)| *l >= level) {
            *l = outer;
        }
    }

    pub fn clear(&mut self) {
        *self = Transaction::default();
    }
}
